"""One node of VCube-PS: algorithms 1 and 2, line by line, without time (section 3.3).

Line numbers are those of algorithm 2 unless said otherwise. A node takes a call of its user or a
message, and returns what is to be sent. It waits for nothing: what the paper writes as a task that
blocks goes on when the acknowledgement that it waited for is there.

Two switches are not the paper's: a publisher may go on without waiting for all acknowledgements
(`waits`), and the check of the causal barrier can be left out (`checks`), to see that tests notice.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from pulsarcast.simulation.vcube.topology import children, cluster_of
from pulsarcast.simulation.vcube.views import View


class Kind(enum.IntEnum):
    """Types of messages."""

    SUB = 0
    UNS = 1
    PUB = 2
    ACK = 3


MessageId: TypeAlias = tuple[int, int]
"""(s, c): source and counter."""


@dataclass(slots=True, eq=False)
class Message:
    """What nodes send; all copies of it are this one object."""

    kind: Kind
    source: int
    topic: int
    counter: int
    barrier: frozenset[MessageId] = frozenset()
    """Of a PUB: its direct causal dependencies."""
    members: tuple[tuple[int, int], ...] = ()
    """Of an ACK: subscribers that answered, with the counters of their subscriptions."""


Sends: TypeAlias = list[tuple[int, Message]]


@dataclass(slots=True)
class _Pending:
    """An element of `acks`: whom to tell once that many have answered."""

    parent: int | None
    missing: int
    leaving: bool = False
    """Whether it is our own UNS."""
    members: list[tuple[int, int]] = field(default_factory=list)


@dataclass(slots=True)
class TopicState:
    """What a node keeps of one topic."""

    view: View
    queue: deque[Message] = field(default_factory=deque)
    """br_queue[t]."""
    barrier: set[MessageId] = field(default_factory=set)
    """causal_barrier[t]."""
    held: dict[MessageId, Message] = field(default_factory=dict)
    """not_delvs[t] and msgs: received, and not delivered yet."""
    last_delivered: dict[int, int] = field(default_factory=dict)
    """last_delvs[t]."""
    first_received: dict[int, int] = field(default_factory=dict)
    """first_rec[t]."""
    waiting_for: int | None = None
    """The counter of our own message whose acknowledgements are not all here yet."""


class VCubeNode:
    """Node i."""

    def __init__(
        self,
        node: int,
        dimension: int,
        deliver: Callable[[int, Message], None],
        *,
        waits: bool = True,
        checks: bool = True,
        started: Callable[[Message], None] | None = None,
    ) -> None:
        self.node = node
        self.dimension = dimension
        self.counter = 0
        self.topics: dict[int, TopicState] = {}
        self.acks: dict[tuple[int, int, int], _Pending] = {}
        self._deliver = deliver
        self._started = started
        self._waits = waits
        self._checks = checks

    def begin_with(self, topic: int, view: View) -> None:
        """Know a topic's members from the start; ours was our first operation, then."""
        self.topics[topic] = TopicState(view)
        self.counter = max(self.counter, 1)

    def is_subscribed(self, topic: int) -> bool:
        """Whether (i, SUB, _) is in view[t]."""
        state = self.topics.get(topic)
        return state is not None and self.node in state.view

    # Algorithm 1.

    def subscribe(self, topic: int) -> Sends | None:
        """SUBSCRIBE; None is the paper's NOK."""
        state = self._state(topic)
        if self.node in state.view:
            return None
        state.view.clear()
        state.view.update(self.node, subscribed=True, counter=self.counter)
        return self._broadcast(Kind.SUB, topic)

    def unsubscribe(self, topic: int) -> Sends | None:
        """UNSUBSCRIBE; None is the paper's NOK."""
        state = self._state(topic)
        if self.node not in state.view:
            return None
        state.view.discard(self.node)
        return self._broadcast(Kind.UNS, topic)

    def publish(self, topic: int) -> Sends | None:
        """PUBLISH, for subscribers only; None is the paper's NOK."""
        if not self.is_subscribed(topic):
            return None
        return self._broadcast(Kind.PUB, topic)

    # Algorithm 2.

    def _broadcast(self, kind: Kind, topic: int) -> Sends:
        """CO_BROADCAST (lines 5-12)."""
        state = self.topics[topic]
        state.queue.append(Message(kind, self.node, topic, self.counter))
        self.counter += 1
        return self._propagate(topic, state)

    def _propagate(self, topic: int, state: TopicState) -> Sends:
        """START_MSG_PROPAGATION (lines 13-36), as far as it gets without having to wait."""
        sends: Sends = []
        while state.queue and (state.waiting_for is None or not self._waits):
            message = state.queue.popleft()
            if message.kind is Kind.PUB:
                state.first_received.setdefault(self.node, message.counter)
                state.last_delivered[self.node] = message.counter
                message.barrier = frozenset(state.barrier)
                state.barrier = {(self.node, message.counter)}
                self._deliver(self.node, message)
            if self._started is not None:
                self._started(message)
            kids = self._children(message.kind, state, self.dimension)
            sends.extend((kid, message) for kid in kids)
            if kids:
                pending = _Pending(None, len(kids), leaving=message.kind is Kind.UNS)
                self.acks[self.node, topic, message.counter] = pending
                state.waiting_for = message.counter
            elif message.kind is Kind.UNS:
                self._forget(state)
        return sends

    def _forget(self, state: TopicState) -> None:
        """Lines 32-36: after our UNS has been acknowledged."""
        state.held.clear()
        state.first_received.clear()
        state.last_delivered.clear()

    def receive(self, message: Message, sender: int) -> Sends:
        """HANDLE_RECEIVED_MSG (lines 37-74)."""
        state = self._state(message.topic)
        if message.kind is Kind.ACK:
            return self._take_ack(message, state)
        kids = self._children(message.kind, state, cluster_of(self.node, sender) - 1)
        if kids:
            key = (message.source, message.topic, message.counter)
            self.acks[key] = _Pending(sender, len(kids))
            sends = [(kid, message) for kid in kids]
        else:
            sends = [(sender, self._ack(message, state, []))]
        if self.node not in state.view:
            return sends  # line 62: a forwarder, for a while
        if message.kind is Kind.PUB:
            is_first = message.source not in state.first_received
            if is_first:
                state.first_received[message.source] = message.counter
            state.held[message.source, message.counter] = message
            # A first message tells that earlier ones never come, which may free others.
            if is_first or not self._checks or self._is_satisfied(message.barrier, state):
                self._check_delivery(state)
        else:
            subscribed = message.kind is Kind.SUB
            state.view.update(message.source, subscribed=subscribed, counter=message.counter)
            if not subscribed:
                state.first_received.pop(message.source, None)
        return sends

    def _take_ack(self, ack: Message, state: TopicState) -> Sends:
        """Lines 54-61, and 69-70."""
        key = (ack.source, ack.topic, ack.counter)
        pending = self.acks[key]
        pending.members.extend(ack.members)
        if self.node in state.view:
            state.view.welcome(ack.members)
        pending.missing -= 1
        if pending.missing:
            return []
        del self.acks[key]
        if pending.parent is not None:
            return [(pending.parent, self._ack(ack, state, pending.members))]
        # Ours: the task that waited in line 31 goes on.
        if state.waiting_for == ack.counter:
            state.waiting_for = None
        if pending.leaving:
            self._forget(state)
        return self._propagate(ack.topic, state)

    def _ack(self, message: Message, state: TopicState, members: list[tuple[int, int]]) -> Message:
        """SENDACKS (lines 95-98): we say that we are here to whom we have not heard of."""
        if self.node in state.view and message.source not in state.first_received:
            members = [*members, (self.node, state.view.counter_of(self.node))]
        return Message(
            Kind.ACK, message.source, message.topic, message.counter, members=tuple(members)
        )

    def _check_delivery(self, state: TopicState) -> None:
        """CHECKDELIVERY (lines 83-89): every delivery may let others follow."""
        progress = True
        while progress:
            progress = False
            for key, message in list(state.held.items()):
                if self._checks and not self._is_satisfied(message.barrier, state):
                    continue
                del state.held[key]
                state.last_delivered[message.source] = message.counter
                state.barrier -= message.barrier
                state.barrier.add(key)
                self._deliver(self.node, message)
                progress = True

    def _is_satisfied(self, barrier: frozenset[MessageId], state: TopicState) -> bool:
        """CHECKCB (lines 90-94): each dependency was delivered here, or will never come."""
        delivered, first = state.last_delivered, state.first_received
        for source, counter in barrier:
            if delivered.get(source, -1) < counter and first.get(source, -1) <= counter:
                return False
        return True

    def _children(self, kind: Kind, state: TopicState, height: int) -> list[int]:
        """A SUB goes to all nodes, anything else to subscribers as we know them."""
        if kind is Kind.SUB:
            return children(self.node, None, height)
        return state.view.children(self.node, height)

    def _state(self, topic: int) -> TopicState:
        state = self.topics.get(topic)
        if state is None:
            state = self.topics[topic] = TopicState(View(1 << self.dimension))
        return state
