"""The world: simulated nodes on a simulated network, one seed, and every fault there is.

Everything that happens follows from the seed and from what is asked here: there is no wall
clock, no global chance and no order that depends on hashes, so the same calls give the same
traces in every process. Chance is split into named streams; a draw more in one of them changes
nothing in the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from random import Random
from typing import Any, NamedTuple, cast

from pulsarcast.model import trace
from pulsarcast.model.events import decode_event
from pulsarcast.model.identity import Identity
from pulsarcast.model.ids import PeerId, peer_key
from pulsarcast.model.reach import Reach
from pulsarcast.model.remembering import RememberedVerification
from pulsarcast.protocol.context import NO_PARTS, Parts
from pulsarcast.protocol.effects import Reply
from pulsarcast.protocol.inputs import AddressesChanged, Command, Start, Stop
from pulsarcast.protocol.messages import Contact
from pulsarcast.protocol.node import Node
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.simulation.clocks import NodeClock
from pulsarcast.simulation.disk import DiskModel
from pulsarcast.simulation.hardware.machines import BusyProcess, Hardware, Machine, Meter
from pulsarcast.simulation.hosts import DecodeEvent, Host, MakeNode, Seat, make_node
from pulsarcast.simulation.lines import Line
from pulsarcast.simulation.links import Constant, Links
from pulsarcast.simulation.loop import Loop
from pulsarcast.simulation.network import Network
from pulsarcast.simulation.places import Place
from pulsarcast.simulation.process import Process, Recorder
from pulsarcast.simulation.settled import tables
from pulsarcast.storage.memory import MemoryStore

SHARED_MAX = 1 << 16
"""Events that one node verified and all others need not: those seen most lately."""

SETTLED_CONTACTS = 3
"""First contacts on the disk of a node that did not join: it asks them after a restart."""

__all__ = ["FaultNote", "MakeNode", "Seat", "World", "make_node"]

STOP_TIMEOUT_S = 15.0
"""How long a node that was asked to go may take before it is gone anyway."""


class FaultNote(NamedTuple):
    """What was done to the world, and when."""

    time_s: float
    action: str
    nodes: tuple[int, ...]
    detail: str = ""


class World:
    """Nodes, their network, and what is done to them."""

    def __init__(
        self,
        seed: int,
        *,
        links: Links,
        parameters: Parameters | None = None,
        share_verification: bool = True,
        through_wire: bool = False,
        disk: DiskModel | None = None,
        observer: Recorder | None = None,
        trace_rpc: bool = False,
        prepare: Callable[[Any], None] | None = None,
        make_node: MakeNode = make_node,
        parts: Parts = NO_PARTS,
        relays: bool = False,
        hardware: Hardware | None = None,
    ) -> None:
        self.seed = seed
        self.parameters = Parameters() if parameters is None else parameters
        self.observer = observer
        self.fault_notes: list[FaultNote] = []
        self._make_node = make_node
        self._parts = parts
        self._prepare = prepare
        self._disk = DiskModel() if disk is None else disk
        self._decode_event: DecodeEvent = (
            RememberedVerification(decode_event, SHARED_MAX) if share_verification else decode_event
        )
        self._streams: dict[str, Random] = {}
        self._loop = Loop()
        self._hardware = Hardware() if hardware is None else hardware
        self._machine = self._hardware.machine()
        self._network = Network(
            self._loop,
            links,
            self.stream("network"),
            through_wire=through_wire,
            trace_rpc=trace_rpc,
            uplink=self._hardware.uplink,
        )
        if relays:
            self._network.use_relays()
        self._hosts: list[Host] = []
        self._calls = 0

    # Time and chance.

    @property
    def now(self) -> float:
        """The simulated time, in seconds since the world began."""
        return self._loop.now

    def stream(self, name: str) -> Random:
        """The random stream of this name: always the same one, and apart from all others."""
        if name not in self._streams:
            self._streams[name] = Random(self._secret(f"stream/{name}"))
        return self._streams[name]

    def at(self, time_s: float, fn: Callable[[], None]) -> None:
        """Do something at a time."""
        self._loop.at(time_s, _call, fn)

    def after(self, delay_s: float, fn: Callable[[], None]) -> None:
        """Do something after a delay."""
        self._loop.after(delay_s, _call, fn)

    def run(self, until_s: float) -> None:
        """Let time pass until `until_s`."""
        self._loop.run(until_s)

    def run_until(
        self, condition: Callable[[], bool], deadline_s: float, check_every_s: float = 1.0
    ) -> bool:
        """Let time pass until a condition holds, looked at now and then; False at the deadline."""
        while not condition():
            if self._loop.now >= deadline_s:
                return False
            self._loop.run(min(self._loop.now + check_every_s, deadline_s))
        return True

    def use_lines(self, line: type[Line]) -> None:
        """Let connections that are opened from now on be of another kind: one that counts, say."""
        self._network.use_lines(line)

    # Nodes.

    def add_node(self, *, contacts: Sequence[int] = (), place: Place | None = None) -> int:
        """Start a new node, that may ask these others first; returns its index.

        A node with a place has to find out how it is reached; all nodes have one, or none has.
        """
        index = self._add_host(contacts, place)
        if place is not None:
            self._network.settle(index, place)
        self._start(index)
        return index

    def add_settled(self, count: int) -> range:
        """Start so many nodes that know each other as if all had joined: nobody has to (`settled`).

        They have no connections yet: the first message to a peer opens one.
        """
        added = self.add_down(count)
        self.start_settled()
        return added

    def add_down(self, count: int) -> range:
        """Add nodes that are down, and will ask a few others of them where they have to join."""
        rng = self.stream("settled")
        first = len(self._hosts)
        for index in range(first, first + count):
            earlier = range(first, index)
            self._add_host(rng.sample(earlier, min(SETTLED_CONTACTS, len(earlier))))
        return range(first, first + count)

    def start_settled(self) -> None:
        """Start all nodes, none of which is up, as if all had joined."""
        keys = [peer_key(host.identity.peer_id) for host in self._hosts]
        contacts = [self._contact(index) for index in range(len(keys))]
        known = tables(keys, self.parameters.bucket_size, self.stream("settled"))
        for index, others in enumerate(known):
            self._start(index, tuple(contacts[other] for other in others))

    def _add_host(self, contacts: Iterable[int], place: Place | None = None) -> int:
        index = len(self._hosts)
        identity = Identity.from_seed(sha256(f"{self.seed}/{index}".encode()).digest())
        assert self._network.add(identity.peer_id) == index
        known = tuple(map(self._contact, contacts))
        self._hosts.append(Host(identity, known, self._empty_disk(), place))
        return index

    @contextmanager
    def instantly(self) -> Iterator[None]:
        """Let messages take no time: what the network does so far, it has done before."""
        links, self._network.links = self._network.links, Constant(0.0)
        try:
            yield
        finally:
            self._network.use_links(links)

    def _contact(self, index: int) -> Contact:
        place = self._hosts[index].place
        return Contact(self.peer(index), () if place is None else place.addresses(index))

    def add_clone(self, index: int, disk: MemoryStore) -> int:
        """Start another node with the key of one that there is, and a copy of a disk.

        Whoever dials the peer reaches the first of them; whom either of them dials knows the one
        that came last.
        """
        host = self._hosts[index]
        assert self._network.add(host.identity.peer_id) == len(self._hosts)
        self._hosts.append(Host(host.identity, host.contacts, disk.copy()))
        clone = len(self._hosts) - 1
        self._note("clone", index, clone)
        self._start(clone)
        return clone

    def peer(self, index: int) -> PeerId:
        """The peer id of a node."""
        return self._hosts[index].identity.peer_id

    def index_of(self, peer: PeerId) -> int:
        """The index of the node with this peer id; of clones, the first."""
        return self._network.indices[peer]

    def node(self, index: int) -> Node:
        """The core of a node that is up, as it is now."""
        process = self._hosts[index].process
        assert process is not None, f"node {index} is down"
        # Whoever has nodes made that are none knows what it gets.
        return cast("Node", process.core)

    def store(self, index: int) -> MemoryStore:
        """What is on a node's disk for good."""
        return self._hosts[index].store

    def place(self, index: int) -> Place | None:
        """Where a node is now; None: this world has no addresses."""
        return self._hosts[index].place

    def is_up(self, index: int) -> bool:
        """Whether a node has a process, be it paused."""
        return self._hosts[index].process is not None

    def incarnation(self, index: int) -> int:
        """How many times a node has been started."""
        return self._hosts[index].incarnation

    @property
    def size(self) -> int:
        """How many nodes there are, up or not."""
        return len(self._hosts)

    def command(
        self,
        index: int,
        command_factory: Callable[[int], Command],
        then: Callable[[Reply], None] | None = None,
    ) -> None:
        """Hand a node a command, later in this instant; `then` hears its reply.

        A node that is down, or dies first, does not answer: nobody hears anything.
        """
        self._calls += 1
        call = self._calls

        def hand() -> None:
            process = self._hosts[index].process
            if process is not None:
                process.command(call, command_factory(call), then)

        self.after(0.0, hand)

    # What can be counted.

    @property
    def messages(self) -> dict[str, int]:
        """Messages sent, by the names of their types."""
        return self._network.traffic.messages

    @property
    def bytes(self) -> dict[str, int]:
        """Bytes sent, by the names of the messages' types."""
        return self._network.traffic.bytes

    @property
    def range_events(self) -> int:
        """Events sent inside `Range` messages."""
        return self._network.traffic.range_events

    @property
    def writes(self) -> int:
        """Pieces in which messages left: those that wait on one line travel together."""
        return self._network.traffic.writes

    @property
    def messages_lost(self) -> int:
        """Messages that were said and never heard."""
        return self._network.traffic.lost

    @property
    def relayed_dials(self) -> int:
        """Connections that were made through a relay."""
        return 0 if self._network.relays is None else self._network.relays.dials

    @property
    def happenings(self) -> int:
        """Everything that has happened: messages, timers, flushes."""
        return self._loop.happenings

    def cpu_s(self, index: int) -> float:
        """What a node's processors have done in its lives, where that takes time."""
        host = self._hosts[index]
        return 0.0 if host.meter is None else host.meter.cpu_s

    # Faults.

    def kill(self, index: int) -> None:
        """SIGKILL: what was not synced is lost, and so is what was on its way."""
        self._note("kill", index)
        self._end(index)

    def lose(self, index: int) -> None:
        """Kill a node for good, disk and all."""
        self._note("lose", index)
        self._end(index)
        self._hosts[index].lost = True
        self._hosts[index].store = self._empty_disk()

    def restart(self, index: int, keep_disk: bool = True) -> None:
        """Start a node that is down, with the disk it had or with an empty one."""
        host = self._hosts[index]
        assert host.process is None, f"node {index} is up"
        assert not host.lost, f"node {index} was lost for good"
        self._note("restart", index, detail="" if keep_disk else "disk lost")
        if not keep_disk:
            host.store = self._empty_disk()
        self._start(index)

    def roll_back(self, index: int, disk: MemoryStore) -> None:
        """Start a node that is down from an older copy of its disk; nothing tells it so."""
        host = self._hosts[index]
        assert host.process is None, f"node {index} is up"
        self._note("roll back", index)
        host.store = disk.copy()
        self._start(index)

    def stop(self, index: int) -> None:
        """Ask a node to go; it is down once it says so, or when its time is up."""
        self._note("stop", index)
        process = self._hosts[index].process
        if process is None:
            return

        def finish() -> None:
            if self._hosts[index].process is process and not process.gone:
                for line in list(process.lines.values()):
                    if not line.broken:
                        self._network.close(line)
                process.disk.close()
                self._end(index)

        process.on_stopped = finish
        self.after(STOP_TIMEOUT_S, finish)
        self._loop.after(0.0, process.take, Stop())

    def stop_all(self, reason: trace.StopReason) -> None:
        """Let every node that is up say that this is the end; nothing happens to it."""
        for host in self._hosts:
            if host.process is not None and not host.process.gone:
                host.process.note(trace.NodeStopped(reason))

    def pause(self, index: int) -> None:
        """SIGSTOP: the node does nothing, what comes for it waits, its timers are late."""
        self._note("pause", index)
        process = self._hosts[index].process
        if process is not None:
            process.pause()
            self._network.stalled(index)

    def resume(self, index: int) -> None:
        """SIGCONT."""
        self._note("resume", index)
        process = self._hosts[index].process
        if process is not None:
            process.resume()

    def cut(self, groups: Sequence[Iterable[int]]) -> None:
        """Part the network: nothing goes between groups. Nodes in none are together in one more."""
        parts = [sorted(group) for group in groups]
        self._note("cut", *(index for part in parts for index in part), detail=str(parts))
        self._network.cut(parts)

    def heal(self) -> None:
        """Join the network again."""
        self._note("heal")
        self._network.heal()

    def reset(self, a: int, b: int) -> None:
        """Break the connection between two nodes, if there is one."""
        self._note("reset", a, b)
        process = self._hosts[a].process
        line = None if process is None else process.lines.get(self.peer(b))
        if line is not None:
            self._network.reset(line)

    def move(self, index: int, place: Place) -> None:
        """Give a node another address, or let a firewall keep dials from it or no more.

        A new address ends the node's connections, and the node knows of it. A firewall is silent.
        """
        self._note("move", index, detail=str(tuple(place)))
        host = self._hosts[index]
        assert host.place is not None, "this world has no addresses"
        host.place = place
        if self._network.settle(index, place) and host.process is not None:
            host.process.take(AddressesChanged())

    def set_clock(self, index: int, offset_s: float = 0.0, drift_ppm: float = 0.0) -> None:
        """Set a node's wall clock wrong, and let both of its clocks run fast or slow."""
        self._note("clock", index, detail=f"{offset_s:+} s, {drift_ppm:+} ppm")
        host = self._hosts[index]
        host.offset_s, host.drift_ppm = offset_s, drift_ppm
        if host.process is not None:
            host.process.clock.bend(self.now, offset_s=offset_s, drift_ppm=drift_ppm)

    def disk_full(self, index: int, full: bool = True) -> None:
        """Let a node's disk refuse every write, or take them again."""
        self._note("disk full" if full else "disk free", index)
        host = self._hosts[index]
        host.disk_full = full
        if host.process is not None:
            host.process.disk.full = full

    def _empty_disk(self) -> MemoryStore:
        return MemoryStore(self._disk.strangers_bytes_max)

    def _note(self, action: str, *nodes: int, detail: str = "") -> None:
        self.fault_notes.append(FaultNote(self.now, action, nodes, detail))

    def _start(self, index: int, known: tuple[Contact, ...] = ()) -> None:
        host = self._hosts[index]
        host.incarnation += 1
        rng = Random(self._secret(f"node/{index}/{host.incarnation}"))
        identity, decode_event = host.identity, self._decode_event
        make_process: Callable[..., Process] = Process
        costs = self._hardware.costs
        if costs is not None:
            meter = host.meter = host.meter or Meter()
            identity = meter.identity(identity)
            decode_event = verification = meter.decoder(decode_event)
            machine = Machine(1) if self._machine is None else self._machine
            make_process = partial(
                BusyProcess, machine=machine, costs=costs, meter=meter, verification=verification
            )
        core = self._make_node(
            Seat(index, identity, rng, self.parameters, decode_event, self._parts)
        )
        if self._prepare is not None:
            self._prepare(core)
        process = make_process(
            core=core,
            index=index,
            peer=host.identity.peer_id,
            incarnation=host.incarnation,
            clock=NodeClock(self.now, offset_s=host.offset_s, drift_ppm=host.drift_ppm),
            store=host.store,
            disk=self._disk,
            loop=self._loop,
            network=self._network,
            recorder=self.observer,
        )
        process.disk.full = host.disk_full
        host.process = process
        self._network.ends[index] = process
        store = host.store
        rows = store.rows()
        # Only a new disk needs to be told: a node remembers its contacts.
        contacts = () if rows and not known else host.contacts
        # Where there are no addresses, everybody can dial everybody, and nobody has to find out.
        reach = Reach.PUBLIC if host.place is None else Reach.UNKNOWN
        process.take(Start(rows, store.marks(), store.logs(), contacts, reach, known))

    def _end(self, index: int) -> None:
        host = self._hosts[index]
        process = host.process
        if process is None:
            return
        host.process = None
        self._network.ends[index] = None
        process.end()
        process.disk.lose()
        self._network.leave(process)

    def _secret(self, name: str) -> int:
        return int.from_bytes(sha256(f"{self.seed}/{name}".encode()).digest())


def _call(act: Callable[[], None]) -> None:
    act()
