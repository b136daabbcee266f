"""First contacts: which peers a node keeps, to return to the network through them."""

from random import Random

from pulsarcast.model.ids import PeerId, peer_id_of
from pulsarcast.protocol.dht.first_contacts import BOOTSTRAP_MAX, FirstContacts, bootstrap_in
from pulsarcast.protocol.limits import ADDRESSES_MAX
from pulsarcast.protocol.messages import Contact
from pulsarcast.protocol.store import PutState, StateRow


def peer(number: int) -> PeerId:
    return peer_id_of(Random(number).randbytes(32))


ME = peer(0)


def kept(writes: list[PutState]) -> list[StateRow]:
    return [write.row for write in writes]


def test_bootstrap_peers_are_kept_and_written_once() -> None:
    first = FirstContacts(ME)
    named = [Contact(peer(1), ("/ip4/192.0.2.1/tcp/1",)), Contact(peer(2))]
    rows = kept(first.add(named))
    assert bootstrap_in(rows) == first.bootstrap == tuple(named)
    again = FirstContacts(ME)
    again.restore(rows)
    assert again.bootstrap == tuple(named)
    assert again.add(named) == []
    assert again.add(named[::-1]) == []


def test_a_node_is_no_bootstrap_peer_of_itself() -> None:
    first = FirstContacts(ME)
    assert first.add([Contact(ME, ("/ip4/192.0.2.1/tcp/1",))]) == []
    assert first.bootstrap == ()


def test_a_peer_that_is_named_again_is_tried_at_its_new_address_first() -> None:
    first = FirstContacts(ME)
    first.add([Contact(peer(1), ("old",)), Contact(peer(2), ("two",))])
    assert first.add([Contact(peer(2), ("new",))]) != []
    assert first.bootstrap == (Contact(peer(2), ("new", "two")), Contact(peer(1), ("old",)))
    for number in range(2 * ADDRESSES_MAX):
        first.add([Contact(peer(2), (f"{number}",))])
    assert len(first.bootstrap[0].addresses) == ADDRESSES_MAX
    assert first.bootstrap[0].addresses[0] == f"{2 * ADDRESSES_MAX - 1}"


def test_no_more_bootstrap_peers_are_kept_than_the_bound_the_newest() -> None:
    first = FirstContacts(ME)
    for number in range(1, BOOTSTRAP_MAX + 10):
        rows = kept(first.add([Contact(peer(number))]))
    assert bootstrap_in(rows) == first.bootstrap
    assert len(first.bootstrap) == BOOTSTRAP_MAX
    assert first.bootstrap[0].peer == peer(BOOTSTRAP_MAX + 9)
