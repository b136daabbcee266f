"""Solo: one real node between scripted peers. The test is its network, its disk and its clock."""

import heapq
from collections.abc import Callable, Iterable
from random import Random
from typing import TypeVar

from pulsarcast.model import trace
from pulsarcast.model.events import EventDescriptor
from pulsarcast.model.identity import Identity
from pulsarcast.model.ids import Cid, PeerId, cid_of
from pulsarcast.model.reach import Reach
from pulsarcast.model.topics import TopicDescriptor, TopicSettings
from pulsarcast.protocol.effects import Deliver, Effect, Load, Persist, Reply, Send, SetTimer, Trace
from pulsarcast.protocol.inputs import (
    Command,
    CreateTopic,
    Input,
    Loaded,
    MessageReceived,
    Now,
    PeerUp,
    Persisted,
    Publish,
    Start,
    Subscribe,
    TimerFired,
)
from pulsarcast.protocol.liveness import ANSWER, ASK
from pulsarcast.protocol.messages import (
    BlockFound,
    CompareKeys,
    Contact,
    FindBlock,
    FindPeers,
    FindPointer,
    Join,
    JoinAccepted,
    KeysDiffer,
    Message,
    PartHash,
    Peers,
    PointerFound,
    StartParts,
    StoreBlocks,
    Stored,
    StorePointer,
)
from pulsarcast.protocol.node import Node
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.store import MarkState
from pulsarcast.protocol.topic.frontier import Frontier
from pulsarcast.protocol.topic.topic import Topic
from pulsarcast.storage.memory import MemoryStore
from tests.support.people import CREATED_US, identity, unordered

EMPTY_DIGEST = bytes(16)
STEPS_MAX = 1_000_000

MessageT = TypeVar("MessageT")
Answerer = Callable[[Message], Iterable[Message]]


class Solo:
    """A node and everything that it was asked to do."""

    def __init__(
        self,
        who: str = "victim",
        *,
        parameters: Parameters | None = None,
        contacts: Iterable[PeerId] = (),
        store: MemoryStore | None = None,
        seed: int = 1,
        keep_effects: bool = True,
    ) -> None:
        self.identity: Identity = identity(who)
        self.me: PeerId = self.identity.peer_id
        self.parameters = Parameters() if parameters is None else parameters
        self.store = MemoryStore() if store is None else store
        self.node = Node(self.identity, Random(seed), self.parameters)
        self.now_s = 0.0
        self.sent: list[tuple[PeerId, Message]] = []
        self.delivered: list[EventDescriptor] = []
        self.records: list[trace.Record] = []
        self.replies: dict[int, Reply] = {}
        self.peers: dict[PeerId, Answerer] = {}
        """Peers that answer by themselves."""
        self._keep_effects = keep_effects
        self._timers: list[tuple[float, int]] = []
        self._calls = 0
        self._named = 0
        known = tuple(Contact(peer) for peer in contacts)
        rows, marks, logs = self.store.rows(), self.store.marks(), self.store.logs()
        self._contacts = known
        self._start = Start(rows, marks, logs, known, Reach.PUBLIC)

    def start(self) -> "Solo":
        """Begin, once the peers are in place."""
        for contact in self._contacts:
            self.give(PeerUp(contact, reach=Reach.PUBLIC))
        self.give(self._start)
        return self

    # Driving.

    def give(self, given: Input) -> list[Effect]:
        """Hand the node an input, and carry out what it asks, disk and scripted peers included."""
        effects = self.node.handle(given, self._read_clock())
        todo = list(effects)
        for _ in range(STEPS_MAX):
            if not todo:
                return effects
            inputs = self._carry_out(todo.pop(0))
            for each in inputs:
                todo.extend(self.node.handle(each, self._read_clock()))
        raise AssertionError("the node never comes to rest")

    def _read_clock(self) -> Now:
        return Now(self.now_s, CREATED_US + int(self.now_s * 1e6))

    def _carry_out(self, effect: Effect) -> list[Input]:
        match effect:
            case Send(peer, message):
                return self._send(peer, message)
            case Persist(token, writes):
                return [Persisted(token, self.store.apply(writes))]
            case Load(token, query):
                return [Loaded(token, self.store.answer(query))]
            case SetTimer(timer, delay_s):
                heapq.heappush(self._timers, (self.now_s + delay_s, timer))
            case Deliver(event, record):
                if self._keep_effects:
                    self.delivered.append(event)
                    self.records.append(record)
            case Trace(record):
                if self._keep_effects:
                    self.records.append(record)
            case Reply(call):
                self.replies[call] = effect
            case _:
                pass
        return []

    def _send(self, peer: PeerId, message: Message) -> list[Input]:
        assert peer != self.me, f"a node sends itself a {type(message).__name__}"
        if self._keep_effects and message != ASK:
            self.sent.append((peer, message))
        answerer = self.peers.get(peer)
        if answerer is None:
            return []
        if message == ASK:
            return [MessageReceived(peer, ANSWER)]
        return [MessageReceived(peer, answer) for answer in answerer(message)]

    def hear(self, sender: PeerId, *messages: Message) -> None:
        """Let a peer say something."""
        for message in messages:
            self.give(MessageReceived(sender, message))

    def advance(self, seconds: float) -> None:
        """Let time pass, timers and all."""
        until = self.now_s + seconds
        for _ in range(STEPS_MAX):
            if not self._timers or self._timers[0][0] > until:
                self.now_s = until
                return
            due_s, timer = heapq.heappop(self._timers)
            self.now_s = max(self.now_s, due_s)
            self.give(TimerFired(timer))
        raise AssertionError("timers never end")

    def ask(self, make: Callable[[int], Command], *, patience_s: float = 60.0) -> Reply:
        """Give a command, and let time pass until it is answered."""
        self._calls += 1
        call = self._calls
        self.give(make(call))
        waited_s = 0.0
        while call not in self.replies and waited_s < patience_s:
            self.advance(0.5)
            waited_s += 0.5
        assert call in self.replies, "no answer to a command"
        return self.replies[call]

    # Short ways.

    def create(self, settings: TopicSettings | None = None, *, name: str | None = None) -> Cid:
        """Create a topic of our own; one without a name gets one that is free."""
        chosen = unordered() if settings is None else settings
        if name is None:
            self._named += 1
            name = "news" if self._named == 1 else f"news {self._named}"
        reply = self.ask(lambda call: CreateTopic(call, name, chosen))
        assert reply.cid is not None, reply.refusal
        return reply.cid

    def subscribe(self, topic: Cid, *, from_start: bool = False) -> None:
        """Subscribe, with whatever the scripted peers answer."""
        reply = self.ask(lambda call: Subscribe(call, topic, from_start=from_start))
        assert reply.refusal is None, reply.refusal

    def publish(self, topic: Cid, payload: bytes = b"hello") -> Cid:
        """Publish an event of our own."""
        reply = self.ask(lambda call: Publish(call, topic, payload))
        assert reply.cid is not None, reply.refusal
        return reply.cid

    def topic(self, cid: Cid) -> Topic:
        """A topic that the node follows."""
        return self.node.topics[cid]

    def version(self, cid: Cid) -> TopicDescriptor:
        """The newest version that the node knows of a topic."""
        return self.topic(cid).descriptor

    def sent_to(self, peer: PeerId, kind: type[MessageT]) -> list[MessageT]:
        """Messages of a kind that the node sent to a peer."""
        return [message for to, message in self.sent if to == peer and isinstance(message, kind)]

    def said(self, kind: type[MessageT]) -> list[MessageT]:
        """Messages of a kind that the node sent to anybody."""
        return [message for _, message in self.sent if isinstance(message, kind)]

    def reasons(self) -> list[str]:
        """Why things that peers sent were not taken."""
        return [record.reason for record in self.records if isinstance(record, trace.Rejected)]

    def cids(self) -> list[Cid]:
        """What was delivered, in order."""
        return [event.cid for event in self.delivered]


