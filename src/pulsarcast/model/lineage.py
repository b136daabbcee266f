"""Lineage: the order that links between events give, and the gaps in what is known of it.

An event comes after its parents, and after the events of its numbering with lower numbers
(docs/spec/pulsarcast.md, Walk).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Hashable, Sequence
from heapq import heappop, heappush
from itertools import pairwise
from typing import NamedTuple, TypeVar

from pulsarcast.model.ids import Cid, PeerId

T = TypeVar("T")


class Missing(enum.StrEnum):
    """Why a walk gives no event where there was one."""

    RETENTION = "retention"  # the topic's retention or its author's flush has retired it
    NOT_FOUND = "not_found"  # no peer that was asked has it
    REFUSED = "refused"  # its bytes are there, and the topic does not allow them
    BRANCHES = "branches"  # the walk has more open branches than it keeps


class Gap(NamedTuple):
    """Events that a walk misses: one by its content id, or the numbers first..last."""

    reason: Missing
    event: Cid | None = None
    publisher: PeerId | None = None
    epoch: int = 0
    first: int = 0
    last: int = 0


class Links(NamedTuple):
    """What an event says about its place among others."""

    id: bytes
    numbering: Hashable
    number: int
    parents: Collection[bytes]
    created_us: int


def oldest_first(events: Sequence[T], links_of: Callable[[T], Links]) -> list[T]:
    """Events in an order in which none comes before an event that it follows.

    Of events that do not follow one another, the one that says it is older comes first. A
    publisher can contradict itself, by an event that names a later one of its own as a parent:
    then the parents decide, since links by hash have no cycle.
    """
    found = [(links_of(event), event) for event in events]
    found.sort(key=lambda each: (each[0].created_us, each[0].id))
    links = [each for each, _ in found]
    place_of = {each.id: place for place, each in enumerate(links)}
    parents = [
        {place_of[parent] for parent in each.parents if parent in place_of} - {place}
        for place, each in enumerate(links)
    ]
    before = [set(each) for each in parents]
    numbered: dict[Hashable, list[int]] = {}
    for place, each in enumerate(links):
        numbered.setdefault(each.numbering, []).append(place)
    for places in numbered.values():
        places.sort(key=lambda place: (links[place].number, place))
        for lower, place in pairwise(places):
            before[place].add(lower)
    after: list[list[int]] = [[] for _ in links]
    for place, earlier in enumerate(before):
        for each_before in earlier:
            after[each_before].append(place)
    ready = [place for place, earlier in enumerate(before) if not earlier]
    left = dict.fromkeys(range(len(links)))
    ordered: list[T] = []
    while left:
        place = heappop(ready) if ready else next(each for each in left if not parents[each])
        if place not in left:
            continue
        del left[place]
        ordered.append(found[place][1])
        for later in after[place]:
            before[later].discard(place)
            parents[later].discard(place)
            if later in left and not before[later]:
                heappush(ready, later)
    return ordered
