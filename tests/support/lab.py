"""A lab: a small simulated network with a tap on every node, for tests that ask what happened."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from pulsarcast.model import trace
from pulsarcast.model.events import EventDescriptor, decode_event
from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.model.reach import Reach
from pulsarcast.model.topics import TopicDescriptor, TopicSettings, decode_topic
from pulsarcast.protocol.dissemination.overlay import TreeView
from pulsarcast.protocol.effects import Effect, Reply, Send
from pulsarcast.protocol.inputs import (
    Command,
    CreateTopic,
    FetchBlock,
    Input,
    MessageReceived,
    Now,
    Publish,
    Subscribe,
    Unsubscribe,
    UpdateTopic,
)
from pulsarcast.protocol.messages import Message
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.store import Block, Events, LoadBlock, LoadLog
from pulsarcast.simulation.links import Constant
from pulsarcast.simulation.places import Place
from pulsarcast.simulation.process import Core
from pulsarcast.simulation.world import Seat, World, make_node
from tests.support.people import unordered

LATENCY_S = 0.02
STEP_S = 0.05
NO_SUBTOPICS: Mapping[str, Cid] = {}

RecordT = TypeVar("RecordT", bound=trace.Record)
MessageT = TypeVar("MessageT")


class Said(NamedTuple):
    """A message that left a node."""

    time_s: float
    sender: int
    receiver: PeerId
    message: Message


class Taken(NamedTuple):
    """One turn of a node: what came, and what it made of it."""

    time_s: float
    node: int
    given: Input
    effects: list[Effect]


class Seen(NamedTuple):
    """A trace record of a node."""

    time_s: float
    node: int
    record: trace.Record


class Puppet:
    """A hostile node: it says what it is told to, and answers as its `answer` does."""

    reach = Reach.PUBLIC

    def __init__(self, seat: Seat) -> None:
        self.identity = seat.identity
        self.peer: PeerId = seat.identity.peer_id
        self.heard: list[tuple[PeerId, Message]] = []
        self.answer: Callable[[PeerId, Message], Iterable[tuple[PeerId, Message]]] | None = None
        self.to_say: list[Effect] = []

    def handle(self, given: Input, now: Now) -> list[Effect]:
        """Remember what is said; say what there is to say."""
        effects, self.to_say = self.to_say, []
        if isinstance(given, MessageReceived):
            self.heard.append((given.sender, given.message))
            if self.answer is not None:
                answers = self.answer(given.sender, given.message)
                effects.extend(Send(peer, message) for peer, message in answers)
        return effects


class Lab:
    """Nodes that know each other, and all that they did."""

    def __init__(
        self,
        count: int,
        *,
        seed: int = 1,
        parameters: Parameters | None = None,
        puppets: Iterable[int] = (),
        through_wire: bool = False,
        settle_s: float = 10.0,
        latency_s: float = LATENCY_S,
        places: Sequence[Place] = (),
        relays: bool = False,
    ) -> None:
        self.seen: list[Seen] = []
        self.taken: list[Taken] = []
        self.said: list[Said] = []
        self.puppets: dict[int, Puppet] = {}
        self._puppets = tuple(puppets)
        self._named = 0
        self.world = World(
            seed,
            links=Constant(latency_s),
            parameters=parameters,
            through_wire=through_wire,
            observer=self,
            prepare=self._tap,
            make_node=self._make,
            relays=relays,
        )
        for index in range(count):
            contacts = [other for other in {0, index // 2} if other < index]
            if places:
                here = places[index]
                contacts = [each for each in contacts if places[each].can_be_dialled_from(here)]
            self.world.add_node(contacts=contacts, place=places[index] if places else None)
        self.run(settle_s)

    # Watching.

    def record(
        self, time_s: float, index: int, incarnation: int, now: Now, record: trace.Record
    ) -> None:
        """Take one record of one node."""
        self.seen.append(Seen(time_s, index, record))

    def _make(self, seat: Seat) -> Core:
        if seat.index in self._puppets:
            self.puppets[seat.index] = puppet = Puppet(seat)
            return puppet
        return make_node(seat)

    def _tap(self, core: Any) -> None:
        if isinstance(core, Puppet):
            return
        handle = core.handle
        peer: PeerId = core.turn.me

        def tapped(given: Input, now: Now) -> list[Effect]:
            effects: list[Effect] = handle(given, now)
            index, time_s = self.world.index_of(peer), self.world.now
            self.taken.append(Taken(time_s, index, given, effects))
            for effect in effects:
                if isinstance(effect, Send):
                    self.said.append(Said(time_s, index, effect.peer, effect.message))
            return effects

        core.handle = tapped

    def records(self, kind: type[RecordT], index: int | None = None) -> list[RecordT]:
        """All records of a kind, of one node or of all."""
        return [
            seen.record
            for seen in self.seen
            if isinstance(seen.record, kind) and index in (None, seen.node)
        ]

    def messages(self, kind: type[MessageT], sender: int | None = None) -> list[MessageT]:
        """All messages of a kind that left, from one node or from any."""
        return [
            said.message
            for said in self.said
            if isinstance(said.message, kind) and sender in (None, said.sender)
        ]

    def delivered(self, index: int, topic: Cid) -> list[Cid]:
        """What a node handed to its application, in order, redeliveries included."""
        return [
            record.event for record in self.records(trace.Delivered, index) if record.topic == topic
        ]

    def reasons(self, index: int | None = None) -> list[str]:
        """Why things that peers sent were not taken."""
        return [record.reason for record in self.records(trace.Rejected, index)]

    # Acting.

    def run(self, seconds: float) -> None:
        """Let time pass."""
        self.world.run(self.world.now + seconds)

    def peer(self, index: int) -> PeerId:
        """Who a node is."""
        return self.world.peer(index)

    def view(self, index: int, topic: Cid) -> TreeView:
        """A node's place in a tree."""
        view: TreeView = self.world.node(index).trees()[topic]
        return view

    def ask(
        self, index: int, make: Callable[[int], Command], *, patience_s: float = 120.0
    ) -> Reply:
        """Give a node a command and wait for its answer, good or bad."""
        replies = self.start(index, make)
        in_time = self.world.run_until(
            lambda: bool(replies), self.world.now + patience_s, check_every_s=STEP_S
        )
        assert in_time, f"node {index} did not answer within {patience_s} s"
        return replies[0]

    def start(self, index: int, make: Callable[[int], Command]) -> list[Reply]:
        """Give a node a command and do not wait; the list gets its answer."""
        replies: list[Reply] = []
        self.world.command(index, make, replies.append)
        return replies

    def create(
        self,
        index: int,
        settings: TopicSettings | None = None,
        *,
        name: str | None = None,
        subtopics: Mapping[str, Cid] = NO_SUBTOPICS,
    ) -> Cid:
        """Have a node create a topic; one without a name gets one that is free."""
        chosen = unordered() if settings is None else settings
        if name is None:
            self._named += 1
            name = "news" if self._named == 1 else f"news {self._named}"
        reply = self.ask(index, lambda call: CreateTopic(call, name, chosen, dict(subtopics)))
        assert reply.refusal is None, reply.refusal
        assert reply.cid is not None
        return reply.cid

    def update(
        self,
        index: int,
        topic: Cid,
        settings: TopicSettings,
        *,
        subtopics: dict[str, Cid] | None = None,
        flush: bool = False,
    ) -> Reply:
        """Have a topic's author publish a new version."""
        reply = self.ask(
            index, lambda call: UpdateTopic(call, topic, settings, subtopics, flush=flush)
        )
        assert reply.refusal is None, reply.refusal
        return reply

    def subscribe(
        self, indices: Sequence[int], topic: Cid, *, below: bool = False, from_start: bool = False
    ) -> None:
        """Have nodes subscribe, one after the other."""
        for index in indices:
            reply = self.ask(
                index,
                lambda call: Subscribe(call, topic, below=below, from_start=from_start),
            )
            assert reply.refusal is None, reply.refusal

    def unsubscribe(self, index: int, topic: Cid) -> None:
        """Have a node unsubscribe."""
        reply = self.ask(index, lambda call: Unsubscribe(call, topic))
        assert reply.refusal is None, reply.refusal

    def publish(
        self,
        index: int,
        topic: Cid,
        payload: bytes = b"hello",
        *,
        parents: tuple[Cid, ...] = (),
        replicated: bool = True,
        settle_s: float = 1.0,
    ) -> Cid:
        """Have a node publish, or request to, and let the event spread."""
        reply = self.ask(
            index,
            lambda call: Publish(call, topic, payload, parents=parents, replicated=replicated),
        )
        assert reply.refusal is None, reply.refusal
        assert reply.cid is not None
        self.run(settle_s)
        return reply.cid

    def say(self, index: int, peer: PeerId, *messages: Message, settle_s: float = 1.0) -> None:
        """Have a puppet say something to a peer, and let it be heard."""
        puppet = self.puppets[index]
        puppet.to_say.extend(Send(peer, message) for message in messages)
        # Any command does: a puppet says what it has to say whatever it is asked.
        self.start(index, lambda call: FetchBlock(call, Cid(b"")))
        self.run(settle_s)

    # Looking.

    def block(self, cid: Cid) -> bytes:
        """A block from any disk."""
        for index in range(self.world.size):
            answer = self.world.store(index).answer(LoadBlock(cid))
            assert isinstance(answer, Block)
            if answer.block is not None:
                return answer.block
        raise AssertionError("no disk has this block")

    def event(self, cid: Cid) -> EventDescriptor:
        """An event, from any disk."""
        return decode_event(self.block(cid))

    def topic(self, cid: Cid) -> TopicDescriptor:
        """A version of a topic, from any disk's replicas."""
        return decode_topic(self.block(cid))

    def log(self, index: int, topic: Cid) -> list[EventDescriptor]:
        """What a node's disk holds of a topic, in the order of its own log."""
        answer = self.world.store(index).answer(LoadLog(topic, 1, 1_000_000))
        assert isinstance(answer, Events)
        return [event for _, event in answer.events]