class Parent:
    """A scripted peer: it keeps blocks, takes joiners in, and tells them where to start."""

    def __init__(
        self,
        who: str,
        blocks: Iterable[bytes] = (),
        *,
        marks: Iterable[MarkState] = (),
        takes_in: bool = True,
    ) -> None:
        self.peer = identity(who).peer_id
        self.blocks: dict[Cid, bytes] = {cid_of(block): block for block in blocks}
        self.marks = tuple(marks)
        self.takes_in = takes_in
        self.path: tuple[PeerId, ...] = (self.peer,)
        self.joins: list[Join] = []

    def __call__(self, message: Message) -> list[Message]:
        """Answer as an honest peer would."""
        match message:
            case FindPeers(request, _):
                return [Peers(request, ())]
            case FindBlock(request, cid):
                return [BlockFound(request, self.blocks.get(cid), ())]
            case FindPointer(request, _):
                return [PointerFound(request, (), ())]
            case StoreBlocks(request, blocks):
                return [Stored(request, tuple(cid_of(block) for block in blocks))]
            case StorePointer(request, (pointer, *_)):
                return [Stored(request, (cid_of(pointer),))]
            case CompareKeys(request, first, last, count, digest):
                return [KeysDiffer(request, first, last, (), ((first, last, count, digest),))]
            case Join(topic, attempt):
                self.joins.append(message)
                if not self.takes_in:
                    return []
                accepted = JoinAccepted(topic, attempt, self.path, (), EMPTY_DIGEST)
                return [accepted, start_at(topic, self.marks)] if message.fresh else [accepted]
            case _:
                return []


def start_at(topic: Cid, marks: Iterable[MarkState] = ()) -> StartParts:
    """What lets a newcomer start at these marks."""
    marks = tuple(marks)
    root = Frontier(marks).digest()
    return StartParts(topic, root, (PartHash(b"", root),), (), marks)


def below(parent: Parent, *, parameters: Parameters | None = None, who: str = "victim") -> Solo:
    """A node whose only contact is a scripted parent."""
    solo = Solo(who, parameters=parameters, contacts=(parent.peer,))
    solo.peers[parent.peer] = parent
    return solo.start()
