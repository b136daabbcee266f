"""Requests that wait for what their authors had seen: bounded, per author too."""

from pulsarcast.model.events import SignedRequest
from pulsarcast.model.identity import Identity
from pulsarcast.model.ids import Cid, cid_of
from pulsarcast.model.topics import Mark
from pulsarcast.protocol.publishing.behind import (
    AUTHOR_SHARE,
    BYTES_MAX,
    COUNT_MAX,
    Behind,
    Waiting,
)
from pulsarcast.protocol.topic.causality import CausalOrdering
from pulsarcast.protocol.topic.frontier import Frontier
from tests.support.people import ALICE, BOB, CAROL, EPOCH, identity, request_of

TOPIC, OTHER = cid_of(b"a topic"), cid_of(b"another")
SEEN = cid_of(b"what was seen")


def asked(author: Identity, number: int, seen: int = 1, *, payload: bytes = b"") -> SignedRequest:
    mark = Mark(CAROL.peer_id, EPOCH, seen)
    return request_of(author, TOPIC, number, after=(SEEN,), marks=(mark,), payload=payload)


def put(behind: Behind, signed: SignedRequest, topic: Cid = TOPIC) -> None:
    behind.put(topic, Waiting(signed.request.author, signed, False))


def test_requests_have_their_turn_once_what_was_seen_is_here() -> None:
    behind, frontier = Behind(), Frontier()
    ordering = CausalOrdering(frontier, 10)
    first, second = asked(ALICE, 1), asked(BOB, 1, seen=2)
    for signed in (first, second, first):
        put(behind, signed)
    put(behind, asked(ALICE, 2), OTHER)
    assert not list(behind.take_ready(TOPIC, ordering))
    frontier.add(CAROL.peer_id, EPOCH, 1, None)
    assert [each.signed for each in behind.take_ready(TOPIC, ordering)] == [first]
    frontier.add(CAROL.peer_id, EPOCH, 2, None)
    assert [each.signed for each in behind.take_ready(TOPIC, ordering)] == [second]
    assert len(behind) == 1
    behind.forget(OTHER)
    assert len(behind) == 0


def test_one_author_cannot_crowd_out_the_others() -> None:
    behind = Behind()
    put(behind, asked(BOB, 1))
    for number in range(1, 2 * COUNT_MAX):
        put(behind, asked(ALICE, number))
    assert len(behind) == 1 + COUNT_MAX // AUTHOR_SHARE
    large = bytes(BYTES_MAX // AUTHOR_SHARE // 2)
    for number in range(1000, 1010):
        put(behind, asked(ALICE, number, payload=large))
    assert len(behind) == 2


def test_many_authors_together_have_a_bound() -> None:
    behind = Behind()
    for at in range(COUNT_MAX + 20):
        put(behind, asked(identity(f"author {at}"), 1))
    assert len(behind) == COUNT_MAX
