"""The keyspace of peers and content: 256 bits, with XOR as the distance (docs/spec/pulsarcast.md).

A key is a plain int, because Python compares, XORs and counts the bits of ints at C speed.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TypeAlias

Key: TypeAlias = int

KEY_BITS = 256


def key_of(data: bytes) -> Key:
    """The key of some bytes: their SHA-256, read as a big-endian number."""
    return int.from_bytes(sha256(data).digest(), "big")


def bucket_of(a: Key, b: Key) -> int:
    """The index of the highest bit in which two keys differ, or -1 where they are equal.

    Seen from `a`, bucket 255 is the far half of the space and bucket 0 the nearest possible key.
    """
    return (a ^ b).bit_length() - 1
