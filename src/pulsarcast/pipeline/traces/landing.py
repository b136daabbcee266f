"""One batch: segments in, files out, held against earlier batches, shown as a whole."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from pulsarcast.model.errors import LocalError
from pulsarcast.pipeline.folders import gather
from pulsarcast.pipeline.merging import attempt_folder
from pulsarcast.pipeline.traces.duplicates import settle, suspicious_lives
from pulsarcast.pipeline.traces.layout import (
    COLUMNS,
    OWN_BATCHES,
    Layout,
    batch_folder,
    column_names,
)
from pulsarcast.pipeline.traces.segments import GLOB, PACKED
from pulsarcast.pipeline.traces.writing import SEGMENTS, write_parquet, writing_into

FILES: Final = "path string, modificationTime timestamp, length bigint, content binary"
"""What Spark's source of whole files gives. We take the path only: a task reads the file itself."""
OPTIONS: Final = {"pathGlobFilter": GLOB, "recursiveFileLookup": "true"}

TEXT_PER_PACKED: Final = 12
"""Bytes of text in a packed byte, about: to share work out."""
SEGMENT_COST_BYTES: Final = 64 * 1024
"""What it takes to open a segment, in bytes of text."""
TASK_BYTES_MIN: Final = 8 * 1024 * 1024
TASK_BYTES_MAX: Final = 256 * 1024 * 1024
"""Text for one task: enough to make files of some size, and little to do again."""


@dataclass(frozen=True)
class LandResult:
    """What one batch brought."""

    batch: int
    segments: int = 0
    bytes: int = 0  # of the segments, packed as they are
    lines: int = 0
    unknown: int = 0  # of the lines: kind or version not known here, kept as text
    quarantined: int = 0
    duplicates: int = 0  # lines that were there already, word for word: dropped


def land(spark: SparkSession, traces: Sequence[str | Path], out: str | Path) -> LandResult:
    """Land all closed segments below these folders that the tables do not have yet."""
    layout = Layout(out)
    folders = trace_folders(traces)
    with layout.writing():
        files = closed_segments(spark, folders)
        return land_batch(spark, layout, files, layout.next_own_batch())


def trace_folders(traces: Sequence[str | Path]) -> list[Path]:
    """The folders of traces by their real paths, so that each segment has one name."""
    if not traces:
        raise LocalError("no folder of traces was named")
    for trace in traces:
        if not Path(trace).exists():
            raise LocalError(f"there is no folder {trace}")
    folders = sorted({Path(trace).resolve() for trace in traces})
    return [folder for folder in folders if not any(top in folder.parents for top in folders)]


def closed_segments(spark: SparkSession, folders: Sequence[Path]) -> DataFrame:
    """A row per closed segment below these folders; the hidden names of open ones do not count."""
    files = spark.read.format("binaryFile").options(**OPTIONS).load(glob_of(folders))
    return files.select("path", "length")


def glob_of(folders: Sequence[Path]) -> str:
    """One pattern for all folders: a stream takes one path, and Spark reads it as a pattern."""
    names = [re.sub(r"([\\{}\[\]*?,^])", r"\\\1", str(folder)[1:]) for folder in folders]
    return "/" + (names[0] if len(names) == 1 else "{" + ",".join(names) + "}")


def land_batch(spark: SparkSession, layout: Layout, files: DataFrame, batch: int) -> LandResult:
    """Land the segments that rows with `path` and `length` name, as this batch.

    It is held against all other batches on record, never against itself: a batch that is done again
    comes out the same.
    """
    with layout.staging() as staged:
        files = _not_landed(spark, layout, files, batch)
        result = stage(spark, files, staged, batch)
        index = staged_index(spark, staged)
        lives = suspicious_lives(index, read_table(spark, layout, "segments", apart_from=batch))
        if not lives.isEmpty():
            settle(staged, index, read_table(spark, layout, "lines", apart_from=batch), lives)
            result, _ = count(staged_index(spark, staged), batch)
        layout.publish(batch, staged)
    return result


