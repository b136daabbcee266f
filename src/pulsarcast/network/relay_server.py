"""The relay that every public node is for others (docs/spec/reach.md, "Relays").

A peer that cannot be dialled reserves a place. Other peers then ask the relay to connect them to
it. The relay copies bytes between the two, at a rate that leaves the node its own bandwidth, and
understands none of them. A connection that is itself relayed gets neither.

Everything that a stranger can fill is counted: reservations and circuits, in total, for a peer and
for a network prefix, and bytes by the second. A reader that is slow stops its own writer alone.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

import trio

from pulsarcast.model.errors import RemoteError
from pulsarcast.model.identity import Identity
from pulsarcast.model.ids import PeerId
from pulsarcast.network.circuits import (
    CIRCUITS_PER_PEER_MAX,
    HOP,
    PIECE_BYTES_MAX,
    STOP,
    binary_addresses,
    hear,
    peer_in,
    say,
    seal_voucher,
)
from pulsarcast.network.host import Host
from pulsarcast.network.link import Link
from pulsarcast.network.streams import Service, Stream
from pulsarcast.wire import libp2p_pb2 as pb
from pulsarcast.wire.libp2p_pb2 import HopMessage, StopMessage

RESERVATIONS_MAX: Final = 256
"""Peers that have a reservation: a quarter of a host's connections, half of those that it keeps
for peers which it could not dial again. go-libp2p gives 128."""
RESERVATIONS_PER_PLACE_MAX: Final = 32
"""Reservations of one network prefix: eight prefixes are needed to take all."""
RESERVATION_S: Final = 3600.0
"""How long a reservation lasts unless it is renewed; go-libp2p's number."""
CIRCUITS_MAX: Final = 256
"""Circuits at a time. Each has at most 160 KiB in queues towards slow readers, so all have 40 MiB
there, beside what is unread (`UNREAD_BYTES_MAX`)."""
CIRCUITS_PER_PLACE_MAX: Final = 64
"""Circuits that peers of one network prefix asked for: four prefixes are needed to take all."""
CIRCUIT_BYTES_S: Final = 256 * 1024
"""What a circuit between peers of Pulsarcast carries in a second, both ways together, on average:
a hundred events of two KiB."""
CIRCUIT_BURST_BYTES: Final = 4 * 1024 * 1024
"""What such a circuit carries at once after a pause: a topic's recent history."""
RELAYED_BYTES_S: Final = 4 * 1024 * 1024
"""What all circuits together carry in a second: a third of a line of 100 Mbit/s, which each byte
passes twice."""
RELAYED_BURST_BYTES: Final = 16 * 1024 * 1024
"""What all circuits together carry at once after a pause: four bursts of one circuit."""
FOREIGN_BYTES_MAX: Final = 128 * 1024
"""Each way, over the whole life of a circuit with an end that does not speak our protocol:
libp2p's usual number, enough to agree on a direct connection."""
FOREIGN_S_MAX: Final = 120.0
"""How long such a circuit lasts; libp2p's usual number."""
IDLE_S_MAX: Final = 600.0
"""How long a circuit may carry nothing: longer than nodes keep connections that they do not use."""
CONNECT_S_MAX: Final = 10.0
"""How long the peer that is dialled may take to accept a circuit; as long as a handshake."""
REQUEST_S_MAX: Final = 10.0
"""How long a request may take to arrive."""
REQUESTS_MAX: Final = CIRCUITS_PER_PEER_MAX + 4
"""Streams of one connection that are served at once: its circuits, and some requests."""
LOOK_S: Final = 5.0
"""Time between two looks for reservations and circuits that have run out."""


class Reservation(NamedTuple):
    """A peer's place at the relay."""

    link: Link
    place: str
    until_s: float


class Circuit:
    """Two peers that are connected through the relay, or about to be."""

    __slots__ = ("allowance", "busy_s", "place", "scope", "source", "streams", "target")

    def __init__(self, source: Link, target: Link) -> None:
        self.source = source
        self.target = target
        self.place = source.place
        self.scope = trio.CancelScope()
        self.streams: list[Stream] = []
        self.allowance = Allowance(CIRCUIT_BYTES_S, CIRCUIT_BURST_BYTES)
        self.busy_s = trio.current_time()
        """When it carried something last."""

    @property
    def unread_bytes(self) -> int:
        """What it holds because a reader is slow."""
        return sum(stream.unread_bytes for stream in self.streams)

    def end(self) -> None:
        """End it at once, and give back what it holds."""
        self.scope.cancel()
        for stream in self.streams:
            stream.reset()


