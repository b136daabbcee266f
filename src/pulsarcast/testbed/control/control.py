"""A testbed in the background, as commands know it: start one, ask it, learn how it ended."""

from __future__ import annotations

import fcntl
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from pulsarcast.model.errors import LocalError
from pulsarcast.storage.segments import close_segment
from pulsarcast.testbed.claims import LOCK, claim
from pulsarcast.testbed.control.messages import (
    LOG,
    SOCKET,
    End,
    Going,
    Refused,
    Reported,
    Request,
    Status,
    address_in,
    decode_answer,
    encode,
)
from pulsarcast.testbed.options import RunOptions
from pulsarcast.testbed.scenarios.compare import Progress, no_progress
from pulsarcast.testbed.sessions import SUMMARY, TRACES

POLL_S: Final = 0.1
_LAST_WORDS: Final = 2_000
_started: Final[list[subprocess.Popen[bytes]]] = []
"""Kept, since nobody waits for them: they are to outlive us."""


class DownError(LocalError):
    """There is nobody to ask."""


def start(
    options: RunOptions, *, replace: bool = False, progress: Progress = no_progress
) -> Reported:
    """Start a testbed in the background; returns its status as soon as it is up."""
    if options.scenario != "workload":
        raise LocalError(f"a scenario of kind {options.scenario} goes by itself: testbed run")
    out = options.out.absolute()
    with claim(options, replace=replace) as lock, (out / LOG).open("wb") as log:
        words = [sys.executable, "-m", "pulsarcast.testbed.control.server", str(out)]
        process = subprocess.Popen(
            [*words, *(["--without-limits"] if options.without_limits else [])],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            pass_fds=[lock],  # the folder is taken for as long as it runs
        )
    _started[:] = [*(earlier for earlier in _started if earlier.poll() is None), process]
    try:
        return _wait_until_up(out, process, progress)
    except BaseException:
        process.terminate()
        process.wait()
        raise


def _wait_until_up(out: Path, process: subprocess.Popen[bytes], progress: Progress) -> Reported:
    while process.poll() is None:
        try:
            status = ask(out, Status())
        except DownError:
            pass  # not yet
        else:
            progress("nodes", status.facts["opened"], status.facts["nodes"])
            if status.facts["phase"] == "up":
                return status
        time.sleep(POLL_S)
    raise LocalError(f"the testbed could not be started{_last_words(out)}")


def ask(out: Path, request: Request, *, progress: Progress = no_progress) -> Reported:
    """Ask a testbed for something, and wait until it is done."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            with address_in(out) as address:
                connection.connect(address)
        except OSError:
            raise DownError(why_down(out)) from None
        connection.sendall(encode(request))
        with connection.makefile("rb") as lines:
            try:
                for line in lines:
                    match decode_answer(line):
                        case Going(what, done, total):
                            progress(what, done, total)
                        case Refused(error):
                            raise LocalError(error)
                        case Reported() as reported:
                            if isinstance(request, End):
                                lines.read()  # until its process is gone
                            return reported
            except ConnectionError:
                pass
    raise DownError(why_down(out))


def why_down(out: Path) -> str:
    """What became of a testbed that does not answer."""
    if (out / SUMMARY).is_file():
        return f"the testbed in {out} is down: its {SUMMARY} says what it came to"
    if not (out / LOG).is_file():
        return f"no testbed was started in {out}"
    if (out / SOCKET).exists() and not _is_free(out):
        return f"the testbed in {out} runs, but does not answer"
    return f"the testbed in {out} died, and all of its nodes with it{_last_words(out)}"


def close_traces(out: Path) -> int:
    """Close what a testbed that died left open, so that the pipeline takes it; how many files."""
    if (out / SUMMARY).is_file() or not _is_free(out):
        return 0
    return len([close_segment(path) for path in sorted((out / TRACES).glob(".*.ndjson"))])


def _is_free(out: Path) -> bool:
    """Whether nobody runs in a folder."""
    try:
        with (out / LOCK).open("rb+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return True
    except BlockingIOError:
        return False
    return True


def _last_words(out: Path) -> str:
    log = out / LOG
    said = log.read_text(errors="replace").strip() if log.is_file() else ""
    return f"; it said:\n{said[-_LAST_WORDS:]}" if said else ""