def read_table(
    spark: SparkSession, layout: Layout, name: str, *, apart_from: int | None = None
) -> DataFrame:
    """A table as it stands, with one batch left out."""
    columns = COLUMNS[name]
    table = spark.read.schema(f"{columns}, `batch` string").parquet(str(layout.table(name)))
    if apart_from is not None:
        table = table.where(F.col("batch") != f"{apart_from:012}")
    return table.select(*column_names(columns))


def stage(
    spark: SparkSession, files: DataFrame, staged: Path, batch: int, *, run_id: str | None = None
) -> LandResult:
    """Let tasks write what segments hold, of all runs or of one, into a folder."""
    task = writing_into(staged, f"{batch:012}", run_id=run_id)
    write_parquet(_share_out(files).mapInArrow(task, SEGMENTS), staged / "segments")
    result, attempts = count(staged_index(spark, staged), batch)
    for attempt in attempts:
        gather(staged / attempt_folder(attempt), staged)
    return result


def staged_index(spark: SparkSession, staged: Path) -> DataFrame:
    """The index of what stands in a folder that is not shown yet."""
    return spark.read.schema(SEGMENTS).parquet(str(staged / "segments"))


def _not_landed(spark: SparkSession, layout: Layout, files: DataFrame, batch: int) -> DataFrame:
    """Leave out the segments that another batch has.

    The stream reads each path once, so its batches need not be held against each other.
    """
    others = [other for other in layout.batches() if other != batch]
    if not any(max(batch, other) >= OWN_BATCHES for other in others):
        return files
    index = read_table(spark, layout, "segments", apart_from=batch)
    landed = index.select("segment").distinct()
    record = layout.table("segments") / batch_folder(batch)
    if record.exists():
        # Of a segment that a rebuilt run shares with others, the rest is still in this batch.
        own = spark.read.schema(SEGMENTS).parquet(str(record)).where("run_id is not null")
        landed = landed.join(own, on="segment", how="left_anti")
    return files.join(landed, on=segment_name() == landed["segment"], how="left_anti")


def segment_name() -> Column:
    """The name under which a file that Spark lists stands in the tables."""
    return F.regexp_replace("path", "^file:/+", "/")


def _share_out(files: DataFrame) -> DataFrame:
    """Give segments to tasks: alike in size, and neighbours together.

    Spark itself sorts files by size; a task would then hold a bit of every run, and write a file
    for each. The window has no partition: a row in it stands for megabytes.
    """
    is_packed = F.col("path").endswith(PACKED)
    text = F.col("length") * F.when(is_packed, F.lit(TEXT_PER_PACKED)).otherwise(F.lit(1))
    sized = files.select("path", (text + SEGMENT_COST_BYTES).alias("size"))
    total = sized.agg(F.coalesce(F.sum("size"), F.lit(0)).alias("size")).first()
    assert total is not None
    cores = files.sparkSession.sparkContext.defaultParallelism
    share = min(max(total["size"] // (2 * cores), TASK_BYTES_MIN), TASK_BYTES_MAX)
    count = total["size"] // share + 1
    reached = F.sum("size").over(Window.orderBy("path"))
    shared = sized.select("path", F.floor(reached / share).cast("int").alias("task"))
    return shared.repartitionById(count, "task").select("path")


def count(index: DataFrame, batch: int) -> tuple[LandResult, list[int]]:
    """What an index sums up to, and the attempts of tasks that it comes from.

    There are as many of these as tasks, which Spark's driver keeps account of anyway.
    """
    sums = ("bytes", "lines", "unknown", "quarantined", "duplicates")
    row = index.agg(
        F.count_if(F.col("run_id").isNull()).alias("segments"),
        *(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in sums),
        F.collect_set("task").alias("attempts"),
    ).first()
    assert row is not None
    counts = row.asDict()
    attempts = counts.pop("attempts")
    return LandResult(batch, **counts), attempts