class Allowance:
    """Bytes that may pass: so many a second, and at most so many at once."""

    def __init__(self, bytes_s: float, burst: float) -> None:
        self._bytes_s = bytes_s
        self._burst = burst
        self._left = burst
        self._counted_s = trio.current_time()

    async def take(self, size: int) -> None:
        """Count bytes that have come, and wait until they are paid for."""
        now_s = trio.current_time()
        earned = (now_s - self._counted_s) * self._bytes_s
        self._left = min(self._burst, self._left + earned) - size
        self._counted_s = now_s
        if self._left < 0:
            await trio.sleep(-self._left / self._bytes_s)


class RelayServer:
    """A node's reservations and circuits for others."""

    def __init__(
        self,
        identity: Identity,
        host: Host,
        addresses: Callable[[], Sequence[str]],
        *,
        serves: Callable[[], bool],
        is_neighbour: Callable[[Link], bool],
    ) -> None:
        self._identity = identity
        self._addresses = addresses
        self._serves = serves
        """Whether the node is public."""
        self._is_neighbour = is_neighbour
        """Whether the other end of a connection speaks our protocol."""
        self._reservations: dict[PeerId, Reservation] = {}
        self._circuits: dict[Circuit, None] = {}
        self._allowance: Allowance | None = None
        self.bytes_relayed = 0
        """What circuits have carried since the start, both ways."""
        host.services[HOP] = Service(self._serve, REQUESTS_MAX, math.inf)
        host.services.make_room = self._make_room

    @property
    def reservation_count(self) -> int:
        """Peers that have a reservation."""
        return len(self._reservations)

    @property
    def circuit_count(self) -> int:
        """Circuits that are open or being opened."""
        return len(self._circuits)

    async def run(self) -> None:
        """End what has run out, until cancelled."""
        while True:
            await trio.sleep(LOOK_S)
            now_s = trio.current_time()
            for peer, reservation in list(self._reservations.items()):
                if reservation.until_s <= now_s:
                    self._release(peer, reservation)
            for circuit in list(self._circuits):
                if circuit.busy_s + IDLE_S_MAX <= now_s:
                    circuit.end()

    # Requests.

    async def _serve(self, stream: Stream) -> None:
        """Answer one request; a circuit that comes of it lasts as long as the stream."""
        with trio.fail_after(REQUEST_S_MAX):
            try:
                asked = await hear(stream, HopMessage)
            except RemoteError:
                await self._refuse(stream, pb.MALFORMED_MESSAGE)
                return
        if not asked.HasField("type") or asked.type == HopMessage.STATUS:
            await self._refuse(stream, pb.UNEXPECTED_MESSAGE)
        elif stream.link.relay is not None or not self._serves():
            await self._refuse(stream, pb.PERMISSION_DENIED)
        elif asked.type == HopMessage.RESERVE:
            await self._reserve(stream)
        else:
            await self._connect(stream, asked)

    async def _refuse(self, stream: Stream, status: pb.Status) -> None:
        with trio.fail_after(REQUEST_S_MAX):
            await say(stream, HopMessage(type=HopMessage.STATUS, status=status))

    async def _reserve(self, stream: Stream) -> None:
        """Give a peer a reservation, or a longer one."""
        link = stream.link
        place = link.place
        others = [each for peer, each in self._reservations.items() if peer != link.peer]
        of_place = sum(each.place == place for each in others)
        if len(others) >= RESERVATIONS_MAX or of_place >= RESERVATIONS_PER_PLACE_MAX:
            await self._refuse(stream, pb.RESERVATION_REFUSED)
            return
        until_s = trio.current_time() + RESERVATION_S
        before = self._reservations.get(link.peer)
        if before is None or before.link is not link:
            link.at_close.append(lambda: self._closed(link))
        self._reservations[link.peer] = Reservation(link, place, until_s)
        link.held_until_s = max(link.held_until_s, until_s)
        expire = int(time.time() + RESERVATION_S)
        reservation = pb.Reservation(
            expire=expire,
            addrs=binary_addresses(self._identity.peer_id, self._addresses()),
            voucher=seal_voucher(self._identity, link.peer, expire),
        )
        answer = HopMessage(type=HopMessage.STATUS, status=pb.OK, reservation=reservation)
        if not self._is_neighbour(link):
            answer.limit.CopyFrom(_foreign_limit())
        with trio.fail_after(REQUEST_S_MAX):
            await say(stream, answer)

    async def _connect(self, stream: Stream, asked: HopMessage) -> None:
        """Connect a peer to one that has a reservation."""
        source = stream.link
        try:
            peer = peer_in(asked.peer.id)
        except RemoteError:
            await self._refuse(stream, pb.MALFORMED_MESSAGE)
            return
        found = self._reservations.get(peer)
        if found is None or peer == source.peer:
            await self._refuse(stream, pb.NO_RESERVATION)
            return
        if not self._has_room(source, found.link):
            await self._refuse(stream, pb.RESOURCE_LIMIT_EXCEEDED)
            return
        circuit = Circuit(source, found.link)
        with self._counted(circuit):
            is_ours = self._is_neighbour(source) and self._is_neighbour(found.link)
            limit = None if is_ours else _foreign_limit()
            onward = await self._ask(found.link, source.peer, limit)
            if onward is None:
                await self._refuse(stream, pb.CONNECTION_FAILED)
                return
            with onward:
                answer = HopMessage(type=HopMessage.STATUS, status=pb.OK, limit=limit)
                with trio.fail_after(REQUEST_S_MAX):
                    await say(stream, answer)
                await self._relay(circuit, stream, onward, is_foreign=not is_ours)
        if circuit.scope.cancelled_caught:
            stream.reset()

    async def _ask(self, target: Link, source: PeerId, limit: pb.Limit | None) -> Stream | None:
        """Ask a peer to accept a circuit; None where it does not, or not in time."""
        onward: Stream | None = None
        try:
            with trio.fail_after(CONNECT_S_MAX):
                onward = await target.open_stream(STOP)
                asked = StopMessage(type=StopMessage.CONNECT, peer=pb.Peer(id=source), limit=limit)
                await say(onward, asked)
                answer = await hear(onward, StopMessage)
            if answer.type == StopMessage.STATUS and answer.status == pb.OK:
                return onward
        except (RemoteError, trio.TooSlowError):
            pass
        except BaseException:
            if onward is not None:
                onward.reset()
            raise
        if onward is not None:
            onward.reset()
        return None

    # Circuits.

    def _has_room(self, source: Link, target: Link) -> bool:
        circuits = self._circuits
        place = source.place
        return (
            len(circuits) < CIRCUITS_MAX
            and source.circuits < CIRCUITS_PER_PEER_MAX
            and target.circuits < CIRCUITS_PER_PEER_MAX
            and sum(each.place == place for each in circuits) < CIRCUITS_PER_PLACE_MAX
        )

    @contextmanager
    def _counted(self, circuit: Circuit) -> Iterator[None]:
        """Count a circuit from the request on, so that those that come to nothing count as well."""
        ends = (circuit.source, circuit.target)
        self._circuits[circuit] = None
        for link in ends:
            link.circuits += 1
        try:
            with circuit.scope:
                yield
        finally:
            del self._circuits[circuit]
            for link in ends:
                link.circuits -= 1

    async def _relay(
        self, circuit: Circuit, one: Stream, other: Stream, *, is_foreign: bool
    ) -> None:
        """Copy both ways until both sides have closed, or either breaks."""
        circuit.streams += [one, other]
        if is_foreign:
            circuit.scope.deadline = trio.current_time() + FOREIGN_S_MAX
        bytes_max = FOREIGN_BYTES_MAX if is_foreign else None
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._copy, circuit, one, other, bytes_max)
                nursery.start_soon(self._copy, circuit, other, one, bytes_max)
        finally:
            circuit.streams.clear()

    async def _copy(
        self, circuit: Circuit, source: Stream, sink: Stream, bytes_max: int | None
    ) -> None:
        """Copy one way. What the sink does not take stays with the source's peer."""
        if self._allowance is None:
            self._allowance = Allowance(RELAYED_BYTES_S, RELAYED_BURST_BYTES)
        left = math.inf if bytes_max is None else bytes_max
        try:
            while data := await source.receive(PIECE_BYTES_MAX):
                left -= len(data)
                if left < 0:
                    circuit.end()
                    return
                circuit.busy_s = trio.current_time()
                self.bytes_relayed += len(data)
                await sink.write(data)
                await circuit.allowance.take(len(data))
                await self._allowance.take(len(data))
            sink.close()
        except RemoteError:
            circuit.end()

    def _make_room(self) -> bool:
        """End the circuit that holds most, where too much waits for slow readers."""
        most = max(self._circuits, key=lambda each: each.unread_bytes, default=None)
        if most is None or most.unread_bytes == 0:
            return False
        most.end()
        return True

    # Ends.

    def _closed(self, link: Link) -> None:
        """A connection has ended, and its reservation and circuits with it."""
        reservation = self._reservations.get(link.peer)
        if reservation is not None and reservation.link is link:
            self._release(link.peer, reservation)

    def _release(self, peer: PeerId, reservation: Reservation) -> None:
        del self._reservations[peer]
        for circuit in list(self._circuits):
            if circuit.target is reservation.link:
                circuit.end()


def _foreign_limit() -> pb.Limit:
    """What a circuit with a foreign end may carry."""
    return pb.Limit(duration=int(FOREIGN_S_MAX), data=FOREIGN_BYTES_MAX)
