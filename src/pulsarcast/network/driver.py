"""The driver: hands the core its inputs, and carries out its effects on sockets, disk and clock.

Everything happens on one loop. Whatever wakes it (bytes from a peer, a timer, a caller) hands over
its inputs and then lets the driver settle: the trace reaches the kernel, messages leave, the disk
commits, and what the core says to that is done likewise, until nothing is left to do. So one write
per peer serves all that one peer sent at once, and one commit all that the peers sent while the
node was busy. Only where the core reads on and on, as through a whole log, others have their turn
in between. docs/architecture.md has the loop.
"""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Final, Protocol, assert_never

import trio
from msgspec.structs import replace

from pulsarcast.model import trace
from pulsarcast.model.errors import LocalError, Refusal, Rejection, RemoteError, Verdict
from pulsarcast.model.events import EventDescriptor, decode_event
from pulsarcast.model.identity import Identity
from pulsarcast.model.ids import Cid, PeerId, cid_text, peer_text
from pulsarcast.model.reach import Reach
from pulsarcast.model.remembering import (
    REMEMBERED_BYTES_MAX,
    REMEMBERED_MAX,
    RememberedVerification,
)
from pulsarcast.network.addresses import WITH_CONTACTS, AddressBook
from pulsarcast.network.dial_backs import dial_back
from pulsarcast.network.disk import Disk
from pulsarcast.network.host import AddressInUseError, AddressMissingError, Host
from pulsarcast.network.interfaces import (
    INTERFACES_S,
    Interface,
    find_interfaces,
    is_near,
    to_announce,
)
from pulsarcast.network.link import Link
from pulsarcast.network.multiaddrs import (
    check_address,
    host_of,
    is_dialable,
    is_everywhere,
    scope_of,
)
from pulsarcast.network.neighbour import Topic
from pulsarcast.network.neighbours import Neighbours
from pulsarcast.network.punching import Punching
from pulsarcast.network.relay_client import RelayClient
from pulsarcast.network.relay_server import RelayServer
from pulsarcast.network.resources import Why
from pulsarcast.network.timers import Timers
from pulsarcast.network.tracing import NodeTrace
from pulsarcast.protocol.commands.commands import STOPPING
from pulsarcast.protocol.effects import (
    Deliver,
    DialBack,
    DropPeer,
    Ended,
    Know,
    Load,
    Persist,
    Reply,
    Send,
    SetTimer,
    Stopped,
    Trace,
)
from pulsarcast.protocol.inputs import (
    AddressesChanged,
    Command,
    DialledBack,
    FindPeer,
    Halt,
    Input,
    LinkFree,
    LinkFull,
    MessageReceived,
    Moving,
    Now,
    PeerLost,
    PeerUp,
    PersistFailed,
    Relayed,
    Start,
    Stop,
    TimerFired,
)
from pulsarcast.protocol.limits import ADDRESSES_MAX
from pulsarcast.protocol.messages import Contact, DialAnswer, Message, ReachChanged, topic_of
from pulsarcast.protocol.node import Node as Core
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.store import PutEvent, PutState, StateRow
from pulsarcast.storage.sqlite import SqliteStore
from pulsarcast.wire.codec import decode, encode
from pulsarcast.wire.framing import write_frames
from pulsarcast.wire.hello import Hello
from pulsarcast.wire.lanes import CONTROL, lane_of

VERSION: Final = 2
NETWORK: Final = "main"
INSTANCE_BYTES: Final = 8
STOP_S_MAX: Final = 10.0
"""How long a node that stops may take to hand its children over."""
SAMPLE_S: Final = 10.0
GIVE_WAY_S: Final = 0.01
"""How long the core may read from the disk before others have their turn."""
GATHERED_BYTES_MAX: Final = 1024 * 1024
"""Frames of all peers that one commit gathers: bounds what a crash loses, and how long the first of
their events waits for its delivery. Sixteen connections fill it with what they read at once."""
FAILURES_LOGGED_MAX: Final = 256
"""Bounds the peers of one life, bootstrap peers aside, of which the log says that they do not
answer: strangers choose whom a node dials."""
FAULTS: Final = frozenset({Rejection.BAD_SIGNATURE, Rejection.MALFORMED})
"""What honest peers check before they send it."""
LISTENED: Final = "listened"
"""The table of ports that the node took where any would do."""

