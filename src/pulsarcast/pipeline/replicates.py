"""Replicates of experiments on Spark: settings times seeds, one row of figures each, as Parquet.

What an experiment is, is its caller's business: a function that workers can import, from a written
setting and a seed to named figures. Rows are written setting by setting, each batch under a name of
its own once it is whole, so that a call which was killed is simply made again.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from pyspark.sql import SparkSession

ROWS: Final = (
    "`setting_id` string, `setting` string, `seed` bigint, `seconds` double,"
    " `figures` map<string, double>, `error` string"
)
"""One replicate. `error` says why it has no figures; `seconds` is its worker's processor time."""

Work: TypeAlias = Callable[[str, int], Mapping[str, float]]


class Wanted(NamedTuple):
    """Replicates of one setting."""

    setting_id: str
    setting: str
    seeds: Sequence[int]


class Row(NamedTuple):
    """One replicate, as it was read back."""

    setting_id: str
    seed: int
    seconds: float
    figures: Mapping[str, float]
    error: str | None


def run_replicates(spark: SparkSession, wanted: Wanted, work: Work, folder: Path) -> None:
    """Run all seeds of a setting, each as a task of its own, and write one row for each."""
    jobs = [(wanted.setting_id, wanted.setting, seed) for seed in wanted.seeds]
    tasks = spark.sparkContext.parallelize(jobs, len(jobs))
    try:
        _write(spark, tasks.map(partial(_run_one, work)), wanted, folder)
    except Exception as error:
        # A worker that was killed takes its whole job along: then all of these show as failed. (If
        # it was Spark that died, this cannot be written either, and the error is seen.)
        said = f"a worker died: {type(error).__name__}"
        rows = [(*job, 0.0, None, said) for job in jobs]
        _write(spark, spark.sparkContext.parallelize(rows, 1), wanted, folder)


def _run_one(work: Work, job: tuple[str, str, int]) -> tuple[object, ...]:
    _, setting, seed = job
    began = time.process_time()
    figures: dict[str, float] | None = None
    said = None
    try:
        figures = {name: float(value) for name, value in work(setting, seed).items()}
    except Exception as error:  # whatever it is, its row says so
        said = f"{type(error).__name__}: {error}"
    return (*job, time.process_time() - began, figures, said)


def _write(spark: SparkSession, rows: object, wanted: Wanted, folder: Path) -> None:
    place = folder / wanted.setting_id
    writing = place / ".writing"
    # With its rows in a file of its own, however many tasks made them.
    frame = spark.createDataFrame(rows, ROWS).repartition(1)
    frame.write.mode("overwrite").parquet(str(writing))
    batch = 1 + sum(1 for _ in _batches(place))
    writing.rename(place / f"batch-{batch:04}")


def _batches(place: Path) -> Iterator[Path]:
    return place.glob("batch-*")


def read_replicates(spark: SparkSession, folder: Path) -> list[Row]:
    """All rows; of a replicate that failed and was run again, the one that counts."""
    for half in folder.glob("*/.writing"):
        shutil.rmtree(half)
    paths = [str(path) for place in sorted(folder.glob("*")) for path in sorted(_batches(place))]
    if not paths:
        return []
    found: dict[tuple[str, int], Row] = {}
    for each in spark.read.schema(ROWS).parquet(*paths).orderBy("setting_id", "seed").collect():
        row = Row(each.setting_id, each.seed, each.seconds, each.figures or {}, each.error)
        known = found.get((row.setting_id, row.seed))
        if known is None or known.error is not None:
            found[row.setting_id, row.seed] = row
    return list(found.values())
