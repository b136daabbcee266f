import time

import trio
import trio.lowlevel

from pulsarcast.network.timers import GRAIN_S, Timers


def test_timers_fire_in_order_and_never_early() -> None:
    fired: list[tuple[int, float]] = []

    async def scene() -> None:
        begun_s = time.monotonic()

        def fire(due: list[int]) -> None:
            fired.extend((timer, time.monotonic() - begun_s) for timer in due)

        timers = Timers(fire, time.monotonic)
        timers.set(1, 0.8)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(timers.run)
            await trio.lowlevel.checkpoint()
            timers.set(2, 0.4)
            timers.set(3, 0.0)
            with trio.fail_after(5):
                while len(fired) < 3:
                    await trio.sleep(0.01)
            nursery.cancel_scope.cancel()

    trio.run(scene)
    assert [timer for timer, _ in fired] == [3, 2, 1]
    assert all(at_s >= delay_s for (_, at_s), delay_s in zip(fired, (0.0, 0.4, 0.8), strict=True))


def test_a_timer_set_while_firing_is_not_forgotten() -> None:
    fired: list[int] = []

    async def scene() -> None:
        def fire(due: list[int]) -> None:
            fired.extend(due)
            if len(fired) < 20:
                timers.set(len(fired), 0.0)

        timers = Timers(fire, time.monotonic)
        timers.set(0, 0.0)
        with trio.move_on_after(30):  # a forgotten one never fires
            async with trio.open_nursery() as nursery:
                nursery.start_soon(timers.run)
                while len(fired) < 20:
                    await trio.sleep(GRAIN_S)
                nursery.cancel_scope.cancel()

    trio.run(scene)
    assert fired == list(range(20))


def test_an_idle_node_does_not_wake() -> None:
    asked = 0

    def now_s() -> float:
        nonlocal asked
        asked += 1
        return time.monotonic()

    async def scene() -> None:
        timers = Timers(lambda due: None, now_s)
        with trio.move_on_after(0.2):
            await timers.run()

    trio.run(scene)
    assert asked <= 2
