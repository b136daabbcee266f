"""Requests to publish: the author's durable outbox, and the publisher's side (design 6)."""

import pytest

from pulsarcast.model import trace
from pulsarcast.model.errors import Busy
from pulsarcast.model.events import (
    REQUEST_BYTES_MAX,
    Attribute,
    Sequence,
    decode_request,
    sign_request,
)
from pulsarcast.model.identity import Identity
from pulsarcast.model.ids import Cid
from pulsarcast.model.topics import AttributeRule, DeliveryOrder, TopicSettings
from pulsarcast.protocol.inputs import PeerLost, Publish, ReadHistory, Unsubscribe, UpdateTopic
from pulsarcast.protocol.messages import (
    EventMessage,
    RequestAnswered,
    RequestReferred,
    RequestToPublish,
)
from pulsarcast.protocol.parameters import Parameters
from tests.support.lab import Lab
from tests.support.people import (
    ALICE,
    BOB,
    CAROL,
    CREATED_US,
    EPOCH,
    MALLORY,
    event_for,
    identity,
    largest_request,
    meta_of,
    request_of,
    topic_of,
    unordered,
)
from tests.support.solo import Parent, Solo, below


def author_only(lab: Lab, *more: int) -> TopicSettings:
    return TopicSettings(publishers=tuple(lab.peer(index) for index in (0, *more)))


def only_alice() -> TopicSettings:
    return unordered(publishers=(ALICE.peer_id,))


def payloads(lab: Lab, index: int, topic: Cid) -> list[bytes]:
    return [lab.event(cid).payload for cid in lab.delivered(index, topic)]


# The author's side.


def test_a_request_waits_in_the_outbox_until_its_publisher_is_back() -> None:
    lab = Lab(6)
    topic = lab.create(0, author_only(lab))
    lab.subscribe([1, 2], topic)
    lab.world.kill(0)
    replies = lab.start(1, lambda call: Publish(call, topic, b"waits"))
    lab.run(60.0)
    assert not replies
    lab.world.restart(0)
    lab.run(120.0)
    assert [reply.refusal for reply in replies] == [None]
    assert payloads(lab, 2, topic) == [b"waits"]


@pytest.mark.parametrize("subscribed", [True, False], ids=["subscribed", "not subscribed"])
def test_a_request_survives_a_crash_of_its_author(subscribed: bool) -> None:
    """Durable means: on the disk, and sent again after a restart, whether or not one subscribes."""
    lab = Lab(6)
    topic = lab.create(0, author_only(lab))
    lab.subscribe([2], topic)
    if subscribed:
        lab.subscribe([1], topic)
    lab.world.kill(0)
    lab.start(1, lambda call: Publish(call, topic, b"durable"))
    lab.run(5.0)
    lab.world.kill(1)
    lab.world.restart(1)
    lab.run(5.0)
    lab.world.restart(0)
    lab.run(300.0)
    assert payloads(lab, 2, topic) == [b"durable"]


def test_requests_are_numbered_on_after_a_restart() -> None:
    """Another numbering would be another author's to all who keep the order of requests."""
    lab = Lab(6)
    topic = lab.create(0, author_only(lab))
    lab.subscribe([2], topic)
    before = lab.event(lab.publish(1, topic, b"before")).request.sequence
    lab.world.kill(1)
    lab.world.restart(1)
    lab.run(30.0)
    after = lab.event(lab.publish(1, topic, b"after")).request.sequence
    assert after == Sequence(before.epoch, before.number + 1)


def test_a_request_is_sent_again_ever_more_slowly() -> None:
    parent = Parent("alice", [topic_of(ALICE, only_alice()).block])
    solo = below(parent)
    solo.give(Publish(99, topic_of(ALICE, only_alice()).cid, b"anyone there?"))
    counts = []
    for _ in range(6):
        solo.advance(200.0)
        counts.append(len(solo.sent_to(ALICE.peer_id, RequestToPublish)))
    steps = [after - before for before, after in zip([0, *counts], counts, strict=False)]
    assert steps[0] > steps[-1] >= 0
    assert counts[-1] <= 12
    assert solo.node.footprint()["outbox"] == 1


