"""What can be done to the nodes of a testbed in the background, and to the network between them.

All of it stands in the load driver's trace, under the simulator's names: the checkers know those.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, assert_never

from pulsarcast.model.errors import LocalError
from pulsarcast.testbed.control.book import parse_nodes
from pulsarcast.testbed.control.messages import Hit, Reported
from pulsarcast.testbed.fleet import Death
from pulsarcast.testbed.proxies import Delay, Proxies, parse_delay
from pulsarcast.testbed.sessions import Session

POLL_S: Final = 0.05
S_MAX: Final = 60.0
"""How long a node may take to stop, or to be back."""
_FOR_GOOD: Final = ("start", "resume", "heal")


class HandFaults:
    """Faults by hand: for so long, or until they are undone."""

    def __init__(self, session: Session) -> None:
        self.paused: dict[int, None] = {}
        self.cut: list[int] = []
        self._everywhere = session.options.delay or Delay()
        self._delays: dict[int, Delay] = {}
        """Of nodes that have one of their own."""
        self._session = session
        self._fleet = session.fleet
        self._nodes = session.callers.fleet
        self._rounds: dict[str, int] = {}
        """How often something was done: what is undone later must not undo something newer."""
        self._fleet.on_death(self._forget)

    @property
    def latency(self) -> str:
        """How late what comes in arrives: at some nodes, or at all."""
        nodes: dict[str, list[str]] = {}
        for index, delay in sorted(self._delays.items()):
            nodes.setdefault(str(delay), []).append(str(index))
        own = [f"{delay} at {','.join(those)}" for delay, those in nodes.items()]
        return "; ".join(own) or str(self._everywhere)

    def absent(self) -> set[int]:
        """Who cannot be given anything now."""
        return {i for i in range(self._session.size) if self.state_of(i) != "up"}

    def state_of(self, index: int) -> str:
        """How a node is: up, paused, down, or on its way up or down."""
        if index in self.paused:
            return "paused"
        if self._nodes.is_ready(index):
            return "up"
        return "down" if self._nodes.is_gone(index) else "coming"

    def hit(self, asked: Hit, tell: Callable[[Reported], None]) -> None:
        """Do something to nodes, or to the network; `tell` hears when it is done."""
        indices, for_s = parse_nodes(asked.nodes, self._session.size), asked.for_s
        if for_s is not None and asked.action in _FOR_GOOD:
            raise LocalError(f"{asked.action} is for good: it takes no time")
        if asked.latency is not None and asked.action != "latency":
            raise LocalError(f"{asked.action} takes no latency: testbed fault latency")
        if asked.action == "heal" and len(indices) < self._session.size:
            raise LocalError("heal is for everyone: there is one cut at a time")
        match asked.action:
            case "kill":
                for index in indices:
                    self._nodes.kill(index, down_s=for_s)
                self._when(lambda: True, indices, tell)
            case "stop":
                lives = {index: self._fleet.life(index) for index in indices}
                for index in indices:
                    self._resume(index)  # or it could not hear that it is to stop
                    self._nodes.stop(index, down_s=for_s)
                # Who comes back soon may be there again before we look.
                self._when(lambda: all(self._ended(i, lives[i]) for i in indices), indices, tell)
            case "start":
                for index in indices:
                    self._nodes.start(index)
                self._when(lambda: all(map(self._nodes.is_ready, indices)), indices, tell)
            case "pause":
                for index in indices:
                    self._pause(index)
                    self._undo_later(f"pause {index}", for_s, partial(self._resume, index))
                self._when(lambda: True, indices, tell)
            case "resume":
                for index in indices:
                    self._resume(index)
                self._when(lambda: True, indices, tell)
            case "cut":
                self._cut(indices)
                self._undo_later("cut", for_s, self._heal)
                tell(Reported({"cut": self.cut}))
            case "heal":
                self._heal()
                tell(Reported({"cut": self.cut}))
            case "latency":
                self._slow(asked, indices)
                tell(Reported({"latency": self.latency}))
            case _ as unreachable:
                assert_never(unreachable)

    def _ended(self, index: int, life: int) -> bool:
        return not self._fleet.is_up(index) or self._fleet.life(index) > life

    def _pause(self, index: int) -> None:
        if self.state_of(index) == "up":
            self._nodes.tell("pause", index)
            self._fleet.pause(index)
            self.paused[index] = None

    def _resume(self, index: int) -> None:
        if index in self.paused:
            del self.paused[index]
            self._nodes.tell("resume", index)
            self._fleet.resume(index)

    def _forget(self, death: Death) -> None:
        self.paused.pop(death.node, None)

    def _cut(self, indices: list[int]) -> None:
        if len(indices) == self._session.size:
            raise LocalError("name those who are to be cut off from the others")
        self._need_proxies()
        self._nodes.cut(indices)
        self.cut = indices

    def _heal(self) -> None:
        self._need_proxies()
        self._nodes.heal()
        self.cut = []

    def _slow(self, asked: Hit, indices: list[int]) -> None:
        if asked.latency is None:
            raise LocalError("say which: --latency 500ms~300ms, or 0ms to take it away")
        self._become(parse_delay(asked.latency), indices)
        usual = self._session.options.delay or Delay()
        rounds = {index: self._begin_round(f"latency {index}") for index in indices}

        def act() -> None:
            still = [i for i in indices if self._rounds[f"latency {i}"] == rounds[i]]
            if still:
                self._become(usual, still)

        if asked.for_s is not None:
            self._fleet.after(asked.for_s, act)

    def _become(self, delay: Delay, indices: list[int]) -> None:
        proxies = self._need_proxies()
        if len(indices) == self._session.size:
            self._everywhere = delay
            self._delays.clear()
            proxies.slow(delay)
        else:
            self._delays |= dict.fromkeys(indices, delay)
            proxies.slow(delay, indices)
        if delay == self._everywhere:
            for index in indices:
                self._delays.pop(index, None)
        self._nodes.tell("latency", None, self.latency)

    def _need_proxies(self) -> Proxies:
        if self._fleet.proxies is None:
            raise LocalError("this needs proxies, which only nodes of ours can have")
        return self._fleet.proxies

    def _begin_round(self, what: str) -> int:
        self._rounds[what] = self._rounds.get(what, 0) + 1
        return self._rounds[what]

    def _undo_later(self, what: str, for_s: float | None, undo: Callable[[], None]) -> None:
        now = self._begin_round(what)

        def act() -> None:
            if self._rounds[what] == now:
                undo()

        if for_s is not None:
            self._fleet.after(for_s, act)

    def _when(
        self, done: Callable[[], bool], indices: list[int], tell: Callable[[Reported], None]
    ) -> None:
        """Say how nodes are as soon as it is done, or has taken too long."""
        left_s = S_MAX

        def look() -> None:
            nonlocal left_s
            left_s -= POLL_S
            over = done()
            if over or left_s <= 0:
                rows = [{"node": index, "state": self.state_of(index)} for index in indices]
                tell(Reported({}, rows, ok=over))
            else:
                self._fleet.after(POLL_S, look)

        look()
