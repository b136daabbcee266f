"""SRPT-S while members come and go: one tree per topic, whose root everything goes through (4.5).

The paper says that SUB and UNS messages cause contention at the root, and not how they travel. Here
they go to the root and from there to all nodes, as a SUB does in VCube-PS: with that, the root
saturates just where the paper saw it saturate. A node forwards a PUB into those of its subtrees in
which it knows a subscriber. There are no acknowledgements (see table 1: the leaves send nothing).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from pulsarcast.simulation.vcube.calendar import Calendar
from pulsarcast.simulation.vcube.delays import Delays, Transmitters
from pulsarcast.simulation.vcube.network import Act, Tally
from pulsarcast.simulation.vcube.node import Kind
from pulsarcast.simulation.vcube.topology import dimension_of

_Message: TypeAlias = tuple[Kind, int, int]
"""Kind, source, and when its user asked for it."""


class SingleRootNetwork:
    """A cube whose nodes forward for one topic, below one root."""

    def __init__(self, nodes: int, delays: Delays, root: int, members: Iterable[int]) -> None:
        self.queues = Transmitters(nodes, delays)
        self.tally = Tally()
        self.now = 0
        self._root = root
        self._dimension = dimension_of(nodes)
        self._subscribed = bytearray(nodes)
        self._known = [[0] * (self._dimension + 1) for _ in range(nodes)]
        """By label (node xor root) and cluster: subscribers that the node knows of there."""
        self._calendar: Calendar[Act | tuple[int, int | None, _Message]] = Calendar()
        for member in members:
            self._subscribed[member] = 1
            label = member ^ root
            for bit in range(self._dimension):
                if label >> bit & 1:
                    self._known[label >> (bit + 1) << (bit + 1)][bit + 1] += 1

    def at(self, when: int, act: Act) -> None:
        """Let a user do something."""
        self._calendar.add(when, act)

    def publish(self, node: int) -> bool:
        """Publish a message, now."""
        self.tally.published += 1
        return self._enter(node, Kind.PUB)

    def subscribe(self, node: int) -> bool:
        """Join the topic, now."""
        self._subscribed[node] = 1
        return self._enter(node, Kind.SUB)

    def unsubscribe(self, node: int) -> bool:
        """Leave it, now."""
        self._subscribed[node] = 0
        return self._enter(node, Kind.UNS)

    def run(self) -> Tally:
        """Go on until nothing is on its way."""
        for now, day in self._calendar:
            self.now = now
            for what in day:
                if not isinstance(what, tuple):
                    what(now)
                else:
                    self._receive(*what)
        return self.tally

    def _enter(self, node: int, kind: Kind) -> bool:
        message = (kind, node, self.now)
        if node == self._root:
            self._receive(node, None, message)
        else:
            queues = self.queues
            start = max(queues.free_at[node], self.now)
            queues.free_at[node] = start + queues.delays.transmission
            self._calendar.add(start + queues.delays.hop, (self._root, None, message))
        return True

    def _receive(self, node: int, sender: int | None, message: _Message) -> None:
        kind, source, called_at = message
        now, label = self.now, node ^ self._root
        height = self._dimension if sender is None else (node ^ sender).bit_length() - 1
        if kind is Kind.PUB:
            if self._subscribed[node] and node != source:
                self.tally.receptions += 1
                self.tally.latency += now - called_at
                self.tally.finished_at = now
            elif node != source:
                self.tally.false_positives += 1
            known = self._known[label]
            clusters: Iterable[int] = (each for each in range(height, 0, -1) if known[each] > 0)
        else:
            cluster = (node ^ source).bit_length()
            if 0 < cluster <= height:
                self._known[label][cluster] += 1 if kind is Kind.SUB else -1
            clusters = range(height, 0, -1)
        send, add = self.queues.send, self._calendar.add
        sent = 0
        for cluster in clusters:
            child = node ^ (1 << (cluster - 1))
            add(send(node, child, now), (child, node, message))
            sent += 1
        self.tally.sent[kind] += sent