def test_an_answer_from_someone_who_may_not_publish_is_not_believed() -> None:
    topic = topic_of(ALICE, only_alice())
    solo = below(Parent("alice", [topic.block]))
    solo.give(Publish(99, topic.cid, b"please"))
    (asked,) = solo.sent_to(ALICE.peer_id, RequestToPublish)
    request_id = request_id_of(asked)
    forged = RequestAnswered(topic.cid, request_id, topic.cid, 3, "")
    solo.hear(MALLORY.peer_id, forged)
    assert 99 not in solo.replies
    assert solo.node.footprint()["outbox"] == 1
    solo.hear(ALICE.peer_id, forged)
    assert solo.replies[99].cid == topic.cid
    assert solo.node.footprint()["outbox"] == 0


def request_id_of(message: RequestToPublish) -> bytes:
    return decode_request(message.block).request_id


def test_a_refusal_is_told_to_the_caller_and_written_down() -> None:
    topic = topic_of(ALICE, only_alice())
    solo = below(Parent("alice", [topic.block]))
    solo.give(Publish(99, topic.cid, b"please"))
    (asked,) = solo.sent_to(ALICE.peer_id, RequestToPublish)
    refusal = RequestAnswered(topic.cid, request_id_of(asked), None, 0, "busy", "not today")
    solo.hear(ALICE.peer_id, refusal)
    assert solo.replies[99].refusal == Busy("not today").refusal
    refused = [record for record in solo.records if isinstance(record, trace.Refused)]
    assert [record.reason for record in refused] == ["busy"]


def test_the_outbox_is_bounded() -> None:
    topic = topic_of(ALICE, only_alice())
    solo = below(Parent("alice", [topic.block]), parameters=Parameters(outbox_max=5))
    for call in range(100, 110):
        solo.give(Publish(call, topic.cid, b"many"))
    assert solo.node.footprint()["outbox"] == 5
    assert {reply.refusal and reply.refusal.code for reply in solo.replies.values()} == {"busy"}


# Several sequencers.


def among_three() -> tuple[Solo, Cid]:
    """A node that asks three sequencers, and hears from the first that the second leads."""
    three = tuple(each.peer_id for each in (ALICE, BOB, CAROL))
    settings = TopicSettings(order=DeliveryOrder.TOTAL, sequencers=three)
    topic = topic_of(ALICE, settings)
    solo = below(Parent("alice", [topic.block]))
    ask_for(solo, topic.cid, 1)
    (asked,) = solo.sent_to(ALICE.peer_id, RequestToPublish)
    solo.hear(ALICE.peer_id, RequestReferred(topic.cid, request_id_of(asked), BOB.peer_id))
    ask_for(solo, topic.cid, 2)
    assert numbers_asked(solo, ALICE) == [1]
    assert numbers_asked(solo, BOB) == [1, 2]
    return solo, topic.cid


def ask_for(solo: Solo, topic: Cid, number: int) -> None:
    solo.give(Publish(100 + number, topic, b"please"))


def numbers_asked(solo: Solo, who: Identity) -> list[int]:
    """The requests that somebody was sent, in order."""
    asked = solo.sent_to(who.peer_id, RequestToPublish)
    return [decode_request(message.block).request.sequence.number for message in asked]


SOON_S = 1.25 * Parameters().leader_heartbeat_s


def test_a_leader_that_is_gone_is_not_asked_again() -> None:
    solo, topic = among_three()
    solo.give(PeerLost(CAROL.peer_id))
    solo.advance(SOON_S)
    ask_for(solo, topic, 3)
    assert numbers_asked(solo, BOB) == [1, 2, 3], "it was another who went"
    solo.give(PeerLost(BOB.peer_id))
    ask_for(solo, topic, 4)
    assert numbers_asked(solo, BOB) == [1, 2, 3]
    assert numbers_asked(solo, ALICE) == [1, 4]


