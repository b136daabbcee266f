"""The library, as programs use it: real nodes on loopback."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
import zstandard

from pulsarcast.model.errors import LocalError, ReaderNotFound
from pulsarcast.model.ids import cid_of
from pulsarcast.model.publications import Publication
from pulsarcast.model.topics import DeliveryOrder, TopicSettings
from pulsarcast.network import driver, host, offsets
from pulsarcast.network.insight import Insight
from pulsarcast.network.interfaces import Interface
from pulsarcast.network.node import Node
from pulsarcast.network.subscriptions import MEMORY_MAX, Reader, Subscription
from pulsarcast.network.values import Published, Topic
from pulsarcast.protocol.effects import Reply
from pulsarcast.protocol.inputs import Halt, Stop
from pulsarcast.protocol.store import PutState, StateRow
from pulsarcast.protocol.topic import log
from pulsarcast.storage.home import Home
from pulsarcast.storage.sqlite import StoreError


def play(scene: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        with trio.fail_after(60):
            await scene()

    trio.run(bounded)


async def take(events: Subscription, count: int) -> list[bytes]:
    with trio.fail_after(30):
        return [(await anext(events)).payload for _ in range(count)]


def test_an_event_arrives(tmp_path: Path) -> None:
    async def scene() -> None:
        async with (
            Node.open(tmp_path / "ann") as ann,
            Node.open(tmp_path / "ben", bootstrap=ann.addresses) as ben,
        ):
            topic = await ann.create_topic("weather")
            events = await ben.subscribe(topic)
            published = await ann.publish(topic, b"sunny", name="today", ack="accepted")
            event = await anext(events)
            assert event.payload == b"sunny"
            assert event.name == "today"
            assert event.author == event.publisher == ann.peer_id
            assert event.id == published.id
            assert event.index == 1

    play(scene)


def test_a_topic_is_found_by_its_author_and_name(tmp_path: Path) -> None:
    async def scene() -> None:
        async with (
            Node.open(tmp_path / "ann") as ann,
            Node.open(tmp_path / "ben", bootstrap=ann.addresses) as ben,
        ):
            topic = await ann.create_topic("weather")
            found = await ben.topic(f"{ann.peer_id}/weather")
            assert found.id == topic.id
            assert found.author == ann.peer_id
            with pytest.raises(LocalError, match="no topic"):
                await ben.topic(f"{ann.peer_id}/nothing")
            with pytest.raises(LocalError, match="not a content id"):
                await ben.subscribe("nonsense")

    play(scene)


async def _takes_s(search: Callable[[], Awaitable[object]]) -> float:
    """How long a search takes that finds nothing."""
    began_s = trio.current_time()
    with pytest.raises(LocalError, match="no topic with this author"):
        await search()
    return trio.current_time() - began_s


def test_a_search_waits_for_the_first_peer_of_a_node_that_has_just_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if the peer to begin with were slow to answer.
    monkeypatch.setattr("pulsarcast.network.node.JOIN_S_MAX", 0.0)

    async def scene() -> None:
        async with Node.open(tmp_path / "ann") as ann:
            topic = await ann.create_topic("weather")
            async with Node.open(tmp_path / "ben", bootstrap=ann.addresses) as ben:
                assert not ben.peers()
                assert (await ben.topic(f"{ann.peer_id}/weather")).id == topic.id
            async with Node.open(tmp_path / "cid", bootstrap=ann.addresses) as cid:
                assert not cid.peers()
                await cid.subscribe(topic.id)

    play(scene)


def test_a_search_does_not_wait_long_where_there_is_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulsarcast.network.node.JOIN_S_MAX", 0.0)
    monkeypatch.setattr("pulsarcast.network.node.FIRST_PEER_S_MAX", 1.0)

    async def scene() -> None:
        async with Node.open(tmp_path / "ann") as ann:
            gone = ann.addresses
            nowhere = f"{ann.peer_id}/nowhere"
            # The first node of a network has nobody to wait for.
            assert await _takes_s(partial(ann.topic, nowhere)) < 0.5
        async with Node.open(tmp_path / "ben", bootstrap=gone) as ben:
            assert 0.9 < await _takes_s(partial(ben.topic, nowhere)) < 3.0
            topic = await ben.create_topic("weather")
            began_s = trio.current_time()
            await ben.subscribe(f"{ben.peer_id}/weather")
            await ben.publish(topic.id, b"sunny", ack="accepted")
            assert trio.current_time() - began_s < 0.5  # What is here needs nobody else.

    play(scene)


def test_a_subscription_goes_on_where_it_stopped(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Node.open(tmp_path / "ann") as ann:
            topic = await ann.create_topic("weather")
            async with Node.open(tmp_path / "ben", bootstrap=ann.addresses) as ben:
                async with await ben.subscribe(topic, "reader") as events:
                    await ann.publish(topic, b"1", ack="accepted")
                    assert await take(events, 1) == [b"1"]
                    events.acknowledge()
            for number in (b"2", b"3"):
                await ann.publish(topic, number, ack="accepted")
            async with Node.open(tmp_path / "ben", bootstrap=ann.addresses) as ben:
                assert Insight(ben).incarnation == 2
                async with await ben.subscribe(topic, "reader") as events:
                    assert await take(events, 2) == [b"2", b"3"]

    play(scene)


def test_names_listen_independently_and_one_name_only_once(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Node.open(tmp_path / "ann") as ann:
            topic = await ann.create_topic("weather")
            first = await ann.subscribe(topic, "first")
            await ann.publish(topic, b"1", ack="accepted")
            assert await take(first, 1) == [b"1"]
            late = await ann.subscribe(topic, "late")
            with pytest.raises(LocalError, match="connected already"):
                await ann.subscribe(topic, "late")
            await ann.publish(topic, b"2", ack="accepted")
            assert await take(late, 1) == [b"2"]
            assert await take(first, 1) == [b"2"]
            late.close()
            with pytest.raises(LocalError, match="closed"):
                await anext(late)

    play(scene)


def test_a_new_listener_hears_nothing_from_before_unless_it_asks(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Node.open(tmp_path / "ann") as ann:
            topic = await ann.create_topic("weather")
            for number in range(5):
                await ann.publish(topic, b"%d" % number, ack="accepted")
            now = await ann.subscribe(topic, "now")
            everything = await ann.subscribe(topic, "everything", start="beginning")
            await ann.publish(topic, b"5", ack="accepted")
            assert await take(now, 1) == [b"5"]
            assert await take(everything, 6) == [b"%d" % number for number in range(6)]

    play(scene)


async def _author_of_many(node: Node, count: int) -> Topic:
    """A topic whose author has said much in it, and never listened."""
    topic = await node.create_topic("weather")
    said = [Publication(payload=b"%d" % number) for number in range(count)]
    await node.publish_many(topic, said, ack="accepted")
    return topic


def test_others_have_their_turn_while_somebody_begins_at_the_start(tmp_path: Path) -> None:
    count = 8000

    async def scene() -> None:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await trio.sleep(0.01)
                ticks += 1

        async with Node.open(tmp_path / "ann") as ann:
            topic = await _author_of_many(ann, count)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(tick)
                events = await ann.subscribe(topic, "reader", start="beginning")
                await ann._running.rest()
                assert Insight(ann).counters.deliveries == count
                nursery.cancel_scope.cancel()
            assert ticks, "nobody else had a turn"
            assert await take(events, count) == [b"%d" % number for number in range(count)]

    play(scene)


@pytest.fixture
def _often_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "GIVE_WAY_S", 0.0)
    monkeypatch.setattr(log, "PAGE", 4)


@pytest.mark.usefixtures("_often_gives_way")
def test_who_comes_while_another_begins_at_the_start_hears_nothing_from_before(
    tmp_path: Path,
) -> None:
    count = 400

    async def scene() -> None:
        async with Node.open(tmp_path / "ann") as ann:
            topic = await _author_of_many(ann, count)
            everything = await ann.subscribe(topic, "everything", start="beginning")
            assert Insight(ann).counters.deliveries < count
            now = await ann.subscribe(topic, "now")
            await ann.publish(topic, b"new", ack="accepted")
            assert await take(now, 1) == [b"new"]
            assert (await take(everything, count + 1))[-1] == b"new"

    play(scene)


@pytest.mark.usefixtures("_often_gives_way")
def test_who_leaves_a_topic_while_it_is_handed_out_from_its_start_leaves_nothing_behind(
    tmp_path: Path,
) -> None:
    count = 400

    async def scene() -> None:
        async with Node.open(tmp_path / "ann") as ann:
            topic = await _author_of_many(ann, count)
            await ann.follow(topic, start="beginning")
            assert Insight(ann).counters.deliveries < count
            await ann.unsubscribe(topic)
            now = await ann.subscribe(topic, "now")
            await ann.publish(topic, b"new", ack="accepted")
            assert await take(now, 1) == [b"new"]

    play(scene)


def test_a_slow_listener_reads_on_from_the_log(tmp_path: Path) -> None:
    count = 3 * MEMORY_MAX

    async def scene() -> None:
        async with Node.open(tmp_path / "ann") as ann:
            settings = TopicSettings(open=True, order=DeliveryOrder.PER_PUBLISHER)
            topic = await ann.create_topic("weather", settings)
            events = await ann.subscribe(topic)
            async with trio.open_nursery() as nursery:

                async def publish(start: int) -> None:
                    for number in range(start, count, 8):
                        await ann.publish(topic, b"%d" % number, ack="accepted")

                for start in range(8):
                    nursery.start_soon(publish, start)
            got = await take(events, count)
            assert sorted(got, key=int) == [b"%d" % number for number in range(count)]
            kept = [event.payload async for event in ann.history(topic)]
            assert kept == got
            some = [event.index async for event in ann.history(topic, start=10, limit=3)]
            assert some == [10, 11, 12]

    play(scene)


def test_the_same_key_publishes_once_also_in_another_life(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Node.open(tmp_path / "ann") as ann:
            topic = await ann.create_topic("weather")
            await ann.subscribe(topic)
            once = await ann.publish(topic, b"x", ack="accepted", idempotency_key="k")
            again = await ann.publish(topic, b"x", ack="accepted", idempotency_key="k")
            assert once.id == again.id
        async with Node.open(tmp_path / "ann") as ann:
            later = await ann.publish(topic, b"x", ack="accepted", idempotency_key="k")
            assert later.id == once.id
            assert len([event async for event in ann.history(topic)]) == 1

    play(scene)


@pytest.mark.parametrize("days", [-31, 2])
def test_members_keep_what_claims_another_time_and_the_dht_does_not(
    tmp_path: Path, days: int
) -> None:
    async def scene() -> None:
        async with (
            Node.open(tmp_path / "ann") as ann,
            Node.open(tmp_path / "ben", bootstrap=ann.addresses) as ben,
        ):
            topic = await ann.create_topic("weather")
            events = await ben.subscribe(topic)
            created_us = time.time_ns() // 1000 + days * 86_400_000_000
            now = await ann.publish(topic, b"now")
            (then,) = await ann.publish_many(
                topic, [Publication(payload=b"then", created_us=created_us)]
            )
            assert isinstance(then, Published)
            assert (now.replicas, then.replicas) == (2, 0)
            assert await take(events, 2) == [b"now", b"then"]

    play(scene)


def test_one_who_may_not_publish_asks_one_who_may(tmp_path: Path) -> None:
    async def scene() -> None:
        async with (
            Node.open(tmp_path / "ann") as ann,
            Node.open(tmp_path / "ben", bootstrap=ann.addresses) as ben,
        ):
            topic = await ann.create_topic("weather")
            events = await ann.subscribe(topic)
            await ben.publish(topic, b"rain", ack="accepted")
            event = await anext(events)
            assert (event.author, event.publisher) == (ben.peer_id, ann.peer_id)

    play(scene)


def test_unsubscribing_ends_every_listener_and_forgets_its_place(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Node.open(tmp_path / "ann") as ann:
            topic = await ann.create_topic("weather")
            events = await ann.subscribe(topic, "reader")
            await ann.unsubscribe(topic)
            with pytest.raises(LocalError, match="unsubscribed"):
                await anext(events)
            again = await ann.subscribe(topic, "reader")
            await ann.publish(topic, b"new", ack="accepted")
            assert await take(again, 1) == [b"new"]

    play(scene)


@pytest.mark.parametrize("lives", [1, 2], ids=["in the same life", "in another life"])
def test_who_waits_no_more_for_leaving_a_topic_leaves_no_place_behind(
    tmp_path: Path, lives: int
) -> None:
    """The next log counts from 1 again: an old place in it would pass over what is new."""

    async def read_on(node: Node, author: Node, topic: Topic) -> None:
        async with await node.subscribe(topic, "reader") as events:
            for number in range(1, 6):
                await author.publish(topic, b"new %d" % number, ack="accepted")
            with trio.fail_after(10):
                got = [await anext(events) for _ in range(5)]
        assert [event.index for event in got] == [1, 2, 3, 4, 5]
        assert [event.payload for event in got] == [b"new %d" % at for at in range(1, 6)]

    async def scene() -> None:
        async with Node.open(tmp_path / "ann") as ann:
            topic = await ann.create_topic("weather")
            async with Node.open(tmp_path / "ben", bootstrap=ann.addresses) as ben:
                async with await ben.subscribe(topic, "reader") as events:
                    for _ in range(3):
                        await ann.publish(topic, b"old", ack="accepted")
                    await take(events, 3)
                    events.acknowledge()
                listening = await ben.subscribe(topic, "listening")
                with trio.CancelScope() as scope:
                    scope.cancel()
                    await ben.unsubscribe(topic)
                assert scope.cancelled_caught
                if lives == 1:
                    await read_on(ben, ann, topic)
                    with pytest.raises(LocalError, match="unsubscribed"):
                        await anext(listening)
            if lives == 2:
                async with Node.open(tmp_path / "ben", bootstrap=ann.addresses) as ben:
                    await read_on(ben, ann, topic)

    play(scene)


def test_a_place_that_outlived_its_log_is_forgotten_with_the_next_start(tmp_path: Path) -> None:
    """A crash may leave one, where somebody comes back from the start while we still leave."""

    async def scene() -> None:
        async with Node.open(tmp_path / "ann") as ann:
            topic = await ann.create_topic("weather")
            place = StateRow(offsets.READER, topic.cid + b"reader", Reader(3).to_bytes())
            with Home.open(tmp_path / "ben") as home:
                home.store.apply([PutState(place)])
            for _ in range(2):
                async with Node.open(tmp_path / "ben", bootstrap=ann.addresses) as ben:
                    assert not await ben.readers(topic)
                    await ben.subscribe(topic, "another")
                    await ben.forget(topic, "another")
            async with Node.open(tmp_path / "ben", bootstrap=ann.addresses) as ben:
                events = await ben.subscribe(topic, "reader")
                for number in range(1, 6):
                    await ann.publish(topic, b"%d" % number, ack="accepted")
                assert await take(events, 5) == [b"%d" % number for number in range(1, 6)]

    play(scene)


@pytest.mark.parametrize("given", [Stop(), Halt("another node has our key")])
def test_who_is_not_let_out_of_a_topic_keeps_its_place_in_it(
    tmp_path: Path, given: Stop | Halt
) -> None:
    async def scene() -> None:
        async with (
            Node.open(tmp_path / "ann") as ann,
            Node.open(tmp_path / "ben", bootstrap=ann.addresses) as ben,
        ):
            topic = await ann.create_topic("weather")
            await ben.subscribe(topic)
            async with await ann.subscribe(topic, "reader") as events:
                await ann.publish(topic, b"1", ack="accepted")
                await take(events, 1)
            ann._running.take(given)
            with pytest.raises(LocalError):
                await ann.unsubscribe(topic)
        async with Node.open(tmp_path / "ann") as ann:
            assert [reader.name for reader in await ann.readers(topic)] == ["reader"]
            assert Insight(ann).is_subscribed(topic.cid)

    play(scene)


def test_one_name_is_forgotten_and_the_others_stay(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Node.open(tmp_path / "ann") as ann:
            topic = await ann.create_topic("weather")
            leaving = await ann.subscribe(topic, "leaving")
            staying = await ann.subscribe(topic, "staying")
            await ann.forget(topic, "leaving")
            with pytest.raises(ReaderNotFound):
                await ann.forget(topic, "leaving")
            with pytest.raises(ReaderNotFound, match="deleted"):
                await anext(leaving)
            await ann.publish(topic, b"1", ack="accepted")
            assert await take(staying, 1) == [b"1"]
        async with Node.open(tmp_path / "ann") as ann:
            # A forgotten name is new, and hears nothing from before.
            events = await ann.subscribe(topic, "leaving")
            await ann.publish(topic, b"2", ack="accepted")
            assert await take(events, 1) == [b"2"]

    play(scene)


def test_what_was_given_and_not_done_comes_again_and_says_so(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Node.open(tmp_path / "ann") as ann:
            topic = await ann.create_topic("weather")
            events = await ann.subscribe(topic, "reader", manual=True)
            for number in range(1, 5):
                await ann.publish(topic, b"%d" % number, ack="accepted")
            first = [await anext(events) for _ in range(3)]
            assert [event.redelivery for event in first] == [False] * 3
            events.acknowledge(1)
            second = await ann.subscribe(topic, "reader", manual=True, take_over=True)
            with pytest.raises(LocalError, match="taken over"):
                await anext(events)
            again = [await anext(second) for _ in range(3)]
            assert [(event.index, event.redelivery) for event in again] == [
                (2, True),
                (3, True),
                (4, False),
            ]
            # Who says itself where it stopped is given nothing again.
            chosen = await ann.subscribe(topic, "reader", manual=True, take_over=True, start=4)
            event = await anext(chosen)
            assert (event.index, event.redelivery) == (4, False)
        async with Node.open(tmp_path / "ann") as ann:
            await ann.publish(topic, b"5", ack="accepted")
            events = await ann.subscribe(topic, "reader", manual=True)
            later = [await anext(events) for _ in range(4)]
            assert [(event.index, event.redelivery) for event in later] == [
                (2, True),
                (3, True),
                (4, True),
                (5, False),
            ]

    play(scene)


class Held:
    """Lets no subscription through until it is said how it ends."""

    def __init__(self, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ends: list[trio.Event] = []
        self.refused: set[int] = set()
        self._follow = node._follow
        monkeypatch.setattr(node, "_follow", self)

    async def __call__(self, *args: Any, **kwargs: Any) -> Reply:
        number = len(self.ends)
        self.ends.append(trio.Event())
        await self.ends[number].wait()
        if number in self.refused:
            raise LocalError("not this time")
        return await self._follow(*args, **kwargs)


async def take_over_one_that_fails(
    node: Node, topic: Topic, held: Held, *, refused: set[int]
) -> Subscription | None:
    """One comes under a new name, and another takes it over; what the second gets."""
    held.refused = refused
    got: list[Subscription] = []

    async def listen(*, take_over: bool = False) -> None:
        with suppress(LocalError):
            got.append(await node.subscribe(topic, "reader", take_over=take_over))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(listen)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(partial(listen, take_over=True))
        await trio.testing.wait_all_tasks_blocked()
        for each in held.ends:
            each.set()
            await trio.testing.wait_all_tasks_blocked()
    return got[0] if got else None


def test_two_that_are_refused_under_one_new_name_leave_no_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first cannot take it away, since the second listens; so the second has to."""

    async def scene() -> None:
        async with Node.open(tmp_path / "ann") as ann:
            topic = await ann.create_topic("weather")
            held = Held(ann, monkeypatch)
            assert await take_over_one_that_fails(ann, topic, held, refused={0, 1}) is None
            with pytest.raises(ReaderNotFound):
                await ann.forget(topic, "reader")

    play(scene)


