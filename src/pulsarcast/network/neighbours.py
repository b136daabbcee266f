"""Neighbours: the peers that we are connected to, one connection each, and how those come and go.

A connection begins with a Hello of whoever dialled. Who was dialled answers with its own once it
takes the connection; from then on both may speak. Where two peers dial each other at once, the one
with the lower id holds the other's connection in reserve until its own is open or has failed, so
both come to the same one and nothing that was said is lost.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from operator import itemgetter
from typing import Final, TypeAlias

import trio
from msgspec.structs import replace

from pulsarcast.model.errors import Rejection, RemoteError, Verdict
from pulsarcast.model.ids import PeerId
from pulsarcast.model.reach import Reach
from pulsarcast.network import identify, ping
from pulsarcast.network.addresses import CIRCUIT, AddressBook
from pulsarcast.network.circuits import HOP
from pulsarcast.network.dials import DIALS_MAX, Dials
from pulsarcast.network.guests import Guests
from pulsarcast.network.host import DialError, Host
from pulsarcast.network.link import Link
from pulsarcast.network.multiaddrs import Relay, scope_of
from pulsarcast.network.neighbour import Connection, Listener, Neighbour, Refused, Topic
from pulsarcast.network.replacing import REPLACES, Replacing
from pulsarcast.network.resources import NOTED_BYTES, SHORT_TURN_S, SLICE_FRAMES, TURN_S, Why
from pulsarcast.network.room import Holder, Room
from pulsarcast.network.streams import Service, Stream
from pulsarcast.protocol.messages import Contact
from pulsarcast.wire.framing import write_frames
from pulsarcast.wire.hello import HELLO_BYTES_MAX, Hello, decode_hello, encode_hello
from pulsarcast.wire.lanes import FREE_BYTES, FULL_BYTES, QUEUE_BYTES_MAX

HELLO_S_MAX: Final = 25.0
"""Longer than a dial may take: the answer may have to wait for one."""
SEARCH_S_MAX: Final = 15.0
BACKOFF_S: Final = 1.0
BACKOFF_S_MAX: Final = 60.0
REFUSED_MAX: Final = 4096
IDLE_S: Final = 180.0
"""Three times as long as the core's heartbeat is ever apart: tree neighbours never idle."""
KEPT_MAX: Final = 512
"""Idle connections that a public node keeps to peers which it could not dial again: half of all
connections, since the other half is for peers that use theirs."""
KEPT_PRIVATE_MAX: Final = 16
"""Idle connections that a node keeps which is not public itself: more would fill public nodes."""
RECENT_S: Final = 5.0
"""Where a peer hangs up this soon after we said something, that may be lost."""


DialThrough: TypeAlias = Callable[[PeerId, Sequence[str]], Awaitable[Link]]
"""Dials a peer at relayed addresses; DialError where no relay connects to it."""


