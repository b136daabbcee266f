"""Events under way, on their own: what a sequencer's signature covers, and what it checks."""

import pytest

from pulsarcast.model.errors import RemoteError
from pulsarcast.model.topics import DeliveryOrder, TopicSettings
from pulsarcast.protocol.sequencing.events import EventsUnderWay
from pulsarcast.protocol.sequencing.log import Entry, EntryKind
from tests.support.parts import Core
from tests.support.people import ALICE, BOB, topic_of


def test_a_sequencer_signs_an_events_place_and_knows_who_signed_another() -> None:
    core = Core()
    settings = TopicSettings(order=DeliveryOrder.TOTAL, sequencers=(ALICE.peer_id, BOB.peer_id))
    events = EventsUnderWay(core.context, core.topic(topic_of(ALICE, settings)))
    entry = Entry(1, 1, EntryKind.EVENT, b"event")
    signature = events.sign(entry)
    assert events.is_signed(ALICE.peer_id, entry, signature)
    assert not events.is_signed(BOB.peer_id, entry, signature)
    assert not events.is_signed(ALICE.peer_id, entry._replace(position=2), signature)
    assert not events.is_signed(ALICE.peer_id, entry._replace(term=2), signature)


def test_what_is_no_event_is_refused() -> None:
    core = Core()
    with pytest.raises(RemoteError):
        EventsUnderWay(core.context, core.topic(topic_of(ALICE))).check(b"event")
