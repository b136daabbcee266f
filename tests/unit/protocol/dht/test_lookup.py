"""A lookup, question by question."""

from random import Random

from pulsarcast.model.ids import PeerId, peer_id_of, peer_key
from pulsarcast.protocol.dht.lookup import ASKED_MAX, HEARD_MAX, Lookup
from pulsarcast.protocol.messages import Contact, FindPeers

KEY = 1 << 200
ME = peer_id_of(bytes(32))


def a_lookup(*, count: int = 3) -> Lookup:
    return Lookup(ME, KEY, FindPeers(0, KEY), lambda _: None, count=count)


def contacts_by_distance(count: int) -> list[Contact]:
    rng = Random(1)
    peers = [peer_id_of(rng.randbytes(32)) for _ in range(count)]
    return [Contact(peer) for peer in sorted(peers, key=lambda peer: peer_key(peer) ^ KEY)]


def test_it_asks_only_the_closest_and_not_too_many_at_once() -> None:
    lookup = a_lookup(count=4)
    contacts = contacts_by_distance(10)
    lookup.heard_of(reversed(contacts))
    assert lookup.to_ask(2) == contacts[:2]
    assert lookup.to_ask(2) == []
    lookup.answered(contacts[1].peer)
    assert lookup.to_ask(2) == [contacts[2]]


def test_one_round_is_enough_where_the_closest_know_nobody_closer() -> None:
    lookup = a_lookup()
    contacts = contacts_by_distance(10)
    lookup.heard_of(contacts)
    for contact in lookup.to_ask(3):
        assert not lookup.is_done()
        lookup.answered(contact.peer)
        lookup.heard_of(contacts)
    assert lookup.is_done()
    assert lookup.to_ask(3) == []
    assert lookup.closest(20) == contacts[:3]
    assert lookup.candidates(20) == contacts


def test_it_goes_on_while_somebody_names_closer_peers() -> None:
    lookup = a_lookup()
    contacts = contacts_by_distance(6)
    lookup.heard_of(contacts[3:])
    for contact in lookup.to_ask(3):
        lookup.answered(contact.peer)
        lookup.heard_of(contacts[:3])
    assert not lookup.is_done()
    for contact in lookup.to_ask(3):
        lookup.answered(contact.peer)
    assert lookup.is_done()
    assert lookup.closest(3) == contacts[:3]


def test_a_peer_that_fails_is_replaced_by_the_next_closest() -> None:
    lookup = a_lookup()
    contacts = contacts_by_distance(5)
    lookup.heard_of(contacts)
    first, second, third = lookup.to_ask(3)
    lookup.failed(first)
    lookup.answered(second.peer)
    lookup.answered(third.peer)
    assert not lookup.is_done()
    assert lookup.to_ask(3) == [contacts[3]]
    lookup.answered(contacts[3].peer)
    assert lookup.is_done()
    assert lookup.closest(20) == contacts[1:4]
    lookup.heard_of([first])
    assert first not in lookup.candidates(20), "it does not come back by hearsay"


def test_it_ends_with_those_there_are_where_they_are_few() -> None:
    lookup = a_lookup()
    assert lookup.is_done()
    contacts = contacts_by_distance(2)
    lookup.heard_of(contacts)
    for contact in lookup.to_ask(3):
        lookup.answered(contact.peer)
    assert lookup.is_done()
    assert lookup.closest(20) == contacts


def test_we_are_never_asked_ourselves() -> None:
    lookup = a_lookup()
    lookup.heard_of([Contact(PeerId(ME))])
    assert lookup.to_ask(3) == []
    assert lookup.candidates(1) == []


def test_a_closer_peer_is_heard_of_even_when_many_have_answered() -> None:
    lookup = a_lookup(count=HEARD_MAX)
    contacts = contacts_by_distance(HEARD_MAX + 1)
    lookup.heard_of(contacts[1:])
    asked = lookup.to_ask(HEARD_MAX)
    lookup.answered(asked[-1].peer)
    lookup.heard_of(contacts[:1])
    assert lookup.candidates(1) == contacts[:1]
    lookup.failed(asked[-2])
    assert asked[-2] not in lookup.candidates(HEARD_MAX)


def test_peers_that_invent_ever_closer_peers_do_not_keep_us_busy_for_ever() -> None:
    lookup = a_lookup()
    contacts = contacts_by_distance(500)
    lookup.heard_of([contacts.pop()])
    asked = 0
    while not lookup.is_done():
        for contact in lookup.to_ask(3):
            asked += 1
            lookup.answered(contact.peer)
            lookup.heard_of([contacts.pop()])
    assert asked == ASKED_MAX
