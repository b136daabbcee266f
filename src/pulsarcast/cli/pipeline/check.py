"""`pulsarcast pipeline check`: hold the traces of any number of runs against every promise.

The exit code is 0 where nothing is found, 1 where something is, and 2 where nothing is found in
traces that are not whole. What is found stands, whatever else is missing; so 1 outranks 2. It is 3
where nothing could be checked.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pulsarcast.cli.output import Failure, errors_shown
from pulsarcast.model.errors import LocalError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pulsarcast.pipeline.checks import Verdict
    from pulsarcast.pipeline.scratch import Scratch

LINE_CHARACTERS_MAX = 240
"""How much of a line people are shown: the rest is in the segment."""


class NotChecked(Failure):
    """Nothing could be checked, so nothing is said about the traces."""

    exit_code = 3


@click.command()
@click.argument("path", type=click.Path())
@click.option(
    "--run", "runs", multiple=True, metavar="RUN", help="Check this run only. May be repeated."
)
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")
@click.option("--per-run", is_flag=True, help="Print counts per run too.")
@click.option("--findings", "out", type=click.Path(), help="Folder for all findings, as Parquet.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=3,
    show_default=True,
    help="Largest number of findings of each kind to print, with their proof.",
)
@click.option("--scratch", type=click.Path(), help="Folder that all executors can reach.")
@click.option(
    "--master", help="URL of the Spark master; without it $SPARK_MASTER, or this machine."
)
def command(
    path: str,
    runs: tuple[str, ...],
    as_json: bool,
    per_run: bool,
    out: str | None,
    limit: int,
    scratch: str | None,
    master: str | None,
) -> None:
    """Check the traces below PATH: the output of `pipeline ingest`, or raw traces of nodes.

    Exits 0 if every promise was kept, 1 if one was broken, 2 if the traces are incomplete and show
    no broken promise, and 3 if they could not be checked.
    """
    with _breaking_down(), errors_shown(NotChecked, "pipeline"):
        from pulsarcast.pipeline.scratch import open_scratch
        from pulsarcast.pipeline.session import session

        if out is not None and Path(out).exists():
            # Said before anything is judged: that may take long.
            raise LocalError(f"{out} is there already")
        with session("check", master=master, inputs=[path]) as spark, open_scratch(scratch) as kept:
            report = _check(spark, kept, path, runs, out=out, limit=0 if as_json else limit)
    if not per_run:
        del report["by_run"]
    shown = report.pop("shown")
    click.echo(json.dumps(report) if as_json else _text(report, shown))
    sys.exit(report["exit"])


@contextmanager
def _breaking_down() -> Iterator[None]:
    """Whatever else goes wrong is shown in full, and is no finding either: Python would exit 1."""
    try:
        yield
    except click.ClickException:
        raise
    except Exception:
        traceback.print_exc()
        sys.exit(NotChecked.exit_code)


def _check(
    spark: SparkSession,
    scratch: Scratch,
    path: str,
    runs: tuple[str, ...],
    *,
    out: str | None,
    limit: int,
) -> dict[str, Any]:
    """Judge, and gather what is told; all that is collected is counts, and the few shown."""
    from pulsarcast.pipeline.checks import attach_lines, first_of_each_kind, judge

    lines, quarantine = _tables(spark, scratch, path)
    if runs:
        lines = lines.where(lines["run_id"].isin(*runs))
    verdict = judge(lines, scratch, quarantine=quarantine)
    report = _summary(verdict)
    missing = sorted(set(runs) - set(report["by_run"]))
    if missing:
        raise LocalError(f"no lines of run {', '.join(missing)}")
    if out is not None:
        attach_lines(verdict.findings, lines).write.mode("error").parquet(out)
    shown: list[dict[str, Any]] = []
    if limit and report["exit"] == 1:
        first = scratch.keep("shown", first_of_each_kind(verdict.findings, limit))
        proved = attach_lines(first, _only(lines, first))
        shown = [row.asDict(recursive=True) for row in proved.collect()]
    return {**report, "shown": sorted(shown, key=_place)}


def _tables(spark: SparkSession, scratch: Scratch, path: str) -> tuple[DataFrame, DataFrame]:
    """The lines and what could not be read as such; raw traces are landed first."""
    from pulsarcast.pipeline.traces import is_tables, land, read_lines, read_quarantine

    tables = path
    if not is_tables(path):
        tables = f"{scratch.folder}/landed"
        land(spark, [path], tables)
    return read_lines(spark, tables), read_quarantine(spark, tables)


def _summary(verdict: Verdict) -> dict[str, Any]:
    from pulsarcast.pipeline.checks import KINDS, REASONS, Outcome

    by_run: dict[str, dict[str, Any]] = {}
    lines = 0
    for row in verdict.lives.groupBy("run_id").sum("lines").collect():
        by_run[row["run_id"]] = {"findings": {}, "unknown": {}}
        lines += row["sum(lines)"]
    found: Counter[str] = Counter()
    for row in verdict.counts().collect():
        found[row["kind"]] += row["count"]
        by_run[row["run_id"]]["findings"][row["kind"]] = row["count"]
    unknown: Counter[str] = Counter()
    for row in verdict.reasons().collect():
        unknown[row["reason"]] += row["count"]
        if row["run_id"] in by_run:
            by_run[row["run_id"]]["unknown"][row["reason"]] = row["count"]
    if not by_run:
        # Not even a run is known: nothing was promised, and nothing kept.
        unknown["no_events"] += 1
    outcome = Outcome.FINDINGS if found else Outcome.UNKNOWN if unknown else Outcome.CLEAN
    return {
        "outcome": outcome.name.lower(),
        "exit": int(outcome),
        "runs": len(by_run),
        "lines": lines,
        "findings": {kind: found[kind] for kind in KINDS},
        "unknown": {reason: unknown[reason] for reason in REASONS},
        "by_run": dict(sorted(by_run.items())),
    }


def _only(lines: DataFrame, findings: DataFrame) -> DataFrame:
    """The lines that these few findings may refer to: files that hold none need not be read."""
    from pyspark.sql import functions as F

    wanted = findings.select(F.explode("proof").alias("at")).select("at.*").distinct().collect()
    return lines.where(
        F.col("node_id").isin({row["node_id"] for row in wanted})
        & F.col("seq").isin({row["seq"] for row in wanted})
    )


def _place(finding: dict[str, Any]) -> tuple[Any, ...]:
    from pulsarcast.pipeline.checks import KINDS

    names = ("run_id", "topic", "publisher", "epoch", "number", "node_id")
    return (list(KINDS).index(finding["kind"]), *(str(finding[name]) for name in names))


# For people.


def _text(report: dict[str, Any], shown: list[dict[str, Any]]) -> str:
    from pulsarcast.pipeline.checks import KINDS, REASONS

    found = {kind: count for kind, count in report["findings"].items() if count}
    unknown = {reason: count for reason, count in report["unknown"].items() if count}
    lines = [f"{report['lines']:,} lines of {report['runs']:,} runs: {_outcome(report['exit'])}"]
    lines += _table(found, KINDS)
    if unknown:
        lines += ["not known:", *_table(unknown, REASONS)]
    for run, its in report.get("by_run", {}).items():
        told = {**its["findings"], **its["unknown"]}
        if told:
            lines.append(f"{run}: {', '.join(f'{name} {count:,}' for name, count in told.items())}")
    for finding in shown:
        lines += _finding(finding)
    return "\n".join(lines)


def _outcome(exit_code: int) -> str:
    return ("every promise was kept", "promises were broken", "nobody can tell")[exit_code]


def _table(counts: dict[str, int], meanings: dict[str, str]) -> list[str]:
    width = max(map(len, counts), default=0)
    return [f"  {name:{width}} {count:10,}  {meanings[name]}" for name, count in counts.items()]


def _finding(finding: dict[str, Any]) -> list[str]:
    """One finding: what it is about, and under it the lines that prove it."""
    about = [
        f"{name} {finding[name]}"
        for name in ("run_id", "node_id", "topic", "publisher", "epoch", "number", "event")
        if finding[name] is not None
    ]
    if finding["other_event"] is not None:
        about.append(f"other event {finding['other_event']}")
    told = ["", f"{finding['kind']}: {', '.join(about)}"]
    for record in finding["proof"]:
        text = record["line"] or "(no such line)"
        if len(text) > LINE_CHARACTERS_MAX:
            text = text[: LINE_CHARACTERS_MAX - 1] + "…"
        told.append(f"  {record['segment']}:{record['line_number']}")
        told.append(f"    {text}")
    return told
