"""Holes: direct connections in the place of relayed ones, and no message lost on the way.

On loopback there is no NAT: both peers listen at the ports that they dial from, so that a dial gets
through even where the other end has not dialled yet. `tests/machines/test_relays.py` has NATs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsarcast.model.errors import LocalError, RemoteError
from pulsarcast.network import punching, relay_server, replacing
from pulsarcast.network.circuits import hear, say
from pulsarcast.network.host import AddressInUseError, Host
from pulsarcast.network.link import Link
from pulsarcast.network.multiaddrs import address_bytes
from pulsarcast.network.streams import Stream
from pulsarcast.wire.libp2p_pb2 import HolePunch
from tests.unit.network.hosts import ANN, BEN
from tests.unit.network.relayed import Party, play, until, world


@asynccontextmanager
async def relayed(*, punch: bool = True) -> AsyncIterator[tuple[Party, Party, Party]]:
    """A relay and two peers whose connection it carries."""
    async with world() as (relay, ann, ben):
        ann.punches = ben.punches = punch
        ann.knows(ben)
        ann.say(ben, b"0")
        await until(lambda: bool(ben.ear.heard))
        yield relay, ann, ben


async def go_over(one: Party, other: Party) -> None:
    """Replace the relayed connection of two peers by a direct one, whatever waits on it."""
    link = await one.host.dial(other.peer, other.direct)
    one.neighbours.replace(one.link_to(other), link)
    await until(lambda: is_direct(one, other) and is_direct(other, one))


async def connect(stream: Stream, told: list[bytes]) -> None:
    """Begin, or go on with a further try."""
    await say(stream, HolePunch(type=HolePunch.CONNECT, ObsAddrs=told))
    assert (await hear(stream, HolePunch)).type == HolePunch.CONNECT


def is_direct(one: Party, other: Party) -> bool:
    link = one.neighbours.link_to(other.peer)
    return link is not None and link.relay is None


@pytest.mark.parametrize("dialable", ["both", "the client", "the server"])
def test_a_relayed_connection_becomes_a_direct_one(dialable: str) -> None:
    """Whichever dial gets through, both know who is the client: here the one that dialled first."""

    async def scene() -> None:
        async with relayed(punch=False) as (relay, ann, ben):
            both = {*ann.direct, *ben.direct}
            for each, name in ((ann, "the client"), (ben, "the server")):
                each.punching._observed[relay.peer] = (float("inf"), "")
                if dialable not in ("both", name):
                    each.direct = ("/ip4/127.0.0.1/tcp/9",)
            ann.punching.begin(ann.link_to(ben))
            ben.punching.begin(ben.link_to(ann))
            await until(lambda: is_direct(ann, ben) and is_direct(ben, ann))
            ann.say(ben, b"1")
            ben.say(ann, b"back")
            await until(lambda: ben.ear.heard == [b"0", b"1"] and ann.ear.heard == [b"back"])
            await until(lambda: relay.relaying.circuit_count == 0)
            # For the core nothing has happened.
            assert ann.ear.story == ben.ear.story == ["up", "up"]
            assert ann.neighbours.replaced == ben.neighbours.replaced == 1
            # The peer that dialled the relayed connection is the client of the direct one.
            assert ann.link_to(ben).dialled
            assert not ben.link_to(ann).dialled
            ports = {ann.link_to(ben).local_address, ann.link_to(ben).remote_address}
            assert ports & both

    play(scene)


@pytest.mark.parametrize(("rate", "by_punching"), [(20_000, False), (200_000, True)])
def test_nothing_is_lost_or_reordered_while_the_connection_is_replaced(
    rate: int, by_punching: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both speak all the time, and the relay is slow: much is on its way when they go over."""
    monkeypatch.setattr(relay_server, "CIRCUIT_BYTES_S", rate)
    monkeypatch.setattr(relay_server, "CIRCUIT_BURST_BYTES", 20_000)

    async def scene() -> None:
        async with relayed(punch=False) as (relay, ann, ben):
            words = [b"%d " % number + bytes(100) for number in range(1, 1000)]

            async def talk(one: Party, other: Party) -> None:
                for at, word in enumerate(words):
                    one.say(other, word)
                    if at % 5 == 0:
                        await trio.sleep(0.002)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(talk, ann, ben)
                nursery.start_soon(talk, ben, ann)
                await trio.sleep(0.05)
                if by_punching:
                    ann.punching.begin(ann.link_to(ben))
                    ben.punching.begin(ben.link_to(ann))
                    await until(lambda: is_direct(ann, ben) and is_direct(ben, ann))
                else:
                    await go_over(ann, ben)
            await until(lambda: len(ann.ear.heard) == len(words))
            await until(lambda: len(ben.ear.heard) == len(words) + 1)
            assert ann.ear.heard == words
            assert ben.ear.heard == [b"0", *words]
            assert ann.ear.story == ben.ear.story == ["up", "up"]
            await until(lambda: relay.relaying.circuit_count == 0)

    play(scene)


