"""The requests of a sequencer that leads: in the order of their numbers, each once."""

from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec import structs

from pulsarcast.model.certificates import make_certificate, sign_place
from pulsarcast.model.errors import Conflict
from pulsarcast.model.events import (
    REQUEST_BYTES_MAX,
    SignedRequest,
    decode_event,
)
from pulsarcast.model.identity import Identity
from pulsarcast.model.ids import Cid
from pulsarcast.model.topics import DeliveryOrder, TopicDescriptor, TopicSettings
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.messages import (
    EventMessage,
    RequestAnswered,
    RequestReferred,
    RequestToPublish,
)
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.publishing.waiting_requests import Waiting
from pulsarcast.protocol.sequencing import sequencer
from pulsarcast.protocol.sequencing.log import Entry, EntryKind, Log, Place
from pulsarcast.protocol.sequencing.messages import Appended
from pulsarcast.protocol.sequencing.proposals import Proposals
from pulsarcast.protocol.topic.published_requests import PublishedRequests
from pulsarcast.protocol.topic.versions import Versions
from pulsarcast.protocol.turn import Turn
from tests.support.people import (
    ALICE,
    BOB,
    CAROL,
    CREATED_US,
    MALLORY,
    identity,
    largest_request,
    request_of,
    topic_of,
    version_of,
)
from tests.support.sequencing import STORE, Pair


def hear(pair: Pair, who: Identity, signed: SignedRequest, *, settled: int = 0) -> None:
    message = RequestToPublish(signed.block, replicated=False, settled=settled)
    pair.solo.hear(who.peer_id, message)


def in_log(pair: Pair) -> list[bytes]:
    """The requests in the log, by position."""
    events = pair.sequencer.state.events
    entries = [entry for _, entry in pair.sequencer.log if entry.kind is EntryKind.EVENT]
    return [events.request_of(entry.body) for entry in entries]


class Leader:
    """A sequencer that puts all that it is given into its log, and never commits it."""

    def __init__(self, descriptor: TopicDescriptor) -> None:
        self.state = self
        self.leads = self.may_propose = True
        self.leader = MALLORY.peer_id
        self.changes = SimpleNamespace(certifying=lambda: descriptor.sequencers)
        self.blocks: list[bytes] = []

    def position_of(self, request_id: bytes) -> int | None:
        ids = [decode_event(block).request_id for block in self.blocks]
        return ids.index(request_id) + 1 if request_id in ids else None

    def propose(self, make: Callable[[Place], bytes]) -> None:
        self.blocks.append(make(Place(1, len(self.blocks) + 1, None)))


def test_a_leader_takes_a_number_until_it_is_in_the_history() -> None:
    settings = TopicSettings(order=DeliveryOrder.TOTAL, sequencers=(ALICE.peer_id, MALLORY.peer_id))
    descriptor = topic_of(ALICE, settings)
    leader = Leader(descriptor)
    requests = PublishedRequests(descriptor.cid)
    topic = cast(Any, SimpleNamespace(requests=requests, versions=Versions(descriptor)))
    context = Context(Turn(ALICE, Random(1)), Parameters())
    proposals = Proposals(context, cast(Any, leader))
    one, other = (request_of(BOB, descriptor.cid, payload=each) for each in (b"one", b"other"))
    numbering = (one.request.author, one.request.sequence.epoch)
    assert proposals.version(topic) == descriptor
    assert proposals.last_number(topic, *numbering) == 0
    proposals.publish(Waiting(BOB.peer_id, one, False), topic, lambda *_: None)
    assert proposals.is_under_way(one.request_id)
    assert proposals.last_number(topic, *numbering) == 1
    with pytest.raises(Conflict):
        proposals.publish(Waiting(BOB.peer_id, other, False), topic, lambda *_: None)
    event = decode_event(leader.blocks[0])
    proposals.arrived(event)
    assert len(proposals) == 0
    proposals.begin([event])
    assert proposals.last_number(topic, *numbering) == 1
    leader.leads = leader.may_propose = False
    assert proposals.version(topic) is None
    assert not proposals.is_under_way(one.request_id)
    assert proposals.last_number(topic, *numbering) is None
    assert proposals.referral(descriptor.cid, one.request_id).leader == MALLORY.peer_id


def test_a_thousand_requests_that_waited_for_one_get_their_places_by_number() -> None:
    pair = Pair(Parameters(requests_held_max=4096)).lead()
    asked = [request_of(BOB, pair.topic, number) for number in range(1, 1002)]
    for signed in [*asked[1:], asked[0]]:
        hear(pair, BOB, signed)
    assert not pair.solo.reasons()
    assert in_log(pair) == [signed.request_id for signed in asked]


