"""Faults during a workload: nodes killed, a disk filled, a node stopped, the network cut.

Any of them may happen in one run; no node is hit by two of them. The names in the trace are the
simulator's (`simulation.fleet`), because the checkers know those.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from random import Random
from types import TracebackType
from typing import Final

from pulsarcast.model.errors import LocalError
from pulsarcast.model.ids import Cid
from pulsarcast.simulation.workload_driver import WorkloadDriver
from pulsarcast.testbed.callers import Callers
from pulsarcast.testbed.fleet import Fleet
from pulsarcast.testbed.messages import Answer, Command, Failed, Measure, Measured, Publish
from pulsarcast.testbed.options import RunOptions
from pulsarcast.testbed.small_disk import SmallDisk, may_mount, small_disk

KINDS: Final = {
    "kills": "a fifth of the nodes are killed at spread times, and back 2 to 10 seconds later",
    "full-disk": "the disk of one node is full for a while; then it is freed and started again",
    "stopped": "one node is stopped (SIGSTOP) for a minute",
    "author": "the node with the busiest topic is killed, and back a while later",
    "partition": "a third of the nodes is cut off from the others for a while, then the cut heals",
}
KILLED_SHARE: Final = 0.2
KILLS_FROM: Final = 0.05
KILLS_TO: Final = 0.9
DOWN_S_MIN: Final = 2.0
DOWN_S_MAX: Final = 10.0
STOPPED_AT: Final = 0.25
AUTHOR_AT: Final = 0.3
CUT_SHARE: Final = 1 / 3
CUT_AT: Final = 0.4
FULL_AT: Final = 0.35
HALT_POLL_S: Final = 0.25
HALT_S_MAX: Final = 60.0
"""How long a node with a full disk may take to find that out: it may not have to write."""


class Faults:
    """What goes wrong in one run; as a context, it leaves nothing mounted."""

    def __init__(self, options: RunOptions, size: int) -> None:
        for kind in options.faults:
            if kind not in KINDS:
                raise LocalError(f"no fault {kind!r}; there are: {', '.join(KINDS)}")
        self.full_disk_said: str | None = None
        self.refused_on_full_disk: str | None = None
        """What a caller was told who would have published there."""
        self._options = options
        self._kinds = frozenset(options.faults)
        self._rng = Random(f"faults/{options.seed}")
        self._stack = ExitStack()
        self._full: int | None = None
        self._stopped: int | None = None
        self._killed: list[int] = []
        self._author: int | None = None
        self._cut: list[int] = []
        self._disk: SmallDisk | None = None
        self._callers: Callers | None = None
        self._fleet: Fleet | None = None
        self._spare: tuple[int, Cid | None] = (0, None)
        self._ahead = 0
        """How many have yet to begin, or to end by themselves."""
        if "full-disk" in self._kinds and not may_mount():
            raise LocalError("--faults full-disk needs root: the testbed mounts a small disk")
        if len(self._kinds) >= size:
            raise LocalError(f"{size} nodes are too few for so many faults")

    def __enter__(self) -> Faults:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    def prepare(self, fleet: Fleet, driver: WorkloadDriver) -> None:
        """Choose who is hit, before any node is started."""
        self._fleet = fleet
        left = list(range(fleet.size))
        self._rng.shuffle(left)
        if "full-disk" in self._kinds:
            # Somebody with much to publish, so that there is something to refuse.
            self._full = _busiest_but_the_root(driver)
            left.remove(self._full)
            self._disk = self._stack.enter_context(small_disk(fleet.home_of(self._full)))
        if "author" in self._kinds:
            self._author = driver.busiest_author()
            left.remove(self._author)
        if "partition" in self._kinds:
            self._cut = sorted(left[-max(1, round(CUT_SHARE * fleet.size)) :])
        if "stopped" in self._kinds:
            self._stopped = left.pop(0)
        if "kills" in self._kinds:
            self._killed = left[: max(1, round(KILLED_SHARE * fleet.size))]

    def begin(self, callers: Callers, driver: WorkloadDriver, *, spare_number: int) -> None:
        """Set everything up to happen in the course of the load.

        `spare_number` is of an event that the load does not have: it is offered to a full disk.
        """
        self._callers = callers
        self._spare = spare_number, next(iter(driver.topics.values()), None)
        step = (KILLS_TO - KILLS_FROM) / max(1, len(self._killed))
        for place, index in enumerate(self._killed):
            share = KILLS_FROM + (place + self._rng.random()) * step
            down_s = self._rng.uniform(DOWN_S_MIN, DOWN_S_MAX)
            self._at(driver, share, self._killing(index, down_s))
        if self._stopped is not None:
            self._at(driver, STOPPED_AT, self._pause)
        if self._full is not None:
            self._at(driver, FULL_AT, self._fill)
        if self._author is not None:
            self._at(driver, AUTHOR_AT, self._killing(self._author, self._options.author_down_s))
        if self._cut:
            self._at(driver, CUT_AT, self._separate)

    def are_over(self) -> bool:
        """Whether everything has happened, and everyone is back."""
        return not self._ahead and (self._callers is None or self._callers.fleet.all_are_well)

    def _at(self, driver: WorkloadDriver, share: float, act: Callable[[], None]) -> None:
        self._ahead += 1
        driver.at_share(share, act)

    def _killing(self, index: int, down_s: float) -> Callable[[], None]:
        def act() -> None:
            self._ahead -= 1
            self._hit.fleet.kill(index, down_s=down_s)

        return act

    def _pause(self) -> None:
        assert self._stopped is not None
        self._ahead -= 1
        self._hit.fleet.pause(self._stopped, for_s=self._options.stopped_s)

    def _separate(self) -> None:
        nodes = self._hit.fleet
        nodes.cut(self._cut)

        def heal() -> None:
            self._ahead -= 1
            nodes.heal()

        assert self._fleet is not None
        self._fleet.after(self._options.cut_s, heal)

    # A full disk: fill it, wait until the node says so, let it be for a while, start it again.

    def _fill(self) -> None:
        assert self._full is not None
        assert self._disk is not None
        self._hit.fleet.tell("disk_full", self._full)
        self._disk.fill()
        self._look(HALT_S_MAX)

    def _look(self, patience_s: float) -> None:
        fleet, index = self._fleet, self._full
        assert fleet is not None
        assert index is not None

        def answered(answer: Answer) -> None:
            if isinstance(answer, Measured) and answer.halted is not None:
                self.full_disk_said = self._hit.halted[index] = answer.halted
                self._tempt(index)
                fleet.after(self._options.full_s, self._free)
            elif patience_s <= 0 or not fleet.is_up(index):
                self._free()
            else:
                fleet.after(HALT_POLL_S, lambda: self._look(patience_s - HALT_POLL_S))

        fleet.ask(index, Measure, answered)

    def _tempt(self, index: int) -> None:
        """Have a node without a disk publish something, once: it must refuse.

        No caller stands behind this, so the trace has nothing about it, and nothing may come of it.
        """
        number, topic = self._spare
        assert self._fleet is not None
        if topic is None:
            return

        def make(call: int) -> Command:
            return Publish(call, topic, b"{}", number, str(number), "accepted")

        def answered(answer: Answer) -> None:
            if isinstance(answer, Failed):
                self.refused_on_full_disk = answer.error
            else:
                self._hit.promised_by_halted += 1

        self._fleet.ask(index, make, answered)

    def _free(self) -> None:
        assert self._full is not None
        assert self._disk is not None
        self._disk.free()
        nodes = self._hit.fleet
        nodes.tell("disk_free", self._full)
        # A node that has halted stays so: its operator starts it again.
        nodes.kill(self._full, down_s=DOWN_S_MIN)
        nodes.start(self._full)
        self._ahead -= 1

    @property
    def _hit(self) -> Callers:
        assert self._callers is not None, "the load has not begun"
        return self._callers


def _busiest_but_the_root(driver: WorkloadDriver) -> int:
    root = driver.busiest_author()
    events: dict[int, int] = {}
    for user in driver.workload.users:
        index = driver.node(user.node)
        events[index] = events.get(index, 0) + len(user.events)
    return max((i for i in events if i != root), key=lambda i: events[i], default=root)
