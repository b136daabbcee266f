"""A node that starts again, and the peers that it finds without being told: on loopback."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio

from pulsarcast.model.errors import LocalError
from pulsarcast.network.node import Node

PORT_OF_NOBODY = 1
"""No program of a test listens there."""


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
