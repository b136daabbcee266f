"""What a node asks of relays: to be dialled through them, and to dial through them.

docs/spec/reach.md, "Relays". A node that cannot be dialled keeps a reservation at `RELAYS_MAX`
public peers that it is connected to, in different networks where there is a choice. It tells others
the relayed addresses. A reservation that is lost is replaced at once.

Circuits that come in become links as dialled connections do, and so do those that the node asks
for. Each runs over a stream of the connection to the relay, which must be a direct one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import Final, NamedTuple

import trio

from pulsarcast.model.errors import LocalError, RemoteError
from pulsarcast.model.ids import PeerId
from pulsarcast.model.reach import Reach
from pulsarcast.network.circuits import (
    CIRCUITS_PER_PEER_MAX,
    HOP,
    STOP,
    Pipe,
    carry,
    check_voucher,
    hear,
    peer_in,
    say,
)
from pulsarcast.network.host import Carried, DialError, Host
from pulsarcast.network.link import Link
from pulsarcast.network.multiaddrs import (
    Relay,
    address_text,
    is_dialable,
    relay_of,
    relayed_address,
)
from pulsarcast.network.neighbours import Neighbours
from pulsarcast.network.streams import Service, Stream
from pulsarcast.wire import libp2p_pb2 as pb
from pulsarcast.wire.libp2p_pb2 import HopMessage, StopMessage

RELAYS_MAX: Final = 2
"""Reservations at a time: one relay may go down."""
ADDRESSES_PER_RELAY_MAX: Final = 3
"""Relayed addresses that the node tells of one relay: relays listen at one or two, and a peer may
tell 16 addresses in all."""
ANSWER_S_MAX: Final = 10.0
"""How long a relay may take to answer a request, but for the time that the other peer takes."""
CONNECT_S_MAX: Final = 10.0
"""For all relayed addresses of a peer together, as for its direct ones."""
LOOK_S: Final = 10.0
"""Time between two looks for something to reserve or renew, where nothing happens before."""
AGAIN_S: Final = 60.0
"""How long a relay that refused is not asked again."""
REFUSED_MAX: Final = 256
"""Relays that are remembered to have refused; without them the node only asks sooner."""
LIFE_S_MIN, LIFE_S_MAX = 120.0, 24 * 3600.0
"""Bounds for how long a reservation is taken to last, so that a clock that is wrong on either side
costs renewals only: one each minute at the worst."""

_RELAY_SAYS: Final = {
    pb.RESERVATION_REFUSED: "the relay has no room for a reservation",
    pb.RESOURCE_LIMIT_EXCEEDED: "the relay has no room for another connection",
    pb.PERMISSION_DENIED: "the relay does not allow it",
    pb.CONNECTION_FAILED: "the relay could not connect to the peer",
    pb.NO_RESERVATION: "the peer has no reservation at the relay",
}


class Reservation(NamedTuple):
    """A place that a relay keeps for this node."""

    link: Link
    addresses: tuple[str, ...]
    """Where others dial this node by way of it."""
    renew_s: float
    until_s: float


class RelayClient:
    """The reservations of a node, and the connections that it has through relays."""

    def __init__(
        self,
        host: Host,
        neighbours: Neighbours,
        *,
        reach: Callable[[], Reach],
        changed: Callable[[], None],
    ) -> None:
        self._host = host
        self._neighbours = neighbours
        self._reach = reach
        self._changed = changed
        """Told whenever the relayed addresses are others."""
        self.reservations: dict[PeerId, Reservation] = {}
        self._refused: dict[PeerId, float] = {}
        """Until when a relay is not asked again."""
        self._news = trio.Event()
        self._lost = trio.Event()
        """Set where a reservation is lost."""
        self._nursery: trio.Nursery | None = None
        host.services[STOP] = Service(self._accept, CIRCUITS_PER_PEER_MAX, math.inf)
        neighbours.dial_through = self.dial
        neighbours.keeps_relays = self._needs_more
        neighbours.on_relay = self.look

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where others dial this node through relays."""
        held = self.reservations.values()
        return tuple(address for each in held for address in each.addresses)

    def look(self) -> None:
        """Something has changed: see whether there is something to reserve."""
        self._news.set()

    async def run(self) -> None:
        """Keep reservations, until cancelled."""
        async with trio.open_nursery() as self._nursery:
            self._nursery.start_soon(self._tell_losses)
            while True:
                while await self._improve():
                    pass
                with trio.move_on_after(LOOK_S):
                    await self._news.wait()
                self._news = trio.Event()

    # Reservations.

    def _is_needy(self) -> bool:
        return self._reach() in (Reach.PRIVATE, Reach.RELAYED)

    def _needs_more(self) -> bool:
        return self._is_needy() and len(self.reservations) < RELAYS_MAX

    async def _improve(self) -> bool:
        """Do one thing that is due; False where none is."""
        if not self._is_needy():
            if self.reservations:
                for held in self.reservations.values():
                    held.link.held_until_s = 0.0
                self.reservations.clear()
                self._changed()
            return False
        now_s = trio.current_time()
        for peer, held in list(self.reservations.items()):
            if held.renew_s <= now_s:
                await self._reserve(held.link)
                renewed = self.reservations.get(peer)
                if renewed is held:
                    self._lose(held.link)
                return True
        link = self._candidate() if self._needs_more() else None
        if link is None:
            return False
        await self._reserve(link)
        return True

    def _candidate(self) -> Link | None:
        """The next relay to ask: in a network of its own where there is a choice.

        Each node prefers others, so that not all ask the same relay.
        """
        now_s = trio.current_time()
        places = {held.link.place for held in self.reservations.values()}
        found = [
            link
            for link in self._neighbours.relays()
            if link.relay is None
            and link.peer not in self.reservations
            and self._refused.get(link.peer, now_s) <= now_s
        ]
        me = self._host.peer
        return min(
            found,
            key=lambda link: (
                link.place in places,
                sha256(me + link.peer).digest(),
            ),
            default=None,
        )

    async def _reserve(self, link: Link) -> None:
        """Ask a relay for a reservation; a relay that gives none is left alone for a while."""
        held: Reservation | None = None
        with suppress(RemoteError, trio.TooSlowError), trio.fail_after(ANSWER_S_MAX):
            with await link.open_stream(HOP) as stream:
                await say(stream, HopMessage(type=HopMessage.RESERVE))
                answer = await hear(stream, HopMessage)
            held = self._read(link, answer)
        if held is None or not link.is_open:
            self._refused.pop(link.peer, None)
            self._refused[link.peer] = trio.current_time() + AGAIN_S
            if len(self._refused) > REFUSED_MAX:
                del self._refused[next(iter(self._refused))]
            return
        before = self.reservations.get(link.peer)
        if before is None or before.link is not link:
            link.at_close.append(lambda: self._lose(link))
        self.reservations[link.peer] = held
        link.held_until_s = held.until_s
        if before is None or before.addresses != held.addresses:
            self._changed()

    def _read(self, link: Link, answer: HopMessage) -> Reservation | None:
        """What a relay's answer gives; RemoteError where it contradicts itself."""
        if answer.type != HopMessage.STATUS or answer.status != pb.OK:
            return None
        if not answer.HasField("reservation"):
            return None
        given = answer.reservation
        if given.HasField("voucher"):
            check_voucher(given.voucher, link.peer, self._host.peer)
        left_s = min(max(given.expire - time.time(), LIFE_S_MIN), LIFE_S_MAX)
        now_s = trio.current_time()
        addresses = self._addresses(link, given.addrs)
        if not addresses:
            return None
        return Reservation(link, addresses, now_s + left_s / 2, now_s + left_s)

    def _addresses(self, link: Link, told: Sequence[bytes]) -> tuple[str, ...]:
        """Relayed addresses: where this node reached the relay, then what the relay says."""
        direct = {} if link.reached_at is None else {link.reached_at.partition("/p2p/")[0]: None}
        for data in told[:16]:
            text = address_text(data)
            if text is None:
                continue
            with suppress(LocalError):
                if relay_of(text) is None and is_dialable(text, link.peer):
                    direct[text.partition("/p2p/")[0]] = None
        if not direct:
            direct[link.remote_address] = None
        relayed = (relayed_address(Relay(link.peer, each)) for each in direct)
        return tuple(relayed)[:ADDRESSES_PER_RELAY_MAX]

    def _lose(self, link: Link) -> None:
        """A reservation is lost."""
        held = self.reservations.get(link.peer)
        if held is not None and held.link is link:
            del self.reservations[link.peer]
            self.look()
            self._lost.set()

    async def _tell_losses(self) -> None:
        """Tell of losses a moment later: what closes a connection is in the middle of something."""
        while True:
            await self._lost.wait()
            self._lost = trio.Event()
            self._changed()

    # Circuits.

    async def dial(self, peer: PeerId, addresses: Sequence[str]) -> Link:
        """Connect to a peer through the first relay that connects to it."""
        reasons: list[str] = []
        deadline = trio.current_time() + CONNECT_S_MAX
        for left, address in zip(range(len(addresses), 0, -1), addresses, strict=True):
            now_s = trio.current_time()
            reason = "no answer in time from the relay, or from the peer through it"
            with trio.move_on_at(now_s + (deadline - now_s) / left):
                try:
                    return await self._dial(peer, address)
                except (LocalError, RemoteError, OSError) as error:
                    reason = str(error)
            reasons.append(reason)
        said = [f"{where}: {why}" for where, why in zip(addresses, reasons, strict=True)]
        raise DialError("; ".join(said), reasons)

    async def _dial(self, peer: PeerId, address: str) -> Link:
        relay = relay_of(address, peer)
        if relay is None or relay.peer in (peer, self._host.peer):
            raise DialError("not an address through another relay")
        carrier = await self._neighbours.carrier(relay)
        assert self._nursery is not None, "the node runs"
        stream = await carrier.open_stream(HOP)
        try:
            await say(stream, HopMessage(type=HopMessage.CONNECT, peer=pb.Peer(id=peer)))
            answer = await hear(stream, HopMessage)
            if answer.type != HopMessage.STATUS or answer.status != pb.OK:
                raise DialError(_RELAY_SAYS.get(answer.status, "the relay refuses"))
            pipe = Pipe.open()
        except BaseException:
            stream.reset()
            raise
        self._nursery.start_soon(self._carry, stream, pipe)
        link = await self._host.dial_over(pipe.near, Carried.over(carrier), peer)
        link.reached_at = address
        return link

    async def _carry(self, stream: Stream, pipe: Pipe) -> None:
        with stream:
            await carry(stream, pipe.far)

    async def _accept(self, stream: Stream) -> None:
        """Take a circuit that a relay brings, if it has a reservation for this node."""
        with trio.fail_after(ANSWER_S_MAX):
            asked = await hear(stream, StopMessage)
            held = self.reservations.get(stream.link.peer)
            status = pb.OK
            if asked.type != StopMessage.CONNECT:
                status = pb.UNEXPECTED_MESSAGE
            elif held is None or held.link is not stream.link:
                status = pb.PERMISSION_DENIED
            else:
                try:
                    peer_in(asked.peer.id)
                except RemoteError:
                    status = pb.MALFORMED_MESSAGE
            await say(stream, StopMessage(type=StopMessage.STATUS, status=status))
        if status != pb.OK:
            return
        assert self._nursery is not None, "the node runs"
        try:
            pipe = Pipe.open()
        except OSError:
            stream.reset()  # No file descriptors are left.
            return
        carried = Carried.over(stream.link)
        self._nursery.start_soon(
            self._host.welcome_over, pipe.near, carried, self._neighbours.accepted
        )
        await carry(stream, pipe.far)
