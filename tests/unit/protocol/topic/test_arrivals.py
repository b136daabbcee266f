"""Arrivals: what stops an event, and which place it has in the order."""

import pytest

from pulsarcast.model.errors import RemoteError
from pulsarcast.model.events import EventDescriptor
from pulsarcast.model.identity import Identity
from pulsarcast.model.ids import Cid, PeerId, cid_of
from pulsarcast.model.topics import DeliveryOrder, TopicDescriptor, TopicSettings
from pulsarcast.protocol.topic.arrivals import (
    PARKED_MAX,
    Accepted,
    Arrival,
    Arrivals,
    HeldBack,
    Ignored,
    Unproven,
    Void,
    WantsMarks,
    WantsVersion,
)
from pulsarcast.protocol.topic.equivocation import Equivocation
from pulsarcast.protocol.topic.frontier import BEYOND_MAX
from pulsarcast.protocol.topic.handovers import Handovers
from tests.support.people import (
    ALICE,
    BOB,
    CAROL,
    EPOCH,
    MALLORY,
    event_of,
    following,
    mark_of,
    topic_of,
    version_of,
)
from tests.unit.protocol.topic.bench import Bench
from tests.unit.protocol.topic.test_handovers import TOPIC as SEQUENCED
from tests.unit.protocol.topic.test_handovers import certificate_of
from tests.unit.protocol.topic.test_handovers import event as counted

TOPIC = topic_of(ALICE, TopicSettings(open=True, order=DeliveryOrder.PER_PUBLISHER))
CAUSAL = topic_of(ALICE, TopicSettings(open=True, order=DeliveryOrder.CAUSAL))


class Gate(Bench):
    """Arrivals of one topic."""

    def __init__(self, topic: TopicDescriptor = TOPIC) -> None:
        super().__init__(topic)
        equivocation = Equivocation(self.state, self.members.overlay, self.owner)
        self.known: dict[Cid, int] = {}
        """Marks by the index of their frontier."""
        self.arrivals = Arrivals(self.state, equivocation, Handovers(self.state), self)

    def number(self, index: Cid, numbering: tuple[PeerId, int]) -> int | None:
        return self.known.get(index)

    def hold(self, event: EventDescriptor) -> None:
        """An event is behind us."""
        self.frontier.add(event.numbered_by, *event.sequence, event.cid)


def arrival(event: EventDescriptor, certificate: bytes = b"") -> Arrival:
    return Arrival(event, CAROL.peer_id, 1, certificate, via_overlay=True)


def test_a_new_event_of_one_who_may_publish_is_stopped_by_nothing() -> None:
    assert Gate().arrivals.judge(arrival(event_of(CAROL, TOPIC))) is None


def test_an_event_that_is_held_already_is_a_duplicate() -> None:
    gate, event = Gate(), event_of(CAROL, TOPIC)
    gate.hold(event)
    assert gate.arrivals.judge(arrival(event)) is Ignored.DUPLICATE


def test_an_event_far_ahead_of_many_that_are_missing_is_ignored() -> None:
    gate = Gate()
    for number in range(2, BEYOND_MAX + 2):
        gate.frontier.add(CAROL.peer_id, EPOCH, number, None)
    far = event_of(CAROL, TOPIC, BEYOND_MAX + 2)
    assert gate.arrivals.judge(arrival(far)) is Ignored.TOO_FAR_AHEAD


def test_the_first_event_of_an_unknown_version_asks_for_it_and_all_wait() -> None:
    gate = Gate()
    version = version_of(TOPIC, signer=ALICE)
    parked = [arrival(event_of(CAROL, version, number)) for number in range(1, PARKED_MAX + 2)]
    outcomes = [gate.arrivals.judge(each) for each in parked]
    assert outcomes == [WantsVersion(version.cid)] + [Ignored.PARKED] * PARKED_MAX
    assert gate.arrivals.parked_count == PARKED_MAX
    gate.state.versions.add(version)
    assert gate.arrivals.unpark(version.cid, is_known=True) == parked[:PARKED_MAX], (
        "the last had no room"
    )
    assert gate.arrivals.parked_count == 0


