"""Dials under way: peers whose addresses only others told have places of their own.

A peer can name others that never answer, and each such dial takes its place for seconds. So peers
of which the node knows better do not wait for those, and what one network prefix told takes a
quarter of the places: it cannot keep the node from peers that others named (docs/spec/threats.md,
Budgets).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import trio

from pulsarcast.network.host import DialError

DIALS_MAX: Final = 16
"""Dials at a time, of each kind."""
DIALS_PER_NAMER_MAX: Final = 4
"""Of those, dials of peers that one network prefix named."""
WAITING_DIALS_MAX: Final = 64
"""How many more of these wait for a place: what comes later fails, and is tried again."""


class Dials:
    """The places for direct dials."""

    def __init__(self) -> None:
        self._sure = trio.CapacityLimiter(DIALS_MAX)
        self._hearsay = trio.CapacityLimiter(DIALS_MAX)
        self._by_namer: dict[str, trio.CapacityLimiter] = {}

    @asynccontextmanager
    async def place(self, namer: str | None) -> AsyncIterator[None]:
        """Wait for a place: of a peer that the node knows (None), or that a namer told of."""
        if namer is None:
            async with self._sure:
                yield
            return
        of_namer = self._by_namer.get(namer)
        if of_namer is None:
            of_namer = self._by_namer[namer] = trio.CapacityLimiter(DIALS_PER_NAMER_MAX)
        if of_namer.statistics().tasks_waiting >= WAITING_DIALS_MAX:
            raise DialError("too many peers that were named together wait to be dialled")
        try:
            async with of_namer, self._hearsay:
                yield
        finally:
            statistics = of_namer.statistics()
            if not statistics.borrowed_tokens and not statistics.tasks_waiting:
                self._by_namer.pop(namer, None)
