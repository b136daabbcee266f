"""Who was due what, and who got it: the ledger of content-based subscriptions."""

from __future__ import annotations

from collections.abc import Mapping

from pulsarcast.model import trace
from pulsarcast.model.events import Attribute
from pulsarcast.model.filters import Filter, FilterIndex
from pulsarcast.model.ids import Cid
from pulsarcast.model.topic_types import AttributeRule
from pulsarcast.protocol.inputs import Now


class Ledger:
    """Every event, everyone it was due to, and every delivery."""

    def __init__(self, schema: tuple[AttributeRule, ...]) -> None:
        self._index: FilterIndex[tuple[int, int]] = FilterIndex(schema)
        self.due: dict[Cid, set[int]] = {}
        """By event: the nodes whose subscriptions match it."""
        self.published_s: dict[Cid, float] = {}
        self.got: dict[tuple[Cid, int], float] = {}
        self.duplicates = 0
        self.unasked = 0
        """Deliveries to nodes that never wanted such an event."""
        self.disorders = 0
        """Deliveries behind a later event of the same publisher."""
        self._ever: dict[int, list[Filter]] = {}
        self._attributes: dict[Cid, Mapping[str, Attribute]] = {}
        self._newest: dict[tuple[int, int, bytes, int], int] = {}
        self._injected: dict[str, Mapping[str, Attribute]] = {}

    def subscribe(self, node: int, sid: int, wanted: Filter) -> None:
        """A node's filter counts from now on."""
        self._index.insert((node, sid), wanted)
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

    def inject(self, injection: str, attributes: Mapping[str, Attribute]) -> None:
        """An event is handed to its publisher."""
        self._injected[injection] = attributes

    def record(
        self, time_s: float, index: int, incarnation: int, now: Now, record: trace.Record
    ) -> None:
        """Take one record of one node."""
        if isinstance(record, trace.Delivered):
            key = (record.event, index)
            if key in self.got:
                if not record.redelivery:
                    self.duplicates += 1
            else:
                self.got[key] = time_s
                self._judge(index, incarnation, record)
        elif isinstance(record, trace.Published) and record.event not in self.due:
            attributes = self._injected.pop(record.injection or "", None)
            if attributes is not None:
                self.due[record.event] = {node for node, _ in self._index.matching(attributes)}
                self.published_s[record.event] = time_s
                self._attributes[record.event] = attributes

    def _judge(self, index: int, incarnation: int, record: trace.Delivered) -> None:
        numbering = (index, incarnation, record.publisher, record.epoch)
        if self._newest.get(numbering, 0) > record.number:
            self.disorders += 1
        self._newest[numbering] = max(record.number, self._newest.get(numbering, 0))
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
