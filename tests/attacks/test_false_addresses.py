"""Attacks with addresses: what a peer says of where it is reaches nodes that never spoke to it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio

from pulsarcast.model.ids import PeerId
from pulsarcast.model.reach import Reach
from pulsarcast.network.addresses import parse_contact
from pulsarcast.network.node import Node
from pulsarcast.protocol.messages import Contact, Peers
from pulsarcast.wire.codec import encode


def play(scene: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        with trio.fail_after(30):
            await scene()

    trio.run(bounded)


def port_of(node: Node) -> int:
    """Where a node really listens, whatever it says."""
    (listener,) = node._running.host._listeners
    port: int = listener.getsockname()[1]
    return port


@pytest.mark.parametrize(
    "address",
    [
        "/dns4/❤/tcp/1",
        "/dns4/two..dots/tcp/1",
        f"/dns/{'a' * 64}/tcp/1",
        "/ip6/fe80::1%\0/tcp/1",
    ],
)
def test_an_address_that_cannot_be_dialled_ends_nobody_who_hears_of_it(
    tmp_path: Path, address: str
) -> None:
    async def scene() -> None:
        async with (
            Node.open(tmp_path / "victim") as victim,
            Node.open(tmp_path / "hostile") as hostile,
        ):
            hostile._running.addresses = (address,)
            # It lies, since no peer can dial it back there: else no other peer would hear of it.
            hostile._running.core.dht.reachability.start(Reach.PUBLIC)
            hostile._running.meet(parse_contact(victim.addresses[0]))
            await hostile._running.joined.wait()
            async with Node.open(tmp_path / "other", bootstrap=victim.addresses) as other:
                # It hears of the hostile one from the victim, and cannot dial it.
                while hostile.identity not in other._running.neighbours._refused:
                    await trio.sleep(0.02)
                assert other._running.book.of(hostile.identity) == (address,)
                topic = await victim.create_topic("weather")
                events = await other.subscribe(topic)
                await victim.publish(topic, b"sunny", ack="accepted")
                assert (await anext(events)).payload == b"sunny"

    play(scene)


def test_false_addresses_do_not_push_out_where_a_peer_was_reached(tmp_path: Path) -> None:
    """Neither one that the operator gave us, nor one that others told and that led there."""

    async def scene() -> None:
        async with (
            # Where it says itself that it is nobody finds it: only the others know better.
            Node.open(tmp_path / "ann", announce=["/ip4/127.0.0.1/tcp/1"]) as ann,
            Node.open(tmp_path / "cid") as cid,
        ):
            truth = f"/dns4/localhost/tcp/{port_of(ann)}"
            cid._running.meet(Contact(ann.identity, (truth,)))
            await cid._running.joined.wait()
            bootstrap = [f"{truth}/p2p/{ann.peer_id}"]
            async with Node.open(tmp_path / "ben", bootstrap=bootstrap) as ben:
                ben._running.book._reached.clear()  # as if it were not up yet
                for node in (ben, cid):
                    lies = tuple(f"/ip4/127.0.0.1/tcp/{port}" for port in range(2, 18))
                    node._running.received(
                        PeerId(bytes(38)), [encode(Peers(1, (Contact(ann.identity, lies),)))]
                    )
                    assert truth in node._running.book.of(ann.identity)
                    node._running.neighbours.close(ann.identity)
                    while ann.peer_id in {each.peer for each in node.peers()}:
                        await trio.sleep(0.02)
                    node._running.neighbours.meet(ann.identity)
                    while ann.peer_id not in {each.peer for each in node.peers()}:
                        await trio.sleep(0.02)

    play(scene)
