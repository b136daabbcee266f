"""Versions that name more marks than they hold: members look for those that they need."""

from contextlib import suppress
from typing import Any

import pytest

from pulsarcast.model import trace
from pulsarcast.model.errors import RemoteError
from pulsarcast.model.events import decode_event
from pulsarcast.model.ids import Cid, cid_of
from pulsarcast.model.mark_blocks import decode_marks
from pulsarcast.model.topics import DeliveryOrder, TopicSettings
from pulsarcast.protocol.effects import Persist
from pulsarcast.protocol.inputs import Now, Publish, Walk
from pulsarcast.protocol.messages import EventMessage, StoreBlocks
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.store import PutBlock
from pulsarcast.protocol.topic.flushing import Flushing
from pulsarcast.simulation.checkers.coverage import check_coverage
from pulsarcast.simulation.observer import Observer
from tests.support.lab import Lab

SIZE, AUTHOR, LATE, STRANGER = 9, 0, 7, 8
PUBLISHERS = (1, 2, 3, 4, 5, 6)
SMALL = Parameters(version_marks=2)
IN_PARTS = Parameters(version_marks=2, frontier_page=1, frontier_list=1)
ORDERS = [DeliveryOrder.NONE, DeliveryOrder.PER_PUBLISHER, DeliveryOrder.CAUSAL]


def an_open_topic(
    order: DeliveryOrder, *, parameters: Parameters = SMALL
) -> tuple[Lab, Cid, list[Cid]]:
    """Six publishers say two things each."""
    lab = Lab(SIZE, parameters=parameters)
    topic = lab.create(AUTHOR, TopicSettings(open=True, order=order))
    lab.subscribe(PUBLISHERS, topic)
    events = [
        lab.publish(index, topic, b"%d" % number, replicated=False, settle_s=0.5)
        for number in range(2)
        for index in PUBLISHERS
    ]
    lab.run(30.0)
    assert set(lab.delivered(1, topic)) == set(events)
    return lab, topic, events


def only_the_author(lab: Lab, order: DeliveryOrder) -> TopicSettings:
    return TopicSettings(publishers=(lab.peer(AUTHOR),), order=order)


def assert_nothing_lost(lab: Lab) -> None:
    observer = Observer()
    for time_s, index, record in lab.seen:
        observer.record(time_s, index, 1, Now(0, 0), record)
    coverage = check_coverage(observer, now_s=lab.world.now)
    assert coverage.findings.count("lost") == 0


def know_the_newest(lab: Lab, index: int, cid: Cid) -> None:
    """A walk looks the newest version up: then all events are judged by it."""
    reply = lab.ask(index, lambda call: Walk(call, cid, 1))
    assert reply.refusal is None


@pytest.mark.parametrize("order", ORDERS)
def test_who_comes_late_is_given_what_those_said_that_may_say_nothing_more(
    order: DeliveryOrder,
) -> None:
    lab, topic, events = an_open_topic(order)
    lab.update(AUTHOR, topic, only_the_author(lab, order))
    version = lab.world.node(AUTHOR).topics[topic].descriptor
    assert not isinstance(version.valid_until, tuple)
    after = lab.publish(AUTHOR, topic, b"after", settle_s=5.0)
    know_the_newest(lab, LATE, after)
    lab.subscribe([LATE], topic, from_start=True)
    lab.run(180.0)
    assert set(lab.delivered(LATE, topic)) == {*events, after}
    assert lab.world.node(LATE).counts["marks_awaited"]
    assert_nothing_lost(lab)


def test_what_came_after_the_marks_is_void_for_who_comes_late() -> None:
    order = DeliveryOrder.PER_PUBLISHER
    lab, topic, events = an_open_topic(order)
    away = lab.world.node(6)
    away.renewal.announced = lambda *_: None  # type: ignore[method-assign]
    lab.update(AUTHOR, topic, only_the_author(lab, order))
    lab.run(30.0)
    assert away.topics[topic].descriptor.cid == topic, "it does not know"
    reply = lab.ask(6, lambda call: Publish(call, topic, b"too late"))
    assert reply.cid is not None
    know_the_newest(lab, LATE, events[0])
    lab.subscribe([LATE], topic, from_start=True)
    lab.run(180.0)
    assert set(lab.delivered(LATE, topic)) == set(events)
    assert reply.cid not in lab.delivered(1, topic)
    high = {
        index: lab.world.node(index)
        .topics[topic]
        .frontier.high(lab.peer(6), lab.event(reply.cid).sequence.epoch)
        for index in (AUTHOR, 1, LATE)
    }
    assert set(high.values()) == {3}, "a void event takes its number"


@pytest.mark.parametrize("order", ORDERS)
def test_a_walk_gives_what_was_said_before_the_marks(order: DeliveryOrder) -> None:
    lab, topic, events = an_open_topic(order)
    lab.update(AUTHOR, topic, only_the_author(lab, order))
    after = lab.publish(AUTHOR, topic, b"after", settle_s=5.0)
    reply = lab.ask(STRANGER, lambda call: Walk(call, after, 100))
    assert reply.refusal is None
    walked = [event.cid for event in reply.events]
    assert walked[0] == after
    assert len(walked) > 1
    assert set(walked) <= {after, *events}
    assert not reply.gaps
    assert lab.world.node(STRANGER).footprint()["mark_blocks"]


