"""Meters: what a process has used, read from outside, so that reading costs it nothing."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

_PAGE_BYTES: Final = os.sysconf("SC_PAGESIZE")
_CPUCLOCK_SCHED: Final = 2


def cpu_s(pid: int) -> float:
    """Processor time of a process so far, all of its threads, to the nanosecond.

    Linux has a clock for every process, whose id is made from the process's own; /proc has the
    same figure, but rounded to hundredths of a second.
    """
    return time.clock_gettime((~pid << 3) | _CPUCLOCK_SCHED)


def rss_bytes(pid: int) -> int:
    """Memory that a process has, what it shares with others included."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES


def pss_bytes(pid: int) -> int:
    """Memory that a process has, what it shares divided by those who share it."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except ProcessLookupError:
        return 0  # it has just ended
    for line in text.splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def own_rss_bytes(pid: int) -> int:
    """The same without shared memory: a ledger that fills up is no growth of the node."""
    fields: dict[str, int] = {}
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in ("VmRSS", "RssShmem"):
            fields[name] = int(value.split()[0]) * 1024
    # Of a process that has just ended nothing is left to count.
    return fields.get("VmRSS", 0) - fields.get("RssShmem", 0)
