"""The routing table: order, buckets, and contacts that fail and come back."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from pulsarcast.model.ids import PeerId, peer_id_of, peer_key
from pulsarcast.protocol.dht.routing import (
    BACKOFF_FACTOR_MAX,
    FAILED_MAX,
    SHUNNED_MAX,
    SPARES_MAX,
    RoutingTable,
    Seen,
)
from pulsarcast.protocol.messages import Contact

ME = peer_id_of(bytes(32))
RETRY_S = 30.0


def a_table(*, bucket_size: int = 20) -> RoutingTable:
    return RoutingTable(ME, bucket_size=bucket_size, retry_s=RETRY_S)


def a_contact(number: int) -> Contact:
    return Contact(peer_id_of(Random(number).randbytes(32)))


def contacts_of_one_bucket(count: int) -> list[Contact]:
    """Contacts in the far half of the keyspace."""
    found: list[Contact] = []
    number = 0
    while len(found) < count:
        contact = a_contact(number)
        if (peer_key(contact.peer) ^ peer_key(ME)).bit_length() == 256:
            found.append(contact)
        number += 1
    return found


@given(
    numbers=st.lists(st.integers(0, 400), max_size=300),
    failing=st.lists(st.integers(0, 400), max_size=30),
    excluded=st.lists(st.integers(0, 400), max_size=3),
    key=st.integers(0, 2**256 - 1),
    count=st.integers(1, 30),
    bucket_size=st.integers(1, 20),
)
def test_the_closest_contacts_are_those_that_sorting_all_of_them_finds(
    numbers: list[int],
    failing: list[int],
    excluded: list[int],
    key: int,
    count: int,
    bucket_size: int,
) -> None:
    table = a_table(bucket_size=bucket_size)
    for number in numbers:
        table.saw(a_contact(number), 0.0)
    for number in failing:
        table.failed(a_contact(number), 1.0)
    exclude = [a_contact(number).peer for number in excluded]
    everyone = [contact for contact in table if contact.peer not in exclude]
    everyone.sort(key=lambda contact: peer_key(contact.peer) ^ key)
    assert table.closest(key, count, exclude) == everyone[:count]
    assert len(table) == len(list(table))


@given(numbers=st.lists(st.integers(0, 400), max_size=60), key=st.integers(0, 2**256 - 1))
def test_a_node_knows_whether_it_is_among_the_closest(numbers: list[int], key: int) -> None:
    table = a_table()
    for number in numbers:
        table.saw(a_contact(number), 0.0)
    everyone = sorted([ME, *(contact.peer for contact in table)], key=lambda p: peer_key(p) ^ key)
    assert table.is_among_closest(key, 3) == (ME in everyone[:3])


def test_a_full_bucket_keeps_its_old_contacts_and_puts_new_ones_aside() -> None:
    table = a_table(bucket_size=3)
    *old, new = contacts_of_one_bucket(4)
    assert [table.saw(contact, 0.0) for contact in old] == [Seen.NEW] * 3
    assert table.saw(new, 1.0) is Seen.SPARE
    assert new.peer not in table
    assert list(table) == old


def test_a_spare_takes_the_place_of_a_contact_that_failed() -> None:
    table = a_table(bucket_size=3)
    *old, earlier, later = contacts_of_one_bucket(5)
    for contact in (*old, earlier, later):
        table.saw(contact, 0.0)
    assert table.failed(old[0], 1.0)
    assert list(table) == [*old[1:], later]
    assert len(table) == 3


def test_a_spare_that_is_heard_from_again_is_the_first_to_take_a_place_with_its_addresses() -> None:
    table = a_table(bucket_size=1)
    live, first, other = contacts_of_one_bucket(3)
    spare = Contact(first.peer, ("/ip4/10.0.0.1/tcp/1",))
    for contact in (live, spare, other, Contact(spare.peer)):
        table.saw(contact, 0.0)
    table.failed(live, 1.0)
    assert list(table) == [spare]


def test_hearing_from_a_contact_makes_it_the_youngest_of_its_bucket() -> None:
    table = a_table(bucket_size=3)
    first, second, third, spare = contacts_of_one_bucket(4)
    for contact in (first, second, third, first, spare):
        table.saw(contact, 0.0)
    assert table.to_check(255) == second


def test_a_contact_that_failed_is_neither_named_nor_asked_until_it_returns() -> None:
    table = a_table()
    contact = a_contact(1)
    table.saw(contact, 0.0)
    assert table.failed(contact, 0.0)
    assert table.closest(0, 20) == []
    assert table.is_shunned(contact.peer, RETRY_S - 1)
    assert table.to_retry(RETRY_S - 1, 8) == []
    assert table.to_retry(RETRY_S, 8) == [contact]
    assert table.saw(contact, RETRY_S) is Seen.RETURNED
    assert table.closest(0, 20) == [contact]
    assert table.to_retry(10 * RETRY_S, 8) == []


def test_a_contact_that_keeps_failing_is_tried_ever_more_rarely_but_for_ever() -> None:
    table = a_table()
    contact = a_contact(1)
    table.saw(contact, 0.0)
    now = 0.0
    waits: list[float] = []
    for _ in range(8):
        table.failed(contact, now)
        begun = now
        while not table.to_retry(now, 1):
            now += RETRY_S / 2
        waits.append((now - begun) / RETRY_S)
    assert waits == [1, 2, 4, 8, *[BACKOFF_FACTOR_MAX] * 4]


def test_failed_contacts_are_bounded_and_those_given_at_the_start_are_not_forgotten() -> None:
    table = a_table()
    given_at_start = Contact(a_contact(0).peer, ("/ip4/10.0.0.1/tcp/1",))
    table.keep([given_at_start])
    table.failed(Contact(given_at_start.peer), 0.0)
    for number in range(1, 3 * FAILED_MAX):
        table.saw(a_contact(number), 0.0)
        table.failed(a_contact(number), 0.0)
    assert table.footprint()["dht_failed"] == FAILED_MAX
    assert table.to_retry(RETRY_S, 1) == [given_at_start], "with its addresses"


def test_peers_that_only_others_named_are_shunned_for_a_while_and_bounded() -> None:
    table = a_table()
    for number in range(3 * SHUNNED_MAX):
        assert not table.failed(a_contact(number), 0.0)
    newest = a_contact(3 * SHUNNED_MAX - 1).peer
    assert table.footprint()["dht_failed"] == SHUNNED_MAX
    assert table.is_shunned(newest, RETRY_S - 1)
    assert not table.is_shunned(newest, RETRY_S)
    assert table.to_retry(RETRY_S, 8) == []


def test_a_contact_that_is_removed_leaves_its_place_to_the_spare_heard_from_last() -> None:
    table = a_table(bucket_size=2)
    first, second, *spares = contacts_of_one_bucket(4)
    for contact in (first, second, *spares):
        table.saw(contact, 0.0)
    assert table.remove(first.peer)
    assert list(table) == [second, spares[1]]
    assert len(table) == 2
    assert table.to_retry(RETRY_S, 4) == [], "it did not fail"


def test_a_spare_and_a_failed_contact_are_removed_for_good() -> None:
    table = a_table(bucket_size=1)
    live, spare, failed = contacts_of_one_bucket(3)
    table.saw(failed, 0.0)
    table.failed(failed, 0.0)
    table.saw(live, 0.0)
    table.saw(spare, 0.0)
    assert not table.remove(spare.peer)
    assert not table.remove(failed.peer)
    assert not table.remove(a_contact(1000).peer)
    assert table.to_retry(RETRY_S, 4) == []
    table.remove(live.peer)
    assert len(table) == 0


def test_spares_are_bounded() -> None:
    table = a_table(bucket_size=1)
    for contact in contacts_of_one_bucket(3 * SPARES_MAX):
        table.saw(contact, 0.0)
    assert table.footprint()["dht_spares"] == SPARES_MAX


def test_a_message_without_addresses_does_not_make_us_forget_them() -> None:
    table = a_table()
    contact = Contact(a_contact(1).peer, ("/ip4/10.0.0.1/tcp/1",))
    bare = Contact(contact.peer)
    table.saw(contact, 0.0)
    table.saw(bare, 1.0)
    assert table.get(contact.peer) == contact
    table.failed(bare, 2.0)
    table.saw(bare, 3.0)
    assert table.get(contact.peer) == contact


def test_we_are_no_contact_of_ours() -> None:
    table = a_table()
    table.saw(Contact(PeerId(ME)), 0.0)
    assert len(table) == 0
    assert table.closest(peer_key(ME), 1) == []


def test_a_bucket_without_contacts_is_empty_only_beyond_our_neighbourhood() -> None:
    table = a_table(bucket_size=4)
    assert table.empty() == []
    table.saw(contacts_of_one_bucket(1)[0], 0.0)
    assert table.empty() == [], "all the nearer ones may have nobody in them"
    for number in range(200):
        table.saw(a_contact(number), 0.0)
    assert table.empty() == []
    for contact in contacts_of_one_bucket(200):
        table.failed(contact, 1.0)
    assert table.empty() == [255]
