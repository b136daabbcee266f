import pytest

from pulsarcast.simulation.clocks import EPOCH_US, NodeClock


def test_a_right_clock_counts_from_its_start_and_shows_the_date() -> None:
    now = NodeClock(10.0).read(12.5)
    assert (now.mono_s, now.wall_us) == (2.5, EPOCH_US + 12_500_000)


def test_an_offset_moves_wall_time_only() -> None:
    now = NodeClock(0.0, offset_s=-30.0).read(1.0)
    assert (now.mono_s, now.wall_us) == (1.0, EPOCH_US - 29_000_000)


def test_drift_moves_both_clocks_apart_from_the_truth() -> None:
    now = NodeClock(0.0, drift_ppm=200.0).read(10_000.0)
    assert now.mono_s == pytest.approx(10_002.0)
    assert now.wall_us == pytest.approx(EPOCH_US + 10_002_000_000, abs=2)


def test_monotonic_time_goes_on_where_it_was_when_a_clock_is_set() -> None:
    clock = NodeClock(0.0, drift_ppm=100.0)
    before = clock.read(1_000.0)
    clock.bend(1_000.0, offset_s=-60.0, drift_ppm=-100.0)
    after = clock.read(1_000.0)
    assert after.mono_s == pytest.approx(before.mono_s)
    assert after.wall_us == EPOCH_US + 940_000_000
    assert clock.read(2_000.0).mono_s == pytest.approx(1_000.1 + 999.9)


def test_a_fast_clock_takes_less_time_to_count_to_ten() -> None:
    clock = NodeClock(0.0, drift_ppm=1_000_000.0)
    assert clock.lasts_s(10.0) == 5.0
    assert clock.read(5.0).mono_s == 10.0
