"""Real nodes on loopback whose topic has several sequencers: the leader goes, the order stays."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import trio

from pulsarcast.model.ids import parse_peer
from pulsarcast.model.topics import DeliveryOrder, TopicSettings
from pulsarcast.network.insight import Insight
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
        views = [view for node in nodes for view in node.topics() if view.id == topic]
        known = {view.sequencing.leader for view in views if view.sequencing is not None}
        for number, node in enumerate(nodes):
            if known == {node.peer_id} and len(views) == len(nodes):
                return number
        await trio.sleep(0.1)


async def live(home: Path, bootstrap: list[str], *, task_status: Any) -> None:
    """One node, until it is told to go."""
    stop = trio.Event()
    async with Node.open(home, bootstrap=bootstrap, parameters=QUICK) as node:
        task_status.started((node, stop))
        await stop.wait()


def test_a_successor_takes_over_from_a_sequencer_that_is_gone(tmp_path: Path) -> None:
    async def scene() -> None:
        async with (
            Node.open(tmp_path / "ann", parameters=QUICK) as ann,
            trio.open_nursery() as nursery,
        ):
            begun = [
                await nursery.start(live, tmp_path / name, list(ann.addresses))
                for name in ("one", "two", "three")
            ]
            nodes = [node for node, _ in begun]
            settings = TopicSettings(
                order=DeliveryOrder.TOTAL,
                sequencers=tuple(parse_peer(node.peer_id) for node in nodes),
            )
            topic = await ann.create_topic("ledger", settings)
            events = await ann.subscribe(topic)
            first = await leader_of(nodes, topic.id)
            await ann.publish(topic, b"one", ack="accepted")
            begun.pop(first)[1].set()
            nodes.pop(first)
            await ann.publish(topic, b"two", ack="accepted")
            await leader_of(nodes, topic.id)
            await nodes[0].publish(topic, b"three", ack="accepted")
            assert [(await anext(events)).payload for _ in range(3)] == [b"one", b"two", b"three"]
            for _, stop in begun:
                stop.set()

    play(scene)


def test_an_event_that_sequencers_numbered_is_found_in_the_log(tmp_path: Path) -> None:
    async def scene() -> None:
        async with (
            Node.open(tmp_path / "ann", parameters=QUICK) as ann,
            Node.open(tmp_path / "ben", parameters=QUICK, bootstrap=ann.addresses) as ben,
        ):
            sequencers = (ann.identity, ben.identity)
            settings = TopicSettings(order=DeliveryOrder.TOTAL, sequencers=sequencers)
            topic = await ann.create_topic("ledger", settings)
            async with await ann.subscribe(topic) as events:
                published = [
                    await ann.publish(topic, payload, ack="accepted") for payload in (b"1", b"2")
                ]
                indices = [(await anext(events)).index for _ in published]
            assert [Insight(ann).index_of(topic.cid, each.cid) for each in published] == indices

    play(scene)
