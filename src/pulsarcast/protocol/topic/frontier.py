"""Frontiers: the numbers of a topic's events that a node holds (docs/spec/pulsarcast.md, State).

A frontier has a mark per publisher and epoch: the highest gapless number with its CID, and the
numbers beyond it. Two nodes compare frontiers by hash first, then by the hashes of their parts. A
frontier, never a clock, tells duplicates, gaps, and events from before the subscription.
"""

from collections.abc import Iterable, Iterator
from hashlib import blake2b

from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.protocol.limits import PART_DIGEST_BYTES
from pulsarcast.protocol.store import MarkState
from pulsarcast.protocol.topic.hash_tree import HashTree, place_of

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

    def __init__(self, marks: Iterable[MarkState] = ()) -> None:
        self._marks: dict[Source, _Mark] = {}
        self._tree = HashTree()
        self._sources: dict[bytes, Source] = {}
        """By their places in the tree."""
        self._changed: set[Source] = set()
        """What the tree has not heard of."""
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

    def is_small(self, part: bytes, most: int) -> bool:
        """Whether a part has at most so many marks."""
        return self._hashed().is_small(part, most)

    def marks_in(self, part: bytes) -> list[MarkState]:
        """The marks of a part."""
        sources = sorted(self._sources[place] for place in self._hashed().below(part))
        return [self._state(source, self._marks[source]) for source in sources]

    def _hashed(self) -> HashTree:
        for source in self._changed:
            mark, numbering = self._marks[source], source[0] + source[1].to_bytes(8, "big")
            place = place_of(numbering)
            beyond = ",".join(map(str, sorted(mark.beyond)))
            held = f"/{mark.high}/{beyond}".encode()
            self._sources[place] = source
            self._tree.put(place, blake2b(numbering + held, digest_size=PART_DIGEST_BYTES).digest())
        self._changed.clear()
        return self._tree

    @staticmethod
    def _state(source: Source, mark: _Mark) -> MarkState:
        beyond = tuple(sorted(mark.beyond)) if mark.beyond else ()
        return MarkState(
            source[0], source[1], mark.floor, mark.high, mark.cid, beyond, mark.retired
        )
