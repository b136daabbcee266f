"""Frontiers: the numbers of a topic's events that a node holds (docs/spec/pulsarcast.md, State).

A frontier has a mark per publisher and epoch: the highest gapless number with its CID, and the
numbers beyond it. Two nodes compare frontiers by hash first, then by the hashes of their parts. A
frontier, never a clock, tells duplicates, gaps, and events from before the subscription.

A subscription starts at a frontier of which the node may know the hash alone. It loads the parts
later; until then no event of a part that is missing can be judged.

The marks that were used lately are objects. All others are packed in the hash tree
(docs/decisions/0057).
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.store import MarkState
from pulsarcast.protocol.topic.hash_tree import HashTree
from pulsarcast.protocol.topic.packed_marks import place_of

Source = tuple[PeerId, int]
"""A numbering: one publisher in one epoch."""


BEYOND_MAX = 256
"""Bounds the numbers of one numbering that are held beyond a gap: beyond it, the gap is fetched
first."""
HOT_MAX = 4096
"""Bounds the marks that are objects: 3 MB. Half of them are packed when there are more."""
PACKED_AT_ONCE = 1 << 17
"""Bounds the marks from the disk that are packed together: in memory as objects for a moment."""


class _Mark:
    __slots__ = ("beyond", "cid", "floor", "high", "retired")

    def __init__(self, floor: int = 0, high: int = 0, cid: Cid | None = None) -> None:
        self.floor = floor
        self.high = high
        self.cid = cid
        self.beyond: dict[int, Cid | None] = {}
        self.retired = 0

    def close_up(self) -> None:
        """Raise `high` over the numbers beyond it, if the gap before them is closed."""
        while self.high + 1 in self.beyond:
            self.high += 1
            self.cid = self.beyond.pop(self.high)


class Frontier:
    """The marks of one topic."""

    __slots__ = ("_changed", "_count", "_hot", "_hot_max", "_tree")

    def __init__(
        self,
        marks: Iterable[MarkState] = (),
        missing: Mapping[bytes, bytes] | None = None,
        list_max: int = Parameters().frontier_list,
    ) -> None:
        self._count = 0
        self._hot: dict[Source, _Mark] = {}
        """The marks that were used lately, the first to come first."""
        self._hot_max = HOT_MAX
        self._tree = HashTree(list_max)
        """All marks, but for those that changed."""
        self._changed: dict[Source, None] = {}
        """What the tree has not heard of: marks in `_hot`."""
        for steps, digest in (missing or {}).items():
            self._tree.miss(steps, digest)
        more = iter(marks)
        for mark in islice(more, HOT_MAX):
            self.adopt(mark)
        while some := list(islice(more, PACKED_AT_ONCE)):
            self._pack(some)

    def _pack(self, marks: Iterable[MarkState]) -> None:
        """Take marks from the disk that are not used yet."""
        known = list[MarkState]()
        for mark in marks:
            if self.missing_at(mark.publisher, mark.epoch) is None:
                known.append(mark)
            else:
                self.adopt(mark)
        self._count += self._tree.put(known)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[MarkState]:
        """All marks; changes meanwhile may show or not."""
        hot = dict(self._hot)
        for source, mark in hot.items():
            yield self._state(source, mark)
        if len(hot) < self._count:
            yield from (mark for mark in self._tree.marks() if mark[:2] not in hot)

    # The marks that are objects.

    def _mark(self, publisher: PeerId, epoch: int) -> _Mark | None:
        mark = self._hot.get((publisher, epoch))
        if mark is None and len(self._hot) < self._count:
            state = self._tree.find(publisher, epoch)
            if state is not None:
                mark = _object(state)
                self._heat((publisher, epoch), mark)
        return mark

    def _put(self, source: Source, mark: _Mark) -> None:
        """Take a mark in that is new, or in place of another one."""
        self._heat(source, mark)
        self._changed[source] = None

    def _heat(self, source: Source, mark: _Mark) -> None:
        if len(self._hot) >= self._hot_max:
            self._cool()
        self._hot[source] = mark

    def _cool(self) -> None:
        """Leave half of the marks to the tree, but for those whose part is missing.

        Those with numbers beyond a gap come last: packed, they lose the CIDs of these numbers.
        """
        self._hashed()
        quiet = [source for source in self._hot if source not in self._changed]
        quiet.sort(key=lambda source: bool(self._hot[source].beyond))
        for source in quiet[: len(quiet) // 2]:
            del self._hot[source]
        self._hot_max = HOT_MAX + len(self._changed)

    def holds(self, publisher: PeerId, epoch: int, number: int) -> bool:
        """Whether the frontier covers this number: held, void, retired, or before the start."""
        mark = self._hot.get((publisher, epoch)) or self._mark(publisher, epoch)
        return mark is not None and (number <= mark.high or number in mark.beyond)

    def is_full(self, publisher: PeerId, epoch: int, number: int) -> bool:
        """Whether a number is too far ahead: numbers before it must come first."""
        mark = self._mark(publisher, epoch)
        return mark is not None and number > mark.high + 1 and len(mark.beyond) >= BEYOND_MAX

    def high(self, publisher: PeerId, epoch: int) -> int:
        """The highest number up to which there is no gap."""
        mark = self._mark(publisher, epoch)
        return 0 if mark is None else mark.high

    def highest(self, publisher: PeerId, epoch: int) -> int:
        """The highest number held, with or without a gap before it."""
        mark = self._mark(publisher, epoch)
        return 0 if mark is None else max(mark.beyond, default=mark.high)

    def floor(self, publisher: PeerId, epoch: int) -> int:
        """The number up to which the node holds no events: before its start, or dropped."""
        mark = self._mark(publisher, epoch)
        return 0 if mark is None else mark.floor

    def cid_at(self, publisher: PeerId, epoch: int, number: int) -> Cid | None:
        """The CID held under a number, as far as the frontier itself remembers it."""
        mark = self._mark(publisher, epoch)
        if mark is None:
            return None
        return mark.cid if number == mark.high else mark.beyond.get(number)

    def add(self, publisher: PeerId, epoch: int, number: int, cid: Cid | None) -> MarkState:
        """Take one number in; returns the mark as it is now."""
        source = (publisher, epoch)
        mark = self._change(source)
        if number == mark.high + 1:
            mark.high, mark.cid = number, cid
            if mark.beyond:
                mark.close_up()
        elif number > mark.high:
            mark.beyond[number] = cid
        return self._state(source, mark)

    def adopt(self, state: MarkState) -> None:
        """Take a whole mark: from the disk, or of a start frontier."""
        source = (state.publisher, state.epoch)
        self._count += self._mark(*source) is None
        self._put(source, _object(state))

    def begin_at(self, state: MarkState) -> None:
        """Begin at a peer's mark; events held beyond it stay, and `high` never falls."""
        self._begin_at(self._mark(state.publisher, state.epoch), state)

    def _begin_at(self, ours: _Mark | None, state: MarkState) -> None:
        if ours is None:
            self._count += 1
        elif ours.high >= state.high:
            return
        mark = _object(state._replace(floor=state.high, beyond=()))
        if ours is not None:
            mark.retired = max(mark.retired, ours.retired)
            mark.beyond = {n: cid for n, cid in ours.beyond.items() if n > mark.high}
            mark.close_up()
        self._put((state.publisher, state.epoch), mark)

    def retire(self, publisher: PeerId, epoch: int, number: int) -> MarkState:
        """Retire all numbers up to one: they count as delivered from now on."""
        source = (publisher, epoch)
        mark = self._change(source)
        mark.floor = max(mark.floor, number)
        mark.retired = max(mark.retired, number)
        if number > mark.high:
            mark.high, mark.cid = number, mark.beyond.get(number)
            mark.beyond = {n: cid for n, cid in mark.beyond.items() if n > number}
            mark.close_up()
        return self._state(source, mark)

    def _change(self, source: Source) -> _Mark:
        """The mark of a numbering, to be changed."""
        mark = self._hot.get(source) or self._mark(*source)
        if mark is None:
            mark = _Mark()
            self._count += 1
            self._heat(source, mark)
        self._changed[source] = None
        return mark

    def missing_from(self, theirs: MarkState) -> tuple[int, int] | None:
        """The first and last number that a peer's mark shows and this frontier lacks, or None."""
        last = max(theirs.beyond, default=theirs.high)
        last = max(last, theirs.high)
        mark = self._mark(theirs.publisher, theirs.epoch)
        if mark is None:
            return (1, last) if last > 0 else None
        first = mark.high + 1
        while last >= first and last in mark.beyond:
            last -= 1
        return (first, last) if last >= first else None

    def gap_before(self, publisher: PeerId, epoch: int, number: int) -> tuple[int, int] | None:
        """The missing numbers before `number`, first and last, or None if there is no gap."""
        high = self.high(publisher, epoch)
        return (high + 1, number - 1) if number > high + 1 else None

    def gaps(self) -> Iterator[tuple[PeerId, int, int, int]]:
        """Every (publisher, epoch, first, last) that is known to be missing."""
        for mark in self:
            if mark.beyond:
                yield mark.publisher, mark.epoch, mark.high + 1, mark.beyond[-1] - 1

    def mark(self, publisher: PeerId, epoch: int) -> MarkState | None:
        """One mark, as a value."""
        mark = self._mark(publisher, epoch)
        return None if mark is None else self._state((publisher, epoch), mark)

    def marks(self) -> list[MarkState]:
        """All marks, in an order that every node agrees on."""
        return sorted(self)

    # Comparing it with another one.

    def digest(self) -> bytes:
        """A hash that is equal exactly if two nodes hold the same numbers (floors aside)."""
        return self._hashed().digest()

    def digests(self, part: bytes) -> bytes:
        """The hashes of the parts of a part, in a row."""
        return self._hashed().digests(part)

    def differing(self, part: bytes, theirs: bytes) -> list[bytes]:
        """The parts of a part in which a peer holds other numbers, by its hashes."""
        return self._hashed().differing(part, theirs)

    def is_small(self, part: bytes) -> bool:
        """Whether a part has so few marks that they are shown rather than compared."""
        return self._hashed().is_small(part)

    def marks_in(self, part: bytes) -> list[MarkState]:
        """The marks of a part."""
        return sorted(self._hashed().marks_in(part))

    def snapshot(self) -> HashTree:
        """The frontier as it is now."""
        return self._hashed().snapshot()

    def _hashed(self) -> HashTree:
        """The tree, once it has heard of what changed."""
        if self._changed:
            waiting = dict[Source, None]()
            if self._tree.missing:
                waiting = {
                    each: None for each in self._changed if self.missing_at(*each) is not None
                }
                self._changed = {each: None for each in self._changed if each not in waiting}
            self._tree.put([self._state(each, self._hot[each]) for each in self._changed])
            self._changed = waiting
        return self._tree

    # The parts that are missing.

    @property
    def missing(self) -> Mapping[bytes, bytes]:
        """The hashes of the parts that are not loaded, by name."""
        return self._tree.missing

    def missing_at(self, publisher: PeerId, epoch: int) -> bytes | None:
        """The missing part that a numbering is in, if it is in one."""
        missing = self._tree.missing
        return self._tree.missing_at(place_of(publisher, epoch)) if missing else None

    def is_known(self, part: bytes) -> bool:
        """Whether the hashes of the parts of a part, or its marks, are loaded."""
        return self._tree.missing_at(part) is None

    def miss(self, part: bytes, digest: bytes) -> None:
        """A part with this hash is where the node starts; it has to be loaded."""
        if part not in self._tree.missing:
            for mark in self._tree.marks_in(part):
                source = (mark.publisher, mark.epoch)
                self._hot.setdefault(source, _object(mark))
                self._changed[source] = None
        self._tree.miss(part, digest)

    def load(
        self, rows: Iterable[tuple[bytes, bytes]], marks: Iterable[MarkState]
    ) -> list[MarkState]:
        """Load missing parts, and begin at their marks; returns these. Others change nothing."""
        loaded = self._tree.load(rows, marks)
        # The tree has the peer's by now: their parts were missing.
        held = [self._hot.get((mark.publisher, mark.epoch)) for mark in loaded]
        for ours, mark in zip(held, loaded, strict=True):
            self._begin_at(ours, mark)
        return loaded

    @staticmethod
    def _state(source: Source, mark: _Mark) -> MarkState:
        beyond = tuple(sorted(mark.beyond)) if mark.beyond else ()
        return MarkState(
            source[0], source[1], mark.floor, mark.high, mark.cid, beyond, mark.retired
        )


def _object(state: MarkState) -> _Mark:
    mark = _Mark(state.floor, state.high, state.cid)
    mark.beyond = dict.fromkeys(state.beyond)
    mark.retired = state.retired
    return mark