RECONNECT_S: Final = 0.5
"""Between the end of connections from an address that is gone and new ones: what waited for the old
ones is given up first, and a new interface is set up."""

_log = logging.getLogger(__name__)


class Application(Protocol):
    """What hands the events on, and joins the commits."""

    def deliver(self, event: EventDescriptor, record: trace.Delivered, tops: Sequence[Cid]) -> None:
        """An event has come; the subscriptions to the topics `tops` take its topic in."""

    def ended(self, driver: Driver, topic: Cid) -> None:
        """No subscription wants a topic's events any more."""

    def before_commit(self, driver: Driver) -> None:
        """The disk is about to commit: what is worth no commit of its own may join."""

    def halted_because(self, refusal: Refusal) -> None:
        """The node can promise nothing any more, and has fallen silent."""


@dataclass
class Counters:
    """What a node has done since its start."""

    messages_in: int = 0
    messages_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    publications: int = 0
    """Events that programs of this node published, by itself or by a request."""
    deliveries: int = 0
    commits: int = 0
    cut_off: Mapping[str, int] = field(default_factory=dict)
    """Connections closed for want of room, or for faults, by the budget that ran out."""


class Driver:
    """One life of a real node."""

    def __init__(
        self,
        identity: Identity,
        store: SqliteStore,
        application: Application,
        *,
        listen: Sequence[str],
        contacts: Sequence[Contact] = (),
        announce: Sequence[str] = (),
        dial_from: str | None = None,
        network: str = NETWORK,
        parameters: Parameters | None = None,
        trace_to: NodeTrace | None = None,
    ) -> None:
        self.me = identity.peer_id
        self.host = Host(identity, dial_from=dial_from)
        self.addresses: tuple[str, ...] = ()
        """Where others are told to dial us."""
        self.bound: tuple[str, ...] = ()
        """Where we listen."""
        self.local: tuple[str, ...] = ()
        """The addresses of this machine among them: `bound`, with interfaces for `0.0.0.0`."""
        self.moved = trio.Event()
        """Set, and replaced, when `local` changes."""
        self.instance = os.urandom(INSTANCE_BYTES)
        self.book = AddressBook()
        self.neighbours = Neighbours(self.me, self.host, self.book, self._hello, self)
        self.relays = RelayClient(
            self.host, self.neighbours, reach=lambda: self.core.reach, changed=self._relays_changed
        )
        self.relaying = RelayServer(
            identity,
            self.host,
            lambda: self.addresses,
            serves=lambda: self.core.reach is Reach.PUBLIC,
            is_neighbour=self.neighbours.is_neighbour,
        )
        self.punching = Punching(self.host, self.neighbours, lambda: self.addresses)
        self._verification = RememberedVerification(
            decode_event, REMEMBERED_MAX, REMEMBERED_BYTES_MAX
        )
        self.core = Core(
            identity,
            Random(int.from_bytes(os.urandom(32))),
            parameters or Parameters(),
            decode_event=self._verification,
        )
        self.stopped = trio.Event()
        self.started = trio.Event()
        self.joined = trio.Event()
        """Set once the first peer is up."""
        self.disk = Disk(store)
        self._store = store
        self._application = application
        self._listen = tuple(listen)
        self._contacts = tuple(contacts)
        self._announce = tuple(announce)
        self.network = network
        self._trace = trace_to
        self._traces_rpc = trace_to is not None and trace_to.level == "rpc"
        self._timers = Timers(self._fire, time.monotonic)
        self._start: Start | None = None
        self._inputs: deque[Input] = deque()
        self._replies: dict[int, Callable[[Reply], None]] = {}
        self._call = 0
        self._message: Message | None = None
        self._frame = b""
        self._topic: Topic | None = None
        self._size = 0
        self._settling = False
        self._gathered_bytes = 0
        """What peers sent since the node last settled."""
        self._gave_way = trio.Event()
        """Set where there is something left to do."""
        self._at_rest = trio.Event()
        """Set where there is not."""
        self._events_kept = 0
        self._messages_in = 0
        self._messages_out = 0
        self.publications = 0
        """Publications of programs that were acknowledged."""
        self._deliveries = 0
        self._failures_logged = 0
        self._interfaces: tuple[Interface, ...] = ()
        self._said: dict[PeerId, Hello] = {}
        """What the node said to peers that the core has yet to hear of."""
        self._nursery: trio.Nursery | None = None

    @property
    def has_contacts(self) -> bool:
        """Whether we were given peers to begin with."""
        return bool(self._contacts)

    # Life.

    def recall(self) -> None:
        """Read what a start needs to know; raises LocalError where the store is damaged."""
        store = self._store
        self._start = Start(store.rows(), store.marks(), store.logs(), self._contacts)

    async def listen(self) -> None:
        """Take our addresses; raises LocalError where one is not to be had, or none to be told."""
        for address in self._announce:
            check_address(address, self.me)
            if is_everywhere(address):
                raise LocalError(
                    f"{address} leads peers to themselves: announce an address of this machine"
                )
        if len(self._announce) > ADDRESSES_MAX:
            raise LocalError(f"more than {ADDRESSES_MAX} addresses: announce fewer")
        bound: list[str] = []
        try:
            for number, address in enumerate(self._listen, 1):
                try:
                    bound += await self._listen_at(address)
                except AddressMissingError as error:
                    # `::` on a machine without IPv6 is no fault where `0.0.0.0` is there as well.
                    if not is_everywhere(address) or (number == len(self._listen) and not bound):
                        raise
                    _log.info("%s", error)
        except BaseException:
            self.host.close()
            raise
        self.bound = tuple(bound)
        self._interfaces = find_interfaces()
        self.local = to_announce(self.bound, self._interfaces)
        self._renew_addresses()

    async def _listen_at(self, address: str) -> tuple[str, ...]:
        """Listen; where any port will do, take the one of the last life: peers remember it."""
        if not address.endswith("/tcp/0"):
            return await self.host.listen(address)
        assert self._start is not None, "nothing was recalled"
        key = address.encode()
        rows = (row for row in self._start.rows if row.table == LISTENED)
        last = next((row.value.decode() for row in rows if row.key == key), "0")
        try:
            bound = await self.host.listen(f"{address[:-1]}{last}")
        except AddressInUseError:
            bound = await self.host.listen(address)
        port = bound[0].rpartition("/")[2] if bound else last
        if port != last:
            self.disk.note(PutState(StateRow(LISTENED, key, port.encode())))
        return bound

    async def _watch_interfaces(self) -> None:
        """Follow the interfaces of the machine: announce its addresses, and dial from them."""
        while True:
            await trio.sleep(INTERFACES_S)
            now = find_interfaces()
            if now == self._interfaces:
                continue
            self._interfaces = now
            local = to_announce(self.bound, now)
            if local != self.local:
                self.local = local
                self.take(AddressesChanged())
                self._renew_addresses()
                _log.info("the addresses of this machine are now %s", ", ".join(local) or "none")
                moved, self.moved = self.moved, trio.Event()
                moved.set()
            cut_off = self.host.close_links_except({str(each.ip) for each in now})
            await trio.sleep(RECONNECT_S)
            for peer in cut_off:
                self.neighbours.meet(peer)
            self.settle()

    def _renew_addresses(self, *, tell: bool = True) -> None:
        """Announce what the operator says; else where others found the node, and the interfaces."""
        outside = self.core.dht.reachability.outside
        found = (outside,) if outside and is_dialable(outside, self.me) else ()
        direct = self._announce or tuple(dict.fromkeys((*found, *self.local)))
        relayed = self.relays.addresses
        addresses = (*direct[: ADDRESSES_MAX - len(relayed)], *relayed)
        if addresses != self.addresses:
            self.addresses = addresses
            for peer in self.neighbours.connected() if tell else ():
                self._tell_reach(peer)

    def _relays_changed(self) -> None:
        """Relays have other reservations for the node: tell the core, and so all peers."""
        # The core tells its peers what it makes of this, unless it is public.
        self._renew_addresses(tell=self.core.reach not in (Reach.PRIVATE, Reach.RELAYED))
        self._inputs.append(Relayed(bool(self.relays.reservations)))
        self.settle()

    def _tell_reach(self, peer: PeerId) -> None:
        data = encode(ReachChanged(self.core.reach, self.addresses))
        self._messages_out += 1
        if self._traces_rpc:
            self._write(trace.RpcSent(ReachChanged.__name__, None, peer, len(data)))
        self.neighbours.send(peer, write_frames([data]))

    async def run(self) -> None:
        """Start, and go on until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.start_soon(self.neighbours.run)
            nursery.start_soon(self._timers.run)
            nursery.start_soon(self._go_on)
            nursery.start_soon(self._watch_interfaces)
            nursery.start_soon(self.relays.run)
            nursery.start_soon(self.relaying.run)
            nursery.start_soon(self.punching.run)
            if self._trace is not None:
                nursery.start_soon(self._sample)
            await self.neighbours.ready.wait()
            start, self._start = self._start, None
            assert start is not None, "nothing was recalled"
            self.take(start)
            self.book.given(self.core.dht.bootstrap)
            del start  # It may be large.
            self.settle()
            self.started.set()

    async def stop(self) -> None:
        """Hand children over, and come to rest."""
        self.take(Stop())
        self.settle()
        with trio.move_on_after(STOP_S_MAX):
            await self.stopped.wait()
        self.settle()
        self._at_rest.set()  # What is left to read now is read in the next life.
        self._answer_all(STOPPING)

    def meet(self, contact: Contact) -> None:
        """Somebody says that a peer is there: see for ourselves."""
        self.book.heard(contact)
        self.neighbours.meet(contact.peer)
        self.settle()

    # What the application asks.

    def tell(self, make: Callable[[int], Command]) -> None:
        """Hand the core a command, made with its call number, and carry it out at once."""
        self._call += 1
        self.take(make(self._call))
        self.settle()

    def ask(
        self, asked: Iterable[tuple[Callable[[int], Command], Callable[[Reply], None]]]
    ) -> None:
        """Hand the core commands, made with their call numbers; each `then` hears the reply.

        Their writes go to the disk together, and with those of all callers that the loop wakes in
        the same pass: one commit answers several callers, who ask again at the same time.
        """
        for make, then in asked:
            self._call += 1
            self._replies[self._call] = then
            self.take(make(self._call))
        self._give_way()

    # What the neighbours report.

    def received(self, peer: PeerId, frames: list[bytes]) -> bool:
        """A peer said something; whether there was an event among it that the node lacked."""
        before = self._events_kept
        self._gathered_bytes += sum(map(len, frames))
        for frame in frames:
            try:
                message = decode(frame)
            except RemoteError as error:
                if error.verdict is Verdict.REJECT:
                    raise
                self.blamed(peer, error)
                continue
            self._messages_in += 1
            if self._traces_rpc:
                self._write(
                    trace.RpcReceived(type(message).__name__, topic_of(message), peer, len(frame))
                )
            if type(message) in WITH_CONTACTS:
                link = self.neighbours.link_to(peer)
                if link is not None:
                    scope = scope_of(link.remote_address)
                    message = self.book.learn(message, link.place, scope)
            if isinstance(message, ReachChanged):
                self.neighbours.renewed(peer, message.reach, message.addresses)
                self.relays.look()
            self.take(MessageReceived(peer, message))
            if isinstance(message, DialAnswer):
                self._renew_addresses()
                self.relays.look()
        return self._events_kept > before

    def up(self, contact: Contact, link: Link, reach: Reach, said: Hello) -> None:
        """A peer can be spoken to."""
        where = () if link.reached_at is None else (link.reached_at,)
        known = Contact(contact.peer, tuple(dict.fromkeys((*where, *contact.addresses))))
        relayed = link.relay is not None
        self._inputs.append(
            PeerUp(known, link.place, link.dialled, self.is_near(link), reach, relayed=relayed)
        )
        self.relays.look()
        self._said[contact.peer] = said
        if relayed:
            self.punching.begin(link)
        self.joined.set()

    def is_near(self, link: Link) -> bool:
        """Whether a peer is in a network that this machine is plugged into."""
        return link.relay is None and is_near(host_of(link.remote_address), self._interfaces)

    def relied_on(self) -> frozenset[PeerId]:
        """The peers that serve topics of the node, and those that the operator named."""
        named = (contact.peer for contact in self.core.dht.bootstrap)
        return frozenset((*self.core.relied_on(), *named))

    def served(self) -> frozenset[PeerId]:
        """The neighbours in topics."""
        return frozenset(self.core.neighbours())

    def unreachable(self, peer: PeerId, reason: str) -> None:
        """A peer cannot be reached: say so once."""
        if any(peer == contact.peer for contact in self.core.dht.bootstrap):
            _log.warning("bootstrap peer %s does not answer: %s", peer_text(peer), reason)
        elif self._failures_logged < FAILURES_LOGGED_MAX:
            # Peers name others, and can invent as many as they like.
            self._failures_logged += 1
            _log.info("peer %s does not answer: %s", peer_text(peer), reason)

    def lost(self, peer: PeerId) -> None:
        """A connection ended."""
        self._inputs.append(PeerLost(peer))

    def moving(self, peer: PeerId) -> None:
        """A peer has sent bytes that make no frame yet."""
        self._inputs.append(Moving(peer))
        self._give_way()

    def filled(self, peer: PeerId) -> None:
        """Much waits for a peer."""
        self._inputs.append(LinkFull(peer))

    def freed(self, peer: PeerId) -> None:
        """What waited for a peer has left."""
        self._inputs.append(LinkFree(peer))
        self._give_way()

    def wanted(self, peer: PeerId) -> None:
        """Nobody knows where a peer is."""
        self._inputs.append(FindPeer(peer))

    def blamed(self, peer: PeerId, error: RemoteError) -> None:
        """A peer broke the rules."""
        self._write(trace.Rejected(error.verdict, error.code, peer))

    def met_double(self, address: str) -> None:
        """Somebody else has our key: say so, and promise nothing any more."""
        self._inputs.append(Halt(f"another node, at {address}, has our key"))

    # The heart.

    def take(self, given: Input) -> None:
        """Let the core handle an input, and do what it asks as far as that can be done at once."""
        now = Now(time.monotonic(), time.time_ns() // 1000)
        neighbours = self.neighbours
        # In the order of the simulator's own driver: the frequent ones come first.
        for effect in self.core.handle(given, now):
            if isinstance(effect, Send):
                message = effect.message
                if message is not self._message:
                    self._message = message
                    data = encode(self._fill(message))
                    self._size = len(data)
                    self._frame = write_frames([data])
                    is_control = type(message) in CONTROL
                    self._topic = None if is_control else partial(lane_of, message)
                self._messages_out += 1
                if self._traces_rpc:
                    self._write(
                        trace.RpcSent(
                            type(message).__name__,
                            topic_of(message),
                            effect.peer,
                            self._size,
                        )
                    )
                neighbours.send(effect.peer, self._frame, self._topic)
            elif isinstance(effect, Persist):
                self.disk.persist(effect)
                for write in effect.writes:
                    if type(write) is PutEvent:  # The node made the event, or has verified it.
                        self._events_kept += 1
                        self._verification.know(write.event)
            elif isinstance(effect, Deliver):
                self._deliveries += 1
                if self._trace is not None:
                    self._trace.record(now, effect.record)
                tops = self.core.following.below.tops_of(effect.event.topic)
                self._application.deliver(effect.event, effect.record, tops)
            elif isinstance(effect, Trace):
                if self._trace is not None:
                    self._trace.record(now, effect.record)
                if isinstance(effect.record, trace.NodeStopped):
                    self._see_whether_halted()
                elif isinstance(effect.record, trace.Rejected):
                    self._see_fault(effect.record)
                elif isinstance(effect.record, trace.NameChanged):
                    _log.warning("%s", _change_of(effect.record))
            elif isinstance(effect, SetTimer):
                self._timers.set(effect.timer, effect.delay_s)
            elif isinstance(effect, Load):
                self.disk.load(effect)
            elif isinstance(effect, Reply):
                then = self._replies.pop(effect.call, None)
                if then is not None:
                    then(effect)
            elif isinstance(effect, Know):
                self._know(effect.contact)
            elif isinstance(effect, DialBack):
                self._dial_back(effect.peer)
            elif isinstance(effect, DropPeer):
                neighbours.close(effect.peer)
            elif isinstance(effect, Ended):
                self._application.ended(self, effect.topic)
            elif isinstance(effect, Stopped):
                self.stopped.set()
            else:
                assert_never(effect)

    def settle(self) -> None:
        """Do everything that has come together, until there is nothing left to do.

        But for what takes long to read: that goes on after others. Nothing waits to be written.
        """
        if self._settling:
            return  # Whoever settles already will see to it.
        self._settling = True
        self._gathered_bytes = 0
        until_s: float | None = None
        try:
            while True:
                self._hand_over()
                if self._inputs:
                    continue
                if self.disk.is_idle:
                    self._at_rest.set()
                    return
                if self.disk.only_reads:
                    if until_s is None:
                        until_s = time.monotonic() + GIVE_WAY_S
                    elif time.monotonic() > until_s:
                        self._give_way()
                        return
                self._application.before_commit(self)
                self._inputs.extend(self.disk.settle())
        finally:
            self._settling = False

    def gather(self) -> None:
        """Let messages leave now, and commit once what other peers have sent by now is taken.

        The commit does not wait for more to come: where nothing is there to be read, it is now.
        """
        self._hand_over()
        has_room = self._gathered_bytes < GATHERED_BYTES_MAX
        if has_room and not self.disk.is_idle and self.host.has_arrivals():
            self._give_way()
        else:
            self.settle()

    def _hand_over(self) -> None:
        """Let the core handle what waits for it; the trace and its messages leave."""
        while self._inputs:
            given = self._inputs.popleft()
            self.take(given)
            if isinstance(given, PeerUp):
                self._tell_changes(given.contact.peer)
        self._flush_trace()
        self.neighbours.flush()

    async def rest(self) -> None:
        """Wait until there is nothing left to do.

        Whoever begins or ends a subscription waits: a log that is half handed out says neither
        where a new reader begins, nor what comes when there is none.
        """
        while not self._at_rest.is_set():
            await self._at_rest.wait()

    def _give_way(self) -> None:
        if self._at_rest.is_set():
            self._at_rest = trio.Event()
        self._gave_way.set()

    async def _go_on(self) -> None:
        """Go on with what gave way, once others have had their turn."""
        while True:
            await self._gave_way.wait()
            self._gave_way = trio.Event()
            self.settle()

    def counters(self) -> Counters:
        """What was done until now."""
        return Counters(
            messages_in=self._messages_in,
            messages_out=self._messages_out,
            bytes_in=self.neighbours.bytes_in,
            bytes_out=self.neighbours.bytes_out,
            publications=self.publications,
            deliveries=self._deliveries,
            commits=self.disk.commits,
            cut_off={why.value: self.host.resources.cut_off[why] for why in Why},
        )

    def _fire(self, timers: list[int]) -> None:
        for timer in timers:
            self.take(TimerFired(timer))
        self.settle()

    def _see_fault(self, record: trace.Rejected) -> None:
        """The core refused what a peer sent: no honest peer sends some of it."""
        is_fault = record.verdict is Verdict.REJECT and record.reason in FAULTS
        if is_fault and record.peer is not None:
            self.neighbours.blame(record.peer)

    def _know(self, contact: Contact) -> None:
        if contact.addresses:
            self.book.heard(contact)
            self.neighbours.found(contact.peer)
        else:
            self.neighbours.not_found(contact.peer)

    def _fill(self, message: Message) -> Message:
        """A message with the addresses of those it names."""
        if isinstance(message, ReachChanged):
            return replace(message, addresses=self.addresses)
        return self.book.fill(message)

    def _tell_changes(self, peer: PeerId) -> None:
        """Tell a peer that is new to the core what has changed since the node said Hello to it."""
        said = self._said.pop(peer, None)
        if said is not None and (said.reach, said.addresses) != (self.core.reach, self.addresses):
            self._tell_reach(peer)

    def _dial_back(self, peer: PeerId) -> None:
        """Dial a peer where its connection comes from, and tell the core what came of it."""
        connection = self.neighbours.connection_to(peer)
        if connection is None or connection.hello is None:
            self._inputs.append(DialledBack(peer))
            return
        assert self._nursery is not None
        told = connection.hello.addresses
        self._nursery.start_soon(self._dial_back_now, connection.link, told)

    async def _dial_back_now(self, link: Link, told: tuple[str, ...]) -> None:
        address = await dial_back(self.host, link, told)
        self._inputs.append(DialledBack(link.peer, address))
        self.settle()

    def _write(self, record: trace.Record) -> None:
        if self._trace is not None:
            self._trace.record(Now(time.monotonic(), time.time_ns() // 1000), record)

    def _flush_trace(self) -> None:
        if self._trace is not None:
            try:
                self._trace.flush()
            except OSError as error:
                # Without a trace nobody can hold us to what we did: the same as without a disk.
                self._trace = None
                self._inputs.append(PersistFailed(0, f"the trace: {error}"))

    def _see_whether_halted(self) -> None:
        refusal = self.core.halted
        if refusal is None:
            return
        # What waited for the disk will never come.
        self._answer_all(refusal)
        self._application.halted_because(refusal)
        self.stopped.set()

    def _answer_all(self, refusal: Refusal) -> None:
        """Nobody who waits will get another answer."""
        for call, then in list(self._replies.items()):
            then(Reply(call, refusal))
        self._replies.clear()

    def _hello(self) -> Hello:
        return Hello(
            self.network,
            (VERSION,),
            addresses=self.addresses,
            instance=self.instance,
            reach=self.core.reach,
        )

    async def _sample(self) -> None:
        """Say now and then what we use."""
        while True:
            await trio.sleep(SAMPLE_S)
            try:
                self._write(self.usage())
            except OSError:
                continue  # Nothing says so here, as elsewhere than on Linux, or not now.
            self._flush_trace()

    def usage(self) -> trace.Resources:
        """What this process has used since it started."""
        times = os.times()
        with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 (every few seconds)
            pages = int(file.read().split()[1])
        return trace.Resources(
            cpu_s=times.user + times.system,
            rss_bytes=pages * os.sysconf("SC_PAGE_SIZE"),
            bytes_in=self.neighbours.bytes_in,
            bytes_out=self.neighbours.bytes_out,
        )


def _change_of(record: trace.NameChanged) -> str:
    """What happened to a name, for people."""
    name = f"{peer_text(record.author)}/{record.name}"
    topic, other = cid_text(record.topic), cid_text(record.other)
    if record.clash:
        return f"two nodes with one key changed {name}: it leads to {topic}, and {other} lost"
    return f"{name} leads to {topic} now, and led to {other} before"
