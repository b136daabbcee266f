"""Subscriptions with a filter: what matches comes, in order and once; places move over the rest."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from pulsarcast.model.errors import LocalError
from pulsarcast.model.events import Attribute, EventDescriptor, Sequence, publish_own
from pulsarcast.model.filters import FilterError, parse
from pulsarcast.model.ids import Cid
from pulsarcast.model.topics import AttributeRule
from pulsarcast.network import subscriptions
from pulsarcast.network.node import Node
from pulsarcast.network.subscriptions import RESERVED, Event, Feed, Reader, Subscription
from tests.support.people import ALICE, CREATED_US, nonce, topic_of, unordered

SCHEMA = (AttributeRule("price", "float", 0, 100), AttributeRule("symbol", "str"))
TOPIC = topic_of(ALICE, unordered(attributes=SCHEMA))
PRICES = st.integers(0, 9)


def _event(number: int, price: float) -> EventDescriptor:
    return publish_own(
        ALICE,
        topic=TOPIC.topic,
        version=TOPIC.cid,
        payload=b"",
        attributes={"price": price},
        created=CREATED_US,
        nonce=nonce(str(number)),
        sequence=Sequence(7, number),
        parents=(),
    )


class Scene:
    """A feed with its log, and subscriptions to it."""

    def __init__(self) -> None:
        self.log: list[EventDescriptor] = []
        self.feed = Feed(TOPIC.topic, {})

    def listen(self, name: str, where: str | None, *, manual: bool = False) -> Subscription:
        if name not in self.feed.readers:
            self.feed.readers[name] = Reader(0)
        wanted = None if where is None else parse(where, SCHEMA)
        return Subscription(self.feed, name, self._read, lambda: None, manual=manual, wanted=wanted)

    async def _read(self, topic: Cid, first: int, count: int) -> list[Event]:
        await trio.lowlevel.checkpoint()
        return [Event(at, self.log[at - 1]) for at in range(first, len(self.log) + 1)][:count]

    def deliver(self, *prices: float) -> None:
        for price in prices:
            self.log.append(_event(len(self.log) + 1, price))
            self.feed.deliver(len(self.log), self.log[-1])

    def matching(self, below: float) -> list[int]:
        prices = [event.request.attributes["price"] for event in self.log]
        return [index for index, price in enumerate(prices, 1) if float(price) < below]


async def taken(subscription: Subscription) -> list[int]:
    """All that can be had now."""
    found = []
    with trio.move_on_after(0.005):
        async for event in subscription:
            found.append(event.index)  # noqa: PERF401 (it is cancelled in the middle)
    return found


def play(scene: Callable[[], Awaitable[None]]) -> None:
    """Time passes only while everybody waits: no machine is too slow for it."""
    trio.run(scene, clock=MockClock(autojump_threshold=0))


STEPS = st.lists(
    st.one_of(st.lists(PRICES, min_size=1, max_size=12), st.integers(0, 4)), max_size=12
)


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_what_matches_comes_in_order_and_once_whether_from_memory_or_from_the_log(
    steps: list[list[int] | int],
) -> None:
    async def scene() -> None:
        stage = Scene()
        few, all_of_them = stage.listen("few", "price < 4"), stage.listen("all", None)
        found: dict[str, list[int]] = {"few": [], "all": []}
        for step in steps:
            if isinstance(step, list):
                stage.deliver(*step)
                continue
            for name, events in (("few", few), ("all", all_of_them)):
                with trio.move_on_after(0.001):
                    for _ in range(step):
                        found[name].append((await anext(events)).index)
        found["few"] += await taken(few)
        found["all"] += await taken(all_of_them)
        assert found["few"] == stage.matching(4)
        assert found["all"] == list(range(1, len(stage.log) + 1))
        few.close()
        assert stage.feed.readers["few"].cursor == len(stage.log)

    kept = subscriptions.MEMORY_MAX, subscriptions.PAGE
    subscriptions.MEMORY_MAX, subscriptions.PAGE = 3, 4  # type: ignore[misc]
    try:
        play(scene)
    finally:
        subscriptions.MEMORY_MAX, subscriptions.PAGE = kept  # type: ignore[misc]


def test_a_place_moves_over_what_does_not_match() -> None:
    async def scene() -> None:
        stage = Scene()
        events = stage.listen("me", "price < 1")
        reader = stage.feed.readers["me"]
        assert await taken(events) == []
        stage.deliver(*[5] * (RESERVED + 1))
        assert events.done == reader.done == RESERVED + 1
        assert reader.cursor == 0  # Nothing is worth writing down for each of them,
        events.settle()
        assert reader.cursor == RESERVED + 1  # but for many.
        stage.deliver(5)
        events.settle()
        assert reader.cursor == RESERVED + 1
        events.close()
        assert reader.cursor == RESERVED + 2

    play(scene)


def test_a_place_never_moves_over_what_is_not_done() -> None:
    async def scene() -> None:
        stage = Scene()
        events = stage.listen("me", "price < 1", manual=True)
        reader = stage.feed.readers["me"]
        stage.deliver(5, 0, *[5] * 2000)
        assert (await anext(events)).index == 2
        events.settle(0)
        assert reader.cursor == 0
        events.close()
        again = stage.listen("me", "price < 1", manual=True)
        event = await anext(again)
        assert (event.index, event.redelivery) == (2, True)
        again.acknowledge()
        again.settle()
        assert await taken(again) == []
        again.settle()
        assert reader.cursor == 2002

    play(scene)


def test_who_listens_no_more_is_not_in_the_index() -> None:
    async def scene() -> None:
        stage = Scene()
        for round_ in range(3):
            events = stage.listen("me", f"price < {round_ + 1}")
            events.close()
            events.close()
        assert not stage.feed._indexes
        assert not stage.feed._some
        stage.deliver(0)

    play(scene)


def test_nodes_hand_out_and_replay_what_matches(tmp_path: Path) -> None:
    async def scene() -> None:
        async with (
            Node.open(tmp_path / "ann") as ann,
            Node.open(tmp_path / "ben", bootstrap=ann.addresses) as ben,
        ):
            topic = await ann.create_topic("ticks", unordered(attributes=SCHEMA))
            where = "price < 10 and symbol starts with 'I'"
            async with await ben.subscribe(topic, "me", where=where) as events:
                for price, symbol in ((5, "IBM"), (50, "IBM"), (6, "SBUX"), (7, "INTC")):
                    sent: dict[str, Attribute] = {"price": price, "symbol": symbol}
                    await ann.publish(topic, b"%d" % price, attributes=sent, ack="accepted")
                assert [(await anext(events)).payload for _ in range(2)] == [b"5", b"7"]
                events.acknowledge()
            async with await ben.subscribe(topic, "late", start=1, where=where) as events:
                assert [(await anext(events)).payload for _ in range(2)] == [b"5", b"7"]
            found = [each.payload async for each in ben.history(topic, where=where)]
            assert found == [b"5", b"7"]
            found = [each.payload async for each in ben.history(topic, where=where, limit=1)]
            assert found == [b"5"]
            assert len([each async for each in ben.history(topic)]) == 4
            with pytest.raises(FilterError, match="line 1, column 1: the topic has no attribute"):
                await ben.subscribe(topic, "me", where="prise < 10")
            with pytest.raises(LocalError, match="the topic's schema"):
                await ann.publish(topic, b"", attributes={"prise": 5})

    async def bounded() -> None:
        with trio.fail_after(60):
            await scene()

    trio.run(bounded)
