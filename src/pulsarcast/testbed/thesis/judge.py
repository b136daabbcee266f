"""What the pipeline says of the runs: tables, verdicts and pictures, from their traces alone."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from pulsarcast.model.errors import LocalError
from pulsarcast.pipeline.beside import Beside
from pulsarcast.testbed.sessions import SUMMARY, TRACES
from pulsarcast.testbed.thesis.play import TABLES, start
from pulsarcast.testbed.thesis.runs import Planned

VERDICT: Final = "verdict.json"
REPORT: Final = "report"
SAID: Final = "pipeline.log"
CLEAN: Final = "clean"
BESIDE: Final = "beside.json"
TITLE: Final = "Pulsarcast: the thesis' evaluation"
COMMANDS: Final = """
import contextlib, io, json, sys
from pulsarcast.cli import main

for step in map(json.loads, sys.stdin):
    with contextlib.redirect_stdout(io.StringIO()) as said:
        try:
            main(["pipeline", *step], standalone_mode=False)
        except SystemExit:
            if not said.getvalue():
                raise
    print(json.dumps(said.getvalue()), flush=True)
"""
"""All commands in one process: a JVM that is warm takes half the time. A command that cannot do its
work raises, or exits and prints nothing, which ends it; what `check` thinks of the traces stands in
what it prints."""


class Verdicts(msgspec.Struct, kw_only=True):
    """What the checker said of each run: clean, or what it found, or why nobody can tell."""

    of: dict[str, str]
    """Runs, and the digests of their summaries: are these verdicts still of these runs?"""
    runs: dict[str, str]
    lines: int
    """Of all traces that were judged."""


def judge(
    out: Path,
    runs: Sequence[Planned],
    tell: Callable[[str], None],
    lock: int,
    beside: Callable[[Mapping[str, str]], Beside],
) -> Verdicts | None:
    """Ingest, check and draw all of ours; what was judged and drawn already is not again.

    `beside` says what the page shows beside the runs, whose verdicts these are.
    """
    ours = [run for run in runs if run.is_ours]
    if not ours:
        return None
    # What streamed into Spark while it went is judged as it arrived there.
    tables = [run.folder / TABLES for run in ours if run.live]
    if any(not run.live for run in ours):
        tables.insert(0, out / TABLES)
    with Commands(out, tell, lock) as commands:
        verdicts = _earlier(out)
        of = {run.name: _digest(run.folder / SUMMARY) for run in ours}
        if verdicts is None or verdicts.of != of:
            verdicts = _check(out, ours, of, tables, commands)
        shown = msgspec.json.encode(beside(verdicts.runs))
        given = out / BESIDE
        if not given.is_file() or given.read_bytes() != shown:
            given.unlink(missing_ok=True)
            shutil.rmtree(out / REPORT, ignore_errors=True)
            drafted = out / f".{BESIDE}"
            drafted.write_bytes(shown)
            told = ("--out", out / REPORT, "--title", TITLE, "--beside", drafted)
            commands.call("report", *tables, *told)
            drafted.rename(given)  # only now: it says that the report is there
    return verdicts


def _check(
    out: Path,
    ours: Sequence[Planned],
    of: dict[str, str],
    tables: Sequence[Path],
    commands: Commands,
) -> Verdicts:
    for name in (VERDICT, BESIDE):
        (out / name).unlink(missing_ok=True)
    shutil.rmtree(out / TABLES, ignore_errors=True)
    traces = [run.folder / TRACES for run in ours if not run.live]
    if traces:
        commands.call("ingest", *traces, "--out", out / TABLES, "--json")
    verdicts: dict[str, str] = {}
    lines = 0
    for folder in tables:
        report = json.loads(commands.call("check", folder, "--per-run", "--json"))
        verdicts |= read_verdicts(report)
        lines += report["lines"]
    result = Verdicts(
        of=of, runs={run.name: verdicts.get(run.name, "unknown: no lines") for run in ours},
        lines=lines,
    )  # fmt: skip
    (out / VERDICT).write_bytes(msgspec.json.encode(result))
    return result


def read_verdicts(report: dict[str, Any]) -> dict[str, str]:
    """One word a run where all is well, and what is the matter where it is not."""
    verdicts = {}
    # What nobody can put down to a run, a line that cannot be read, makes all of them unknown.
    of_runs = sum(sum(each["unknown"].values()) for each in report["by_run"].values())
    stray = sum(report["unknown"].values()) - of_runs
    for run, its in report["by_run"].items():
        if its["findings"]:
            verdicts[run] = f"findings: {_listed(its['findings'])}"
        elif its["unknown"]:
            verdicts[run] = f"unknown: {_listed(its['unknown'])}"
        else:
            verdicts[run] = CLEAN if not stray else f"unknown: {_listed(report['unknown'])}"
    return verdicts


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items() if count)


def _earlier(out: Path) -> Verdicts | None:
    try:
        return msgspec.json.decode((out / VERDICT).read_bytes(), type=Verdicts)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


class Commands:
    """The pipeline's commands, one after another in one process, which begins with the first."""

    def __init__(self, out: Path, tell: Callable[[str], None], lock: int) -> None:
        self._out = out
        self._tell = tell
        self._lock = lock
        self._child: subprocess.Popen[bytes] | None = None

    def call(self, name: str, *arguments: str | Path) -> str:
        """What a command prints; raises where it cannot do its work."""
        if self._child is None:
            self._child = self._begin()
        child = self._child
        assert child.stdin is not None
        assert child.stdout is not None
        self._tell(f"pipeline {name}")
        child.stdin.write(json.dumps([name, *map(str, arguments)]).encode() + b"\n")
        child.stdin.flush()
        line = child.stdout.readline()
        if not line:
            raise LocalError(f"pipeline {name} ended with {child.wait()}: see {SAID}")
        said: str = json.loads(line)
        return said

    def _begin(self) -> subprocess.Popen[bytes]:
        with (self._out / SAID).open("ab") as log:
            return start(
                [sys.executable, "-c", COMMANDS],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                lock=self._lock,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._child is not None:
            self._child.kill()
            with self._child:  # closes its pipes, and waits
                pass
