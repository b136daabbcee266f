"""Real nodes that follow a topic by content: what matches comes, and they are no members."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
import trio.lowlevel

from pulsarcast.daemon.streams import forget_nameless
from pulsarcast.model import trace
from pulsarcast.model.errors import LocalError
from pulsarcast.model.events import Attribute
from pulsarcast.model.topics import AttributeRule
from pulsarcast.network import filters
from pulsarcast.network.insight import Insight
from pulsarcast.network.node import Node
from pulsarcast.network.values import Topic
from pulsarcast.protocol.content.content import FILTERS_MAX
from pulsarcast.testbed.reading import lines_of
from tests.support.people import unordered

SETTINGS = unordered(
    attributes=(AttributeRule("price", "float", 0, 100), AttributeRule("symbol", "str")),
    content_routing=True,
)
WHERE = "price < 10 and symbol starts with 'I'"
UNROUTED = "price is missing or symbol = 'IBM'"


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


@pytest.mark.slow
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


@pytest.mark.parametrize(
    ("where", "is_routed"), [("symbol starts with 'I'", True), (UNROUTED, False)]
)
def test_a_filter_on_texts_is_routed_and_one_without_a_range_makes_a_member(
    tmp_path: Path, where: str, is_routed: bool
) -> None:
    async def scene() -> None:
        async with (
            Node.open(tmp_path / "ann") as ann,
            Node.open(tmp_path / "ben", bootstrap=ann.addresses) as ben,
        ):
            topic = await ann.create_topic("ticks", SETTINGS)
            async with await ben.subscribe(topic, "me", where=where) as events:
                await _publish(ann, topic, 50)
                assert (await anext(events)).payload == b"50"
            assert len(ben._running.core.content.topics) == is_routed
            assert bool(ben._running.core.topics) is not is_routed

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


def test_a_topic_that_is_followed_by_content_shows_in_what_can_be_seen(tmp_path: Path) -> None:
    async def scene() -> None:
        async with (
            Node.open(tmp_path / "ann") as ann,
            Node.open(tmp_path / "ben", bootstrap=ann.addresses) as ben,
        ):
            topic = await ann.create_topic("ticks", SETTINGS)
            assert not Insight(ben).is_subscribed(topic.cid)
            async with await ben.subscribe(topic, "me", where=WHERE) as events:
                await _publish(ann, topic, 5, 6, 7)
                for _ in range(3):
                    await anext(events)
                assert Insight(ben).is_subscribed(topic.cid)
                assert Insight(ben).newest(topic.cid) == 3
                (seen,) = Insight(ben).topics({"t": topic.id})
                assert (seen.id, seen.name, seen.newest, seen.subscribed) == (
                    topic.id, "ticks", 3, True
                )  # fmt: skip
                assert (seen.filters, seen.aliases) == ([WHERE], ["t"])
                assert [reader.name for reader in seen.readers] == ["me"]

    trio.run(scene)


def test_who_has_no_name_and_a_filter_does_not_outlive_the_node(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Node.open(tmp_path / "ann") as ann:
            topic = await ann.create_topic("ticks", SETTINGS)
            for _ in range(2):
                async with Node.open(tmp_path / "ben", bootstrap=ann.addresses) as ben:
                    await forget_nameless(ben)
                    assert await ben.readers(topic) == []
                    await ben.subscribe(topic, "~nobody", where=WHERE)

    trio.run(scene)


def _wanted(node: Node, topic: Topic) -> list[str]:
    found = node._running.core.content.topics.get(topic.cid)
    return [] if found is None else [wanted.text() for wanted in found.wanted.values()]


async def _until_wanted(node: Node, topic: Topic, *wheres: str) -> None:
    with trio.fail_after(10):
        while _wanted(node, topic) != list(wheres):
            await trio.sleep(0.05)


def test_the_filter_of_a_reader_that_is_forgotten_ends_and_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filters, "UNREAD_S", 0.2)

    async def scene() -> None:
        async with (
            Node.open(tmp_path / "ann") as ann,
            Node.open(tmp_path / "ben", bootstrap=ann.addresses) as ben,
        ):
            topic = await ann.create_topic("ticks", SETTINGS)
            async with await ben.subscribe(topic, "me", where=WHERE) as events:
                for name in ("~a", "~b"):
                    (await ben.subscribe(topic, name, where="price > 90")).close()
                    await ben.forget(topic, name)
                await _until_wanted(ben, topic, WHERE)
                await _publish(ann, topic, 5)
                assert (await anext(events)).payload == b"5"

    trio.run(scene)


def test_who_comes_back_behind_the_last_event_it_saw_misses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As clients without a name do when their connection breaks."""

    async def scene(unread_s: float, *others: str) -> None:
        monkeypatch.setattr(filters, "UNREAD_S", unread_s)
        home = tmp_path / str(unread_s)
        async with (
            Node.open(home / "ann") as ann,
            Node.open(home / "ben", bootstrap=ann.addresses) as ben,
        ):
            topic = await ann.create_topic("ticks", SETTINGS)
            for other in others:
                await ben.subscribe(topic, other, where="price > 90")
            async with await ben.subscribe(topic, "~a", where=WHERE) as events:
                await _publish(ann, topic, 5)
                assert (await anext(events)).index == 1
            await ben.forget(topic, "~a")
            await trio.sleep(0.5)
            await _publish(ann, topic, 6)
            with trio.fail_after(10):
                while Insight(ben).newest(topic.cid) < 2:
                    await trio.sleep(0.05)
                async with await ben.subscribe(topic, "~b", where=WHERE, start=2) as events:
                    assert (await anext(events)).payload == b"6"

    trio.run(scene, 60.0, "other")
    trio.run(scene, 0.1)  # The last filter stays, however long nobody reads it.


