"""Many small Parquet files into few large ones: tasks of Spark copy rows and do not look at them.

Each attempt of a task writes into a folder of its own, which counts only if Spark says that this
attempt succeeded: what a lost executor left half done, or still writes, is never looked at.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import SparkSession

from pulsarcast.pipeline.folders import gather

FILE_BYTES: Final = 128 * 1024 * 1024
"""How large files shall be."""
PART_BYTES: Final = 48 * 1024 * 1024
"""Rows that are written together, in memory."""

FILE_COST_BYTES: Final = 1024 * 1024
TASK_BYTES: Final = 256 * 1024 * 1024

PARQUET: Final[Mapping[str, Any]] = {"compression": "zstd", "store_schema": False}
"""How Arrow writes our files: with nothing in them that only Arrow reads."""

Task: TypeAlias = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class Merge(NamedTuple):
    """Files whose rows become one file, one behind the other."""

    target: Path
    """Below the folder that the files are written to."""
    files: tuple[Path, ...]
    size: int


class Format(NamedTuple):
    """How merged files are written; travels to the tasks."""

    schema: pa.Schema
    options: Mapping[str, Any] = PARQUET
    part_bytes: int = PART_BYTES


def attempt_folder(attempt: int) -> str:
    """What the folder of one attempt of a task is called."""
    return f"task={attempt}"


def this_attempt() -> int:
    """The attempt of a task that runs this."""
    context = TaskContext.get()
    assert context is not None
    return context.taskAttemptId()


def group_files(files: Sequence[Path], file_bytes: int) -> Iterator[tuple[tuple[Path, ...], int]]:
    """Neighbours together, up to the size; a file that is large enough stays alone."""
    group: list[Path] = []
    size = 0
    for file in files:
        own = file.stat().st_size
        if own >= file_bytes // 2:
            yield (file,), own
            continue
        if group and size + own > file_bytes:
            yield tuple(group), size
            group, size = [], 0
        group.append(file)
        size += own
    if group:
        yield tuple(group), size


def merge_files(
    spark: SparkSession,
    merges: Sequence[Merge],
    staged: Path,
    format_of: Callable[[Path], Format],
) -> None:
    """Have tasks write the new files; the list of files is as long as Spark's own would be."""
    rows = []
    reached = 0
    for merge in merges:
        # Small merges share a task: each file costs as if it had some size of its own.
        reached += merge.size + len(merge.files) * FILE_COST_BYTES
        names = [str(file) for file in merge.files]
        rows.append((reached // TASK_BYTES, str(merge.target), names))
    columns = "task int, target string, files array<string>"
    tasks = spark.createDataFrame(rows, columns).repartitionById(rows[-1][0] + 1, "task")
    done = tasks.mapInArrow(_merging_into(staged, format_of), "attempt bigint").collect()
    for attempt in {row.attempt for row in done}:
        gather(staged / attempt_folder(attempt), staged)
    for failed in staged.glob("task=*"):
        shutil.rmtree(failed)


def _merging_into(staged: Path, format_of: Callable[[Path], Format]) -> Task:
    def merge(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        attempt = this_attempt()
        for rows in batches:
            for row in rows.to_pylist():
                target = staged / attempt_folder(attempt) / row["target"]
                target.parent.mkdir(parents=True, exist_ok=True)
                _copy(row["files"], target, format_of(Path(row["target"])))
                yield pa.record_batch({"attempt": [attempt]})

    return merge


def _copy(files: Sequence[str], target: Path, form: Format) -> None:
    waiting: list[pa.Table] = []
    size = 0
    with pq.ParquetWriter(target, form.schema, **form.options) as writer:
        for name in files:
            with pq.ParquetFile(name) as file:
                # Group by group: rows may be large, and whoever wrote them took care of that.
                for group in range(file.num_row_groups):
                    waiting.append(file.read_row_group(group).cast(form.schema))
                    size += waiting[-1].nbytes
                    if size >= form.part_bytes:
                        writer.write_table(pa.concat_tables(waiting))
                        waiting, size = [], 0
        if waiting:
            writer.write_table(pa.concat_tables(waiting))
