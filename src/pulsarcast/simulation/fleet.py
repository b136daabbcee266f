"""The fleet: the nodes of a run as their operator and their applications see them.

`World` knows processes, links and disks. The fleet adds what stands around them: who is up, down
or gone for good, commands that survive a crash of the node they were given to, and telling the
observer whenever a fault changes what may be expected. Every fault of a scenario goes through it.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from pulsarcast.model import trace
from pulsarcast.model.ids import PeerId, peer_text
from pulsarcast.protocol.effects import Reply
from pulsarcast.protocol.inputs import Command
from pulsarcast.protocol.turn import Turn
from pulsarcast.simulation.observer import Memory, Observer
from pulsarcast.simulation.places import Place
from pulsarcast.storage.memory import MemoryStore

CommandFactory: TypeAlias = Callable[[int], Command]


class Stage(Protocol):
    """What the fleet needs of a simulated world: `World`, or a test's own."""

    @property
    def now(self) -> float:
        """Simulated seconds since the start."""

    def add_node(self, *, contacts: Sequence[int] = (), place: Place | None = None) -> int:
        """Start a new node."""

    def add_down(self, count: int, /) -> range:
        """Add nodes that are down."""

    def peer(self, index: int, /) -> PeerId:
        """A node's peer id."""

    def command(
        self, index: int, make: CommandFactory, then: Callable[[Reply], None] | None, /
    ) -> None:
        """Give a node a command; `then` hears its reply, unless the node goes down first."""

    def after(self, delay_s: float, act: Callable[[], None], /) -> None:
        """Do something later."""

    def kill(self, index: int, /) -> None:
        """SIGKILL."""

    def restart(self, index: int, keep_disk: bool, /) -> None:
        """Start a killed node again."""

    def lose(self, index: int, /) -> None:
        """Kill for good."""

    def pause(self, index: int, /) -> None:
        """SIGSTOP."""

    def resume(self, index: int, /) -> None:
        """SIGCONT."""

    def cut(self, groups: Sequence[set[int]], /) -> None:
        """Part the network."""

    def heal(self) -> None:
        """Join it again."""

    def reset(self, a: int, b: int, /) -> None:
        """Break one connection."""

    def move(self, index: int, place: Place, /) -> None:
        """Give a node another address, or another firewall."""

    def node(self, index: int, /) -> Any:
        """The core of a node that is up."""

    def set_clock(self, index: int, offset_s: float, drift_ppm: float, /) -> None:
        """Set a node's clock wrong."""

    def disk_full(self, index: int, full: bool, /) -> None:
        """Let a node's disk refuse writes, or take them again."""

    def store(self, index: int, /) -> MemoryStore:
        """What is on a node's disk for good."""

    def roll_back(self, index: int, disk: MemoryStore, /) -> None:
        """Start a killed node from an older copy of its disk."""


class Unanswered(enum.Enum):
    """Why a command has no reply."""

    GONE = "the node is lost for good"
    LATE = "patience has run out"


Answer: TypeAlias = Reply | Unanswered
Note: TypeAlias = Callable[[trace.Record], None]


class DiskCopy(NamedTuple):
    """A node's disk as it was, and what its applications had got by then."""

    disk: MemoryStore
    memory: Memory


class _Life(enum.Enum):
    UP = enum.auto()
    DOWN = enum.auto()
    GONE = enum.auto()


class _Ask:
    """A command on its way: given again whenever the node starts anew, until it is answered."""

    __slots__ = ("done", "factory", "round", "then")

    def __init__(self, factory: CommandFactory, then: Callable[[Answer], None]) -> None:
        self.factory = factory
        self.then = then
        self.done = False
        self.round = 0
        """Counts the times it was given, so that an answer to an earlier one is not taken twice."""

    def end(self, answer: Answer) -> None:
        """Tell the caller, once."""
        if not self.done:
            self.done = True
            self.then(answer)


