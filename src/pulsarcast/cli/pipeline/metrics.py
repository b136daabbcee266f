"""`pulsarcast pipeline metrics`: the quality of service of the runs in a trace."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pulsarcast.cli.output import confirm, errors_shown, yes_option

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SHOWN = (
    ("events published", "published", "injected"),
    ("delivered", "delivered", "due"),
    ("of injected", "delivered", "due_of_injected"),
)
"""Two integers each: so many of so many."""
COUNTED = (
    "received",
    "undecided",
    "retired",
    "lost",
    "lost_acknowledged",
    "unacknowledged_lost",
    "redeliveries",
    "duplicates",
    "gaps_found",
    "gaps_filled",
    "latency_unmeasured",
    "rpc_sent",
    "rpc_received",
)


@click.command()
@click.argument("tables_or_traces", type=click.Path())
@click.option("--out", required=True, type=click.Path(), help="Folder for the tables of metrics.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON per run.")
@click.option(
    "--master", help="URL of the Spark master; without it $SPARK_MASTER, or this machine."
)
@yes_option
def command(tables_or_traces: str, out: str, as_json: bool, master: str | None, yes: bool) -> None:
    """Compute the quality of service of all runs in TABLES_OR_TRACES.

    This is the output of `pipeline ingest`, or a folder with raw traces below it. The command
    writes Parquet to --out, one folder per table: topics, runs, nodes, operations, histograms,
    distributions.
    """
    from pulsarcast.pipeline.quality import computed
    from pulsarcast.pipeline.session import session
    from pulsarcast.pipeline.traces import open_lines

    target = Path(out)
    if (target / "runs").exists():
        confirm(f"The tables of metrics in {out} are overwritten", yes=yes)
    with (
        errors_shown(),
        session("metrics", master=master, inputs=[tables_or_traces]) as spark,
        open_lines(spark, tables_or_traces) as lines,
    ):
        target.mkdir(parents=True, exist_ok=True)
        with computed(lines, target) as measured:
            for name, table in measured.items():
                # Their size follows from nodes, topics and units, not from events.
                table.coalesce(1).write.mode("overwrite").parquet(str(target / name))
        distributions = spark.read.parquet(str(target / "distributions"))
        for run in totals(spark.read.parquet(str(target / "runs")), distributions):
            click.echo(json.dumps(run) if as_json else to_text(run))


def totals(runs: DataFrame, distributions: DataFrame) -> Iterator[dict[str, Any]]:
    """What each run came to in all: its own topics' figures, and the spread of every measure.

    These are a few rows per run, so they may come to the driver.
    """
    spreads: dict[str, dict[str, Any]] = {}
    # Its own topics where a measure knows topics at all; `own` comes after `all` and `nodes`.
    for row in distributions.where("scope <> 'topic'").orderBy("scope").collect():
        of_run = spreads.setdefault(row["run_id"], {})
        if row["scope"] != "meta":
            of_run[row["measure"]] = {
                name: row[name] for name in row.asDict() if name not in ("run_id", "topic")
            }
    figures: dict[str, dict[str, Any]] = {}
    for row in runs.collect():
        own = {name: row[name] for name in row.asDict() if name not in ("run_id", "scope")}
        figures.setdefault(row["run_id"], {})[row["scope"]] = own
    for run_id in sorted(figures):
        yield {"run_id": run_id, **figures[run_id], "distributions": spreads.get(run_id, {})}


def to_text(run: dict[str, Any]) -> str:
    """One run, for people."""
    own = run.get("own") or run["all"]
    lines = [f"{run['run_id']}"]
    for name, part, whole in SHOWN:
        count, of = own[part] or 0, own[whole] or 0
        share = f" ({count / of:.4%})" if of else ""
        lines.append(f"  {name:22} {count:>15,} of {of:,}{share}")
    lines += [
        f"  {name.replace('_', ' '):22} {own[name]:>15,}"
        for name in COUNTED
        if own[name] is not None
    ]
    if run["distributions"]:
        head = ("mean", "deviation", "p50", "p95", "p99", "max")
        lines.append("  " + " " * 24 + "".join(f"{name:>14}" for name in head) + "  unit")
    for measure, spread in sorted(run["distributions"].items()):
        figures = "".join(
            f"{spread[name]:>14,.2f}" if name in ("mean", "deviation") else f"{spread[name]:>14,}"
            for name in ("mean", "deviation", "p50", "p95", "p99", "max")
        )
        lines.append(f"  {measure.replace('_', ' '):24}{figures}  {spread['unit']}")
    return "\n".join(lines)
