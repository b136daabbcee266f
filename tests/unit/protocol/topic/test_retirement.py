"""Gaps that retention makes: who was away gets on with what is left (design 6)."""

import pytest

from pulsarcast.model import trace
from pulsarcast.model.ids import Cid
from pulsarcast.model.topics import DeliveryOrder, Retention, TopicSettings
from pulsarcast.protocol.effects import Load, SetTimer, Trace
from pulsarcast.protocol.inputs import Unsubscribe
from pulsarcast.protocol.messages import EventMessage
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.store import DropEvents, Events, LoadNumbers, Oldest, PutMark
from pulsarcast.protocol.topic.flow import FlowControl
from pulsarcast.protocol.topic.handovers import Handovers
from pulsarcast.protocol.topic.keeping import Keeping
from pulsarcast.protocol.topic.retirement import Retirement
from tests.support.lab import Lab
from tests.support.people import ALICE, CAROL, EPOCH, event_of, meta_of, topic_of, unordered
from tests.support.solo import Parent, Solo, below
from tests.unit.protocol.topic.bench import Bench

AUTHOR, PUBLISHER, MEMBER, AWAY, STRANGER = range(5)
KEPT = 5
PUBLISHED = 20
SETTLE_S = 300.0
ORDERED = TopicSettings(
    open=True, order=DeliveryOrder.PER_PUBLISHER, retention=Retention(count=KEPT)
)


def miss_most(lab: Lab, settings: TopicSettings) -> tuple[Cid, list[Cid]]:
    """One subscriber is away while far more is published than the topic keeps."""
    topic = lab.create(AUTHOR, settings)
    lab.subscribe([PUBLISHER, MEMBER, AWAY], topic)
    events = [lab.publish(PUBLISHER, topic, b"seen", settle_s=0.2)]
    lab.run(5.0)
    lab.world.kill(AWAY)
    events += [
        lab.publish(PUBLISHER, topic, b"%d" % number, settle_s=0.2) for number in range(PUBLISHED)
    ]
    lab.run(2 * Parameters().retention_interval_s)
    for index in (AUTHOR, PUBLISHER, MEMBER):
        assert [event.cid for event in lab.log(index, topic)] == events[-KEPT:]
    return topic, events


def delivered_once(lab: Lab, index: int, topic: Cid) -> list[Cid]:
    return list(dict.fromkeys(lab.delivered(index, topic)))


@pytest.mark.parametrize(
    "order",
    [
        DeliveryOrder.NONE,
        DeliveryOrder.PER_PUBLISHER,
        DeliveryOrder.CAUSAL,
        DeliveryOrder.TOTAL,
    ],
)
def test_who_was_away_for_too_long_gets_what_is_left(order: DeliveryOrder) -> None:
    lab = Lab(5)
    if order is DeliveryOrder.TOTAL:
        sequencer = (lab.peer(PUBLISHER),)
        settings = TopicSettings(
            order=order,
            publishers=sequencer,
            sequencers=sequencer,
            retention=Retention(count=KEPT),
        )
    else:
        settings = TopicSettings(open=True, order=order, retention=Retention(count=KEPT))
    topic, events = miss_most(lab, settings)
    lab.world.restart(AWAY)
    lab.run(SETTLE_S)
    got = delivered_once(lab, AWAY, topic)
    assert got == [events[0], *events[-KEPT:]]
    assert lab.world.node(AWAY).topics[topic].digest() == (
        lab.world.node(MEMBER).topics[topic].digest()
    ), "and agrees with the others about what there was"
    later = lab.publish(PUBLISHER, topic, b"later", settle_s=5.0)
    assert lab.delivered(AWAY, topic)[-1] == later


@pytest.mark.parametrize("back", [AUTHOR, PUBLISHER], ids=["the author", "the publisher"])
def test_where_one_other_member_is_left_nothing_is_skipped_until_somebody_comes(back: int) -> None:
    """One peer's word is not enough, whoever it is; the author's or the publisher's is."""
    lab = Lab(5)
    topic, events = miss_most(lab, ORDERED)
    for index in (AUTHOR, PUBLISHER):
        lab.world.kill(index)
    lab.world.restart(AWAY)
    lab.run(SETTLE_S)
    assert delivered_once(lab, AWAY, topic) == events[:1]
    lab.world.restart(back)
    lab.run(SETTLE_S)
    assert delivered_once(lab, AWAY, topic) == [events[0], *events[-KEPT:]]


def test_two_other_members_are_enough() -> None:
    """Neither the author nor the publisher is there to ask."""
    lab = Lab(6)
    second = 5
    topic = lab.create(AUTHOR, ORDERED)
    lab.subscribe([second], topic)
    lab.run(1.0)
    lab.subscribe([PUBLISHER, MEMBER, AWAY], topic)
    events = [lab.publish(PUBLISHER, topic, b"seen")]
    lab.run(5.0)
    lab.world.kill(AWAY)
    events += [
        lab.publish(PUBLISHER, topic, b"%d" % number, settle_s=0.2) for number in range(PUBLISHED)
    ]
    lab.run(2 * Parameters().retention_interval_s)
    for index in (AUTHOR, PUBLISHER):
        lab.world.kill(index)
    lab.run(30.0)
    lab.world.restart(AWAY)
    lab.run(2 * SETTLE_S)
    assert delivered_once(lab, AWAY, topic) == [events[0], *events[-KEPT:]]


