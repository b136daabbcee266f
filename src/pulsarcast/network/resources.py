"""Resources: what strangers may take of a node, and who loses it first where it runs out.

Connections that shake hands, connections, and the bytes that these hold are bounded in all
(docs/spec/threats.md, Budgets; docs/decisions/0064). Nothing is refused as long as there is room.
Where there is none, what is cheapest to lose goes first: what nobody relies on, of the network
prefix (the place) that takes most. So one place cannot keep out another, however many identities it
has, and many honest peers at one place are as welcome as any while nobody else needs the room.
"""

from __future__ import annotations

import enum
import resource
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final, NamedTuple, TypeVar

import trio

HANDSHAKES_MAX: Final = 256
"""Connections that are not authenticated yet: some 5 MB. Further ones wait in the kernel's line."""
LATE_S: Final = 1.0
"""A handshake that brought nothing for this long may lose its place: longer than the worst round
trip of the thesis, 800 ms."""
LONG_S: Final = 3.0
"""So may one that takes this long, whatever it brings: three such round trips and a slow turn."""
CONNECTIONS_MAX: Final = 1024
"""Authenticated connections: 20 KB each, so 20 MB, while they are idle."""
EVICTED_AT_ONCE: Final = 16
"""Connections that are closed together to make room: finding them takes a millisecond."""
HELLO_GRACE_S: Final = 2.0
"""How long a connection without a Hello is worth as much as one that has said it."""
NOTED_BYTES: Final = 128 * 1024
"""A connection that holds less is not counted: what 1,024 of them may hold is in the kernel."""
STRANGERS_BYTES_MAX: Final = 16 * 1024 * 1024
"""What peers that the node does not rely on may have it hold: frames of theirs that are not whole,
and answers that they do not take. Four of the largest frames."""
CHILDREN_BYTES_MAX: Final = 24 * 1024 * 1024
"""The same for those that the node serves in topics, since any stranger can become one: what a
dozen of them ask for at most while they recover over narrow lines."""
HELD_BYTES_MAX: Final = 256 * 1024 * 1024
"""The same for all peers together: thirty neighbours that are full (`FULL_BYTES`)."""

FAULTS_MAX: Final = 8
"""Bad signatures and broken descriptors that cost a peer its connection: an honest peer checks what
it passes on, and makes none."""
FAULTS_S: Final = 60.0
"""Within how long they count, and for how long the peer's place is watched afterwards."""
WATCHED_APART_S: Final = 0.5
"""How far apart handshakes of such a place begin: a new identity costs as much as ten faults."""
WATCHED_MAX: Final = 1024
"""Bounds the places that are watched; the one at fault longest ago goes first."""
TURN_S: Final = 0.002
"""How long a node reads what one stranger sent before others have their turn: an honest peer waits
for one such turn, a fifth of 10 ms, and for what it brings about."""
SHORT_TURN_S: Final = 0.0005
"""A peer whose turn is shorter does not wait for the next one."""
SLICE_FRAMES: Final = 4
"""Frames that are taken together before the clock is looked at."""


class Worth(enum.IntEnum):
    """What a connection is worth to the node."""

    SILENT = 0
    """It is open for a while, and has not said Hello."""
    STRANGER = 1
    """Its peer dialled the node."""
    DIALLED = 2
    """The node dialled its peer, or holds it for a service."""
    SERVED = 3
    """Its peer is a neighbour in a topic: topics have room for few of these."""
    RELIED_ON = 4
    """Its peer serves the node in a topic, or the operator named it: it is never closed to make
    room."""


class Claim(NamedTuple):
    """What speaks for a connection."""

    worth: Worth
    used_s: float
    place: str


class Why(enum.StrEnum):
    """Which budget of a connection, or of all, ran out."""

    HANDSHAKES = "handshakes"
    CONNECTIONS = "connections"
    BYTES = "bytes"
    FAULTS = "faults"


Each = TypeVar("Each")


def cheapest(claims: Mapping[Each, Claim], count: int) -> list[Each]:
    """Whom to close: the least worth, of the most crowded place, that was used longest ago."""
    chosen: list[Each] = []
    for worth in (each for each in Worth if each is not Worth.RELIED_ON):
        places: dict[str, list[Each]] = {}
        for each, claim in sorted(claims.items(), key=_newest_first):
            if claim.worth is worth:
                places.setdefault(claim.place, []).append(each)
        while places and len(chosen) < count:
            # Of two places alike the one whose oldest connection was used longer ago.
            place = max(places, key=lambda it: (len(places[it]), -claims[places[it][-1]].used_s))
            chosen.append(places[place].pop())
            if not places[place]:
                del places[place]
    return chosen


def _newest_first(item: tuple[object, Claim]) -> float:
    return -item[1].used_s


def heaviest(held: Mapping[Each, int], place_of: Callable[[Each], str]) -> Each:
    """Whose bytes to drop: the most of the place that holds most."""
    by_place: Counter[str] = Counter()
    for each, size in held.items():
        by_place[place_of(each)] += size
    return max(held, key=lambda each: (by_place[place_of(each)], held[each]))


