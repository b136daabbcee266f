"""Whose certificates count where, as a reader learns it from the order itself (decision 0024)."""

import pytest

from pulsarcast.model import trace
from pulsarcast.model.certificates import make_certificate, sign_place
from pulsarcast.model.errors import RemoteError
from pulsarcast.model.events import EventDescriptor, Position, Sequence, publish_own
from pulsarcast.model.identity import Identity
from pulsarcast.model.ids import shared_numbering
from pulsarcast.model.topics import DeliveryOrder, TopicDescriptor, TopicSettings
from pulsarcast.protocol.messages import EventMessage, Join, Role
from pulsarcast.protocol.store import MarkState
from pulsarcast.protocol.topic.handovers import Handovers
from tests.support.people import (
    ALICE,
    BOB,
    CAROL,
    CREATED_US,
    event_of,
    identity,
    meta_of,
    nonce,
    topic_of,
    version_of,
)
from tests.support.solo import Parent, Solo, below
from tests.unit.protocol.topic.bench import Bench

OLD, NEW = (BOB, CAROL), (identity("dave"), identity("erin"))


def settings_of(sequencers: tuple[Identity, ...]) -> TopicSettings:
    peers = tuple(each.peer_id for each in sequencers)
    return TopicSettings(order=DeliveryOrder.TOTAL, sequencers=peers)


TOPIC = topic_of(ALICE, settings_of(OLD))
NEWER = version_of(TOPIC, settings_of(NEW), signer=ALICE)
META = meta_of(ALICE)
COUNTED = {TOPIC.cid: OLD, NEWER.cid: NEW}


def reader(start: int = 0) -> tuple[Solo, Parent]:
    """A subscriber that knows both versions, and begins behind a position."""
    marks = [MarkState(shared_numbering(TOPIC.cid), 0, 0, start, None)] if start else []
    parent = Parent("alice", [TOPIC.block, META.block], marks=marks)
    solo = below(parent)
    solo.subscribe(TOPIC.cid)
    announced = event_of(ALICE, META, payload=NEWER.block)
    solo.hear(parent.peer, EventMessage(announced.block, 1))
    assert solo.version(TOPIC.cid) == NEWER
    return solo, parent


def event(
    version: TopicDescriptor,
    number: int,
    before: EventDescriptor | None = None,
    *,
    to: TopicDescriptor | None = None,
) -> EventDescriptor:
    """One that the sequencers of a version put at a position."""
    return publish_own(
        COUNTED[version.cid][0],
        topic=TOPIC.cid,
        version=version.cid,
        payload=b"",
        created=CREATED_US,
        nonce=nonce(f"{version.number}/{number}"),
        sequence=Sequence(0, number),
        parents=() if before is None else (before.cid,),
        position=Position(1 + version.number, number),
        hands_over_to=None if to is None else to.cid,
    )


def certificate_of(counted: EventDescriptor) -> bytes:
    """What its sequencers gave an event."""
    assert counted.position is not None
    signers = COUNTED[counted.version]
    places = {
        who.peer_id: sign_place(who, TOPIC.cid, counted.position, counted.cid) for who in signers
    }
    return make_certificate(tuple(who.peer_id for who in signers), places)


def hear(solo: Solo, *events: EventDescriptor) -> None:
    """Events come with their certificates."""
    for each in events:
        solo.hear(ALICE.peer_id, EventMessage(each.block, 1, certificate_of(each)))


def test_who_began_behind_a_handover_knows_from_the_first_event_who_counts() -> None:
    solo, parent = reader(start=2)
    third = event(NEWER, 3)
    hear(solo, third)
    versions = solo.topic(TOPIC.cid).versions
    assert [versions.in_force_at(number) for number in (2, 3)] == [TOPIC.cid, NEWER.cid]
    again = Solo(contacts=(parent.peer,), store=solo.store.copy())
    again.peers[parent.peer] = parent
    again.start()
    for node in (solo, again):
        hear(node, event(TOPIC, 4, third))
        assert "bad_certificate" in node.reasons()
        fourth = event(NEWER, 4, third)
        hear(node, fourth)
        assert node.cids() == [third.cid, fourth.cid]


def test_what_waited_for_the_handover_that_ends_its_sequencers_is_not_delivered() -> None:
    solo, _ = reader()
    first = event(TOPIC, 1)
    handover = event(TOPIC, 2, first, to=NEWER)
    beyond, third = event(TOPIC, 3, handover), event(NEWER, 3, handover)
    hear(solo, first, beyond)
    assert not solo.reasons(), "it may count, as far as anyone can tell"
    hear(solo, handover)
    (refused,) = [record for record in solo.records if isinstance(record, trace.Rejected)]
    assert refused.reason == "bad_certificate"
    assert (refused.peer, refused.topic) == (BOB.peer_id, TOPIC.cid)
    hear(solo, third)
    assert solo.cids()[-1] == third.cid
    assert beyond.cid not in solo.cids()


def test_those_of_a_newer_version_do_not_count_where_nobody_has_handed_over_to_them() -> None:
    solo, _ = reader()
    first = event(TOPIC, 1)
    hear(solo, first, event(NEWER, 2, first))
    assert solo.reasons() == ["bad_certificate"]
    second = event(TOPIC, 2, first)
    hear(solo, second)
    assert solo.cids()[-2:] == [first.cid, second.cid]


def test_a_version_that_was_handed_over_to_and_is_unknown_is_looked_for() -> None:
    """The old sequencers go on certifying: who counts there, only that version can say."""
    parent = Parent("alice", [TOPIC.block, META.block, NEWER.block])
    solo = below(parent)
    solo.subscribe(TOPIC.cid)
    first = event(TOPIC, 1)
    handover = event(TOPIC, 2, first, to=NEWER)
    hear(solo, first, handover)
    assert solo.version(TOPIC.cid) == TOPIC
    hear(solo, event(TOPIC, 3, handover))
    solo.advance(5.0)
    assert solo.version(TOPIC.cid) == NEWER
    assert solo.cids() == [first.cid, handover.cid]


def test_a_certificate_travels_with_the_event_that_is_passed_on() -> None:
    solo, _ = reader()
    child = identity("child").peer_id
    solo.hear(child, Join(TOPIC.cid, 1, Role.MEMBER, ALICE.peer_id, handed_down=True, fresh=False))
    first = event(TOPIC, 1)
    hear(solo, first)
    (passed_on,) = solo.sent_to(child, EventMessage)
    assert passed_on == EventMessage(first.block, 2, certificate_of(first))


def test_who_counts_behind_a_handover_is_asked_of_the_version_that_it_names() -> None:
    bench = Bench(TOPIC)
    handovers = Handovers(bench.state)
    handover = event(TOPIC, 1, to=NEWER)
    assert handovers.unknown_version(handover) is None
    assert handovers.taken(handover)
    beyond = event(TOPIC, 2, handover)
    assert handovers.unknown_version(beyond) == NEWER.cid, "which is not here"
    bench.state.versions.add(NEWER)
    with pytest.raises(RemoteError, match="that were replaced"):
        handovers.unknown_version(beyond)
    assert handovers.unknown_version(event(NEWER, 2, handover)) is None
    assert handovers.forget()
    assert handovers.unknown_version(beyond) is None
