"""Playing one run of the evaluation, in a process of its own.

So no run has in its memory what an earlier one imported, and a run that falls takes no other with
it. Spark is a child too: a fleet's parent forks, so there must be no thread of a JVM in it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final, NoReturn

from pulsarcast.model.errors import LocalError
from pulsarcast.testbed.claims import play
from pulsarcast.testbed.lifelines import end_with
from pulsarcast.testbed.scenarios.compare import Progress
from pulsarcast.testbed.sessions import TRACES
from pulsarcast.testbed.thesis.runs import Planned

TABLES: Final = "tables"
ERROR: Final = "error.txt"
INGESTED: Final = "ingest.json"
"""What the stream into Spark said at its end."""
SAID: Final = "ingest.log"
SPARK_STARTS_S_MAX: Final = 120.0
DRAINED_S_MAX: Final = 1_800.0
"""How long the stream may take for what is left when a run is over."""


def play_apart(run: Planned, progress: Progress, lock: int) -> None:
    """Play a run; raises if it leaves no summary. Whoever lives on holds the lock."""
    run.folder.mkdir(parents=True, exist_ok=True)
    if not run.live:
        _play_in_child(run, progress)
        return
    with _streaming(run, lock):
        _play_in_child(run, progress)


def pipeline(*arguments: str | Path) -> list[str]:
    """The command line of a pipeline's command, with this very interpreter."""
    return [sys.executable, "-m", "pulsarcast", "pipeline", *map(str, arguments)]


def start(
    command: Sequence[str],
    *,
    stdout: IO[bytes] | int,
    stderr: IO[bytes],
    lock: int,
    stdin: int = subprocess.DEVNULL,
) -> subprocess.Popen[bytes]:
    """Start a program that ends with us, however we end.

    At once: whoever took its time would write into the folders of the next attempt.
    """
    parent = os.getpid()

    def end_with_parent() -> None:
        end_with(parent)

    return subprocess.Popen(
        command,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        pass_fds=(lock,),
        preexec_fn=end_with_parent,  # noqa: PLW1509 (there are no threads here)
    )


def _play_in_child(run: Planned, progress: Progress) -> None:
    parent = os.getpid()
    pid = os.fork()
    if not pid:
        _be_the_run(run, progress, parent)
    status = None
    try:
        _, status = os.waitpid(pid, 0)
    finally:
        if status is None:  # we were interrupted
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        raise LocalError(f"its process ended by {signal.Signals(-code).name}")
    if code:
        error = run.folder / ERROR
        told = error.read_text().splitlines() if error.is_file() else []
        raise LocalError(told[0] if told else f"its process ended with {code}")


def _be_the_run(run: Planned, progress: Progress, parent: int) -> NoReturn:
    code = 1
    try:
        end_with(parent)
        play(run.options, progress=progress)
        code = 0
    except Exception as error:
        told = f"{type(error).__name__}: {error}\n{traceback.format_exc()}"
        (run.folder / ERROR).write_text(told)
    except BaseException:  # interrupted: there is nothing to tell
        code = 130
    finally:
        os._exit(code)


@contextmanager
def _streaming(run: Planned, lock: int) -> Iterator[None]:
    """Let the traces of a run stream into Spark while it goes, and to the last line after it."""
    traces, tables = run.folder / TRACES, run.folder / TABLES
    traces.mkdir()
    command = pipeline(
        "ingest", traces, "--out", tables, "--continuous", "--finish", "--interval-s", "1", "--json"
    )
    with (run.folder / SAID).open("wb") as said:
        ingest = start(command, stdout=subprocess.PIPE, stderr=said, lock=lock)
        try:
            _wait_for(ingest, tables)
            yield
            ingest.send_signal(signal.SIGTERM)
            output, _ = ingest.communicate(timeout=DRAINED_S_MAX)
        finally:
            if ingest.poll() is None:
                ingest.kill()
                ingest.wait()
    if ingest.returncode:
        raise LocalError(f"its stream into Spark ended with {ingest.returncode}: see {SAID}")
    (run.folder / INGESTED).write_bytes(output)


def _wait_for(ingest: subprocess.Popen[bytes], tables: Path) -> None:
    """Wait until Spark is there: it makes the folder then."""
    deadline_s = time.monotonic() + SPARK_STARTS_S_MAX
    while not tables.is_dir():
        if ingest.poll() is not None or time.monotonic() >= deadline_s:
            raise LocalError(f"its stream into Spark did not begin: see {SAID}")
        time.sleep(0.1)