def test_who_wants_everything_is_not_kept_out_by_filters_that_nobody_reads(tmp_path: Path) -> None:
    async def scene() -> None:
        async with (
            Node.open(tmp_path / "ann") as ann,
            Node.open(tmp_path / "ben", bootstrap=ann.addresses) as ben,
        ):
            for where in (None, UNROUTED):
                topic = await ann.create_topic(f"ticks {where}", SETTINGS)
                async with await ben.subscribe(topic, "~a", where=WHERE) as events:
                    await _publish(ann, topic, 5, 6)
                    await anext(events)
                    await anext(events)
                    if where is None:
                        with pytest.raises(LocalError, match="by filters"):
                            await ben.subscribe(topic, "b")
                await ben.forget(topic, "~a")
                # Its log begins anew, and so do the places in it.
                async with await ben.subscribe(topic, "b", where=where) as events:
                    assert _wanted(ben, topic) == []
                    await _publish(ann, topic, 50)
                    with trio.fail_after(10):
                        assert (await anext(events)).payload == b"50"

    trio.run(scene)


def test_many_readers_with_filters_may_come_and_go(tmp_path: Path) -> None:
    async def scene() -> None:
        async with (
            Node.open(tmp_path / "ann") as ann,
            Node.open(tmp_path / "ben", bootstrap=ann.addresses) as ben,
        ):
            topic = await ann.create_topic("ticks", SETTINGS)
            for number in range(FILTERS_MAX + 2):
                (await ben.subscribe(topic, f"~{number}", where=WHERE)).close()
                await ben.forget(topic, f"~{number}")
            assert 0 < len(_wanted(ben, topic)) <= FILTERS_MAX

    trio.run(scene)


def test_a_filter_whose_reader_is_gone_ends_also_in_another_life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene() -> None:
        async with Node.open(tmp_path / "ann") as ann:
            topic = await ann.create_topic("ticks", SETTINGS)
            async with Node.open(tmp_path / "ben", bootstrap=ann.addresses) as ben:
                for name, where in (("me", WHERE), ("~a", "price > 90")):
                    await ben.subscribe(topic, name, where=where)
                await ben.forget(topic, "~a")
            monkeypatch.setattr(filters, "UNREAD_S", 0.2)
            async with Node.open(tmp_path / "ben", bootstrap=ann.addresses) as ben:
                assert len(_wanted(ben, topic)) == 2
                await _until_wanted(ben, topic, WHERE)

    trio.run(scene)


def test_a_caller_that_waits_no_more_leaves_no_filter(tmp_path: Path) -> None:
    async def scene() -> None:
        async with (
            Node.open(tmp_path / "ann") as ann,
            Node.open(tmp_path / "ben", bootstrap=ann.addresses) as ben,
        ):
            topic = await ann.create_topic("ticks", SETTINGS)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(lambda: ben.subscribe(topic, "me", where=WHERE))
                while not _wanted(ben, topic):
                    await trio.lowlevel.checkpoint()
                nursery.cancel_scope.cancel()
            assert _wanted(ben, topic) == []
            assert await ben.readers(topic) == []
            async with await ben.subscribe(topic, "me", where=WHERE) as events:
                await _publish(ann, topic, 5)
                assert (await anext(events)).payload == b"5"

    trio.run(scene)


@pytest.mark.parametrize("lives", [1, 2], ids=["in the same life", "in another life"])
def test_who_waits_no_more_for_the_end_of_its_filters_leaves_no_place_behind(
    tmp_path: Path, lives: int
) -> None:
    async def read_on(node: Node, author: Node, topic: Topic) -> None:
        assert _wanted(node, topic) == []
        async with await node.subscribe(topic, "me", where=WHERE) as events:
            await _publish(author, topic, 7, 8, 9)
            with trio.fail_after(10):
                assert [(await anext(events)).index for _ in range(3)] == [1, 2, 3]

    async def scene() -> None:
        async with Node.open(tmp_path / "ann") as ann:
            topic = await ann.create_topic("ticks", SETTINGS)
            async with Node.open(tmp_path / "ben", bootstrap=ann.addresses) as ben:
                await ben.subscribe(topic, "you", where="price > 90")
                async with await ben.subscribe(topic, "me", where=WHERE) as events:
                    await _publish(ann, topic, 5, 6)
                    await anext(events)
                    await anext(events)
                    events.acknowledge()
                with trio.CancelScope() as scope:
                    scope.cancel()
                    await ben.unsubscribe(topic)
                assert scope.cancelled_caught
                if lives == 1:
                    await read_on(ben, ann, topic)
            if lives == 2:
                async with Node.open(tmp_path / "ben", bootstrap=ann.addresses) as ben:
                    await read_on(ben, ann, topic)

    trio.run(scene)
