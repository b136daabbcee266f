"""Hole punching: a direct connection in the place of a relayed one (libp2p's relay/DCUtR).

docs/spec/reach.md, "Hole punching". Two peers behind NATs dial each other at the same moment, from
the ports that they listen at: the first packet of each opens its own NAT for those of the other.
The peer that accepted the relayed connection begins, tells where NATs map its port to, measures
the way, and gives the sign.

Most NATs map one port to one outside port for all destinations. A node learns its own by dialling
the relay once more, from the port that it listens at.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

import trio

from pulsarcast.model.errors import LocalError, Rejection, RemoteError
from pulsarcast.model.ids import PeerId
from pulsarcast.network import identify
from pulsarcast.network.circuits import hear, say
from pulsarcast.network.host import DialError, Host
from pulsarcast.network.link import Link
from pulsarcast.network.multiaddrs import (
    address_bytes,
    address_text,
    is_dialable,
    is_loopback,
    parse_address,
    relay_of,
)
from pulsarcast.network.neighbours import Neighbours
from pulsarcast.network.streams import Service, Stream
from pulsarcast.wire.libp2p_pb2 import HolePunch

PROTOCOL: Final = "/libp2p/dcutr"
TRIES_MAX: Final = 3
"""Tries for one relayed connection, as the specification advises: 97.6 % of those in the field that
succeed do so at the first one, so more of them gain nothing."""
PUNCH_S_MAX: Final = 4.0
"""How long one try lasts: the kernel sends a first packet that is lost again after 1 s and 3 s."""
STREAM_S_MAX: Final = 60.0
"""How long all tries together may take; go-libp2p's number."""
RETRY_S: Final = 0.1
"""Until the next dial in a try, where the last one was refused."""
OBSERVE_S_MAX: Final = 5.0
"""How long the question may take where a NAT maps the port to."""
OBSERVED_S: Final = 90.0
"""How long the answer holds: the kernel lets no second connection between the same two ports begin
before the last one has been over for 60 s."""
ADDRESSES_MAX: Final = 4
"""Addresses of a peer that are dialled in a try, and those that a node tells."""
AGAIN_S: Final = 600.0
"""How long a peer to which no hole could be punched is left alone: NATs seldom change."""
HELLO_S_MAX: Final = 3.0
"""How long a peer that begins is given for its Hello: other implementations begin as soon as the
relayed connection is up, before a program on top of them has said a word."""
PUNCHES_MAX: Final = 8
"""Peers to which holes are punched at a time: bounds what strangers can have a node dial."""
FAILED_MAX: Final = 1024
"""Peers that are remembered to be left alone."""


