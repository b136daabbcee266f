"""Listening and dialling: TCP, libp2p's Noise handshake, and a Link at the end.

A connection is negotiated and authenticated as libp2p has it (docs/decisions/0027), on plain
non-blocking sockets. Noise and Yamux are all that is offered: a peer that wants plaintext, TLS or
another muxer is turned away.

Nothing that arrives early is lost: one `_Wire` buffers from the first byte on, first what is plain
and then what Noise opened, and hands the rest to the Link.
"""

from __future__ import annotations

import errno
import os
import selectors
import socket
from collections.abc import Awaitable, Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

import trio

from pulsarcast.model.errors import Conflict, LocalError, Rejection, RemoteError
from pulsarcast.model.identity import Identity
from pulsarcast.model.ids import PeerId, peer_text
from pulsarcast.network.handshake import PROTOCOL as NOISE
from pulsarcast.network.handshake import Dialler, Listener, StaticKey
from pulsarcast.network.link import Link
from pulsarcast.network.multiaddrs import (
    FAMILIES,
    Relay,
    host_of,
    parse_address,
    place_of_host,
    relay_of,
    relayed_address,
)
from pulsarcast.network.negotiation import ask_for, offer
from pulsarcast.network.noise import LENGTH_BYTES, NoiseFraming, length_bytes
from pulsarcast.network.resources import Handshake, Resources
from pulsarcast.network.streams import Services
from pulsarcast.network.yamux import PROTOCOL as YAMUX

HANDSHAKE_S_MAX: Final = 10.0
DIAL_S_MAX: Final = 10.0
"""For all addresses of a peer together; each gets its share of what is left."""
BACKLOG: Final = 1024
NO_ANSWER: Final = "no answer in time: the machine is off or away, or a firewall is between"
SILENT: Final = "a program listens there and says nothing: it hangs, or is no node of Pulsarcast"
NO_NODE: Final = "a program answers there that is no node of Pulsarcast"
CLOSED: Final = (
    "it closed the connection at once: another program listens there, or a node with too many peers"
)
KEEPALIVE_S: Final = 45
"""Silence on a connection before TCP asks whether the other end is still there: it keeps the
mappings of NATs, some of which forget after a minute, and finds ends that went without a word."""
KEEPALIVE_PROBES: Final = 3
"""TCP's questions without an answer that end a connection, a third of that time apart."""
UNSENT_BYTES_MAX: Final = 128 * 1024
"""What the kernel takes beyond what is on its way: more would stand in line before control."""
UNTAKEN_MS: Final = 60_000
"""How long what was sent may wait for the other end's kernel, where ours counts that (Linux)."""
RETRY_S: Final = 0.1
"""Until the next attempt to accept, where the process is out of file descriptors."""

_READ_BYTES: Final = 4096

_IP_BIND_ADDRESS_NO_PORT: Final = 24
"""Linux has it, and Python no name for it."""


class AddressInUseError(Conflict):
    """Another program listens at this address."""


class AddressMissingError(LocalError):
    """This machine does not have this address, or no address of its kind, such as IPv6."""


