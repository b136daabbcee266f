"""Real nodes on loopback whose topic has several sequencers: the leader goes, the order stays."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import trio

from pulsarcast.model.ids import parse_peer
from pulsarcast.model.topics import DeliveryOrder, TopicSettings
from pulsarcast.network.node import Node
from pulsarcast.protocol.parameters import Parameters

QUICK = Parameters(election_timeout_s=1.0, leader_heartbeat_s=0.2)


def play(scene: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        with trio.fail_after(100):
            await scene()

    trio.run(bounded)


async def leader_of(nodes: list[Node], topic: str) -> int:
    """The one that leads, once all agree on it."""
    while True:
        views = [view for node in nodes for view in node.followed() if view.id == topic]
        known = {view.sequencing.leader for view in views if view.sequencing is not None}
        for number, node in enumerate(nodes):
            if known == {node.peer_id} and len(views) == len(nodes):
                return number
        await trio.sleep(0.1)


def test_a_successor_takes_over_from_a_sequencer_that_is_gone(tmp_path: Path) -> None:
    async def scene() -> None:
        async with AsyncExitStack() as stack, AsyncExitStack() as doomed:
            ann = await stack.enter_async_context(Node.open(tmp_path / "ann", parameters=QUICK))
            nodes: list[Node] = []
            homes: list[AsyncExitStack] = []
            for number in range(3):
                home = await doomed.enter_async_context(AsyncExitStack())
                opened = Node.open(
                    tmp_path / f"{number}", bootstrap=ann.addresses, parameters=QUICK
                )
                nodes.append(await home.enter_async_context(opened))
                homes.append(home)
            settings = TopicSettings(
                delivery_order=DeliveryOrder.TOTAL,
                sequencers=tuple(parse_peer(node.peer_id) for node in nodes),
            )
            topic = await ann.create_topic("ledger", settings)
            events = await ann.subscribe(topic)
            first = await leader_of(nodes, topic.id)
            await ann.publish(topic, b"one", ack="accepted")
            await homes.pop(first).aclose()
            nodes.pop(first)
            await ann.publish(topic, b"two", ack="accepted")
            await leader_of(nodes, topic.id)
            await nodes[0].publish(topic, b"three", ack="accepted")
            assert [(await anext(events)).payload for _ in range(3)] == [b"one", b"two", b"three"]

    play(scene)