@pytest.mark.parametrize("order", ORDERS)
def test_a_long_flush_is_carried_out_by_all_and_by_those_who_come_later(
    order: DeliveryOrder,
) -> None:
    lab, topic, events = an_open_topic(order)
    lab.world.kill(5)
    missed = [lab.publish(index, topic, b"missed", settle_s=1.0) for index in (1, 2)]
    lab.update(AUTHOR, topic, TopicSettings(open=True, order=order), flush=True)
    version = lab.world.node(AUTHOR).topics[topic].descriptor
    assert not isinstance(version.flushed, tuple)
    lab.run(60.0)
    for index in (AUTHOR, 1, 2, 3, 4, 6):
        assert lab.log(index, topic) == []
    lab.world.restart(5)
    lab.run(60.0)
    after = lab.publish(1, topic, b"after", settle_s=5.0)
    lab.subscribe([LATE], topic, from_start=True)
    lab.run(60.0)
    for index in (5, LATE):
        # Until it has read the pages, it is given what replicas hand in.
        assert after in lab.delivered(index, topic)
        assert set(lab.delivered(index, topic)) <= {*events, *missed, after}
        retired = [mark.retired for mark in lab.world.node(index).topics[topic].frontier.marks()]
        assert sorted(retired) == [2, 2, 2, 2, 3, 3]
    assert [event.cid for event in lab.log(5, topic)] == [after]
    said = [mark for each in lab.records(trace.TopicVersion, 5) for mark in each.flushed]
    assert len(said) == len(PUBLISHERS)
    assert lab.world.node(5).topics[topic].work.flushing.forget() == [], "nothing is due"
    assert_nothing_lost(lab)


def without(monkeypatch: pytest.MonkeyPatch, method: str, lab: Lab, *indexes: int) -> None:
    """Some nodes do nothing of a method of flushing, until they start again."""
    usual, turns = getattr(Flushing, method), [lab.world.node(each).turn for each in indexes]

    def maybe(flushing: Flushing, *given: Any) -> None:
        if flushing._turn not in turns:
            usual(flushing, *given)

    monkeypatch.setattr(Flushing, method, maybe)


def test_a_flush_goes_on_after_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    order = DeliveryOrder.PER_PUBLISHER
    lab, topic, _ = an_open_topic(order)
    node = lab.world.node(4)
    without(monkeypatch, "_read", lab, 4)
    lab.update(AUTHOR, topic, TopicSettings(open=True, order=order), flush=True)
    lab.run(30.0)
    assert node.topics[topic].work.flushing.forget()
    assert len(lab.log(4, topic)) == 2 * len(PUBLISHERS)
    lab.world.kill(4)
    lab.world.restart(4)
    lab.run(60.0)
    assert lab.log(4, topic) == []
    lab.world.kill(4)
    lab.world.restart(4)
    lab.run(1.0)
    assert lab.world.node(4).topics[topic].work.flushing.forget() == [], "it is done"


@pytest.mark.parametrize("parameters", [SMALL, IN_PARTS], ids=["at once", "in parts"])
@pytest.mark.parametrize("from_start", [False, True], ids=["from now", "from the start"])
def test_who_knows_of_a_long_flush_begins_behind_it(
    parameters: Parameters, from_start: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = DeliveryOrder.PER_PUBLISHER
    lab, topic, events = an_open_topic(order, parameters=parameters)
    # None of those that it can begin at has flushed anything.
    without(monkeypatch, "want", lab, AUTHOR, *PUBLISHERS)
    lab.update(AUTHOR, topic, TopicSettings(open=True, order=order), flush=True)
    know_the_newest(lab, LATE, events[0])
    lab.subscribe([LATE], topic, from_start=from_start)
    lab.run(60.0)
    marks = lab.world.node(LATE).topics[topic].frontier.marks()
    assert [mark.retired for mark in marks] == [2] * len(PUBLISHERS)


def test_the_author_keeps_the_marks_and_has_placed_them_before_it_announces_the_version() -> None:
    order = DeliveryOrder.PER_PUBLISHER
    lab, topic, _ = an_open_topic(order)
    lab.said.clear()
    lab.taken.clear()
    lab.update(AUTHOR, topic, only_the_author(lab, order))
    version = lab.world.node(AUTHOR).topics[topic].descriptor
    said = [each.message for each in lab.said if each.sender == AUTHOR]
    announced = next(
        at
        for at, each in enumerate(said)
        if isinstance(each, EventMessage) and decode_event(each.block).payload == version.block
    )
    placed = [
        block
        for each in said[:announced]
        if isinstance(each, StoreBlocks)
        for block in each.blocks
        if is_of_marks(block)
    ]
    kept = [
        write.block
        for each in lab.taken
        if each.node == AUTHOR
        for effect in each.effects
        if isinstance(effect, Persist)
        for write in effect.writes
        if isinstance(write, PutBlock) and is_of_marks(write.block)
    ]
    assert len(set(placed)) == len(set(kept)) == 4, "an index and three pages"
    assert version.valid_until in [cid_of(block) for block in kept]


def is_of_marks(block: bytes) -> bool:
    with suppress(RemoteError):
        decode_marks(block)
        return True
    return False
