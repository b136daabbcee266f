"""A turn: the handling of one input, in which the parts of a node collect its effects.

Parts ask for effects by calling a turn's methods; the driver gets the effects at the end, in that
order. Time, chance and identity come from here and from nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from hashlib import blake2b
from random import Random
from typing import NamedTuple, TypeAlias, TypeVar

from pulsarcast.model import trace
from pulsarcast.model.identity import Identity
from pulsarcast.model.ids import PeerId
from pulsarcast.protocol.effects import Effect, Load, Persist, Send, SetTimer, Trace
from pulsarcast.protocol.messages import Message
from pulsarcast.protocol.store import Answer, Keep, Query, Write

Then: TypeAlias = Callable[[], None]
Kept: TypeAlias = Callable[[bool], None]
AnswerT = TypeVar("AnswerT", bound=Answer)


WAITING_MAX = 64
"""Bounds the answers that wait for room on one peer's link."""


class Backlog(NamedTuple):
    """What waits for room on a full link."""

    since_s: float
    then: list[Then]


class Turn:
    """Collects effects, and keeps the continuations that run when the driver answers them."""

    def __init__(self, identity: Identity, rng: Random) -> None:
        self.identity = identity
        self.me: PeerId = identity.peer_id
        self.rng = rng
        self.now = 0.0
        self.wall_us = 0
        self.effects: list[Effect] = []
        self.full: dict[PeerId, Backlog] = {}
        """The peers for which much waits on their links already."""
        self._token = 0
        self._timers: dict[int, Then] = {}
        self._loads: dict[int, Callable[[Answer], None]] = {}
        # A list, as in other parts that mostly have nothing to do: an empty deque takes 0.7 kB.
        self._syncs: list[tuple[int, Then]] = []
        self._left_out: Collection[int] = ()
        """What the disk has just left out, while syncs run."""
        self._ends: list[Then] = []

    def new_id(self) -> int:
        """A number that this node has not used before."""
        self._token += 1
        return self._token

    def new_secret(self) -> int:
        """A number that no peer can guess, even if it has seen earlier ones.

        The generator's bits alone would not do: a peer that sees enough of them can predict the
        next.
        """
        return int.from_bytes(blake2b(self.rng.randbytes(16), digest_size=7).digest())

    def send(self, peer: PeerId, message: Message) -> None:
        """Send a message to a peer."""
        self.effects.append(Send(peer, message))

    def trace(self, record: trace.Record) -> None:
        """Write a record into the trace."""
        self.effects.append(Trace(record))

    def after(self, delay_s: float, then: Then) -> int:
        """Run `then` after a delay; returns the timer, for `cancel`."""
        self._token += 1
        self._timers[self._token] = then
        self.effects.append(SetTimer(self._token, delay_s))
        return self._token

    def cancel(self, timer: int | None) -> None:
        """Cancel a timer: its firing does nothing."""
        if timer is not None:
            self._timers.pop(timer, None)

    def jitter(self, delay_s: float) -> float:
        """Spread a delay by a quarter either way, so that peers do not act in step."""
        return delay_s * (0.75 + 0.5 * self.rng.random())

    def when_room(self, peer: PeerId, then: Then) -> None:
        """Run `then` once a peer's link is not full; beyond a bound it is left out."""
        waiting = self.full.get(peer)
        if waiting is None:
            then()
        elif len(waiting.then) < WAITING_MAX:
            waiting.then.append(then)

    def filled(self, peer: PeerId) -> None:
        """Much waits on a peer's link."""
        self.full.setdefault(peer, Backlog(self.now, []))

    def freed(self, peer: PeerId) -> None:
        """What waited on a peer's link has left."""
        backlog = self.full.pop(peer, None)
        for then in () if backlog is None else backlog.then:
            self.when_room(peer, then)

    def persist(self, *writes: Write, then: Then | None = None) -> None:
        """Write to disk; `then` runs once it is synced."""
        self._token += 1
        self.effects.append(Persist(self._token, writes))
        if then is not None:
            self._syncs.append((self._token, then))

    def keep(self, *writes: Write, place: str = "", then: Kept | None = None) -> None:
        """Write for a stranger at a place; `then` hears whether it is synced, or was left out."""

        def settled(kept: list[bool]) -> None:
            if then is not None:
                then(all(kept))

        self.keep_each([writes], place=place, then=settled)

    def keep_each(
        self,
        each: Iterable[tuple[Write, ...]],
        *,
        place: str,
        then: Callable[[list[bool]], None],
    ) -> None:
        """The same for several writes, each of which may be left out alone."""
        keeps = tuple(Keep(self.new_id(), place, writes) for writes in each)
        token = keeps[-1].token
        self.effects.append(Persist(token, keeps))

        def settled() -> None:
            then([keep.token not in self._left_out for keep in keeps])

        self._syncs.append((token, settled))

    def load(self, query: Query, kind: type[AnswerT], then: Callable[[AnswerT], None]) -> None:
        """Read from disk; `then` runs with the answer, which is of the given kind."""
        self._token += 1
        self.effects.append(Load(self._token, query))

        def check(answer: Answer) -> None:
            assert isinstance(answer, kind), f"{query} was answered with {answer}"
            then(answer)

        self._loads[self._token] = check

    def at_end(self, then: Then) -> None:
        """Run `then` once the input is handled: for what one message may say of many things."""
        self._ends.append(then)

    def end(self) -> None:
        """The input is handled."""
        while self._ends:
            ends, self._ends = self._ends, []
            for then in ends:
                then()

    def footprint(self) -> dict[str, int]:
        """How many timers, loads and syncs wait for the driver."""
        return {
            "timers": len(self._timers),
            "loads": len(self._loads),
            "syncs": len(self._syncs),
        }

    def fired(self, timer: int) -> None:
        """A timer has fired."""
        then = self._timers.pop(timer, None)
        if then is not None:
            then()

    def loaded(self, token: int, answer: Answer) -> None:
        """The disk has answered a query."""
        then = self._loads.pop(token, None)
        if then is not None:
            then(answer)

    def persisted(self, token: int, left_out: Collection[int] = ()) -> None:
        """All up to `token` but these is synced: syncs come in the order of the writes."""
        self._left_out = left_out
        while self._syncs and self._syncs[0][0] <= token:
            self._syncs.pop(0)[1]()
        self._left_out = ()

    def persist_failed(self, token: int) -> None:
        """The disk refused a write: drop the continuations of it and of all later ones."""
        while self._syncs and self._syncs[-1][0] >= token:
            self._syncs.pop()