def test_what_was_asked_of_a_leader_that_is_gone_is_asked_of_others_soon() -> None:
    """One request asks around for all: a thousand of them need not find the same."""
    solo, topic = among_three()
    solo.give(PeerLost(BOB.peer_id))
    assert numbers_asked(solo, CAROL) == []
    solo.advance(SOON_S)
    assert (numbers_asked(solo, BOB), numbers_asked(solo, CAROL)) == ([1, 2], [1])
    solo.give(PeerLost(CAROL.peer_id))
    solo.advance(SOON_S)
    assert numbers_asked(solo, ALICE) == [1, 1], "it goes on asking"
    (*_, asked) = solo.sent_to(ALICE.peer_id, RequestToPublish)
    solo.hear(ALICE.peer_id, RequestAnswered(topic, request_id_of(asked), topic, 0, ""))
    assert numbers_asked(solo, ALICE) == [1, 1, 2], "who waited asks whoever was found"


# Once.


@pytest.mark.parametrize("subscribed", [True, False], ids=["subscribed", "not subscribed"])
def test_a_command_given_twice_with_one_key_is_published_once(subscribed: bool) -> None:
    """Design 5: an idempotency key makes a retry of the caller the same event."""
    lab = Lab(6)
    topic = lab.create(0)
    lab.subscribe([2], topic)
    if subscribed:
        lab.subscribe([1], topic)
    replies = [
        lab.ask(1, lambda call: Publish(call, topic, b"once", idempotency_key=b"key"))
        for _ in range(2)
    ]
    lab.run(30.0)
    assert payloads(lab, 2, topic) == [b"once"]
    assert replies[0].cid == replies[1].cid


def test_a_command_given_twice_at_the_same_moment_is_published_once() -> None:
    lab = Lab(6)
    topic = lab.create(0)
    lab.subscribe([1, 2], topic)
    for _ in range(2):
        lab.start(1, lambda call: Publish(call, topic, b"once", idempotency_key=b"key"))
    lab.run(30.0)
    assert payloads(lab, 2, topic) == [b"once"]


def test_a_request_retried_by_its_caller_while_it_waits_is_published_once() -> None:
    lab = Lab(6)
    topic = lab.create(0, author_only(lab))
    lab.subscribe([1, 2], topic)
    lab.world.kill(0)
    for _ in range(2):
        lab.start(1, lambda call: Publish(call, topic, b"once", idempotency_key=b"key"))
        lab.run(5.0)
    lab.world.restart(0)
    lab.run(120.0)
    assert payloads(lab, 2, topic) == [b"once"]


def test_a_request_retried_by_its_caller_after_a_crash_is_published_once() -> None:
    lab = Lab(6)
    topic = lab.create(0, author_only(lab))
    lab.subscribe([1, 2], topic)
    lab.world.kill(0)
    lab.start(1, lambda call: Publish(call, topic, b"once", idempotency_key=b"key"))
    lab.run(5.0)
    lab.world.kill(1)
    lab.world.restart(1)
    lab.start(1, lambda call: Publish(call, topic, b"once", idempotency_key=b"key"))
    lab.run(5.0)
    lab.world.restart(0)
    lab.run(300.0)
    assert payloads(lab, 2, topic) == [b"once"]


def test_a_request_is_published_once_however_often_it_is_asked() -> None:
    solo = Solo().start()
    topic = solo.create(TopicSettings(publishers=(solo.me,)))
    signed = request_of(BOB, topic)
    message = RequestToPublish(signed.block, replicated=False, settled=0)
    for _ in range(5):
        solo.hear(BOB.peer_id, message)
    solo.advance(60.0)
    answers = solo.sent_to(BOB.peer_id, RequestAnswered)
    assert len({answer.event for answer in answers}) == 1
    assert answers[-1].event is not None
    assert solo.topic(topic).frontier.marks()[0].high == 1


