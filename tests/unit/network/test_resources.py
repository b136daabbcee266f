"""Who loses what where there is no more room."""

from __future__ import annotations

from collections import Counter

import trio
import trio.testing
from trio.testing import MockClock

from pulsarcast.network.resources import (
    LATE_S,
    LONG_S,
    Claim,
    Handshake,
    Handshakes,
    Turns,
    Why,
    Worth,
    cheapest,
    heaviest,
)


def test_the_least_worth_goes_first_then_the_crowded_place_then_the_longest_unused() -> None:
    claims = {
        "relied on": Claim(Worth.RELIED_ON, 0.0, "crowded"),
        "child": Claim(Worth.SERVED, 0.0, "crowded"),
        "dialled": Claim(Worth.DIALLED, 0.0, "crowded"),
        "lonely": Claim(Worth.STRANGER, 0.0, "elsewhere"),
        "new": Claim(Worth.STRANGER, 3.0, "crowded"),
        "old": Claim(Worth.STRANGER, 1.0, "crowded"),
        "silent": Claim(Worth.SILENT, 5.0, "a third"),
    }
    order = ["silent", "old", "lonely", "new", "dialled", "child"]
    assert cheapest(claims, 9) == order
    for count in range(6):
        assert cheapest(claims, count) == order[:count]


def test_a_crowd_of_one_place_loses_all_before_others_lose_one() -> None:
    claims = {number: Claim(Worth.STRANGER, float(number), "crowded") for number in range(10)}
    claims |= {number: Claim(Worth.STRANGER, 0.0, f"place {number}") for number in range(10, 15)}
    assert cheapest(claims, 9) == list(range(9))


def test_the_heaviest_of_the_place_that_holds_most_goes_first() -> None:
    places = {"a": "one", "b": "one", "c": "two"}
    assert heaviest({"a": 3, "b": 2, "c": 4}, places.__getitem__) == "a"
    assert heaviest({"a": 1, "b": 2, "c": 4}, places.__getitem__) == "c"


def test_places_take_turns_and_of_a_place_its_connections() -> None:
    """Who has taken a turn waits for all places, and not for all connections of the crowd."""

    async def scene() -> None:
        turns = Turns()
        order: list[str] = []
        holding = trio.Event()

        async def take(place: str, times: int) -> None:
            for _ in range(times):
                async with turns.next(place, 0.001):
                    await holding.wait()
                    order.append(place)

        async with trio.open_nursery() as nursery:
            for _ in range(100):
                nursery.start_soon(take, "crowd", 1)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(take, "two", 2)
            nursery.start_soon(take, "one", 3)
            await trio.testing.wait_all_tasks_blocked()
            holding.set()
        assert len(order) == 105
        assert order.count("one") == 3
        assert max(at for at, place in enumerate(order) if place == "one") <= 3 * 3 + 1

    play(scene)


def test_a_turn_that_somebody_gives_up_goes_to_the_next_one() -> None:
    """Whoever waits, or was just called, may be gone."""

    async def scene() -> None:
        turns = Turns()
        async with trio.open_nursery() as nursery:
            scopes = [trio.CancelScope() for _ in range(4)]

            async def take(scope: trio.CancelScope) -> None:
                with scope:
                    async with turns.next("a place", 0.0):
                        await trio.sleep_forever()

            for scope in scopes:
                nursery.start_soon(take, scope)
                await trio.testing.wait_all_tasks_blocked()
            scopes[1].cancel()
            await trio.testing.wait_all_tasks_blocked()
            scopes[0].cancel()
            scopes[2].cancel()
            await trio.testing.wait_all_tasks_blocked()
            scopes[3].cancel()
        with trio.fail_after(1):
            async with turns.next("another place", 0.0):
                pass

    play(scene)


def run_handshakes(count_max: int = 3) -> tuple[Handshakes, Counter[Why]]:
    cut_off: Counter[Why] = Counter()
    return Handshakes(count_max, cut_off), cut_off


async def entered(handshakes: Handshakes, *places: str) -> list[Handshake]:
    return [await handshakes.enter(place) for place in places]


def play(scene: object) -> None:
    trio.run(scene, clock=MockClock(autojump_threshold=0))  # type: ignore[arg-type]


def test_a_newcomer_of_another_place_takes_a_place_of_the_crowded_one_at_once() -> None:
    async def scene() -> None:
        handshakes, cut_off = run_handshakes()
        crowd = await entered(handshakes, "a", "a", "a")
        await handshakes.enter("b")
        assert trio.current_time() == crowd[0].began_s
        assert [each.scope.cancel_called for each in crowd] == [True, False, False]
        assert len(handshakes) == 3
        assert cut_off == {Why.HANDSHAKES: 1}

    play(scene)


def test_a_crowd_of_one_place_waits_in_line() -> None:
    """The next one comes when one is done, or brought nothing for too long, or takes too long."""

    async def scene() -> None:
        handshakes, cut_off = run_handshakes()
        first, second, third = await entered(handshakes, "a", "a", "a")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(handshakes.enter, "a")
            await trio.sleep(LATE_S / 2)
            assert len(handshakes) == 3
            handshakes.leave(second)
            handshakes.leave(second)
        assert trio.current_time() == first.began_s + LATE_S / 2
        assert not cut_off
        first.moved()
        await handshakes.enter("a")
        assert trio.current_time() == third.late_s == third.began_s + LATE_S
        assert (first.scope.cancel_called, third.scope.cancel_called) == (False, True)
        assert cut_off == {Why.HANDSHAKES: 1}

    play(scene)


def test_a_handshake_that_comes_drop_by_drop_may_lose_its_place() -> None:
    async def scene() -> None:
        handshakes, _ = run_handshakes(1)
        (slow,) = await entered(handshakes, "a")
        while trio.current_time() < slow.began_s + LONG_S - LATE_S / 2:
            await trio.sleep(LATE_S / 2)
            slow.moved()
        await handshakes.enter("a")
        assert trio.current_time() == slow.began_s + LONG_S
        assert slow.scope.cancel_called

    play(scene)
