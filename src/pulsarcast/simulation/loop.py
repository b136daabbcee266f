"""The loop: simulated time, and what happens when.

One heap of (time, tick, act, given). The tick makes the order of equal times the order in which
they were asked for, so a run is the same in every process. There is no other clock in here.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from heapq import heappop, heappush
from itertools import count
from typing import Any, TypeAlias

YOUNG_MAX = 100_000
"""Objects before the collector looks for cycles. Nearly everything here dies without its help, and
its default of 700 takes a quarter of a run's time."""

Happening: TypeAlias = tuple[float, int, Callable[[Any], None], Any]


@contextmanager
def few_collections() -> Iterator[None]:
    """Let the collector look for cycles seldom.

    Around a whole run: each end would bring on a collection of all that was made meanwhile.
    """
    thresholds = gc.get_threshold()
    gc.set_threshold(YOUNG_MAX, *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


class Loop:
    """Runs what was asked for, in the order of simulated time."""

    __slots__ = ("happenings", "heap", "now", "tick")

    def __init__(self) -> None:
        self.now = 0.0
        self.happenings = 0
        """How many have been run: a measure of the work done."""
        # Both are public because lines push straight into the heap: it is the hottest path.
        self.heap: list[Happening] = []
        self.tick: Callable[[], int] = count().__next__

    def at(self, time_s: float, act: Callable[[Any], None], given: Any = None) -> None:
        """Call `act(given)` at a time; a time that has passed means as soon as possible."""
        heappush(self.heap, (max(time_s, self.now), self.tick(), act, given))

    def after(self, delay_s: float, act: Callable[[Any], None], given: Any = None) -> None:
        """Call `act(given)` after a delay."""
        time_s = self.now + delay_s if delay_s > 0.0 else self.now
        heappush(self.heap, (time_s, self.tick(), act, given))

    @few_collections()
    def run(self, until_s: float) -> None:
        """Let time pass until `until_s`, which is then the time."""
        heap = self.heap
        happenings = 0
        try:
            while heap and heap[0][0] <= until_s:
                self.now, _, act, given = heappop(heap)
                happenings += 1
                act(given)
        except Exception as error:
            error.add_note(f"in the simulated second {self.now!r}")
            raise
        finally:
            self.happenings += happenings
        self.now = max(self.now, until_s)
