"""The node as a sequencer of one topic, on its own: what its signature covers."""

from typing import Any, cast

from pulsarcast.model.topics import DeliveryOrder, TopicSettings
from pulsarcast.protocol.sequencing.log import Entry, EntryKind
from pulsarcast.protocol.sequencing.raft_member import RaftMember
from tests.support.parts import Core
from tests.support.people import ALICE, BOB, topic_of


def test_a_member_signs_an_events_place_and_knows_who_signed_another() -> None:
    core = Core()
    settings = TopicSettings(order=DeliveryOrder.TOTAL, sequencers=(ALICE.peer_id, BOB.peer_id))
    topic = core.topic(topic_of(ALICE, settings))
    member = RaftMember(core.context, topic, core.publisher, core.outbox, cast("Any", core.owner))
    entry = Entry(1, 1, EntryKind.EVENT, b"event")
    signature = member.sign(entry)
    assert member.is_signed(ALICE.peer_id, entry, signature)
    assert not member.is_signed(BOB.peer_id, entry, signature)
    assert not member.is_signed(ALICE.peer_id, entry._replace(position=2), signature)
    assert not member.is_signed(ALICE.peer_id, entry._replace(term=2), signature)
