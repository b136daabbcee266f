"""What happens in a synthetic trace: who publishes what, and who gets it, by arithmetic.

Time is counted in slots, and in each slot one event is published. Which topic and publisher a slot
belongs to repeats with a fixed pattern, so that the number of an event, a frontier at any slot and
all expected figures are divisions and table look-ups: nothing has to be played through to be known.

Some nodes are steady: they publish, and see every event in its slot. The others see events up to
`disorder` slots later, in any sequence that the topic's order leaves open; among them are those
that come late, leave, return, and lose their disks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from typing import Final, NamedTuple

from pulsarcast.model.ids import CID_PREFIX, Cid, PeerId, peer_text
from pulsarcast.model.topic_types import DeliveryOrder, Mark

PATTERN: Final = 1_000
"""Slots after which topics and publishers repeat."""
REDELIVERED: Final = 8
"""Events that a node gets again after a kill, in each topic of total order."""
ERA: Final = 50 * PATTERN
"""Slots that are written at a time: events are seen in disorder within one only."""
VARIANTS: Final = 6
"""Sequences in which nodes see the same events; the first is that of the steady nodes."""


class TopicPlan(NamedTuple):
    """One topic: who publishes in it, and how many of a pattern's slots it has."""

    cid: Cid
    name: str
    order: DeliveryOrder
    publishers: tuple[int, ...]  # nodes; the first is the topic's author
    epochs: tuple[int, ...]
    askers: tuple[int, ...]  # nodes that ask the publisher to publish; empty: it does so itself
    is_open: bool  # anyone may publish
    subscribers: tuple[int, ...]
    slots: int


class Period(NamedTuple):
    """One subscription: all events of the topic from slot `first` up to, not including, `end`."""

    topic: int
    first: int
    end: int | None = None
    unsubscribed: bool = False  # or else its end is that of the disk


class Death(NamedTuple):
    """The end of one life of a node, as the driver did it."""

    slot: int
    keeps_disk: bool
    returns: bool = True


@dataclass(frozen=True)
class NodePlan:
    """One node: what it subscribes to, and how it dies."""

    steady: bool
    periods: tuple[Period, ...]
    deaths: tuple[Death, ...]


