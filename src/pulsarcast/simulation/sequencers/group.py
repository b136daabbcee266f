"""A group of sequencers, their network, their disks, and what is done to them.

Messages are late, lost, doubled and out of order. A disk takes its time, and a kill loses what was
not synced. Histories, which in a node come with the topic, spread by themselves between those who
can talk.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from hashlib import blake2b, sha256
from random import Random
from typing import Any

from pulsarcast.model import trace
from pulsarcast.model.errors import RemoteError
from pulsarcast.model.ids import PEER_ID_PREFIX, Cid, PeerId, cid_of
from pulsarcast.protocol.context import NO_PARTS, Context, Parts
from pulsarcast.protocol.effects import Effect, Persist, Send, SetTimer
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.sequencing.log import ENTRY, INDEX_BYTES, SNAPSHOT, Entry, Place, read_log
from pulsarcast.protocol.sequencing.messages import SequencerMessage
from pulsarcast.protocol.sequencing.sequencer import Sequencer
from pulsarcast.protocol.sequencing.state import STORE, VOTE, SequencerState, read_persistent_state
from pulsarcast.protocol.store import DropState, PutState, StateRow
from pulsarcast.protocol.turn import Turn
from pulsarcast.simulation.clocks import NodeClock
from pulsarcast.simulation.loop import Loop
from pulsarcast.simulation.sequencers.checkers import Checkers
from pulsarcast.simulation.sequencers.events import handover_of, make_event, version_cid, version_of
from pulsarcast.simulation.tracing import TraceWriter
from pulsarcast.wire.codec import size_of

TOPIC = cid_of(b"the topic")
HISTORY = "history"
SPREAD_S = 0.5
"""How often a member looks for history that another has."""


class Weather:
    """What the network and the disks are like."""

    def __init__(self, rng: Random) -> None:
        self.latency_s = 0.002 * 50.0 ** rng.random()
        self.sync_s = 0.001 * 30.0 ** rng.random()
        self.loss = rng.choice((0.0, 0.0, 0.01, 0.1))
        self.doubling = rng.choice((0.0, 0.02))


class _Key:
    """A key for `Turn`: signatures that cost nothing, since nobody lies here."""

    def __init__(self, peer: PeerId) -> None:
        self.peer_id = peer


def _signature(peer: PeerId, entry: Entry) -> bytes:
    place = f"{entry.term}/{entry.position}/".encode()
    return blake2b(place + entry.cid, key=peer[-32:], digest_size=8).digest()


class HeardVersions:
    """The versions of the topic that a sequencer has heard of, and the sequencers they name."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.number = 0

    def newest(self) -> Cid:
        """The newest version."""
        return version_cid(self.number)

    def _number_of(self, version: Cid | None) -> int | None:
        if version is None:
            return 0
        known = range(self.number + 1)
        return next((each for each in known if version_cid(each) == version), None)

    def named_by(self, version: Cid | None) -> tuple[PeerId, ...] | None:
        """Whom a version names."""
        number = self._number_of(version)
        return None if number is None else self.group.versions[number]

    def named_since(self, version: Cid | None) -> tuple[PeerId, ...]:
        """Everyone whom a version names, from one on."""
        first = self._number_of(version)
        known = () if first is None else self.group.versions[first : self.number + 1]
        return tuple(dict.fromkeys(peer for each in known for peer in each))

    def is_later(self, version: Cid, than: Cid | None) -> bool:
        """Whether one version comes after another."""
        one, other = self._number_of(version), self._number_of(than)
        return one is not None and other is not None and one > other


