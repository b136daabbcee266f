"""Peers without our protocol: kept in small number, for a while, and no neighbours."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from msgspec.structs import replace

from pulsarcast.model.identity import Identity
from pulsarcast.model.reach import Reach
from pulsarcast.network import guests, identify, ping
from pulsarcast.network import neighbours as neighbours_module
from pulsarcast.network.host import Host
from pulsarcast.network.link import Link
from pulsarcast.network.negotiation import HEADER, NOT_AVAILABLE
from pulsarcast.network.yamux import YamuxStream
from pulsarcast.wire.framing import write_frames
from tests.unit.network.hosts import Inbox
from tests.unit.network.test_neighbours import Someone, play, someone, until


@asynccontextmanager
async def strangers(to: Someone, count: int, first: int = 50) -> AsyncIterator[list[Link]]:
    """Peers that dial and do not speak our protocol."""
    links: list[Link] = []
    async with trio.open_nursery() as nursery:
        for number in range(count):
            host = Host(Identity(bytes([first + number]) * 32))
            link = await host.dial(to.peer, to.hello.addresses)
            link._stream.reset()
            link._mux.on_open = decline
            nursery.start_soon(link.run, Inbox().receive)
            links.append(link)
        yield links
        nursery.cancel_scope.cancel()


def decline(stream: YamuxStream) -> None:
    stream.send(write_frames((HEADER, NOT_AVAILABLE)))


def test_a_guest_asks_and_pings_and_is_no_neighbour() -> None:
    async def scene() -> None:
        async with someone(1) as ann, strangers(ann, 1) as (link,):
            await until(lambda: len(ann.neighbours.guests) == 1)
            said = await identify.ask(link)
            assert said.addresses == ann.hello.addresses
            assert said.observed == link.local_address
            assert {identify.PROTOCOL, ping.PROTOCOL} <= {*said.protocols}
            assert await ping.ping(link) < 5
            assert ann.neighbours.connected() == []
            assert ann.ear.story == []

    play(scene)


def test_guests_beyond_the_quota_are_sent_away_and_neighbours_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(guests, "GUESTS_MAX", 3)

    async def scene() -> None:
        async with someone(1) as ann, someone(2) as ben, strangers(ann, 3) as links:
            await until(lambda: len(ann.neighbours.guests) == 3)
            ben.knows(ann)
            ben.say(ann, b"hello")
            await until(lambda: ann.ear.heard == [b"hello"])
            async with strangers(ann, 2, first=80) as more:
                await until(lambda: all(link._closed for link in more))
                assert all(link.said_goodbye for link in more)
                assert len(ann.neighbours.guests) == 3
                assert not any(link._closed for link in links)
            ben.say(ann, b"again")
            await until(lambda: ann.ear.heard == [b"hello", b"again"])
            assert ann.ear.story == ["up"]

    play(scene)


def test_guests_of_one_place_do_not_keep_others_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guests, "GUESTS_PER_PLACE_MAX", 2)

    async def scene() -> None:
        async with someone(1) as ann, strangers(ann, 4) as links:
            await until(lambda: sum(link._closed for link in links) == 2)
            assert len(ann.neighbours.guests) == 2

    play(scene)


def test_a_guest_has_two_connections_and_a_third_replaces_the_oldest() -> None:
    async def scene() -> None:
        async with someone(1) as ann, strangers(ann, 1) as (oldest,):
            await until(lambda: len(ann.neighbours.guests) == 1)
            async with strangers(ann, 1) as (older,):
                await until(lambda: len(ann.neighbours.guests) == 2)
                assert not oldest._closed
                async with strangers(ann, 1) as (newer,):
                    await until(lambda: oldest._closed)
                    assert oldest.said_goodbye
                    assert len(ann.neighbours.guests) == 2
                    assert not older._closed
                    assert not newer._closed
            await until(lambda: len(ann.neighbours.guests) == 0)

    play(scene)


def test_a_guest_goes_when_its_time_is_up_unless_a_service_holds_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(neighbours_module, "HELLO_S_MAX", 0.05)
    monkeypatch.setattr(guests, "GUEST_S", 0.2)

    async def scene() -> None:
        async with someone(1) as ann, strangers(ann, 2) as (one, other):
            await until(lambda: len(ann.neighbours.guests) == 2)
            held = next(iter(ann.neighbours.guests._since_s))
            held.held_until_s = trio.current_time() + 0.7
            await until(lambda: len(ann.neighbours.guests) == 1)
            assert held in ann.neighbours.guests
            await until(lambda: len(ann.neighbours.guests) == 0)
            assert trio.current_time() >= held.held_until_s
            await until(lambda: one.said_goodbye and other.said_goodbye)

    play(scene)


def test_a_node_asks_whom_it_dialled_where_its_connection_comes_from() -> None:
    async def scene() -> None:
        async with someone(1) as ann, someone(2) as ben, someone(3) as cem:
            ben.hello = replace(ben.hello, reach=Reach.UNKNOWN)
            for node, other in ((ann, ben), (ben, cem)):
                node.knows(other)
                node.say(other, b"x")
                await until(lambda other=other: other.ear.heard == [b"x"])  # type: ignore[misc]
            await until(lambda: ben.neighbours.observed() != [])
            (link,) = [each for each in ben.neighbours.links() if each.dialled]
            assert ben.neighbours.observed() == [link.local_address]
            # A public node knows where it is.
            assert ann.neighbours.observed() == []
            assert ben.ear.story == ["up", "up"]

    play(scene)