def test_a_request_is_published_once_also_after_a_crash_of_the_publisher() -> None:
    solo = Solo().start()
    topic = solo.create(TopicSettings(publishers=(solo.me,)))
    signed = request_of(BOB, topic)
    message = RequestToPublish(signed.block, replicated=False, settled=0)
    solo.hear(BOB.peer_id, message)
    (answer,) = solo.sent_to(BOB.peer_id, RequestAnswered)
    again = Solo(store=solo.store, seed=2).start()
    again.advance(1.0)
    again.hear(BOB.peer_id, message)
    again.advance(60.0)
    assert [a.event for a in again.sent_to(BOB.peer_id, RequestAnswered)] == [answer.event]


def test_a_request_that_two_publishers_took_is_delivered_once() -> None:
    """Receivers deliver a request id once too (design 6)."""
    settings = TopicSettings(publishers=(ALICE.peer_id, CAROL.peer_id))
    topic = topic_of(ALICE, settings)
    solo = below(Parent("alice", [topic.block, meta_of(ALICE).block]))
    solo.subscribe(topic.cid)
    signed = request_of(BOB, topic.cid)
    for publisher in (ALICE, CAROL):
        event = event_for(publisher, signed, topic)
        hear_event(solo, event.block)
    assert len(solo.delivered) == 1


def hear_event(solo: Solo, block: bytes) -> None:
    solo.hear(ALICE.peer_id, EventMessage(block, 1))


def test_a_crash_between_two_requests_loses_neither() -> None:
    """Request 2 came first, we crashed, request 1 came after: it is no duplicate of anything.

    Both were acknowledged to their author; a subscriber that was away still gets every event.
    """
    topic = topic_of(ALICE, only_alice())
    parent = Parent("alice", [topic.block, meta_of(ALICE).block])
    solo = below(parent)
    solo.subscribe(topic.cid)
    first, second = (
        event_for(ALICE, request_of(BOB, topic.cid, number), topic, number) for number in (1, 2)
    )
    hear_event(solo, second.block)
    assert solo.cids() == [second.cid]
    again = Solo(store=solo.store, contacts=(ALICE.peer_id,), seed=2)
    again.peers[ALICE.peer_id] = parent
    again.start()
    again.advance(5.0)
    hear_event(again, first.block)
    assert first.cid in again.cids()


# The publisher's side.


def test_an_authors_requests_are_published_in_the_order_of_their_numbers() -> None:
    solo = Solo().start()
    topic = solo.create(TopicSettings(publishers=(solo.me,)))
    for number in (3, 2, 1):
        signed = request_of(BOB, topic, number, payload=b"%d" % number)
        solo.hear(BOB.peer_id, RequestToPublish(signed.block, replicated=False, settled=0))
    solo.advance(60.0)
    assert solo.node.footprint()["requests"] == 0
    log = solo.ask(lambda call: ReadHistory(call, topic, 1, 1000)).events
    assert [event.payload for event in log] == [b"1", b"2", b"3"]


def test_a_request_that_another_publisher_took_while_it_waited_is_not_published_again() -> None:
    """Found by random seed 161: requests 2 and 3 waited here for 1, and Carol published 2."""
    solo = Solo().start()
    topic = solo.create(TopicSettings(publishers=(solo.me, CAROL.peer_id)))
    solo.subscribe(topic)
    signed = {number: request_of(BOB, topic, number) for number in (1, 2, 3)}
    for number in (3, 2):
        message = RequestToPublish(signed[number].block, replicated=False, settled=0)
        solo.hear(BOB.peer_id, message)
    carols = event_for(CAROL, signed[2], solo.version(topic))
    solo.hear(CAROL.peer_id, EventMessage(carols.block, 1))
    assert solo.cids() == [carols.cid]
    solo.hear(BOB.peer_id, RequestToPublish(signed[1].block, replicated=False, settled=0))
    solo.advance(60.0)
    requests = [event.request_id for event in solo.delivered]
    assert sorted(requests) == sorted(each.request_id for each in signed.values())
    answers = solo.sent_to(BOB.peer_id, RequestAnswered)
    assert {answer.request_id: answer.event for answer in answers}[
        signed[2].request_id
    ] == carols.cid


