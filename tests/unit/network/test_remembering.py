"""A node that starts again, and the peers that it finds without being told: on loopback."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from pulsarcast.model.api import BootstrapView
from pulsarcast.model.errors import LocalError
from pulsarcast.network.insight import Insight
from pulsarcast.network.node import Node


def play(scene: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        with trio.fail_after(60):
            await scene()

    trio.run(bounded)


async def meet(*nodes: Node, s_max: float = 10) -> None:
    """Wait until every node has a peer."""
    with trio.fail_after(s_max):
        while not all(node.peers() for node in nodes):
            await trio.sleep(0.02)


def test_a_running_node_is_given_a_bootstrap_peer_and_keeps_it(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Node.open(tmp_path / "ann") as ann:
            async with Node.open(tmp_path / "ben") as ben:
                assert not ben.peers()
                await ben.add_bootstrap(ann.addresses)
                await meet(ann, ben)
                await ben.add_bootstrap([])
            async with Node.open(tmp_path / "ben") as ben:
                await meet(ann, ben)

    play(scene)


def test_a_bootstrap_peer_named_before_it_runs_is_tried_until_it_does(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Node.open(tmp_path / "ann") as ann:
            (address,) = ann.addresses
        async with Node.open(tmp_path / "ben") as ben:
            await ben.add_bootstrap([address])
            await trio.sleep(0.5)
            listen = (address.partition("/p2p/")[0],)
            async with Node.open(tmp_path / "ann", listen=listen) as ann:
                await meet(ann, ben)

    play(scene)


def test_what_is_no_address_of_a_peer_is_refused_and_nothing_is_kept(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Node.open(tmp_path / "ann") as ann:
            peer = ann.peer_id
            for wrong in ("", "ann", f"/ip4/127.0.0.1/tcp/1/p2p/{peer[:-1]}", f"/p2p/{peer}"):
                with pytest.raises(LocalError):
                    await ann.add_bootstrap([f"/ip4/127.0.0.1/tcp/1/p2p/{peer}", wrong])
            with pytest.raises(LocalError, match="as a list"):
                await ann.add_bootstrap(f"/ip4/127.0.0.1/tcp/1/p2p/{peer}")

    play(scene)


@pytest.mark.parametrize("order", ["ann first", "ben first"])
def test_a_pair_that_starts_again_without_options_is_connected_again(
    tmp_path: Path, order: str
) -> None:
    async def scene() -> None:
        async with (
            Node.open(tmp_path / "ann") as ann,
            Node.open(tmp_path / "ben", bootstrap=ann.addresses) as ben,
        ):
            await meet(ann, ben)
        first, second = ("ann", "ben") if order == "ann first" else ("ben", "ann")
        began_s = trio.current_time()
        async with Node.open(tmp_path / first) as one:
            assert trio.current_time() - began_s < 2  # It does not wait for the other.
            await trio.sleep(0.5)
            async with Node.open(tmp_path / second) as other:
                await meet(one, other)

    play(scene)


def test_peers_that_were_never_named_are_found_again_too(tmp_path: Path) -> None:
    """The one bootstrap peer of both is gone for good: they know each other."""

    async def scene() -> None:
        async with Node.open(tmp_path / "hub") as hub:
            async with (
                Node.open(tmp_path / "ann", bootstrap=hub.addresses) as ann,
                Node.open(tmp_path / "ben", bootstrap=hub.addresses) as ben,
            ):
                with trio.fail_after(10):
                    while len(ann.peers()) < 2 or len(ben.peers()) < 2:
                        await trio.sleep(0.02)
        async with Node.open(tmp_path / "ann") as ann, Node.open(tmp_path / "ben") as ben:
            await meet(ann, ben)
            assert Insight(ann).peers_remembered == 2

    play(scene)


def test_a_port_that_was_free_once_is_taken_again_if_it_still_is(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Node.open(tmp_path / "ann") as ann:
            before = ann.addresses
        async with Node.open(tmp_path / "ann") as ann:
            assert ann.addresses == before
        port = int(before[0].split("/")[4])
        with socket.create_server(("127.0.0.1", port)):
            async with Node.open(tmp_path / "ann") as ann:
                assert ann.addresses != before

    play(scene)


def state_of(node: Node) -> BootstrapView:
    (view,) = Insight(node).bootstrap()
    return view


async def reason_for(node: Node) -> str:
    with trio.fail_after(15):
        while state_of(node).state != "unreachable":
            await trio.sleep(0.02)
    view = state_of(node)
    assert view.since_us is not None
    assert abs(view.since_us - time.time_ns() // 1000) < 15_000_000
    assert view.reason is not None
    return view.reason


def test_each_way_of_not_answering_has_a_reason_that_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def scene() -> None:
        async with Node.open(tmp_path / "other") as other, Node.open(tmp_path / "gone") as gone:
            wanted = gone.peer_id
            where = other.addresses[0].partition("/p2p/")[0]
        listen = (where,)
        async with Node.open(tmp_path / "other", listen=listen), trio.open_nursery() as nursery:
            http = await nursery.start(serve, answer_as_http)
            closing = await nursery.start(serve, close_at_once)
            for number, (place, expected) in enumerate(
                {
                    where: "another peer answers there: 12D3",
                    "/dns/nowhere.invalid/tcp/4420": "the host name does not resolve",
                    "/ip4/127.0.0.1/tcp/1": "no program listens there (connection refused)",
                    f"/ip4/127.0.0.1/tcp/{http}": "is no node of Pulsarcast",
                    f"/ip4/127.0.0.1/tcp/{closing}": "closed the connection at once",
                }.items()
            ):
                caplog.clear()
                async with Node.open(tmp_path / f"{number}") as node:
                    await node.add_bootstrap([f"{place}/p2p/{wanted}"])
                    reason = await reason_for(node)
                    assert reason.startswith(f"{place}: ")
                    assert expected in reason
                    await trio.sleep(0.1 if number else 1.4)  # It is tried again meanwhile.
                said = [each for each in caplog.messages if wanted in each]
                assert len(said) == 1, said
                assert "bootstrap peer" in said[0]
                assert expected in said[0]
            nursery.cancel_scope.cancel()

    play(scene)


def test_a_peer_of_another_network_is_named_as_a_possible_reason(tmp_path: Path) -> None:
    async def scene() -> None:
        async with (
            Node.open(tmp_path / "ann", network="other") as ann,
            Node.open(tmp_path / "ben") as ben,
        ):
            await ben.add_bootstrap(ann.addresses)
            assert "another network" in await reason_for(ben)

    play(scene)


def test_two_nodes_of_one_machine_find_each_other_public_and_say_that_it_is_near(
    tmp_path: Path,
) -> None:
    async def scene() -> None:
        async with (
            Node.open(tmp_path / "ann") as ann,
            Node.open(tmp_path / "ben", bootstrap=ann.addresses) as ben,
        ):
            await meet(ann, ben)
            assert state_of(ben).state == "connected"
            while ben.reach.kind == "unknown":
                await trio.sleep(0.01)
            for node, other in ((ann, ben), (ben, ann)):
                reach = node.reach
                assert (reach.kind, reach.address) == ("public", ""), "no peer from afar says where"
                assert [(each.peer, each.near) for each in reach.reports] == [(other.peer_id, True)]
                assert "on this machine only" in reach.advice
            while [each.reach for each in ann.peers()] != ["public"]:
                await trio.sleep(0.01)  # It is told.

    play(scene)


async def answer_as_http(stream: trio.SocketStream) -> None:
    await stream.receive_some()
    await stream.send_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n" + b"\r\n" * 40)


async def close_at_once(stream: trio.SocketStream) -> None:
    await stream.aclose()


async def serve(
    handle: Callable[[trio.SocketStream], Awaitable[None]],
    task_status: Any = trio.TASK_STATUS_IGNORED,
) -> None:
    """Be another program, at a port of its own."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    task_status.started(listener.socket.getsockname()[1])
    await trio.serve_listeners(handle, [listener])
