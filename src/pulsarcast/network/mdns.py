"""Peers of the same local network, found without being named (libp2p specification, mDNS).

The node says where it can be dialled, under a name that means nothing, and listens for other nodes.
What they say is a hint and no more: a peer that is dialled proves who it is.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

import trio
from zeroconf import (
    NonUniqueNameException,
    ServiceBrowser,
    ServiceInfo,
    ServiceStateChange,
    Zeroconf,
)

from pulsarcast.model.errors import LocalError
from pulsarcast.model.ids import PeerId, peer_text
from pulsarcast.network.addresses import HEARSAY_MAX, parse_contact
from pulsarcast.protocol.messages import Contact

SERVICE: Final = "_p2p._udp.local."
NAME_BYTES: Final = 16
ANSWER_MS: Final = 3000
FOUND_MAX: Final = 256
"""Peers of one life that we take from here: a neighbour can invent as many as it likes."""
TOLD_MAX: Final = 8
"""Addresses that the node tells: its answers stay below the size of one packet."""

_ENTRY: Final = b"dnsaddr="
_ENTRY_BYTES_MAX: Final = 255
"""A TXT record has entries of so many bytes at most (RFC 6763, 6.1)."""


async def find_locally(
    me: PeerId, addresses: Sequence[str], found: Callable[[Contact], None]
) -> None:
    """Say where we are, if we can, and tell of everybody else who does, until cancelled."""
    token = trio.lowlevel.current_trio_token()
    known: dict[str, None] = {}
    told, heard = trio.open_memory_channel[Contact](FOUND_MAX)

    def tell(contact: Contact) -> None:
        # Nobody listens any more once we were cancelled; raised here, it would end all of Trio.
        with suppress(trio.BrokenResourceError, trio.WouldBlock):
            told.send_nowait(contact)

    def changed(
        zeroconf: Zeroconf, service_type: str, name: str, state_change: ServiceStateChange
    ) -> None:
        """Run by a thread of theirs."""
        if state_change is not ServiceStateChange.Added or name in known:
            return
        if len(known) >= FOUND_MAX:
            return
        known[name] = None
        info = zeroconf.get_service_info(service_type, name, timeout=ANSWER_MS)
        for contact in contacts_in(b"" if info is None else info.text):
            if contact.peer != me:
                with suppress(trio.RunFinishedError):
                    token.run_sync_soon(tell, contact)

    zeroconf, browser = await trio.to_thread.run_sync(_begin, me, addresses, changed)
    try:
        async for contact in heard:
            # The node may be about to close: then it wants to meet nobody.
            await trio.lowlevel.checkpoint_if_cancelled()
            found(contact)
    finally:
        heard.close()
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(_end, zeroconf, browser)


def _begin(
    me: PeerId, addresses: Sequence[str], changed: Callable[..., None]
) -> tuple[Zeroconf, ServiceBrowser]:
    hosts = list(dict.fromkeys(address.split("/")[2] for address in addresses))
    addressed = [str(each) for host in hosts if (each := _ip(host)) is not None]
    if not addressed:
        raise LocalError("mDNS needs an IPv4 address of this machine: set node.listen to one")
    try:
        zeroconf = Zeroconf(interfaces=addressed)
    except OSError as error:
        raise LocalError(f"mDNS does not work on this machine: {error}") from error
    name = os.urandom(NAME_BYTES).hex()
    info = ServiceInfo(
        SERVICE,
        f"{name}.{SERVICE}",
        port=int(addresses[0].split("/")[4]),
        properties=text_of(me, addresses),
        server=f"{name}.local.",
        parsed_addresses=addressed,
    )
    with suppress(NonUniqueNameException):
        zeroconf.register_service(info)
    return zeroconf, ServiceBrowser(zeroconf, SERVICE, handlers=[changed])


def _end(zeroconf: Zeroconf, browser: ServiceBrowser) -> None:
    browser.cancel()
    zeroconf.close()


def _ip(text: str) -> ipaddress.IPv4Address | None:
    try:
        return ipaddress.IPv4Address(text)
    except ValueError:
        return None


def text_of(me: PeerId, addresses: Sequence[str]) -> bytes:
    """A TXT record with one entry for each address."""
    entries = [_ENTRY + f"{each}/p2p/{peer_text(me)}".encode() for each in addresses[:TOLD_MAX]]
    return b"".join(
        bytes([len(entry)]) + entry for entry in entries if len(entry) <= _ENTRY_BYTES_MAX
    )


def contacts_in(text: bytes) -> list[Contact]:
    """The peers that a TXT record names; anything else in it belongs to other programs."""
    found: dict[PeerId, tuple[str, ...]] = {}
    at = 0
    while at < len(text):
        end = at + 1 + text[at]
        entry = text[at + 1 : end]
        at = end
        if not entry.startswith(_ENTRY):
            continue
        try:
            peer, addresses = parse_contact(entry.removeprefix(_ENTRY).decode())
        except (LocalError, UnicodeDecodeError):
            continue
        found[peer] = tuple(dict.fromkeys((*found.get(peer, ()), *addresses)))[:HEARSAY_MAX]
    return [Contact(peer, addresses) for peer, addresses in found.items()]
