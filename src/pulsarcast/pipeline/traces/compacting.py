"""Compaction: the many small files of many batches become few large ones (`layout`: generations).

A stream writes a file per batch, task, run and kind, and every reader pays for each of them.
Compaction copies rows, it does not look at them. The batch that Spark may still replay keeps its
folders, so that the replay finds what it has to replace.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from pulsarcast.pipeline.folders import gather, link_tree
from pulsarcast.pipeline.merging import FILE_BYTES, Format, Merge, group_files, merge_files
from pulsarcast.pipeline.streams import committed_batch
from pulsarcast.pipeline.traces import arrow
from pulsarcast.pipeline.traces.layout import OWN_BATCHES, TABLES, Layout, batch_folder
from pulsarcast.pipeline.traces.writing import INDEX

_FORMATS: Final = {
    "lines": Format(arrow.FILE),
    "quarantine": Format(arrow.QUARANTINE),
    "segments": Format(INDEX),
}


@dataclass(frozen=True)
class CompactResult:
    """What a compaction changed."""

    batches: int  # that are one now
    files_before: int
    files_after: int


def compact(spark: SparkSession, out: str | Path, *, file_bytes: int = FILE_BYTES) -> CompactResult:
    """Make one batch of all that nobody will replay, with files of about this size."""
    layout = Layout(out)
    layout.check()
    with layout.writing(), layout.staging() as staged:
        committed = committed_batch(layout.checkpoint)
        old = [b for b in layout.batches() if b >= OWN_BATCHES or b <= committed]
        number = layout.next_own_batch()
        merges = list(_plan(layout, old, number, file_bytes))
        files = sum(len(merge.files) for merge in merges)
        if len(merges) == files:
            return CompactResult(0, files, files)
        real = [merge for merge in merges if len(merge.files) > 1]
        merge_files(spark, real, staged, _format_of)
        with layout.next_generation() as new:
            for table in TABLES:
                for batch in layout.batches():
                    if batch not in old:
                        link_tree(layout.table(table), new / table, batch_folder(batch))
                (new / table / batch_folder(number)).mkdir()
                gather(staged / table, new / table / batch_folder(number))
            for merge in merges:
                if len(merge.files) == 1:
                    table, *place = merge.target.parts
                    target = new / table / batch_folder(number) / Path(*place)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.hardlink_to(merge.files[0])
            layout.note_compacted(committed)
    return CompactResult(len(old), files, len(merges))


def _format_of(target: Path) -> Format:
    return _FORMATS[target.parts[0]]


def _plan(layout: Layout, batches: Sequence[int], number: int, file_bytes: int) -> Iterator[Merge]:
    """Which files to put together, and which to leave as they are: merges of one."""
    merges = 0
    for table in TABLES:
        places: dict[Path, list[Path]] = {}
        for batch in batches:
            folder = layout.table(table) / batch_folder(batch)
            for file in sorted(folder.rglob("*.parquet")):
                places.setdefault(file.parent.relative_to(folder), []).append(file)
        for place, files in places.items():
            for group, size in group_files(files, file_bytes):
                name = group[0].name
                if len(group) > 1:
                    name = f"{number:012}-{merges:06}.parquet"
                    merges += 1
                yield Merge(Path(table) / place / name, group, size)
