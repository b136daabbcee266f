"""A place: what it keeps, for how long, and whom an event concerns."""

from pulsarcast.model.filters import parse
from pulsarcast.model.identity import Identity
from pulsarcast.model.ids import CID_PREFIX, Cid
from pulsarcast.model.subscriptions import sign_subscription
from pulsarcast.model.topic_types import AttributeRule
from pulsarcast.protocol.content.messages import Held
from pulsarcast.protocol.content.place import LOAD_WINDOW_S, Kept, Place, kept_of
from tests.support.people import ALICE, BOB

SCHEMA = (AttributeRule("price", "float", 0.0, 100.0), AttributeRule("number", "int", 0, 10))
TOPIC = Cid(CID_PREFIX + bytes(32))


def kept(
    who: Identity,
    where: str,
    low: float,
    high: float,
    *,
    number: int = 0,
    expires_s: float = 100.0,
    closed: bool = True,
) -> Kept:
    record = sign_subscription(
        who, topic=TOPIC, version=TOPIC, sid=1, number=number, lease_s=60, where=where
    )
    wanted = parse(where, SCHEMA) if where else None
    return kept_of(Held(record.block, 0, low, high, closed, 60), record, wanted, expires_s)


def place() -> Place:
    return Place(TOPIC, "price", 1)


def test_a_place_finds_the_subscribers_whose_piece_and_filter_an_event_falls_into() -> None:
    held = place()
    held.put(kept(ALICE, "price < 50 and number > 3", 0.0, 0.5), SCHEMA)
    held.put(kept(BOB, "price < 20", 0.0, 0.2), SCHEMA)
    assert held.matching({"price": 10.0, "number": 1}, 0.1) == [BOB.peer_id]
    assert set(held.matching({"price": 10.0, "number": 5}, 0.1)) == {ALICE.peer_id, BOB.peer_id}
    assert held.matching({"price": 30.0}, 0.3) == []


def test_pieces_are_half_open_so_that_one_of_two_neighbours_delivers() -> None:
    held = place()
    held.put(kept(ALICE, "price < 50", 0.0, 0.2, closed=False), SCHEMA)
    assert held.matching({"price": 20.0}, 0.2) == []
    assert held.matching({"price": 19.0}, 0.19) == [ALICE.peer_id]


def test_an_older_record_never_replaces_a_newer_one() -> None:
    held = place()
    held.put(kept(ALICE, "", 0.0, 0.5, number=2), SCHEMA)
    assert not held.put(kept(ALICE, "price < 50", 0.0, 0.5, number=1), SCHEMA)
    assert held.matching({"price": 10.0}, 0.1) == []
    assert held.put(kept(ALICE, "price < 50", 0.0, 0.5, number=3), SCHEMA)
    assert held.matching({"price": 10.0}, 0.1) == [ALICE.peer_id]


def test_a_lease_runs_out_unless_it_is_renewed() -> None:
    held = place()
    held.put(kept(ALICE, "price < 50", 0.0, 0.5, expires_s=10.0), SCHEMA)
    held.put(kept(BOB, "price < 50", 0.0, 0.5, expires_s=10.0), SCHEMA)
    held.changed.clear()
    assert not held.put(kept(BOB, "price < 50", 0.0, 0.5, expires_s=11.0), SCHEMA)
    assert held.put(kept(BOB, "price < 50", 0.0, 0.5, expires_s=20.0), SCHEMA)
    assert held.changed, "the copies at the neighbours must last as long"
    held.expire(15.0)
    assert held.matching({"price": 10.0}, 0.1) == [BOB.peer_id]


def test_an_event_is_matched_once_however_many_guesses_lead_here() -> None:
    held = place()
    assert held.is_new(TOPIC)
    assert not held.is_new(TOPIC)


def test_a_leafs_load_is_judged_over_a_window() -> None:
    held = place()
    assert held.bear(1, LOAD_WINDOW_S * 9) == 0.0, "after a long silence nothing is known"
    assert held.bear(50, LOAD_WINDOW_S * 9.5) == 0.0
    assert held.bear(50, LOAD_WINDOW_S * 10) == 100 / LOAD_WINDOW_S


def test_equal_ranges_of_two_subscribers_can_be_split() -> None:
    held = place()
    held.put(kept(ALICE, "price < 50", 0.0, 0.1), SCHEMA)
    assert not held.can_split()
    held.put(kept(BOB, "price < 50", 0.0, 0.1), SCHEMA)
    assert held.can_split()
