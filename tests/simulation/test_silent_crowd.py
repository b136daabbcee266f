"""A large part of a topic's members falls silent at once: the others hardly notice."""

import pytest

from benchmarks.silent_crowd import measure


@pytest.mark.parametrize("part", [1 / 3, 1 / 2])
@pytest.mark.parametrize("members", [100, pytest.param(400, marks=pytest.mark.slow)])
def test_the_others_have_every_event_within_seconds(members: int, part: float) -> None:
    seen = measure(members, part)
    assert seen["unanswered"] == seen["missing"] == 0
    assert seen["p99_s"] <= 10.0
    assert seen["max_s"] <= 20.0
    assert seen["events_per_delivery"] <= 1.1


def test_those_that_wake_up_have_everything_soon() -> None:
    seen = measure(60, 1 / 3, seconds=30.0)
    assert seen["missing_later"] == 0
