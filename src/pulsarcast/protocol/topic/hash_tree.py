"""A hash tree over a frontier: finds where two frontiers differ (docs/spec/pulsarcast.md, State).

A leaf is a mark. The hash of its publisher and epoch is its place, read in steps of four bits. A
part of the tree is named by the steps that its leaves have in common. One of a few leaves is hashed
as a list, a larger one as its sixteen parts. So the hash of a part depends on its leaves alone,
whatever order they came in.

A part that is not loaded has a hash only. It is loaded from whoever has it, and the hash tells
whether that is right.

A part of some marks is packed, unless one of them changed lately. The hashes in it are made again
when it is unpacked (docs/decisions/0057).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from hashlib import blake2b
from itertools import islice
from typing import NamedTuple, TypeAlias

from pulsarcast.model.errors import Rejection, RemoteError
from pulsarcast.model.ids import PeerId
from pulsarcast.protocol.limits import PART_DIGEST_BYTES, PARTS_OF_ONE, ROW_BYTES, STEPS_MAX
from pulsarcast.protocol.store import MarkState
from pulsarcast.protocol.topic.packed_marks import (
    Row,
    digest_of,
    find,
    mark_of,
    pack,
    place_of,
    place_of_row,
    row_of,
    unpack,
)

EMPTY = bytes(PART_DIGEST_BYTES)
"""The hash of a part without leaves."""
SHARED = -1
"""The tree of a part that several trees hold: each copies it before it changes it."""
BLOCK_MAX = 32
"""Bounds the marks that are packed together: all of them are unpacked to change one. Packed with
fewer others each mark takes more memory."""
OPEN_MAX = 256
"""Bounds the lists that are not packed, because they changed. With those beside them: 4 MB."""


class _Missing:
    """A part that is not loaded, or was not when a tree came to hold it."""

    __slots__ = ("digest", "loaded")

    def __init__(self, digest: bytes) -> None:
        self.digest = digest
        self.loaded: _Part = None


class _Block:
    """The marks of a part that is hashed as a list."""

    __slots__ = ("_digests", "rows")

    def __init__(self, leaves: Iterable[_Leaf]) -> None:
        self.rows = dict(leaves)
        """By place."""
        self._digests: dict[bytes, bytes] = {}

    def put(self, place: bytes, row: Row) -> None:
        """Add a mark, or change it."""
        self.rows[place] = row
        self._digests.pop(place, None)

    def hash(self) -> bytes:
        """The hash of all leaves."""
        if not self.rows:
            return EMPTY
        digests = self._digests
        for place, row in self.rows.items():
            if place not in digests:
                digests[place] = digest_of(row)
        return _hash(b"".join([digests[place] for place in sorted(digests)]), b"leaves")


class _Cut:
    """A part that is cut into its sixteen parts."""

    __slots__ = ("digests", "is_open", "parts", "stale", "tree")

    def __init__(self, tree: int, *, is_open: bool = False) -> None:
        self.tree = tree
        """The only tree that holds it, and so may change it; or `SHARED`."""
        self.is_open = is_open
        """Whether it came of a packed part or a list; then none of it is missing."""
        self.parts: list[_Part] = [None] * PARTS_OF_ONE
        self.digests = bytearray(ROW_BYTES)
        """The hashes of the parts, in a row."""
        self.stale: list[int] = []
        """The steps to parts whose hashes are no longer right."""

    def touch(self, step: int) -> None:
        """A part changes."""
        if step not in self.stale:
            self.stale.append(step)

    def copy(self, tree: int) -> _Cut:
        """The same for another tree."""
        copy = _Cut(tree, is_open=self.is_open)
        copy.parts, copy.digests, copy.stale = self.parts[:], self.digests[:], self.stale[:]
        return copy


_Leaf: TypeAlias = tuple[bytes, Row]
"""A mark at its place."""
_Part: TypeAlias = _Cut | _Missing | _Block | bytes | None
"""A part of the tree: cut, not loaded, a list, packed, or without marks."""


class HashTree:
    """The marks of one frontier, hashed."""

    __slots__ = ("_digest", "_list_max", "_number", "_open", "_seen_last", "_top", "missing")

    def __init__(self, list_max: int) -> None:
        self._list_max = list_max
        """Bounds the leaves of a part that is hashed as a list."""
        self._number = 0
        self._top: list[_Part] = [None]
        """The part with all leaves."""
        self._digest: bytes | None = EMPTY
        self._open: dict[bytes, None] = {}
        """The lists that changed since all were packed, by name; no other tree holds them."""
        self._seen_last: tuple[bytes, _Part] = (b"", None)
        """A packed part that was looked into, and what it was seen to be: its parts come next."""
        self.missing: dict[bytes, bytes] = {}
        """The hashes of the parts that are not loaded, by name."""

    def put(self, marks: Iterable[MarkState]) -> int:
        """Add marks, or change them; their parts are loaded. Returns how many are new."""
        leaves = [(place_of(mark.publisher, mark.epoch), row_of(mark)) for mark in marks]
        if not leaves:
            return 0
        self._digest = None
        self._top[0], new = self._put(self._top[0], leaves, 0, len(leaves) <= OPEN_MAX)
        if len(self._open) > OPEN_MAX:
            self._pack()
        return new

    def _put(
        self, part: _Part, leaves: list[_Leaf], depth: int, stays_open: bool
    ) -> tuple[_Part, int]:
        part = _loaded(part)
        if stays_open and (part is None or isinstance(part, bytes)):
            part = self._opened(list(_leaves(part)), depth)
        if isinstance(part, _Cut):
            return self._put_below(self._own(part), leaves, depth, stays_open)
        assert not isinstance(part, _Missing), "a part that is not loaded cannot change"
        if not isinstance(part, _Block):
            return self._put_packed(list(_rows(part)), leaves, depth)
        before = len(part.rows)
        for place, row in leaves:
            part.put(place, row)
        new = len(part.rows) - before
        if not stays_open:
            return self._packed(part.rows.items(), depth), new
        self._open[leaves[0][0][:depth]] = None
        if new and len(part.rows) > self._list_max:
            return self._opened(part.rows.items(), depth), new
        return part, new

    def _put_below(
        self, cut: _Cut, leaves: list[_Leaf], depth: int, stays_open: bool
    ) -> tuple[_Cut, int]:
        new = 0
        for step, group in _by_step(leaves, depth).items():
            cut.parts[step], more = self._put(cut.parts[step], group, depth + 1, stays_open)
            cut.touch(step)
            new += more
        return cut, new

    def _put_packed(self, rows: list[Row], leaves: list[_Leaf], depth: int) -> tuple[_Part, int]:
        """Put marks beside packed ones, and pack all: these need no places if they are few."""
        held = {row[:2]: row for row in rows}
        held.update((row[:2], row) for _, row in leaves)
        new = len(held) - len(rows)
        if len(held) <= BLOCK_MAX:
            return pack(held.values()), new
        return self._packed([(place_of_row(row), row) for row in held.values()], depth), new

    def _opened(self, leaves: Collection[_Leaf], depth: int) -> _Block | _Cut:
        """A part of these marks, to be changed or looked into."""
        if len(leaves) <= self._list_max or depth == STEPS_MAX:
            return _Block(leaves)
        return self._cut(leaves, depth, self._opened, is_open=True)

    def _packed(self, leaves: Collection[_Leaf], depth: int) -> bytes | _Cut:
        """A part of these marks, to be kept."""
        if len(leaves) <= max(BLOCK_MAX, self._list_max) or depth == STEPS_MAX:
            return pack(row for _, row in leaves)
        return self._cut(leaves, depth, self._packed)

    def _cut(
        self,
        leaves: Iterable[_Leaf],
        depth: int,
        make: Callable[[list[_Leaf], int], _Part],
        *,
        is_open: bool = False,
    ) -> _Cut:
        cut = _Cut(self._number, is_open=is_open)
        for step, group in _by_step(leaves, depth).items():
            cut.parts[step] = make(group, depth + 1)
            cut.stale.append(step)
        return cut

    def _own(self, cut: _Cut) -> _Cut:
        """A part, to be changed: a copy where another tree holds it too."""
        return cut if cut.tree == self._number else cut.copy(self._number)

    def _pack(self) -> None:
        """Pack all marks."""
        for steps in self._open:
            holder, at = self._top, 0
            for step in steps:
                part = holder[at] = self._closed(holder[at])
                if not isinstance(part, _Cut):
                    break
                holder, at = part.parts, step
            holder[at] = self._closed(holder[at])
        self._open.clear()

    def _closed(self, part: _Part) -> _Part:
        """A part with the lists in it packed, all together where they are few."""
        part = _loaded(part)
        if isinstance(part, _Block):
            return pack(part.rows.values())
        if isinstance(part, _Cut) and part.is_open:
            few = list(islice(_rows(part), BLOCK_MAX + 1))
            if len(few) <= BLOCK_MAX:
                return pack(few)
            part.parts[:] = map(self._closed, part.parts)
            part.is_open = False
        return part

    def _holder(self, steps: bytes) -> tuple[list[_Part], int]:
        """Where a part is held; or the part that it is in, if that is not cut."""
        holder, at = self._top, 0
        for step in steps:
            part = _loaded(holder[at])
            if not isinstance(part, _Cut):
                break
            holder, at = part.parts, step
        return holder, at

    def find(self, publisher: PeerId, epoch: int) -> MarkState | None:
        """The mark of one numbering, if it is loaded."""
        place = place_of(publisher, epoch)
        holder, at = self._holder(place)
        part = _loaded(holder[at])
        if isinstance(part, _Block):
            row = part.rows.get(place)
            return None if row is None else mark_of(row)
        return find(part, publisher, epoch) if isinstance(part, bytes) else None

    def marks(self) -> Iterator[MarkState]:
        """All marks that are loaded; changes meanwhile may show or not."""
        return map(mark_of, _rows(self._top[0]))

    def snapshot(self) -> HashTree:
        """The tree as it is now: later changes are made to copies of what both hold."""
        copy = HashTree(self._list_max)
        copy._digest, copy._number = self.digest(), SHARED
        self._pack()
        copy._top = self._top[:]
        self._number += 1
        return copy

    # Comparing.

    def digest(self) -> bytes:
        """The hash of all leaves."""
        if self._digest is None:
            self._digest = self._hash(self._top[0], 0)
        return self._digest

    def _hash(self, part: _Part, depth: int) -> bytes:
        if isinstance(part, _Missing):
            return part.digest
        if isinstance(part, _Cut):
            return _hash(self._digests(part, depth), b"parts")
        if isinstance(part, _Block):
            return part.hash()
        return EMPTY if part is None else self._hash(self._seen(part, depth), depth)

    def _digests(self, cut: _Cut, depth: int) -> bytearray:
        for step in cut.stale:
            at = step * PART_DIGEST_BYTES
            cut.digests[at : at + PART_DIGEST_BYTES] = self._hash(cut.parts[step], depth + 1)
        cut.stale.clear()
        return cut.digests

    def hash_of(self, steps: bytes) -> bytes:
        """The hash of a part."""
        return self._hash(self._find(steps), len(steps))

    def digests(self, steps: bytes) -> bytes:
        """The hashes of the sixteen parts of a part, in a row."""
        part = self._find(steps)
        if not isinstance(part, _Cut):
            part = self._cut(_leaves(part), len(steps), self._opened)
        return bytes(self._digests(part, len(steps)))

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
        return not isinstance(self._find(steps), _Cut | _Missing)

    def marks_in(self, steps: bytes) -> list[MarkState]:
        """The marks of a part, as far as it is loaded."""
        return list(map(mark_of, _rows(self._find(steps))))

    def _find(self, steps: bytes) -> _Part:
        """A part; or, where it is within one that is hashed as a list, its leaves."""
        part = self._seen(self._top[0], 0)
        for depth, step in enumerate(steps):
            if not isinstance(part, _Cut):
                return _Block(leaf for leaf in _leaves(part) if leaf[0].startswith(steps))
            part = self._seen(part.parts[step], depth + 1) if step < PARTS_OF_ONE else None
        return part

    def _seen(self, part: _Part, depth: int) -> _Part:
        """A part, to be looked into."""
        part = _loaded(part)
        if not isinstance(part, bytes):
            return part
        if part is not self._seen_last[0]:
            self._seen_last = part, self._opened(list(_leaves(part)), depth)
        return self._seen_last[1]

    # Loading.

    def missing_at(self, place: bytes) -> bytes | None:
        """The part that is not loaded and that a place is in; None: the place is loaded."""
        if not self.missing:
            return None
        part, depth = _loaded(self._top[0]), 0
        while isinstance(part, _Cut) and depth < len(place) and place[depth] < PARTS_OF_ONE:
            part, depth = _loaded(part.parts[place[depth]]), depth + 1
        return place[:depth] if isinstance(part, _Missing) else None

    def miss(self, steps: bytes, digest: bytes) -> None:
        """A part has this hash, and is to be loaded: it is not loaded yet, or has no leaves."""
        self._pack()
        self._digest = None
        self._top[0] = self._miss(self._top[0], steps, digest, 0)
        self.missing.pop(steps, None)
        if digest != EMPTY:
            self.missing[steps] = digest

    def _miss(self, part: _Part, steps: bytes, digest: bytes, depth: int) -> _Part:
        part = _loaded(part)
        if depth == len(steps):
            return None if digest == EMPTY else _Missing(digest)
        if isinstance(part, _Cut):
            part = self._own(part)
        else:
            part = self._cut(_leaves(part), depth, self._packed)
        step = steps[depth]
        part.parts[step] = self._miss(part.parts[step], steps, digest, depth + 1)
        part.touch(step)
        return part

    def load(
        self, rows: Iterable[tuple[bytes, bytes]], marks: Iterable[MarkState]
    ) -> list[MarkState]:
        """Load parts: by the hashes of their parts, or by all of their marks; returns the marks.

        Whoever else holds a part gets what is loaded too: its hash stays the same.
        """
        for steps, row in rows:
            self._load_parts(steps, row)
        found: dict[bytes, dict[bytes, MarkState]] = {}
        for mark in marks:
            place = place_of(mark.publisher, mark.epoch)
            missing = self.missing_at(place)
            if missing is not None:
                found.setdefault(missing, {})[place] = mark
        for steps, its_marks in found.items():
            self._load_marks(steps, its_marks)
        return [mark for its_marks in found.values() for mark in its_marks.values()]

    def _load_parts(self, steps: bytes, row: bytes) -> None:
        if steps not in self.missing or len(steps) >= STEPS_MAX:
            return
        if _hash(row, b"parts") != self.missing[steps]:
            raise RemoteError("hashes of another part", code=Rejection.NOT_ASKED_FOR)
        cut, size = _Cut(SHARED), PART_DIGEST_BYTES
        digests = [row[at : at + size] for at in range(0, len(row), size)]
        cut.parts = [None if each == EMPTY else _Missing(each) for each in digests]
        cut.digests[:] = row
        self._fill(steps, cut)
        self.missing.update(
            (steps + bytes((step,)), digest)
            for step, digest in enumerate(digests)
            if digest != EMPTY
        )

    def _load_marks(self, steps: bytes, marks: Mapping[bytes, MarkState]) -> None:
        built = HashTree(self._list_max)
        built._number = SHARED
        part = built._packed([(place, row_of(each)) for place, each in marks.items()], len(steps))
        if built._hash(part, len(steps)) != self.missing[steps]:
            raise RemoteError("marks of another part", code=Rejection.NOT_ASKED_FOR)
        self._fill(steps, part)

    def _fill(self, steps: bytes, loaded: _Part) -> None:
        """A missing part is loaded, for all trees that hold it."""
        holder, at = self._holder(steps)
        missing = holder[at]
        assert isinstance(missing, _Missing)
        missing.loaded = loaded
        # This tree need not hold the way to it any longer.
        holder[at] = loaded
        del self.missing[steps]

    def content(self, parts: Iterable[bytes], marks_max: int, parts_max: int) -> Content:
        """What parts are made of, as much of it as there is room for."""
        found = _Gathering(self, marks_max, parts_max)
        taken = [found.take(self._find(steps), steps) for steps in parts]
        return Content(found.rows, found.marks, all(taken))


class Content(NamedTuple):
    """The hashes of the parts of large parts, and all the marks of small ones."""

    rows: list[tuple[bytes, bytes]]
    marks: list[MarkState]
    is_all: bool
    """Whether these are all the marks."""


class _Gathering:
    """Gathers what parts are made of, until there is no more room."""

    def __init__(self, tree: HashTree, marks_max: int, parts_max: int) -> None:
        self.rows: list[tuple[bytes, bytes]] = []
        self.marks: list[MarkState] = []
        self._tree = tree
        self._marks_max = marks_max
        self._parts_max = parts_max

    def take(self, part: _Part, steps: bytes) -> bool:
        """Take a part; False if not all of its marks could be taken."""
        part = self._tree._seen(part, len(steps))
        if isinstance(part, _Missing):
            return False
        rows = _rows(part)
        if not isinstance(part, _Cut):
            return self._take_marks(list(rows))
        few = list(islice(rows, self._marks_max + 1))
        if len(few) <= self._marks_max and _is_whole(part):
            return self._take_marks(few)
        if len(self.rows) == self._parts_max:
            return False
        self.rows.append((steps, bytes(self._tree._digests(part, len(steps)))))
        # Every part is tried: a small one may fit where a large one did not.
        taken = [
            self.take(each, steps + bytes((step,)))
            for step, each in enumerate(part.parts)
            if each is not None
        ]
        return all(taken)

    def _take_marks(self, rows: list[Row]) -> bool:
        """Take all marks of a part, or none: in an order that does not tell how they came."""
        if self.marks and len(self.marks) + len(rows) > self._marks_max:
            return False
        self.marks.extend(map(mark_of, sorted(rows)))
        return True


def _loaded(part: _Part) -> _Part:
    """A part, or what it was found to be."""
    return part.loaded or part if isinstance(part, _Missing) else part


def _is_whole(part: _Part) -> bool:
    """Whether all of a part is loaded."""
    part = _loaded(part)
    if isinstance(part, _Cut):
        return all(map(_is_whole, part.parts))
    return not isinstance(part, _Missing)


def _rows(part: _Part) -> Iterator[Row]:
    """The leaves of a part, as far as it is loaded."""
    part = _loaded(part)
    if isinstance(part, _Cut):
        for each in part.parts:
            yield from _rows(each)
    elif isinstance(part, _Block):
        yield from list(part.rows.values())
    elif isinstance(part, bytes):
        yield from unpack(part)


def _leaves(part: _Part) -> Iterator[_Leaf]:
    """The leaves of a part, as far as it is loaded, with their places."""
    return ((place_of_row(row), row) for row in _rows(part))


def _by_step(leaves: Iterable[_Leaf], depth: int) -> dict[int, list[_Leaf]]:
    groups: dict[int, list[_Leaf]] = {}
    for leaf in leaves:
        groups.setdefault(leaf[0][depth], []).append(leaf)
    return groups


def _hash(row: bytes | bytearray, kind: bytes) -> bytes:
    return blake2b(row, digest_size=PART_DIGEST_BYTES, person=kind).digest()
