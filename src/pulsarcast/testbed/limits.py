"""Memory limits: a group of the kernel's for each node, which kills it where it takes more.

The thesis gave each node 500 MiB (thesis, 5). The groups are those of cgroup v1, made below the one
that this process is in, so that whatever holds for the testbed holds for its nodes as well. A page
is charged to whoever touches it first: what a node shares with the testbed that forked it, most of
Python and its libraries, is not counted.
"""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path
from types import TracebackType
from typing import Final

from pulsarcast.model.errors import LocalError
from pulsarcast.testbed.options import RunOptions

MIB: Final = 2**20
_MEMORY: Final = "memory"
_REMOVE_S_MAX: Final = 2.0
"""How long a group may take to become empty: a process is gone a little after its end is known."""
_log: Final = logging.getLogger(__name__)


class MemoryLimits:
    """One group for each node, made when it first starts; use it as a context manager."""

    def __init__(self, mib: int) -> None:
        self.mib = mib
        self._folder = _own_group() / f"pulsarcast-{os.getpid()}"
        self._killed: dict[int, int] = {}
        """How many processes of a node were killed in its earlier lives."""

    def __enter__(self) -> MemoryLimits:
        try:
            self._clear_away()
            self._folder.mkdir(exist_ok=True)
            self._make(self._folder / "try")
            _remove(self._folder / "try")
        except OSError as error:
            self._remove_all()
            raise LocalError(f"no limit of memory can be set here: {error}") from error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._remove_all()

    def admit(self, index: int, pid: int) -> None:
        """Put the new process of a node under its limit."""
        group = self._group(index)
        if not group.is_dir():
            self._make(group)
        (group / "cgroup.procs").write_text(str(pid))

    def has_killed(self, index: int) -> bool:
        """Whether the life of a node that has just ended was ended by its limit."""
        killed = _killed_in(self._group(index))
        before, self._killed[index] = self._killed.get(index, 0), killed
        return killed > before

    def peak_mib(self, index: int) -> float:
        """The most that a node has had, over all of its lives."""
        said = self._group(index) / "memory.max_usage_in_bytes"
        return round(int(said.read_text()) / MIB, 1) if said.is_file() else 0.0

    def _group(self, index: int) -> Path:
        return self._folder / f"node-{index:03}"

    def _make(self, group: Path) -> None:
        group.mkdir()
        limit = str(self.mib * MIB)
        (group / "memory.limit_in_bytes").write_text(limit)
        both = group / "memory.memsw.limit_in_bytes"
        if both.is_file():
            both.write_text(limit)  # or it would go on in swap space

    def _clear_away(self) -> None:
        """Remove what a testbed left behind that was killed: nobody else would."""
        for left in self._folder.parent.glob("pulsarcast-*"):
            if not Path("/proc", left.name.rpartition("-")[2]).exists():
                _remove_with_groups(left)

    def _remove_all(self) -> None:
        if self._folder.is_dir():
            _remove_with_groups(self._folder)


def limits_for(options: RunOptions) -> MemoryLimits | None:
    """The limits that a run asks for; none where it asked to go on without."""
    if options.memory_mib is None:
        return None
    why = why_not()
    if why is None:
        return MemoryLimits(options.memory_mib)
    if not options.without_limits:
        raise LocalError(f"{why}; run it with --without-limits to go on without")
    _log.warning("%s: the nodes run without a limit", why)
    return None


def why_not() -> str | None:
    """Why memory cannot be limited here; None where it can."""
    try:
        with MemoryLimits(64):
            return None
    except LocalError as error:
        return str(error)


def _own_group() -> Path:
    """The folder of the group that this process is in."""
    try:
        mounted = _mounted_at()
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if mounted is not None and _MEMORY in controllers.split(","):
                return mounted / path.lstrip("/")
    except OSError as error:
        raise LocalError(f"no limit of memory can be set here: {error}") from error
    raise LocalError("no limit of memory can be set here: it needs the memory groups of cgroup v1")


def _mounted_at() -> Path | None:
    for line in Path("/proc/mounts").read_text().splitlines():
        _, where, kind, options, *_ = line.split()
        if kind == "cgroup" and _MEMORY in options.split(","):
            return Path(where)
    return None


def _killed_in(group: Path) -> int:
    said = group / "memory.oom_control"
    if said.is_file():
        for line in said.read_text().splitlines():
            name, _, count = line.partition(" ")
            if name == "oom_kill":
                return int(count)
    return 0


def _remove_with_groups(folder: Path) -> None:
    for group in folder.iterdir():
        if group.is_dir():
            _remove(group)
    _remove(folder)


def _remove(group: Path) -> None:
    """Remove a group, as soon as it is empty."""
    deadline_s = time.monotonic() + _REMOVE_S_MAX
    while True:
        try:
            group.rmdir()
        except OSError as error:
            if time.monotonic() < deadline_s:
                time.sleep(0.01)
                continue
            _log.warning("a group of the kernel's is left behind: %s", error)
        return