class Fleet:
    """All nodes of a run."""

    def __init__(self, stage: Stage, observer: Observer, *, note: Note | None = None) -> None:
        self.stage = stage
        self.observer = observer
        self.size = 0
        self.faults: dict[str, int] = {}
        """How often each kind of fault was done."""
        self.disk_lost: list[Callable[[int], None]] = []
        """Told when a node has started again with an empty disk: its applications begin anew."""
        self._note = note
        self._lives: dict[int, _Life] = {}
        self._starts: dict[int, int] = {}
        self._asks: dict[int, dict[_Ask, None]] = {}

    # Nodes and commands.

    def add(self, *, contacts: Sequence[int] = (), place: Place | None = None) -> int:
        """Start a new node, which first asks these others."""
        index = self.stage.add_node(contacts=contacts, place=place)
        self._count_in(index)
        return index

    def add_down(self, count: int) -> None:
        """Add so many nodes that the scenario starts later, but before it asks anything of them."""
        for index in self.stage.add_down(count):
            self._count_in(index)

    def _count_in(self, index: int) -> None:
        self._lives[index] = _Life.UP
        self._starts[index] = 1
        self._asks[index] = {}
        self.observer.peers[index] = self.stage.peer(index)
        self.size += 1

    def is_up(self, index: int) -> bool:
        """Whether a node can be spoken to now."""
        return self._lives[index] is _Life.UP

    def is_gone(self, index: int) -> bool:
        """Whether a node is lost for good."""
        return self._lives[index] is _Life.GONE

    def life(self, index: int) -> int:
        """How often a node was started."""
        return self._starts[index]

    def living(self) -> list[int]:
        """Nodes that are up."""
        return [index for index, life in self._lives.items() if life is _Life.UP]

    def ask(
        self,
        index: int,
        factory: CommandFactory,
        then: Callable[[Answer], None],
        *,
        patience_s: float | None = None,
    ) -> None:
        """Give a node a command, again if it crashes before it answers."""
        ask = _Ask(factory, then)
        if self.is_gone(index):
            ask.end(Unanswered.GONE)
            return
        self._asks[index][ask] = None
        if patience_s is not None:
            self.stage.after(patience_s, lambda: self._give_up(index, ask))
        if self.is_up(index):
            self._give(index, ask)

    def _give(self, index: int, ask: _Ask) -> None:
        ask.round += 1
        given = ask.round

        def heard(reply: Reply) -> None:
            if ask.round == given and not ask.done:
                self._asks[index].pop(ask, None)
                ask.end(reply)

        self.stage.command(index, ask.factory, heard)

    def _give_up(self, index: int, ask: _Ask) -> None:
        if not ask.done:
            self._asks[index].pop(ask, None)
            ask.end(Unanswered.LATE)

    # Faults.

    def kill(self, index: int, *, down_s: float | None = None, keep_disk: bool = True) -> None:
        """Kill a node that is up, to start again after `down_s`, with its disk or an empty one."""
        if self._lives[index] is not _Life.UP:
            # Whoever took it down first says when it is back, and with what.
            return
        self._tell("kill", index)
        self._lives[index] = _Life.DOWN
        self.observer.killed(index, self.stage.now)
        self.stage.kill(index)
        if down_s is not None:
            self.stage.after(down_s, lambda: self.restart(index, keep_disk=keep_disk))

    def restart(self, index: int, *, keep_disk: bool = True) -> None:
        """Start a killed node again, with its disk or with an empty one."""
        if self._lives[index] is not _Life.DOWN:
            return
        self._tell("restart" if keep_disk else "restart_empty", index)
        if not keep_disk:
            self.observer.disk_lost(index, self.stage.now)
        self._lives[index] = _Life.UP
        self._starts[index] += 1
        self.stage.restart(index, keep_disk)
        for ask in list(self._asks[index]):
            self._give(index, ask)
        if not keep_disk:
            for listener in self.disk_lost:
                listener(index)

    def copy_disk(self, index: int) -> DiskCopy:
        """Copy a node's disk, and whatever its applications keep beside it."""
        return DiskCopy(self.stage.store(index).copy(), self.observer.memory_of(index))

    def roll_back(self, index: int, copy: DiskCopy) -> None:
        """Start a killed node again, applications included, from what it was earlier."""
        if self._lives[index] is not _Life.DOWN:
            return
        self._tell("roll_back", index)
        self.observer.rolled_back(index, self.stage.now, copy.memory)
        self._lives[index] = _Life.UP
        self._starts[index] += 1
        self.stage.roll_back(index, copy.disk)
        for ask in list(self._asks[index]):
            self._give(index, ask)

    def lose(self, index: int) -> None:
        """Lose a node for good, disk and all."""
        if self._lives[index] is _Life.GONE:
            return
        self._tell("lose", index)
        self._lives[index] = _Life.GONE
        self.observer.disk_lost(index, self.stage.now)
        self.stage.lose(index)
        asks, self._asks[index] = self._asks[index], {}
        for ask in asks:
            ask.end(Unanswered.GONE)

    def pause(self, index: int) -> None:
        """Stop a node's process; it does not know."""
        if self.is_up(index):
            self._tell("pause", index)
            self.stage.pause(index)

    def resume(self, index: int) -> None:
        """Let a paused node go on."""
        if self.is_up(index):
            self._tell("resume", index)
            self.stage.resume(index)

    def cut(self, groups: Sequence[set[int]]) -> None:
        """Part the network into groups that cannot reach each other."""
        self._tell("cut", None, " | ".join(str(sorted(group)) for group in groups))
        self.stage.cut(groups)

    def heal(self) -> None:
        """Join a parted network again."""
        self._tell("heal", None)
        self.stage.heal()

    def reset(self, a: int, b: int) -> None:
        """Break the connection between two nodes; what was on its way is lost."""
        self._tell("reset", a, f"to node {b}")
        self.stage.reset(a, b)

    def move(self, index: int, place: Place) -> None:
        """Give a node another address, or another firewall."""
        if not self.is_gone(index):
            self._tell("move", index, "public" if place.is_public else "private")
            self.stage.move(index, place)

    def turn_hostile(self, index: int, hostile: set[Turn]) -> None:
        """Count a running node among the hostile ones, until it is started again."""
        if self.is_up(index):
            self._tell("hostile", index)
            hostile.add(self.stage.node(index).turn)

    def set_clock(self, index: int, *, offset_s: float, drift_ppm: float) -> None:
        """Set a node's clock wrong."""
        self._tell("clock", index, f"{offset_s:+.3f} s, {drift_ppm:+.1f} ppm")
        self.stage.set_clock(index, offset_s, drift_ppm)

    def disk_full(self, index: int, *, full: bool) -> None:
        """Let a node's disk refuse all writes, or take them again."""
        self._tell("disk_full" if full else "disk_free", index)
        self.stage.disk_full(index, full)

    def _tell(self, action: str, index: int | None, detail: str = "") -> None:
        self.faults[action] = self.faults.get(action, 0) + 1
        if self._note is not None:
            target = "network" if index is None else peer_text(self.stage.peer(index))
            life = None if index is None else self._starts[index]
            self._note(trace.Fault(action, target, detail, life))
