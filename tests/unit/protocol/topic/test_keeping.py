"""Keeping: an event that nobody delivers takes its number, and holds nobody up."""

from pulsarcast.model.topics import DeliveryOrder, Mark, TopicSettings
from pulsarcast.protocol.messages import EventMessage
from tests.support.people import ALICE, BOB, EPOCH, event_of, meta_of, topic_of, version_of
from tests.support.solo import Parent, below


def test_what_waits_behind_an_event_that_is_void_has_its_turn() -> None:
    """Revoked, allowed again: the one in between, which came last, is delivered to nobody."""
    order = DeliveryOrder.PER_PUBLISHER
    everyone = TopicSettings(delivery_order=order)
    one = TopicSettings(delivery_order=order, allowed_publishers=(ALICE.peer_id,))
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
    assert solo.reasons() == ["the right to publish was revoked"]
    assert solo.cids() == [event.cid for event in allowed]
    assert not len(solo.topic(first.cid).ordering)


def test_as_many_liars_as_may_wait_have_their_turn_one_after_the_other() -> None:
    """Each calls another what it is not, and waited for that one: no stack grows with them."""
    topic = topic_of(ALICE, TopicSettings(delivery_order=DeliveryOrder.CAUSAL))
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