def test_a_request_that_did_not_wait_to_the_end_is_not_proposed_again() -> None:
    """Its author says that what it waited for is settled; that one comes all the same."""
    pair = Pair().lead()
    first, second, third = (request_of(BOB, pair.topic, number) for number in (1, 2, 3))
    hear(pair, BOB, first)
    hear(pair, BOB, third)
    hear(pair, BOB, third, settled=2)
    hear(pair, BOB, second)
    assert in_log(pair) == [each.request_id for each in (first, third, second)]


def test_a_request_that_came_too_early_is_held_against_the_version_of_its_turn() -> None:
    """In the log all the same, no follower would take it, and nothing behind it."""
    pair = Pair().lead()
    first, large = request_of(BOB, pair.topic), request_of(BOB, pair.topic, 2, payload=bytes(100))
    hear(pair, BOB, large)
    less = structs.replace(pair.descriptor.settings, payload_bytes_max=99)
    version = version_of(pair.descriptor, less, signer=MALLORY)
    pair.solo.node.renewal.adopt(pair.solo.topic(pair.topic), version)
    hear(pair, BOB, first)
    assert in_log(pair) == [first.request_id]
    (answer,) = pair.solo.sent_to(BOB.peer_id, RequestAnswered)
    assert (answer.request_id, answer.code) == (large.request_id, "too_large")


def test_a_request_that_came_too_early_while_we_could_not_judge_it_is_judged_in_its_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pair = Pair().lead()
    with monkeypatch.context() as busy:
        busy.setattr(sequencer, "PENDING_MAX", 0)
        old = request_of(BOB, pair.topic, 2, expires=CREATED_US)
        hear(pair, BOB, old)
    first = request_of(BOB, pair.topic)
    hear(pair, BOB, first)
    assert in_log(pair) == [first.request_id]


def sign(pair: Pair) -> Cid:
    """Mallory signs the newest event, which can leave then."""
    log = pair.sequencer.log
    found = log.event_at(log.last_position)
    assert found is not None
    index, entry = found
    event = decode_event(entry.body)
    assert event.position is not None
    signature = sign_place(MALLORY, pair.topic, event.position, event.cid)
    signatures = ((event.position.number, signature),)
    answer = Appended(pair.topic, pair.sequencer.state.term, STORE, True, index, 0, signatures)
    pair.solo.hear(MALLORY.peer_id, answer)
    return event.cid


def test_all_who_ask_for_a_request_that_has_its_place_are_answered() -> None:
    pair = Pair().lead()
    signed = request_of(BOB, pair.topic)
    for who in (BOB, CAROL):
        hear(pair, who, signed)
    assert not pair.solo.said(RequestAnswered)
    event = sign(pair)
    for who in (BOB, CAROL):
        (answer,) = pair.solo.sent_to(who.peer_id, RequestAnswered)
        assert (answer.request_id, answer.event) == (signed.request_id, event)
    assert pair.solo.node.footprint()["requests"] == 0


def test_who_waits_for_replicas_of_an_event_that_others_let_out_is_answered() -> None:
    """A leader before it had certified it. Who waited took the room of others for ever."""
    pair = Pair().lead()
    signed = request_of(BOB, pair.topic)
    pair.solo.hear(BOB.peer_id, RequestToPublish(signed.block, replicated=True, settled=0))
    found = pair.sequencer.log.event_at(1)
    assert found is not None
    event = decode_event(found[1].body)
    assert event.position is not None
    both = {
        who.peer_id: sign_place(who, pair.topic, event.position, event.cid)
        for who in (pair.solo.identity, MALLORY)
    }
    certificate = make_certificate(pair.descriptor.sequencers, both)
    pair.solo.hear(MALLORY.peer_id, EventMessage(event.block, 1, certificate=certificate))
    assert pair.sequencer.state.events.held() == 1
    pair.solo.advance(60.0)
    (answer,) = pair.solo.sent_to(BOB.peer_id, RequestAnswered)
    assert answer.event == event.cid
    assert pair.solo.node.footprint()["requests"] == 0


def test_of_two_requests_with_one_number_the_first_gets_a_place() -> None:
    """Nobody would deliver the second, and whoever waits for it would take room for ever."""
    pair = Pair().lead()
    first, other = (request_of(BOB, pair.topic, 1, payload=each) for each in (b"one", b"other"))
    hear(pair, BOB, first)
    hear(pair, BOB, other)
    assert in_log(pair) == [first.request_id]
    (answer,) = pair.solo.sent_to(BOB.peer_id, RequestAnswered)
    assert answer.request_id == other.request_id
    assert (answer.event, answer.code) == (None, "conflict")
    assert pair.solo.node.footprint()["requests"] == 1, "the first, which waits for its answer"
    hear(pair, BOB, request_of(BOB, pair.topic, 2))
    assert len(in_log(pair)) == 2