class Peer:
    """One sequencer: its disk, and its process while it has one."""

    def __init__(self, group: Group, index: int) -> None:
        self.group = group
        self.index = index
        self.id = PeerId(PEER_ID_PREFIX + sha256(b"sequencer %d" % index).digest())
        self.disk: dict[tuple[str, bytes], bytes] = {}
        self.life = 0
        self.starts = 0
        self.up = False
        self.paused = False
        self.wiped = False
        """Its store was lost, and its new one was not admitted yet."""
        self.versions = HeardVersions(group)
        self.seated = False
        """Whether it takes part: it is named as a sequencer, and was not replaced."""
        self.state: SequencerState
        self.sequencer: Sequencer
        self.history: dict[int, tuple[Cid, bytes]] = {}
        """By position: the event, and its request."""
        self.requests: dict[bytes, int] = {}
        self._held = 0
        self._synced: dict[int, None] = {}
        self._turn: Turn
        self._waiting: list[Callable[[], None]] = []
        self._writes: list[Persist] = []

    # A life.

    def start(self) -> None:
        """Begin a life with what is on the disk."""
        self.life += 1
        self.starts += 1
        self.up = True
        self.paused = False
        self._waiting = []
        self._writes = []
        rng = Random(f"{self.group.seed}/{self.index}/{self.life}")
        self._turn = Turn(_Key(self.id), rng)  # type: ignore[arg-type]
        rows = self.disk
        self.history = {
            int.from_bytes(key, "big"): (Cid(value[:36]), value[36:])
            for (table, key), value in sorted(rows.items())
            if table == HISTORY
        }
        self.requests = {request: position for position, (_, request) in self.history.items()}
        self._held = 0
        self._synced = dict.fromkeys(self.history)
        self._count_held()
        entries = {
            int.from_bytes(key[-INDEX_BYTES:], "big"): value
            for (table, key), value in rows.items()
            if table == ENTRY
        }
        context = Context(self._turn, self.group.parameters, parts=self.group.parts)
        context.counts = self.group.counts
        self.state = SequencerState(
            context,
            TOPIC,
            self.versions,
            self,
            saved=read_persistent_state(rows.get((STORE, TOPIC)), rows.get((VOTE, TOPIC))),
            log=read_log(entries, rows.get((SNAPSHOT, TOPIC))),
        )
        self.sequencer = context.part(Sequencer)(context, self.state, self)
        self.group.checkers.began(self)
        self.group.note(self, trace.NodeStarted())
        self.seated = self.id in self.versions.named_since(None)
        if self.seated:
            self.step(self.sequencer.start)
        self._after(SPREAD_S, self._spread, None)

    def end(self, *, wipe: bool = False) -> None:
        """SIGKILL, perhaps with the disk."""
        self.up = False
        self.life += 1
        if wipe:
            self.disk = {}
            self.wiped = True

    def step(self, act: Callable[[], None]) -> None:
        """Let the machine take one input, carry its effects out, and look at what it did."""
        if self.paused:
            self._waiting.append(act)
            return
        if self.group.checkers.is_broken:
            # From here on anything can happen, and none of it would tell us more.
            return
        turn = self._turn
        turn.now = self.group.loop.now
        effects: list[Effect] = []
        turn.effects = effects
        try:
            act()
        except RemoteError as error:
            self.group.note(self, trace.Rejected(error.verdict, error.code, topic=TOPIC))
            self.group.checkers.refused(self, error)
        for effect in effects:
            if type(effect) is Send:
                self.group.send(self, effect.peer, effect.message)
            elif type(effect) is SetTimer:
                self._after(effect.delay_s, self._fire, effect.timer)
            elif type(effect) is Persist:
                self._writes.append(effect)
                self._after(self.group.weather.sync_s, self._flush, effect)
        self.group.checkers.look(self)

    def resume(self) -> None:
        """SIGCONT: everything that waited happens now."""
        self.paused = False
        waiting, self._waiting = self._waiting, []
        for act in waiting:
            self.step(act)

    def _after(self, delay_s: float, act: Callable[[Any], None], given: Any) -> None:
        life = self.life

        def happen(_: None) -> None:
            if self.life == life:
                act(given)

        self.group.loop.after(delay_s, happen)

    def _fire(self, timer: int) -> None:
        self.step(lambda: self._turn.fired(timer))

    def _flush(self, persist: Persist) -> None:
        """The disk itself does not care whether the process is paused."""
        for write in persist.writes:
            if isinstance(write, PutState):
                self.disk[write.row.table, write.row.key] = write.row.value
            elif isinstance(write, DropState):
                self.disk.pop((write.table, write.key), None)
        self.step(lambda: self._turn.persisted(persist.token))

    # What the sequencer asks of its events, and of its topic.

    def held(self) -> int:
        """The position up to which we have everything."""
        return self._held

    def sign(self, entry: Entry) -> bytes:
        """Our signature."""
        return _signature(self.id, entry)

    def is_signed(self, peer: PeerId, entry: Entry, signature: bytes) -> bool:
        """Whether it is a peer's."""
        return signature == _signature(peer, entry)

    def request_of(self, block: bytes) -> bytes:
        """An event here is its request, its place, its version and its parent."""
        return block.split(b"/", 1)[0]

    def check(self, block: bytes) -> None:
        """Nobody here makes up events."""

    def certified(self, entry: Entry, signatures: dict[PeerId, bytes]) -> None:
        """An event leaves."""
        self.group.checkers.certified(self, entry, signatures)
        self.take(entry.position, entry.cid, self.request_of(entry.body))

    def leader_changed(self) -> None:
        """Who leads has changed."""
        change = trace.LeaderChanged(TOPIC, self.state.term, self.state.leader)
        self.group.note(self, change)

    def signers_of(self, entry: Entry) -> tuple[PeerId, ...]:
        """The sequencers by the version that an event names."""
        return self.group.versions[version_of(entry.body)]

    def hand_over(self, place: Place, outgoing: tuple[PeerId, ...], to: Cid) -> bytes:
        """An event that says whose certificates count from here on."""
        request = b"handover %d %d %d" % (self.group.numbers[to], place.term, place.position)
        return make_event(request, place, self.group.versions.index(outgoing))

    def handed_over(self, entry: Entry) -> Cid | None:
        """Whose, if it says so."""
        number = handover_of(entry.body)
        return None if number is None else version_cid(number)

    def summon(self, peer: PeerId) -> None:
        """Everyone hears of versions by itself."""

    def removed(self) -> None:
        """Others have our place; our disk keeps what we know, for another version may name us."""
        self.seated = False
        self.sequencer.stop()

    def learn(self, version: int) -> None:
        """Hear of a version: it may name us."""
        if version <= self.versions.number:
            return
        self.versions.number = version
        if not self.up:
            return
        if not self.seated and self.id in self.group.versions[version]:
            self.end()
            self.start()
        elif self.seated:
            self.step(self.sequencer.renewed)

    # History.

    def take(self, position: int, cid: Cid, request: bytes) -> None:
        """An event is certified: keep it; called within a step."""
        if position in self.history:
            self.group.checkers.compare(self, position, cid)
            return
        self.history[position] = (cid, request)
        self.requests[request] = position
        row = StateRow(HISTORY, position.to_bytes(8, "big"), cid + request)
        self._turn.persist(PutState(row), then=lambda: self._kept(position))

    def _kept(self, position: int) -> None:
        self._synced[position] = None
        self._count_held()
        self.sequencer.settle()
        if self.state.leads:
            self.group.acknowledge(self.history[position][1], position)

    def _count_held(self) -> None:
        while self._held + 1 in self._synced:
            self._held += 1

    def _spread(self, _: None) -> None:
        """Get what somebody has that we can talk to."""
        self._after(SPREAD_S, self._spread, None)
        others = [peer for peer in self.group.peers if peer is not self and not peer.paused]
        other = self.group.rng.choice(others) if others else self
        if self.paused or not self.group.can_talk(self, other):
            return
        missing = [each for each in other.history.items() if each[0] not in self.history]
        if missing:
            self.step(lambda: self._take_all(missing))

    def _take_all(self, missing: Iterable[tuple[int, tuple[Cid, bytes]]]) -> None:
        for position, (cid, request) in sorted(missing):
            self.take(position, cid, request)

    def submit(self, request: bytes) -> None:
        """A client asks: published before, under way, or given a place now."""
        self.step(lambda: self._submit(request))

    def _submit(self, request: bytes) -> None:
        sequencer = self.sequencer
        position = self.requests.get(request)
        if position in self._synced:
            self.group.acknowledge(request, position)
        if position is not None or self.state.position_of(request) is not None:
            return
        if sequencer.may_propose:
            counting = self.group.versions.index(sequencer.changes.certifying())
            sequencer.propose(lambda place: make_event(request, place, counting))


