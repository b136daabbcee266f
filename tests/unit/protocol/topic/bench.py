"""A bench for the parts of a topic: a real state, and the two sides around it played by a test."""

from collections.abc import Iterable
from random import Random
from typing import cast

from pulsarcast.model.events import EventDescriptor
from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.model.topics import TopicDescriptor
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.dissemination.heartbeat_timer import HeartbeatTimer
from pulsarcast.protocol.dissemination.overlay import Conversation, Link, Overlay
from pulsarcast.protocol.effects import Effect, Persist, Send
from pulsarcast.protocol.messages import EventMessage, Message
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.store import AnyWrite
from pulsarcast.protocol.topic.frontier import Frontier
from pulsarcast.protocol.topic.log import TopicLog
from pulsarcast.protocol.topic.sharing import Sharing
from pulsarcast.protocol.topic.state import TopicState
from pulsarcast.protocol.topic.versions import Versions
from pulsarcast.protocol.turn import Turn
from tests.support.people import BOB


class Members:
    """Plays the overlay and its heartbeats, as far as the parts of a topic ask them."""

    def __init__(
        self,
        *,
        parent: PeerId | None = None,
        lazy: Iterable[PeerId] = (),
        known: Iterable[PeerId] = (),
    ) -> None:
        self.upstream = parent
        self.lazy = dict.fromkeys(lazy)
        self.known = list(known)
        self.links: dict[PeerId, Link] = {}
        self.round_trip_s = 0.0
        self.forwarded: list[EventMessage] = []
        self.strangers: list[PeerId] = []
        self.narrowed = 0
        self.overlay = cast("Overlay", self)
        self.heartbeat = cast("Conversation", self)
        self.timer = cast("HeartbeatTimer", self)

    def add_neighbour(self, peer: PeerId) -> Link:
        link = self.links[peer] = Link(0, 0.0)
        return link

    def members(self) -> list[PeerId]:
        return self.known

    def first_to_hear(self, count: int, source: PeerId | None = None) -> tuple[PeerId, ...]:
        return tuple(peer for peer in self.links if peer != source)[:count]

    def forward(
        self, message: EventMessage, *, source: PeerId | None, via_overlay: bool = True
    ) -> None:
        self.forwarded.append(message)

    def serve_fewer(self) -> None:
        self.narrowed += 1

    def receive_from_stranger(self, sender: PeerId) -> None:
        self.strangers.append(sender)

    def hurry(self) -> None:
        """Nothing beats here."""


class Owner:
    """Plays the topic for those of its parts that timers or the disk wake."""

    def __init__(self) -> None:
        self.arrivals: list[Cid] = []
        self.wanted: list[tuple[Cid, PeerId]] = []
        self.twice: list[Cid] = []

    def arrived(self, event: EventDescriptor) -> None:
        self.arrivals.append(event.cid)

    def began(self, publisher: PeerId, epoch: int) -> None:
        """Nobody follows."""

    def want_version(self, version: Cid, sender: PeerId) -> None:
        self.wanted.append((version, sender))

    def saw_own_number_twice(self, event: EventDescriptor) -> None:
        self.twice.append(event.cid)


class Bench:
    """The state of a topic that BOB follows from its beginning."""

    def __init__(
        self,
        topic: TopicDescriptor,
        *,
        members: Members | None = None,
        parameters: Parameters | None = None,
    ) -> None:
        self.turn = Turn(BOB, Random(1))
        self.context = Context(self.turn, Parameters() if parameters is None else parameters)
        self.log = TopicLog(topic.cid, self.turn, None, subscribed=True)
        self.frontier = Frontier()
        self.state = TopicState(self.context, Versions(topic), self.log, self.frontier)
        self.members = Members() if members is None else members
        self.owner = Owner()

    @property
    def unsynced_bytes(self) -> int:
        """Bytes of events on their way to the disk."""
        return self.log.unsynced_bytes

    def compare(self, peer: PeerId) -> None:
        """Show a peer what the member holds."""
        Sharing(self.state).compare(peer)

    def effects(self) -> list[Effect]:
        """What was wanted since the last look."""
        effects, self.turn.effects = self.turn.effects, []
        return effects

    def sent(self) -> list[tuple[PeerId, Message]]:
        """What was sent since the last look."""
        return [(each.peer, each.message) for each in self.effects() if isinstance(each, Send)]

    def sync(self) -> list[AnyWrite]:
        """The disk has written everything; returns what."""
        persists = [each for each in self.effects() if isinstance(each, Persist)]
        for each in persists:
            self.turn.persisted(each.token)
        return [write for each in persists for write in each.writes]
