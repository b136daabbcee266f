"""Mutable pointers: from an author and a name to the newest version of a topic.

docs/spec/descriptors.md, Pointer.

All other descriptors are immutable and found by content id. A pointer is the one record that is
replaced: a peer that looks it up asks all replicas and takes the highest number. The author signs
it, so that no replica can invent one.

On the wire: v (protocol version, 1), a author, m name, i number, c content id, s signature.
"""

from __future__ import annotations

from typing import Final

import msgspec

from pulsarcast.model.cbor import INT_MAX, decode, encode, encode_part, opaque
from pulsarcast.model.errors import Rejection, RemoteError, caller_to_blame
from pulsarcast.model.fields import (
    PROTOCOL_VERSION,
    Fields,
    check_version,
    read_int,
    read_map,
    read_name,
    read_signature,
)
from pulsarcast.model.identity import Identity, signed_bytes, verify_signature
from pulsarcast.model.ids import Cid, PeerId, check_cid, check_peer_id
from pulsarcast.model.keys import Key, key_of

POINTER_BYTES_MAX: Final = 1024

_POINTER_KEYS = frozenset("vamics")


class Pointer(msgspec.Struct, frozen=True):
    """An author's statement of which version of a topic is the newest."""

    author: PeerId
    name: str
    number: int  # of the version that it points to
    cid: Cid
    signature: bytes
    block: bytes


def pointer_key(author: PeerId, name: str) -> Key:
    """The key under which the pointer to an author's topic of this name is kept."""
    return key_of(signed_bytes("pointer", author + name.encode()))


def sign_pointer(identity: Identity, name: str, number: int, cid: Cid) -> Pointer:
    """State, as a topic's author, which version is the newest."""
    fields: Fields = {
        "v": PROTOCOL_VERSION,
        "a": identity.peer_id,
        "m": name,
        "i": number,
        "c": cid,
    }
    fields["s"] = opaque(identity.sign("pointer", encode(fields)))
    with caller_to_blame():
        return _read_pointer(encode(fields), verify=False)


def decode_pointer(block: bytes) -> Pointer:
    """Read and verify a pointer."""
    return _read_pointer(block, verify=True)


def _read_pointer(block: bytes, *, verify: bool) -> Pointer:
    value = decode(block, size_max=POINTER_BYTES_MAX)
    check_version(value, "a pointer")
    fields = read_map(value, _POINTER_KEYS, "a pointer")
    author = check_peer_id(fields.get("a"))
    name = read_name(fields.get("m"), "a topic's name")
    number = read_int(fields.get("i"), 0, INT_MAX, "number")
    cid = check_cid(fields.get("c"))
    signature = read_signature(fields.pop("s", None))
    if verify and not verify_signature(author, "pointer", encode_part(fields), signature):
        raise RemoteError("the pointer's signature is wrong", code=Rejection.BAD_SIGNATURE)
    return Pointer(author, name, number, cid, signature, block)
