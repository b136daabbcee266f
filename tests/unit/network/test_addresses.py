import pytest

from pulsarcast.model.identity import Identity
from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.network.addresses import HEARSAY_MAX, KNOWN_MAX, AddressBook
from pulsarcast.network.multiaddrs import Scope, scope_of
from pulsarcast.protocol.limits import ADDRESSES_MAX
from pulsarcast.protocol.messages import (
    Contact,
    Credit,
    HandOver,
    JoinReferred,
    Peers,
    Status,
)
from pulsarcast.wire.codec import decode, encode

TOPIC = Cid(bytes(36))


def peer(number: int) -> PeerId:
    return Identity.from_seed(bytes([number]) * 32).peer_id


def test_what_a_peer_says_of_itself_stands_before_hearsay() -> None:
    book = AddressBook()
    book.heard(Contact(peer(1), ("/lie",)))
    book.told_by_itself(peer(1), ("/own",))
    book.heard(Contact(peer(1), ("/another lie",)))
    assert book.of(peer(1)) == ("/own", "/another lie", "/lie")


def test_hearsay_is_bounded_and_the_newest_is_kept() -> None:
    book = AddressBook()
    for number in range(20):
        book.heard(Contact(peer(1), (f"/{number}",)))
    assert book.of(peer(1)) == tuple(f"/{number}" for number in range(19, 19 - HEARSAY_MAX, -1))


def test_no_hearsay_pushes_out_what_we_were_given_or_reached_a_peer_by() -> None:
    book = AddressBook()
    book.given([Contact(peer(1), ("/given", "/given too"))])
    book.heard(Contact(peer(1), ("/true",)))
    book.reached(peer(1), "/true")
    lies = tuple(f"/lie {number}" for number in range(HEARSAY_MAX))
    book.heard(Contact(peer(1), lies))
    assert book.of(peer(1)) == ("/true", "/given", "/given too", *lies)
    for number in range(KNOWN_MAX + 10):
        book.heard(Contact(PeerId(number.to_bytes(38)), ("/a",)))
    assert book.of(peer(1)) == ("/true", "/given", "/given too")
    book.told_by_itself(peer(1), ("/own", "/given"))
    assert book.of(peer(1)) == ("/own", "/given", "/true", "/given too")


def test_of_the_addresses_that_led_to_a_peer_the_last_is_kept() -> None:
    book = AddressBook()
    for address in ("/first", "/second"):
        book.reached(peer(1), address)
    assert book.of(peer(1)) == ("/second",)
    for number in range(KNOWN_MAX):
        book.reached(PeerId(number.to_bytes(38)), "/a")
    assert len(book) == KNOWN_MAX
    assert not book.of(peer(1))


def test_no_contact_leaves_with_more_addresses_than_anybody_takes() -> None:
    book = AddressBook()
    own = tuple(f"/own {number}" for number in range(ADDRESSES_MAX))
    book.told_by_itself(peer(1), own)
    book.heard(Contact(peer(1), ("/hearsay",)))
    assert book.of(peer(1)) == (*own, "/hearsay")
    filled = book.fill(Peers(1, (Contact(peer(1)),)))
    assert filled == Peers(1, (Contact(peer(1), own),))
    assert decode(encode(filled)) == filled


def test_peers_are_forgotten_before_there_are_too_many() -> None:
    book = AddressBook()
    for number in range(KNOWN_MAX + 10):
        book.heard(Contact(PeerId(number.to_bytes(38)), ("/a",)))
    assert len(book) == KNOWN_MAX
    assert not book.of(PeerId((0).to_bytes(38)))


def test_contacts_get_their_addresses_on_the_way_out_and_leave_them_on_the_way_in() -> None:
    sender, receiver = AddressBook(), AddressBook()
    sender.told_by_itself(peer(1), ("/one",))
    for message in (
        Peers(1, (Contact(peer(1)), Contact(peer(2)))),
        Status(TOPIC, b"", (), (Contact(peer(1)),), False),
        JoinReferred(TOPIC, 1, Contact(peer(1)), False),
        HandOver(TOPIC, Contact(peer(1))),
    ):
        receiver = AddressBook()
        receiver.learn(sender.fill(message), "place", Scope.WORLD)
        assert receiver.of(peer(1)) == ("/one",), message
        assert not receiver.of(peer(2))


def test_messages_without_contacts_stay_the_same_object() -> None:
    book = AddressBook()
    for message in (Credit(TOPIC, 1), HandOver(TOPIC, None), Peers(1, ())):
        assert book.fill(message) is message
        book.learn(message, "place", Scope.WORLD)
    assert len(book) == 0


def test_an_address_that_came_with_a_contact_is_passed_on_where_we_know_none() -> None:
    filled = AddressBook().fill(Peers(1, (Contact(peer(1), ("/a",)),)))
    assert filled == Peers(1, (Contact(peer(1), ("/a",)),))


def test_a_peer_cannot_send_the_node_to_narrower_networks_than_its_own() -> None:
    near = (
        "/ip4/127.0.0.1/tcp/1",
        "/ip4/192.168.1.1/tcp/1",
        "/ip4/1.2.3.4/tcp/1",
        "/dns/a.b/tcp/1",
    )
    told = Peers(2, (Contact(peer(1), near),))
    for scope in Scope:
        book = AddressBook()
        learnt = book.learn(told, "place", scope)
        assert learnt == Peers(2, (Contact(peer(1), near[scope:]),))
        assert book.of(peer(1)) == near[scope:]


@pytest.mark.parametrize(
    ("address", "scope"),
    [
        ("/ip6/::1/tcp/1", Scope.MACHINE),
        ("/ip4/0.0.0.0/tcp/1", Scope.MACHINE),
        ("/ip4/169.254.169.254/tcp/80", Scope.NETWORK),
        ("/ip6/fd00::1/tcp/1", Scope.NETWORK),
        ("/ip6/2001:db8::1/tcp/1", Scope.WORLD),
        ("nonsense", Scope.WORLD),
    ],
)
def test_addresses_have_a_scope(address: str, scope: Scope) -> None:
    assert scope_of(address) is scope


def test_the_place_that_named_a_peer_is_known_until_a_surer_one_tells_of_it() -> None:
    book = AddressBook()
    book.heard(Contact(peer(1), ("/a",)), "here")
    book.heard(Contact(peer(1), ("/a",)))
    assert book.namer_of(peer(1)) == "here"
    book.reached(peer(1), "/a")
    assert book.namer_of(peer(1)) is None
