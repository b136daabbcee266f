"""What the pipeline says of the runs: tables, verdicts and pictures, from their traces alone."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from pulsarcast.model.errors import LocalError
from pulsarcast.testbed.sessions import SUMMARY, TRACES
from pulsarcast.testbed.thesis_play import TABLES, start
from pulsarcast.testbed.thesis_runs import Planned

VERDICT: Final = "verdict.json"
REPORT: Final = "report"
SAID: Final = "pipeline.log"
CLEAN: Final = "clean"
COMMANDS: Final = """
import contextlib, io, json, sys
from pulsarcast.cli import main

for step in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.suppress(SystemExit):
        main(["pipeline", *step], standalone_mode=False)
    print(json.dumps(said.getvalue()), flush=True)
"""
"""All commands in one process: a JVM that is warm takes half the time. A command that cannot do its
work raises, which ends it; what `check` thinks of the traces stands in what it prints."""


class Verdicts(msgspec.Struct, kw_only=True):
    """What the checker said of each run: clean, or what it found, or why nobody can tell."""

    of: dict[str, str]
    """Runs, and the digests of their summaries: are these verdicts still of these runs?"""
    runs: dict[str, str]
    lines: int
    """Of all traces that were judged."""


def judge(
    out: Path, runs: Sequence[Planned], tell: Callable[[str], None], lock: int
) -> Verdicts | None:
    """Ingest, check and draw all of ours; what was judged already is not judged again."""
    ours = [run for run in runs if run.is_ours]
    if not ours:
        return None
    of = {run.name: _digest(run.folder / SUMMARY) for run in ours}
    earlier = _earlier(out)
    if earlier is not None and earlier.of == of:
        return earlier
    (out / VERDICT).unlink(missing_ok=True)
    for name in (TABLES, REPORT):
        shutil.rmtree(out / name, ignore_errors=True)

    # What streamed into Spark while it went is judged as it arrived there.
    tables = [run.folder / TABLES for run in ours if run.live]
    traces = [run.folder / TRACES for run in ours if not run.live]
    steps: list[list[str | Path]] = []
    if traces:
        steps.append(["ingest", *traces, "--out", out / TABLES, "--json"])
        tables.insert(0, out / TABLES)
    steps += [["check", folder, "--per-run", "--json"] for folder in tables]
    title = "Pulsarcast: the thesis' evaluation"
    steps.append(["report", *tables, "--out", out / REPORT, "--title", title])
    verdicts: dict[str, str] = {}
    lines = 0
    for step, said in zip(steps, _call(out, steps, tell, lock), strict=True):
        if step[0] == "check":
            report = json.loads(said)
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


def _call(
    out: Path, steps: Sequence[Sequence[str | Path]], tell: Callable[[str], None], lock: int
) -> Iterator[str]:
    """What each command prints, one after another."""
    arguments = json.dumps([[str(each) for each in step] for step in steps])
    with (out / SAID).open("ab") as log:
        child = start(
            [sys.executable, "-c", COMMANDS, arguments],
            stdout=subprocess.PIPE,
            stderr=log,
            lock=lock,
        )
        assert child.stdout is not None
        try:
            for step in steps:
                tell(f"pipeline {step[0]}")
                line = child.stdout.readline()
                if not line:
                    raise LocalError(f"pipeline {step[0]} ended with {child.wait()}: see {SAID}")
                yield json.loads(line)
            child.wait()
        finally:
            child.kill()  # nothing, where it has ended
            child.wait()
            child.stdout.close()
