"""One job of the pipeline in a process of its own, for `pipeline_cost.py` to measure.

Every job has the same two cores and the same 2 GiB heap, whatever the size of its input.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import click
import measuring
from pyspark.sql import SparkSession

from pulsarcast.pipeline.session import HEAP, SETTINGS, session

MASTER: Final = "local[2]"


class Places(NamedTuple):
    """Where a job reads and writes."""

    traces: Path
    tables: Path
    out: Path


def settings(places: Places, events: Path) -> Mapping[str, str]:
    """What every measured job is run with, ours and others'."""
    return {
        **measuring.EVENT_LOG,
        "spark.eventLog.dir": events.resolve().as_uri(),
        "spark.local.dir": str(places.out / "local"),
        "spark.sql.warehouse.dir": str(places.out / "warehouse"),
    }


def plain_settings(places: Places, events: Path) -> Mapping[str, str]:
    """The same and those that our own sessions have besides, for a job that has none of ours."""
    return {
        **SETTINGS,
        **settings(places, events),
        "spark.master": MASTER,
        "spark.driver.memory": HEAP,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }


def run_empty(spark: SparkSession, places: Places) -> dict[str, object]:
    """Start, do next to nothing, stop: what every job costs before it does anything."""
    return {"rows": spark.range(1_000).count()}


def run_ingest(spark: SparkSession, places: Places) -> dict[str, object]:
    """Segments into tables."""
    from pulsarcast.pipeline.traces import land

    return {"landed": str(land(spark, [places.traces], places.tables))}


def run_metrics(spark: SparkSession, places: Places) -> dict[str, object]:
    """Every metric from the tables, written as Parquet."""
    from pulsarcast.pipeline.quality import computed
    from pulsarcast.pipeline.traces import read_lines

    with computed(read_lines(spark, places.tables), places.out) as measured:
        for name, table in measured.items():
            # As `pipeline metrics` writes them: their size follows from nodes, topics and units.
            table.coalesce(1).write.parquet(str(places.out / name))
    return {}


def run_check(spark: SparkSession, places: Places) -> dict[str, object]:
    """Every promise, held against the tables."""
    from pulsarcast.pipeline.checks import judge
    from pulsarcast.pipeline.scratch import open_scratch
    from pulsarcast.pipeline.traces import read_lines, read_quarantine

    with open_scratch(places.out) as scratch:
        lines = read_lines(spark, places.tables)
        verdict = judge(lines, scratch, quarantine=read_quarantine(spark, places.tables))
        # Both are a row per kind or reason.
        return {
            "findings": {row["kind"]: row["count"] for row in verdict.counts().collect()},
            "unknown": {row["reason"]: row["count"] for row in verdict.reasons().collect()},
        }


JOBS: Final[Mapping[str, Callable[[SparkSession, Places], dict[str, object]]]] = {
    "empty": run_empty,
    "ingest": run_ingest,
    "metrics": run_metrics,
    "check": run_check,
}


@click.command()
@click.argument("job", type=click.Choice([*JOBS]))
@click.option("--traces", type=click.Path(path_type=Path), required=True)
@click.option("--tables", type=click.Path(path_type=Path), required=True)
@click.option("--out", type=click.Path(path_type=Path), required=True)
@click.option("--events", type=click.Path(path_type=Path), required=True, help="Of the event log.")
@click.option("--conf", multiple=True, help="A further setting, as key=value.")
def command(
    job: str, traces: Path, tables: Path, out: Path, events: Path, conf: tuple[str, ...]
) -> None:
    """Run one job, and print what it came to as one line of JSON."""
    places = Places(traces, tables, out)
    chosen = {**settings(places, events), **dict(each.split("=", 1) for each in conf)}
    with session(f"benchmark {job}", master=MASTER, settings=chosen) as spark:
        click.echo(json.dumps(JOBS[job](spark, places)))


if __name__ == "__main__":
    command()
