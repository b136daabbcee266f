"""An index of filters: finds those that match an event without testing each of them.

Every conjunction of every filter has a slot, and every attribute a column. A column cuts the order
of its values into buckets: a boundary is a bucket of its own, and what lies between two is another.
For each bucket there are two sets of slots, as bits of one long integer: those for which any value
in it will do, and those for which only some may. Finding the candidates is then a few `and`s over
integers, and only those that remain in doubt are asked one by one.

Boundaries are quantiles of the ends of the intervals that are asked for, so buckets are narrow
where filters crowd. They are chosen anew each time the number of slots has grown fourfold.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any, Final, Generic, TypeVar

from pulsarcast.model.errors import LocalError
from pulsarcast.model.filters.cover import Constraint, Constraints, constraints_of
from pulsarcast.model.filters.domains import Domain, Value, domains_of, views
from pulsarcast.model.filters.filter import Filter
from pulsarcast.model.filters.intervals import END, Cut, whole
from pulsarcast.model.filters.terms import Question
from pulsarcast.model.topic_types import AttributeRule

BOUNDARIES_MAX: Final = 128
_GROWTH: Final = 4
_SLOTS_LEAST: Final = 64
_WORD_BYTES: Final = 8

Key = TypeVar("Key", bound=Hashable)


class FilterIndex(Generic[Key]):
    """Filters by key, on the attributes of one schema."""

    def __init__(self, schema: Iterable[AttributeRule]) -> None:
        self._domains = domains_of(schema)
        self._columns: dict[str, _Column] = {}
        self._slots: dict[Key, list[int]] = {}
        self._taken: list[_Slot[Key] | None] = []
        self._free: list[int] = []
        self._live = _Bits(_SLOTS_LEAST)
        self._rebuild_at = _SLOTS_LEAST

    def __len__(self) -> int:
        """How many filters there are."""
        return len(self._slots)

    def __contains__(self, key: object) -> bool:
        """Whether there is a filter of this key."""
        return key in self._slots

    def insert(self, key: Key, wanted: Filter) -> None:
        """Take a filter, in place of the key's former one if it had one."""
        for name, domain in wanted.domains.items():
            if self._domains.get(name) != domain:
                raise LocalError("a filter on another schema than the index")
        self.remove(key)
        own = self._slots[key] = []
        for questions in wanted.conjunctions():
            constraints = constraints_of(questions, self._domains)
            if constraints is not None:
                own.append(self._take(_Slot(key, questions, constraints)))

    def remove(self, key: Key) -> None:
        """Forget a key's filter, if there is one."""
        for slot in self._slots.pop(key, ()):
            taken = self._taken[slot]
            assert taken is not None
            for name, constraint in taken.constraints.items():
                self._columns[name].unmark(slot, constraint)
            self._live.remove(slot)
            self._taken[slot] = None
            self._free.append(slot)

    def matching(self, attributes: Mapping[str, object]) -> set[Key]:
        """The keys of all filters that an event with these attributes matches."""
        values = views(self._domains, attributes)
        sure = possible = live = self._live.number()
        for name, column in self._columns.items():
            within, perhaps = column.found(values.get(name), live)
            possible &= within | perhaps
            if not possible:
                return set()
            sure &= within
        taken = self._taken
        found = {taken[slot].key for slot in _ones(sure)}  # type: ignore[union-attr]
        for slot in _ones(possible ^ sure):
            each = taken[slot]
            assert each is not None
            if each.key not in found and all(one.holds(values) for one in each.questions):
                found.add(each.key)
        return found

    def _take(self, taken: _Slot[Key]) -> int:
        if self._free:
            slot = self._free.pop()
            self._taken[slot] = taken
        else:
            slot = len(self._taken)
            self._taken.append(taken)
        self._live.add(slot)
        self._mark(slot, taken)
        if slot >= self._rebuild_at:
            self._rebuild()
        return slot

    def _mark(self, slot: int, taken: _Slot[Key]) -> None:
        for name, constraint in taken.constraints.items():
            column = self._columns.get(name)
            if column is None:
                column = self._columns[name] = _Column(self._domains[name], (), len(self._taken))
            column.mark(slot, constraint)

    def _rebuild(self) -> None:
        """Choose every column's boundaries by what is asked for now."""
        self._rebuild_at = _GROWTH * len(self._taken)
        asked: dict[str, list[Any]] = {}
        for taken in self._taken:
            for name, constraint in taken.constraints.items() if taken is not None else ():
                asked.setdefault(name, []).extend(_ends(constraint))
        self._columns = {
            name: _Column(self._domains[name], _quantiles(values), self._rebuild_at)
            for name, values in asked.items()
        }
        for slot, taken in enumerate(self._taken):
            if taken is not None:
                self._mark(slot, taken)