def test_what_waited_for_a_version_that_nobody_has_is_dropped() -> None:
    gate = Gate()
    version = version_of(TOPIC, signer=ALICE)
    gate.arrivals.judge(arrival(event_of(CAROL, version)))
    assert gate.arrivals.unpark(version.cid, is_known=False) == []
    assert gate.arrivals.parked_count == 0


def only(*publishers: Identity) -> TopicSettings:
    allowed = tuple(each.peer_id for each in publishers)
    order = DeliveryOrder.PER_PUBLISHER
    return TopicSettings(order=order, publishers=allowed)


def test_an_event_whose_right_was_revoked_is_void_and_one_that_never_had_it_is_refused() -> None:
    first = topic_of(ALICE, only(ALICE, CAROL))
    gate = Gate(first)
    gate.state.versions.add(version_of(first, only(ALICE), signer=ALICE))
    assert isinstance(gate.arrivals.judge(arrival(event_of(CAROL, first))), Void)
    with pytest.raises(RemoteError):
        gate.arrivals.judge(arrival(event_of(MALLORY, first)))


def test_an_event_that_is_judged_by_marks_waits_until_they_are_found() -> None:
    first, index = topic_of(ALICE, only(ALICE, CAROL)), cid_of(b"index")
    gate = Gate(first)
    gate.state.versions.add(version_of(first, only(ALICE), signer=ALICE, until=index))
    waiting = [arrival(event_of(CAROL, first, number)) for number in (1, 2)]
    for each in waiting:
        assert gate.arrivals.judge(each) == WantsMarks([index])
        assert gate.arrivals.judge(each) is Ignored.PARKED, "a second copy"
    gate.known[index] = 1
    for each in waiting:
        assert gate.arrivals.unpark(each.event.cid, is_known=True) == [each, each]
    assert gate.arrivals.judge(waiting[0]) is None
    assert isinstance(gate.arrivals.judge(waiting[1]), Void)
    assert gate.arrivals.parked_count == 0


def test_an_event_whose_marks_nobody_has_is_dropped_and_not_void() -> None:
    first, index = topic_of(ALICE, only(ALICE, CAROL)), cid_of(b"index")
    gate = Gate(first)
    gate.state.versions.add(version_of(first, only(ALICE), signer=ALICE, until=index))
    each = arrival(event_of(CAROL, first))
    gate.arrivals.judge(each)
    assert gate.arrivals.unpark(each.event.cid, is_known=False) == []
    assert gate.arrivals.judge(each) == WantsMarks([index]), "it comes again, and is looked for"


def test_a_causal_event_that_calls_another_what_it_is_not_is_void() -> None:
    gate, named = Gate(CAUSAL), event_of(CAROL, CAUSAL)
    gate.arrivals.place(arrival(named))
    wrong = mark_of(named)._replace(number=2)
    liar = event_of(MALLORY, CAUSAL, parents=[named.cid], marks=[wrong])
    assert isinstance(gate.arrivals.judge(arrival(liar)), Void)


def test_without_a_certificate_a_sequenced_event_is_only_a_hint_of_what_is_missing() -> None:
    gate, event = Gate(SEQUENCED), counted(SEQUENCED, 3)
    assert gate.arrivals.judge(arrival(event)) == Unproven((1, 3))
    assert gate.arrivals.judge(arrival(event, certificate_of(event))) is None


def test_a_certificate_stays_with_its_event_where_that_is_kept_or_waits() -> None:
    gate = Gate(SEQUENCED)
    first = counted(SEQUENCED, 1)
    third = counted(SEQUENCED, 3, counted(SEQUENCED, 2, first))
    for event in (first, third):
        gate.arrivals.place(arrival(event, certificate_of(event)))
    assert list(gate.state.certificates) == [first.cid, third.cid]


def test_an_event_ahead_of_others_is_held_back_and_shows_the_gap() -> None:
    gate = Gate()
    assert gate.arrivals.place(arrival(event_of(CAROL, TOPIC, 4))) == HeldBack((1, 3))
    assert gate.arrivals.place(arrival(event_of(CAROL, TOPIC, 1))) == Accepted(None)


def test_a_causal_event_waits_for_what_it_follows_without_a_gap_of_its_own() -> None:
    gate = Gate(CAUSAL)
    after = event_of(MALLORY, CAUSAL, **following(event_of(BOB, CAUSAL)))
    assert gate.arrivals.place(arrival(after)) == HeldBack(None)