def test_a_leader_knows_the_numbers_that_one_before_it_has_taken() -> None:
    pair = Pair().lead()
    pair.keeps = False
    first, other = (request_of(BOB, pair.topic, 1, payload=each) for each in (b"one", b"other"))
    hear(pair, BOB, first)
    pair.solo.advance(30.0)
    assert not pair.sequencer.state.leads or pair.sequencer.state.term > 1
    pair.keeps = True
    pair.solo.advance(30.0)
    assert pair.sequencer.state.leads
    hear(pair, BOB, other)
    assert in_log(pair) == [first.request_id]


def test_a_request_too_large_for_an_event_is_refused_and_its_number_is_not_taken() -> None:
    pair = Pair().lead()
    large = largest_request(BOB, pair.topic)
    assert len(large.block) == REQUEST_BYTES_MAX
    hear(pair, BOB, large)
    (answer,) = pair.solo.sent_to(BOB.peer_id, RequestAnswered)
    assert (answer.event, answer.code) == (None, "too_large")
    smaller = [request_of(BOB, pair.topic, number) for number in (2, 1)]
    for signed in smaller:
        hear(pair, BOB, signed)
    assert in_log(pair) == [signed.request_id for signed in reversed(smaller)]


def test_what_waits_behind_a_request_that_is_refused_goes_on_waiting() -> None:
    """Its author takes note of the refusal, and says then that the number is settled."""
    pair = Pair().lead()
    first, large = request_of(BOB, pair.topic, 1), largest_request(BOB, pair.topic, 2)
    third = request_of(BOB, pair.topic, 3)
    for signed in (third, large, first):
        hear(pair, BOB, signed)
    assert in_log(pair) == [first.request_id]
    hear(pair, BOB, third, settled=2)
    assert in_log(pair) == [first.request_id, third.request_id]


def test_one_author_cannot_crowd_out_the_others() -> None:
    """What it left out on purpose never comes, for as long as this leader leads."""
    pair = Pair(Parameters(requests_held_max=16)).lead()
    for number in range(2, 100):
        hear(pair, MALLORY, request_of(MALLORY, pair.topic, number))
    assert pair.solo.node.footprint()["requests"] == 4
    asked = [request_of(BOB, pair.topic, number) for number in (1, 2, 3)]
    for signed in (asked[1], asked[2], asked[0]):
        hear(pair, BOB, signed)
    assert in_log(pair) == [signed.request_id for signed in asked]


def test_many_authors_cannot_keep_others_from_being_given_their_places() -> None:
    pair = Pair(Parameters(requests_held_max=16)).lead()
    for number in range(20):
        who = identity(f"author {number}")
        hear(pair, who, request_of(who, pair.topic, 2))
    assert pair.solo.node.footprint()["requests"] == 16
    signed = request_of(BOB, pair.topic, 1)
    hear(pair, BOB, signed)
    assert in_log(pair) == [signed.request_id]


def test_a_request_that_did_not_wait_to_the_end_takes_no_room_any_more() -> None:
    """It was held, came again once what it waited for was settled, and has its place."""
    pair = Pair(Parameters(requests_held_max=16)).lead()
    pair.keeps = False
    for epoch in range(1, 9):
        signed = request_of(BOB, pair.topic, 3, epoch=epoch)
        hear(pair, BOB, signed)
        hear(pair, BOB, signed, settled=2)
    assert len(in_log(pair)) == 8
    assert pair.solo.node.footprint()["requests"] == 8, "those that wait for their answers"


def test_who_waits_with_a_leader_that_steps_down_is_sent_elsewhere() -> None:
    pair = Pair().lead()
    signed = request_of(BOB, pair.topic, 2)
    hear(pair, BOB, signed)
    pair.solo.peers.clear()
    pair.solo.advance(30.0)
    assert not pair.sequencer.state.leads
    (answer,) = pair.solo.sent_to(BOB.peer_id, RequestReferred)
    assert answer.request_id == signed.request_id
    assert pair.solo.node.footprint()["requests"] == 0


def test_an_answer_costs_a_leader_no_more_where_its_log_is_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Most histories may be far behind: then the log keeps all of it."""
    pair = Pair(Parameters(sequencer_log=8)).lead()
    pair.keeps = False
    leading = pair.sequencer
    for _ in range(500):
        leading.log._put(
            Entry(leading.state.term, leading.log.last_position, EntryKind.NOTHING, b"")
        )
    last = leading.followers._synced = leading.log.last_index
    answers = [
        Appended(pair.topic, leading.state.term, STORE, True, index, 0, ())
        for index in (last - 1, last)
    ]
    pair.solo.hear(MALLORY.peer_id, answers[0])
    looked: list[int] = []
    at = Log.at

    def counted(log: Log, index: int) -> Entry:
        looked.append(index)
        return at(log, index)

    monkeypatch.setattr(Log, "at", counted)
    monkeypatch.setattr(Log, "__iter__", None)
    pair.solo.hear(MALLORY.peer_id, answers[1])
    assert leading.state.committed == last
    assert len(looked) < 10
