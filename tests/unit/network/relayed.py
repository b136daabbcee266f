"""Peers on loopback that are public or private as a test says, with relays between them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Container
from contextlib import AsyncExitStack, asynccontextmanager

import trio
from msgspec.structs import replace

from pulsarcast.model.errors import RemoteError
from pulsarcast.model.identity import Identity
from pulsarcast.model.ids import PeerId
from pulsarcast.model.reach import Reach
from pulsarcast.network.addresses import AddressBook
from pulsarcast.network.host import Host
from pulsarcast.network.link import Link
from pulsarcast.network.neighbours import Neighbours
from pulsarcast.network.punching import Punching
from pulsarcast.network.relay_client import RelayClient
from pulsarcast.network.relay_server import RelayServer
from pulsarcast.protocol.messages import Contact
from pulsarcast.wire.framing import write_frames
from pulsarcast.wire.hello import Hello

LOOPBACK = "/ip4/127.0.0.1/tcp/0"


class Ear:
    """A driver that only listens."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self.story: list[str] = []
        self.links: dict[PeerId, Link] = {}
        self.neighbours: Neighbours
        self.on_relayed: Callable[[Link], None]

    def received(self, peer: PeerId, frames: list[bytes]) -> bool:
        self.heard += frames
        return False

    def unreachable(self, peer: PeerId, reason: str) -> None:
        self.story.append(reason)

    def up(self, contact: Contact, link: Link, reach: Reach, said: Hello) -> None:
        self.links[contact.peer] = link
        self.story.append("up")
        if link.relay is not None:
            self.on_relayed(link)

    def relied_on(self) -> Container[PeerId]:
        return ()

    def served(self) -> Container[PeerId]:
        return ()

    def is_near(self, link: Link) -> bool:
        return False

    def lost(self, peer: PeerId) -> None:
        self.story.append("lost")

    def moving(self, peer: PeerId) -> None:
        pass

    def filled(self, peer: PeerId) -> None:
        pass

    def freed(self, peer: PeerId) -> None:
        pass

    def wanted(self, peer: PeerId) -> None:
        self.story.append("wanted")

    def blamed(self, peer: PeerId, error: RemoteError) -> None:
        self.story.append(f"blamed: {error}")

    def met_double(self, address: str) -> None:
        self.story.append("met a double")

    def gather(self) -> None:
        self.neighbours.flush()


class Party:
    """A peer with ears, a mouth, and all of the relays' parts."""

    def __init__(self, seed: int, reach: Reach) -> None:
        self.identity = Identity.from_seed(bytes([seed]) * 32)
        self.peer = self.identity.peer_id
        self.host = Host(self.identity)
        self.book = AddressBook()
        self.ear = Ear()
        self.hello = Hello("main", (2,), instance=bytes([seed]), reach=reach)
        self.direct: tuple[str, ...] = ()
        self.neighbours = Neighbours(
            self.peer, self.host, self.book, lambda: self.hello, self.ear, idle_s=100.0
        )
        self.ear.neighbours = self.neighbours
        self.relays = RelayClient(
            self.host, self.neighbours, reach=lambda: self.hello.reach, changed=self._changed
        )
        self.relaying = RelayServer(
            self.identity,
            self.host,
            lambda: self.hello.addresses,
            serves=lambda: self.hello.reach is Reach.PUBLIC,
            is_neighbour=self.neighbours.is_neighbour,
        )
        self.punching = Punching(self.host, self.neighbours, lambda: self.direct)
        self.punches = False
        """Whether it begins to punch holes for relayed connections."""
        self.ear.on_relayed = self._relayed
        self.told: list[tuple[str, ...]] = []

    def _relayed(self, link: Link) -> None:
        if self.punches:
            self.punching.begin(link)

    def _changed(self) -> None:
        self.told.append(self.relays.addresses)
        self.hello = replace(self.hello, addresses=self.relays.addresses)

    def say(self, to: Party, *words: bytes) -> None:
        for word in words:
            self.neighbours.send(to.peer, write_frames([word]))
        self.neighbours.flush()

    def knows(self, other: Party) -> None:
        """Hear of a peer at its addresses."""
        self.book.heard(Contact(other.peer, other.hello.addresses))

    async def meets(self, other: Party) -> Link:
        """Dial a peer, and wait until both are up."""
        self.knows(other)
        self.neighbours.meet(other.peer)
        await until(lambda: self.neighbours.is_connected(other.peer))
        await until(lambda: other.neighbours.is_connected(self.peer))
        self.relays.look()
        return self.link_to(other)

    async def meets_directly(self, other: Party) -> Link:
        """Dial a peer where it listens, whatever it tells of that."""
        self.book.heard(Contact(other.peer, other.direct))
        return await self.meets(other)

    def link_to(self, other: Party) -> Link:
        """The connection to a peer."""
        link = self.neighbours.link_to(other.peer)
        assert link is not None
        return link


@asynccontextmanager
async def party(
    seed: int, reach: Reach = Reach.PRIVATE, *, listen: str = LOOPBACK
) -> AsyncIterator[Party]:
    """A peer that runs; one that is not public tells no address of its own."""
    me = Party(seed, reach)
    me.direct = await me.host.listen(listen)
    if reach is Reach.PUBLIC:
        me.hello = replace(me.hello, addresses=me.direct)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(me.neighbours.run)
        nursery.start_soon(me.relays.run)
        nursery.start_soon(me.relaying.run)
        nursery.start_soon(me.punching.run)
        await me.neighbours.ready.wait()
        try:
            yield me
        finally:
            nursery.cancel_scope.cancel()


async def until(holds: Callable[[], bool]) -> None:
    with trio.fail_after(10):
        while not holds():
            await trio.sleep(0.005)


@asynccontextmanager
async def world(*, relays: int = 1, private: int = 2) -> AsyncIterator[list[Party]]:
    """Public relays, then private peers with a reservation at each of them, up to two."""
    async with AsyncExitStack() as stack:
        public = [
            await stack.enter_async_context(party(100 + number, Reach.PUBLIC))
            for number in range(relays)
        ]
        hidden = [await stack.enter_async_context(party(1 + number)) for number in range(private)]
        for each in hidden:
            for relay in public:
                await each.meets(relay)
        for each in hidden:
            await until(lambda me=each: len(me.relays.reservations) == min(relays, 2))  # type: ignore[misc]
        yield [*public, *hidden]


def play(scene: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        with trio.fail_after(30):
            await scene()

    trio.run(bounded)
