"""The cover of a filter: boxes of the logical space by which a subscription is routed.

The space has one dimension per attribute of the schema that has an order: numbers and texts. An
event is a point of it, with the dimensions missing that the event does not have. A cover is a set
of boxes that holds every event that matches, and often others: what no range can say (the end of a
text, patterns, bools, missing attributes) is left to the matcher. Boxes may overlap: a node that
routes by them delivers once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product
from typing import Any, TypeAlias

import msgspec

from pulsarcast.model.filters.bounds import FILTER_BOXES_MAX
from pulsarcast.model.filters.domains import NUMERIC, Domains, Value, domains_of, views
from pulsarcast.model.filters.intervals import END, Cut, Interval, Intervals, asked, common, hull
from pulsarcast.model.filters.terms import Presence, Question
from pulsarcast.model.topic_types import AttributeRule

Point: TypeAlias = Mapping[str, Value]


class Range(msgspec.Struct, frozen=True):
    """The values between two, of one dimension; both are within the schema's bounds."""

    low: Any  # a number or a text
    high: Any  # of texts None where they have no last one
    low_open: bool = False  # whether `low` itself is left out
    high_open: bool = False

    def contains(self, value: Any) -> bool:
        """Whether a value lies in it."""
        if value <= self.low:
            return bool(value == self.low and not self.low_open)
        return bool(
            self.high is None or value < self.high or (value == self.high and not self.high_open)
        )


class Box(msgspec.Struct, frozen=True):
    """A range in some dimensions; in all others it reaches from end to end.

    An event lies in it if it has every attribute that is named here, within its range.
    """

    ranges: tuple[tuple[str, Range], ...] = ()  # by name, ascending

    def contains(self, point: Point) -> bool:
        """Whether a point lies in it."""
        for name, each in self.ranges:
            value = point.get(name)
            if value is None or not each.contains(value):
                return False
        return True

    def range(self, name: str) -> Range | None:
        """Its range in one dimension; None where it has all values, and those that have none."""
        for own, each in self.ranges:
            if own == name:
                return each
        return None


def point_of(schema: Iterable[AttributeRule], attributes: Mapping[str, object]) -> dict[str, Value]:
    """An event's point: its numbers and texts; those missing, or not allowed, are left out."""
    ordered = {name: each for name, each in domains_of(schema).items() if each.is_ordered}
    return views(ordered, attributes)


class Constraint(msgspec.Struct, frozen=True):
    """The values of one attribute that satisfy a conjunction."""

    intervals: Intervals  # none: that it is missing
    exact: bool  # whether every value in the intervals will do


Constraints: TypeAlias = dict[str, Constraint]


def constraints_of(questions: Iterable[Question], domains: Domains) -> Constraints | None:
    """The constraint of a conjunction on each attribute; None if nothing can satisfy it."""
    found: Constraints = {}
    absent = set()
    for question in questions:
        name = question.name
        if isinstance(question, Presence) and not question.present:
            absent.add(name)
            continue
        intervals, exact = asked(question, domains[name])
        if name in found:
            intervals = common(found[name].intervals, intervals)
            exact = exact and found[name].exact
        if not intervals:
            return None
        found[name] = Constraint(intervals, exact)
    if absent & found.keys():
        return None
    return found | {name: Constraint((), True) for name in absent}


def cover_of(conjunctions: Iterable[Iterable[Question]], domains: Domains) -> tuple[Box, ...]:
    """Boxes that hold every event for which one of the conjunctions is true."""
    possible = [
        found for each in conjunctions if (found := constraints_of(each, domains)) is not None
    ]
    boxes: set[_Cuts] = set()
    for each in possible:
        routed = {
            name: one.intervals
            for name, one in sorted(each.items())
            if one.intervals and domains[name].is_ordered
        }
        boxes.update(_boxes(routed, FILTER_BOXES_MAX // len(possible), domains))
    return tuple(_box(each) for each in sorted(_fewest(boxes)))


_Cuts: TypeAlias = tuple[tuple[str, Interval], ...]


def _boxes(routed: dict[str, Intervals], count_max: int, domains: Domains) -> Iterable[_Cuts]:
    """Every combination of intervals; where there are too many, attributes become one range.

    Texts do first, as they are often listed beside a range of numbers that is selective enough.
    """
    while True:
        count = 1
        for intervals in routed.values():
            count *= len(intervals)
        if count <= max(1, count_max):
            break
        widest = max(
            (name for name in routed if len(routed[name]) > 1),
            key=lambda name: (domains[name].kind not in NUMERIC, len(routed[name])),
        )
        routed = routed | {widest: hull(routed[widest])}
    names = tuple(routed)
    return (tuple(zip(names, each, strict=True)) for each in product(*routed.values()))


def _fewest(boxes: set[_Cuts]) -> set[_Cuts]:
    """The same space in fewer boxes: neighbours joined, and none within another."""
    for name in sorted({name for box in boxes for name, _ in box}):
        beside: dict[_Cuts, list[Interval]] = {}
        for box in boxes:
            own = dict(box).get(name)
            if own is not None:
                others = tuple(pair for pair in box if pair[0] != name)
                beside.setdefault(others, []).append(own)
        boxes = {box for box in boxes if name not in dict(box)}
        for others, intervals in beside.items():
            boxes.update(tuple(sorted((*others, (name, each)))) for each in _united(intervals))
    return {
        box for box in boxes if not any(other != box and _within(box, other) for other in boxes)
    }


def _united(intervals: list[Interval]) -> list[Interval]:
    found: list[Interval] = []
    for low, high in sorted(intervals):
        if found and low <= found[-1][1]:
            found[-1] = (found[-1][0], max(high, found[-1][1]))
        else:
            found.append((low, high))
    return found


def _within(inner: _Cuts, outer: _Cuts) -> bool:
    own = dict(inner)
    return all(
        name in own and low <= own[name][0] and own[name][1] <= high for name, (low, high) in outer
    )


def _box(cuts: _Cuts) -> Box:
    return Box(tuple((name, _range(low, high)) for name, (low, high) in cuts))


def _range(low: Cut, high: Cut) -> Range:
    if high == END:
        return Range(low[1], None, low_open=low[2] == 1)
    return Range(low[1], high[1], low_open=low[2] == 1, high_open=high[2] == 0)
