"""Replicates on Spark: every seed once, what is done is not done again, and failures show."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pulsarcast.pipeline.replicates import Row, Wanted, Work, read_replicates, run_replicates
from pulsarcast.simulation.vcube.experiments import run_written
from pulsarcast.testbed.sweep import _left, read_sweep

FILE = """
title = "Small"
seeds = 3
[[settings]]
experiment = "publish"
nodes = [8, 16]
"""


@pytest.fixture
def sweep_file(tmp_path: Path) -> Path:
    path = tmp_path / "sweep.toml"
    path.write_text(FILE, encoding="utf-8")
    return path


def without_times(rows: list[Row]) -> list[Row]:
    return [row._replace(seconds=0.0) for row in rows]


def test_every_seed_has_one_row_with_the_figures_of_its_setting(
    spark: SparkSession, sweep_file: Path, tmp_path: Path
) -> None:
    points = read_sweep(sweep_file).points
    rows = tmp_path / "rows"
    for wanted in _left(points, read_replicates(spark, rows)):
        run_replicates(spark, wanted, run_written, rows)
    found = read_replicates(spark, rows)
    assert without_times(found) == [
        Row(point.id, seed, 0.0, run_written(point.written, seed), None)
        for point in sorted(points, key=lambda each: each.id)
        for seed in (1, 2, 3)
    ]
    # Nothing is left to do, but for the seeds of a file that asks for more.
    assert _left(points, found) == []
    more = read_sweep(sweep_file, seeds=5).points
    assert [list(each.seeds) for each in _left(more, found)] == [[4, 5], [4, 5]]


def doubling(fails_with: int | None = None) -> Work:
    """Some work. Made here, so that workers get it by value: they cannot import tests."""

    def double(setting: str, seed: int) -> dict[str, float]:
        if seed == fails_with:
            raise ValueError(setting)
        return {"double": 2 * seed}

    return double


def test_a_failed_replicate_has_a_row_that_says_so_and_is_run_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    run_replicates(spark, Wanted("one", "this one", [1, 2]), doubling(fails_with=2), tmp_path)
    rows = without_times(read_replicates(spark, tmp_path))
    assert rows == [
        Row("one", 1, 0.0, {"double": 2.0}, None),
        Row("one", 2, 0.0, {}, "ValueError: this one"),
    ]
    run_replicates(spark, Wanted("one", "this one", [2]), doubling(), tmp_path)
    assert without_times(read_replicates(spark, tmp_path)) == [
        Row("one", 1, 0.0, {"double": 2.0}, None),
        Row("one", 2, 0.0, {"double": 4.0}, None),
    ]


def test_what_a_killed_call_left_half_written_is_not_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    run_replicates(spark, Wanted("one", "", [1]), doubling(), tmp_path)
    half = tmp_path / "one" / ".writing"
    half.mkdir()
    (half / "part-0.parquet").write_bytes(b"PAR1")
    assert [row.seed for row in read_replicates(spark, tmp_path)] == [1]
    assert not half.exists()


def test_a_worker_that_is_killed_shows_as_failed_replicates(
    spark: SparkSession, tmp_path: Path
) -> None:
    def die(setting: str, seed: int) -> dict[str, float]:
        os.kill(os.getpid(), signal.SIGKILL)
        return {}

    run_replicates(spark, Wanted("one", "", [1, 2]), die, tmp_path)
    rows = read_replicates(spark, tmp_path)
    assert [row.seed for row in rows] == [1, 2]
    assert all(row.error is not None and row.error.startswith("a worker died") for row in rows)
