"""Dials under way: peers whose addresses only others told have places of their own.

A peer can name others that never answer, and each such dial takes its place for seconds. So peers
of which the node knows better do not wait for those, and the network prefixes that named the others
share the places (docs/spec/threats.md, Budgets). One has all of them while no other names anybody;
where another does, a dial of the prefix with the most of them makes way, and waits in line again.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import trio

from pulsarcast.network.host import DialError
from pulsarcast.network.link import Link

DIALS_MAX: Final = 16
"""Dials at a time, of each kind."""
WAITING_DIALS_MAX: Final = 64
"""How many more of peers that one network prefix named wait for a place: what comes later fails,
and is tried again."""
PATIENT_S: Final = 2.0
"""How long a dial keeps its place, where prefixes that have no more of them wait: four round trips
of half a second. One that had so long does not wait again."""

Dial: TypeAlias = Callable[[], Awaitable[Link]]


class _Place:
    """The place of a dial that is under way."""

    __slots__ = ("began_s", "namer", "scope")

    def __init__(self, namer: str) -> None:
        self.namer = namer
        self.scope = trio.CancelScope()
        self.began_s = trio.current_time()


class Dials:
    """The places for direct dials."""

    def __init__(self) -> None:
        self._sure = trio.CapacityLimiter(DIALS_MAX)
        self._taken: dict[_Place, None] = {}
        """The one that began first comes first."""
        self._lines: dict[str, deque[object]] = {}
        """Who waits, by namer; where two have as many dials, the first one is next."""
        self._moved = trio.Event()
        """Set, and replaced, when places or lines change."""

    async def run(self, namer: str | None, dial: Dial) -> Link:
        """Dial a peer that the node knows (None), or that a namer told of."""
        if namer is None:
            async with self._sure:
                return await dial()
        if len(self._lines.get(namer, ())) >= WAITING_DIALS_MAX:
            raise DialError("too many peers that were named together wait to be dialled")
        while True:
            place = await self._enter(namer)
            try:
                with place.scope:
                    link = await dial()
            finally:
                self._leave(place)
            if not place.scope.cancelled_caught:
                return link
            if trio.current_time() >= place.began_s + PATIENT_S:
                raise DialError("no answer while peers that others named waited to be dialled")

    async def _enter(self, namer: str) -> _Place:
        """Wait in line for a place."""
        me = object()
        line = self._lines.setdefault(namer, deque())
        line.append(me)
        try:
            await trio.lowlevel.checkpoint()
            while (due_s := self._due_s(namer, me)) > trio.current_time():
                moved = self._moved
                with trio.move_on_at(due_s):
                    await moved.wait()
        finally:
            line.remove(me)
            del self._lines[namer]
            if line:
                self._lines[namer] = line
            self._say_moved()
        if len(self._taken) >= DIALS_MAX:
            victim = self._first_of_most()
            victim.scope.cancel()
            self._leave(victim)
        place = _Place(namer)
        self._taken[place] = None
        return place

    def _due_s(self, namer: str, me: object) -> float:
        """When one in line can have a place, as it looks now."""
        if self._lines[namer][0] is not me or min(self._lines, key=self._count) != namer:
            return math.inf
        if len(self._taken) < DIALS_MAX:
            return -math.inf
        victim = self._first_of_most()
        is_unfair = self._count(victim.namer) > self._count(namer) + 1
        return -math.inf if is_unfair else victim.began_s + PATIENT_S

    def _first_of_most(self) -> _Place:
        """The dial that makes way: the one that began first, of the namer with the most."""
        return max(self._taken, key=lambda place: (self._count(place.namer), -place.began_s))

    def _count(self, namer: str) -> int:
        return sum(place.namer == namer for place in self._taken)

    def _leave(self, place: _Place) -> None:
        """Give a place back; twice is as good."""
        if place in self._taken:
            del self._taken[place]
            self._say_moved()

    def _say_moved(self) -> None:
        moved, self._moved = self._moved, trio.Event()
        moved.set()
