"""Measure simulated runs of full size, and hold every figure against two others.

Each folder below FOLDER holds the traces of one run and `result.json`, what the simulator counted
while it ran:

    pulsarcast simulate thesis --workload W --faults churn --run-id churn --trace FOLDER/churn
    PYTHONPATH=. python benchmarks/measure_runs.py FOLDER

All runs are measured in one job, once as they are and once by clocks that are 30 s off and drift by
200 ppm. For each run, one line of JSON says what is equal: the simulator's own counters, DuckDB's
answers to the same questions in plain SQL, and the figures by wrong clocks. Exits 1 if any is not.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click

from pulsarcast.pipeline import quality
from pulsarcast.pipeline.quality.coverage import COUNTS
from pulsarcast.pipeline.session import session
from pulsarcast.pipeline.traces import is_tables, land, read_lines
from tests.pipeline import quality_oracle as oracle
from tests.pipeline.test_quality import in_order, with_wrong_clocks

Row = dict[str, Any]
Tables = Mapping[str, list[Row]]
WRONG = "/wrong clocks"
COUNTERS = ("due", "delivered", "undecided", "retired", "unacknowledged_lost", "subscriptions")
HISTOGRAMS = {
    "hops": oracle.HOPS,
    "gap_repair": oracle.REPAIR,
    "fan_out": oracle.FAN_OUT,
}


@click.command()
@click.argument("folder", type=click.Path(exists=True, path_type=Path))
@click.option("--tables", type=click.Path(path_type=Path), help="Where to land, or have landed.")
@click.option("--master", default="local[2]", show_default=True)
def command(folder: Path, tables: Path | None, master: str) -> None:
    """Compare the figures of every run below FOLDER."""
    tables = tables or folder / ".tables"
    began = time.perf_counter()
    with session("measure runs", master=master) as spark:
        if not is_tables(tables):
            land(spark, [folder], tables)
        click.echo(f"landed after {time.perf_counter() - began:.0f} s", err=True)
        right = read_lines(spark, tables)
        wrong = with_wrong_clocks(right).select(*right.columns)
        with quality.computed(right.unionByName(wrong)) as computed:
            measured = {
                name: [row.asDict() for row in table.collect()] for name, table in computed.items()
            }
        click.echo(f"measured after {time.perf_counter() - began:.0f} s", err=True)
    agreed = True
    for path in sorted(folder.glob("*/result.json")):
        agrees = compare(measured, path.parent)
        agreed &= all(agrees.values())
        click.echo(json.dumps({"run": path.parent.name, **agrees}))
    sys.exit(0 if agreed else 1)


def compare(measured: Tables, folder: Path) -> dict[str, bool]:
    """What is equal for one run."""
    run = folder.name
    result = json.loads((folder / "result.json").read_text())
    return {
        "simulator": _as_counted(measured, run, result),
        **_as_duckdb_says(measured, run, folder),
        "wrong clocks": _whatever_the_clock(measured, run),
    }


def _of(rows: Iterable[Row], run: str, **chosen: Any) -> list[Row]:
    wanted = {"run_id": run, **chosen}
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


def _as_counted(measured: Tables, run: str, result: Mapping[str, Any]) -> bool:
    (own,) = _of(measured["runs"], run, scope="own")
    (everything,) = _of(measured["runs"], run, scope="all")
    (hops,) = _of(measured["distributions"], run, measure="hops", scope="all")
    return (
        all(own[name] == result[name] for name in COUNTERS)
        and own["published"] == result["events"]
        and everything["redeliveries"] == result["redeliveries"]
        and everything["duplicates"] == result["duplicates"]
        and everything["lost_acknowledged"] == result["lost_acknowledged"]
        and (everything["gaps_found"] or 0) == result["gaps_found"]
        and (everything["gaps_filled"] or 0) == result["gaps_filled"]
        and (round(hops["mean"], 4), hops["max"]) == (result["hops_mean"], result["hops_max"])
    )


def _as_duckdb_says(measured: Tables, run: str, folder: Path) -> dict[str, bool]:
    with oracle.open_traces([folder]) as database:
        counts = [
            {key: row[key] for key in ("run_id", "topic", *COUNTS)}
            for row in _of(measured["topics"], run)
        ]
        agrees = {"duckdb counts": _same(counts, oracle.ask(database, oracle.COVERAGE))}
        for measure, question in HISTOGRAMS.items():
            theirs = oracle.ask(database, question)
            names = theirs[0].keys() if theirs else ()
            ours = [
                {key: row[key] for key in names}
                for row in _of(measured["histograms"], run, measure=measure)
            ]
            agrees[f"duckdb {measure}"] = _same(ours, theirs)
        ours = [
            row
            for measure in ("latency_low", "latency_high")
            for row in _of(measured["histograms"], run, measure=measure)
        ]
        agrees["duckdb latency"] = _same(ours, oracle.ask(database, oracle.LATENCY))
        theirs = oracle.ask(database, oracle.NODES)
        ours = [{key: row[key] for key in theirs[0]} for row in _of(measured["nodes"], run)]
        agrees["duckdb nodes"] = _same(ours, theirs)
    return agrees


def _same(ours: list[Row], theirs: list[Row]) -> bool:
    return in_order(ours) == in_order(theirs)


def _whatever_the_clock(measured: Tables, run: str) -> bool:
    names = [name for name in quality.FIGURES if name != "latency_unmeasured"]

    def figures(table: str, run: str) -> list[list[Any]]:
        return [[row[name] for name in names] for row in _of(measured[table], run)]

    def histogram(measure: str, run: str) -> list[list[Any]]:
        rows = _of(measured["histograms"], run, measure=measure)
        return [[row[name] for name in ("topic", "value", "count")] for row in rows]

    return all(
        figures(table, run) == figures(table, run + WRONG) for table in ("topics", "runs")
    ) and all(
        histogram(measure, run) == histogram(measure, run + WRONG)
        for measure in ("hops", "fan_out")
    )


if __name__ == "__main__":
    command()