@dataclass(frozen=True)
class Plan:
    """A whole trace, up to the last line; small, however long the trace is."""

    lines: int
    seed: int
    run_id: str
    slots: int
    disorder: int
    peers: tuple[PeerId, ...]
    topics: tuple[TopicPlan, ...]
    pattern: tuple[tuple[int, int], ...]  # by slot: topic, and which of its publishers
    nodes: tuple[NodePlan, ...] = field(repr=False)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The nodes' ids as text."""
        return tuple(peer_text(peer) for peer in self.peers)

    @cached_property
    def _before(self) -> dict[tuple[int, int], list[int]]:
        """By topic and publisher, and by topic alone (-1): slots before each one of the pattern."""
        counts: dict[tuple[int, int], list[int]] = {}
        for topic, plan in enumerate(self.topics):
            for publisher in range(-1, len(plan.publishers)):
                row = counts[topic, publisher] = [0]
                for at, by in self.pattern:
                    row.append(row[-1] + (at == topic and publisher in (by, -1)))
        return counts

    def published(self, topic: int, slot: int, publisher: int = -1) -> int:
        """How many events of a topic, or of one of its publishers, come before a slot."""
        row = self._before[topic, publisher]
        rounds, rest = divmod(slot, PATTERN)
        return rounds * row[-1] + row[rest]

    def event(self, slot: int) -> Cid:
        """The content id of the event that is published in a slot."""
        return Cid(CID_PREFIX + sha256(b"event %d %d" % (self.seed, slot)).digest())

    def marks(self, topic: int, slot: int) -> tuple[Mark, ...]:
        """A topic's frontier right before a slot."""
        plan = self.topics[topic]
        numbers = [self.published(topic, slot, at) for at in range(len(plan.publishers))]
        return tuple(
            Mark(self.peers[node], epoch, number)
            for node, epoch, number in zip(plan.publishers, plan.epochs, numbers, strict=True)
            if number
        )

    def parent_slots(self, slot: int) -> list[int]:
        """Where the parents of a slot's event are: the last one, or in causal order all heads."""
        topic, publisher = self.pattern[slot % PATTERN]
        if self.topics[topic].order is DeliveryOrder.CAUSAL:
            # The publishers of a round have seen the round before, and nothing of each other's.
            width = len(self.topics[topic].publishers)
            last = self._last_slot(topic, slot - publisher)
            return [] if last is None else [*range(last - width + 1, last + 1)]
        last = self._last_slot(topic, slot)
        return [] if last is None else [last]

    @cached_property
    def _back(self) -> list[list[int]]:
        """By topic and slot of the pattern: how far back the topic's last slot is."""
        rows = []
        for topic in range(len(self.topics)):
            last = max(at for at, (its, _) in enumerate(self.pattern) if its == topic) - PATTERN
            row = []
            for at, (its, _) in enumerate(self.pattern):
                row.append(at - last)
                last = at if its == topic else last
            rows.append(row)
        return rows

    def _last_slot(self, topic: int, slot: int) -> int | None:
        """The last slot of a topic before another slot."""
        last = slot - self._back[topic][slot % PATTERN]
        return None if last < 0 else last

    def last_slots(self, topic: int, before: int, count: int) -> list[int]:
        """The last few slots of a topic before another slot, in their sequence."""
        found: list[int] = []
        while len(found) < count and (last := self._last_slot(topic, before)) is not None:
            found.append(last)
            before = last
        return found[::-1]

    def asker(self, topic: int, slot: int) -> int:
        """The node whose application wanted the event of a slot published."""
        plan = self.topics[topic]
        if plan.askers:
            return plan.askers[slot % len(plan.askers)]
        return plan.publishers[self.pattern[slot % PATTERN][1]]

    def shift(self, variant: int, topic: int, publisher: int, slot: int) -> int:
        """How many slots later than its own a node sees an event: never against the order."""
        order = self.topics[topic].order
        if variant == 0 or order is DeliveryOrder.CAUSAL:
            return 0
        if order is DeliveryOrder.NONE:
            chance = slot * 2654435761 + variant * 40503
        elif order is DeliveryOrder.TOTAL:
            chance = topic * 97 + variant * 193
        else:
            chance = topic * 389 + publisher * 769 + variant * 1543
        return (chance >> 3) % self.disorder

    def variant(self, node: int) -> int:
        """In which of the sequences a node sees events."""
        return 0 if self.nodes[node].steady else 1 + node % (VARIANTS - 1)

    # What it all comes to.

    def due(self, node: int) -> int:
        """How many events are due to a node, in all its periods; it gets each of them."""
        return sum(
            self.published(p.topic, self.slots if p.end is None else p.end)
            - self.published(p.topic, p.first)
            for p in self.nodes[node].periods
        )

    def redelivered(self, node: int, death: Death) -> Iterator[tuple[int, list[int]]]:
        """What a node gets again after a kill: topics of total order, with the slots."""
        if not (death.keeps_disk and death.returns):
            return
        for period in self.nodes[node].periods:
            if self.topics[period.topic].order is not DeliveryOrder.TOTAL:
                continue
            seen = death.slot - self.shift(self.variant(node), period.topic, 0, 0)
            if period.end is not None and period.end + self.disorder <= death.slot:
                continue
            until = seen if period.end is None else min(seen, period.end)
            got = self.published(period.topic, until) - self.published(period.topic, period.first)
            if got >= REDELIVERED and until > period.first:
                yield period.topic, self.last_slots(period.topic, until, REDELIVERED)

    def told_again(self, node: int, death: Death) -> int | None:
        """The slot of the event that a publisher says again after a kill: the last it published."""
        if not (death.keeps_disk and death.returns):
            return None
        for at in range(death.slot - 1, max(-1, death.slot - 1 - PATTERN), -1):
            topic, by = self.pattern[at % PATTERN]
            if self.topics[topic].publishers[by] == node:
                return at
        return None

    def counts(self) -> dict[str, int]:
        """How many lines of each kind there are, without those that only fill up."""
        deaths = [(node, death) for node, plan in enumerate(self.nodes) for death in plan.deaths]
        periods = [period for node in self.nodes for period in node.periods]
        again = sum(
            len(slots) for node, death in deaths for _, slots in self.redelivered(node, death)
        )
        told = sum(self.told_again(node, death) is not None for node, death in deaths)
        starts = len(self.nodes) + sum(death.returns for _, death in deaths)
        return {
            "node_started": starts,
            "node_stopped": starts - len(deaths),
            "fault": sum(1 + death.returns for _, death in deaths),
            "topic_created": len(self.topics),
            "subscribed": len(periods),
            "unsubscribed": sum(period.unsubscribed for period in periods),
            "injected": self.slots,
            "published": self.slots + told,
            "acknowledged": 2 * self.slots,
            "delivered": sum(self.due(node) for node in range(len(self.nodes))) + again,
        }

    def expected(self) -> dict[str, object]:
        """The figures that a pipeline must come to."""
        due = sum(self.due(node) for node in range(len(self.nodes)))
        counts = self.counts()
        again = counts["delivered"] - due
        return {
            "run_id": self.run_id,
            "seed": self.seed,
            "lines": self.lines,
            "nodes": len(self.nodes),
            "topics": len(self.topics),
            "subscriptions": counts["subscribed"],
            "published": self.slots,
            "due": due,
            "delivered": due,
            "redelivered": again,
            "undecided": 0,
            "findings": 0,
            "hot_topic": {"name": self.topics[0].name, "published": self.published(0, self.slots)},
            "kinds": counts,
        }
