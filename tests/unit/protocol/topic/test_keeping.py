"""Keeping: an event that nobody delivers takes its number, and holds nobody up."""

from pulsarcast.model.topics import DeliveryOrder, Mark, TopicDescriptor, TopicSettings
from pulsarcast.protocol.effects import Deliver
from pulsarcast.protocol.messages import EventMessage, FrontierPage, Join, Role
from pulsarcast.protocol.store import MarkState, PutEvent, PutMark
from pulsarcast.protocol.topic.flow import FlowControl
from pulsarcast.protocol.topic.frontier import Frontier
from pulsarcast.protocol.topic.halts import TwoCertificates
from pulsarcast.protocol.topic.handovers import Handovers
from pulsarcast.protocol.topic.keeping import Keeping
from tests.support.people import (
    ALICE,
    BOB,
    EPOCH,
    MALLORY,
    event_of,
    following,
    meta_of,
    topic_of,
    version_of,
)
from tests.support.solo import Parent, below
from tests.unit.protocol.topic.bench import Bench


def test_what_waits_behind_an_event_that_is_void_has_its_turn() -> None:
    """Revoked, allowed again: the one in between, which came last, is delivered to nobody."""
    order = DeliveryOrder.PER_PUBLISHER
    everyone = TopicSettings(open=True, order=order)
    one = TopicSettings(order=order, publishers=(ALICE.peer_id,))
    until = [Mark(BOB.peer_id, EPOCH, 1)]
    first = topic_of(ALICE, everyone)
    without = version_of(first, one, signer=ALICE, until=until)
    again = version_of(without, everyone, signer=ALICE, until=until)
    parent = Parent("alice", [first.block, meta_of(ALICE).block])
    solo = below(parent)
    solo.subscribe(first.cid)
    for version in (without, again):
        solo.node.renewal.adopt(solo.topic(first.cid), version)
    allowed = [event_of(BOB, first, 1), event_of(BOB, again, 3), event_of(BOB, again, 4)]
    revoked = event_of(BOB, first, 2)
    for event in (allowed[0], allowed[1], revoked, allowed[2]):
        solo.hear(parent.peer, EventMessage(event.block, 1))
    assert solo.reasons() == ["superseded"]
    assert solo.cids() == [event.cid for event in allowed]
    assert not len(solo.topic(first.cid).ordering)


def test_as_many_liars_as_may_wait_have_their_turn_one_after_the_other() -> None:
    """Each calls another what it is not, and waited for that one: no stack grows with them."""
    topic = topic_of(ALICE, TopicSettings(open=True, order=DeliveryOrder.CAUSAL))
    parent = Parent("alice", [topic.block, meta_of(ALICE).block])
    solo = below(parent)
    solo.subscribe(topic.cid)
    first, other = event_of(BOB, topic, 1), event_of(BOB, topic, 1, epoch=EPOCH + 1)
    called_otherwise = Mark(BOB.peer_id, EPOCH + 1, 1)
    liars = [
        event_of(BOB, topic, number, parents=[first.cid], marks=[called_otherwise])
        for number in range(2, 2 + solo.parameters.held_back_max // 4)
    ]
    honest = event_of(BOB, topic, liars[-1].sequence.number + 1)
    for event in (other, *liars, first, honest):
        solo.hear(parent.peer, EventMessage(event.block, 1))
    assert solo.cids() == [other.cid, first.cid, honest.cid]
    assert len(solo.reasons()) == len(liars)


def test_who_keeps_a_tree_together_does_not_go_back_to_where_a_neighbour_stands() -> None:
    """Any child can show less than we hold: what waits behind that would be looked for in vain."""
    topic = topic_of(ALICE, TopicSettings(open=True, order=DeliveryOrder.CAUSAL))
    solo = below(Parent("carol", [topic.block, meta_of(ALICE).block], takes_in=False))
    for attempt in (1, 2):
        join = Join(topic.cid, attempt, Role.MEMBER, ALICE.peer_id, False, False)
        solo.hear(BOB.peer_id, join)
        solo.advance(30.0)
    first, missing = event_of(MALLORY, topic), event_of(BOB, topic)
    second = event_of(MALLORY, topic, 2, **following(first, missing))
    for event in (first, second):
        solo.hear(BOB.peer_id, EventMessage(event.block, 1))
    kept = solo.topic(topic.cid)
    assert kept.state.lacks_start
    less = MarkState(MALLORY.peer_id, EPOCH, 0, 0, None)
    solo.hear(BOB.peer_id, FrontierPage(topic.cid, (less,), answer=False))
    assert kept.causal is not None
    assert kept.causal.needed(BOB.peer_id, EPOCH) == 1
    assert kept.frontier.high(MALLORY.peer_id, EPOCH) == 1


def test_who_begins_where_another_stands_keeps_what_it_holds_beyond() -> None:
    frontier = Frontier()
    for number in (1, 4, 5, 7):
        frontier.add(BOB.peer_id, EPOCH, number, None)
    frontier.begin_at(MarkState(BOB.peer_id, EPOCH, 0, 3, None))
    assert frontier.marks() == [MarkState(BOB.peer_id, EPOCH, 3, 5, None, (7,))]


ORDERED = topic_of(ALICE, TopicSettings(open=True, order=DeliveryOrder.PER_PUBLISHER))


def keeper(topic: TopicDescriptor = ORDERED) -> tuple[Bench, Keeping]:
    bench = Bench(topic)
    members = bench.members
    flow = FlowControl(bench.state, members.overlay, bench)
    handovers = Handovers(bench.state)
    return bench, Keeping(bench.state, handovers, flow, members.timer, bench.owner)


def test_an_event_is_delivered_and_reported_once_it_is_on_the_disk() -> None:
    bench, keeping = keeper()
    event = event_of(MALLORY, ORDERED)
    keeping.accept(event, 3)
    assert bench.frontier.high(MALLORY.peer_id, EPOCH) == 1, "what comes next knows of it"
    assert not [each for each in bench.turn.effects if isinstance(each, Deliver)]
    assert [type(write) for write in bench.sync()] == [PutEvent]
    (delivered,) = bench.effects()
    assert isinstance(delivered, Deliver)
    assert (delivered.event, delivered.record.hops) == (event, 3)
    assert bench.owner.arrivals == [event.cid]


def test_in_a_topic_that_halted_meanwhile_nothing_more_is_delivered() -> None:
    bench, keeping = keeper()
    event = event_of(MALLORY, ORDERED)
    keeping.accept(event, 1)
    bench.state.halted = TwoCertificates(1, event.cid, event.cid)
    bench.sync()
    assert bench.effects() == []
    assert bench.owner.arrivals == [event.cid]


def test_an_event_that_waited_has_its_turn_behind_one_that_is_void() -> None:
    bench, keeping = keeper()
    first, second = (event_of(MALLORY, ORDERED, number) for number in (1, 2))
    assert not bench.state.ordering.offer(second, 1)
    keeping.void(first)
    assert [type(write) for write in bench.sync()] == [PutMark, PutEvent]
    assert bench.owner.arrivals == [second.cid]