def test_nobody_waits_for_requests_that_are_answered() -> None:
    """`settled`: what another publisher answered need not come to this one."""
    solo = Solo().start()
    topic = solo.create(TopicSettings(publishers=(solo.me,)))
    signed = request_of(BOB, topic, 5)
    solo.hear(BOB.peer_id, RequestToPublish(signed.block, replicated=False, settled=4))
    assert len(solo.sent_to(BOB.peer_id, RequestAnswered)) == 1


def test_only_the_author_can_say_what_is_settled() -> None:
    """Else a stranger could make the publisher skip what is still on its way."""
    solo = Solo().start()
    topic = solo.create(TopicSettings(publishers=(solo.me,)))
    fifth = request_of(BOB, topic, 5)
    solo.hear(MALLORY.peer_id, RequestToPublish(fifth.block, replicated=False, settled=4))
    assert not solo.said(RequestAnswered)
    first = request_of(BOB, topic, 1)
    solo.hear(BOB.peer_id, RequestToPublish(first.block, replicated=False, settled=0))
    (answer,) = solo.sent_to(BOB.peer_id, RequestAnswered)
    assert answer.event is not None


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        (TopicSettings(publishers=(CAROL.peer_id,)), "not_allowed"),
        (unordered(request_to_publish=False), "not_allowed"),
        (unordered(requesters=(CAROL.peer_id,)), "not_allowed"),
        (unordered(payload_bytes_max=3), "too_large"),
    ],
)
def test_what_is_not_allowed_is_refused_with_a_code(settings: TopicSettings, code: str) -> None:
    solo = Solo().start()
    topic = solo.create(settings)
    signed = request_of(BOB, topic)
    solo.hear(BOB.peer_id, RequestToPublish(signed.block, replicated=False, settled=0))
    (answer,) = solo.sent_to(BOB.peer_id, RequestAnswered)
    assert (answer.event, answer.code) == (None, code)


@pytest.mark.parametrize("attributes", [{"price": 101}, {"price": "5"}, {"prise": 5}])
def test_attributes_outside_the_schema_are_refused(attributes: dict[str, Attribute]) -> None:
    """Published all the same, nobody would take the event, and the numbering would have a gap."""
    solo = Solo().start()
    rules = (AttributeRule("price", "float", 0, 100),)
    topic = solo.create(TopicSettings(publishers=(solo.me,), attributes=rules))
    signed = sign_request(
        BOB,
        topic=topic,
        payload=b"",
        attributes=attributes,
        created=CREATED_US,
        nonce=bytes(16),
        sequence=Sequence(EPOCH, 1),
    )
    solo.hear(BOB.peer_id, RequestToPublish(signed.block, replicated=False, settled=0))
    (answer,) = solo.sent_to(BOB.peer_id, RequestAnswered)
    assert answer.event is None
    assert answer.code == "invalid"
    assert "the topic's schema" in answer.message


def test_a_request_that_has_expired_is_refused() -> None:
    solo = Solo().start()
    topic = solo.create(TopicSettings(publishers=(solo.me,)))
    solo.advance(100.0)
    signed = request_of(BOB, topic, expires=CREATED_US + 50_000_000)
    solo.hear(BOB.peer_id, RequestToPublish(signed.block, replicated=False, settled=0))
    (answer,) = solo.sent_to(BOB.peer_id, RequestAnswered)
    assert (answer.code, answer.message) == ("invalid", "the request has expired")


