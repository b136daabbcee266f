"""Sub-topics in the library: one subscription, the events of all topics below."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio

from pulsarcast.model.errors import LocalError, NotFollowed
from pulsarcast.model.topics import TopicSettings
from pulsarcast.network import subscriptions
from pulsarcast.network.below import BelowSubscription
from pulsarcast.network.node import Node
from pulsarcast.network.subscriptions import Begin
from pulsarcast.network.values import Topic
from pulsarcast.protocol.following import below as core_below


def play(scene: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        with trio.fail_after(60):
            await scene()

    trio.run(bounded)


@pytest.fixture(autouse=True)
def _walk_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core_below, "WALK_S", 0.02)


async def tree(node: Node) -> tuple[Topic, Topic, Topic]:
    leaf = await node.create_topic("leaf")
    middle = await node.create_topic("middle", subtopics={"leaf": leaf})
    return await node.create_topic("top", subtopics={"middle": middle.id}), middle, leaf


async def listen(
    node: Node,
    topic: Topic,
    name: str = "",
    *,
    count: int,
    manual: bool = False,
    start: Begin = "now",
) -> BelowSubscription:
    """Subscribe with all below, and wait until so many sub-topics are followed."""
    events = await node.subscribe(topic, name, start, below=True, manual=manual)
    assert isinstance(events, BelowSubscription)
    await joined(node, topic, count)
    return events


async def joined(node: Node, topic: Topic, count: int) -> None:
    while True:
        views = {each.id: each for each in node.topics()}
        below = views[topic.id].below
        if below is not None and below.followed == count and not below.joining:
            return
        await trio.sleep(0.01)


async def take(events: BelowSubscription, count: int) -> list[tuple[str, bytes]]:
    with trio.fail_after(10):
        found = [await anext(events) for _ in range(count)]
    return sorted((event.topic, event.payload) for event in found)


async def is_quiet(events: BelowSubscription) -> bool:
    with trio.move_on_after(0.1) as scope:
        await events.wait()
    return scope.cancelled_caught


def test_one_subscription_gives_the_events_of_all_topics_below(tmp_path: Path) -> None:
    async def scene() -> None:
        async with (
            Node.open(tmp_path / "ann") as ann,
            Node.open(tmp_path / "ben", bootstrap=ann.addresses) as ben,
        ):
            top, middle, leaf = await tree(ann)
            async with await listen(ben, top, count=2) as events:
                assert events.topic == top.id
                for topic in (top, middle, leaf):
                    await ann.publish(topic, topic.name.encode(), ack="accepted")
                assert await take(events, 3) == sorted(
                    (topic.id, topic.name.encode()) for topic in (top, middle, leaf)
                )
            await ben.unsubscribe(top)
            assert ben.topics() == []

    play(scene)


def test_a_named_reader_goes_on_in_every_topic_after_a_restart(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Node.open(tmp_path / "ann") as ann:
            top, middle, leaf = await tree(ann)
            async with await listen(ann, top, "me", count=2, manual=True) as events:
                for number in range(3):
                    for topic in (middle, leaf):
                        await ann.publish(topic, b"%d" % number, ack="accepted")
                await take(events, 6)
                events.acknowledge(2, subtopic=leaf.id)
                await ann.acknowledge(top, "me", 1, subtopic=middle)
                with pytest.raises(LocalError, match="counts its own events"):
                    events.acknowledge(1)
            (reader,) = await ann.readers(top)
            assert (reader.behind, reader.below) == (3, True)
            assert await ann.readers(leaf) == []
        async with Node.open(tmp_path / "ann") as ann:
            await ann.publish(leaf, b"while away", ack="accepted")
            events = await listen(ann, top, "me", count=2)
            assert await take(events, 4) == sorted(
                [
                    (middle.id, b"1"),
                    (middle.id, b"2"),
                    (leaf.id, b"2"),
                    (leaf.id, b"while away"),
                ]
            )
            assert await is_quiet(events)

    play(scene)


@pytest.mark.slow
def test_a_topic_that_comes_while_its_reader_is_away_is_read_from_its_first_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core_below, "QUIET_S", 0.05)

    async def scene() -> None:
        async with Node.open(tmp_path / "ann") as ann:
            top = await ann.create_topic("top")
            (await listen(ann, top, "me", count=0)).close()
            await trio.sleep(0.2)
            leaf = await ann.create_topic("leaf")
            await ann.publish(leaf, b"before", ack="accepted")
            await ann.update_topic(top, TopicSettings(), subtopics={"leaf": leaf})
            await joined(ann, top, 1)
            await ann.publish(leaf, b"after", ack="accepted")
            events = await listen(ann, top, "me", count=1)
            assert await take(events, 2) == [(leaf.id, b"after"), (leaf.id, b"before")]

    play(scene)


@pytest.mark.slow
def test_a_topic_that_a_version_removed_and_brought_back_is_heard_again(tmp_path: Path) -> None:
    async def scene() -> None:
        async with (
            Node.open(tmp_path / "ann") as ann,
            Node.open(tmp_path / "ben", bootstrap=ann.addresses) as ben,
        ):
            leaf = await ann.create_topic("leaf")
            top = await ann.create_topic("top", subtopics={"leaf": leaf})
            events = await listen(ben, top, count=1)
            for number in range(5):
                await ann.publish(leaf, b"%d" % number, ack="accepted")
            await take(events, 5)
            await ann.update_topic(top, TopicSettings(), subtopics={})
            await joined(ben, top, 0)
            while len(ben.topics()) > 1:
                await trio.sleep(0.01)
            await ann.publish(leaf, b"unheard", ack="accepted")
            await ann.update_topic(top, TopicSettings(), subtopics={"leaf": leaf})
            await joined(ben, top, 1)
            await ann.publish(leaf, b"again", ack="accepted")
            while (leaf.id, b"again") not in await take(events, 1):
                pass
            assert await is_quiet(events)

    play(scene)


@pytest.mark.slow
def test_a_reader_of_one_topic_and_one_of_all_are_independent(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Node.open(tmp_path / "ann") as ann:
            top, middle, leaf = await tree(ann)
            whole = await listen(ann, top, count=2)
            alone = await ann.subscribe(leaf)
            other = await ann.subscribe(top, "without")
            await ann.publish(leaf, b"x", ack="accepted")
            await ann.publish(top, b"y", ack="accepted")
            assert (await anext(alone)).payload == b"x"
            assert (await anext(other)).payload == b"y"
            assert await take(whole, 2) == sorted([(leaf.id, b"x"), (top.id, b"y")])
            await ann.unsubscribe(leaf)
            with pytest.raises(NotFollowed):
                await anext(alone)
            await ann.publish(leaf, b"z", ack="accepted")
            assert await take(whole, 1) == [(leaf.id, b"z")]
            alone = await ann.subscribe(leaf)
            await ann.unsubscribe(top)
            with pytest.raises(NotFollowed):
                await anext(whole)
            await ann.publish(leaf, b"stays", ack="accepted")
            assert (await anext(alone)).payload == b"stays"
            assert middle.id in {each.id for each in ann.topics() if not each.subscribed}

    play(scene)


@pytest.mark.slow
def test_the_beginning_is_that_of_every_topic_below(tmp_path: Path) -> None:
    async def scene() -> None:
        async with (
            Node.open(tmp_path / "ann") as ann,
            Node.open(tmp_path / "ben", bootstrap=ann.addresses) as ben,
        ):
            top, _middle, leaf = await tree(ann)
            await ann.publish(leaf, b"before", ack="accepted")
            events = await listen(ben, top, count=2, start="beginning")
            assert await take(events, 1) == [(leaf.id, b"before")]
            second = await listen(ben, top, "second", count=2, start="beginning")
            assert await take(second, 1) == [(leaf.id, b"before")]

    play(scene)


@pytest.mark.slow
def test_a_slow_subscriber_of_many_topics_keeps_no_more_than_one_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriptions, "MEMORY_MAX", 8)
    monkeypatch.setattr(subscriptions, "PAGE", 4)

    async def scene() -> None:
        async with Node.open(tmp_path / "ann") as ann:
            leaves = [await ann.create_topic(f"{number}") for number in range(6)]
            top = await ann.create_topic("top", subtopics={each.name: each for each in leaves})
            events = await listen(ann, top, count=6)
            for number in range(10):
                for leaf in leaves:
                    await ann.publish(leaf, b"%02d" % number, ack="accepted")
            seen: dict[str, list[bytes]] = {}
            for _ in range(60):
                event = await anext(events)
                seen.setdefault(event.topic, []).append(event.payload)
                assert events._memory.count <= 8 + 4
            assert seen == {leaf.id: [b"%02d" % number for number in range(10)] for leaf in leaves}
            assert events._memory.count == events._memory.bytes == 0

    play(scene)


@pytest.mark.slow
def test_a_reader_that_is_forgotten_or_reads_one_topic_again_leaves_no_place(
    tmp_path: Path,
) -> None:
    async def scene() -> None:
        async with Node.open(tmp_path / "ann") as ann:
            top, _middle, leaf = await tree(ann)
            for name in ("gone", "changed"):
                (await listen(ann, top, name, count=2)).close()
            await ann.publish(leaf, b"x", ack="accepted")
            assert [each.behind for each in await ann.readers(top)] == [1, 1]
            await ann.forget(top, "gone")
            (await ann.subscribe(top, "changed")).close()
            assert [each.behind for each in await ann.readers(top)] == [0]
        async with Node.open(tmp_path / "ann") as ann:
            assert not ann._offsets.by_topic.get(leaf.cid)
            assert [each.below for each in await ann.readers(top)] == [False]

    play(scene)


def test_a_filter_or_an_index_is_for_one_topic(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Node.open(tmp_path / "ann") as ann:
            top, _middle, _leaf = await tree(ann)
            for options in ({"where": "x = 1"}, {"start": 3}):
                with pytest.raises(LocalError, match="for one topic"):
                    await ann.subscribe(top, below=True, **options)
            with pytest.raises(LocalError, match="NUL"):
                await ann.subscribe(top, "a\0b")
            events = await ann.subscribe(top)
            with pytest.raises(LocalError, match="no sub-topics"):
                events.acknowledge(1, subtopic="elsewhere")

    play(scene)


@pytest.mark.slow
def test_a_wait_that_is_cancelled_loses_no_event(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Node.open(tmp_path / "ann") as ann:
            top, _middle, leaf = await tree(ann)
            events = await listen(ann, top, count=2)
            for number in range(20):
                await ann.publish(leaf, b"%02d" % number, ack="accepted")
                with trio.move_on_after(0):
                    await events.wait()
            assert [payload for _, payload in await take(events, 20)] == [
                b"%02d" % number for number in range(20)
            ]

    play(scene)


@pytest.mark.slow
def test_following_with_all_below_needs_no_reader(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Node.open(tmp_path / "ann") as ann:
            top, _middle, leaf = await tree(ann)
            await ann.follow(top, below=True)
            await joined(ann, top, 2)
            views = {each.id: each for each in ann.topics()}
            assert views[leaf.id].above == [top.id]
            assert views[leaf.id].subscribed

    play(scene)
