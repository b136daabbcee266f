"""Tickets: one line of text that leads another machine to a topic (docs/spec/tickets.md).

A ticket names a peer, the addresses at which it can be dialled, its network and a topic. It holds
no secret and no right: the peer that is dialled proves its key, and a topic's content id proves the
topic. So it carries a checksum against a paste that was cut off, and no signature: a liar would
sign a ticket of its own (docs/decisions/0038).

    pulsarcast1 + base32(dag-cbor map + checksum)

The map: n network, p peer, l addresses, t topic, a author (left out where it is p), m the topic's
name. Fields that are not known are ignored.
"""

from __future__ import annotations

import base64
import binascii
import re
from hashlib import sha256
from typing import Final

import msgspec

from pulsarcast.model.cbor import decode, encode
from pulsarcast.model.errors import LocalError, RemoteError, caller_to_blame
from pulsarcast.model.fields import NAME_BYTES_MAX, Fields, read_line
from pulsarcast.model.ids import Cid, PeerId, check_cid, check_peer_id

PREFIX: Final = "pulsarcast1"
"""What a ticket begins with; the number is that of the form, and no letter of base32."""
TICKET_BYTES_MAX: Final = 8192
"""Bounds the map: all addresses at their longest take 4 KB, and later fields have the rest."""
TICKET_CHARS_MAX: Final = 16_384
"""Bounds the text before any of it is read."""
ADDRESSES_MAX: Final = 16
ADDRESS_BYTES_MAX: Final = 256
"""Bound the addresses as messages between peers do."""
NETWORK_BYTES_MAX: Final = 64
CHECKSUM_BYTES: Final = 4
"""One damaged ticket in four billion passes: this is for mistakes, not against liars."""

_ADDRESS: Final = re.compile(rf"[!-~]{{1,{ADDRESS_BYTES_MAX}}}")
_OTHER_FORM: Final = re.compile(r"pulsarcast[0-9]")


class Ticket(msgspec.Struct, frozen=True):
    """The way to a topic."""

    network: str
    peer: PeerId
    """A peer that follows the topic."""
    addresses: tuple[str, ...]
    """Multiaddrs, some of which a reader may not understand."""
    topic: Cid
    author: PeerId
    """The topic's, so that a person sees what the ticket is for."""
    name: str = ""


def ticket_text(ticket: Ticket) -> str:
    """A ticket as one line."""
    fields: Fields = {
        "n": ticket.network,
        "p": ticket.peer,
        "l": list(ticket.addresses),
        "t": ticket.topic,
    }
    if ticket.author != ticket.peer:
        fields["a"] = ticket.author
    if ticket.name:
        fields["m"] = ticket.name
    block = encode(fields)
    with caller_to_blame():
        _read(block)
    data = base64.b32encode(block + _checksum(block)).decode("ascii")
    return PREFIX + data.rstrip("=").lower()


def parse_ticket(text: str) -> Ticket:
    """Read a ticket that a person pasted; raises LocalError with what is wrong with it."""
    if len(text) > TICKET_CHARS_MAX:
        raise LocalError(f"not a ticket: it has more than {TICKET_CHARS_MAX} characters")
    line = "".join(text.split()).lower()  # A letter's line breaks, and a phone's capital.
    if not line.startswith(PREFIX):
        if _OTHER_FORM.match(line):
            raise LocalError("the ticket is of a newer version of Pulsarcast: update this one")
        raise LocalError(f"not a ticket: a ticket begins with {PREFIX}")
    data = _unpack(line.removeprefix(PREFIX))
    block, checksum = data[:-CHECKSUM_BYTES], data[-CHECKSUM_BYTES:]
    if checksum != _checksum(block):
        raise LocalError(
            "the ticket is damaged or cut off: copy the whole line that `pulsarcast invite` printed"
        )
    try:
        return _read(block)
    except RemoteError as error:
        raise LocalError(f"not a ticket that this version can read: {error}") from error


def _unpack(line: str) -> bytes:
    """The bytes behind base32 letters; none where they are others."""
    try:
        return base64.b32decode(line.upper() + "=" * (-len(line) % 8))
    except (binascii.Error, ValueError):
        return b""


def _checksum(block: bytes) -> bytes:
    return sha256(b"pulsarcast/ticket/1" + block).digest()[:CHECKSUM_BYTES]


def _read(block: bytes) -> Ticket:
    fields = decode(block, size_max=TICKET_BYTES_MAX)
    if not isinstance(fields, dict):
        raise RemoteError("a ticket is not a map")
    addresses = fields.get("l")
    if not isinstance(addresses, list) or len(addresses) > ADDRESSES_MAX:
        raise RemoteError(f"a ticket's addresses are not a list of up to {ADDRESSES_MAX}")
    for address in addresses:
        if not isinstance(address, str) or not _ADDRESS.fullmatch(address):
            raise RemoteError(f"an address is not 1 to {ADDRESS_BYTES_MAX} visible characters")
    peer = check_peer_id(fields.get("p"))
    return Ticket(
        network=read_line(fields.get("n"), NETWORK_BYTES_MAX, "a ticket's network"),
        peer=peer,
        addresses=tuple(dict.fromkeys(addresses)),
        topic=check_cid(fields.get("t")),
        author=check_peer_id(fields["a"]) if "a" in fields else peer,
        name=read_line(fields["m"], NAME_BYTES_MAX, "a topic's name") if "m" in fields else "",
    )