class DialError(LocalError):
    """A peer could not be reached at any of its addresses, or was not the one to be reached."""

    def __init__(self, message: str, reasons: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.reasons = tuple(reasons)
        """Why not, at each address."""


_LISTENING: Final[dict[int | None, type[LocalError]]] = {
    errno.EADDRINUSE: AddressInUseError,
    errno.EADDRNOTAVAIL: AddressMissingError,
    errno.EAFNOSUPPORT: AddressMissingError,
}


class Carried(NamedTuple):
    """Where a circuit runs: what a Link knows of its ends instead of a socket's names."""

    relay: PeerId
    remote_address: str
    """The relayed address of any peer at this relay: its host is the relay's."""
    local_address: str

    @classmethod
    def over(cls, link: Link) -> Carried:
        """A circuit over a connection to a relay."""
        remote = relayed_address(Relay(link.peer, link.remote_address))
        return cls(link.peer, remote, link.local_address)


class Host:
    """Where our peer listens and dials from."""

    def __init__(
        self,
        identity: Identity,
        *,
        handshake_s_max: float = HANDSHAKE_S_MAX,
        dial_s_max: float = DIAL_S_MAX,
        dial_from: str | None = None,
        resources: Resources | None = None,
    ) -> None:
        self.peer = identity.peer_id
        self.resources = resources or Resources()
        self.services = Services()
        """What peers may open further streams for."""
        self._static = StaticKey(identity)
        self._handshake_s_max = handshake_s_max
        self._dial_s_max = dial_s_max
        self._dial_from = dial_from
        """Of several addresses that the machine has, the one to dial from."""
        self._listeners: list[socket.socket] = []
        self._expected: dict[str, Callable[[socket.socket], None]] = {}
        """Who takes connections that come from an IP address where a hole is being punched."""
        self._links: dict[Link, socket.socket] = {}
        self._arrivals = selectors.DefaultSelector()
        """Sees which of their sockets have something to read."""

    @property
    def connection_count(self) -> int:
        """Authenticated connections that are open, dialled and accepted."""
        return len(self._links)

    def has_arrivals(self) -> bool:
        """Whether bytes of any peer have arrived that nobody has read yet."""
        return bool(self._arrivals.select(0))

    async def listen(self, address: str) -> tuple[str, ...]:
        """Listen at a multiaddr such as /ip4/127.0.0.1/tcp/0; return where that really is."""
        if relay_of(address) is not None:
            raise LocalError(f"cannot listen at {address}: a relay listens there")
        opened: list[socket.socket] = []
        try:
            for family, name in await _resolve(address):
                opened.append(_listener(family, name))
        except (OSError, ValueError) as error:
            for listener in opened:
                listener.close()
            kind = _LISTENING.get(getattr(error, "errno", None), LocalError)
            raise kind(f"cannot listen at {address}: {_reason(error)}") from error
        self._listeners += opened
        return tuple(_address_text(listener.getsockname()) for listener in opened)

    async def serve(self, accepted: Callable[[Link], Awaitable[None]]) -> None:
        """Accept connections at all addresses listened at, until cancelled.

        `accepted` owns the link that it gets: it runs it, and the connection ends when it returns.
        """
        try:
            async with trio.open_nursery() as nursery:
                for listener in self._listeners:
                    nursery.start_soon(self._accept, listener, nursery, accepted)
        finally:
            self.close()

    def close(self) -> None:
        """Stop listening; links live on."""
        for listener in self._listeners:
            if listener.fileno() >= 0:
                trio.lowlevel.notify_closing(listener.fileno())
                listener.close()
        self._listeners.clear()

    def close_links_except(self, addresses: Container[str]) -> list[PeerId]:
        """Close the connections that end at an IP address of this machine which is none of these.

        Nothing arrives over them any more, and TCP would take many minutes to say so. Returns the
        peers at their other ends.
        """
        closed: dict[PeerId, None] = {}
        for link, connection in list(self._links.items()):
            if link.relay is not None:
                continue  # It ends with the connection that carries it.
            host: str = connection.getsockname()[0]
            if host.partition("%")[0] not in addresses:
                closed[link.peer] = None
                link.close()
        return list(closed)

    async def dial(
        self, peer: PeerId, addresses: Sequence[str], *, s_max: float | None = None
    ) -> Link:
        """Connect to a peer at the first of these addresses where it answers and proves itself."""
        reasons: list[str] = []
        deadline = trio.current_time() + (self._dial_s_max if s_max is None else s_max)
        for left, address in zip(range(len(addresses), 0, -1), addresses, strict=True):
            now = trio.current_time()
            late = [NO_ANSWER]
            reason = ""
            with trio.move_on_at(now + (deadline - now) / left):
                try:
                    link = await self._dial(peer, address, late)
                    link.reached_at = address
                    return link
                except (LocalError, OSError, ValueError) as error:
                    # ValueError: what a resolver says of names that it cannot even write down.
                    reason = _reason(error)
            reasons.append(reason or late[-1])
        said = [f"{where}: {why}" for where, why in zip(addresses, reasons, strict=True)]
        raise DialError("; ".join(said) or "no address is known", reasons)

    async def dial_over(self, connection: socket.socket, carried: Carried, peer: PeerId) -> Link:
        """Shake hands with a peer at the other end of a circuit; the socket is the link's then."""
        return await self._secure(connection, peer, carried)

    async def welcome_over(
        self,
        connection: socket.socket,
        carried: Carried,
        accepted: Callable[[Link], Awaitable[None]],
    ) -> None:
        """Authenticate a peer that dialled us over a circuit, and hand the link over."""
        await self._welcome(connection, accepted, Handshake(""), carried)

    # From the port that we listen at.

    async def connect_from_port(self, address: str) -> socket.socket:
        """Open a connection from a port that we listen at: a NAT maps it as it maps that port."""
        ((family, name),) = await _resolve(address)
        return await _connect(family, name, *self._port_of(family))

    async def secure(self, connection: socket.socket, peer: PeerId, *, as_client: bool) -> Link:
        """Shake hands with this peer; DialError where it is another one.

        Where both ends have dialled, one of them has to be the server.
        """
        with trio.move_on_after(self._handshake_s_max):
            link = await self._secure(connection, peer if as_client else None)
            if link.peer == peer:
                return link
            link.close()
            raise DialError(f"another peer answers there: {peer_text(link.peer)}")
        raise DialError(SILENT)

    @contextmanager
    def expect(
        self, addresses: Iterable[str], take: Callable[[socket.socket], None]
    ) -> Iterator[None]:
        """Hand over, unread, what comes in meanwhile from the hosts of these addresses."""
        hosts = {host_of(each) for each in addresses} - self._expected.keys()
        for host in hosts:
            self._expected[host] = take
        try:
            yield
        finally:
            for host in hosts:
                del self._expected[host]

    def _port_of(self, family: int) -> tuple[str | None, int]:
        """Where to dial from so that a NAT maps it as what we listen at; OSError if nowhere."""
        for listener in self._listeners:
            if listener.family == family and hasattr(socket, "SO_REUSEPORT"):
                host, port = listener.getsockname()[:2]
                is_chosen = self._dial_from is not None and family == socket.AF_INET
                return self._dial_from if is_chosen else host, port
        raise OSError(errno.EADDRNOTAVAIL, "the node does not listen at an address of this kind")

    async def _dial(self, peer: PeerId, address: str, late: list[str]) -> Link:
        """Connect to a peer at one address, or at the addresses behind one name.

        The last of `late` says what it means if nothing more comes of it.
        """
        if relay_of(address) is not None:
            raise DialError("a relay listens there")
        failure: LocalError | OSError = DialError("no address behind this name")
        for family, name in await _resolve(address, peer):
            try:
                late.append(NO_ANSWER)
                connection = await _connect(family, name, self._dial_from)
                late.append(SILENT)
                return await self._secure(connection, peer)
            except (DialError, OSError) as error:
                failure = error
        raise failure

    async def _accept(
        self,
        listener: socket.socket,
        nursery: trio.Nursery,
        accepted: Callable[[Link], Awaitable[None]],
    ) -> None:
        """Accept connections of one listener, as there is room for their handshakes."""
        while True:
            try:
                connection = await _accept_one(listener)
            except trio.ClosedResourceError:
                return
            host = _host_of_peer(connection)
            if self._expected and (take := self._expected.get(host)):
                take(connection)
                continue
            try:
                handshake = await self.resources.handshakes.enter(place_of_host(host))
            except BaseException:
                connection.close()
                raise
            nursery.start_soon(self._welcome, connection, accepted, handshake)

    async def _welcome(
        self,
        connection: socket.socket,
        accepted: Callable[[Link], Awaitable[None]],
        handshake: Handshake,
        carried: Carried | None = None,
    ) -> None:
        """Authenticate one who dialled us, and hand the link over."""
        handshake.scope.deadline = trio.current_time() + self._handshake_s_max
        try:
            with handshake.scope:
                link = await self._secure(connection, None, carried, handshake)
        except DialError:
            return
        finally:
            self.resources.handshakes.leave(handshake)
        if handshake.scope.cancelled_caught:
            return
        try:
            await accepted(link)
        except RemoteError:
            pass  # a peer's fault ends its own connection, and never the server
        finally:
            link.close()

    async def _secure(
        self,
        connection: socket.socket,
        peer: PeerId | None,
        carried: Carried | None = None,
        handshake: Handshake | None = None,
    ) -> Link:
        """Shake hands: with this peer as the dialler, or with whoever it is as the listener.

        The socket is the link's afterwards, or closed.
        """
        dialled = peer is not None
        try:
            if carried is None:
                _prepare(connection)
                remote_address = _address_text(connection.getpeername())
                local_address = _address_text(connection.getsockname())
            else:
                _, remote_address, local_address = carried
            if handshake is not None:
                await trio.sleep_until(self.resources.handshakes.begin_s(handshake.place))
            wire = _Wire(connection, handshake)
            await (ask_for if dialled else offer)(wire, NOISE)
            authenticated, noise = await self._shake_hands(wire, peer)
            wire.secure(noise)
            await (ask_for if dialled else offer)(wire, YAMUX)
        except (RemoteError, OSError) as error:
            connection.close()
            is_closed = isinstance(error, OSError) or error.code is Rejection.DISCONNECTED
            raise DialError(CLOSED if is_closed else f"{NO_NODE}: {error}") from error
        except BaseException:
            connection.close()
            raise
        link = Link(
            connection,
            noise,
            authenticated,
            dialled=dialled,
            remote_address=remote_address,
            local_address=local_address,
            plaintext=wire.rest,
            bytes_in=wire.bytes_in,
            bytes_out=wire.bytes_out,
            services=self.services,
            turns=self.resources.turns,
            on_close=self._forget,
            relay=None if carried is None else carried.relay,
        )
        self._links[link] = connection
        self._arrivals.register(connection, selectors.EVENT_READ)
        return link

    async def _shake_hands(self, wire: _Wire, wanted: PeerId | None) -> tuple[PeerId, NoiseFraming]:
        if wanted is not None:
            dialler = Dialler(self._static)
            await wire.write_message(dialler.begin())
            third, peer, noise = dialler.finish(await wire.read_message())
            if peer != wanted:
                # Whoever it is does not learn who we are.
                raise DialError(f"another peer answers there: {peer_text(peer)}")
            await wire.write_message(third)
            return peer, noise
        listener = Listener(self._static)
        await wire.write_message(listener.answer(await wire.read_message()))
        return listener.finish(await wire.read_message())

    def _forget(self, link: Link) -> None:
        connection = self._links.pop(link, None)
        if connection is not None:
            self._arrivals.unregister(connection)


class _Wire:
    """A socket as negotiation and handshake read and write it, plain and then sealed."""

    def __init__(self, connection: socket.socket, handshake: Handshake | None) -> None:
        self.bytes_in = self.bytes_out = 0
        self._connection = connection
        self._handshake = handshake
        """Told when something arrives."""
        self._noise: NoiseFraming | None = None
        self._buffer = bytearray()

    @property
    def rest(self) -> bytes:
        """What arrived and nobody read."""
        return bytes(self._buffer)

    def secure(self, noise: NoiseFraming) -> None:
        """Seal and open everything from here on, beginning with what arrived early."""
        early = bytes(self._buffer)
        self._noise = noise
        self._buffer = bytearray().join(noise.feed(early))

    async def read(self, size: int) -> bytes:
        """Read exactly this many bytes."""
        buffer = self._buffer
        while len(buffer) < size:
            data = await self._receive()
            buffer += data if self._noise is None else b"".join(self._noise.feed(data))
        data = bytes(buffer[:size])
        del buffer[:size]
        return data

    async def read_message(self) -> bytes:
        """Read one message of the handshake."""
        return await self.read(int.from_bytes(await self.read(LENGTH_BYTES), "big"))

    async def write_message(self, message: bytes) -> None:
        """Write one message of the handshake."""
        await self.write(length_bytes(len(message)) + message)

    async def write(self, data: bytes) -> None:
        """Write all of it."""
        rest = memoryview(data if self._noise is None else self._noise.seal(data))
        self.bytes_out += len(rest)
        while rest:
            try:
                rest = rest[self._connection.send(rest) :]
            except BlockingIOError:
                await trio.lowlevel.wait_writable(self._connection.fileno())

    async def _receive(self) -> bytes:
        while True:
            try:
                data = self._connection.recv(_READ_BYTES)
            except BlockingIOError:
                await trio.lowlevel.wait_readable(self._connection.fileno())
                continue
            if not data:
                raise RemoteError("closed the connection", code=Rejection.DISCONNECTED)
            self.bytes_in += len(data)
            if self._handshake is not None:
                self._handshake.moved()
            return data


async def _accept_one(listener: socket.socket) -> socket.socket:
    """Wait for the next connection."""
    while True:
        await trio.lowlevel.wait_readable(listener.fileno())
        try:
            connection, _ = listener.accept()
        except BlockingIOError:
            continue
        except OSError as error:
            if error.errno in {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}:
                await trio.sleep(RETRY_S)
            continue
        connection.setblocking(False)
        return connection


def _host_of_peer(connection: socket.socket) -> str:
    """The IP address that a connection comes from; none where it has ended already."""
    try:
        host: str = connection.getpeername()[0]
    except OSError:
        return ""
    return host


async def _connect(
    family: int, name: tuple[str, int], source: str | None, port: int = 0
) -> socket.socket:
    """Open a TCP connection, from a port that we listen at if one is given."""
    connection = socket.socket(family, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        if port and source is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            connection.bind((source, port))
        elif source is not None and family == socket.AF_INET:
            # The port is left to the moment of connecting: else each would take one of few.
            connection.setsockopt(socket.IPPROTO_IP, _IP_BIND_ADDRESS_NO_PORT, 1)
            connection.bind((source, 0))
        try:
            connection.connect(name)
        except BlockingIOError:
            await trio.lowlevel.wait_writable(connection.fileno())
            if code := connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                raise OSError(code, os.strerror(code)) from None
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: socket.socket) -> None:
    """Let small frames leave at once, and a connection that nobody uses live on."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):  # Linux; elsewhere the system's own two hours hold.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_S // 3)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPALIVE_PROBES)
    if hasattr(socket, "TCP_NOTSENT_LOWAT"):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES_MAX)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNTAKEN_MS)


def _listener(family: int, name: tuple[str, int]) -> socket.socket:
    """A socket that listens."""
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setblocking(False)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # Else IPv4 peers show up under IPv6 names of theirs.
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(name)
        listener.listen(BACKLOG)
        # Only now that nobody else can have the port: dials may come from it, too. A second
        # listener is refused as before, since it does not say the same before it binds.
        if hasattr(socket, "SO_REUSEPORT"):
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    except BaseException:
        listener.close()
        raise
    return listener


async def _resolve(address: str, peer: PeerId | None = None) -> list[tuple[int, tuple[str, int]]]:
    """The families and socket names behind a multiaddr; LocalError where it is none of TCP's."""
    kind, host, port = parse_address(address, peer)
    family = FAMILIES[kind]
    if kind.startswith("ip"):
        return [(family, (host, port))]
    found = await trio.socket.getaddrinfo(host, port, family, socket.SOCK_STREAM)
    return [(int(family), (str(name[0]), port)) for family, *_, name in found]


def _address_text(name: tuple[str, int]) -> str:
    """A socket's name as a multiaddr."""
    host, port = name[:2]
    host = host.partition("%")[0]
    return f"/{'ip6' if ':' in host else 'ip4'}/{host}/tcp/{port}"


def _reason(error: BaseException) -> str:
    """What went wrong, for people."""
    if isinstance(error, ConnectionRefusedError):
        return "no program listens there (connection refused)"
    if isinstance(error, socket.gaierror):
        return f"the host name does not resolve ({error.strerror})"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
