"""Playing several runs of the evaluation at a time, where nobody measures how fast they are.

A small run waits more than it computes: for joins, for silence, for the end of a fault.
"""

from __future__ import annotations

import os
import signal
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NoReturn

from pulsarcast.testbed.lifelines import end_with
from pulsarcast.testbed.thesis.runs import Planned

FAILED: Final = "failed.txt"
"""In a run's folder: what went wrong."""
POLL_S: Final = 0.05

Play = Callable[[Planned], str | None]
"""Plays a run; what went wrong, or None."""


def play_beside(runs: Sequence[Planned], at_a_time: int, play: Play) -> dict[str, str]:
    """Play runs, each from a process of its own, which ends with us; what failed, by name."""
    # What streams into Spark takes longest, for Spark has to start: it is not to begin last.
    waiting = deque(sorted(runs, key=lambda run: not run.live))
    going: dict[int, Planned] = {}
    failed: dict[str, str] = {}
    try:
        while waiting or going:
            while waiting and len(going) < at_a_time:
                run = waiting.popleft()
                going[_begin(run, play)] = run
            for pid in list(going):
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    run = going.pop(pid)
                    why = _why(run, os.waitstatus_to_exitcode(status))
                    if why is not None:
                        failed[run.name] = why
            time.sleep(POLL_S)
    finally:
        for pid in going:  # we were interrupted
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    return failed


def _begin(run: Planned, play: Play) -> int:
    parent = os.getpid()
    pid = os.fork()
    if not pid:
        _be_its_player(run, play, parent)
    return pid


def _be_its_player(run: Planned, play: Play, parent: int) -> NoReturn:
    code = 1
    try:
        end_with(parent)
        why = play(run)
        if why is not None:
            (run.folder / FAILED).write_text(why)
        code = 0
    except Exception:
        (run.folder / FAILED).write_text(traceback.format_exc())
    except BaseException:  # interrupted: there is nothing to tell
        code = 130
    finally:
        os._exit(code)


def _why(run: Planned, code: int) -> str | None:
    told = run.folder / FAILED
    if told.is_file():
        return told.read_text()
    return f"its process ended with {code}" if code else None