def test_who_takes_over_from_one_that_is_refused_has_its_place_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whenever places would be written by themselves."""
    monkeypatch.setattr(offsets, "OFFSETS_S", 3600.0)

    async def scene() -> None:
        async with Node.open(tmp_path / "ann") as ann:
            topic = await ann.create_topic("weather")
            written: list[bool] = []
            monkeypatch.setattr(ann._offsets, "write", lambda driver: written.append(True))
            held = Held(ann, monkeypatch)
            events = await take_over_one_that_fails(ann, topic, held, refused={0})
            assert events is not None
            assert events.closed is None
            assert written

    play(scene)


def test_one_that_is_refused_after_its_topic_was_left_takes_nobodys_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else has its name by then."""

    async def scene() -> None:
        async with Node.open(tmp_path / "ann") as ann:
            topic = await ann.create_topic("weather")
            held = Held(ann, monkeypatch)
            held.refused = {0}

            async def listen() -> None:
                with suppress(LocalError):
                    await ann.subscribe(topic, "reader")

            async with trio.open_nursery() as nursery:
                nursery.start_soon(listen)
                await trio.testing.wait_all_tasks_blocked()
                await ann.unsubscribe(topic)
                nursery.start_soon(listen)
                await trio.testing.wait_all_tasks_blocked()
                for each in reversed(held.ends):
                    each.set()
                    await trio.testing.wait_all_tasks_blocked()
            assert [reader.name for reader in await ann.readers(topic)] == ["reader"]

    play(scene)


