"""Trees over what members know, which need not be all: k of each cluster, some missing, some dead.

The paper's nodes know all subscribers and do not fail. Here a child that does not answer in time is
given up for the next one of its cluster, in the cluster's order, and remembered as dead. A cluster
of which a node knows nobody is not reached by it: what slips through is repaired by comparing with
the nearest members, both ways. Where a whole subcube slipped through that is larger than what each
of them compares with, nobody in it hears of it; one comparison with somebody far closes that too.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from pulsarcast.simulation.vcube.calendar import Calendar
from pulsarcast.simulation.vcube.delays import Delays, Transmitters
from pulsarcast.simulation.vcube.topology import dimension_of


class Knowledge:
    """Whom each member knows, by cluster, in the cluster's order."""

    def __init__(
        self,
        nodes: int,
        members: Sequence[int],
        rng: random.Random,
        *,
        bucket: int | None,
        missing: float,
    ) -> None:
        self.dimension = dimension_of(nodes)
        self.members = sorted(members)
        self._inside = frozenset(members)
        self._rng = rng
        self._bucket = bucket
        self._lacking = round(missing * (1 << 32))
        self._salt = rng.getrandbits(32)
        self._clusters: dict[tuple[int, int], list[int]] = {}

    def of(self, node: int, cluster: int) -> Iterable[int]:
        """Those of one cluster that a member knows; what it knows does not change."""
        if self._bucket is None:
            return self._all_of(node, cluster)
        found = self._clusters.get((node, cluster))
        if found is None:
            found = self._clusters[node, cluster] = self._draw(node, cluster, self._bucket)
        return found

    def entries(self, node: int) -> int:
        """How many others a member knows."""
        return sum(1 for s in range(1, self.dimension + 1) for _ in self.of(node, s))

    def nearest(self, node: int, count: int) -> list[int]:
        """The nearest members by XOR distance that a member knows."""
        found: list[int] = []
        for cluster in range(1, self.dimension + 1):
            inside = [each for each in self._range(node, cluster) if not self._lacks(node, each)]
            found += sorted(inside, key=lambda each: each ^ node)[: count - len(found)]
            if len(found) >= count:
                break
        return found

    def _all_of(self, node: int, cluster: int) -> Iterator[int]:
        """Full views are not kept but computed: mostly the first entry is all that is needed."""
        first = node ^ (1 << (cluster - 1))
        for distance in range(1 << (cluster - 1)):
            other = first ^ distance
            if other in self._inside and not self._lacks(node, other):
                yield other

    def _draw(self, node: int, cluster: int, count: int) -> list[int]:
        inside = self._range(node, cluster)
        if len(inside) > count:
            inside = self._rng.sample(inside, count)
        first = node ^ (1 << (cluster - 1))
        kept = [each for each in inside if not self._lacks(node, each)]
        return sorted(kept, key=lambda each: each ^ first)

    def _lacks(self, node: int, other: int) -> bool:
        """Whether this entry is missing: by chance, and always the same for the same two."""
        if not self._lacking:
            return False
        mixed = (node * 0x9E3779B1 ^ other * 0x85EBCA77 ^ self._salt) & 0xFFFFFFFF
        for _ in range(2):
            mixed = (mixed ^ mixed >> 15) * 0x2C1B3C6D & 0xFFFFFFFF
        return (mixed ^ mixed >> 16) < self._lacking

    def _range(self, node: int, cluster: int) -> Sequence[int]:
        low = (node ^ (1 << (cluster - 1))) >> (cluster - 1) << (cluster - 1)
        first = bisect_left(self.members, low)
        last = bisect_left(self.members, low + (1 << (cluster - 1)), lo=first)
        return self.members[first:last]


class Outcome(NamedTuple):
    """What came of some messages."""

    reached: list[set[int]]
    """Who got each message, its publisher among them."""
    latency: int
    """Of all receptions."""
    sent: int
    """Copies, those to the dead among them."""
    given_up: int
    """Children that did not answer."""


def spread(
    knowledge: Knowledge,
    publishers: Sequence[tuple[int, int]],
    dead: frozenset[int],
    delays: Delays,
    timeout: int,
) -> Outcome:
    """Publish messages (when, by whom), and follow them."""
    nodes = 1 << knowledge.dimension
    queues = Transmitters(nodes, delays)
    known_dead: list[set[int]] = [set() for _ in range(nodes)]
    reached: list[set[int]] = [set() for _ in publishers]
    # (node, cluster it came by, message), or a child that did not answer: (node, cluster, message,
    # child).
    calendar: Calendar[tuple[int, int, int] | tuple[int, int, int, int]] = Calendar()
    latency = sent = given_up = 0

    def forward(node: int, cluster: int, number: int, now: int) -> None:
        nonlocal sent
        unanswered = known_dead[node]
        for child in knowledge.of(node, cluster):
            if child in unanswered:
                continue
            sent += 1
            arrival = queues.send(node, child, now)
            if child in dead:
                calendar.add(arrival + timeout, (node, cluster, number, child))
            else:
                calendar.add(arrival, (child, cluster, number))
            return

    for number, (at, publisher) in enumerate(publishers):
        calendar.add(at, (publisher, knowledge.dimension + 1, number))
    for now, day in calendar:
        for what in day:
            if len(what) == 4:
                node, cluster, number, child = what
                known_dead[node].add(child)
                given_up += 1
                forward(node, cluster, number, now)
                continue
            node, came_by, number = what
            assert node not in reached[number], "nobody is in two subtrees"
            reached[number].add(node)
            latency += now - publishers[number][0]
            for cluster in range(came_by - 1, 0, -1):
                forward(node, cluster, number, now)
    return Outcome(reached, latency, sent, given_up)


def repair(
    knowledge: Knowledge,
    outcome: Outcome,
    dead: frozenset[int],
    *,
    neighbours: int,
    far: random.Random | None = None,
) -> tuple[int, int]:
    """Compare with the nearest members until nothing is learnt; how many rounds, and messages.

    With a source of chance, also with one known member of any cluster.
    """
    alive = [member for member in knowledge.members if member not in dead]
    near = {
        member: [each for each in knowledge.nearest(member, neighbours) if each not in dead]
        for member in alive
    }
    if far is not None:
        for member, others in near.items():
            clusters = list(range(1, knowledge.dimension + 1))
            far.shuffle(clusters)
            firsts = (next(iter(knowledge.of(member, each)), None) for each in clusters)
            found = [each for each in firsts if each is not None and each not in dead]
            others.extend(found[:1])
    rounds = messages = 0
    learnt = True
    while learnt:
        learnt = False
        rounds += 1
        messages += 2 * sum(len(each) for each in near.values())
        for member, others in near.items():
            for reached in outcome.reached:
                for other in others:
                    if (member in reached) != (other in reached):
                        reached |= {member, other}
                        messages += 1
                        learnt = True
    return rounds, messages
