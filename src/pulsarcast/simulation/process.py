"""A process: one life of a node, from its start to its end, and the driver of the core in it.

This is the whole of the driver: hand the core an input and the time, carry out the effects it
returns, in order. Everything that happens to the process waits while it is paused, and is
forgotten once it is gone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, assert_never

from pulsarcast.model import trace
from pulsarcast.model.errors import RemoteError, Verdict
from pulsarcast.model.ids import PeerId
from pulsarcast.model.reach import Reach
from pulsarcast.protocol.effects import (
    Deliver,
    DialBack,
    DropPeer,
    Effect,
    Ended,
    Know,
    Load,
    Persist,
    Reply,
    Send,
    SetTimer,
    Stopped,
    Trace,
)
from pulsarcast.protocol.inputs import Command, Input, Now, TimerFired
from pulsarcast.simulation.clocks import NodeClock
from pulsarcast.simulation.disk import Disk, DiskModel
from pulsarcast.simulation.lines import Line
from pulsarcast.simulation.loop import Loop
from pulsarcast.simulation.network import Network
from pulsarcast.storage.memory import MemoryStore

TIMER_LATE_S = 1e-6
"""Timers fire a little late, as real ones do: never a rounding error before their time."""


class Core(Protocol):
    """What a process asks of a node."""

    @property
    def reach(self) -> Reach:
        """What the node knows of its own reach."""

    def handle(self, given: Input, now: Now) -> list[Effect]:
        """Take one input, return what has to be done, in order."""


class Recorder(Protocol):
    """Whoever is told what nodes say they did: checkers, a trace, or both."""

    def record(
        self, time_s: float, index: int, incarnation: int, now: Now, record: trace.Record
    ) -> None:
        """Take one record of one node."""


class Process:
    """One incarnation of a node."""

    __slots__ = (
        "_backlog",
        "_handle",
        "_loop",
        "_network",
        "_recorder",
        "_replies",
        "clock",
        "core",
        "disk",
        "incarnation",
        "index",
        "lines",
        "on_stopped",
        "peer",
        "running",
    )

    def __init__(
        self,
        core: Core,
        *,
        index: int,
        peer: PeerId,
        incarnation: int,
        clock: NodeClock,
        store: MemoryStore,
        disk: DiskModel,
        loop: Loop,
        network: Network,
        recorder: Recorder | None,
    ) -> None:
        self.core = core
        self.index = index
        self.peer = peer
        self.incarnation = incarnation
        self.clock = clock
        self.disk = Disk(loop, disk, store, self.take)
        self.lines: dict[PeerId, Line] = {}
        self.running = True
        self.on_stopped: Callable[[], None] | None = None
        self._handle = core.handle
        self._loop = loop
        self._network = network
        self._recorder = recorder
        self._replies: dict[int, Callable[[Reply], None]] = {}
        # What came while it was paused; None once it is gone, when nothing waits any more.
        self._backlog: list[tuple[Callable[[Any], None], Any]] | None = []

    def take(self, given: Input) -> None:
        """Handle an input now, or once it runs again."""
        if not self.running:
            self.hold(self.take, given)
            return
        now = self.clock.read(self._loop.now)
        effects = self._handle(given, now)
        if effects:
            self.carry_out(effects, now)

    def carry_out(self, effects: list[Effect], now: Now) -> None:
        """Do what the core wants, in order."""
        loop = self._loop
        lines = self.lines
        # Nothing in a method of its own: this is the hottest loop there is.
        for effect in effects:
            # Not a `match`: it would take longer. The frequent ones come first.
            if isinstance(effect, Send):
                line = lines.get(effect.peer)
                if line is None:
                    line = self._network.dial(self, effect.peer)
                line.send(effect.message)
            elif isinstance(effect, SetTimer):
                delay_s = self.clock.lasts_s(effect.delay_s) + TIMER_LATE_S
                loop.after(delay_s, self.take, TimerFired(effect.timer))
            elif isinstance(effect, Load):
                self.disk.load(effect)
            elif isinstance(effect, Persist):
                self.disk.persist(effect)
            elif isinstance(effect, (Deliver, Trace)):
                if self._recorder is not None:
                    self._recorder.record(
                        loop.now, self.index, self.incarnation, now, effect.record
                    )
            elif isinstance(effect, Reply):
                self._answer(effect)
            elif isinstance(effect, DropPeer):
                line = lines.get(effect.peer)
                if line is not None and not line.broken:
                    self._network.close(line)
            elif isinstance(effect, DialBack):
                self._network.dial_back(self, effect.peer)
            elif isinstance(effect, Stopped):
                if self.on_stopped is not None:
                    loop.after(0.0, _call, self.on_stopped)
            elif isinstance(effect, (Know, Ended)):
                pass  # every peer of this world can be dialled by its id alone; no reader is here
            else:
                assert_never(effect)

    @property
    def reach(self) -> Reach:
        """What the node tells others of its own reach."""
        return self.core.reach

    def command(self, call: int, command: Command, then: Callable[[Reply], None] | None) -> None:
        """Hand the core a command of its application."""
        if then is not None:
            self._replies[call] = then
        self.take(command)

    def hold(self, act: Callable[[Any], None], given: Any) -> None:
        """Do something once the process runs again; nothing, if it is gone."""
        if self._backlog is not None:
            self._backlog.append((act, given))

    @property
    def gone(self) -> bool:
        """Whether its life is over."""
        return self._backlog is None

    def pause(self) -> None:
        """Stop it in its tracks (SIGSTOP)."""
        self.running = False

    def resume(self) -> None:
        """Let it go on, first with all that came meanwhile (SIGCONT)."""
        if self.running:
            return
        assert self._backlog is not None, "nobody wakes a process that is gone"
        self.running = True
        backlog, self._backlog = self._backlog, []
        for act, given in backlog:
            act(given)

    def end(self) -> None:
        """It is gone, and answers nobody any more."""
        self.running = False
        self._backlog = None

    def blame(self, peer: PeerId, error: RemoteError) -> None:
        """A peer sent what is not allowed: say so in the trace, and end the connection."""
        self.note(trace.Rejected(error.verdict, error.code, peer))
        line = self.lines.get(peer)
        if error.verdict is Verdict.REJECT and line is not None and not line.broken:
            self._network.reset(line)

    def note(self, record: trace.Record) -> None:
        """Write something into the trace that the core does not know: what came over its lines."""
        if self._recorder is not None:
            now = self.clock.read(self._loop.now)
            self._recorder.record(self._loop.now, self.index, self.incarnation, now, record)

    def _answer(self, reply: Reply) -> None:
        then = self._replies.pop(reply.call, None)
        if then is not None:
            # Later in the same instant: callers may do anything, even kill the node that answered.
            self._loop.after(0.0, then, reply)


def _call(act: Callable[[], None]) -> None:
    act()
