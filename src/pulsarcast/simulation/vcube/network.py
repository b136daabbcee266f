"""Whole nodes of VCube-PS under the delay model: order, acknowledgements, membership (section 4).

Latency begins when the user calls PUBLISH, so waiting for the acknowledgements of one's previous
message is part of it, and ends with the reception; t_d, until the delivery, is counted apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from pulsarcast.simulation.vcube.calendar import Calendar
from pulsarcast.simulation.vcube.delays import Delays, Transmitters
from pulsarcast.simulation.vcube.node import Kind, Message, Sends, VCubeNode
from pulsarcast.simulation.vcube.settings import Setting
from pulsarcast.simulation.vcube.topology import dimension_of
from pulsarcast.simulation.vcube.views import View

Act: TypeAlias = Callable[[int], object]
"""Something that a user does, told the time."""


@dataclass(slots=True)
class Tally:
    """What was seen so far."""

    receptions: int = 0
    latency: int = 0
    """Of all receptions of PUB messages by subscribers."""
    false_positives: int = 0
    """PUB messages that reached nodes which are no subscribers (any more)."""
    sent: Counter[Kind] = field(default_factory=Counter)
    published: int = 0
    barriers: Counter[int] = field(default_factory=Counter)
    """PUB messages by the number of their direct dependencies."""
    delays: Counter[int] = field(default_factory=Counter)
    """Deliveries by t_d: how long they waited for causal order."""
    finished_at: int = 0


class Network:
    """A cube of nodes."""

    def __init__(
        self,
        nodes: int,
        delays: Delays,
        *,
        acks_queue: bool = False,
        serial: bool = False,
        waits: bool = True,
        checks: bool = True,
        combine_max: int = 1,
        on_deliver: Callable[[int, Message], None] | None = None,
        on_receive: Callable[[int, Message], None] | None = None,
    ) -> None:
        self.queues = Transmitters(nodes, delays, combine_max=combine_max)
        self.tally = Tally()
        self.now = 0
        self._acks_queue = acks_queue
        self._handled_at = [-delays.processing] * nodes if serial else None
        """When each node last handled a message, where it handles one after another."""
        self._on_deliver = on_deliver
        self._on_receive = on_receive
        self._called_at: dict[tuple[int, int], int] = {}
        self._received_at: dict[tuple[int, int, int], int] = {}
        self._calendar: Calendar[Act | tuple[int, int, Message]] = Calendar()
        dimension = dimension_of(nodes)
        self.nodes = [
            VCubeNode(node, dimension, self._delivered, waits=waits, checks=checks)
            for node in range(nodes)
        ]

    @classmethod
    def of(
        cls,
        setting: Setting,
        *,
        on_deliver: Callable[[int, Message], None] | None = None,
        on_receive: Callable[[int, Message], None] | None = None,
    ) -> Network:
        """The network that an experiment asks for."""
        return cls(
            setting.nodes,
            setting.delays,
            acks_queue=setting.acks_queue,
            serial=setting.serial,
            waits=setting.waits,
            combine_max=setting.combine_max,
            on_deliver=on_deliver,
            on_receive=on_receive,
        )

    def begin_with(self, topic: int, members: Iterable[int], *, shared: bool = False) -> None:
        """Let all members know each other from the start.

        Where nobody will come or go, one view can serve all of them.
        """
        view = View(len(self.nodes), members)
        for member in view:
            self.nodes[member].begin_with(topic, view if shared else view.copy())

    def at(self, when: int, act: Act) -> None:
        """Let a user do something."""
        self._calendar.add(when, act)

    def publish_at(self, when: int, node: int, topic: int) -> None:
        """Let a user call PUBLISH then."""
        self.at(when, lambda _: self.publish(node, topic))

    def publish(self, node: int, topic: int) -> bool:
        """Call PUBLISH, now."""
        counter = self.nodes[node].counter
        self._called_at[node, counter] = self.now
        return self._act(node, self.nodes[node].publish(topic))

    def subscribe(self, node: int, topic: int) -> bool:
        """Call SUBSCRIBE, now."""
        return self._act(node, self.nodes[node].subscribe(topic))

    def unsubscribe(self, node: int, topic: int) -> bool:
        """Call UNSUBSCRIBE, now."""
        return self._act(node, self.nodes[node].unsubscribe(topic))

    def run(self) -> Tally:
        """Go on until nothing is on its way."""
        nodes, tally, called_at = self.nodes, self.tally, self._called_at
        handled_at, processing = self._handled_at, self.queues.delays.processing
        pub = Kind.PUB
        for now, day in self._calendar:
            self.now = now
            for what in day:
                if not isinstance(what, tuple):
                    what(now)
                    continue
                to, sender, message = what
                if handled_at is not None:
                    free_at = handled_at[to] + processing
                    if free_at > now:
                        self._calendar.add(free_at, what)
                        continue
                    handled_at[to] = now
                node = nodes[to]
                if message.kind is pub:
                    tally.finished_at = now
                    if node.is_subscribed(message.topic):
                        tally.receptions += 1
                        tally.latency += now - called_at[message.source, message.counter]
                        self._received_at[to, message.source, message.counter] = now
                        if self._on_receive is not None:
                            self._on_receive(to, message)
                    else:
                        tally.false_positives += 1
                sends = node.receive(message, sender)
                if sends:
                    self._send(to, sends)
        return tally

    def held(self) -> int:
        """Messages that were received and that wait for others, still."""
        return sum(len(state.held) for node in self.nodes for state in node.topics.values())

    def _act(self, node: int, sends: Sends | None) -> bool:
        if sends is None:
            return False
        self._send(node, sends)
        return True

    def _send(self, node: int, sends: Sends) -> None:
        queues, now = self.queues, self.now
        for to, message in sends:
            self.tally.sent[message.kind] += 1
            if message.kind is Kind.ACK and not self._acks_queue:
                arrival = now + queues.delays.hop
            else:
                arrival = queues.send(node, to, now)
            self._calendar.add(arrival, (to, node, message))

    def _delivered(self, node: int, message: Message) -> None:
        if node == message.source:
            self.tally.published += 1
            self.tally.barriers[len(message.barrier)] += 1
        else:
            received = self._received_at.pop((node, message.source, message.counter))
            self.tally.delays[self.now - received] += 1
        if self._on_deliver is not None:
            self._on_deliver(node, message)
