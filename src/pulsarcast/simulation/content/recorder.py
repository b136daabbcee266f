"""Who was due what, and who got it: the ledger of content-based subscriptions."""

from __future__ import annotations

from collections.abc import Mapping

from pulsarcast.model import trace
from pulsarcast.model.events import Attribute
from pulsarcast.model.filters import Filter, FilterIndex
from pulsarcast.model.ids import Cid
from pulsarcast.model.topic_types import AttributeRule
from pulsarcast.protocol.inputs import Now
from pulsarcast.simulation.process import Recorder


class Pasts:
    """Who had seen what when it wrote, event by event: what causal order is held against.

    It does not ask an event what it follows. Sets of events are numbers, with a bit for each.
    """

    def __init__(self) -> None:
        self._bits: dict[Cid, int] = {}
        self._before: dict[Cid, int] = {}
        """By event: all that its author had seen, and what those who wrote it had."""
        self._seen: dict[int, int] = {}
        """By node: all that it has seen, with what was before it."""
        self._behind: dict[int, int] = {}
        """By node: all that is before something it has seen, and so must not come any more."""
        self._written: dict[str, int] = {}

    def write(self, node: int, injection: str) -> None:
        """A node's application has something to say."""
        self._written[injection] = self._seen.get(node, 0)

    def publish(self, node: int, event: Cid, injection: str) -> None:
        """And it is an event now."""
        self._before[event] = self._written.pop(injection)
        bit = self._bits.setdefault(event, 1 << len(self._bits))
        self._seen[node] = self._seen.get(node, 0) | self._before[event] | bit

    def read(self, node: int, event: Cid) -> bool:
        """A node's application gets an event; False if it has seen one that follows it."""
        bit = self._bits.setdefault(event, 1 << len(self._bits))
        before = self._before.get(event, 0)
        in_order = not self._behind.get(node, 0) & bit
        self._behind[node] = self._behind.get(node, 0) | before
        self._seen[node] = self._seen.get(node, 0) | before | bit
        return in_order


class Ledger:
    """Every event, everyone it was due to, and every delivery."""

    def __init__(
        self, schema: tuple[AttributeRule, ...], *, tracer: Recorder | None = None
    ) -> None:
        self._index: FilterIndex[tuple[int, int]] = FilterIndex(schema)
        self.due: dict[Cid, set[int]] = {}
        """By event: the nodes whose subscriptions match it."""
        self.published_s: dict[Cid, float] = {}
        self.got: dict[tuple[Cid, int], float] = {}
        self.duplicates = 0
        self.unasked = 0
        """Deliveries to nodes that never wanted such an event."""
        self.disorders = 0
        """Deliveries behind a later event of the same numbering."""
        self.upside_down = 0
        """Deliveries behind an event that was published by someone who had seen this one."""
        self._ever: dict[int, list[Filter]] = {}
        self._attributes: dict[Cid, Mapping[str, Attribute]] = {}
        self._newest: dict[tuple[int, int, bytes, int], int] = {}
        self._injected: dict[str, Mapping[str, Attribute]] = {}
        self._since: dict[tuple[int, int], float] = {}
        """By node and sid: when it began to count, and nothing before it is due."""
        self._pasts = Pasts()
        self._tracer = tracer
        self.time_s = 0.0

    def subscribe(self, node: int, sid: int, wanted: Filter) -> None:
        """A node's filter counts from now on."""
        self._index.insert((node, sid), wanted)
        self._since[node, sid] = self.time_s
        self.asked(node, wanted)

    def asked(self, node: int, wanted: Filter) -> None:
        """A node has asked for it: from now on it may get such events."""
        self._ever.setdefault(node, []).append(wanted)

    def unsubscribe(self, node: int, sid: int) -> None:
        """It counts no longer: what is still on its way to it is due to nobody."""
        self._index.remove((node, sid))
        for event, nodes in self.due.items():
            if node in nodes and (event, node) not in self.got:
                wanting = self._index.matching(self._attributes[event])
                if not any(other == node for other, _ in wanting):
                    nodes.discard(node)

    def inject(self, node: int, injection: str, attributes: Mapping[str, Attribute]) -> None:
        """An event is handed to its author."""
        self._injected[injection] = attributes
        self._pasts.write(node, injection)

    def record(
        self, time_s: float, index: int, incarnation: int, now: Now, record: trace.Record
    ) -> None:
        """Take one record of one node."""
        if self._tracer is not None:
            self._tracer.record(time_s, index, incarnation, now, record)
        self.time_s = time_s
        if isinstance(record, trace.Delivered):
            key = (record.event, index)
            if key in self.got:
                if not record.redelivery:
                    self.duplicates += 1
            else:
                self.got[key] = time_s
                self._judge(index, incarnation, record)
        elif isinstance(record, trace.Published):
            self.published_s.setdefault(record.event, time_s)
            self._named(index, record.event, record.injection)
        elif isinstance(record, trace.Acknowledged):
            # What a sequencer publishes for others, only they know by the name it was given.
            self._named(index, record.event, record.injection)

    def _named(self, node: int, event: Cid, injection: str | None) -> None:
        """We know which of the events that were handed over it is, and so whom it is due to."""
        attributes = self._injected.pop(injection or "", None)
        if attributes is None:
            return
        published_s = self.published_s.setdefault(event, self.time_s)
        self.due[event] = {
            key[0] for key in self._index.matching(attributes) if self._since[key] <= published_s
        }
        self._attributes[event] = attributes
        self._pasts.publish(node, event, injection or "")

    def _judge(self, index: int, incarnation: int, record: trace.Delivered) -> None:
        numbering = (index, incarnation, record.publisher, record.epoch)
        if self._newest.get(numbering, 0) > record.number:
            self.disorders += 1
        self._newest[numbering] = max(record.number, self._newest.get(numbering, 0))
        self.upside_down += not self._pasts.read(index, record.event)
        if index in self.due.get(record.event, ()):
            return  # whom it is due to has asked for it
        attributes = self._attributes.get(record.event)
        if attributes is not None and index in self._ever:
            self.unasked += not any(each.matches(attributes) for each in self._ever[index])

    def missing(self) -> list[tuple[Cid, int]]:
        """What is due and was not delivered."""
        return [
            (event, node)
            for event, nodes in self.due.items()
            for node in sorted(nodes)
            if (event, node) not in self.got
        ]

    @property
    def unpublished(self) -> int:
        """Events that were handed to their authors, and never heard of again."""
        return len(self._injected)

    @property
    def due_count(self) -> int:
        """How many deliveries are due."""
        return sum(map(len, self.due.values()))

    def delays_s(self) -> list[float]:
        """How long each delivery took, ascending."""
        return sorted(
            at_s - self.published_s[event]
            for (event, node), at_s in self.got.items()
            if event in self.due and node in self.due[event]
        )
