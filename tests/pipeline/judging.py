"""Judging many small runs at once: a Spark job takes seconds, however small what it reads is."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import zstandard
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pulsarcast.model.trace import SCHEMA_VERSION
from pulsarcast.pipeline import schema
from pulsarcast.pipeline.checks import attach_lines, judge
from pulsarcast.pipeline.scratch import open_scratch
from pulsarcast.simulation.options import load
from pulsarcast.simulation.scenario import run_scenario
from tests.pipeline.stories import Line


@dataclass
class Judged:
    """What was found in which run, and what could not be known."""

    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    reasons: dict[str, dict[str, int]] = field(default_factory=dict)
    findings: list[dict[str, Any]] = field(default_factory=list)

    def of(self, run: str) -> dict[str, int]:
        """What was found in a run."""
        return self.counts.get(run, {})


def as_table(spark: SparkSession, lines: Iterable[Line], folder: Path) -> DataFrame:
    """Lines as the table that ingest makes of them."""
    path = folder / "lines.ndjson"
    with path.open("w", encoding="utf-8") as file:
        for number, line in enumerate(lines, 1):
            row = {**line, "segment": "a segment", "line_number": number}
            if line["schema_version"] > SCHEMA_VERSION:
                row = {name: row[name] for name in (*schema.ENVELOPE, "segment", "line_number")}
                row["unknown"] = json.dumps(line)
            file.write(json.dumps(row) + "\n")
    return spark.read.schema(schema.LINES).json(str(path))


def judge_lines(spark: SparkSession, lines: Iterable[Line], *, prove: str | None = None) -> Judged:
    """Judge the lines of any number of runs; of the one to be proved, keep all findings."""
    judged = Judged()
    with tempfile.TemporaryDirectory() as folder, open_scratch(folder) as scratch:
        # Read from memory: every check looks at them.
        table = as_table(spark, lines, Path(folder)).cache()
        verdict = judge(table, scratch)
        for row in verdict.counts().collect():
            judged.counts.setdefault(row["run_id"], {})[row["kind"]] = row["count"]
        for row in verdict.reasons().collect():
            judged.reasons.setdefault(row["run_id"], {})[row["reason"]] = row["count"]
        if prove is not None:
            found = verdict.findings.where(F.col("run_id") == prove)
            proved = attach_lines(found, table.where(F.col("run_id") == prove)).collect()
            judged.findings = [row.asDict(recursive=True) for row in proved]
        table.unpersist()
    return judged


def simulate(
    folder: Path, run_id: str, *, seed: int, without: str | None = None, scenario: str = "random"
) -> dict[str, int]:
    """Write the traces of a random run; what the simulator's own checkers counted."""
    options = msgspec.structs.replace(
        load(scenario),
        seed=seed,
        without=without,
        trace=str(folder / run_id),
        run_id=run_id,
        # What a sabotaged run has not delivered by then it never will.
        settle_s_max=200.0,
    )
    return run_scenario(options).findings


def read_traces(folder: Path) -> Iterator[Line]:
    """The lines of all segments below a folder."""
    for path in sorted(folder.rglob("*.ndjson.zst")):
        with path.open("rb") as file, zstandard.ZstdDecompressor().stream_reader(file) as text:
            yield from map(json.loads, text.read().splitlines())


def with_wrong_clocks(lines: Iterable[Line], run_id: str, rng: Random) -> Iterator[Line]:
    """The same run with every node's clocks off by up to a year, and jumping."""
    offsets: dict[str, int] = {}
    year_ns = 365 * 86_400 * 1_000_000_000
    for line in lines:
        off = offsets.setdefault(line["node_id"], rng.randrange(-year_ns, year_ns))
        jump = rng.randrange(-60_000_000_000, 60_000_000_000)
        wall_ns = line["wall_ns"] + off + jump
        yield {**line, "run_id": run_id, "wall_ns": wall_ns, "mono_ns": abs(jump)}
