"""The queue of requests on its own: a scripted handler makes the events."""

from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pulsarcast.model.errors import Conflict, LocalError
from pulsarcast.model.events import EventDescriptor, SignedRequest
from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.model.topics import TopicDescriptor, TopicSettings
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.dissemination.quiet_topics import QuietTopics
from pulsarcast.protocol.effects import Load, Send
from pulsarcast.protocol.messages import RequestAnswered, RequestReferred, RequestToPublish
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.publishing.outbox import Outbox
from pulsarcast.protocol.publishing.publisher import Done
from pulsarcast.protocol.publishing.request_queue import PublisherRequests, RequestQueue
from pulsarcast.protocol.publishing.waiting_requests import Waiting
from pulsarcast.protocol.store import Block
from pulsarcast.protocol.topic.followed import FollowedTopics
from pulsarcast.protocol.topic.published_requests import PublishedRequests
from pulsarcast.protocol.topic.topic import Topic
from pulsarcast.protocol.topic.work import AtWork
from pulsarcast.protocol.turn import Turn
from tests.support.parts import Core
from tests.support.people import ALICE, BOB, CAROL, event_for, largest_request, request_of, topic_of

DESCRIPTOR = topic_of(ALICE, TopicSettings(publishers=(ALICE.peer_id,)))
TOPIC = DESCRIPTOR.cid


class Handler:
    """Makes events of requests, and publishes them when the test says so."""

    def __init__(self) -> None:
        self.is_able = True
        self.leads = True
        self.refused: dict[bytes, None] = {}
        self.taken: list[SignedRequest] = []
        self.log: dict[bytes, None] = {}
        self.last = 0

    def version(self, topic: Topic) -> TopicDescriptor | None:
        return DESCRIPTOR if self.is_able else None

    def is_under_way(self, request_id: bytes) -> bool:
        return request_id in self.log

    def last_number(self, topic: Topic, author: PeerId, epoch: int) -> int | None:
        return self.last if self.leads else None

    def publish(self, waiting: Waiting, topic: Topic, done: Done) -> None:
        if waiting.signed.request_id in self.refused:
            raise Conflict("not this one")
        self.last = max(self.last, waiting.signed.request.sequence.number)
        self.log[waiting.signed.request_id] = None
        self.taken.append(waiting.signed)

    def referral(self, topic: Cid, request_id: bytes) -> RequestReferred | None:
        return RequestReferred(topic, request_id, CAROL.peer_id)


class Replicas:
    """A publisher that is asked to count replicas."""

    def __init__(self) -> None:
        self.counting: list[tuple[EventDescriptor, Done]] = []

    def replicate_again(self, event: EventDescriptor, done: Done) -> None:
        self.counting.append((event, done))


class Rig:
    """A queue and what it is given."""

    def __init__(self, held_max: int = 16) -> None:
        self.turn = Turn(ALICE, Random(1))
        context = Context(self.turn, Parameters(requests_held_max=held_max))
        self.handler = Handler()
        self.replicas = Replicas()
        self.requests = PublishedRequests(TOPIC)
        self.topic = cast(
            Topic, SimpleNamespace(id=TOPIC, halted=None, causal=None, requests=self.requests)
        )
        outbox = Outbox(
            context, FollowedTopics({}, QuietTopics(context), AtWork(context.turn)), cast(Any, None)
        )
        self.queue = RequestQueue(context, cast(Any, self.replicas), outbox, self.handler)

    def hear(
        self,
        signed: SignedRequest,
        sender: PeerId = BOB.peer_id,
        *,
        replicated: bool = False,
        settled: int = 0,
    ) -> None:
        self.queue.receive(sender, RequestToPublish(signed.block, replicated, settled), self.topic)

    def sent(self) -> list[tuple[PeerId, RequestAnswered | RequestReferred]]:
        """What the senders have heard since the last time."""
        sends = [each for each in self.turn.effects if isinstance(each, Send)]
        self.turn.effects.clear()
        return [
            (each.peer, each.message)
            for each in sends
            if isinstance(each.message, RequestAnswered | RequestReferred)
        ]


