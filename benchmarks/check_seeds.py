"""Check the traces of many simulated runs at once, and compare with the simulator's own counts.

Each folder below FOLDER holds the traces of one run and `result.json`, what the simulator's own
checkers counted while it ran:

    pulsarcast simulate random --seeds 1000 --trace FOLDER
    python benchmarks/check_seeds.py FOLDER

The runs' ids must differ. Prints one line of JSON; exits 1 if any count of any run differs.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import click
from pyspark.sql import functions as F

from pulsarcast.pipeline.checks import COMMON, judge
from pulsarcast.pipeline.scratch import open_scratch
from pulsarcast.pipeline.session import session
from pulsarcast.pipeline.traces import is_tables, land, read_lines, read_quarantine


def read_results(folder: Path) -> dict[str, dict[str, int]]:
    """What the simulator counted, by run id: the name of the run's folder."""
    return {
        path.parent.name: json.loads(path.read_text())["findings"]
        for path in sorted(folder.glob("*/result.json"))
    }


def compare(
    expected: Mapping[str, Mapping[str, int]], counted: Mapping[str, Mapping[str, int]]
) -> list[str]:
    """Where the two disagree, in words."""
    return [
        f"{run} {kind}: simulator {ours}, traces {theirs}"
        for run in expected
        for kind in COMMON
        if (ours := expected[run].get(kind, 0)) != (theirs := counted.get(run, {}).get(kind, 0))
    ]


@click.command()
@click.argument("folder", type=click.Path(exists=True, path_type=Path))
@click.option("--tables", type=click.Path(path_type=Path), help="Where to land, or have landed.")
@click.option("--master", default="local[2]", show_default=True)
def command(folder: Path, tables: Path | None, master: str) -> None:
    """Compare counts per kind of every run below FOLDER."""
    expected = read_results(folder)
    tables = tables or folder / ".tables"
    began = time.perf_counter()
    with session("check seeds", master=master) as spark, open_scratch() as scratch:
        if not is_tables(tables):
            land(spark, [folder], tables)
        landed = time.perf_counter()
        lines = read_lines(spark, tables)
        verdict = judge(lines, scratch, quarantine=read_quarantine(spark, tables))
        # Bounded by the number of runs and kinds.
        counted: dict[str, Counter[str]] = {}
        for row in verdict.counts().collect():
            counted.setdefault(row["run_id"], Counter())[row["kind"]] = row["count"]
        unknown = verdict.reasons().agg(F.sum("count")).first()
        line_count = lines.count()
    judged = time.perf_counter()
    differences = compare(expected, counted)
    beyond: Counter[str] = Counter()
    for kinds in counted.values():
        beyond.update({kind: n for kind, n in kinds.items() if kind not in COMMON})
    total = sum((Counter(dict(kinds)) for kinds in counted.values()), Counter())
    print(
        json.dumps(
            {
                "runs": len(expected),
                "lines": line_count,
                "differences": differences,
                "counts": dict(sorted(total.items())),
                "beyond_the_simulator": dict(beyond),
                "unknown": (unknown[0] if unknown else None) or 0,
                "land_s": round(landed - began, 1),
                "judge_s": round(judged - landed, 1),
            }
        )
    )
    sys.exit(1 if differences else 0)


if __name__ == "__main__":
    command()
