"""What tasks write of a batch: files of one topic each, with rows in the order of their offsets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from pulsarcast.pipeline.archive.layout import Part
from pulsarcast.pipeline.folders import sync
from pulsarcast.pipeline.merging import PARQUET, Format, Task, attempt_folder, this_attempt
from pulsarcast.pipeline.topics.schema import arrow_schema

GROUP_BYTES: Final = 12 * 1024 * 1024
"""Rows that are written, and later read, together. A group is what one task verifies at a time."""

FILE: Final = pa.schema([field for field in arrow_schema(blocks=True) if field.name != "topic"])
"""What is in the files; the topic is the name of their folder."""

_REPEATED: Final = ("topic_name", "version", "publisher", "author", "name", "sequence.epoch")
_ORDERED: Final = ("offset", "sequence.number", "created", "received")
OPTIONS: Final[Mapping[str, Any]] = {
    **PARQUET,
    # Ids, signatures and payloads do not repeat: to look for it takes time.
    "use_dictionary": [*_REPEATED, "attributes.key_value.key"],
    "write_statistics": [*_REPEATED, *_ORDERED],
    "write_page_checksum": True,
}
FORMAT: Final = Format(FILE, OPTIONS, GROUP_BYTES)

_WRITTEN: Final = "topic string, file string, first bigint, last bigint, rows bigint, bytes bigint"


def write_rows(rows: DataFrame, staged: Path, ends: Mapping[str, int]) -> tuple[list[Part], int]:
    """Have tasks write what lies behind the ends of topics; the files, and how many rows."""
    written = rows.mapInArrow(_archiving_into(staged, ends), _WRITTEN).collect()
    parts = [Part(row.topic, row.first, row.last, Path(row.file)) for row in written]
    return sorted(parts), sum(row.rows for row in written)


def _archiving_into(staged: Path, ends: Mapping[str, int]) -> Task:
    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        files = _Files(staged / attempt_folder(this_attempt()), ends)
        for batch in batches:
            files.add(batch)
        yield from files.close()

    return write


class _Files:
    """Writes rows as they come; a file ends where the topic does, or a stretch of its log."""

    def __init__(self, folder: Path, ends: Mapping[str, int]) -> None:
        self._folder = folder
        self._ends = ends
        self._topic = ""
        self._first = self._last = self._rows = 0
        self._writer: pq.ParquetWriter | None = None
        self._path = folder
        self._waiting: list[pa.RecordBatch] = []
        self._size = 0
        self._written: list[dict[str, Any]] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Take rows of any topics."""
        for topic, rows in _by_topic(batch):
            new = rows.filter(pc.greater(rows["offset"], self._ends.get(topic, 0)))
            for stretch in _without_gaps(new):
                self._add(topic, stretch)

    def _add(self, topic: str, rows: pa.RecordBatch) -> None:
        first, last = rows["offset"][0].as_py(), rows["offset"][-1].as_py()
        if self._writer is not None and (topic != self._topic or first != self._last + 1):
            self._end()
        if self._writer is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._path = self._folder / f"{len(self._written):06}.parquet"
            self._writer = pq.ParquetWriter(self._path, FILE, **OPTIONS)
            self._topic, self._first = topic, first
        self._last = last
        self._rows += len(rows)
        self._waiting.append(rows)
        self._size += rows.nbytes
        if self._size >= GROUP_BYTES:
            self._write()

    def _write(self) -> None:
        assert self._writer is not None
        self._writer.write_table(pa.Table.from_batches(self._waiting).select(FILE.names).cast(FILE))
        self._waiting.clear()
        self._size = 0

    def _end(self) -> None:
        if self._waiting:
            self._write()
        assert self._writer is not None
        self._writer.close()
        self._writer = None
        sync(self._path)
        self._written.append(
            {
                "topic": self._topic,
                "file": str(self._path),
                "first": self._first,
                "last": self._last,
                "rows": self._rows,
                "bytes": self._path.stat().st_size,
            }
        )
        self._rows = 0

    def close(self) -> Iterator[pa.RecordBatch]:
        """End the last file; what was written, for the driver."""
        if self._writer is not None:
            self._end()
        if self._written:
            yield pa.RecordBatch.from_pylist(self._written)


def _by_topic(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Rows of one topic each: a partition of the source is one, and so is mostly a batch."""
    topics = pc.unique(batch["topic"]).to_pylist()
    for topic in topics:
        yield topic, batch if len(topics) == 1 else batch.filter(pc.equal(batch["topic"], topic))


def _without_gaps(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Rows whose offsets follow one another; all of them at once, unless some were lost."""
    offsets = rows["offset"].to_numpy()
    ends = [*(np.flatnonzero(np.diff(offsets) != 1) + 1).tolist(), len(rows)]
    start = 0
    for end in ends:
        if start < end:
            yield rows.slice(start, end - start)
        start = end
