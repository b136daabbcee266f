"""What the pipeline costs per line, from one million lines to fifty, beside one plain SQL script.

For each size a clean synthetic trace is made, and each job runs over it in a process of its own,
all with two cores and the same 2 GiB heap: ingest, metrics and check of ours, and `pipeline.sql`,
which computes the same tables with nothing of ours. CPU seconds are those of all processes of a
job, less those of the same job over a trace that is next to empty: starting a JVM, loading classes
and planning cost the same for any trace, and would hide what a line costs.

    python benchmarks/pipeline_cost.py --work DIR --out FIGURES.json

prints a table, and says where a figure misses its aim; `scale_page.py` makes a page of the figures.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click
import duckdb
import measuring
import pyspark
from pipeline_jobs import Places, plain_settings

from pulsarcast.pipeline.synthetic_traces.writing import EXPECTED

HERE: Final = Path(__file__).parent
SIZES: Final = (1_000_000, 10_000_000, 50_000_000)
EMPTY_LINES: Final = 20_000
"""The trace that is next to empty: every topic, node and subscription is in it, and few events."""
SMALL_LINES: Final = 1_000_000
"""Up to here the start is most of a job, and differs by seconds: the median of several counts."""
JOBS: Final = ("ingest", "metrics", "check", "sql")
OURS: Final = ("ingest", "metrics")
"""What the SQL script does as well."""

TABLES: Final = ("topics", "runs", "nodes", "operations", "histograms", "distributions")
TOTALS: Final = ("published", "due", "delivered", "undecided")

FLAT_MAX: Final = 0.20
SKEW_MAX: Final = 3.0
RATIO_MAX: Final = 1.2


@click.command()
@click.option("--work", type=click.Path(path_type=Path), required=True, help="For traces, tables.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The figures, as JSON.")
@click.option("--size", "sizes", type=int, multiple=True, default=SIZES, show_default=True)
@click.option("--job", "jobs", type=click.Choice(JOBS), multiple=True, default=JOBS)
@click.option("--small-runs", type=int, default=3, show_default=True, help="Median of so many.")
@click.option("--timeout-s", type=float, default=7_200.0, show_default=True, help="Of one job.")
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--keep-traces", is_flag=True, help="Leave the traces for another run.")
@click.option("--resume", is_flag=True, help="Go on with the figures that are in the file.")
def command(
    work: Path,
    out: Path,
    sizes: Sequence[int],
    jobs: Sequence[str],
    small_runs: int,
    timeout_s: float,
    seed: int,
    keep_traces: bool,
    resume: bool,
) -> None:
    """Measure, compare, and print a table."""
    measuring.become_subreaper()
    figures: dict[str, Any] = {"machine": machine(), "seed": seed, "empty": {}, "sizes": {}}
    if resume and out.exists():
        figures = json.loads(out.read_text())
    bench = Bench(work, seed, timeout_s)
    for lines in (EMPTY_LINES, *sizes):
        if str(lines) in figures["sizes"] or (lines == EMPTY_LINES and figures["empty"]):
            continue
        traces = bench.make_traces(lines)
        if lines == EMPTY_LINES:
            runs = [bench.measure("empty", lines, traces) for _ in range(small_runs)]
            figures["start_cpu_s"] = statistics.median(run["cpu_s"] for run in runs)
        results: dict[str, Any] = {}
        for job in jobs:
            count = small_runs if lines <= SMALL_LINES else 1
            measured = [bench.measure(job, lines, traces) for _ in range(count)]
            results[job] = min(measured, key=lambda run: abs(run["cpu_s"] - _middle(measured)))
            click.echo(f"{lines:>11,} {job:8} {results[job]['cpu_s']:9.1f} CPU s", err=True)
        if lines == EMPTY_LINES:
            figures["empty"] = results
        else:
            size = figures["sizes"][str(lines)] = {
                "trace": bench.describe(traces),
                "jobs": results,
            }
            size["agrees"] = bench.compare(lines, traces, jobs)
            for job, result in results.items():
                net = result["cpu_s"] - figures["empty"][job]["cpu_s"]
                lines_more = lines - EMPTY_LINES
                result["net_cpu_us_per_line"] = round(net / lines_more * 1e6, 3)
        out.write_text(json.dumps(figures, indent=1) + "\n")
        if not keep_traces:
            shutil.rmtree(traces)
        bench.tidy(lines)
    click.echo(table(figures))
    for miss in misses(figures):
        click.echo(f"missed: {miss}")


def _middle(runs: Sequence[Mapping[str, Any]]) -> float:
    return float(statistics.median(run["cpu_s"] for run in runs))


class Bench:
    """Where measured jobs read and write, and how they are run."""

    def __init__(self, work: Path, seed: int, timeout_s: float) -> None:
        self.work = work.resolve()
        self.work.mkdir(parents=True, exist_ok=True)
        self.seed = seed
        self.timeout_s = timeout_s

    def make_traces(self, lines: int) -> Path:
        """A clean trace of so many lines, made unless it is there."""
        folder = self.work / f"traces-{lines}-{self.seed}"
        if not (folder / EXPECTED).exists():
            shutil.rmtree(folder, ignore_errors=True)
            # In a process of its own, so that nothing of it is left to be waited for.
            measuring.run(
                [sys.executable, "-m", "pulsarcast.pipeline.synthetic_traces",
                 f"--lines={lines}", f"--seed={self.seed}", f"--out={folder}"],
                timeout_s=self.timeout_s,
                log=self.work / f"traces-{lines}.log",
            )  # fmt: skip
        return folder

    def describe(self, traces: Path) -> dict[str, Any]:
        """How much a trace is, and what must come out of it."""
        segments = [path.stat().st_size for path in traces.glob("*.ndjson.zst")]
        expected = json.loads((traces / EXPECTED).read_text())
        tables = self.work / f"tables-{expected['lines']}" / "lines"
        landed = [path.stat().st_size for path in tables.rglob("*.parquet")]
        return {
            "expected": expected,
            "segments": len(segments),
            "segment_bytes": sum(segments),
            "table_files": len(landed),
            "table_bytes": sum(landed),
        }

    def places(self, job: str, lines: int, traces: Path) -> Places:
        return Places(traces, self.work / f"tables-{lines}", self.work / f"{job}-{lines}")

    def measure(self, job: str, lines: int, traces: Path) -> dict[str, Any]:
        """Run one job, from nothing, and say what it took."""
        places = self.places(job, lines, traces)
        events = self.work / f"events-{job}-{lines}"
        stale = [places.out, events, *([places.tables] if job == "ingest" else [])]
        for folder in stale:
            shutil.rmtree(folder, ignore_errors=True)
        places.out.mkdir(parents=True)
        events.mkdir(parents=True)
        log = self.work / f"{job}-{lines}.log"
        usage = measuring.run(self._command(job, places, events), timeout_s=self.timeout_s, log=log)
        result: dict[str, Any] = asdict(usage)
        if job != "sql":
            result["said"] = json.loads(log.read_text().splitlines()[-1])
        result |= measuring.summary(measuring.read_stages(events), lines)
        shutil.rmtree(events)
        return result

    def _command(self, job: str, places: Places, events: Path) -> list[str]:
        if job == "sql":
            confs = plain_settings(places, events)
            return [
                sys.executable,
                str(HERE / "run_sql.py"),
                str(HERE / "pipeline.sql"),
                f"traces={places.traces}",
                f"out={places.out}",
                *(f"--conf={key}={value}" for key, value in confs.items()),
            ]
        return [
            sys.executable,
            str(HERE / "pipeline_jobs.py"),
            job,
            *(f"--{name}={path}" for name, path in places._asdict().items()),
            f"--events={events}",
        ]

    def compare(self, lines: int, traces: Path, jobs: Sequence[str]) -> dict[str, bool]:
        """Whether everyone came to the figures that the trace was made with, and to the same."""
        expected = json.loads((traces / EXPECTED).read_text())
        outs = {job: self.places(job, lines, traces).out for job in jobs}
        agrees: dict[str, bool] = {}
        if "ingest" in jobs:
            files = self.places("ingest", lines, traces).tables / "lines/*/*/*/*.parquet"
            agrees["ingest"] = _kinds(files) == expected["kinds"]
        for job in ("metrics", "sql"):
            if job in jobs:
                agrees[job] = _totals(outs[job] / "runs/*.parquet") == {
                    name: expected[name] for name in TOTALS
                } | {"lost": 0, "duplicates": 0}
        if {"metrics", "sql"} <= {*jobs}:
            for name in TABLES:
                agrees[f"table {name}"] = _same(outs["metrics"] / name, outs["sql"] / name)
        if "check" in jobs:
            said = json.loads((self.work / f"check-{lines}.log").read_text().splitlines()[-1])
            agrees["check"] = said == {"findings": {}, "unknown": {}}
        return agrees

    def tidy(self, lines: int) -> None:
        """Leave no tables behind: fifty million lines take gigabytes."""
        for folder in self.work.glob(f"*-{lines}"):
            if folder.is_dir():
                shutil.rmtree(folder)


def _kinds(files: Path) -> dict[str, int]:
    with duckdb.connect() as connection:
        counts = connection.execute(
            "SELECT kind, count(*) "
            f"FROM read_parquet('{files}', hive_partitioning=true) GROUP BY kind"
        )
        return dict(counts.fetchall())


def _totals(files: Path) -> dict[str, int]:
    names = (*TOTALS, "lost", "duplicates")
    with duckdb.connect() as connection:
        rows = connection.execute(
            f"SELECT {', '.join(names)} FROM read_parquet('{files}') WHERE scope = 'own'"
        ).fetchall()
    assert len(rows) == 1, f"{files} has {len(rows)} runs"
    return dict(zip(names, rows[0], strict=True))


def _same(ours: Path, theirs: Path) -> bool:
    """Whether two tables have the same rows; means may differ in the last place."""
    with duckdb.connect() as connection:
        one, other = (connection.read_parquet(f"{each}/*.parquet") for each in (ours, theirs))
        columns = ", ".join(
            f'round("{name}", 6)' if str(of) == "DOUBLE" else f'CAST("{name}" AS VARCHAR)'
            for name, of in zip(one.columns, one.types, strict=True)
        )
        left = one.project(columns).fetchall()
        right = other.project(columns).fetchall()
    return sorted(left, key=str) == sorted(right, key=str)


def machine() -> dict[str, Any]:
    """What it was measured on."""
    pages, page_bytes = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return {
        "measured": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": pages * page_bytes,
        "processor": platform.machine(),
        "python": platform.python_version(),
        "spark": pyspark.__version__,
        "load_average": os.getloadavg()[0],
    }


# What it comes to.


def flatness(figures: Mapping[str, Any], job: str, *, first: int = 0) -> float | None:
    """How much more, or less, a line of any size costs than one of the first size, or a later."""
    costs = [
        size["jobs"][job]["net_cpu_us_per_line"]
        for size in figures["sizes"].values()
        if job in size["jobs"]
    ][first:]
    if len(costs) < 2:
        return None
    return float(max(abs(cost / costs[0] - 1) for cost in costs[1:]))


def ratio(size: Mapping[str, Any]) -> float | None:
    """What ours takes, net, against the SQL script."""
    jobs = size["jobs"]
    if not {*OURS, "sql"} <= jobs.keys():
        return None
    ours = sum(jobs[job]["net_cpu_us_per_line"] for job in OURS)
    return float(ours / jobs["sql"]["net_cpu_us_per_line"])


def table(figures: Mapping[str, Any]) -> str:
    """The figures for people."""
    heads = ("lines", "job", "CPU s", "in JVM tasks", "net µs/line", "wall s", "RSS MiB",
             "shuffle B/line", "spilled B/line", "longest/median task")  # fmt: skip
    rows = [f"| {' | '.join(heads)} |", "| ---: | --- |" + " ---: |" * (len(heads) - 2)]
    for lines, size in figures["sizes"].items():
        for job, each in size["jobs"].items():
            skew = "" if each["skew_max"] is None else f"{each['skew_max']:.1f}"
            rows.append(
                f"| {int(lines):,} | {job} | {each['cpu_s']:.1f} | {each['task_cpu_s']:.1f} "
                f"| {each['net_cpu_us_per_line']:.2f} | {each['wall_s']:.1f} "
                f"| {each['rss_max_bytes'] >> 20:,} | {each['shuffle_bytes_per_line']:.1f} "
                f"| {each['spilled_bytes_per_line']:.1f} | {skew} |"
            )
    return "\n".join(rows)


def misses(figures: Mapping[str, Any]) -> Iterator[str]:
    """Where a figure misses its aim."""
    jobs = {job for size in figures["sizes"].values() for job in size["jobs"]}
    for job in sorted(jobs - {"sql"}):
        flat = flatness(figures, job)
        if flat is not None and flat > FLAT_MAX:
            yield f"{job}: CPU per line differs by {flat:.0%} between sizes, aim {FLAT_MAX:.0%}"
    for lines, size in figures["sizes"].items():
        for job, each in size["jobs"].items():
            if job != "sql" and each["skew_max"] and each["skew_max"] > SKEW_MAX:
                yield (
                    f"{job}, {int(lines):,} lines: the longest task takes {each['skew_max']:.1f} "
                    f"times the median one, aim {SKEW_MAX}"
                )
        against = ratio(size)
        if against is not None and against > RATIO_MAX:
            yield f"{int(lines):,} lines: {against:.2f} times the SQL script, aim {RATIO_MAX}"
        for what, agrees in size["agrees"].items():
            if not agrees:
                yield f"{int(lines):,} lines: {what} is not what it must be"


if __name__ == "__main__":
    command()