def test_the_largest_request_there_is_has_no_room_to_become_an_event_and_is_refused() -> None:
    """As an event it is larger: it has our signature and its place too."""
    solo = Solo().start()
    topic = solo.create(TopicSettings(publishers=(solo.me,)))
    signed = largest_request(BOB, topic)
    assert len(signed.block) == REQUEST_BYTES_MAX
    for _ in range(2):
        solo.hear(BOB.peer_id, RequestToPublish(signed.block, replicated=False, settled=0))
        answer = solo.sent_to(BOB.peer_id, RequestAnswered)[-1]
        assert (answer.event, answer.code) == (None, "too_large")
    assert solo.node.footprint()["requests"] == 0
    second = request_of(BOB, topic, 2)
    solo.hear(BOB.peer_id, RequestToPublish(second.block, replicated=False, settled=1))
    solo.advance(60.0)
    assert solo.sent_to(BOB.peer_id, RequestAnswered)[-1].event is not None
    assert solo.topic(topic).frontier.marks()[0].high == 1


def test_a_request_in_a_total_order_that_we_have_given_up_is_refused() -> None:
    """Nor do we remember its number: were it published elsewhere, it would be new to us."""
    solo = Solo().start()
    only_us = TopicSettings(publishers=(solo.me,), order=DeliveryOrder.TOTAL)
    topic = solo.create(only_us)
    solo.publish(topic)
    assert solo.node.numberings.abandon(topic) is not None
    signed = request_of(BOB, topic)
    for _ in range(2):
        solo.hear(BOB.peer_id, RequestToPublish(signed.block, replicated=False, settled=0))
        answer = solo.sent_to(BOB.peer_id, RequestAnswered)[-1]
        assert (answer.event, answer.code) == (None, "halted")
    assert solo.node.footprint()["requests"] == 0
    assert not solo.topic(topic).requests.holds(BOB.peer_id, EPOCH, 1)


def hear_early(solo: Solo, topic: Cid, who: Identity, numbers: range) -> None:
    """Requests of an author; none of them in its turn."""
    for number in numbers:
        signed = request_of(who, topic, number, epoch=EPOCH)
        solo.hear(who.peer_id, RequestToPublish(signed.block, replicated=False, settled=0))


def test_requests_that_came_too_early_are_bounded() -> None:
    solo = Solo(parameters=Parameters(requests_held_max=10)).start()
    topic = solo.create(TopicSettings(publishers=(solo.me,)))
    for number in range(20):
        hear_early(solo, topic, identity(f"author {number}"), range(2, 10))
    assert solo.node.footprint()["requests"] == 10


@pytest.mark.parametrize("room", [0, 1])
def test_where_there_is_room_for_one_request_that_came_too_early_one_waits(room: int) -> None:
    solo = Solo(parameters=Parameters(requests_held_max=room)).start()
    topic = solo.create(TopicSettings(publishers=(solo.me,)))
    hear_early(solo, topic, BOB, range(2, 4))
    assert solo.node.footprint()["requests"] == room


def test_a_request_that_came_too_early_is_held_against_the_version_of_its_turn() -> None:
    """Published all the same, nobody would take it, and all behind it would wait for ever."""
    solo = Solo("alice").start()
    order = DeliveryOrder.PER_PUBLISHER
    publishers = (solo.me,)
    topic = solo.create(TopicSettings(order=order, publishers=publishers))
    first, large = request_of(BOB, topic, 1), request_of(BOB, topic, 2, payload=bytes(100))
    solo.hear(BOB.peer_id, RequestToPublish(large.block, False, 0))
    less = TopicSettings(order=order, publishers=publishers, payload_bytes_max=99)
    assert solo.ask(lambda call: UpdateTopic(call, topic, less)).refusal is None
    solo.hear(BOB.peer_id, RequestToPublish(first.block, False, 0))
    answers = {each.request_id: each for each in solo.sent_to(BOB.peer_id, RequestAnswered)}
    assert answers[first.request_id].event is not None
    assert answers[large.request_id].code == "too_large"
    third = request_of(BOB, topic, 3)
    solo.hear(BOB.peer_id, RequestToPublish(third.block, False, 2))
    ours = [mark for mark in solo.topic(topic).frontier.marks() if mark.publisher == solo.me]
    assert [mark.high for mark in ours] == [2]


