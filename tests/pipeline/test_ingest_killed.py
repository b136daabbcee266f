"""Ingest killed with SIGKILL again and again while traces are written: no line lost, none twice."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pulsarcast.pipeline.traces import land
from tests.pipeline.killed_ingest import POINTS
from tests.pipeline.trace_files import read_by_duckdb, read_plainly, said

ROOT = Path(__file__).parents[2]


@contextmanager
def traces_being_written(folder: Path) -> Iterator[Path]:
    """A process that writes traces; at the end it closes its segments and ends."""
    folder.mkdir()
    enough = folder.parent / "enough"
    writer = subprocess.Popen(
        [sys.executable, "-m", "tests.pipeline.busy_writer", str(folder), str(enough)], cwd=ROOT
    )
    try:
        yield folder
    finally:
        enough.touch()
        assert writer.wait(60) == 0


def ingest(traces: Path, tables: Path, point: str, *, kill_after_s: float | None = None) -> int:
    """Run an ingest until it ends or dies; returns its exit code."""
    arguments = ["-m", "tests.pipeline.killed_ingest", str(traces), str(tables), point]
    with subprocess.Popen(
        [sys.executable, *arguments], cwd=ROOT, start_new_session=True, stderr=subprocess.PIPE
    ) as process:
        try:
            _, errors = process.communicate(timeout=kill_after_s or 300)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            _, errors = process.communicate()
        if process.returncode not in {0, -signal.SIGKILL}:
            sys.stderr.write(errors.decode())
        return process.returncode


def last(log: Path) -> int:
    """The last batch in a log of the checkpoint, read from the names of its files."""
    return max((int(path.name) for path in log.glob("[0-9]*")), default=-1)


def state(tables: Path) -> str:
    """Where a kill hit, read from what it left."""
    offset, commit = (last(tables / "checkpoint" / log) for log in ("offsets", "commits"))
    if offset == commit:
        return "after the commit"
    assert offset == commit + 1
    name = f"batch={offset:012}"
    if (tables / "segments" / name).exists():
        return "before the commit"
    if (tables / "lines" / name).exists():
        return "between the renames"
    staged = list((tables / ".staging").glob("*"))
    if not staged or not list(staged[0].rglob("*.parquet")):
        return "before the write"
    return "after the write" if (staged[0] / "lines").exists() else "within the write"


def wait_for_a_segment(traces: Path) -> None:
    """Wait until there is something that no batch has read."""
    known = len(list(traces.glob("[!.]*.zst")))
    while len(list(traces.glob("[!.]*.zst"))) < known + 2:
        time.sleep(0.05)


def check(spark: SparkSession, traces: Path, tables: Path, clean: Path) -> None:
    """Hold the tables against a plain reading of the files, and against a clean batch run."""
    expected = read_plainly(traces)
    assert set(expected.values()) == {1}
    rows = read_by_duckdb(tables)
    assert said(rows) == expected
    result = land(spark, [traces], clean)
    assert (result.lines, result.duplicates, result.quarantined) == (expected.total(), 0, 0)
    assert places(rows) == places(read_by_duckdb(clean))


def places(rows: list[dict[str, object]]) -> list[tuple[object, ...]]:
    return sorted((row["segment"], row["line_number"], row["seq"]) for row in rows)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_ten_kills_at_all_points_change_nothing(spark: SparkSession, tmp_path: Path) -> None:
    tables = tmp_path / "tables"
    found = Counter[str]()
    with traces_being_written(tmp_path / "traces") as traces:
        for point in (*POINTS, "after the commit", *POINTS, "after the commit"):
            wait_for_a_segment(traces)
            assert ingest(traces, tables, point) == -signal.SIGKILL
            found[state(tables)] += 1
            if point in POINTS:
                assert state(tables) == point
        # And wherever chance has it.
        for seconds in (4, 9, 14):
            ingest(traces, tables, "", kill_after_s=seconds)
            found[state(tables)] += 1
    assert all(found[point] >= 2 for point in POINTS), found
    assert ingest(traces, tables, "") == 0
    check(spark, traces, tables, tmp_path / "clean")