def asked(*numbers: int) -> list[SignedRequest]:
    return [request_of(BOB, TOPIC, number) for number in numbers]


def event_of(signed: SignedRequest) -> EventDescriptor:
    return event_for(ALICE, signed, DESCRIPTOR)


def test_requests_are_taken_in_the_order_of_their_numbers() -> None:
    rig = Rig()
    first, second, third = asked(1, 2, 3)
    for signed in (third, second, first):
        rig.hear(signed)
    assert rig.handler.taken == [first, second, third]
    assert len(rig.queue) == 3, "their senders wait for the answers"


def test_requests_have_their_turn_once_their_author_says_that_the_earlier_ones_are_settled() -> (
    None
):
    """Found with a relay that was killed: request 1 was lost, and another publisher answered it.

    Each later one waited here until its author asked the other publisher for it, ten seconds late.
    """
    rig = Rig()
    second, third, fourth = asked(2, 3, 4)
    for signed in (second, third):
        rig.hear(signed)
    assert not rig.handler.taken
    rig.hear(fourth, settled=1)
    assert rig.handler.taken == [second, third, fourth]


def test_all_senders_of_a_request_are_answered_once_and_it_is_taken_once() -> None:
    rig = Rig()
    (signed,) = asked(1)
    rig.hear(signed)
    rig.hear(signed, CAROL.peer_id)
    assert rig.handler.taken == [signed]
    event = event_of(signed)
    for _ in range(2):
        rig.queue.answer_all(event, 3)
    answer = RequestAnswered(TOPIC, signed.request_id, event.cid, 3)
    assert rig.sent() == [(BOB.peer_id, answer), (CAROL.peer_id, answer)]
    assert len(rig.queue) == 0


def test_a_request_that_was_published_before_gets_its_answer_again() -> None:
    rig = Rig()
    (signed,) = asked(1)
    event = event_of(signed)
    rig.requests.take(BOB.peer_id, *signed.request.sequence)
    for block in (event.block, None):
        rig.hear(signed)
        (load,) = (each for each in rig.turn.effects if isinstance(each, Load))
        rig.turn.effects.clear()
        rig.turn.loaded(load.token, Block(block))
    ((_, refused),) = rig.sent()
    assert isinstance(refused, RequestAnswered)
    assert refused.code == "conflict"
    ((counted, done),) = rig.replicas.counting
    done(counted, 2)
    assert rig.sent() == [(BOB.peer_id, RequestAnswered(TOPIC, signed.request_id, event.cid, 2))]
    assert not rig.handler.taken


def test_a_request_is_answered_though_another_one_of_its_author_was_published_for_its_key() -> None:
    """An application that saw no answer gives its key again, with a request of another number."""
    rig = Rig()
    first, again = asked(1, 2)
    rig.requests.take(BOB.peer_id, *again.request.sequence)
    rig.hear(again)
    (load,) = (each for each in rig.turn.effects if isinstance(each, Load))
    rig.turn.effects.clear()
    rig.turn.loaded(load.token, Block(event_of(first).block))
    ((counted, done),) = rig.replicas.counting
    done(counted, 3)
    answer = RequestAnswered(TOPIC, again.request_id, event_of(first).cid, 3)
    assert rig.sent() == [(BOB.peer_id, answer)]


def test_a_refused_request_does_not_give_its_turn_to_the_next() -> None:
    rig = Rig()
    first, second, third = asked(1, 2, 3)
    rig.handler.refused[second.request_id] = None
    for signed in (third, second, first):
        rig.hear(signed)
    assert rig.handler.taken == [first]
    ((to, answer),) = rig.sent()
    assert isinstance(answer, RequestAnswered)
    assert (to, answer.request_id, answer.code) == (BOB.peer_id, second.request_id, "conflict")
    rig.hear(third, settled=2)
    assert rig.handler.taken == [first, third]
    assert len(rig.queue) == 2, "the third does not wait for an earlier one as well"


