"""Compaction: a topic's many small files become few large ones, with the same rows in their order.

A stream writes a file per batch, task and topic, and every reader pays for each of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from pulsarcast.pipeline.archive.layout import EVENTS, ArchiveFolder, Part, place_of
from pulsarcast.pipeline.archive.writing import FORMAT
from pulsarcast.pipeline.folders import gather
from pulsarcast.pipeline.merging import FILE_BYTES, Format, Merge, group_files, merge_files

SMALL_FILES_MAX: Final = 32
"""How many small files a topic may have before somebody should merge them."""


@dataclass(frozen=True)
class CompactResult:
    """What a compaction changed."""

    files_before: int
    files_after: int


def compact(spark: SparkSession, out: str | Path, *, file_bytes: int = FILE_BYTES) -> CompactResult:
    """Merge neighbours into files of about this size."""
    folder = ArchiveFolder(out)
    folder.check()
    with folder.writing():
        return merge_small(spark, folder, file_bytes=file_bytes)


def has_many_small(folder: ArchiveFolder, *, file_bytes: int = FILE_BYTES) -> bool:
    """Whether some topic has more small files than it should."""
    for _, parts in groupby(folder.parts(), key=lambda part: part.topic):
        small = sum(part.path.stat().st_size < file_bytes // 2 for part in parts)
        if small > SMALL_FILES_MAX:
            return True
    return False


def merge_small(
    spark: SparkSession, folder: ArchiveFolder, *, file_bytes: int = FILE_BYTES
) -> CompactResult:
    """Do it, as the only writer."""
    parts = folder.parts()
    merges = list(_plan(parts, file_bytes))
    if not merges:
        return CompactResult(len(parts), len(parts))
    merged = {path for merge in merges for path in merge.files}
    with folder.staging() as staged:
        merge_files(spark, merges, staged, _format_of)
        with folder.next_generation() as new:
            for part in parts:
                target = new / EVENTS / part.path.parent.name
                target.mkdir(exist_ok=True)
                if part.path not in merged:
                    (target / part.path.name).hardlink_to(part.path)
            gather(staged, new / EVENTS)
    return CompactResult(len(parts), len(parts) - len(merged) + len(merges))


def _format_of(target: Path) -> Format:
    return FORMAT


def _plan(parts: list[Part], file_bytes: int) -> Iterator[Merge]:
    """Which files to put together: neighbours of a topic, with nothing missing between them."""
    for topic, own in groupby(parts, key=lambda part: part.topic):
        for stretch in _stretches(own, file_bytes):
            by_path = {part.path: part for part in stretch}
            for group, size in group_files(list(by_path), file_bytes):
                if len(group) > 1:
                    first, last = by_path[group[0]].first, by_path[group[-1]].last
                    yield Merge(place_of(topic, first, last), group, size)


def _stretches(parts: Iterable[Part], file_bytes: int) -> Iterator[list[Part]]:
    """Small files that follow one another."""
    stretch: list[Part] = []
    for part in parts:
        is_large = part.path.stat().st_size >= file_bytes // 2
        if stretch and (is_large or part.first != stretch[-1].last + 1):
            yield stretch
            stretch = []
        if not is_large:
            stretch.append(part)
    if stretch:
        yield stretch
