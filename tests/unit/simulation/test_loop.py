import gc

import pytest

from pulsarcast.simulation.loop import Loop, few_collections


def test_things_happen_in_the_order_of_their_times() -> None:
    loop, seen = Loop(), list[tuple[float, str]]()
    for time_s in (3.0, 1.0, 2.0):
        loop.at(time_s, lambda name: seen.append((loop.now, name)), f"at {time_s}")
    loop.run(10.0)
    assert seen == [(1.0, "at 1.0"), (2.0, "at 2.0"), (3.0, "at 3.0")]


def test_things_of_one_time_happen_in_the_order_they_were_asked_for() -> None:
    loop, seen = Loop(), list[int]()
    for number in range(100):
        loop.at(1.0, seen.append, number)
    loop.run(1.0)
    assert seen == list(range(100))


def test_a_time_that_has_passed_means_now() -> None:
    loop, seen = Loop(), list[float]()
    loop.run(5.0)
    loop.at(1.0, lambda _: seen.append(loop.now))
    loop.after(-1.0, lambda _: seen.append(loop.now))
    loop.run(5.0)
    assert seen == [5.0, 5.0]


def test_what_happens_at_the_very_end_still_happens_and_later_things_wait() -> None:
    loop, seen = Loop(), list[str]()
    loop.at(2.0, seen.append, "end")
    loop.at(2.1, seen.append, "later")
    loop.run(2.0)
    assert (seen, loop.now, loop.happenings) == (["end"], 2.0, 1)
    loop.run(3.0)
    assert (seen, loop.now, loop.happenings) == (["end", "later"], 3.0, 2)


def test_an_error_says_in_which_second_it_happened() -> None:
    loop = Loop()
    loop.at(1.5, lambda _: 1 // 0)  # type: ignore[arg-type]
    with pytest.raises(ZeroDivisionError) as caught:
        loop.run(2.0)
    assert caught.value.__notes__ == ["in the simulated second 1.5"]


def test_the_collector_is_left_as_it_was_found() -> None:
    loop, seen, before = Loop(), list[tuple[int, int, int]](), gc.get_threshold()
    loop.at(1.0, lambda _: seen.append(gc.get_threshold()))
    loop.run(2.0)
    assert seen != [before]
    assert gc.get_threshold() == before


def test_within_a_run_the_end_of_a_loop_brings_on_no_collection() -> None:
    outside, seen = gc.get_threshold(), list[tuple[int, int, int]]()
    with few_collections():
        loop = Loop()
        loop.at(1.0, lambda _: seen.append(gc.get_threshold()))
        loop.run(2.0)
        assert gc.get_threshold() == seen[0] != outside
    assert gc.get_threshold() == outside
