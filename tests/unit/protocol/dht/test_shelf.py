"""The shelf: room for listings, and fairness between their authors."""

import pytest

from pulsarcast.model.identity import Identity
from pulsarcast.model.ids import PeerId
from pulsarcast.model.listings import AUTHOR_QUOTA, Listing, author_key, sign_listing, term_key
from pulsarcast.model.topics import TopicSettings
from pulsarcast.protocol.dht import shelf as shelf_module
from pulsarcast.protocol.dht.shelf import Shelf
from pulsarcast.protocol.limits import LISTINGS_MAX
from tests.support.people import ALICE, BOB, CREATED_US, identity, topic_of

WEATHER = term_key("weather")


def listing_of(author: Identity, number: int = 0, *, expires_s: int = 60) -> Listing:
    topic = topic_of(author, TopicSettings(tags=("weather",)), name=f"topic {number}")
    return sign_listing(author, topic, CREATED_US + expires_s * 1_000_000)


def authors_under(shelf: Shelf, key: int = WEATHER) -> list[PeerId]:
    return [listing.author for listing in shelf.under(key)]


def test_a_newer_listing_takes_the_place_of_the_older_one() -> None:
    shelf = Shelf()
    old, new = listing_of(ALICE), listing_of(ALICE, expires_s=90)
    assert shelf.get(WEATHER, new) is None
    assert shelf.put(WEATHER, old) == []
    assert shelf.put(WEATHER, new) == []
    assert shelf.under(WEATHER) == [new]
    assert shelf.get(WEATHER, old) == new
    assert len(shelf) == 1


def test_an_author_has_a_quota_under_a_term_and_its_later_listing_replaces_its_first() -> None:
    shelf = Shelf()
    for number in range(AUTHOR_QUOTA):
        assert not shelf.is_full(WEATHER)
        assert shelf.put(WEATHER, listing_of(ALICE, number)) == []
    assert shelf.is_full(WEATHER)
    assert shelf.put(WEATHER, listing_of(ALICE, 100)) is None
    later = listing_of(ALICE, 100, expires_s=61)
    first = listing_of(ALICE, 0)
    assert shelf.put(WEATHER, later) == [(WEATHER, ALICE.peer_id, first.topic)]
    assert len(shelf) == AUTHOR_QUOTA
    assert shelf.put(WEATHER, listing_of(BOB)) == []


def test_under_its_own_key_an_author_has_all_the_room() -> None:
    shelf, key = Shelf(), author_key(ALICE.peer_id)
    for number in range(LISTINGS_MAX):
        assert shelf.put(key, listing_of(ALICE, number)) == []
    assert shelf.is_full(key)
    assert shelf.put(key, listing_of(ALICE, LISTINGS_MAX)) is None


def test_authors_take_turns() -> None:
    shelf = Shelf()
    for number in range(3):
        shelf.put(WEATHER, listing_of(ALICE, number))
    shelf.put(WEATHER, listing_of(BOB))
    alice, bob = ALICE.peer_id, BOB.peer_id
    assert authors_under(shelf) == [alice, bob, alice, alice]


def fill(shelf: Shelf, count: int, each: int) -> None:
    for author in range(count):
        for number in range(each):
            assert shelf.put(WEATHER, listing_of(identity(f"author {author}"), number)) == []


def test_under_a_full_key_the_greediest_gives_way_and_only_to_who_has_two_fewer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shelf_module, "LISTINGS_MAX", 6)
    shelf = Shelf()
    fill(shelf, 2, 2)
    for number in range(2):
        shelf.put(WEATHER, listing_of(ALICE, number))
    assert shelf.put(WEATHER, listing_of(BOB)) is not None
    assert authors_under(shelf).count(BOB.peer_id) == 1
    assert shelf.put(WEATHER, listing_of(BOB, 1)) is None, "the others have no more than two"
    assert len(shelf) == 6


def test_new_identities_push_out_no_authors_last_listing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shelf_module, "LISTINGS_MAX", 4)
    shelf = Shelf()
    fill(shelf, 4, 1)
    for number in range(100):
        assert shelf.put(WEATHER, listing_of(identity(f"sybil {number}"))) is None
    assert len(shelf) == 4


def test_in_all_the_greediest_gives_way_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shelf_module, "KEPT_MAX", 40)
    monkeypatch.setattr(shelf_module, "AUTHOR_SHARE", 1)
    shelf = Shelf()
    for number in range(100):
        shelf.put(term_key(f"word {number}"), listing_of(ALICE, number))
    assert len(shelf) == 40
    for number in range(20):
        assert shelf.put(term_key(f"word {number}"), listing_of(BOB, number)) is not None
    assert len(shelf) == 40
    assert shelf.put(term_key("one more"), listing_of(BOB, 99)) is None, "each has its half"
    assert sum(place[1] == BOB.peer_id for place, _ in shelf) == 20


def test_in_all_an_author_has_a_share_and_its_newest_listings_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shelf_module, "KEPT_MAX", 40)
    shelf = Shelf()
    for number in range(100):
        assert shelf.put(term_key(f"word {number}"), listing_of(ALICE, number)) is not None
    assert [place[0] for place, _ in shelf] == [
        term_key(f"word {number}") for number in range(90, 100)
    ]
    assert shelf.put(WEATHER, listing_of(BOB)) == []


def test_what_is_dropped_is_forgotten_everywhere() -> None:
    shelf = Shelf()
    listing = listing_of(ALICE)
    shelf.put(WEATHER, listing)
    shelf.drop((WEATHER, listing.author, listing.topic))
    assert (len(shelf), shelf.kept_under(), list(shelf)) == (0, [], [])
    assert shelf.under(WEATHER) == []
