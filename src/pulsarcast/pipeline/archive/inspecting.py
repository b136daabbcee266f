"""What a task does to verify an archive: read groups of rows itself, and say what it found.

Rows do not travel through Spark: a group is read with Arrow where it is judged. What comes back is
small: one row for the group, one for each unbroken stretch of offsets and of a publisher's numbers
(mostly one of each), and one for whatever is wrong, up to a bound.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pulsarcast.model.errors import LocalError
from pulsarcast.pipeline.archive.places import judge_offsets, stretches
from pulsarcast.pipeline.archive.rows import check_rows
from pulsarcast.pipeline.archive.writing import FILE

WRONG_MAX: Final = 1000
"""Wrong rows of a group that are named; all are counted."""

GROUP_BYTES_MAX: Final = 512 * 1024 * 1024
"""Beyond this a group is none of ours: somebody means to fill our memory."""

GROUPS: Final = (
    "topic string, file string, part int, first bigint, last bigint, rows bigint, start bigint"
)
"""What a task is given: groups of rows in files, with the file's offsets (`places`)."""

FOUND: Final = (
    "kind string, topic string, file string, part int, first bigint, last bigint, "
    "event_id string, reason string, publisher string, epoch bigint, offset bigint, "
    "rows bigint, wrong bigint, back bigint, cpu_s double"
)
"""What it says. By kind:

    group     a group of rows: how many, how many of them wrong, and the topic's name in `reason`
    wrong     one row, or a whole group that cannot be read
    offsets   offsets that follow one another
    numbers   a publisher's numbers of one epoch that follow one another
"""

_ARROW: Final = {
    "string": pa.string(), "int": pa.int32(), "bigint": pa.int64(), "double": pa.float64()
}  # fmt: skip
FIELDS: Final = pa.schema(
    [(name, _ARROW[kind]) for name, kind in (column.split(" ") for column in FOUND.split(", "))]
)


def inspect_groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The task: from rows of `GROUPS` to rows of `FOUND`."""
    for batch in batches:
        for group in batch.to_pylist():
            yield pa.RecordBatch.from_pylist(list(inspect_group(**group)), FIELDS)


def inspect_group(
    topic: str, file: str, part: int, first: int, last: int, rows: int, start: int | None
) -> Iterator[dict[str, Any]]:
    """All that is to be said about one group of rows."""
    began_s = time.process_time()
    place = {"topic": topic, "file": file, "part": part}
    told = {**place, "kind": "group", "rows": 0, "wrong": 1, "back": 0}
    try:
        found = _read(Path(file), part)
    except (OSError, pa.ArrowException, LocalError) as error:
        if start is not None:
            first, last = start, start + rows - 1
        reason = f"rows of group {part} cannot be read: {brief(error)}"
        yield {**place, "kind": "wrong", "offset": first, "reason": reason}
        # Nobody knows whether they are there; that they are missing is not said as well.
        yield {**place, "kind": "offsets", "first": first, "last": last}
    else:
        inspected = _Inspected(topic, found)
        inspected.judge_offsets(first, last, start)
        for each in inspected.found():
            yield {**place, **each}
        wrong = len(inspected.wrong)
        told |= {"rows": rows, "wrong": wrong, "back": inspected.back, "reason": inspected.name}
    yield {**told, "cpu_s": time.process_time() - began_s}


def _read(path: Path, part: int) -> pa.Table:
    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        schema = file.schema_arrow
        if not schema.equals(FILE):
            raise LocalError(f"its columns are {_changes(schema)}")
        if file.metadata.row_group(part).total_byte_size > GROUP_BYTES_MAX:
            raise LocalError("they are more than any archive writes together")
        if file.metadata.row_group(part).num_rows == 0:
            raise LocalError("they are none")
        return file.read_row_group(part, use_threads=False)


def brief(error: Exception) -> str:
    """What went wrong, in a line."""
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _changes(schema: pa.Schema) -> str:
    """How a file's columns differ from those of an archive."""
    names = set(schema.names)
    changes = [f"without {name}" for name in FILE.names if name not in names]
    changes += [f"with {name}" for name in schema.names if name not in FILE.names]
    changes += [
        f"with {field.name} as {schema.field(field.name).type}"
        for field in FILE
        if field.name in names and schema.field(field.name).type != field.type
    ]
    return ", ".join(changes) or "in another order"


class _Inspected:
    """One group of rows, looked at."""

    def __init__(self, topic: str, rows: pa.Table) -> None:
        checked = check_rows(topic, rows)
        self.wrong = checked.wrong
        self._rows = rows
        self._right = checked.right
        self._offsets = rows["offset"].combine_chunks().fill_null(-1).to_numpy()
        self.name = self._check_names()
        times = rows["received"].cast(pa.int64()).drop_null().to_numpy()
        self.back = int(np.count_nonzero(np.diff(times) < 0))

    def judge_offsets(self, first: int, last: int, start: int | None) -> None:
        """See that rows stand where they belong."""
        wrong, self._offsets = judge_offsets(self._offsets, first, last, start)
        for at, reason in wrong.items():
            self._blame(at, reason)

    def _check_names(self) -> str:
        """A topic's name never changes; which one is right, the others say."""
        counts = pc.value_counts(self._rows["topic_name"]).to_pylist()
        name = max(counts, key=lambda each: each["counts"])["values"]
        if len(counts) > 1:
            for at, found in enumerate(self._rows["topic_name"].to_pylist()):
                if found != name:
                    self._blame(at, "topic_name is not what the topic's other rows say")
        return str(name)

    def _blame(self, at: int, reason: str) -> None:
        self.wrong[at] = f"{self.wrong[at]}; {reason}" if at in self.wrong else reason

    def found(self) -> Iterator[dict[str, Any]]:
        for first, last in stretches(self._offsets):
            yield {"kind": "offsets", "first": first, "last": last}
        yield from self._numbers()
        offsets, ids = self._rows["offset"], self._rows["event_id"]
        for at in sorted(self.wrong)[:WRONG_MAX]:
            yield {
                "kind": "wrong",
                "offset": offsets[at].as_py(),
                "event_id": ids[at].as_py(),
                "reason": self.wrong[at],
            }

    def _numbers(self) -> Iterator[dict[str, Any]]:
        """Each publisher's numbers, as they follow one another in the log."""
        if self._right is None:
            return
        right = self._right
        # A row that is there twice says its number twice: that much is told already.
        firsts = np.unique(right["offset"].to_numpy(), return_index=True)[1]
        right = right.take(np.sort(firsts))
        publishers = right["publisher"].combine_chunks().dictionary_encode()
        sequence = right["sequence"].combine_chunks()
        codes = publishers.indices.to_numpy()
        epochs, numbers = (sequence.field(name).to_numpy() for name in ("epoch", "number"))
        offsets = right["offset"].to_numpy()
        order = np.lexsort((np.arange(len(codes)), epochs, codes))
        codes, epochs, numbers, offsets = (
            column[order] for column in (codes, epochs, numbers, offsets)
        )
        goes_on = (np.diff(codes) == 0) & (np.diff(epochs) == 0) & (np.diff(numbers) == 1)
        begins = np.concatenate(([0], np.flatnonzero(~goes_on) + 1))
        ends = np.concatenate((begins[1:], [len(codes)])) - 1
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
            yield {
                "kind": "numbers",
                "publisher": publishers.dictionary[int(codes[begin])].as_py(),
                "epoch": int(epochs[begin]),
                "first": int(numbers[begin]),
                "last": int(numbers[end]),
                "offset": int(offsets[begin]),
            }
