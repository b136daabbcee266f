"""Dialling peers back: where, and whom."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio

from pulsarcast.model.identity import Identity
from pulsarcast.network.dial_backs import PORTS_MAX, dial_back, ways_back
from pulsarcast.network.host import Host
from pulsarcast.network.link import Link

ANN, BEN, EVE = (Identity.from_seed(bytes([seed]) * 32) for seed in (1, 2, 3))


@pytest.mark.parametrize(
    ("told", "ways"),
    [
        (["/ip4/192.168.1.2/tcp/4420"], ["/ip4/10.2.0.2/tcp/4420"]),
        (["/ip4/10.9.9.9/tcp/22", "/dns4/victim.example/tcp/22"], ["/ip4/10.2.0.2/tcp/22"]),
        (["/ip6/fd00::1/tcp/4421", "/ip4/1.2.3.4/tcp/0"], ["/ip4/10.2.0.2/tcp/4421"]),
        (["/ip4/10.9.9.9/udp/4420/quic-v1", "nonsense"], []),
        ([], []),
    ],
)
def test_no_host_is_dialled_but_the_one_that_the_connection_comes_from(
    told: list[str], ways: list[str]
) -> None:
    assert ways_back("/ip4/10.2.0.2/tcp/50000", told) == tuple(ways)


def test_a_peer_of_this_machine_is_dialled_at_the_loopback_address_that_it_told() -> None:
    told = ["/ip4/127.1.0.3/tcp/4420", "/ip4/10.9.9.9/tcp/22"]
    ways = ("/ip4/127.1.0.3/tcp/4420", "/ip4/127.2.0.3/tcp/22")
    assert ways_back("/ip4/127.2.0.3/tcp/50000", told) == ways


def test_the_ports_that_are_tried_are_few() -> None:
    told = [f"/ip4/10.2.0.2/tcp/{port}" for port in range(1000, 1016)]
    assert len(ways_back("/ip4/10.2.0.2/tcp/50000", told)) == PORTS_MAX


def play(scene: Callable[[trio.Nursery], Awaitable[None]]) -> None:
    async def bounded() -> None:
        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                await scene(nursery)
                nursery.cancel_scope.cancel()

    trio.run(bounded)


async def connected(
    nursery: trio.Nursery, dialler: Host, listener: Host
) -> tuple[Link, tuple[str, ...], list[Link]]:
    """The listener's end of a connection, where the dialler listens, and what came in there."""
    came: list[Link] = []
    came_back: list[Link] = []

    async def serve(host: Host, links: list[Link]) -> None:
        async def accepted(link: Link) -> None:
            links.append(link)
            await link.run(lambda frames: None)

        await host.serve(accepted)

    addresses = await listener.listen("/ip4/127.0.0.1/tcp/0")
    own = await dialler.listen("/ip4/127.0.0.1/tcp/0")
    nursery.start_soon(serve, listener, came)
    nursery.start_soon(serve, dialler, came_back)
    link = await dialler.dial(listener.peer, addresses)
    nursery.start_soon(link.run, lambda frames: None)
    while not came:
        await trio.sleep(0.01)
    return came[0], own, came_back


def test_a_peer_that_can_be_dialled_is_reached_over_a_connection_that_ends_at_once() -> None:
    async def scene(nursery: trio.Nursery) -> None:
        ann, ben = Host(ANN), Host(BEN)
        link, told, came_back = await connected(nursery, ann, ben)
        assert await dial_back(ben, link, told) == told[0]
        assert ben.connection_count == 1, "the one that the peer dialled"
        while ann.connection_count != 1:
            await trio.sleep(0.01)
        assert len(came_back) == 1

    play(scene)


def test_another_peer_at_the_port_is_not_the_one_that_asked() -> None:
    async def scene(nursery: trio.Nursery) -> None:
        ann, ben, eve = Host(ANN), Host(BEN), Host(EVE)
        link, _, _ = await connected(nursery, ann, ben)
        theirs = await eve.listen("/ip4/127.0.0.1/tcp/0")
        nursery.start_soon(eve.serve, _ignore)
        assert await dial_back(ben, link, theirs) == ""
        assert await dial_back(ben, link, ()) == ""
        assert await dial_back(ben, link, ("/ip4/127.0.0.1/tcp/1",)) == ""

    play(scene)


async def _ignore(link: Link) -> None:
    await link.run(lambda frames: None)
