"""Relays of go-libp2p and js-libp2p serve nodes of ours, and nodes of ours serve them."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol

import trio

from pulsarcast.model.ids import PeerId, peer_text
from pulsarcast.model.reach import Reach
from pulsarcast.network import identify, ping
from pulsarcast.network.link import Link
from pulsarcast.network.multiaddrs import Relay, relayed_address
from pulsarcast.protocol.messages import Contact
from tests.partners.js import Js
from tests.partners.ours import guest, run
from tests.partners.partners import Partner
from tests.partners.table import EITHER, shows
from tests.unit.network.relayed import Party, party, play, until


class Start(Protocol):
    def __call__(
        self, folder: Path, *, serve_relay: bool = False, reserve_at: str | None = None
    ) -> AbstractAsyncContextManager[Partner]: ...


def whole(address: str, peer: PeerId) -> str:
    """An address with its peer."""
    return f"{address}/p2p/{peer_text(peer)}"


async def reserve(us: Party, relay: Partner) -> None:
    """Have a node that cannot be dialled take a reservation at a partner."""
    us.book.heard(Contact(relay.peer, tuple(relay.addresses)))
    us.neighbours.meet(relay.peer)
    await until(lambda: us.neighbours.link_to(relay.peer) is not None)
    us.relays.look()
    await until(lambda: relay.peer in us.relays.reservations)


async def speak(us: Party, link: Link, them: Partner) -> None:
    """Identify and ping each other over a relayed connection."""
    assert link.relay is not None
    said = await identify.ask(link)
    assert said.agent.startswith(them.agent)
    for _ in range(3):
        assert await ping.ping(link) < 5
        await them.ping(us.peer, 1)


def folder(base: Path, name: str) -> Path:
    (base / name).mkdir()
    return base / name


@shows("nodes reserve at its relay, and dial each other through it", EITHER)
def test_nodes_speak_through_a_partners_relay(start: Start, tmp_path: Path) -> None:
    async def scene() -> None:
        async with start(tmp_path, serve_relay=True) as relay, party(1) as ann, party(2) as ben:
            await reserve(ben, relay)
            assert ben.relays.addresses == (relayed_address(Relay(relay.peer, relay.addresses[0])),)
            ann.knows(ben)
            words = [b"%d" % number for number in range(100)]
            ann.say(ben, *words)
            await until(lambda: ben.ear.heard == words)
            ben.say(ann, b"back")
            await until(lambda: ann.ear.heard == [b"back"])
            assert ann.link_to(ben).relay == ben.link_to(ann).relay == relay.peer

    play(scene)


@shows("it dials a node through its relay", EITHER)
def test_a_partner_dials_a_node_through_a_partners_relay(start: Start, tmp_path: Path) -> None:
    async def scene() -> None:
        async with (
            start(folder(tmp_path, "relay"), serve_relay=True) as relay,
            start(folder(tmp_path, "them")) as them,
            party(1) as ben,
        ):
            await reserve(ben, relay)
            await them.dial(ben.peer, ben.relays.addresses[0])
            link = await guest(ben.neighbours, them)
            assert link.relay == relay.peer
            await speak(ben, link, them)

    play(scene)


@shows("a node dials it through its relay", EITHER)
def test_a_node_dials_a_partner_through_a_partners_relay(start: Start, tmp_path: Path) -> None:
    async def scene() -> None:
        async with start(folder(tmp_path, "relay"), serve_relay=True) as relay:
            at = whole(relay.addresses[0], relay.peer)
            async with start(folder(tmp_path, "them"), reserve_at=at) as them, party(1) as ann:
                await dial_through(ann, f"{at}/p2p-circuit", them)

    play(scene)


async def dial_through(ann: Party, address: str, them: Partner) -> None:
    """Dial a partner through a relay, as soon as it has its reservation, and speak with it."""
    async with run(await ann.relays.dial(them.peer, [address])) as link:
        await speak(ann, link, them)


@shows("it reserves at a node's relay, and a node dials it through that", EITHER)
def test_a_node_dials_a_partner_through_our_relay(start: Start, tmp_path: Path) -> None:
    async def scene() -> None:
        async with party(100, Reach.PUBLIC) as relay:
            at = whole(relay.direct[0], relay.peer)
            async with start(tmp_path, reserve_at=at) as them, party(1) as ann:
                await until(lambda: relay.relaying.reservation_count == 1)
                await dial_through(ann, f"{at}/p2p-circuit", them)

    play(scene)


@shows("it dials a node through a node's relay", EITHER)
def test_a_partner_dials_a_node_through_our_relay(start: Start, tmp_path: Path) -> None:
    async def scene() -> None:
        async with party(100, Reach.PUBLIC) as relay, party(1) as ben, start(tmp_path) as them:
            await ben.meets(relay)
            await until(lambda: len(ben.relays.reservations) == 1)
            await them.dial(ben.peer, ben.relays.addresses[0])
            link = await guest(ben.neighbours, them)
            assert link.relay == relay.peer
            await speak(ben, link, them)
            assert relay.relaying.circuit_count == 1

    play(scene)


@shows("it dials its own kind through a node's relay", EITHER)
def test_a_partner_dials_a_partner_through_our_relay(start: Start, tmp_path: Path) -> None:
    async def scene() -> None:
        async with party(100, Reach.PUBLIC) as relay:
            at = whole(relay.direct[0], relay.peer)
            async with (
                start(folder(tmp_path, "one"), reserve_at=at) as one,
                start(folder(tmp_path, "other")) as other,
            ):
                await until(lambda: relay.relaying.reservation_count == 1)
                await other.dial(one.peer, f"{at}/p2p-circuit")
                assert relay.relaying.circuit_count == 1
                with trio.fail_after(10):
                    while not await other.identified(one.peer):
                        await trio.sleep(0.05)
                assert {one.peer, relay.peer} <= {*await other.connected()}

    play(scene)


@shows("it takes a circuit of a node's relay for a limited one", EITHER, ["js"])
def test_a_partner_knows_that_a_circuit_carries_little(start: Start, tmp_path: Path) -> None:
    async def scene() -> None:
        async with party(100, Reach.PUBLIC) as relay, party(1) as ben, start(tmp_path) as them:
            assert isinstance(them, Js)
            await ben.meets(relay)
            await until(lambda: len(ben.relays.reservations) == 1)
            await them.dial(ben.peer, ben.relays.addresses[0])
            assert await them.is_limited(ben.peer)
            assert not await them.is_limited(relay.peer)

    play(scene)


@shows("it dials a node again through a relay, and neither connection breaks", EITHER, ["js"])
def test_a_second_circuit_of_a_partner_does_not_end_the_first(start: Start, tmp_path: Path) -> None:
    async def scene() -> None:
        async with party(100, Reach.PUBLIC) as relay, party(1) as ben, start(tmp_path) as them:
            assert isinstance(them, Js)
            await ben.meets(relay)
            await until(lambda: len(ben.relays.reservations) == 1)
            await them.dial(ben.peer, ben.relays.addresses[0])
            link = await guest(ben.neighbours, them)
            # Its ping service uses no limited connection that there is.
            await them.ask("ping", peer=peer_text(ben.peer))
            assert link.is_open
            await speak(ben, link, them)

    play(scene)
