"""The events of an era, as far as their lines are the same on every node."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import count

from pulsarcast.model.ids import cid_text
from pulsarcast.model.topic_types import DeliveryOrder
from pulsarcast.pipeline.synthetic_traces.plan import ERA, PATTERN, Plan


class Era:
    """The events of some slots, ready to be written into the lines of any node."""

    def __init__(self, plan: Plan, number: int) -> None:
        self.plan = plan
        self.first = number * ERA
        self.end = min(self.first + ERA, plan.slots)
        slots = range(self.first, self.end)
        self.topics = [plan.pattern[slot % PATTERN][0] for slot in slots]
        self.events = [cid_text(plan.event(slot)) for slot in slots]
        self.places = list(self._places())
        heads = [f',"kind":"delivered","topic":"{cid_text(topic.cid)}"' for topic in plan.topics]
        self.deliveries = [
            f'{heads[topic]},"event":"{event}",{place},"index":'
            for topic, event, place in zip(self.topics, self.events, self.places, strict=True)
        ]
        self._sequences: dict[int, tuple[list[int], list[float]]] = {}

    def _places(self) -> Iterator[str]:
        """What says where each event stands: publisher, epoch and number."""
        plan = self.plan
        heads: dict[tuple[int, int], str] = {}
        numbers: dict[tuple[int, int], Iterator[int]] = {}
        for topic, each in enumerate(plan.topics):
            for by, (node, epoch) in enumerate(zip(each.publishers, each.epochs, strict=True)):
                heads[topic, by] = f'"publisher":"{plan.names[node]}","epoch":{epoch}'
                numbers[topic, by] = count(plan.published(topic, self.first, by) + 1)
        for slot in range(self.first, self.end):
            whose = plan.pattern[slot % PATTERN]
            yield f'{heads[whose]},"number":{next(numbers[whose])}'

    def sequence(self, variant: int) -> tuple[list[int], list[float]]:
        """In which sequence some nodes see the events, and the slot at which they see each."""
        if variant not in self._sequences:
            self._sequences[variant] = self._sort(partial(self._shift, variant))
        return self._sequences[variant]

    def own_sequence(self, node: int) -> tuple[list[int], list[float]]:
        """The sequence of a steady node: its own event of a causal round comes first."""
        early = {
            at: by + 0.5
            for at, (topic, by) in enumerate(self.plan.pattern)
            if self.plan.topics[topic].order is DeliveryOrder.CAUSAL
            and self.plan.topics[topic].publishers[by] == node
        }
        if not early:
            return self.sequence(0)
        return self._sort(lambda slot: -early.get(slot % PATTERN, 0.0))

    def _shift(self, variant: int, slot: int) -> float:
        topic, by = self.plan.pattern[slot % PATTERN]
        return self.plan.shift(variant, topic, by, slot)

    def _sort(self, shift: Callable[[int], float]) -> tuple[list[int], list[float]]:
        seen = [slot + shift(slot) for slot in range(self.first, self.end)]
        order = sorted(range(len(seen)), key=seen.__getitem__)
        return order, [seen[at] for at in order]


def acknowledged(plan: Plan, slot: int) -> str:
    """What says that the event of a slot is kept, without the envelope."""
    topic = plan.pattern[slot % PATTERN][0]
    level, replicas = ("replicated", 3) if slot % 10 else ("accepted", 0)
    return (
        f',"kind":"acknowledged","topic":"{cid_text(plan.topics[topic].cid)}",'
        f'"event":"{cid_text(plan.event(slot))}","injection":"{slot + 1}","level":"{level}",'
        f'"replicas":{replicas}}}\n'
    )
