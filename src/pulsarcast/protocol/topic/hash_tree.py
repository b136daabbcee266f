"""A hash tree over a frontier: finds where two frontiers differ (docs/spec/pulsarcast.md, State).

A leaf is a numbering. The hash of its publisher and epoch is its place, read in steps of four bits.
A part of the tree is named by the steps that its leaves have in common. One of a few leaves is
hashed as a list, a larger one as its sixteen parts. So the hash of a part depends on its leaves
alone, whatever order they came in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b

from pulsarcast.protocol.limits import PART_DIGEST_BYTES, PARTS_OF_ONE, STEPS_MAX

LEAVES_MAX = 8
"""Bounds the leaves of a part that is hashed as a list: every node has to take the same."""
EMPTY = bytes(PART_DIGEST_BYTES)
"""The hash of a part without leaves."""


class _Part:
    """A part of the tree: its leaves, or its sixteen parts where it has too many."""

    __slots__ = ("digest", "leaves", "parts")

    def __init__(self) -> None:
        self.leaves: dict[bytes, bytes] = {}
        """Hashes by place."""
        self.parts: list[_Part | None] = []
        self.digest: bytes | None = None

    def put(self, place: bytes, leaf: bytes, depth: int) -> None:
        """Add a leaf, or change it."""
        self.digest = None
        if self.parts:
            step = place[depth]
            part = self.parts[step]
            if part is None:
                part = self.parts[step] = _Part()
            part.put(place, leaf, depth + 1)
            return
        self.leaves[place] = leaf
        if len(self.leaves) > LEAVES_MAX and depth < STEPS_MAX:
            leaves, self.leaves, self.parts = self.leaves, {}, [None] * PARTS_OF_ONE
            for each, its_leaf in leaves.items():
                self.put(each, its_leaf, depth)

    def hash(self) -> bytes:
        """The hash of all leaves."""
        if self.digest is None:
            if self.parts:
                row = b"".join(EMPTY if part is None else part.hash() for part in self.parts)
                self.digest = _hash(row, b"parts")
            else:
                self.digest = _hash_leaves(self.leaves)
        return self.digest

    def places(self) -> Iterator[bytes]:
        """Where its leaves are."""
        yield from self.leaves
        for part in self.parts:
            if part is not None:
                yield from part.places()


class HashTree:
    """The leaves of one frontier, hashed."""

    def __init__(self) -> None:
        self._root = _Part()

    def put(self, place: bytes, leaf: bytes) -> None:
        """Add a leaf, or change it; `leaf` is its hash."""
        self._root.put(place, leaf, 0)

    def digest(self) -> bytes:
        """The hash of all leaves."""
        return self._root.hash()

    def digests(self, steps: bytes) -> bytes:
        """The hashes of the sixteen parts of a part, in a row."""
        part, few = self._find(steps)
        if part is not None and part.parts:
            return b"".join(EMPTY if each is None else each.hash() for each in part.parts)
        hashed: dict[int, dict[bytes, bytes]] = {}
        for place, leaf in few.items():
            hashed.setdefault(place[len(steps)], {})[place] = leaf
        return b"".join(
            _hash_leaves(hashed[step]) if step in hashed else EMPTY for step in range(PARTS_OF_ONE)
        )

    def differing(self, steps: bytes, theirs: bytes) -> list[bytes]:
        """The parts of a part whose hashes are not those of a peer."""
        if len(steps) >= STEPS_MAX:
            return []
        ours, size = self.digests(steps), PART_DIGEST_BYTES
        return [
            steps + bytes((step,))
            for step in range(PARTS_OF_ONE)
            if ours[step * size : (step + 1) * size] != theirs[step * size : (step + 1) * size]
        ]

    def is_small(self, steps: bytes, most: int = LEAVES_MAX) -> bool:
        """Whether a part has at most so many leaves, which are no more than a list has."""
        part, few = self._find(steps)
        return (part is None or not part.parts) and (len(few) <= most or len(steps) >= STEPS_MAX)

    def below(self, steps: bytes) -> Iterable[bytes]:
        """The places of a part's leaves."""
        part, few = self._find(steps)
        return few if part is None else part.places()

    def _find(self, steps: bytes) -> tuple[_Part | None, dict[bytes, bytes]]:
        """A part; or, where it is within one that is hashed as a list, its leaves."""
        part = self._root
        for step in steps:
            if not part.parts:
                few = {each: leaf for each, leaf in part.leaves.items() if each.startswith(steps)}
                return None, few
            below = part.parts[step] if step < PARTS_OF_ONE else None
            if below is None:
                return None, {}
            part = below
        return part, part.leaves


def place_of(numbering: bytes) -> bytes:
    """The place of a leaf, in steps of four bits."""
    digest = blake2b(numbering, digest_size=STEPS_MAX // 2, person=b"place").digest()
    return bytes(step for byte in digest for step in (byte >> 4, byte & 15))


def _hash_leaves(leaves: dict[bytes, bytes]) -> bytes:
    if not leaves:
        return EMPTY
    return _hash(b"".join(leaves[place] for place in sorted(leaves)), b"leaves")


def _hash(row: bytes, kind: bytes) -> bytes:
    return blake2b(row, digest_size=PART_DIGEST_BYTES, person=kind).digest()
