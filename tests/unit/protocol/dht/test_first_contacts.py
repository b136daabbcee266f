"""First contacts: which peers a node keeps, to return to the network through them."""

from random import Random

from pulsarcast.model.ids import PeerId, peer_id_of
from pulsarcast.protocol.dht.first_contacts import (
    BOOTSTRAP_MAX,
    PER_PLACE_MAX,
    REMEMBERED_MAX,
    WRITE_S,
    FirstContacts,
    bootstrap_in,
)
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


S = 1_000_000
DAY_US = 86_400 * S
NOBODY = frozenset[PeerId]()


def meet(
    first: FirstContacts, number: int, place: str, now_us: int, *, reached: bool = True
) -> None:
    first.up(Contact(peer(number), (f"/{number}",)), place, now_us, reached=reached)


def peers(first: FirstContacts) -> set[PeerId]:
    return {contact.peer for contact in first.all(1000)}


def after_a_restart(first: FirstContacts, now_us: int) -> FirstContacts:
    again = FirstContacts(ME)
    again.restore(kept(first.writes(NOBODY, now_us)))
    return again


def test_a_peer_that_was_connected_is_remembered_after_a_restart() -> None:
    first = FirstContacts(ME)
    first.up(Contact(peer(1), ("/a", "/b")), "net", 5 * S, reached=True)
    first.up(Contact(peer(2)), "net", 6 * S, reached=False)  # Nobody could dial it.
    first.up(Contact(ME, ("/me",)), "net", 7 * S, reached=False)
    again = after_a_restart(first, 8 * S)
    assert again.all(9) == (Contact(peer(1), ("/a", "/b")),)


def test_bootstrap_peers_are_tried_first_and_then_those_heard_last() -> None:
    first = FirstContacts(ME)
    first.add([Contact(peer(3), ("/named",))])
    for number in (1, 2, 3):
        meet(first, number, "", number * S)
    assert [contact.peer for contact in first.all(9)] == [peer(3), peer(2), peer(1)]
    assert len(first.all(2)) == 2


def test_remembering_is_written_when_the_peers_change_and_else_once_an_hour() -> None:
    first = FirstContacts(ME)
    assert first.writes(NOBODY, 0) == []
    meet(first, 1, "net", S)
    live = {peer(1)}
    assert len(first.writes(live, 2 * S)) == 1
    for now_s in range(30, WRITE_S, 30):
        meet(first, 1, "net", now_s * S)
        assert first.writes(live, now_s * S) == []
    assert len(first.writes(live, (WRITE_S + 2) * S)) == 1
    first.up(Contact(peer(1), ("/moved",)), "net", (WRITE_S + 3) * S, reached=False)
    assert len(first.writes(live, (WRITE_S + 4) * S)) == 1


def test_peers_of_one_network_cannot_push_out_the_others() -> None:
    first = FirstContacts(ME)
    good = set()
    for number in range(1, 17):
        meet(first, number, f"net {number}", S)
        good.add(peer(number))
    for number in range(100, 1100):
        meet(first, number, "hostile", 2 * S)
    assert good <= peers(first)
    assert len(first) == 16 + PER_PLACE_MAX


def test_peers_of_many_networks_cannot_push_out_one_that_answers() -> None:
    """A botnet: every id from a network of its own. The good peers were there before."""
    first = FirstContacts(ME)
    for number in range(1, 17):
        meet(first, number, f"net {number}", S)
    for each in peers(first):
        first.failed(each)  # The node stops, and is away for two days.
    first = after_a_restart(first, S)
    good = peers(first)
    for number in range(100, 1100):
        meet(first, number, f"hostile {number}", 2 * DAY_US)
    assert good <= peers(first)
    assert len(first) == REMEMBERED_MAX
    for each in good:
        first.failed(each)
        first.up(Contact(each, ("/again",)), f"net {each!r}", 3 * DAY_US, reached=True)
    meet(first, 1100, "hostile 1100", 4 * DAY_US)
    assert good <= peers(first)


def test_a_peer_that_is_silent_for_a_day_gives_way_and_is_forgotten_after_a_month() -> None:
    first = FirstContacts(ME)
    for number in range(1, REMEMBERED_MAX + 1):
        meet(first, number, f"net {number}", S)
    first.failed(peer(1))
    meet(first, 100, "net 100", DAY_US - S)
    assert peer(100) not in peers(first)
    meet(first, 100, "net 100", DAY_US + 2 * S)
    assert peer(100) in peers(first)
    assert peer(1) not in peers(first)
    first.failed(peer(2))
    # One that was never tried is not forgotten: the node may have been away itself.
    first.writes(NOBODY, 40 * DAY_US)
    assert peer(2) not in peers(first)
    assert len(first) == REMEMBERED_MAX - 1


def test_a_peer_that_was_dialled_takes_the_place_of_one_that_only_dialled_in() -> None:
    first = FirstContacts(ME)
    for number in range(1, PER_PLACE_MAX + 1):
        meet(first, number, "net", S, reached=False)
    meet(first, 100, "net", S, reached=False)
    assert peer(100) not in peers(first)
    meet(first, 100, "net", S)
    assert peer(100) in peers(first)
    assert len(first) == PER_PLACE_MAX


def test_a_peer_that_moves_is_counted_where_it_is_now() -> None:
    first = FirstContacts(ME)
    for number in range(1, 30):
        meet(first, number, f"net {number}", S)
    for number in range(1, 30):
        meet(first, number, "hostile", S)
    assert len(first) == PER_PLACE_MAX


def test_what_is_remembered_has_a_largest_size() -> None:
    first = FirstContacts(ME)
    for number in range(1, 4 * REMEMBERED_MAX):
        addresses = tuple(f"/dns/{'x' * 240}/{each}" for each in range(ADDRESSES_MAX))
        first.up(Contact(peer(number), addresses), f"net {number}", S, reached=True)
    (row,) = kept(first.writes(NOBODY, S))
    assert len(row.value) < 128 * 1024


def test_the_address_at_which_a_peer_was_reached_stays_the_first() -> None:
    first = FirstContacts(ME)
    first.up(Contact(peer(1), ("/reached", "/said")), "net", S, reached=True)
    assert len(first.writes(NOBODY, S)) == 1
    first.up(Contact(peer(1), ("/said",)), "net", S, reached=False)
    assert first.all(1) == (Contact(peer(1), ("/reached", "/said")),)
    assert first.writes(NOBODY, S) == []
