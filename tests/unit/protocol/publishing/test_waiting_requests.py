"""Requests that wait, for parents or for earlier requests: bounded, per author too."""

import pytest

from pulsarcast.model.events import SignedRequest
from pulsarcast.model.identity import Identity
from pulsarcast.model.ids import Cid, cid_of
from pulsarcast.model.topics import Mark
from pulsarcast.protocol.publishing.waiting_requests import (
    CAUSAL_AUTHOR_SHARE,
    CAUSAL_BYTES_MAX,
    CAUSAL_COUNT_MAX,
    Waiting,
    WaitingRequests,
    causal_wait,
)
from pulsarcast.protocol.topic.causality import CausalOrdering
from pulsarcast.protocol.topic.frontier import Frontier
from tests.support.people import ALICE, BOB, CAROL, EPOCH, identity, request_of

TOPIC, OTHER = cid_of(b"a topic"), cid_of(b"another")
SEEN = cid_of(b"what was seen")


def asked(
    author: Identity, number: int, seen: int = 1, *, payload: bytes = b"", topic: Cid = TOPIC
) -> SignedRequest:
    mark = Mark(CAROL.peer_id, EPOCH, seen)
    return request_of(author, topic, number, after=(SEEN,), marks=(mark,), payload=payload)


def put(waiting: WaitingRequests, signed: SignedRequest, room: int = CAUSAL_COUNT_MAX) -> None:
    waiting.put(Waiting(signed.request.author, signed, False), room)


def test_requests_have_their_turn_once_what_was_seen_is_here() -> None:
    waiting, frontier = causal_wait(), Frontier()
    ordering = CausalOrdering(frontier, 10)
    first, second = asked(ALICE, 1), asked(BOB, 1, seen=2)
    for signed in (first, second, first):
        put(waiting, signed)
    put(waiting, asked(ALICE, 2, topic=OTHER))
    assert not list(waiting.take_ready(TOPIC, ordering))
    frontier.add(CAROL.peer_id, EPOCH, 1, None)
    assert [each.signed for each in waiting.take_ready(TOPIC, ordering)] == [first]
    frontier.add(CAROL.peer_id, EPOCH, 2, None)
    assert [each.signed for each in waiting.take_ready(TOPIC, ordering)] == [second]
    assert len(waiting) == 1
    waiting.forget(OTHER)
    assert len(waiting) == 0


def test_in_a_causal_wait_one_author_cannot_crowd_out_the_others() -> None:
    waiting = causal_wait()
    put(waiting, asked(BOB, 1))
    for number in range(1, 2 * CAUSAL_COUNT_MAX):
        put(waiting, asked(ALICE, number))
    assert len(waiting) == 1 + CAUSAL_COUNT_MAX // CAUSAL_AUTHOR_SHARE
    large = bytes(CAUSAL_BYTES_MAX // CAUSAL_AUTHOR_SHARE // 2)
    for number in range(1000, 1010):
        put(waiting, asked(ALICE, number, payload=large))
    assert len(waiting) == 2


@pytest.mark.parametrize(("keeps_last", "kept"), [(True, [8, 9]), (False, [1, 2])])
def test_an_author_keeps_its_first_requests_or_its_last(keeps_last: bool, kept: list[int]) -> None:
    waiting = WaitingRequests(8, 1 << 20, 4, keeps_last=keeps_last)
    for number in range(1, 10):
        put(waiting, asked(ALICE, number))
    assert [each.signed.request.sequence.number for each in waiting.forget(TOPIC)] == kept


@pytest.mark.parametrize("keeps_last", [True, False])
def test_a_request_larger_than_its_authors_share_waits_alone(keeps_last: bool) -> None:
    waiting = WaitingRequests(8, 1 << 12, 4, keeps_last=keeps_last)
    for number in (2, 3):
        put(waiting, asked(ALICE, number, payload=bytes(1 << 10)))
    assert len(waiting) == 1


def test_many_authors_together_have_a_bound() -> None:
    waiting = causal_wait()
    for at in range(CAUSAL_COUNT_MAX + 20):
        put(waiting, asked(identity(f"author {at}"), 1))
    assert len(waiting) == CAUSAL_COUNT_MAX