class Punching:
    """The holes of a node."""

    def __init__(
        self, host: Host, neighbours: Neighbours, addresses: Callable[[], Sequence[str]]
    ) -> None:
        self._host = host
        self._neighbours = neighbours
        self._addresses = addresses
        """Where the node listens, as it tells others."""
        self._punching: dict[PeerId, None] = {}
        self._failed: dict[PeerId, float] = {}
        """Until when a peer is left alone."""
        self._observed: dict[PeerId, tuple[float, str]] = {}
        """Where a relay sees the port that the node listens at, and until when that holds."""
        self._observing = trio.Lock()
        self.failures = 0
        """Relayed connections that no try made direct ones."""
        self._nursery: trio.Nursery | None = None
        host.services[PROTOCOL] = Service(self._answer, 1, STREAM_S_MAX)

    async def run(self) -> None:
        """Punch holes where `begin` says so, until cancelled."""
        async with trio.open_nursery() as self._nursery:
            await trio.sleep_forever()

    def begin(self, link: Link) -> None:
        """A relayed connection is up: the peer that accepted it has some time to improve it."""
        assert self._nursery is not None, "the node runs"
        if link.dialled:
            self._nursery.start_soon(self._observe, link)  # To answer at once when it asks.
        elif self._may_punch(link.peer):
            self._nursery.start_soon(self._initiate, link)

    def _may_punch(self, peer: PeerId) -> bool:
        return (
            peer not in self._punching
            and len(self._punching) < PUNCHES_MAX
            and self._failed.get(peer, 0.0) <= trio.current_time()
        )

    # The protocol.

    async def _initiate(self, link: Link) -> None:
        """Begin: agree on the moment, and punch."""
        self._punching[link.peer] = None
        try:
            with trio.move_on_after(STREAM_S_MAX):
                ours = await self._ways(link)
                with await link.open_stream(PROTOCOL) as stream:
                    for _ in range(TRIES_MAX):
                        began_s = trio.current_time()
                        await say(stream, _connect(ours))
                        theirs = _read(await hear(stream, HolePunch), link)
                        way_s = (trio.current_time() - began_s) / 2
                        await say(stream, HolePunch(type=HolePunch.SYNC))
                        await trio.sleep(way_s)
                        if await self._punch(link, theirs, as_client=False):
                            return
            self._fail(link)
        except RemoteError:
            self._fail(link)
        finally:
            del self._punching[link.peer]

    async def _answer(self, stream: Stream) -> None:
        """Answer a peer that begins: dial it when it gives the sign."""
        link = stream.link
        if link.relay and link.dialled:
            with trio.move_on_after(HELLO_S_MAX):
                await self._neighbours.becomes_neighbour(link)
        if not (link.relay and link.dialled and self._neighbours.is_neighbour(link)):
            raise RemoteError("punches a hole for no relayed connection", code=Rejection.MALFORMED)
        if not self._may_punch(link.peer):
            raise RemoteError("punches one hole after the other", code=Rejection.TOO_MANY)
        self._punching[link.peer] = None
        try:
            ours = await self._ways(link)
            for _ in range(TRIES_MAX):
                theirs = _read(await hear(stream, HolePunch), link)
                await say(stream, _connect(ours))
                if (await hear(stream, HolePunch)).type != HolePunch.SYNC:
                    raise RemoteError("gives no sign to punch a hole", code=Rejection.MALFORMED)
                if await self._punch(link, theirs, as_client=True):
                    return
            self._fail(link)
        finally:
            del self._punching[link.peer]

    async def _punch(self, relayed: Link, theirs: Sequence[str], *, as_client: bool) -> bool:
        """Try once; whether a direct connection came of it."""
        # Two homes may have the same addresses inside: those lead this node to itself.
        ways = [each for each in theirs if each not in self._addresses()]
        window = trio.CancelScope(deadline=trio.current_time() + PUNCH_S_MAX)
        found: list[Link] = []

        def secured(link: Link) -> None:
            if not as_client:
                self._neighbours.take_in(link)  # The client says in its Hello what it is for.
            elif found:
                link.close()
            else:
                self._neighbours.replace(relayed, link)
                window.cancel()
            found.append(link)

        with window:
            await self._dial_until_cancelled(relayed.peer, ways, secured, as_client=as_client)
        return bool(found) or self._neighbours.link_to(relayed.peer) is not relayed

    async def _dial_until_cancelled(
        self,
        peer: PeerId,
        addresses: Sequence[str],
        secured: Callable[[Link], None],
        *,
        as_client: bool,
    ) -> None:
        """Dial a peer that dials us at this moment, again and again.

        `secured` gets every connection that comes of it. What comes in at the client's listener
        from the peer's hosts is taken for the peer's, since the client speaks first on that, too.
        """
        host = self._host

        async def secure(connection: socket.socket) -> None:
            with suppress(DialError):
                secured(await host.secure(connection, peer, as_client=as_client))

        async def dial(address: str) -> None:
            while True:
                try:
                    connection = await host.connect_from_port(address)
                except OSError:
                    await trio.sleep(RETRY_S)
                else:
                    await secure(connection)
                    return

        async with trio.open_nursery() as nursery:
            take = partial(nursery.start_soon, secure)
            with host.expect(addresses if as_client else (), take):
                for address in addresses:
                    nursery.start_soon(dial, address)
                await trio.sleep_forever()

    def _fail(self, link: Link) -> None:
        self.failures += 1
        self._failed.pop(link.peer, None)
        self._failed[link.peer] = trio.current_time() + AGAIN_S
        if len(self._failed) > FAILED_MAX:
            del self._failed[next(iter(self._failed))]

    # Where the peer may find us.

    async def _ways(self, link: Link) -> list[str]:
        """Where to tell the peer of a relayed connection to dial: what a NAT makes of us first."""
        observed = await self._observe(link)
        told = [each for each in self._addresses() if relay_of(each) is None]
        return list(dict.fromkeys([observed, *told] if observed else told))[:ADDRESSES_MAX]

    async def _observe(self, link: Link) -> str:
        """Where the relay of a connection sees the port that we listen at; empty: not known.

        The question travels over a connection from that port, which ends again at once.
        """
        assert link.relay is not None
        async with self._observing:
            now_s = trio.current_time()
            until_s, address = self._observed.get(link.relay, (0.0, ""))
            carrier = self._neighbours.link_to(link.relay)
            if until_s > now_s or carrier is None or carrier.relay is not None:
                return address
            with (
                trio.move_on_after(OBSERVE_S_MAX),
                suppress(LocalError, RemoteError, OSError),
            ):
                connection = await self._host.connect_from_port(carrier.remote_address)
                asking = await self._host.secure(connection, link.relay, as_client=True)
                address = await self._ask(asking)
            self._observed.pop(link.relay, None)
            self._observed[link.relay] = (now_s + OBSERVED_S, address)
            if len(self._observed) > PUNCHES_MAX:
                del self._observed[next(iter(self._observed))]
            return address

    async def _ask(self, asking: Link) -> str:
        """Where the peer at the other end sees us."""
        address = ""
        async with trio.open_nursery() as nursery:

            async def run() -> None:
                with suppress(RemoteError):
                    await asking.run(lambda _: None)

            nursery.start_soon(run)
            try:
                with suppress(RemoteError):
                    address = (await identify.ask(asking)).observed or ""
            finally:
                asking.close(goodbye=True)
                nursery.cancel_scope.cancel()
        return address


def _connect(addresses: Sequence[str]) -> HolePunch:
    """The message that says where to dial us."""
    return HolePunch(type=HolePunch.CONNECT, ObsAddrs=[address_bytes(each) for each in addresses])


def _read(message: HolePunch, link: Link) -> list[str]:
    """Where the peer may be dialled: its first addresses that are IP addresses of elsewhere.

    An address of this machine leads to its peer only where the relay is on this machine, too.
    """
    if message.type != HolePunch.CONNECT:
        raise RemoteError("says no address for a hole", code=Rejection.MALFORMED)
    found: dict[str, None] = {}
    for data in message.ObsAddrs[:16]:
        text = address_text(data)
        if text is None or relay_of(text) is not None or not is_dialable(text, link.peer):
            continue
        kind, host, port = parse_address(text, None)
        if (
            kind.startswith("ip")
            and port
            and (is_loopback(link.remote_address) or not is_loopback(text))
        ):
            found[f"/{kind}/{host}/tcp/{port}"] = None
    if not found:
        raise RemoteError("says no address for a hole", code=Rejection.MALFORMED)
    return list(found)[:ADDRESSES_MAX]
