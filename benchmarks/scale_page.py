"""Make a page of measured figures: what a line costs, and what 10^11 lines need.

    python benchmarks/scale_page.py FIGURES.json [--mutants FIGURES.json] > docs/guides/scale.md

Every number on the page comes from the figures, none is typed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import click
from pipeline_cost import (
    EMPTY_LINES,
    FLAT_MAX,
    OURS,
    RATIO_MAX,
    SKEW_MAX,
    flatness,
    misses,
    ratio,
    table,
)

LINES: Final = 10**11
"""What 10^5 nodes write that deliver a million events each."""
SPLIT_BYTES: Final = 128 << 20
"""What Spark gives a task to read."""
SHUFFLE_BYTES: Final = 64 << 20
"""What Spark aims at for a task to read from a shuffle."""
EXECUTOR_CORES: Final = 4
EXECUTORS: Final = (16, 64, 256)
JOBS: Final = ("ingest", "metrics", "check")


@click.command()
@click.argument("figures", type=click.Path(path_type=Path, exists=True))
@click.option("--mutants", type=click.Path(path_type=Path, exists=True))
def command(figures: Path, mutants: Path | None) -> None:
    """Print the page."""
    planted = None if mutants is None else json.loads(mutants.read_text())
    click.echo("\n".join(page(json.loads(figures.read_text()), planted)))


def page(figures: Mapping[str, Any], planted: Mapping[str, Any] | None) -> Iterator[str]:
    """The page, line by line."""
    machine = figures["machine"]
    most = figures["sizes"][max(figures["sizes"], key=int)]
    lines = most["trace"]["expected"]["lines"]
    yield "# Scale"
    yield ""
    yield (
        "What the pipeline costs per line of a trace, and what follows from that for "
        f"{_short(LINES)} lines. This page is made by `benchmarks/scale_page.py` from figures that "
        "`benchmarks/pipeline_cost.py` measured; no number in its tables is typed by hand."
    )
    yield ""
    yield "## Measured"
    yield (
        f"On {machine['cores']} cores ({machine['processor']}, "
        f"{machine['memory_bytes'] / 2**30:.0f} GiB), Spark {machine['spark']}, Python "
        f"{machine['python']}, on {machine['measured'][:10]}. Every job has the same two cores and "
        "the same 2 GiB heap, whatever the size. The traces are synthetic and clean "
        "(`python -m pulsarcast.pipeline.synthetic_traces`): "
        f"{_share(most, 'delivered'):.0%} deliveries, 60 % of all lines on one topic, in total "
        "order, with one publisher. CPU seconds are those of all processes of a job, Python "
        f"workers included; *net* is less those of the same job over {EMPTY_LINES:,} lines. `sql` "
        "is `benchmarks/pipeline.sql`: one plain Spark SQL script that computes the same tables as "
        "ingest and metrics, from the same segments."
    )
    yield ""
    yield table(figures)
    yield ""
    for note in figures.get("notes", ()):
        yield f"- {note}"
    yield ""
    yield from _aims(figures)
    if planted is not None:
        yield ""
        yield from _mutants(planted)
    yield ""
    yield from _needs(most, lines)
    yield ""
    yield from _limits()


def _aims(figures: Mapping[str, Any]) -> Iterator[str]:
    yield "| aim | reached |"
    yield "| --- | --- |"
    for job in JOBS:
        flat = flatness(figures, job)
        later = flatness(figures, job, first=1)
        if flat is not None and later is not None:
            second = int(list(figures["sizes"])[1])
            yield (
                f"| {job}: CPU per line the same for all sizes, to {FLAT_MAX:.0%} "
                f"| {flat:.0%}; from {second:,} lines on {later:.0%} |"
            )
    for job in JOBS:
        skews = [size["jobs"][job]["skew_max"] or 1 for size in figures["sizes"].values()]
        yield f"| {job}: longest task at most {SKEW_MAX:.0f} times the median | {max(skews):.1f} |"
    for lines, size in figures["sizes"].items():
        against = ratio(size)
        if against is not None:
            yield (
                f"| {int(lines):,} lines: {' and '.join(OURS)} at most {RATIO_MAX} times the SQL "
                f"script | {against:.2f} |"
            )
    agreed = all(all(size["agrees"].values()) for size in figures["sizes"].values())
    yield (
        "| all tables equal the SQL script's, all figures those that the traces were made with, "
        f"no findings | {'yes' if agreed else 'no'} |"
    )
    missed = list(misses(figures))
    if missed:
        yield ""
        yield "Missed:"
        yield from (f"- {miss}" for miss in missed)
        yield ""
        yield (
            "A line costs less in a larger trace, not more: at a million lines most of a job is "
            "still planning and compiling what was generated for it, as the difference between all "
            "CPU seconds and those in tasks shows, and that is over after some millions."
        )


def _mutants(planted: Mapping[str, Any]) -> Iterator[str]:
    count, kinds = len(planted["mutants"]), len(planted["expected"])
    found = "exactly those" if planted["exactly"] else "**not** exactly those"
    yield (
        f"Of a trace of {planted['lines']:,} lines, {planted['changed_lines']} in the last "
        f"segments of the last nodes were replaced by {count} mutants, three of each of {kinds} "
        f"kinds of finding (`benchmarks/mutants_at_scale.py`): check found {found}, in "
        f"{planted['check']['cpu_s']:.0f} CPU seconds, its longest task "
        f"{planted['check']['skew_max']:.1f} times the median one."
    )


def _needs(most: Mapping[str, Any], lines: int) -> Iterator[str]:
    trace, jobs = most["trace"], most["jobs"]
    packed = trace["segment_bytes"] / lines * LINES
    landed = trace["table_bytes"] / lines * LINES
    yield f"## What {_short(LINES)} lines need"
    yield (
        f"Computed from the figures for {lines:,} lines. A core of a cluster is taken to be like "
        "one of the machine above."
    )
    yield ""
    yield "| | per line | in all |"
    yield "| --- | ---: | ---: |"
    yield (
        f"| segments, zstd | {trace['segment_bytes'] / lines:.1f} B | {_bytes(packed)} in "
        f"{_short(LINES / lines * trace['segments'])} files |"
    )
    yield (
        f"| table `lines`, Parquet | {trace['table_bytes'] / lines:.1f} B | {_bytes(landed)}: "
        f"{_short(landed / SPLIT_BYTES)} tasks of {SPLIT_BYTES >> 20} MiB |"
    )
    for job in JOBS:
        each = jobs[job]
        yield (
            f"| {job}: CPU | {each['net_cpu_us_per_line']:.2f} µs "
            f"| {_core_hours(each):,.0f} core hours |"
        )
    for job in JOBS:
        each = jobs[job]
        per_line = each["shuffle_bytes_per_line"]
        largest = max((stage["shuffle_write_bytes"] for stage in each["stages"]), default=0)
        partitions = max(1, largest / lines * LINES / SHUFFLE_BYTES)
        yield (
            f"| {job}: shuffle | {per_line:.1f} B | {_bytes(per_line * LINES)}; the largest in "
            f"{_short(partitions)} partitions of {SHUFFLE_BYTES >> 20} MiB |"
        )
    yield ""
    yield f"Hours, with executors of {EXECUTOR_CORES} cores and {EXECUTOR_CORES} GiB heap:"
    yield ""
    yield "| executors | " + " | ".join(JOBS) + " | all |"
    yield "| ---: |" + " ---: |" * (len(JOBS) + 1)
    for executors in EXECUTORS:
        hours = [
            _core_hours(jobs[job]) / (executors * EXECUTOR_CORES * _busy(jobs[job])) for job in JOBS
        ]
        row = " | ".join(f"{each:.1f}" for each in (*hours, sum(hours)))
        yield f"| {executors} | {row} |"
    yield ""
    busy = ", ".join(f"{job} {_busy(jobs[job]):.0%}" for job in JOBS)
    yield f"Cores are as busy as they were here ({busy}): the rest is start, planning and waiting."


def _limits() -> Iterator[str]:
    yield "## What this does not say"
    yield (
        "- No network was measured: a shuffle here goes through local files.\n"
        "- Spark's driver lists and keeps one entry per segment. Millions of files were not "
        "measured; nodes with larger segments, or `pipeline ingest` while the run goes on, keep "
        "the number of files of one job small.\n"
        "- Tables that are sent to all tasks (topics, subscriptions, and events up to a bound) "
        "grow with nodes and topics; beyond the bound they are joined by sorting, which costs more "
        "than what was measured here.\n"
        "- A bad run, in which most subscriptions lack something, is looked at event by event and "
        "costs more than a clean one."
    )


def _core_hours(job: Mapping[str, Any]) -> float:
    return float(job["net_cpu_us_per_line"]) * LINES / 3.6e9


def _busy(job: Mapping[str, Any]) -> float:
    """How much of the two cores' time a job used."""
    return min(1.0, float(job["cpu_s"]) / (2 * float(job["wall_s"])))


def _share(size: Mapping[str, Any], kind: str) -> float:
    expected = size["trace"]["expected"]
    return float(expected["kinds"][kind] / expected["lines"])


def _bytes(count: float) -> str:
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if count < 1_000:
            return f"{count:.1f} {unit}"
        count /= 1_000
    return f"{count:.1f} PB"


def _short(count: float) -> str:
    exponent = len(f"{count:.0f}") - 1
    if count == 10**exponent and exponent >= 6:
        return f"10^{exponent}"
    return f"{float(f'{count:.3g}'):,.0f}"


if __name__ == "__main__":
    command()
