"""What a task of Spark does: read segments, write Parquet, and say what it read.

Rows do not travel through Spark: an executor parses and writes columns with Arrow, which is
cheaper, and hands Spark one row per stretch of a node's life. Only the folders of attempts that
succeeded count (`merging`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from pulsarcast.pipeline.merging import PARQUET, PART_BYTES, Task, attempt_folder, this_attempt
from pulsarcast.pipeline.traces import arrow
from pulsarcast.pipeline.traces.parsing import Reject, parse, show
from pulsarcast.pipeline.traces.segments import BLOCK_BYTES, Segment
from pulsarcast.pipeline.traces.sorting import Life, Place, Sorter, Stretch

BUFFER_BYTES: Final = 96 * 1024 * 1024
"""Rows that a task keeps in memory, until it writes the largest part of them."""
OPEN_FILES_MAX: Final = 64

_ESCAPED: Final = frozenset("\"#%'*/:=?\\{[]^\x7f")
"""What Spark and Hive do not let stand in the name of a folder."""

SEGMENTS: Final = (
    "`segment` string, `bytes` bigint, `quarantined` bigint, `unknown` bigint, `run_id` string, "
    "`node_id` string, `incarnation` bigint, `first_seq` bigint, `last_seq` bigint, "
    "`in_order` boolean, `lines` bigint, `duplicates` bigint, `task` bigint"
)
"""The index: one row per segment, and one per stretch of a node's life in it.

A segment's row has its size, and how many of its lines were quarantined or of unknown meaning, and
no run; a stretch's row has all the rest. `task` is the attempt that read it.
"""

INDEX: Final = pa.schema(
    [
        (name.strip("`"), arrow.arrow_type(ddl))
        for name, ddl in (column.split(" ") for column in SEGMENTS.split(", "))
    ]
)


def writing_into(folder: Path, name: str, *, run_id: str | None = None) -> Task:
    """The task: from rows that name segments to files below a folder, and rows of the index.

    With a `run_id`, lines of other runs are passed over.
    """

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        attempt = this_attempt()
        with Tables(folder / attempt_folder(attempt), f"{name}-{attempt:06}") as tables:
            landing = Landing(tables, run_id)
            for batch in batches:
                for path in batch.column("path").to_pylist():
                    landing.add(local_path(path))
            rows = [row | {"task": attempt} for row in landing.index()]
        if rows:
            yield pa.RecordBatch.from_pylist(rows, INDEX)

    return write


def local_path(path: str) -> Path:
    """The path that Spark's name for a file stands for."""
    return Path("/" + path.removeprefix("file:").lstrip("/"))


class Landing:
    """Segments on their way into tables, and what the index will say about them.

    Short segments are read together: a node that says little would otherwise cost as much as one
    that says a lot.
    """

    def __init__(self, tables: Tables, run_id: str | None = None) -> None:
        self._tables = tables
        self._run_id = run_id
        self._texts: list[bytes] = []
        self._places: list[Place] = []
        self._size = 0
        self._bytes: dict[str, int] = {}
        self._quarantined: Counter[str] = Counter()
        self._unknown: Counter[str] = Counter()
        self._lives: dict[Life, Stretch] = {}

    def add(self, path: Path) -> None:
        """Read one segment."""
        segment = Segment(path)
        name = str(path)
        line = 1
        for block in segment.blocks():
            place = Place(name, line, block.count(b"\n"))
            line += place.lines
            self._texts.append(block)
            self._places.append(place)
            self._size += len(block)
            if self._size >= BLOCK_BYTES:
                self._land()
        if segment.fault is not None:
            self._quarantine([(name, line, segment.fault, show(segment.rest))])
        self._bytes[name] = segment.bytes

    def index(self) -> Iterator[dict[str, Any]]:
        """Land what is left; then all rows of the index."""
        self._land()
        for segment, size in self._bytes.items():
            yield {
                "segment": segment,
                "bytes": size,
                "quarantined": self._quarantined[segment],
                "unknown": self._unknown[segment],
            }
        for life, stretch in self._lives.items():
            yield {**life._asdict(), **stretch._asdict(), "duplicates": 0}

    def _land(self) -> None:
        if not self._texts:
            return
        text, places = b"".join(self._texts), self._places
        self._texts, self._places, self._size = [], [], 0
        rejects: list[Reject] = []
        for piece in parse(text, rejects):
            sorter = Sorter(places, piece)
            for group in sorter.groups():
                if self._run_id not in {None, group.run_id}:
                    continue
                self._tables.add(group.run_id, group.kind, group.rows)
                if group.unknown:
                    self._unknown.update(group.rows["segment"].to_pylist())
            for life, stretch in sorter.stretches():
                if self._run_id not in {None, life.run_id}:
                    continue
                before = self._lives.get(life)
                self._lives[life] = before.then(stretch) if before else stretch
            rejects += sorter.rejects
        starts = list(accumulate((place.lines for place in places), initial=0))
        found = []
        for reject in sorted(rejects):
            which = bisect_right(starts, reject.line) - 1
            line = reject.line - starts[which] + places[which].first_line
            found.append((places[which].segment, line, reject.reason, reject.text))
        self._quarantine(found)

    def _quarantine(self, found: list[tuple[str, int, str, str]]) -> None:
        self._quarantined.update(segment for segment, *_ in found)
        self._tables.quarantine(found)