class Handshake:
    """A connection that is not authenticated yet."""

    __slots__ = ("began_s", "moved_s", "place", "scope")

    def __init__(self, place: str) -> None:
        self.place = place
        self.scope = trio.CancelScope()
        self.began_s = self.moved_s = trio.current_time()

    def moved(self) -> None:
        """It brought something."""
        self.moved_s = trio.current_time()

    @property
    def late_s(self) -> float:
        """From when on it may lose its place."""
        return min(self.moved_s + LATE_S, self.began_s + LONG_S)


def _late_s(handshake: Handshake) -> float:
    return handshake.late_s


class Handshakes:
    """Those under way; where there are too many, the next one waits in line for a place."""

    def __init__(self, count_max: int, cut_off: Counter[Why]) -> None:
        self._count_max = count_max
        self._cut_off = cut_off
        self._places: dict[str, dict[Handshake, None]] = {}
        self._count = 0
        self._ended = trio.Event()
        self._watched: dict[str, tuple[float, float]] = {}
        """Places of peers at fault: until when, and when the next handshake may begin."""

    def __len__(self) -> int:
        return self._count

    async def enter(self, place: str) -> Handshake:
        """Take a place, another's if need be, or wait until one is free or may be taken.

        The newcomer of a less crowded network prefix does not wait.
        """
        while self._count >= self._count_max:
            now_s = trio.current_time()
            crowded = max(self._places.values(), key=len)
            victim = min(crowded, key=_late_s)
            is_fair = len(crowded) > len(self._places.get(place, ())) + 1
            if is_fair or victim.late_s <= now_s:
                self._cut_off[Why.HANDSHAKES] += 1
                victim.scope.cancel()
                self.leave(victim)
            else:
                with trio.move_on_at(victim.late_s):
                    await self._ended.wait()
        handshake = Handshake(place)
        self._places.setdefault(place, {})[handshake] = None
        self._count += 1
        return handshake

    def watch(self, place: str) -> None:
        """A peer of this place was at fault."""
        now_s = trio.current_time()
        _, next_s = self._watched.pop(place, (now_s, now_s))
        self._watched[place] = (now_s + FAULTS_S, next_s)
        if len(self._watched) > WATCHED_MAX:
            del self._watched[next(iter(self._watched))]

    def begin_s(self, place: str) -> float:
        """When a handshake of this place may begin: now, but for a place that is watched."""
        now_s = trio.current_time()
        until_s, next_s = self._watched.get(place, (now_s, now_s))
        if until_s <= now_s:
            self._watched.pop(place, None)
            return now_s
        begin_s = max(now_s, next_s)
        self._watched[place] = (until_s, begin_s + WATCHED_APART_S)
        return begin_s

    def leave(self, handshake: Handshake) -> None:
        """Give a place back; twice is as good."""
        of_place = self._places.get(handshake.place, {})
        if handshake in of_place:
            del of_place[handshake]
            if not of_place:
                del self._places[handshake.place]
            self._count -= 1
            self._ended.set()
            self._ended = trio.Event()


class Turns:
    """The time of a node: strangers that send much take turns, and no more than half of it.

    Places take turns, and of a place its connections: a thousand of one place have one's time.
    """

    def __init__(self) -> None:
        self._is_taken = False
        self._lines: dict[str, deque[trio.Event]] = {}
        """Who waits, by place; the one whose turn is next comes first."""

    @asynccontextmanager
    async def next(self, place: str, took_s: float) -> AsyncIterator[None]:
        """Wait in line for a turn, after one that took so long; all others come in between."""
        if self._is_taken:
            await self._wait(place)
        self._is_taken = True
        try:
            await trio.sleep(took_s if self._lines else 0.0)
            yield
        finally:
            self._pass_on()

    async def _wait(self, place: str) -> None:
        called = trio.Event()
        line = self._lines.setdefault(place, deque())
        line.append(called)
        try:
            await called.wait()
        except trio.Cancelled:
            if called.is_set():
                self._pass_on()
            else:
                line.remove(called)
                if not line:
                    del self._lines[place]
            raise

    def _pass_on(self) -> None:
        """The next one has its turn."""
        place = next(iter(self._lines), None)
        self._is_taken = place is not None
        if place is not None:
            line = self._lines.pop(place)
            line.popleft().set()
            if line:
                self._lines[place] = line


class Resources:
    """The budgets of one host."""

    def __init__(
        self, handshakes_max: int = HANDSHAKES_MAX, connections_max: int = CONNECTIONS_MAX
    ) -> None:
        files_max, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if files_max >= 0:
            # Files of its own, and programs at its ports, have the rest.
            handshakes_max = min(handshakes_max, files_max // 4)
            connections_max = min(connections_max, files_max // 2)
        self.cut_off: Counter[Why] = Counter()
        """Connections that were closed, by the budget that ran out."""
        self.handshakes = Handshakes(handshakes_max, self.cut_off)
        self.connections_max = connections_max
        self.turns = Turns()