class Group:
    """All sequencers of one topic."""

    def __init__(
        self,
        seed: int,
        size: int,
        parameters: Parameters,
        *,
        parts: Parts = NO_PARTS,
        tracer: TraceWriter | None = None,
    ) -> None:
        self.seed = seed
        self.parameters = parameters
        self.rng = Random(f"group/{seed}")
        self.weather = Weather(self.rng)
        self.loop = Loop()
        self.counts: Counter[str] = Counter()
        self.parts = parts
        self._tracer = tracer
        self._clock = NodeClock(0.0)
        self.peers = [Peer(self, index) for index in range(size)]
        self.versions: list[tuple[PeerId, ...]] = []
        """Whom each version of the topic names as sequencers."""
        self.numbers: dict[Cid, int] = {}
        self.by_id = {peer.id: peer for peer in self.peers}
        self.checkers = Checkers(self)
        self.messages = 0
        self.side = [0] * size
        """Who is on which side of a cut."""
        self.acknowledged: dict[bytes, int] = {}
        """What clients were told: the position of each request."""
        self.asked: dict[bytes, None] = {}
        """What clients still wait for."""

    def publish(self, sequencers: Iterable[Peer]) -> int:
        """The author makes a version; who hears of it when is another matter."""
        self.versions.append(tuple(peer.id for peer in sequencers))
        number = len(self.versions) - 1
        self.numbers[version_cid(number)] = number
        return number

    def can_talk(self, one: Peer, other: Peer) -> bool:
        """Whether both are up and nothing is between them."""
        return one.up and other.up and self.side[one.index] == self.side[other.index]

    def send(self, sender: Peer, to: PeerId, message: Any) -> None:
        """A message leaves; it may arrive late, twice, or never."""
        self.messages += 1
        self._note_message(trace.RpcSent, sender, to, message)
        receiver = self.by_id[to]
        rng, weather = self.rng, self.weather
        if not self.can_talk(sender, receiver) or rng.random() < weather.loss:
            return
        for _ in range(1 + (rng.random() < weather.doubling)):
            delay_s = weather.latency_s * (0.5 + rng.expovariate(2.0))
            self.loop.after(delay_s, self._arrive, (sender, receiver, receiver.life, message))

    def _arrive(self, given: tuple[Peer, Peer, int, SequencerMessage]) -> None:
        sender, receiver, life, message = given
        if (
            receiver.life == life
            and receiver.seated
            and self.side[sender.index] == self.side[receiver.index]
        ):
            receiver.step(lambda: self._hear(receiver, sender.id, message))

    def _hear(self, receiver: Peer, sender: PeerId, message: SequencerMessage) -> None:
        self._note_message(trace.RpcReceived, receiver, sender, message)
        receiver.sequencer.receive(sender, message)

    def note(self, peer: Peer, record: trace.Record) -> None:
        """Write down what a sequencer did, if anyone wants to know."""
        if self._tracer is not None:
            now_s = self.loop.now
            self._tracer.record(now_s, peer.index, peer.starts, self._clock.read(now_s), record)

    def _note_message(
        self,
        record: type[trace.RpcSent | trace.RpcReceived],
        peer: Peer,
        other: PeerId,
        message: SequencerMessage,
    ) -> None:
        if self._tracer is not None:
            self.note(peer, record(type(message).__name__, TOPIC, other, size_of(message)))

    def acknowledge(self, request: bytes, position: int) -> None:
        """An event is in a sequencer's history for good: its client hears of it."""
        if request in self.asked:
            del self.asked[request]
            self.acknowledged[request] = position

    def ask(self, request: bytes) -> None:
        """A client asks for something to be published, until it is."""
        self.asked[request] = None
        self._try(request)

    def _try(self, request: bytes) -> None:
        if request not in self.asked:
            return
        living = [peer for peer in self.peers if peer.up and peer.seated]
        if living:
            peer = self.rng.choice(living)
            leader = peer.state.leader
            if leader is not None and self.by_id[leader].up and self.by_id[leader].seated:
                peer = self.by_id[leader]
            peer.submit(request)
        delay_s = self.parameters.election_timeout_s * self.rng.uniform(0.2, 0.6)
        self.loop.after(delay_s, self._try, request)

    def quorum_can_talk(self) -> bool:
        """Whether enough members are up and together; for the founding that is all ever named."""
        config = self.checkers.config
        lists = self.versions[self.checkers.version :]
        sides: dict[int, dict[PeerId, bytes]] = {}
        for peer in self.peers:
            if peer.up and not peer.paused:
                sides.setdefault(self.side[peer.index], {})[peer.id] = peer.state.store

        def is_quorum(stores: dict[PeerId, bytes]) -> bool:
            if not config.members:
                return all(peer in stores for each in lists for peer in each)
            # A list that takes over may be asked already: then most of it have to be there.
            most = all(sum(peer in stores for peer in each) > len(each) // 2 for each in lists)
            return most and config.is_quorum(lambda member: stores.get(member.peer) == member.store)

        return any(map(is_quorum, sides.values()))
