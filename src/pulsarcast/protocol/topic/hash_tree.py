"""A hash tree over a frontier: finds where two frontiers differ (docs/spec/pulsarcast.md, State).

A leaf is a mark. The hash of its publisher and epoch is its place, read in steps of four bits. A
part of the tree is named by the steps that its leaves have in common. One of a few leaves is hashed
as a list, a larger one as its sixteen parts. So the hash of a part depends on its leaves alone,
whatever order they came in.

A part that is not loaded has a hash only. It is loaded from whoever has it, and the hash tells
whether that is right.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from itertools import islice
from typing import NamedTuple

from pulsarcast.model.errors import Rejection, RemoteError
from pulsarcast.protocol.limits import PART_DIGEST_BYTES, PARTS_OF_ONE, STEPS_MAX
from pulsarcast.protocol.store import MarkState

EMPTY = bytes(PART_DIGEST_BYTES)
"""The hash of a part without leaves."""
SHARED = -1
"""The tree of a part that several trees hold: each copies it before it changes it."""


class Leaf(NamedTuple):
    """A mark and its hash, which says what numbers it covers and neither floor nor CID."""

    digest: bytes
    mark: MarkState


class _Part:
    """A part of the tree: its leaves, or its sixteen parts where it has too many."""

    __slots__ = ("digest", "is_loaded", "leaves", "parts", "tree")

    def __init__(self, tree: int, digest: bytes | None = None) -> None:
        self.tree = tree
        """The only tree that holds it, and so may change it; or `SHARED`."""
        self.leaves: dict[bytes, Leaf] = {}
        """By place."""
        self.parts: list[_Part | None] = []
        self.digest = digest
        self.is_loaded = digest is None

    def hash(self) -> bytes:
        """The hash of all leaves."""
        if self.digest is None:
            if self.parts:
                row = b"".join(EMPTY if part is None else part.hash() for part in self.parts)
                self.digest = _hash(row, b"parts")
            else:
                self.digest = _hash_leaves(self.leaves)
        return self.digest

    def marks(self) -> Iterator[MarkState]:
        """The marks of the leaves that are loaded."""
        for leaf in self.leaves.values():
            yield leaf.mark
        for part in self.parts:
            if part is not None:
                yield from part.marks()

    def is_whole(self) -> bool:
        """Whether all of it is loaded."""
        return self.is_loaded and all(part is None or part.is_whole() for part in self.parts)


class HashTree:
    """The leaves of one frontier, hashed."""

    def __init__(self, list_max: int) -> None:
        self._list_max = list_max
        """Bounds the leaves of a part that is hashed as a list."""
        self._number = 0
        self._root = _Part(self._number)
        self.missing: dict[bytes, bytes] = {}
        """The hashes of the parts that are not loaded, by name."""

    def put(self, place: bytes, leaf: Leaf) -> None:
        """Add a leaf, or change it; its part is loaded."""
        self._root = self._put(self._root, place, leaf, 0)

    def _put(self, part: _Part | None, place: bytes, leaf: Leaf, depth: int) -> _Part:
        part = _Part(self._number) if part is None else self._own(part)
        if part.parts:
            step = place[depth]
            part.parts[step] = self._put(part.parts[step], place, leaf, depth + 1)
            return part
        part.leaves[place] = leaf
        if len(part.leaves) > self._list_max and depth < STEPS_MAX:
            self._cut(part, depth)
        return part

    def _cut(self, part: _Part, depth: int) -> None:
        leaves, part.leaves, part.parts = part.leaves, {}, [None] * PARTS_OF_ONE
        for place, leaf in leaves.items():
            step = place[depth]
            part.parts[step] = self._put(part.parts[step], place, leaf, depth + 1)

    def _own(self, part: _Part) -> _Part:
        """The part, to be changed: a copy where another tree holds it too."""
        assert part.is_loaded, "a part that is not loaded cannot change"
        if part.tree == self._number:
            part.digest = None
            return part
        copy = _Part(self._number)
        copy.leaves, copy.parts = dict(part.leaves), list(part.parts)
        return copy

    def snapshot(self) -> HashTree:
        """The tree as it is now: later changes are made to copies of what both hold."""
        self.digest()
        copy = HashTree(self._list_max)
        copy._root, copy._number = self._root, SHARED
        self._number += 1
        return copy

    # Comparing.

    def digest(self) -> bytes:
        """The hash of all leaves."""
        return self._root.hash()

    def digests(self, steps: bytes) -> bytes:
        """The hashes of the sixteen parts of a part, in a row."""
        part, few = self._find(steps)
        if part is not None and part.parts:
            return b"".join(EMPTY if each is None else each.hash() for each in part.parts)
        hashed: dict[int, dict[bytes, Leaf]] = {}
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

    def is_small(self, steps: bytes) -> bool:
        """Whether a part is loaded, and hashed as a list or within one."""
        part, _ = self._find(steps)
        return part is None or (part.is_loaded and not part.parts)

    def marks_in(self, steps: bytes) -> Iterable[MarkState]:
        """The marks of a part, as far as it is loaded."""
        part, few = self._find(steps)
        return [leaf.mark for leaf in few.values()] if part is None else part.marks()

    def _find(self, steps: bytes) -> tuple[_Part | None, dict[bytes, Leaf]]:
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

    # Loading.

    def missing_at(self, place: bytes) -> bytes | None:
        """The part that is not loaded and that a place is in; None: the place is loaded."""
        if not self.missing:
            return None
        part, depth = self._root, 0
        while part.is_loaded:
            below = part.parts[place[depth]] if part.parts and depth < len(place) else None
            if below is None:
                return None
            part, depth = below, depth + 1
        return place[:depth]

    def miss(self, steps: bytes, digest: bytes) -> None:
        """A part has this hash, and is to be loaded: it is not loaded yet, or has no leaves."""
        self._root = self._miss(self._root, steps, digest, 0)
        self.missing.pop(steps, None)
        if digest != EMPTY:
            self.missing[steps] = digest

    def _miss(self, part: _Part | None, steps: bytes, digest: bytes, depth: int) -> _Part:
        if depth == len(steps):
            return _Part(SHARED, None if digest == EMPTY else digest)
        part = _Part(self._number) if part is None else self._own(part)
        if not part.parts:
            self._cut(part, depth)
        step = steps[depth]
        part.parts[step] = self._miss(part.parts[step], steps, digest, depth + 1)
        return part

    def load(self, rows: Iterable[tuple[bytes, bytes]], leaves: Mapping[bytes, Leaf]) -> list[Leaf]:
        """Load parts: by the hashes of their parts, or by all of their leaves; returns the leaves.

        Whoever else holds a part gets what is loaded too: its hash stays the same.
        """
        for steps, row in rows:
            self._load_parts(steps, row)
        found: dict[bytes, dict[bytes, Leaf]] = {}
        for place, leaf in leaves.items():
            missing = self.missing_at(place)
            if missing is not None:
                found.setdefault(missing, {})[place] = leaf
        for steps, its_leaves in found.items():
            self._load_leaves(steps, its_leaves)
        return [leaf for its_leaves in found.values() for leaf in its_leaves.values()]

    def _load_parts(self, steps: bytes, row: bytes) -> None:
        if steps not in self.missing or len(steps) >= STEPS_MAX:
            return
        if _hash(row, b"parts") != self.missing[steps]:
            raise RemoteError("hashes of another part", code=Rejection.NOT_ASKED_FOR)
        part, _ = self._find(steps)
        assert part is not None
        size = PART_DIGEST_BYTES
        digests = [row[at : at + size] for at in range(0, len(row), size)]
        part.parts = [None if each == EMPTY else _Part(SHARED, each) for each in digests]
        part.is_loaded = True
        del self.missing[steps]
        self.missing.update(
            (steps + bytes((step,)), digest)
            for step, digest in enumerate(digests)
            if digest != EMPTY
        )

    def _load_leaves(self, steps: bytes, leaves: Mapping[bytes, Leaf]) -> None:
        built = HashTree(self._list_max)
        built._number = SHARED
        whole: _Part | None = None
        for place, leaf in leaves.items():
            whole = built._put(whole, place, leaf, len(steps))
        if whole is None or whole.hash() != self.missing[steps]:
            raise RemoteError("marks of another part", code=Rejection.NOT_ASKED_FOR)
        part, _ = self._find(steps)
        assert part is not None
        part.leaves, part.parts, part.is_loaded = whole.leaves, whole.parts, True
        del self.missing[steps]

    def hash_of(self, steps: bytes) -> bytes:
        """The hash of a part."""
        part, few = self._find(steps)
        return _hash_leaves(few) if part is None else part.hash()

    def content(self, parts: Iterable[bytes], marks_max: int, parts_max: int) -> Content:
        """What parts are made of, as much of it as there is room for."""
        found = _Gathering(marks_max, parts_max)
        is_all = True
        for steps in parts:
            part, few = self._find(steps)
            if part is None:
                is_all &= found.take_marks([leaf.mark for leaf in few.values()])
            else:
                is_all &= found.take(part, steps)
        return Content(found.rows, found.marks, is_all)


class Content(NamedTuple):
    """The hashes of the parts of large parts, and all the marks of small ones."""

    rows: list[tuple[bytes, bytes]]
    marks: list[MarkState]
    is_all: bool
    """Whether these are all the marks."""


class _Gathering:
    """Gathers what parts are made of, until there is no more room."""

    def __init__(self, marks_max: int, parts_max: int) -> None:
        self.rows: list[tuple[bytes, bytes]] = []
        self.marks: list[MarkState] = []
        self._marks_max = marks_max
        self._parts_max = parts_max

    def take(self, part: _Part, steps: bytes) -> bool:
        """Take a part; False if not all of its marks could be taken."""
        if not part.is_loaded:
            return False
        marks = list(part.marks()) if not part.parts else list(islice(part.marks(), self._most))
        if not part.parts or (len(marks) < self._most and part.is_whole()):
            return self.take_marks(marks)
        if len(self.rows) == self._parts_max:
            return False
        row = b"".join(EMPTY if each is None else each.hash() for each in part.parts)
        self.rows.append((steps, row))
        # Every part is tried: a small one may fit where a large one did not.
        taken = [
            self.take(each, steps + bytes((step,)))
            for step, each in enumerate(part.parts)
            if each is not None
        ]
        return all(taken)

    @property
    def _most(self) -> int:
        return self._marks_max + 1

    def take_marks(self, marks: list[MarkState]) -> bool:
        """Take all marks of a part, or none."""
        if self.marks and len(self.marks) + len(marks) > self._marks_max:
            return False
        self.marks.extend(marks)
        return True


def place_of(publisher: bytes, epoch: int) -> bytes:
    """The place of a numbering's leaf, in steps of four bits."""
    numbering = publisher + epoch.to_bytes(8, "big")
    digest = blake2b(numbering, digest_size=STEPS_MAX // 2, person=b"place").digest()
    return digest.hex().encode().translate(_STEPS)


def leaf_of(mark: MarkState) -> Leaf:
    """A mark as a leaf."""
    numbering = mark.publisher + mark.epoch.to_bytes(8, "big")
    held = f"/{mark.high}/{','.join(map(str, mark.beyond))}".encode()
    return Leaf(blake2b(numbering + held, digest_size=PART_DIGEST_BYTES).digest(), mark)


_STEPS = bytes.maketrans(b"0123456789abcdef", bytes(range(PARTS_OF_ONE)))


def _hash_leaves(leaves: dict[bytes, Leaf]) -> bytes:
    if not leaves:
        return EMPTY
    return _hash(b"".join(leaves[place].digest for place in sorted(leaves)), b"leaves")


def _hash(row: bytes, kind: bytes) -> bytes:
    return blake2b(row, digest_size=PART_DIGEST_BYTES, person=kind).digest()
