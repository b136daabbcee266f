"""The quota of strangers' blocks: how places share it."""

import pytest

from pulsarcast.storage import quota as quota_module
from pulsarcast.storage.quota import BESIDE_BYTES, UNKNOWN, Quota

SIZE = 3 * BESIDE_BYTES
CHARGE = SIZE + BESIDE_BYTES


def fill(quota: Quota, place: str) -> int:
    """Charge a place until there is no room; returns how many blocks found some."""
    count = 0
    while quota.charge(place, SIZE) is not None:
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
            quota.charge(place, SIZE)
    left = quota.bytes_max - quota.bytes_used
    assert left >= quota.bytes_max // (greedy + 1)
    assert quota.charge("honest", SIZE) is not None


def test_what_is_given_back_can_be_taken_again() -> None:
    quota = Quota(4 * CHARGE)
    charges = [quota.charge("a", SIZE) for _ in range(2)]
    assert quota.charge("a", SIZE) is None
    for charge in charges:
        assert charge is not None
        quota.refund(*charge)
    assert quota.bytes_used == 0
    assert fill(quota, "a") == 2


def test_places_without_end_share_one_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quota_module, "PLACES_MAX", 2)
    quota = Quota(1000 * CHARGE)
    accounts = [quota.charge(place, SIZE) for place in "abcda"]
    assert accounts == [(name, CHARGE) for name in ("a", "b", UNKNOWN, UNKNOWN, "a")]


def test_a_copy_goes_its_own_way() -> None:
    quota = Quota(4 * CHARGE)
    quota.charge("a", SIZE)
    twin = quota.copy()
    assert fill(twin, "a") == 1
    assert (quota.bytes_used, twin.bytes_used) == (CHARGE, 2 * CHARGE)


def test_a_quota_of_nothing_takes_nothing() -> None:
    assert Quota(0).charge("a", 0) is None
