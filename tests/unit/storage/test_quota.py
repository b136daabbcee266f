"""The quota of strangers' blocks: how places share it."""

import pytest

from pulsarcast.storage import quota as quota_module
from pulsarcast.storage.quota import BESIDE_BYTES, UNKNOWN, Quota

SIZE = 3 * BESIDE_BYTES
CHARGE = SIZE + BESIDE_BYTES


def take(quota: Quota, place: str) -> str | None:
    """Charge a place once; returns the account, or None where there is no room."""
    account = quota.account(place, CHARGE)
    if account is not None:
        quota.add(account, CHARGE)
    return account


def fill(quota: Quota, place: str) -> int:
    """Charge a place until there is no room; returns how many blocks found some."""
    count = 0
    while take(quota, place) is not None:
        count += 1
    return count


def test_one_place_takes_half_of_it_and_leaves_the_next_one_half_of_the_rest() -> None:
    quota = Quota(1000 * CHARGE)
    assert [fill(quota, place) for place in "abc"] == [500, 250, 125]


@pytest.mark.parametrize("greedy", [1, 3, 9])
def test_greedy_places_leave_the_next_one_as_much_as_each_of_them_has(greedy: int) -> None:
    quota = Quota(1000 * CHARGE)
    places = [f"place {number}" for number in range(greedy)]
    for _ in range(1000):
        for place in places:
            take(quota, place)
    left = quota.bytes_max - quota.bytes_used
    assert left >= quota.bytes_max // (greedy + 1)
    assert take(quota, "honest") is not None


def test_what_is_given_back_can_be_taken_again() -> None:
    quota = Quota(4 * CHARGE)
    accounts = [take(quota, "a") for _ in range(2)]
    assert take(quota, "a") is None
    for account in accounts:
        assert account is not None
        quota.refund(account, CHARGE)
    assert quota.bytes_used == 0
    assert fill(quota, "a") == 2


def test_places_without_end_share_one_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quota_module, "PLACES_MAX", 2)
    quota = Quota(1000 * CHARGE)
    accounts = [take(quota, place) for place in "abcda"]
    assert accounts == ["a", "b", UNKNOWN, UNKNOWN, "a"]


def test_a_copy_goes_its_own_way() -> None:
    quota = Quota(4 * CHARGE)
    take(quota, "a")
    twin = quota.copy()
    assert fill(twin, "a") == 1
    assert (quota.bytes_used, twin.bytes_used) == (CHARGE, 2 * CHARGE)


def test_a_quota_of_nothing_takes_nothing() -> None:
    assert take(Quota(0), "a") is None


def test_what_costs_nothing_finds_room_in_a_full_quota() -> None:
    assert Quota(0).account("a", 0) == "a"


def test_a_log_has_one_account_and_gives_all_of_it_back() -> None:
    quota = Quota(8 * CHARGE)
    assert quota.charge_log(7, "a", CHARGE)
    assert not quota.charge_log(7, "b", CHARGE)
    quota.refund_part(7, CHARGE)
    assert (quota.bytes_used, quota.is_charged(7)) == (CHARGE, True)
    quota.refund_log(7)
    quota.refund_log(7)
    assert (quota.bytes_used, quota.is_charged(7)) == (0, False)
