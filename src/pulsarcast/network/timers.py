"""Timers: one task sleeps until the next is due, and fires all that are.

They are rounded up to a grain, so that a node with thousands of them wakes a hundred times a second
at most. The core never counts on a timer being exact, only on its not being early.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final

import trio

GRAIN_S: Final = 0.01


class Timers:
    """The timers of one node."""

    def __init__(self, fire: Callable[[list[int]], None], now_s: Callable[[], float]) -> None:
        self._fire = fire
        self._now_s = now_s
        self._heap: list[tuple[float, int]] = []
        self._sleep: trio.CancelScope | None = None
        self._wakes_s = math.inf

    def __len__(self) -> int:
        """How many are set."""
        return len(self._heap)

    def set(self, timer: int, delay_s: float) -> None:
        """Fire after a delay, and a little."""
        due_s = math.ceil((self._now_s() + delay_s) / GRAIN_S) * GRAIN_S
        heappush(self._heap, (due_s, timer))
        if due_s < self._wakes_s and self._sleep is not None:
            self._wakes_s = due_s
            self._sleep.cancel()

    async def run(self) -> None:
        """Fire timers as they become due, until cancelled."""
        heap = self._heap
        while True:
            now_s = self._now_s()
            due: list[int] = []
            while heap and heap[0][0] <= now_s:
                due.append(heappop(heap)[1])
            if due:
                self._fire(due)
                # What they set may be due already; whoever waits for the loop comes first.
                await trio.lowlevel.checkpoint()
                continue
            self._wakes_s = heap[0][0] if heap else math.inf
            with trio.CancelScope() as self._sleep:
                await trio.sleep(max(self._wakes_s - now_s, 0.0) if heap else math.inf)
            self._sleep = None