class Tables:
    """Parquet files of `lines` and `quarantine`, written as rows come, in bounded memory.

    A file's name begins with `name`; it stands below `folder`, in the folders that its run and kind
    give it.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name
        self._files = 0
        self._waiting: dict[Path, list[pa.RecordBatch]] = {}
        self._sizes: dict[Path, int] = {}
        self._size = 0
        self._writers: dict[Path, pq.ParquetWriter] = {}

    def add(self, run_id: str, kind: str, rows: pa.RecordBatch) -> None:
        """Take lines of one run and kind: those columns of `arrow.FILE` that they have."""
        self._add(lines_folder(run_id, kind), rows)

    def quarantine(self, found: Sequence[tuple[str, int, str, str]]) -> None:
        """Take lines that are none: segment, number, reason and text of each."""
        if found:
            columns = [list(column) for column in zip(*found, strict=True)]
            self._add(Path("quarantine"), pa.record_batch(columns, schema=arrow.QUARANTINE))

    def _add(self, place: Path, rows: pa.RecordBatch) -> None:
        self._waiting.setdefault(place, []).append(rows)
        self._sizes[place] = self._sizes.get(place, 0) + rows.nbytes
        self._size += rows.nbytes
        if self._sizes[place] >= PART_BYTES:
            self._write(place)
        elif self._size >= BUFFER_BYTES:
            self._write(max(self._sizes, key=self._sizes.__getitem__))

    def _write(self, place: Path) -> None:
        self._size -= self._sizes.pop(place)
        schema = arrow.QUARANTINE if place.name == "quarantine" else arrow.FILE
        rows = pa.concat_tables(
            [pa.Table.from_batches([batch]) for batch in self._waiting.pop(place)],
            promote_options="default",
        )
        columns = [
            rows[field.name] if field.name in rows.column_names else pa.nulls(len(rows), field.type)
            for field in schema
        ]
        self._writer(place, schema).write_table(pa.table(columns, schema=schema))

    def _writer(self, place: Path, schema: pa.Schema) -> pq.ParquetWriter:
        writer = self._writers.pop(place, None)
        if writer is None:
            if len(self._writers) >= OPEN_FILES_MAX:
                self._writers.pop(next(iter(self._writers))).close()
            (self._folder / place).mkdir(parents=True, exist_ok=True)
            file = self._folder / place / f"{self._name}-{self._files:04}.parquet"
            self._files += 1
            writer = pq.ParquetWriter(file, schema, **PARQUET)
        self._writers[place] = writer  # the one that was used last is closed last
        return writer

    def close(self) -> None:
        """Write what is left, and end all files."""
        for place in list(self._waiting):
            self._write(place)
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()

    def __enter__(self) -> Tables:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()


def write_parquet(rows: DataFrame, folder: Path, *, by: str | None = None) -> None:
    """Let Spark write rows into a folder, beside what is there, with nothing but the rows."""
    no_mark = {"mapreduce.fileoutputcommitter.marksuccessfuljobs": "false"}
    rows.write.mode("append").options(**no_mark).parquet(str(folder), partitionBy=by)


def lines_folder(run_id: str, kind: str) -> Path:
    """Where lines of one run and kind stand."""
    return Path("lines") / f"run_id={_escape(run_id)}" / f"kind={_escape(kind)}"


def _escape(name: str) -> str:
    return "".join(f"%{ord(sign):02X}" if sign in _ESCAPED else sign for sign in name)
