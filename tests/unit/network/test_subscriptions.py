"""Subscriptions: what an application that listens is handed, and what is passed over."""

import pytest
import trio
import trio.testing

from pulsarcast.model.events import EventDescriptor
from pulsarcast.model.filters import parse
from pulsarcast.model.ids import Cid
from pulsarcast.model.topics import AttributeRule, DeliveryOrder, TopicSettings
from pulsarcast.network.subscriptions import Event, Feed, Reader, Subscription
from tests.support.people import ALICE, BOB, event_of, following, topic_of

TOPIC = topic_of(ALICE, TopicSettings(open=True, order=DeliveryOrder.CAUSAL))
FIRST = event_of(BOB, TOPIC)


def _said(number: int) -> EventDescriptor:
    return event_of(ALICE, TOPIC, number, payload=b"%d" % number)


def _merge(number: int) -> EventDescriptor:
    return event_of(ALICE, TOPIC, number, payload=b"", is_merge=True, **following(FIRST))


LOG = [_said(1), _merge(2), _merge(3), _said(4), _merge(5)]


def _listen(log: list[EventDescriptor]) -> tuple[Feed, Subscription]:
    async def read(topic: Cid, first: int, count: int) -> list[Event]:
        return [Event(at, log[at - 1]) for at in range(first, len(log) + 1)][:count]

    feed = Feed(TOPIC.topic, {})
    feed.readers["me"] = Reader(0)
    return feed, Subscription(feed, "me", read, lambda: None)


def test_merges_are_passed_over_as_they_come() -> None:
    async def scene() -> None:
        feed, subscription = _listen([])
        for index, event in enumerate(LOG, 1):
            feed.deliver(index, event)
        assert subscription.ready(1 << 20) == 2
        assert [(await anext(subscription)).index for _ in range(2)] == [1, 4]
        # Asking for the next says that all before it is done, the merge at the end included.
        with trio.move_on_after(0.01):
            await anext(subscription)
        assert feed.readers["me"].cursor == 5
        feed.deliver(6, _said(6))
        assert (await anext(subscription)).index == 6

    trio.run(scene)


def test_merges_are_passed_over_where_the_log_is_read() -> None:
    async def scene() -> None:
        feed, subscription = _listen(LOG)
        feed.newest = len(LOG)
        assert [(await anext(subscription)).index for _ in range(2)] == [1, 4]
        with trio.move_on_after(0.01) as patience:
            await anext(subscription)
        assert patience.cancelled_caught
        feed.deliver(6, _merge(6))
        feed.deliver(7, _said(7))
        assert (await anext(subscription)).index == 7

    trio.run(scene)


@pytest.mark.parametrize("where", [None, "name = 'five'"])
def test_what_comes_while_an_empty_log_is_read_is_handed_out(where: str | None) -> None:
    """Retention let go of what there was, and only of that."""
    event = event_of(ALICE, TOPIC, 5, payload=b"5", attributes={"name": "five"})

    async def scene() -> None:
        log: list[Event] = []

        async def read(topic: Cid, first: int, count: int) -> list[Event]:
            page = [each for each in log if each.index >= first]
            if not log:
                log.append(Event(5, event))
                feed.deliver(5, event)
            return page

        feed = Feed(TOPIC.topic, {})
        feed.newest = 4
        feed.readers["me"] = Reader(0)
        wanted = None if where is None else parse(where, (AttributeRule("name", "str"),))
        subscription = Subscription(feed, "me", read, lambda: None, wanted=wanted)
        with trio.fail_after(1):
            assert (await anext(subscription)).index == 5

    trio.run(scene)


@pytest.mark.parametrize("where", [None, "name = 'any'"])
def test_who_begins_beyond_the_newest_event_is_given_nothing_from_before(where: str | None) -> None:
    events = [event_of(ALICE, TOPIC, number, attributes={"name": "any"}) for number in (5, 6, 7)]

    async def scene() -> None:
        feed = Feed(TOPIC.topic, {})
        feed.newest = 4
        feed.readers["me"] = Reader(4)
        wanted = None if where is None else parse(where, (AttributeRule("name", "str"),))
        subscription = Subscription(feed, "me", nothing, lambda: None, start=7, wanted=wanted)
        got: list[int] = []

        async def take() -> None:
            got.append((await anext(subscription)).index)

        with trio.fail_after(1):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(take)
                for index, event in enumerate(events, 5):
                    await trio.testing.wait_all_tasks_blocked()
                    assert not got
                    feed.deliver(index, event)
        assert got == [7]

    async def nothing(topic: Cid, first: int, count: int) -> list[Event]:
        return []

    trio.run(scene)
