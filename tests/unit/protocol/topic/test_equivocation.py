"""Two events with one number: how a member notices."""

import pytest

from pulsarcast.protocol.effects import Load
from pulsarcast.protocol.inputs import MessageReceived, Now
from pulsarcast.protocol.messages import EventMessage
from tests.support.people import ALICE, BOB, CREATED_US, MALLORY, event_of, meta_of, topic_of
from tests.support.solo import Parent, below

TOPIC = topic_of(ALICE)


@pytest.mark.parametrize("number", [1, 4], ids=["the newest", "one beyond a gap"])
def test_what_comes_again_under_a_number_that_the_frontier_knows_asks_nothing_of_the_disk(
    number: int,
) -> None:
    solo = below(Parent("alice", [TOPIC.block, meta_of(ALICE).block]))
    solo.subscribe(TOPIC.cid)
    event = event_of(BOB, TOPIC, number)
    again = MessageReceived(MALLORY.peer_id, EventMessage(event.block, 1))
    solo.give(again)
    assert solo.cids() == [event.cid]
    effects = solo.node.handle(again, Now(solo.now_s, CREATED_US))
    assert not [effect for effect in effects if isinstance(effect, Load)]
