"""Real nodes that follow a topic by content: what matches comes, and they are no members."""

from __future__ import annotations

from pathlib import Path

import trio

from pulsarcast.model import trace
from pulsarcast.model.events import Attribute
from pulsarcast.model.topics import AttributeRule, TopicSettings
from pulsarcast.network.node import Node
from pulsarcast.network.values import Topic
from pulsarcast.testbed.reading import lines_of

SETTINGS = TopicSettings(
    attributes=(AttributeRule("price", "float", 0, 100), AttributeRule("symbol", "str")),
    extensions={"routing": "content"},
)
WHERE = "price < 10 and symbol starts with 'I'"


async def _publish(node: Node, topic: Topic, *prices: float) -> None:
    for price in prices:
        sent: dict[str, Attribute] = {"price": price, "symbol": "IBM"}
        await node.publish(topic, b"%d" % price, attributes=sent, ack="accepted")


def test_a_filter_on_a_routed_topic_brings_what_matches_without_membership(tmp_path: Path) -> None:
    async def scene() -> None:
        async with (
            Node.open(tmp_path / "ann") as ann,
            Node.open(tmp_path / "ben", bootstrap=ann.addresses) as ben,
            Node.open(tmp_path / "cyd", bootstrap=ann.addresses) as cyd,
        ):
            topic = await ann.create_topic("ticks", SETTINGS)
            async with await ben.subscribe(topic, "me", where=WHERE) as events:
                await _publish(cyd, topic, 5, 50, 7)
                got = {(await anext(events)).payload for _ in range(2)}
                assert got == {b"5", b"7"}
                events.acknowledge()
            core = ben._running.core
            assert not core.topics
            assert len(core.content.topics) == 1
            await ben.unsubscribe(topic)
            assert not core.content.topics

    trio.run(scene)


def test_a_content_subscriber_that_was_away_gets_what_it_missed(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Node.open(tmp_path / "ann") as ann:
            topic = await ann.create_topic("ticks", SETTINGS)
            async with Node.open(tmp_path / "ben", bootstrap=ann.addresses) as ben:
                async with await ben.subscribe(topic, "me", where=WHERE) as events:
                    await _publish(ann, topic, 5)
                    assert (await anext(events)).payload == b"5"
                    events.acknowledge()
            await _publish(ann, topic, 50, 6)
            async with Node.open(tmp_path / "ben", bootstrap=ann.addresses) as ben:
                async with await ben.subscribe(topic, "me", where=WHERE) as events:
                    assert (await anext(events)).payload == b"6"

    trio.run(scene)


def test_a_filter_that_asks_about_no_number_makes_a_member_that_filters_itself(
    tmp_path: Path,
) -> None:
    async def scene() -> None:
        async with (
            Node.open(tmp_path / "ann") as ann,
            Node.open(tmp_path / "ben", bootstrap=ann.addresses) as ben,
        ):
            topic = await ann.create_topic("ticks", SETTINGS)
            where = "symbol starts with 'I'"
            async with await ben.subscribe(topic, "me", where=where) as events:
                await _publish(ann, topic, 50)
                assert (await anext(events)).payload == b"50"
            assert len(ben._running.core.content.topics) == 0
            assert ben._running.core.topics

    trio.run(scene)


def test_the_trace_names_the_filters_whenever_they_change_and_says_when_they_end(
    tmp_path: Path,
) -> None:
    traces = tmp_path / "traces"
    traces.mkdir()

    async def scene() -> None:
        async with (
            Node.open(tmp_path / "ann") as ann,
            Node.open(
                tmp_path / "ben",
                bootstrap=ann.addresses,
                trace_level="delivery",
                trace_folder=traces,
                run_id="r1",
            ) as ben,
        ):
            topic = await ann.create_topic("ticks", SETTINGS)
            await ben.subscribe(topic, "me", where=WHERE)
            await ben.subscribe(topic, "you", where="price > 90")
            await ben.unsubscribe(topic)

    trio.run(scene)
    said = [line.record for line in lines_of(traces)]
    filters = [record.filters for record in said if isinstance(record, trace.Subscribed)]
    assert filters == [(WHERE,), (WHERE, "price > 90"), ("price > 90",)]
    kinds = [trace.kind_of(record) for record in said]
    assert kinds.count("unsubscribed") == 1
    assert kinds.index("unsubscribed") > max(
        at for at, kind in enumerate(kinds) if kind == "subscribed"
    )
