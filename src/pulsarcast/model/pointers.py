"""Mutable pointers: from an author and a name to a topic, and to its newest version.

docs/spec/descriptors.md, Pointer.

All other descriptors are immutable and found by content id. A pointer is the one record that is
replaced: a peer that looks it up asks all replicas and takes the one that ranks highest. The author
signs it, so that no replica can invent one. A name changes its topic only with a higher number of
moves, which its author alone gives. Two pointers that name different topics with one number of
moves prove that two nodes used the author's key without knowing of each other: a clash.

On the wire: v (protocol version, 1), a author, m name, o moves, t topic, i number, c content id,
s signature.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

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

_POINTER_KEYS = frozenset("vamotics")


class Pointer(msgspec.Struct, frozen=True):
    """An author's statement of the topic that a name leads to, and of its newest version."""

    author: PeerId
    name: str
    moves: int  # how often the author has moved the name to another topic
    topic: Cid
    number: int  # of the version that it points to
    cid: Cid
    signature: bytes
    block: bytes


def pointer_key(author: PeerId, name: str) -> Key:
    """The key under which the pointer to an author's topic of this name is kept."""
    return key_of(signed_bytes("pointer", author + name.encode()))


def sign_pointer(
    identity: Identity, name: str, number: int, cid: Cid, *, topic: Cid, moves: int = 0
) -> Pointer:
    """State, as its author, that a name leads to a topic, and which version is the newest."""
    fields: Fields = {
        "v": PROTOCOL_VERSION,
        "a": identity.peer_id,
        "m": name,
        "o": moves,
        "t": topic,
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
    moves = read_int(fields.get("o"), 0, INT_MAX, "moves")
    topic = check_cid(fields.get("t"))
    number = read_int(fields.get("i"), 0, INT_MAX, "number")
    cid = check_cid(fields.get("c"))
    signature = read_signature(fields.pop("s", None))
    if verify and not verify_signature(author, "pointer", encode_part(fields), signature):
        raise RemoteError("the pointer's signature is wrong", code=Rejection.BAD_SIGNATURE)
    return Pointer(author, name, moves, topic, number, cid, signature, block)


# Comparing.


def is_newer(pointer: Pointer, than: Pointer) -> bool:
    """Whether a pointer ranks above another one of the same author and name.

    More moves win. With equal moves the topics settle it before the versions do, so that a version
    of a topic never takes a name from another topic.
    """
    if pointer.moves != than.moves:
        return pointer.moves > than.moves
    if pointer.topic != than.topic:
        return pointer.topic < than.topic
    if pointer.number != than.number:
        return pointer.number > than.number
    return pointer.cid < than.cid


def is_clash(one: Pointer, other: Pointer) -> bool:
    """Whether no single node of an author can have signed both pointers of a name."""
    if one.moves != other.moves:
        return False
    if one.topic != other.topic:
        return True
    return one.number == other.number and one.cid != other.cid


class Named(NamedTuple):
    """What is known of one name: the pointer that holds, and one that clashes with it."""

    pointer: Pointer
    rival: Pointer | None = None

    def with_other(self, other: Pointer) -> Named:
        """The same with another pointer of the name: itself where that adds nothing."""
        if is_newer(other, self.pointer):
            rivals = [each for each in (self.pointer, self.rival) if each and is_clash(other, each)]
            return Named(other, rivals[0] if rivals else None)
        if not is_clash(self.pointer, other):
            return self
        is_better = self.rival is None or is_newer(other, self.rival)
        return Named(self.pointer, other) if is_better else self

    def merged(self, others: Named) -> Named:
        """The same with all that another peer knows of the name."""
        named = self.with_other(others.pointer)
        return named if others.rival is None else named.with_other(others.rival)

    @property
    def blocks(self) -> tuple[bytes, ...]:
        """Both pointers as blocks, the one that holds first."""
        both = (self.pointer, self.rival)
        return tuple(each.block for each in both if each is not None)


class Resolution(NamedTuple):
    """What a name leads to, as one node finds it."""

    pointer: Pointer
    rival: Pointer | None = None
    reading: Pointer | None = None
    """The pointer that led here before the name moved, where the node still reads that topic."""

    @property
    def topic(self) -> Cid:
        """The topic that the name stands for at this node."""
        return (self.reading or self.pointer).topic


def join_blocks(blocks: Iterable[bytes]) -> bytes:
    """Some pointers as one value on the disk."""
    return b"".join(len(block).to_bytes(2) + block for block in blocks)


def split_blocks(value: bytes) -> list[bytes]:
    """The pointers of a value that `join_blocks` made."""
    blocks: list[bytes] = []
    while value:
        end = 2 + int.from_bytes(value[:2])
        blocks.append(value[2:end])
        value = value[end:]
    return blocks


def decode_named(blocks: Iterable[bytes]) -> Named | None:
    """What pointers of one name say together; refuses pointers of different names."""
    named: Named | None = None
    for block in blocks:
        pointer = decode_pointer(block)
        if named is None:
            named = Named(pointer)
        elif (pointer.author, pointer.name) != (named.pointer.author, named.pointer.name):
            raise RemoteError("pointers of different names together")
        else:
            named = named.with_other(pointer)
    return named