def test_what_comes_on_the_new_connection_waits_for_the_last_words_on_the_old_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(relay_server, "CIRCUIT_BYTES_S", 30_000)
    monkeypatch.setattr(relay_server, "CIRCUIT_BURST_BYTES", 10_000)

    async def scene() -> None:
        async with relayed(punch=False) as (_, ann, ben):
            early = [b"early %d " % number + bytes(1000) for number in range(60)]
            ann.say(ben, *early)
            await go_over(ann, ben)
            late = [b"late %d " % number + bytes(10_000) for number in range(200)]
            ann.say(ben, *late)
            await trio.sleep(0.3)
            neighbour = ben.neighbours._neighbours[ann.peer]
            assert neighbour.leaving is not None
            assert neighbour.connection is not None
            assert len(ben.ear.heard) < len(early)
            # What waits is bounded by one window, whatever the peer sends.
            assert 0 < sum(map(len, neighbour.connection.held)) <= 300_000
            await until(lambda: ben.ear.heard == [b"0", *early, *late])
            assert ben.ear.story == ["up", "up"]

    play(scene)


@pytest.mark.parametrize("broken", ["the relay", "the new connection"])
def test_where_words_are_lost_on_the_way_both_ends_hear_of_it(
    broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_server, "CIRCUIT_BYTES_S", 10_000)
    monkeypatch.setattr(relay_server, "CIRCUIT_BURST_BYTES", 10_000)

    async def scene() -> None:
        async with relayed(punch=False) as (relay, ann, ben):
            early = [b"early %d " % number + bytes(1000) for number in range(60)]
            ann.say(ben, *early)
            await go_over(ann, ben)
            ann.say(ben, b"late")
            await trio.sleep(0.1)
            if broken == "the relay":
                for circuit in list(relay.relaying._circuits):
                    circuit.end()
            else:
                ann.link_to(ben).close()
            await until(lambda: ann.ear.story[-1] == ben.ear.story[-1] == "lost")
            assert b"late" not in ben.ear.heard
            assert ben.ear.heard == [b"0", *early][: len(ben.ear.heard)]
            assert not ann.neighbours.is_connected(ben.peer)

    play(scene)


def test_an_old_connection_that_never_ends_takes_the_new_one_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replacing, "REPLACE_S_MAX", 0.5)

    async def scene() -> None:
        async with relayed(punch=False) as (_, ann, ben):
            monkeypatch.setattr(Link, "finish", lambda self: None)
            await go_over(ann, ben)
            await until(lambda: ann.ear.story[-1] == ben.ear.story[-1] == "lost")

    play(scene)


def test_where_no_hole_can_be_punched_the_relay_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(punching, "PUNCH_S_MAX", 0.1)

    async def scene() -> None:
        async with world() as (relay, ann, ben):
            ann.punches = ben.punches = True
            # A port at which nobody listens, as a symmetric NAT would have it.
            ann.direct = ben.direct = ("/ip4/127.0.0.1/tcp/9",)
            for each in (ann, ben):
                each.punching._observed[relay.peer] = (float("inf"), "")
            ann.knows(ben)
            ann.say(ben, b"0")
            await until(lambda: ben.punching.failures == 1 and ann.punching.failures == 1)
            ann.say(ben, b"1")
            await until(lambda: ben.ear.heard == [b"0", b"1"])
            assert ann.link_to(ben).relay == relay.peer
            assert ann.ear.story == ben.ear.story == ["up", "up"]
            # The peer is left alone for a while.
            ben.punching.begin(ben.link_to(ann))
            assert not ben.punching._punching

    play(scene)


# The protocol, and peers that abuse it.


def test_a_message_says_where_to_dial_and_nothing_else_of_it_is_taken() -> None:
    async def scene() -> None:
        async with relayed(punch=False) as (_, ann, ben):
            link = ann.link_to(ben)
            good = ["/ip4/127.0.0.1/tcp/4001", "/ip4/192.0.2.7/tcp/1"]
            bad = ["/ip4/0.0.0.0/tcp/4001", "/dns4/victim.example/tcp/80", "/ip4/192.0.2.1/tcp/0"]
            told = [b"\xff", *map(address_bytes, [*bad, *good])]
            assert punching._read(HolePunch(type=HolePunch.CONNECT, ObsAddrs=told), link) == good
            many = [address_bytes(f"/ip4/192.0.2.{number}/tcp/1") for number in range(100)]
            message = HolePunch(type=HolePunch.CONNECT, ObsAddrs=many)
            assert len(punching._read(message, link)) == punching.ADDRESSES_MAX
            for refused in (
                HolePunch(type=HolePunch.SYNC),
                HolePunch(type=HolePunch.CONNECT),
                HolePunch(type=HolePunch.CONNECT, ObsAddrs=list(map(address_bytes, bad))),
            ):
                with pytest.raises(RemoteError):
                    punching._read(refused, link)

    play(scene)