class Neighbours:
    """All connections of a node."""

    def __init__(
        self,
        me: PeerId,
        host: Host,
        book: AddressBook,
        hello: Callable[[], Hello],
        listener: Listener,
        *,
        idle_s: float = IDLE_S,
    ) -> None:
        self.me = me
        self.host = host
        self.book = book
        self._hello = hello
        self._listener = listener
        self._idle_s = idle_s
        self._neighbours: dict[PeerId, Neighbour] = {}
        self._dirty: dict[PeerId, Link] = {}
        self._refused: dict[PeerId, Refused] = {}
        self._links: dict[Link, Connection] = {}
        self._room = Room(listener, book, self._neighbours, self._links)
        self.guests = Guests()
        self._dials = Dials()
        self._relayed_dials = trio.CapacityLimiter(DIALS_MAX)
        """Relayed dials wait for direct ones, to relays, and so have places of their own."""
        self.dial_through: DialThrough | None = None
        self.keeps_relays: Callable[[], bool] = lambda: False
        """Whether a peer that does not speak our protocol is of use, if it is a relay."""
        self._replacing = Replacing(listener)
        self.on_relay: Callable[[], None] = lambda: None
        """Called where such a peer is connected."""
        self._moved = trio.Event()
        """Set, and replaced, when a dial has come to something or to nothing."""
        self.ready = trio.Event()
        """Set once peers can be dialled."""
        self._nursery: trio.Nursery | None = None
        self._bytes_in = 0
        self._bytes_out = 0
        host.services[identify.PROTOCOL] = Service(
            self._answer_identify, identify.STREAMS_MAX, identify.ANSWER_S_MAX
        )
        host.services[ping.PROTOCOL] = Service(ping.answer, ping.STREAMS_MAX, math.inf)

    # For the driver.

    def send(self, peer: PeerId, frame: bytes, topic: Topic | None = None) -> None:
        """Put a frame, its length in front, into the peer's queue, dialling first if need be.

        Payload has a `topic`; without one it is control, and goes ahead.
        """
        neighbour = self._neighbours.get(peer)
        if neighbour is None:
            neighbour = self._begin(peer)
        connection = neighbour.connection
        if connection is None:
            neighbour.waiting.append((frame, topic))
            neighbour.waiting_bytes += len(frame)
            queued = neighbour.waiting_bytes
        else:
            link = connection.link
            if topic is None:
                link.send(frame)
            else:
                link.send_payload(frame, topic)
            self._dirty[peer] = link
            queued = link.queued_bytes
        if queued > FULL_BYTES and not neighbour.is_full:
            neighbour.is_full = True
            self._await_room(neighbour)
            self._listener.filled(peer)
        if queued > NOTED_BYTES:
            self._weigh(neighbour if connection is None else connection.link)
        if queued > QUEUE_BYTES_MAX:
            # It takes in nothing: it will catch up by history.
            self._give_up(neighbour)

    def _await_room(self, neighbour: Neighbour) -> None:
        if neighbour.connection is not None:
            neighbour.connection.link.tell_when_below(
                FREE_BYTES, partial(self._found_room, neighbour)
            )

    def _found_room(self, neighbour: Neighbour) -> None:
        neighbour.is_full = False
        if self._neighbours.get(neighbour.peer) is neighbour:
            self._listener.freed(neighbour.peer)

    def meet(self, peer: PeerId) -> None:
        """Dial a peer, with nothing to say to it yet."""
        if peer not in self._neighbours and peer != self.me:
            self._begin(peer)

    def flush(self) -> None:
        """Let everything that was said leave."""
        if not self._dirty:
            return
        now_s = trio.current_time()
        dirty, self._dirty = self._dirty, {}
        for peer, link in dirty.items():
            link.flush()
            neighbour = self._neighbours.get(peer)
            if neighbour is not None:
                neighbour.said_s = now_s

    def close(self, peer: PeerId) -> None:
        """End the connection to a peer; what the kernel takes at once still arrives."""
        self.flush()
        neighbour = self._neighbours.pop(peer, None)
        if neighbour is not None:
            self._end(neighbour)

    def found(self, peer: PeerId) -> None:
        """A peer that was looked for is in the address book now."""
        neighbour = self._neighbours.get(peer)
        if neighbour is not None and neighbour.connection is None and neighbour.dial is None:
            self._start_dial(neighbour)

    def not_found(self, peer: PeerId) -> None:
        """A peer that was looked for is nowhere."""
        neighbour = self._neighbours.get(peer)
        if neighbour is not None and neighbour.connection is None and neighbour.dial is None:
            self._give_up(neighbour)

    def connected(self) -> list[PeerId]:
        """The peers that can be spoken to."""
        return [each.peer for each in self._neighbours.values() if each.connection is not None]

    def is_connected(self, peer: PeerId) -> bool:
        """Whether a peer can be spoken to."""
        neighbour = self._neighbours.get(peer)
        return neighbour is not None and neighbour.connection is not None

    def links(self) -> list[Link]:
        """The connections to them."""
        connections = [each.connection for each in self._neighbours.values()]
        return [connection.link for connection in connections if connection is not None]

    def connection_to(self, peer: PeerId) -> Connection | None:
        """The connection over which a peer can be spoken to."""
        neighbour = self._neighbours.get(peer)
        return None if neighbour is None else neighbour.connection

    def link_to(self, peer: PeerId) -> Link | None:
        """The connection to a peer, or to a guest."""
        connection = self.connection_to(peer)
        return self.guests.link_to(peer) if connection is None else connection.link

    def is_neighbour(self, link: Link) -> bool:
        """Whether frames go over this connection."""
        connection = self.connection_to(link.peer)
        return connection is not None and connection.link is link

    async def becomes_neighbour(self, link: Link) -> None:
        """Wait until frames go over this connection."""
        while not self.is_neighbour(link):
            await self._moved.wait()

    def relays(self) -> list[Link]:
        """The connections to peers that may be relays."""
        connections = [each.connection for each in self._neighbours.values()]
        public = [each.link for each in connections if each is not None and _is_public(each)]
        return [*public, *self.guests.dialled()]

    async def carrier(self, relay: Relay) -> Link:
        """A direct connection to a relay, the one there is or a new one; DialError without one."""
        neighbour = self._neighbours.get(relay.peer)
        link = self.link_to(relay.peer)
        if neighbour is None and link is None:
            self.book.heard(Contact(relay.peer, (relay.address,)))
            neighbour = self._begin(relay.peer, is_carrier=True)
        while True:
            link = self.link_to(relay.peer)
            if link is not None and link.relay is None:
                return link
            is_gone = neighbour is None or self._neighbours.get(relay.peer) is not neighbour
            if link is not None or is_gone or (neighbour is not None and neighbour.is_relayed):
                raise DialError("no direct connection to the relay")
            await self._moved.wait()

    def renewed(self, peer: PeerId, reach: Reach, addresses: tuple[str, ...]) -> None:
        """A peer can be dialled in another way, or elsewhere, than its Hello said."""
        connection = self.connection_to(peer)
        if connection is not None and connection.hello is not None:
            connection.hello = replace(connection.hello, reach=reach, addresses=addresses)
            self._note_told(connection)

    def observed(self) -> list[str]:
        """Where neighbours see this node's connections come from, what most places say first."""
        links = [link for link in self.links() if link.relay is None]
        seen = {(link.observed_address, link.place) for link in links}
        counts = Counter(address for address, _ in sorted(seen, key=str) if address is not None)
        return [address for address, _ in counts.most_common()]

    def refused(self, peer: PeerId) -> Refused | None:
        """Why a peer could not be reached, if the last dial was in vain."""
        return self._refused.get(peer)

    @property
    def bytes_in(self) -> int:
        """All that came in over sockets; relayed connections run over those of relays."""
        return self._bytes_in + sum(each.bytes_in for each in self._links if each.relay is None)

    @property
    def bytes_out(self) -> int:
        """All that went out over sockets."""
        return self._bytes_out + sum(each.bytes_out for each in self._links if each.relay is None)

    async def run(self) -> None:
        """Accept, dial and tidy up, until cancelled."""
        try:
            async with trio.open_nursery() as self._nursery:
                self._nursery.start_soon(self.host.serve, self.accepted)
                self.ready.set()
                while True:
                    await trio.sleep(self._idle_s / 4)
                    self._close_idle()
        finally:
            for link in list(self._links):
                link.close()

    # Dialling.

    def _begin(self, peer: PeerId, *, is_carrier: bool = False) -> Neighbour:
        assert peer != self.me, "a node does not dial itself"
        neighbour = self._neighbours[peer] = Neighbour(peer, trio.current_time())
        neighbour.is_carrier = is_carrier
        refused = self._refused.get(peer)
        if refused is not None and refused.until_s > trio.current_time():
            self._give_up(neighbour)
        elif self.book.of(peer):
            self._start_dial(neighbour)
        elif self.book.is_private(peer):
            self._give_up(neighbour)  # No other peer can know where to dial it either.
        else:
            assert self._nursery is not None
            self._nursery.start_soon(self._give_up_late, neighbour)
            self._listener.wanted(peer)
        return neighbour

    async def _give_up_late(self, neighbour: Neighbour) -> None:
        await trio.sleep(SEARCH_S_MAX)
        if neighbour.connection is None and neighbour.dial is None:
            self._give_up(neighbour)
            self._listener.gather()

    def _start_dial(self, neighbour: Neighbour) -> None:
        assert self._nursery is not None
        neighbour.dial = trio.CancelScope()
        self._nursery.start_soon(self._dial, neighbour, neighbour.dial)

    async def _dial(self, neighbour: Neighbour, scope: trio.CancelScope) -> None:
        peer = neighbour.peer
        link: Link | None = None
        with scope:
            try:
                link = await self._dial_somehow(neighbour)
            except DialError as error:
                neighbour.dial = None
                if neighbour.connection is None:
                    self._put_off(peer, str(error), error.reasons)
                    if neighbour.spare is not None:
                        self._adopt(neighbour, neighbour.spare)
                    else:
                        self._give_up(neighbour)
                    self._listener.gather()
        if link is None:
            return
        if link.reached_at is not None and link.relay is None:
            self.book.reached(peer, link.reached_at)
        if scope.cancelled_caught or self._neighbours.get(peer) is not neighbour:
            link.close()
            return
        connection = Connection(link)
        self._say_hello(connection)
        link.flush()
        await self._listen(connection, neighbour)

    async def _dial_somehow(self, neighbour: Neighbour) -> Link:
        """Dial a peer directly, and if that fails through a relay."""
        addresses = self.book.of(neighbour.peer)
        relayed = [each for each in addresses if CIRCUIT in each]
        direct = [each for each in addresses if CIRCUIT not in each]
        through = None if neighbour.is_carrier or not relayed else self.dial_through
        reasons: tuple[str, ...] = ()
        text = ""
        if direct or through is None:
            try:
                return await self._dials.run(
                    self.book.namer_of(neighbour.peer),
                    partial(self.host.dial, neighbour.peer, direct),
                )
            except DialError as error:
                if through is None:
                    raise
                text, reasons = f"{error}; ", error.reasons
        assert through is not None
        neighbour.is_relayed = True
        self._say_moved()
        try:
            async with self._relayed_dials:
                return await through(neighbour.peer, relayed)
        except DialError as error:
            raise DialError(f"{text}{error}", (*reasons, *error.reasons)) from error

    def _say_moved(self) -> None:
        moved, self._moved = self._moved, trio.Event()
        moved.set()

    def _put_off(self, peer: PeerId, reason: str, reasons: Sequence[str]) -> None:
        now_s = trio.current_time()
        last = self._refused.pop(peer, None)
        wait_s = BACKOFF_S if last is None else min(2 * last.wait_s, BACKOFF_S_MAX)
        since_s = now_s if last is None else last.since_s
        kinds = tuple(sorted(set(reasons)))
        self._refused[peer] = Refused(since_s, now_s + wait_s, wait_s, reason, kinds)
        if len(self._refused) > REFUSED_MAX:
            del self._refused[next(iter(self._refused))]
        if last is None or last.kinds != kinds:
            self._listener.unreachable(peer, reason)

    def _give_up(self, neighbour: Neighbour) -> None:
        if self._neighbours.get(neighbour.peer) is neighbour:
            del self._neighbours[neighbour.peer]
            self._room.forget(neighbour)
            self._end(neighbour)
            self._listener.lost(neighbour.peer)
            self._say_moved()

    # Listening.

    async def accepted(self, link: Link) -> None:
        """Hear what a peer has to say that dialled us, until the connection ends."""
        await self._listen(Connection(link), None)

    async def _listen(self, connection: Connection, dialling: Neighbour | None) -> None:
        link = connection.link
        self._links[link] = connection
        if len(self._links) > self.host.resources.connections_max:
            for each in self._room.to_close_for(link):
                self._cut_off(each, Why.CONNECTIONS)
        assert self._nursery is not None
        self._nursery.start_soon(self._expect_hello, connection)

        def receive(frames: list[bytes]) -> list[bytes] | None:
            began_s = time.perf_counter()
            rest: list[bytes] | None = None
            if link.held_bytes > NOTED_BYTES:
                self._weigh(link)
            if not frames:
                neighbour = self._neighbours.get(link.peer)
                if neighbour is not None and neighbour.connection is connection:
                    neighbour.heard_s = trio.current_time()
                    self._listener.moving(link.peer)
                return None
            if connection.hello is None:
                connection.hello = self._check_hello(decode_hello(frames[0]))
                connection.patience.cancel()
                frames = frames[1:]
                self._introduce(connection)
            neighbour = self._neighbours.get(link.peer)
            is_useful = False
            if neighbour is not None and connection in (neighbour.connection, neighbour.leaving):
                neighbour.heard_s = trio.current_time()
                if neighbour.leaving in (None, connection):
                    rest, is_useful = self._received(link, frames, began_s)
                else:
                    connection.held += frames
            # Nobody may speak before it has our Hello; what comes over any other link is not heard.
            is_short = time.perf_counter() - began_s < SHORT_TURN_S
            # It may commit what others sent: that alone makes no turn long.
            self._listener.gather()
            if not (is_short or is_useful or self._room.is_relied_on(link.peer)):
                link.took_s = time.perf_counter() - began_s
            return rest

        try:
            await link.run(receive, self._guest_welcome(link, dialling), HELLO_BYTES_MAX)
        except RemoteError as error:
            connection.fault = f"the peer there broke a rule: {error}"
            self._listener.blamed(link.peer, error)
        finally:
            link.close()
            connection.patience.cancel()
            self._links.pop(link, None)
            self._room.forget(link)
            self.guests.forget(link)
            if link.relay is None:
                self._bytes_in += link.bytes_in
                self._bytes_out += link.bytes_out
            if dialling is not None:
                dialling.dial = None
            self._ended(connection, dialling)
            # Also what was said before the peer broke a rule, and waits to be done.
            self._listener.gather()

    def _guest_welcome(self, link: Link, dialling: Neighbour | None) -> Callable[[], None] | None:
        """What to do if a peer does not speak our protocol; None: the connection ends."""
        if dialling is None:
            return partial(self.guests.welcome, link)
        if dialling.is_carrier or self.keeps_relays():
            return partial(self._keep_relay, link, dialling)
        return None

    def _keep_relay(self, link: Link, dialling: Neighbour) -> None:
        """A peer that we dialled does not speak our protocol: it may still be a relay."""
        where = link.reached_at or link.remote_address
        fault = "it does not speak the protocol of Pulsarcast"
        self.guests.welcome(link)
        self.on_relay()
        dialling.dial = None
        self._put_off(link.peer, f"{where}: {fault}", (fault,))
        self._give_up(dialling)

    async def _expect_hello(self, connection: Connection) -> None:
        link = connection.link
        with connection.patience:
            await trio.sleep(HELLO_S_MAX)
            if link in self.guests:
                await self.guests.see_off(link)
            link.close()

    # Room, and time.

    def _received(
        self, link: Link, frames: list[bytes], began_s: float
    ) -> tuple[list[bytes] | None, bool]:
        """Hand over what a peer said, as long as its turn is; what is left comes back.

        Also whether the last of it was news: that takes nothing of the peer's time, since honest
        children bring much of it.
        """
        is_news = False
        for at in range(0, len(frames), SLICE_FRAMES):
            is_news = self._listener.received(link.peer, frames[at : at + SLICE_FRAMES])
            if not link.is_open:
                break
            now_s = time.perf_counter()
            if is_news:
                began_s = now_s
            elif now_s - began_s > TURN_S and not self._room.is_relied_on(link.peer):
                return frames[at + SLICE_FRAMES :], is_news
        return None, is_news

    def blame(self, peer: PeerId) -> None:
        """A peer made a fault that no honest one makes: too many cost it its connection."""
        link = self.link_to(peer)
        if link is not None and link.is_at_fault():
            self.host.resources.handshakes.watch(link.place)
            self._cut_off(link, Why.FAULTS)

    def _weigh(self, holder: Holder) -> None:
        """A connection, or a peer that is being dialled, holds much: make room if need be."""
        for each in self._room.to_drop(holder):
            if isinstance(each, Link):
                self._cut_off(each, Why.BYTES)
            else:
                self.host.resources.cut_off[Why.BYTES] += 1
                self._give_up(each)

    def _cut_off(self, link: Link, why: Why) -> None:
        """Close a connection for want of room."""
        self.host.resources.cut_off[why] += 1
        self._room.forget(link)
        link.close(goodbye=True)

    # What neighbours and guests may ask.

    async def _answer_identify(self, stream: Stream) -> None:
        ours = self._hello()
        # A relay is sought by what it speaks: a node that is not public is none.
        served = [each for each in self.host.services if each != HOP or ours.reach is Reach.PUBLIC]
        await identify.answer(stream, self.me, ours.addresses, served)

    async def _ask_observed(self, link: Link) -> None:
        """Ask a peer where it sees us: a node behind a NAT cannot know by itself."""
        try:
            link.observed_address = (await identify.ask(link)).observed
        except RemoteError as error:
            if error.verdict is Verdict.REJECT:
                self._listener.blamed(link.peer, error)

    def _check_hello(self, hello: Hello) -> Hello:
        ours = self._hello()
        if hello.network != ours.network:
            raise RemoteError(
                f"of another network: {hello.network!r}", code=Rejection.OTHER_NETWORK
            )
        if not {*hello.versions} & {*ours.versions}:
            raise RemoteError(
                f"speaks versions {hello.versions} only", code=Rejection.UNKNOWN_VERSION
            )
        return hello

    def _introduce(self, connection: Connection) -> None:
        """A peer has said Hello: decide whether this is the connection to it."""
        link, hello = connection.link, connection.hello
        assert hello is not None
        if link.peer == self.me:
            if hello.instance != self._hello().instance:
                self._listener.met_double(link.remote_address)
            link.close()
            return
        neighbour = self._neighbours.get(link.peer)
        if connection.replaces is not None or REPLACES in hello.features:
            self._replace(neighbour, connection)
            return
        if neighbour is None:
            neighbour = self._neighbours[link.peer] = Neighbour(link.peer, trio.current_time())
        if link.dialled:
            if neighbour.connection is None:
                self._adopt(neighbour, connection)
            else:
                link.close()
            return
        if self._is_mine_first(neighbour, hello):
            if neighbour.spare is not None:
                neighbour.spare.link.close()
            neighbour.spare = connection
            return
        if neighbour.connection is not None:
            # It has not heard yet that the last connection ended: this is how we learn.
            neighbour.connection.link.close()
            neighbour.connection = None
            if neighbour.leaving is not None:
                neighbour.leaving.link.close()
                neighbour.leaving = None
            self._listener.lost(link.peer)
        self._adopt(neighbour, connection)

    def _is_mine_first(self, neighbour: Neighbour, hello: Hello) -> bool:
        """Whether a connection that we dialled, or still dial, goes before one from the peer."""
        if self.me > neighbour.peer:
            return False
        if neighbour.connection is None:
            return neighbour.dial is not None
        theirs = neighbour.connection.hello
        assert theirs is not None
        return neighbour.connection.link.dialled and theirs.instance == hello.instance

    def _adopt(self, neighbour: Neighbour, connection: Connection) -> None:
        """Both speak over this connection from now on."""
        link, hello = connection.link, connection.hello
        assert hello is not None
        if neighbour.dial is not None and not link.dialled:
            neighbour.dial.cancel()
            neighbour.dial = None
        if neighbour.spare is connection:
            neighbour.spare = None
        elif neighbour.spare is not None:
            neighbour.spare.link.close()
            neighbour.spare = None
        neighbour.connection = connection
        self._refused.pop(neighbour.peer, None)
        self._note_told(connection)
        if not link.dialled:
            self._say_hello(connection)
        for frame, topic in neighbour.waiting:
            if topic is None:
                link.send(frame)
            else:
                link.send_payload(frame, topic)
        neighbour.waiting, neighbour.waiting_bytes = [], 0
        if neighbour.is_full:
            self._await_room(neighbour)
        self._dirty[neighbour.peer] = link
        assert connection.said is not None
        self._listener.up(
            Contact(neighbour.peer, hello.addresses), link, hello.reach, connection.said
        )
        self._say_moved()
        if link.dialled and link.relay is None and self._hello().reach is not Reach.PUBLIC:
            assert self._nursery is not None
            self._nursery.start_soon(self._ask_observed, link)

    # A direct connection in the place of a relayed one.

    def replace(self, relayed: Link, link: Link) -> None:
        """Go on over a direct connection to the peer of a relayed one, as its client."""
        assert self._nursery is not None
        current = self.connection_to(link.peer)
        if current is None or current.link is not relayed:
            link.close()
            return
        connection = self._replacing.propose(current, link)
        self._say_hello(connection, features=(REPLACES,))
        link.flush()
        self._nursery.start_soon(self._listen, connection, None)

    def take_in(self, link: Link) -> None:
        """Hear what a peer has to say at the server's end of a connection."""
        assert self._nursery is not None
        self._nursery.start_soon(self.accepted, link)

    def _replace(self, neighbour: Neighbour | None, connection: Connection) -> None:
        """Both ends have a connection that replaces a relayed one: go over."""
        assert self._nursery is not None
        old = self._replacing.accept(neighbour, connection)
        if neighbour is None or old is None:
            connection.link.close()
            return
        if not connection.link.dialled:
            self._say_hello(connection)
        self._dirty[neighbour.peer] = connection.link
        self._nursery.start_soon(self._replacing.see_through, neighbour, connection, old)

    @property
    def replaced(self) -> int:
        """Relayed connections that direct ones have replaced."""
        return self._replacing.count

    def _say_hello(self, connection: Connection, features: tuple[str, ...] = ()) -> None:
        connection.said = replace(self._hello(), features=features)
        connection.link.send(write_frames([encode_hello(connection.said)]))

    def _note_told(self, connection: Connection) -> None:
        """Take what a peer says of itself into the address book."""
        link, hello = connection.link, connection.hello
        assert hello is not None
        near = self._listener.is_near(link)
        scope = scope_of(link.remote_address)
        addresses = tuple(each for each in hello.addresses if scope_of(each) >= scope)
        self.book.told_by_itself(link.peer, addresses, hello.reach, near=near)

    # Ending.

    def _ended(self, connection: Connection, dialling: Neighbour | None) -> None:
        peer = connection.link.peer
        neighbour = self._neighbours.get(peer)
        if neighbour is None:
            return
        if neighbour.spare is connection:
            neighbour.spare = None
        elif neighbour.leaving is connection:
            self._replacing.ended(neighbour)
        elif neighbour.connection is connection:
            neighbour.connection = None
            self._dirty.pop(peer, None)
            if self._hung_up_idly(neighbour, connection) and self._can_dial(connection):
                del self._neighbours[peer]
                return
            self._next_or_lost(neighbour)
        elif neighbour.connection is None and dialling is neighbour:
            # Our connection was closed before it was taken.
            where = connection.link.reached_at or connection.link.remote_address
            self._put_off(peer, f"{where}: {connection.fault}", (connection.fault,))
            self._next_or_lost(neighbour)

    def _next_or_lost(self, neighbour: Neighbour) -> None:
        spare = neighbour.spare
        if neighbour.connection is None and spare is not None:
            self._listener.lost(neighbour.peer)
            self._adopt(neighbour, spare)
        else:
            self._give_up(neighbour)

    def _hung_up_idly(self, neighbour: Neighbour, connection: Connection) -> bool:
        """Whether the peer closed a connection in good order that nobody had used for a while."""
        return (
            connection.link.said_goodbye
            and neighbour.spare is None
            and trio.current_time() - neighbour.said_s > RECENT_S
        )

    def _end(self, neighbour: Neighbour) -> None:
        self._dirty.pop(neighbour.peer, None)
        if neighbour.dial is not None:
            neighbour.dial.cancel()
        for connection in (neighbour.connection, neighbour.spare, neighbour.leaving):
            if connection is not None:
                connection.link.close()

    def _close_idle(self) -> None:
        """Close what nobody uses; what one side could not dial again is kept, within bounds."""
        now_s = trio.current_time()
        is_public = self._hello().reach is Reach.PUBLIC
        kept: list[tuple[float, Neighbour, Connection]] = []
        for neighbour in list(self._neighbours.values()):
            connection = neighbour.connection
            used_s = max(neighbour.said_s, neighbour.heard_s)
            if connection is None or neighbour.spare is not None or now_s - used_s <= self._idle_s:
                continue
            if connection.link.is_held:
                continue
            if is_public and _is_public(connection):
                # Both may dial again at any time, so the core need not know.
                del self._neighbours[neighbour.peer]
                connection.link.close(goodbye=True)
            else:
                kept.append((used_s, neighbour, connection))
        kept.sort(key=itemgetter(0), reverse=True)
        for _, neighbour, connection in kept[KEPT_MAX if is_public else KEPT_PRIVATE_MAX :]:
            del self._neighbours[neighbour.peer]
            connection.link.close(goodbye=True)
            if not self._can_dial(connection):
                self._listener.lost(neighbour.peer)
        self._listener.gather()

    def _can_dial(self, connection: Connection) -> bool:
        """Whether this node could dial the peer of a connection again."""
        return connection.link.dialled or _is_public(connection)


def _is_public(connection: Connection) -> bool:
    return connection.hello is not None and connection.hello.reach is Reach.PUBLIC
