"""Single fields of messages: packed for Protocol Buffers, and read back or refused.

Packing trusts our own core. Reading trusts nobody: Protocol Buffers only promises the types, so
each length and bound is checked here (design, 5).
"""

from collections.abc import Collection
from typing import TypeAlias

from pulsarcast.model.errors import Rejection, RemoteError
from pulsarcast.model.ids import Cid, PeerId, check_cid, check_peer_id
from pulsarcast.model.keys import Key
from pulsarcast.protocol.messages import Contact
from pulsarcast.wire import pulsarcast_pb2 as pb
from pulsarcast.wire.limits import (
    ADDRESS_BYTES_MAX,
    ADDRESSES_MAX,
    BLOCKS_MAX,
    CERTIFICATE_BYTES_MAX,
    CIDS_MAX,
    CODE_BYTES_MAX,
    CONTACTS_MAX,
    DIGEST_BYTES_MAX,
    DIGEST_BYTES_MIN,
    INTEGER_MAX,
    KEY_BYTES,
    PATH_MAX,
    REASON_BYTES_MAX,
    STORE_BYTES,
)

# A message as keyword arguments. Made from these rather than from a message object, a frame is
# filled in once instead of copied, which halves the time an event takes to encode.
Packed: TypeAlias = dict[str, object]


# Packing.


def pack_key(key: Key) -> bytes:
    """A key, or a xor of keys, as 32 bytes."""
    return key.to_bytes(KEY_BYTES, "big")


def pack_contact(contact: Contact) -> Packed:
    """A peer and its addresses."""
    if contact.addresses:
        return {"peer": contact.peer, "addresses": contact.addresses}
    return {"peer": contact.peer}


def pack_contacts(contacts: tuple[Contact, ...]) -> list[Packed]:
    """Peers and their addresses."""
    return [pack_contact(contact) for contact in contacts]


# Reading.


def read_integer(value: int, what: str, *, high: int = INTEGER_MAX) -> int:
    """A number that is not too large; the schema knows no negative ones."""
    if value > high:
        raise RemoteError(f"{what} is larger than {high}", code=Rejection.OVERSIZE)
    return value


def read_key(raw: bytes) -> Key:
    """A key, or a xor of keys."""
    if len(raw) != KEY_BYTES:
        raise RemoteError(f"a key has {len(raw)} bytes, not {KEY_BYTES}")
    return int.from_bytes(raw, "big")


def read_digest(raw: bytes) -> bytes:
    """The hash of a frontier."""
    if not DIGEST_BYTES_MIN <= len(raw) <= DIGEST_BYTES_MAX:
        raise RemoteError(f"a digest has {len(raw)} bytes")
    return raw


def read_block(raw: bytes) -> bytes:
    """A descriptor's bytes, to be judged by the core; a frame's size bounds them."""
    if not raw:
        raise RemoteError("an empty block")
    return raw


def read_blocks(raw: Collection[bytes]) -> tuple[bytes, ...]:
    """Descriptors' bytes, in the sender's order."""
    check_count(raw, BLOCKS_MAX, "blocks")
    blocks = tuple(raw)
    if not all(blocks):
        raise RemoteError("an empty block")
    return blocks


def read_certificate(raw: bytes) -> bytes:
    """What proves an event's place, to be judged by the core."""
    if len(raw) > CERTIFICATE_BYTES_MAX:
        raise RemoteError(
            f"a certificate of more than {CERTIFICATE_BYTES_MAX} bytes", code=Rejection.OVERSIZE
        )
    return raw


def read_store(raw: bytes) -> bytes:
    """Which store of a sequencer speaks."""
    if len(raw) != STORE_BYTES:
        raise RemoteError(f"a store's id has {len(raw)} bytes, not {STORE_BYTES}")
    return raw


def read_cids(raw: Collection[bytes]) -> tuple[Cid, ...]:
    """Content ids, in the sender's order."""
    check_count(raw, CIDS_MAX, "CIDs")
    return tuple(map(check_cid, raw))


def read_path(raw: Collection[bytes]) -> tuple[PeerId, ...]:
    """The way from the sender to the root."""
    check_count(raw, PATH_MAX, "peers in a path")
    return tuple(map(check_peer_id, raw))


def read_contact(given: pb.Contact) -> Contact:
    """A peer and its addresses."""
    addresses = given.addresses
    return Contact(check_peer_id(given.peer), read_addresses(addresses) if addresses else ())


def read_contacts(given: Collection[pb.Contact]) -> tuple[Contact, ...]:
    """Peers and their addresses."""
    check_count(given, CONTACTS_MAX, "contacts")
    return tuple(map(read_contact, given))


def read_addresses(given: Collection[str]) -> tuple[str, ...]:
    """Multiaddrs, whose meaning is the driver's business."""
    return read_texts(given, ADDRESSES_MAX, ADDRESS_BYTES_MAX, "addresses")


def read_code(given: str) -> str:
    """Why something was refused, for programs."""
    return read_text(given, CODE_BYTES_MAX, "a code")


def read_reason(given: str) -> str:
    """Why something was refused, for people."""
    return read_text(given, REASON_BYTES_MAX, "reason")


def read_texts(
    given: Collection[str], count_max: int, bytes_max: int, what: str
) -> tuple[str, ...]:
    """Texts, neither many nor long."""
    check_count(given, count_max, what)
    return tuple([read_text(text, bytes_max, what) for text in given])


def read_text(given: str, bytes_max: int, what: str) -> str:
    """A text that is not long."""
    if len(given.encode()) > bytes_max:
        raise RemoteError(f"{what}: a text of more than {bytes_max} bytes", code=Rejection.OVERSIZE)
    return given


def check_count(given: Collection[object], count_max: int, what: str) -> None:
    """Refuse a list that is too long, before anything is made of it."""
    if len(given) > count_max:
        raise RemoteError(f"more than {count_max} {what}", code=Rejection.TOO_MANY)