@settings(max_examples=50)
@given(st.lists(st.binary(max_size=40), max_size=30))
def test_whatever_a_peer_says_is_addresses_or_refused(told: list[bytes]) -> None:
    link = Link.__new__(Link)
    link.peer = BEN.peer_id
    link.remote_address = "/ip4/192.0.2.1/tcp/1"
    try:
        found = punching._read(HolePunch(type=HolePunch.CONNECT, ObsAddrs=told), link)
    except RemoteError:
        return
    assert 0 < len(found) <= punching.ADDRESSES_MAX


def test_a_hole_is_punched_for_a_relayed_connection_only() -> None:
    async def scene() -> None:
        async with relayed(punch=False) as (relay, ann, ben):
            for link in (ann.link_to(relay), ann.link_to(ben)):
                # Ann dialled both: only the peer that was dialled through a relay may begin.
                stream = await link.open_stream(punching.PROTOCOL)
                told = [address_bytes("/ip4/192.0.2.7/tcp/1")]
                with pytest.raises(RemoteError):
                    await connect(stream, told)
            assert not ben.punching._punching

    play(scene)


def test_a_peer_that_begins_before_its_hello_is_answered_once_that_has_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scene() -> None:
        async with relayed(punch=False) as (_, ann, ben):
            neighbours = ann.neighbours
            monkeypatch.setattr(neighbours, "is_neighbour", lambda link: False)
            answered = False

            async def begin() -> None:
                nonlocal answered
                with await ben.link_to(ann).open_stream(punching.PROTOCOL) as stream:
                    await connect(stream, [address_bytes("/ip4/127.0.0.1/tcp/9")])
                    answered = True

            async with trio.open_nursery() as nursery:
                nursery.start_soon(begin)
                await trio.sleep(0.3)
                assert not answered
                monkeypatch.undo()
                neighbours._say_moved()

    play(scene)


def test_a_peer_cannot_have_a_node_dial_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(punching, "PUNCH_S_MAX", 0.05)

    async def scene() -> None:
        async with relayed(punch=False) as (_, ann, ben):
            told = [address_bytes("/ip4/127.0.0.1/tcp/9")]
            answers = 0
            for _ in range(5):
                try:
                    with await ben.link_to(ann).open_stream(punching.PROTOCOL) as stream:
                        while True:
                            await connect(stream, told)
                            answers += 1
                            await say(stream, HolePunch(type=HolePunch.SYNC))
                except RemoteError:
                    await trio.sleep(0.2)
            assert answers == punching.TRIES_MAX
            assert ann.link_to(ben).relay is not None

    play(scene)


# The port.


def test_a_dial_comes_from_the_port_that_the_node_listens_at() -> None:
    async def main() -> None:
        with trio.fail_after(10):
            ann, ben = Host(ANN), Host(BEN)
            (mine,) = await ann.listen("/ip4/127.0.0.1/tcp/0")
            (address,) = await ben.listen("/ip4/127.0.0.1/tcp/0")
            links: list[Link] = []

            async def accepted(link: Link) -> None:
                links.append(link)
                await trio.sleep_forever()

            async with trio.open_nursery() as nursery:
                nursery.start_soon(ann.serve, accepted)
                nursery.start_soon(ben.serve, accepted)
                connection = await ann.connect_from_port(address)
                link = await ann.secure(connection, BEN.peer_id, as_client=True)
                assert link.local_address == mine
                await until(lambda: bool(links))
                assert links[0].remote_address == mine
                # Others still reach the port, and nobody else may listen at it.
                (await ben.dial(ANN.peer_id, [mine])).close()
                with pytest.raises(AddressInUseError):
                    await Host(BEN).listen(mine)
                link.close()
                nursery.cancel_scope.cancel()

    trio.run(main)


def test_a_node_that_does_not_listen_has_no_port_to_dial_from() -> None:
    async def main() -> None:
        with pytest.raises(OSError, match="does not listen"):
            await Host(ANN).connect_from_port("/ip4/127.0.0.1/tcp/9")
        with pytest.raises(LocalError):
            await Host(ANN).connect_from_port("nowhere")

    trio.run(main)
