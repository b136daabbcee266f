"""What the pipeline says of the runs: tables, verdicts and pictures, from their traces alone."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from pulsarcast.model.errors import LocalError
from pulsarcast.testbed.sessions import SUMMARY, TRACES
from pulsarcast.testbed.thesis_play import TABLES, pipeline, start
from pulsarcast.testbed.thesis_runs import Planned

VERDICT: Final = "verdict.json"
REPORT: Final = "report"
SAID: Final = "pipeline.log"
CLEAN: Final = "clean"


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
    if traces:
        tell("ingest")
        _call(out, "ingest", *traces, "--out", out / TABLES, "--json", lock=lock)
        tables.insert(0, out / TABLES)
    verdicts: dict[str, str] = {}
    lines = 0
    for folder in tables:
        tell("check")
        said = _call(out, "check", folder, "--per-run", "--json", lock=lock, codes=(0, 1, 2))
        report = json.loads(said)
        verdicts |= read_verdicts(report)
        lines += report["lines"]
    tell("report")
    title = "Pulsarcast: the thesis' evaluation"
    _call(out, "report", *tables, "--out", out / REPORT, "--title", title, lock=lock)
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
    out: Path, name: str, *arguments: str | Path, lock: int, codes: Sequence[int] = (0,)
) -> bytes:
    with (out / SAID).open("ab") as said:
        child = start(pipeline(name, *arguments), stdout=subprocess.PIPE, stderr=said, lock=lock)
        try:
            output, _ = child.communicate()
        finally:
            if child.poll() is None:
                child.kill()
                child.wait()
    if child.returncode not in codes or not output:
        raise LocalError(f"pipeline {name} ended with {child.returncode}: see {SAID}")
    return output
