"""Comparing: which of the marks that a peer shows count, and how urgently."""

from pulsarcast.protocol.messages import FrontierPage
from pulsarcast.protocol.store import MarkState
from pulsarcast.protocol.topic.comparing import (
    PATIENCE_S,
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


def page(*, more: bool = False) -> FrontierPage:
    return FrontierPage(TOPIC.cid, MARKS, answer=False, more=more)


def bench() -> tuple[Bench, Comparing]:
    made = Bench(TOPIC)
    members = made.members
    return made, Comparing(members.links, members.heartbeat, Sharing(made.state))


def test_a_visitor_makes_us_compare_a_few_numberings_and_a_neighbour_all() -> None:
    made, comparing = bench()
    visitor = comparing.consider(OTHER, page())
    assert (visitor.marks, visitor.is_known) == (MARKS[:VISITOR_MARKS_MAX], False)
    made.members.add_neighbour(OTHER)
    neighbour = comparing.consider(OTHER, page())
    assert (neighbour.marks, neighbour.is_known) == (MARKS, True)


def test_whom_we_chose_to_compare_with_is_known() -> None:
    made, comparing = bench()
    made.members.lazy[OTHER] = None
    assert comparing.consider(OTHER, page()).is_known


def test_what_a_new_parent_shows_is_urgent_up_to_its_last_page() -> None:
    made, comparing = bench()
    made.members.round_trip_s = 0.5
    comparing.catch_up(OTHER)
    ((shown_to, message),) = made.sent()
    assert shown_to == OTHER
    assert isinstance(message, FrontierPage)
    assert message.answer
    patience_s = [comparing.consider(OTHER, page(more=more)).patience_s for more in (True, False)]
    assert patience_s == [0.0, 0.0]
    assert comparing.consider(OTHER, page()).patience_s == PATIENCE_S + 3 * 0.5


def test_a_parent_that_is_lost_is_urgent_no_more() -> None:
    _, comparing = bench()
    comparing.catch_up(OTHER)
    comparing.lost(OTHER)
    assert comparing.consider(OTHER, page()).patience_s == PATIENCE_S


def test_a_keeper_without_history_starts_where_a_neighbour_stands_once() -> None:
    made, comparing = bench()
    comparing.lacks_start = True
    assert not comparing.starts_at(OTHER, page()), "a visitor"
    made.members.add_neighbour(OTHER)
    assert comparing.starts_at(OTHER, page(more=True))
    assert comparing.starts_at(OTHER, page(more=False))
    assert not comparing.starts_at(OTHER, page())