class _Slot(Generic[Key]):
    """One conjunction of a filter."""

    __slots__ = ("constraints", "key", "questions")

    def __init__(self, key: Key, questions: tuple[Question, ...], constraints: Constraints) -> None:
        self.key = key
        self.questions = questions
        self.constraints = constraints


class _Bits:
    """A set of slots: changed as bytes, asked as one integer, kept until the next change."""

    __slots__ = ("_data", "_number")

    def __init__(self, slots: int) -> None:
        self._data = bytearray(slots // 8 + 1)
        self._number: int | None = None

    def add(self, slot: int) -> None:
        place = slot >> 3
        if place >= len(self._data):
            self._data.extend(bytes(place + 1))  # twice as many: rarely
        self._data[place] |= 1 << (slot & 7)
        self._number = None

    def remove(self, slot: int) -> None:
        self._data[slot >> 3] &= ~(1 << (slot & 7))
        self._number = None

    def number(self) -> int:
        if self._number is None:
            self._number = int.from_bytes(self._data, "little")
        return self._number


class _Column:
    """The constraints of all slots on one attribute."""

    def __init__(self, domain: Domain, boundaries: tuple[Any, ...], slots: int) -> None:
        self._boundaries = boundaries
        ends = whole(domain)
        self._first, self._last = ends[0] if ends else (END, END)
        count = 2 * len(boundaries) + 1
        self._full = [_Bits(slots) for _ in range(count)]
        self._partial = [_Bits(slots) for _ in range(count)]
        self._asking = _Bits(slots)  # those that ask something of this attribute
        self._absent = _Bits(slots)  # those that ask it to be missing

    def mark(self, slot: int, constraint: Constraint) -> None:
        """Take what a slot asks."""
        self._asking.add(slot)
        for bits in self._places(constraint):
            bits.add(slot)

    def unmark(self, slot: int, constraint: Constraint) -> None:
        """Forget what a slot asks."""
        self._asking.remove(slot)
        for bits in self._places(constraint):
            bits.remove(slot)

    def found(self, value: Value | None, live: int) -> tuple[int, int]:
        """The slots that this value satisfies, and those that it may satisfy."""
        indifferent = live ^ self._asking.number()
        if value is None:
            return indifferent | self._absent.number(), 0
        at = self._bucket(value)
        return indifferent | self._full[at].number(), self._partial[at].number()

    def _bucket(self, value: Any) -> int:
        at = bisect_left(self._boundaries, value)
        at_boundary = at < len(self._boundaries) and self._boundaries[at] == value
        return 2 * at + at_boundary

    def _places(self, constraint: Constraint) -> Iterator[_Bits]:
        """The sets that a slot with this constraint is in."""
        if not constraint.intervals:
            yield self._absent
            return
        partial: set[int] = set()
        for low, high in constraint.intervals:
            first, first_whole = self._start(low)
            last, last_whole = self._stop(high)
            if not constraint.exact:
                partial.update(range(first, last + 1))
                continue
            if not first_whole:
                partial.add(first)
                first += 1
            if not last_whole:
                partial.add(last)
                last -= 1
            yield from self._full[first : last + 1]
        for at in partial:
            yield self._partial[at]

    def _start(self, low: Cut) -> tuple[int, bool]:
        """The bucket where an interval begins, and whether it begins where the bucket does."""
        if low <= self._first:
            return 0, True
        _, value, side = low
        at = self._bucket(value)
        return (at + side, True) if at % 2 else (at, False)

    def _stop(self, high: Cut) -> tuple[int, bool]:
        """The bucket where an interval ends, and whether it ends where the bucket does."""
        if high >= self._last:
            return 2 * len(self._boundaries), True
        _, value, side = high
        at = self._bucket(value)
        return (at - 1 + side, True) if at % 2 else (at, False)


def _ends(constraint: Constraint) -> Iterator[Any]:
    """The values where a constraint's intervals begin and end."""
    for interval in constraint.intervals:
        for cut in interval:
            if cut is not END:
                yield cut[1]


def _quantiles(values: list[Any]) -> tuple[Any, ...]:
    """Boundaries with about as many of these values between any two of them."""
    values.sort()
    step = max(1, len(values) // BOUNDARIES_MAX)
    found: list[Any] = []
    for value in values[step // 2 :: step]:
        if not found or found[-1] != value:
            found.append(value)
    return tuple(found)


def _ones(bits: int) -> list[int]:
    """The places of an integer's ones."""
    words = -(-bits.bit_length() // (8 * _WORD_BYTES))
    data = bits.to_bytes(words * _WORD_BYTES, "little")
    found: list[int] = []
    for at, word in enumerate(struct.unpack(f"<{words}Q", data)):
        rest = word
        while rest:
            lowest = rest & -rest
            found.append(at * 64 + lowest.bit_length() - 1)
            rest ^= lowest
    return found
