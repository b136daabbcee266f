"""Frontiers: the numbers of a topic's events that a node holds (docs/spec/pulsarcast.md, State).

A frontier has a mark per publisher and epoch: the highest gapless number with its CID, and the
numbers beyond it. Two nodes compare frontiers by hash first, then by the hashes of their parts. A
frontier, never a clock, tells duplicates, gaps, and events from before the subscription.

A subscription starts at a frontier of which the node may know the hash alone. It loads the parts
later; until then no event of a part that is missing can be judged.
"""

from collections.abc import Iterable, Iterator, Mapping

from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.store import MarkState
from pulsarcast.protocol.topic.hash_tree import HashTree, leaf_of, place_of

Source = tuple[PeerId, int]
"""A numbering: one publisher in one epoch."""


BEYOND_MAX = 256
"""Bounds the numbers of one numbering that are held beyond a gap: beyond it, the gap is fetched
first."""


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

    def __init__(
        self,
        marks: Iterable[MarkState] = (),
        missing: Mapping[bytes, bytes] | None = None,
        list_max: int = Parameters().frontier_list,
    ) -> None:
        self._marks: dict[Source, _Mark] = {}
        self._tree = HashTree(list_max)
        self._changed: set[Source] = set()
        """What the tree has not heard of."""
        for steps, digest in (missing or {}).items():
            self._tree.miss(steps, digest)
        for mark in marks:
            self.adopt(mark)

    def __len__(self) -> int:
        return len(self._marks)

    def holds(self, publisher: PeerId, epoch: int, number: int) -> bool:
        """Whether the frontier covers this number: held, void, retired, or before the start."""
        mark = self._marks.get((publisher, epoch))
        return mark is not None and (number <= mark.high or number in mark.beyond)

    def is_full(self, publisher: PeerId, epoch: int, number: int) -> bool:
        """Whether a number is too far ahead: numbers before it must come first."""
        mark = self._marks.get((publisher, epoch))
        return mark is not None and number > mark.high + 1 and len(mark.beyond) >= BEYOND_MAX

    def high(self, publisher: PeerId, epoch: int) -> int:
        """The highest number up to which there is no gap."""
        mark = self._marks.get((publisher, epoch))
        return 0 if mark is None else mark.high

    def highest(self, publisher: PeerId, epoch: int) -> int:
        """The highest number held, with or without a gap before it."""
        mark = self._marks.get((publisher, epoch))
        return 0 if mark is None else max(mark.beyond, default=mark.high)

    def floor(self, publisher: PeerId, epoch: int) -> int:
        """The number up to which the node holds no events: before its start, or dropped."""
        mark = self._marks.get((publisher, epoch))
        return 0 if mark is None else mark.floor

    def cid_at(self, publisher: PeerId, epoch: int, number: int) -> Cid | None:
        """The CID held under a number, as far as the frontier itself remembers it."""
        mark = self._marks.get((publisher, epoch))
        if mark is None:
            return None
        return mark.cid if number == mark.high else mark.beyond.get(number)

    def add(self, publisher: PeerId, epoch: int, number: int, cid: Cid | None) -> MarkState:
        """Take one number in; returns the mark as it is now."""
        source = (publisher, epoch)
        mark = self._marks.get(source)
        if mark is None:
            mark = self._marks[source] = _Mark()
        self._changed.add(source)
        if number == mark.high + 1:
            mark.high, mark.cid = number, cid
            if mark.beyond:
                mark.close_up()
        elif number > mark.high:
            mark.beyond[number] = cid
        return self._state(source, mark)

    def adopt(self, state: MarkState) -> None:
        """Take a whole mark: from the disk, or of a start frontier."""
        mark = _Mark(state.floor, state.high, state.cid)
        mark.beyond = dict.fromkeys(state.beyond)
        mark.retired = state.retired
        self._marks[(state.publisher, state.epoch)] = mark
        self._changed.add((state.publisher, state.epoch))

    def begin_at(self, state: MarkState) -> None:
        """Begin at a peer's mark; events held beyond it stay, and `high` never falls."""
        source = (state.publisher, state.epoch)
        ours = self._marks.get(source)
        if ours is not None and ours.high >= state.high:
            return
        self.adopt(state._replace(floor=state.high, beyond=()))
        if ours is not None:
            mark = self._marks[source]
            mark.retired = max(mark.retired, ours.retired)
            mark.beyond = {n: cid for n, cid in ours.beyond.items() if n > mark.high}
            mark.close_up()

    def retire(self, publisher: PeerId, epoch: int, number: int) -> MarkState:
        """Retire all numbers up to one: they count as delivered from now on."""
        mark = self._marks.setdefault((publisher, epoch), _Mark())
        mark.floor = max(mark.floor, number)
        mark.retired = max(mark.retired, number)
        if number > mark.high:
            mark.high, mark.cid = number, mark.beyond.get(number)
            mark.beyond = {n: cid for n, cid in mark.beyond.items() if n > number}
            mark.close_up()
        self._changed.add((publisher, epoch))
        return self._state((publisher, epoch), mark)

    def missing_from(self, theirs: MarkState) -> tuple[int, int] | None:
        """The first and last number that a peer's mark shows and this frontier lacks, or None."""
        last = max(theirs.beyond, default=theirs.high)
        last = max(last, theirs.high)
        mark = self._marks.get((theirs.publisher, theirs.epoch))
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
        for (publisher, epoch), mark in self._marks.items():
            if mark.beyond:
                yield publisher, epoch, mark.high + 1, max(mark.beyond) - 1

    def mark(self, publisher: PeerId, epoch: int) -> MarkState | None:
        """One mark, as a value."""
        mark = self._marks.get((publisher, epoch))
        return None if mark is None else self._state((publisher, epoch), mark)

    def marks(self) -> list[MarkState]:
        """All marks, in an order that every node agrees on."""
        return [self._state(source, mark) for source, mark in sorted(self._marks.items())]

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
        tree, waiting = self._tree, set[Source]()
        for source in self._changed:
            place = place_of(*source)
            if tree.missing_at(place) is None:
                tree.put(place, leaf_of(self._state(source, self._marks[source])))
            else:
                waiting.add(source)
        self._changed = waiting
        return tree

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
            held = self._tree.marks_in(part)
            self._changed.update((mark.publisher, mark.epoch) for mark in held)
        self._tree.miss(part, digest)

    def load(
        self, rows: Iterable[tuple[bytes, bytes]], marks: Iterable[MarkState]
    ) -> list[MarkState]:
        """Load missing parts, and begin at their marks; returns these. Others change nothing."""
        leaves = {place_of(mark.publisher, mark.epoch): leaf_of(mark) for mark in marks}
        loaded = [leaf.mark for leaf in self._tree.load(rows, leaves)]
        for mark in loaded:
            self.begin_at(mark)
        return loaded

    @staticmethod
    def _state(source: Source, mark: _Mark) -> MarkState:
        beyond = tuple(sorted(mark.beyond)) if mark.beyond else ()
        return MarkState(
            source[0], source[1], mark.floor, mark.high, mark.cid, beyond, mark.retired
        )
