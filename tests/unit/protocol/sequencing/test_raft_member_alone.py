"""The node as a sequencer of one topic, on its own: the handover that it makes."""

from typing import Any, cast

from pulsarcast.model.events import Position, decode_event
from pulsarcast.model.topics import DeliveryOrder, TopicSettings
from pulsarcast.protocol.sequencing.log import Place
from pulsarcast.protocol.sequencing.raft_member import RaftMember
from tests.support.parts import Core
from tests.support.people import ALICE, BOB, topic_of


def test_a_handover_is_made_only_for_sequencers_that_a_version_names() -> None:
    core = Core()
    sequencers = (ALICE.peer_id, BOB.peer_id)
    descriptor = topic_of(ALICE, TopicSettings(order=DeliveryOrder.TOTAL, sequencers=sequencers))
    topic = core.topic(descriptor)
    member = RaftMember(core.context, topic, core.publisher, core.outbox, cast("Any", core.owner))
    place = Place(2, 7, None)
    block = member.hand_over(place, sequencers, descriptor.cid)
    assert block is not None
    event = decode_event(block)
    assert (event.position, event.hands_over_to) == (Position(2, 7), descriptor.cid)
    assert member.hand_over(place, sequencers[:1], descriptor.cid) is None