@pytest.mark.parametrize("lives", [1, 2], ids=["in the same life", "in another life"])
def test_one_that_comes_back_and_is_refused_still_has_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lives: int
) -> None:
    """It was promised what came while it was away; that one attempt fails takes nothing back."""

    async def be_refused(node: Node, topic: Topic) -> None:
        with monkeypatch.context() as patched:
            held = Held(node, patched)
            assert await take_over_one_that_fails(node, topic, held, refused={0, 1}) is None

    async def read_on(node: Node, topic: Topic) -> None:
        async with await node.subscribe(topic, "reader") as events:
            with trio.fail_after(10):
                assert (await anext(events)).payload == b"missed"

    async def scene() -> None:
        async with Node.open(tmp_path / "ann") as ann:
            topic = await ann.create_topic("weather")
            (await ann.subscribe(topic, "reader")).close()
            await ann.publish(topic, b"missed", ack="accepted")
            if lives == 1:
                await be_refused(ann, topic)
                await read_on(ann, topic)
        if lives == 2:
            async with Node.open(tmp_path / "ann") as ann:
                await be_refused(ann, topic)
                await read_on(ann, topic)

    play(scene)


def test_a_new_name_that_begins_at_an_index_has_its_place_there(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Node.open(tmp_path / "ann") as ann:
            topic = await ann.create_topic("weather")
            await ann.subscribe(topic)
            for number in range(1, 11):
                await ann.publish(topic, b"%d" % number, ack="accepted")
            # Also where it is the first of all, and the node does not follow the topic yet.
            own = await ann.create_topic("own")
            for number in range(1, 4):
                await ann.publish(own, b"%d" % number, ack="accepted")
            async with await ann.subscribe(own, start=2) as events:
                assert await take(events, 2) == [b"2", b"3"]
            async with await ann.subscribe(topic, "late", start=3) as events:
                assert await take(events, 3) == [b"3", b"4", b"5"]
            async with await ann.subscribe(topic, "late") as events:
                assert await take(events, 6) == [b"%d" % number for number in range(5, 11)]

    play(scene)


def test_connections_that_end_leave_no_task_behind(tmp_path: Path) -> None:
    def tasks() -> int:
        def below(task: trio.lowlevel.Task) -> int:
            return 1 + sum(
                below(child) for nursery in task.child_nurseries for child in nursery.child_tasks
            )

        root = trio.lowlevel.current_root_task()
        assert root is not None
        return below(root)

    async def scene() -> None:
        async with Node.open(tmp_path / "ann") as ann:
            before = tasks()
            for _ in range(10):
                async with Node.open(tmp_path / "ben", bootstrap=ann.addresses) as ben:
                    assert [each.peer for each in ben.peers()] == [ann.peer_id]
            with trio.fail_after(5):
                while tasks() > before:
                    await trio.sleep(0.05)

    play(scene)


def test_a_folder_has_one_node_at_a_time(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Node.open(tmp_path / "ann"):
            with pytest.raises(LocalError, match=str(os.getpid())):
                async with Node.open(tmp_path / "ann"):
                    pass

    play(scene)


PUBLISH_UNTIL_KILLED = """
import sys, trio
from pulsarcast.network import driver, host, offsets
from pulsarcast.network.node import Node

async def main():
    async with Node.open(sys.argv[1]) as node:
        topic = await node.create_topic("weather")
        await node.subscribe(topic, "reader")
        print(topic.id, flush=True)
        for number in range(1_000_000):
            await node.publish(topic, b"%d" % number, ack="accepted")
            print(number, flush=True)

trio.run(main)
"""


def test_nothing_acknowledged_is_lost_by_a_kill(tmp_path: Path) -> None:
    home = tmp_path / "ann"
    process = subprocess.Popen(
        [sys.executable, "-c", PUBLISH_UNTIL_KILLED, str(home)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    topic = process.stdout.readline().strip()
    for _ in range(200):
        process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    acknowledged = [int(line) for line in process.stdout if line.endswith("\n")]
    process.stdout.close()
    process.wait()
    last = acknowledged[-1] if acknowledged else 199

    async def scene() -> None:
        async with Node.open(home) as ann:
            kept = [int(event.payload) async for event in ann.history(topic)]
            assert kept[: last + 1] == list(range(last + 1))
            events = await ann.subscribe(topic, "reader")
            assert await take(events, len(kept)) == [b"%d" % number for number in kept]
            # And it goes on with the next number of its own.
            await ann.publish(topic, b"later", ack="accepted")
            assert await take(events, 1) == [b"later"]

    play(scene)


def test_a_disk_that_refuses_ends_every_call_with_the_reason(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Node.open(tmp_path / "ann") as ann:
            topic = await ann.create_topic("weather")
            events = await ann.subscribe(topic)
            store = ann._home.store

            def refuse(writes: object) -> tuple[int, ...]:
                raise StoreError("no space left on device")

            store.apply = refuse  # type: ignore[method-assign]
            for _ in range(2):  # in flight when it happens, and after
                with pytest.raises(LocalError, match="no space left"), trio.fail_after(5):
                    await ann.publish(topic, b"x", ack="accepted")
            assert ann.halted is not None
            with pytest.raises(LocalError, match="no space left"):
                await anext(events)

    play(scene)


def test_a_node_whose_store_is_damaged_starts_or_says_what_is_wrong(tmp_path: Path) -> None:
    store = tmp_path / "ann" / "store.sqlite"
    refused: list[str] = []

    async def scene() -> None:
        async with Node.open(tmp_path / "ann") as ann:
            topic = await ann.create_topic("weather")
            async with await ann.subscribe(topic, "reader"):
                await ann.publish(topic, b"sunny", ack="accepted")
        whole, page = store.read_bytes(), 4096
        for start in range(0, len(whole), page):
            store.write_bytes(whole[:start] + b"\xff" * page + whole[start + page :])
            try:
                async with Node.open(tmp_path / "ann"):
                    pass
            except LocalError as error:
                refused.append(str(error))

    play(scene)
    assert refused
    assert all(str(store) in reason for reason in refused)


def test_a_topic_is_looked_up_in_its_newest_version(tmp_path: Path) -> None:
    async def scene() -> None:
        async with (
            Node.open(tmp_path / "ann") as ann,
            Node.open(tmp_path / "ben", bootstrap=ann.addresses) as ben,
        ):
            topic = await ann.create_topic("weather")
            await ann.update_topic(topic, TopicSettings(payload_bytes_max=5))
            for reference in (topic.id, f"{ann.peer_id}/weather"):
                found = await ben.topic(reference)
                assert found.id == topic.id
                assert found.descriptor.payload_bytes_max == 5

    play(scene)


def test_a_caller_that_waits_no_more_leaves_its_name_free(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Node.open(tmp_path / "ann") as ann:
            nowhere = cid_of(b"no topic")
            with trio.CancelScope() as scope:
                scope.cancel()
                await ann.subscribe(nowhere, "reader")
            with pytest.raises(LocalError, match="no such topic"):
                await ann.subscribe(nowhere, "reader")

    play(scene)


def test_topics_that_do_not_exist_leave_nothing_behind(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Node.open(tmp_path / "ann") as ann:
            for number in range(4):
                nowhere = cid_of(b"no topic %d" % number)
                for name in ("reader", "another"):
                    with pytest.raises(LocalError, match="no such topic"):
                        await ann.subscribe(
                            nowhere, name, start="beginning" if name == "another" else "now"
                        )
            assert not ann._offsets.by_topic
            topic = await ann.create_topic("weather")
            events = await ann.subscribe(topic, "reader")
            with trio.CancelScope() as scope:
                scope.cancel()
                await ann.subscribe(topic, "another")
            # Others stay.
            await ann.publish(topic, b"1", ack="accepted")
            assert await take(events, 1) == [b"1"]
            assert [*ann._offsets.by_topic[topic.cid].readers] == ["reader"]

    play(scene)


@pytest.mark.parametrize(
    ("name", "start"), [("reader", 0), ("reader", -5), ("reader", 2**63), ("\udc80", None)]
)
def test_a_place_that_cannot_be_written_down_is_refused_at_once(
    tmp_path: Path, name: str, start: int | None
) -> None:
    async def scene() -> None:
        async with Node.open(tmp_path / "ann") as ann:
            topic = await ann.create_topic("weather")
            await ann.follow(topic)
            await ann.publish(topic, b"1", ack="accepted")
            with pytest.raises(LocalError, match=r"index|name"):
                await ann.subscribe(topic, name, start="now" if start is None else start)
            assert not await ann.readers(topic)

    play(scene)


def test_one_may_begin_far_behind_all_that_there_is(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Node.open(tmp_path / "ann") as ann:
            topic = await ann.create_topic("weather")
            events = await ann.subscribe(topic, "reader", start=2**63 - 1)
            with trio.move_on_after(0.1):
                await anext(events)
        async with Node.open(tmp_path / "ann") as ann:
            (reader,) = await ann.readers(topic)
            assert reader.name == "reader"

    play(scene)


@pytest.mark.parametrize(
    "announce",
    [
        ["nonsense"],
        ["/ip4/127.0.0.1/tcp/1", "/dns4/❤/tcp/1"],
        ["/ip4/127.0.0.1/tcp/1/p2p/12D3KooWPjceQrSwdWXPyLLeABRXmuqt69Rg3sBYbU1Nft9HyQ6X"],
        [f"/dns4/{'a.' * 120}/tcp/00000000001"],
        ["/ip4/0.0.0.0/tcp/4420"],
        ["/ip4/127.0.0.1/tcp/1", "/ip6/::/tcp/4420"],
        [f"/ip4/127.0.0.1/tcp/{port}" for port in range(1, 18)],
    ],
)
@pytest.mark.parametrize("mdns", [False, True])
def test_what_nobody_could_dial_is_not_announced(
    tmp_path: Path, announce: list[str], mdns: bool
) -> None:
    async def scene() -> None:
        with pytest.raises(LocalError, match=r"address|host"):
            async with Node.open(tmp_path / "ann", announce=announce, mdns=mdns):
                await trio.sleep(1)

    play(scene)


@pytest.mark.parametrize("listen", ["/ip4/0.0.0.0/tcp/0", "/ip6/::/tcp/0"])
def test_who_listens_everywhere_announces_the_interfaces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listen: str
) -> None:
    there = [
        Interface("eth0", IPv4Address("192.0.2.1")),
        Interface("eth0", IPv6Address("2001:db8::1")),
    ]
    outside = "/ip4/192.0.2.1" if "ip4" in listen else "/ip6/2001:db8::1"
    inside = "/ip4/127.0.0.1" if "ip4" in listen else "/ip6/::1"
    monkeypatch.setattr(driver, "find_interfaces", lambda: tuple(there))

    async def scene() -> None:
        async with Node.open(tmp_path / "ann", listen=[listen, f"{inside}/tcp/0"]) as ann:
            (address,) = ann.addresses
            assert address.startswith(f"{outside}/tcp/"), "loopback is for where nothing else is"
        outer = f"{inside}/tcp/4420"
        async with Node.open(tmp_path / "ann", listen=[listen], announce=[outer]) as ann:
            assert ann.addresses == (f"{outer}/p2p/{ann.peer_id}",)
        there[:] = []
        async with Node.open(tmp_path / "ann", listen=[listen]) as ann:
            assert ann.addresses == ()
            port = ann._running.bound[0].rpartition("/")[2]
            bootstrap = [f"{inside}/tcp/{port}/p2p/{ann.peer_id}"]
            async with (
                Node.open(tmp_path / "ben", bootstrap=bootstrap) as ben,
                Node.open(tmp_path / "cyd", bootstrap=ben.addresses) as cyd,
            ):
                assert cyd._running.book.of(ann.identity) in {(), (f"{inside}/tcp/{port}",)}
                topic = await ann.create_topic("weather")
                events = await ben.subscribe(topic)
                await ann.publish(topic, b"sunny", ack="accepted")
                assert await take(events, 1) == [b"sunny"]

    play(scene)


def test_a_machine_without_ipv6_listens_on_all_that_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener = host._listener

    def without(family: int, name: tuple[str, int]) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
        return listener(family, name)

    monkeypatch.setattr(host, "_listener", without)
    four, six = "/ip4/0.0.0.0/tcp/0", "/ip6/::/tcp/0"

    async def scene() -> None:
        for listen in ([four, six], [six, four]):
            async with Node.open(tmp_path / "ann", listen=listen) as ann:
                assert len(ann._running.bound) == 1
        for refused in ([six], ["/ip6/::1/tcp/0", four]):
            with pytest.raises(LocalError, match="not supported"):
                async with Node.open(tmp_path / "ann", listen=refused):
                    pass

    play(scene)


def test_an_address_that_is_not_to_be_had_leaves_the_others_free(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Node.open(tmp_path / "ben") as ben:
            address = ben.addresses[0].partition("/p2p/")[0]
        for nowhere in ("/dns4/nowhere.invalid/tcp/0", "nonsense"):
            with pytest.raises(LocalError, match=r"nowhere|nonsense"):
                async with Node.open(tmp_path / "ann", listen=(address, nowhere)):
                    pass
        async with Node.open(tmp_path / "ann", listen=(address,)) as ann:
            assert ann.addresses == (f"{address}/p2p/{ann.peer_id}",)

    play(scene)


def test_what_one_writes_as_sent_the_other_writes_as_received(tmp_path: Path) -> None:
    def messages(name: str, kind: str) -> list[tuple[str, int]]:
        lines = []
        for path in sorted((tmp_path / name / "traces").glob("*.zst")):
            text = zstandard.ZstdDecompressor().decompress(path.read_bytes(), 1 << 24)
            lines += [json.loads(line) for line in text.splitlines()]
        return [(each["operation"], each["bytes"]) for each in lines if each["kind"] == kind]

    async def scene() -> None:
        async with Node.open(tmp_path / "ann", trace_level="rpc") as ann:
            async with Node.open(
                tmp_path / "ben", bootstrap=ann.addresses, trace_level="rpc"
            ) as ben:
                topic = await ann.create_topic("weather")
                events = await ben.subscribe(topic)
                await ann.publish(topic, b"sunny", ack="accepted")
                await take(events, 1)
            await trio.sleep(0.2)

    play(scene)
    sent, received = messages("ben", "rpc_sent"), messages("ann", "rpc_received")
    assert len(received) > 5
    assert sent[: len(received)] == received
