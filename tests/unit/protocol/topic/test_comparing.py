"""Comparing: which of the marks that a peer shows count, and how urgently."""

from pulsarcast.protocol.messages import FrontierPage
from pulsarcast.protocol.store import MarkState
from pulsarcast.protocol.topic.comparing import (
    PATIENCE_S,
    URGENT_S,
    VISITOR_MARKS_MAX,
    Comparing,
)
from pulsarcast.protocol.topic.sharing import Sharing
from tests.support.people import ALICE, CAROL, EPOCH, peer, topic_of
from tests.unit.protocol.topic.bench import Bench

TOPIC = topic_of(ALICE)
OTHER = CAROL.peer_id
MARKS = tuple(
    MarkState(peer(f"publisher {number}"), EPOCH, 0, 1, None)
    for number in range(VISITOR_MARKS_MAX + 1)
)


def page(parts: tuple[bytes, ...] = ()) -> FrontierPage:
    return FrontierPage(TOPIC.cid, MARKS, answer=False, parts=parts)


def bench() -> tuple[Bench, Comparing]:
    made = Bench(TOPIC)
    members = made.members
    return made, Comparing(members.overlay, members.heartbeat, Sharing(made.state))


def test_a_visitor_makes_us_compare_a_few_numberings_and_a_neighbour_all() -> None:
    made, comparing = bench()
    assert comparing.consider(OTHER, page(), 0.0).marks == MARKS[:VISITOR_MARKS_MAX]
    assert not comparing.knows(OTHER)
    made.members.add_neighbour(OTHER)
    assert comparing.consider(OTHER, page(), 0.0).marks == MARKS
    assert comparing.knows(OTHER)


def test_whom_we_chose_to_compare_with_is_known() -> None:
    made, comparing = bench()
    made.members.lazy[OTHER] = None
    assert comparing.knows(OTHER)
    assert comparing.consider(OTHER, page(), 0.0).marks == MARKS


def test_what_a_new_parent_shows_is_urgent_once() -> None:
    made, comparing = bench()
    made.members.round_trip_s = 0.5
    comparing.catch_up(OTHER, 0.0)
    ((shown_to, message),) = made.sent()
    assert shown_to == OTHER
    assert isinstance(message, FrontierPage)
    assert message.answer
    assert comparing.consider(OTHER, page(), 1.0).patience_s == 0.0
    assert comparing.consider(OTHER, page(), 1.0).patience_s == PATIENCE_S + 3 * 0.5


def test_the_parts_that_a_new_parent_shows_are_urgent_for_some_seconds() -> None:
    _, comparing = bench()
    comparing.catch_up(OTHER, 7.0)
    part = page(parts=(b"\x01",))
    times_s = (7.0, 7.0 + URGENT_S - 0.1, 7.0 + URGENT_S)
    patience_s = [comparing.consider(OTHER, part, now_s).patience_s for now_s in times_s]
    assert patience_s == [0.0, 0.0, PATIENCE_S]


def test_a_parent_that_is_lost_is_urgent_no_more() -> None:
    _, comparing = bench()
    comparing.catch_up(OTHER, 0.0)
    comparing.lost(OTHER)
    assert comparing.consider(OTHER, page(), 0.0).patience_s == PATIENCE_S