def test_senders_are_referred_where_another_node_takes_requests_or_this_one_cannot() -> None:
    rig = Rig()
    first, second = asked(1, 2)
    referrals = [RequestReferred(TOPIC, each.request_id, CAROL.peer_id) for each in (first, second)]
    rig.handler.leads = False
    rig.hear(second)
    assert rig.sent() == [(BOB.peer_id, referrals[1])]
    rig.handler.leads, rig.handler.is_able = True, False
    rig.hear(first)
    assert rig.sent() == [(BOB.peer_id, referrals[0])]
    assert len(rig.queue) == 0


def test_when_another_node_takes_over_all_senders_are_referred() -> None:
    rig = Rig()
    first, third = asked(1, 3)
    rig.hear(third)
    rig.hear(first, CAROL.peer_id)
    rig.queue.refer_all(TOPIC)
    assert rig.sent() == [
        (CAROL.peer_id, RequestReferred(TOPIC, first.request_id, CAROL.peer_id)),
        (BOB.peer_id, RequestReferred(TOPIC, third.request_id, CAROL.peer_id)),
    ]
    assert len(rig.queue) == 0


def test_a_sender_that_waits_for_replicas_hears_once_they_are_counted() -> None:
    rig = Rig()
    (signed,) = asked(1)
    rig.hear(signed)
    rig.hear(signed, CAROL.peer_id, replicated=True)
    event = event_of(signed)
    rig.requests.take(BOB.peer_id, *signed.request.sequence)
    rig.queue.arrived(event)
    assert rig.sent() == [(BOB.peer_id, RequestAnswered(TOPIC, signed.request_id, event.cid, 0))]
    rig.queue.arrived(event)
    ((counted, done),) = rig.replicas.counting
    rig.hear(signed)
    done(counted, 4)
    answer = RequestAnswered(TOPIC, signed.request_id, event.cid, 4)
    assert rig.sent() == [(CAROL.peer_id, answer), (BOB.peer_id, answer)]
    assert len(rig.queue) == 0


def test_a_full_queue_takes_nothing_more() -> None:
    rig = Rig(held_max=2)
    first, second, third = asked(1, 2, 3)
    for signed in (first, second, third):
        rig.hear(signed)
    assert rig.handler.taken == [first, second]
    assert rig.sent() == [(BOB.peer_id, RequestReferred(TOPIC, third.request_id, CAROL.peer_id))]


def test_what_waits_in_a_topic_is_forgotten_with_it() -> None:
    rig = Rig()
    (early,) = asked(2)
    rig.hear(early)
    assert len(rig.queue) == 1
    rig.queue.forget(TOPIC)
    assert len(rig.queue) == 0


def test_a_publisher_whose_key_another_node_has_takes_no_requests() -> None:
    core = Core()
    requests = PublisherRequests(core.publisher)
    topic = core.topic(DESCRIPTOR)
    assert requests.version(topic) == DESCRIPTOR
    core.numberings.refusal = "another node has this key"
    assert requests.version(topic) is None


def test_a_request_takes_its_number_when_its_event_is_made_and_not_when_that_fails() -> None:
    core = Core()
    requests = PublisherRequests(core.publisher)
    topic = core.topic(DESCRIPTOR)
    (signed,) = asked(1)
    too_large = largest_request(BOB, TOPIC, 2)
    done: list[EventDescriptor] = []
    for each in (signed, too_large):
        waiting = Waiting(BOB.peer_id, each, False)
        if each is too_large:
            with pytest.raises(LocalError):
                requests.publish(waiting, topic, lambda event, _: done.append(event))
        else:
            requests.publish(waiting, topic, lambda event, _: done.append(event))
    assert requests.last_number(topic, BOB.peer_id, signed.request.sequence.epoch) == 1
    assert done == []
    core.sync()
    assert [event.request_id for event in done] == [signed.request_id]
