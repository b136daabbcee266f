"""Compaction: the many small files of many batches become few large ones (`layout`: generations).

A stream writes a file per batch, task, run and kind, and every reader pays for each of them.
Compaction copies rows, it does not look at them. The batch that Spark may still replay keeps its
folders, so that the replay finds what it has to replace.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import SparkSession

from pulsarcast.pipeline.traces import arrow
from pulsarcast.pipeline.traces.layout import (
    OWN_BATCHES,
    TABLES,
    Layout,
    batch_folder,
    gather,
    link_tree,
)
from pulsarcast.pipeline.traces.streaming import committed_batch
from pulsarcast.pipeline.traces.writing import INDEX, PARQUET, PART_BYTES, Task, attempt_folder

FILE_BYTES: Final = 128 * 1024 * 1024
"""How large files shall be."""

FILE_COST_BYTES: Final = 1024 * 1024
TASK_BYTES: Final = 256 * 1024 * 1024

_SCHEMAS: Final = {"lines": arrow.FILE, "quarantine": arrow.QUARANTINE, "segments": INDEX}


@dataclass(frozen=True)
class CompactResult:
    """What a compaction changed."""

    batches: int  # that are one now
    files_before: int
    files_after: int


class _Merge(NamedTuple):
    """Files of one table, run and kind that become one."""

    table: str
    place: Path  # below the batch's folder
    files: tuple[Path, ...]
    size: int


def compact(spark: SparkSession, out: str | Path, *, file_bytes: int = FILE_BYTES) -> CompactResult:
    """Make one batch of all that nobody will replay, with files of about this size."""
    layout = Layout(out)
    layout.check()
    with layout.writing(), layout.staging() as staged:
        committed = committed_batch(layout)
        old = [b for b in layout.batches() if b >= OWN_BATCHES or b <= committed]
        merges = list(_plan(layout, old, file_bytes))
        files = sum(len(merge.files) for merge in merges)
        if len(merges) == files:
            return CompactResult(0, files, files)
        number = layout.next_own_batch()
        _merge(spark, [merge for merge in merges if len(merge.files) > 1], staged, number)
        with layout.next_generation() as new:
            for table in TABLES:
                for batch in layout.batches():
                    if batch not in old:
                        link_tree(layout.table(table), new / table, batch_folder(batch))
                (new / table / batch_folder(number)).mkdir()
                gather(staged / table, new / table / batch_folder(number))
            for merge in merges:
                if len(merge.files) == 1:
                    target = new / merge.table / batch_folder(number) / merge.place
                    target.mkdir(parents=True, exist_ok=True)
                    (target / merge.files[0].name).hardlink_to(merge.files[0])
            layout.note_compacted(committed)
    return CompactResult(len(old), files, len(merges))


def _plan(layout: Layout, batches: Sequence[int], file_bytes: int) -> Iterator[_Merge]:
    """Which files to put together, and which to leave as they are: merges of one."""
    for table in TABLES:
        places: dict[Path, list[Path]] = {}
        for batch in batches:
            folder = layout.table(table) / batch_folder(batch)
            for file in sorted(folder.rglob("*.parquet")):
                places.setdefault(file.parent.relative_to(folder), []).append(file)
        for place, files in places.items():
            for group, size in _group(files, file_bytes):
                yield _Merge(table, place, group, size)


def _group(files: Sequence[Path], file_bytes: int) -> Iterator[tuple[tuple[Path, ...], int]]:
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


def _merge(spark: SparkSession, merges: Sequence[_Merge], staged: Path, batch: int) -> None:
    """Have tasks write the new files; the list of files is as long as Spark's own would be."""
    rows = []
    reached = 0
    for number, merge in enumerate(merges):
        # Small merges share a task: each file costs as if it had some size of its own.
        reached += merge.size + len(merge.files) * FILE_COST_BYTES
        names = [str(file) for file in merge.files]
        rows.append((reached // TASK_BYTES, number, merge.table, str(merge.place), names))
    columns = "task int, number int, table string, place string, files array<string>"
    tasks = spark.createDataFrame(rows, columns).repartitionById(rows[-1][0] + 1, "task")
    done = tasks.mapInArrow(_merging_into(staged, batch), "attempt bigint").collect()
    for attempt in {row.attempt for row in done}:
        gather(staged / attempt_folder(attempt), staged)


def _merging_into(staged: Path, batch: int) -> Task:
    def merge(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        attempt = context.taskAttemptId()
        for rows in batches:
            for row in rows.to_pylist():
                folder = staged / attempt_folder(attempt) / row["table"] / row["place"]
                folder.mkdir(parents=True, exist_ok=True)
                _copy(
                    row["files"], folder / f"{batch:012}-{row['number']:06}.parquet", row["table"]
                )
                yield pa.record_batch({"attempt": [attempt]})

    return merge


def _copy(files: Sequence[str], target: Path, table: str) -> None:
    schema = _SCHEMAS[table]
    waiting: list[pa.RecordBatch] = []
    with pq.ParquetWriter(target, schema, **PARQUET) as writer:

        def write() -> None:
            if waiting:
                writer.write_table(pa.Table.from_batches(waiting).cast(schema))
                waiting.clear()

        for name in files:
            with pq.ParquetFile(name) as file:
                for batch in file.iter_batches():
                    waiting.append(batch)
                    if sum(batch.nbytes for batch in waiting) >= PART_BYTES:
                        write()
        write()