def test_retention_keeps_every_event_for_a_while_and_drops_it_then() -> None:
    """Whoever is a little behind must have time to fetch it, however small the count is."""
    solo = Solo().start()
    topic = solo.create(unordered(retention=Retention(count=1)))
    published: dict[int, float] = {}
    dropped: dict[int, float] = {}
    for step in range(300):
        if step % 7 == 0:
            solo.publish(topic)
            published[len(published) + 1] = step
        solo.advance(1.0)
        (mark,) = [mark for cid, mark in solo.store.marks() if cid == topic]
        query = LoadNumbers(topic, solo.me, mark.epoch, 1, len(published), 1 << 20)
        answer = solo.store.answer(query)
        assert isinstance(answer, Events)
        held = {event.sequence.number for _, event in answer.events}
        for number in published:
            if number not in held:
                dropped.setdefault(number, step)
    assert len(dropped) > 20, "it does drop"
    kept_s = [dropped[number] - published[number] for number in dropped]
    assert min(kept_s) >= 0.5 * Parameters().retention_interval_s


def test_what_we_drop_behind_a_gap_does_not_retire_the_gap() -> None:
    """Without an order, 3 may be the oldest of our log before 2 has come."""
    topic = topic_of(ALICE, unordered(retention=Retention(count=2)))
    solo = below(Parent("alice", [topic.block, meta_of(ALICE).block]))
    solo.subscribe(topic.cid)
    own = [event_of(ALICE, topic, number) for number in (1, 2, 3)]
    others = [event_of(CAROL, topic, number) for number in (1, 2, 3, 4)]
    for event in (own[0], own[2], *others):
        solo.hear(ALICE.peer_id, EventMessage(event.block, 1))
    solo.advance(2.5 * Parameters().retention_interval_s)
    mark = solo.topic(topic.cid).frontier.mark(ALICE.peer_id, EPOCH)
    assert mark is not None
    assert (mark.high, mark.retired) == (1, 1)
    solo.hear(ALICE.peer_id, EventMessage(own[1].block, 1))
    assert solo.cids() == [event.cid for event in (own[0], own[2], *others, own[1])]


def test_a_publisher_that_leaves_keeps_on_its_disk_how_far_its_numbers_are_retired() -> None:
    lab = Lab(5)
    topic = lab.create(AUTHOR, ORDERED)
    lab.subscribe([PUBLISHER, MEMBER], topic)
    for number in range(PUBLISHED):
        lab.publish(PUBLISHER, topic, b"%d" % number, settle_s=0.2)
    lab.run(2.5 * Parameters().retention_interval_s)
    lab.ask(PUBLISHER, lambda call: Unsubscribe(call, topic))
    lab.run(10.0)
    assert topic not in lab.world.node(PUBLISHER).topics
    marks = [mark for cid, mark in lab.world.store(PUBLISHER).marks() if cid == topic]
    assert [mark.retired for mark in marks] == [PUBLISHED - KEPT]


def test_an_author_that_subscribes_from_the_start_keeps_what_retention_left_it() -> None:
    """Nobody else may have it. Only where we began later is there more to be had by going back."""
    solo = Solo("alice").start()
    topic = solo.create(unordered(retention=Retention(count=300)))
    events = [solo.publish(topic) for _ in range(400)]
    solo.advance(2 * Parameters().retention_interval_s + 60.0)
    solo.subscribe(topic, from_start=True)
    assert solo.cids() == events[-300:]
    retired = [record.number for record in solo.records if isinstance(record, trace.Retired)]
    assert retired == [100]


def retiring() -> tuple[Bench, Retirement]:
    bench = Bench(topic_of(ALICE, ORDERED))
    members = bench.members
    flow = FlowControl(bench.state, members.overlay, bench)
    handovers = Handovers(bench.state)
    keeping = Keeping(bench.state, handovers, flow, members.timer, bench.owner)
    return bench, Retirement(bench.state, keeping)


def test_what_waited_for_events_that_are_retired_has_its_turn() -> None:
    bench, retirement = retiring()
    third = event_of(CAROL, bench.state.versions.first, 3)
    assert not bench.state.ordering.offer(third, 1)
    retirement.retire(CAROL.peer_id, EPOCH, 2)
    (said,) = [each for each in bench.turn.effects if isinstance(each, Trace)]
    assert said.record == trace.Retired(bench.state.id, CAROL.peer_id, EPOCH, 2)
    bench.sync()
    assert bench.owner.arrivals == [third.cid]


def test_retention_asks_the_disk_at_intervals_and_drops_what_it_finds_too_old() -> None:
    bench, retirement = retiring()
    bench.frontier.add(CAROL.peer_id, EPOCH, 1, None)
    retirement.start()
    (timer,) = [each for each in bench.effects() if isinstance(each, SetTimer)]
    bench.turn.fired(timer.timer)
    load, again = bench.effects()
    assert isinstance(load, Load)
    assert isinstance(again, SetTimer)
    bench.turn.loaded(load.token, Oldest(1, ((CAROL.peer_id, EPOCH, 1),)))
    assert [type(write) for write in bench.sync()] == [DropEvents, PutMark]
    retirement.stop()
    bench.turn.fired(again.timer)
    assert bench.effects() == []


def test_what_the_disk_finds_after_the_topic_is_left_stays_there() -> None:
    """The disk forgets the topic, and a mark that is written after that would stay for ever."""
    bench, retirement = retiring()
    bench.frontier.add(CAROL.peer_id, EPOCH, 1, None)
    retirement.start()
    (timer,) = [each for each in bench.effects() if isinstance(each, SetTimer)]
    bench.turn.fired(timer.timer)
    (load,) = [each for each in bench.effects() if isinstance(each, Load)]
    bench.state.ended = True
    bench.turn.loaded(load.token, Oldest(1, ((CAROL.peer_id, EPOCH, 1),)))
    assert bench.effects() == []