def test_however_many_came_too_early_have_their_turn_one_after_the_other() -> None:
    """Each inside the one before, they would be as many as there are frames on a stack."""
    solo = Solo("alice", parameters=Parameters(requests_held_max=2048)).start()
    topic = solo.create(only_alice())
    requests = [request_of(BOB, topic, number) for number in range(1, 514)]
    for request in (*requests[1:], requests[0]):
        solo.hear(BOB.peer_id, RequestToPublish(request.block, False, 0))
    answered = [answer.request_id for answer in solo.sent_to(BOB.peer_id, RequestAnswered)]
    assert answered == [request.request_id for request in requests]


def test_one_author_takes_only_its_share_of_the_room_for_requests_that_came_too_early() -> None:
    solo = Solo(parameters=Parameters(requests_held_max=16)).start()
    topic = solo.create(TopicSettings(publishers=(solo.me,)))
    hear_early(solo, topic, MALLORY, range(2, 100))
    assert solo.node.footprint()["requests"] == 4
    hear_early(solo, topic, BOB, range(2, 4))
    hear_early(solo, topic, BOB, range(1, 2))
    assert len(solo.sent_to(BOB.peer_id, RequestAnswered)) == 3


def test_many_authors_cannot_keep_the_room_for_early_requests_for_ever() -> None:
    """What they left out never comes: the oldest gives way, and its author would send it again."""
    solo = Solo(parameters=Parameters(requests_held_max=16)).start()
    topic = solo.create(TopicSettings(publishers=(solo.me,)))
    for number in range(20):
        hear_early(solo, topic, identity(f"author {number}"), range(2, 10))
    hear_early(solo, topic, BOB, range(2, 4))
    hear_early(solo, topic, BOB, range(1, 2))
    assert len(solo.sent_to(BOB.peer_id, RequestAnswered)) == 3


def test_requests_that_came_too_early_are_forgotten_with_their_topic() -> None:
    victim = identity("victim")
    topic = topic_of(ALICE, TopicSettings(publishers=(victim.peer_id,)))
    solo = below(Parent("alice", [topic.block, meta_of(ALICE).block]))
    solo.subscribe(topic.cid)
    hear_early(solo, topic.cid, BOB, range(2, 10))
    assert solo.node.footprint()["requests"] == 8
    assert solo.ask(lambda call: Unsubscribe(call, topic.cid)).refusal is None
    assert solo.node.footprint()["requests"] == 0


def test_a_request_that_comes_again_takes_room_once() -> None:
    solo = Solo().start()
    topic = solo.create(TopicSettings(publishers=(solo.me,)))
    for size in (100, 200, 300):
        signed = request_of(BOB, topic, 2, epoch=EPOCH, payload=bytes(size))
        solo.hear(BOB.peer_id, RequestToPublish(signed.block, replicated=False, settled=0))
    assert solo.node.footprint()["requests"] == 1
    hear_early(solo, topic, BOB, range(1, 2))
    assert solo.node.footprint()["requests"] == 0
    assert len(solo.sent_to(BOB.peer_id, RequestAnswered)) == 2


def test_in_total_order_the_sequencer_gives_requests_their_places() -> None:
    lab = Lab(8)
    topic = lab.create(
        0,
        TopicSettings(
            order=DeliveryOrder.TOTAL,
            publishers=(lab.peer(0),),
            sequencers=(lab.peer(0),),
        ),
    )
    lab.subscribe(list(range(1, 8)), topic)
    for number in range(5):
        for index in range(1, 8):
            lab.start(index, lambda call, n=number: Publish(call, topic, b"%d" % n))  # type: ignore[misc]
    lab.run(60.0)
    orders = {tuple(lab.delivered(index, topic)) for index in range(1, 8)}
    assert len(orders) == 1
    assert len(orders.pop()) == 35
