"""What happens when: a heap of moments, each with what happens then, in the order of asking.

Times are whole, and thousands of messages arrive in the same one: a heap of messages would
compare them for nothing.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Calendar(Generic[T]):
    """Things to happen, by time."""

    def __init__(self) -> None:
        self.days: dict[int, list[T]] = {}
        self._moments: list[int] = []

    def add(self, when: int, what: T) -> None:
        """Let something happen, at a time that has not passed."""
        day = self.days.get(when)
        if day is None:
            self.days[when] = [what]
            heapq.heappush(self._moments, when)
        else:
            day.append(what)

    def __iter__(self) -> Iterator[tuple[int, list[T]]]:
        """All moments in order, with what happens then; more may be added meanwhile."""
        while self._moments:
            now = heapq.heappop(self._moments)
            # What is added for this very moment while it lasts is still found at the list's end.
            yield now, self.days[now]
            del self.days[now]
