"""Comments: what the lines of a dump say, in either of its formats, and what they fail to say.

The earlier dumps write `created_utc` as a number, the later ones as text; some have `ups`, some
only `score`. A line that is no comment is kept, with a reason, and counted: it never turns into a
row of nulls. Lines are parsed by the task that decodes them, so that only what is needed of them
ever reaches Spark.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pulsarcast.model.errors import LocalError
from pulsarcast.pipeline.workloads.dumps import LINE_BYTES_MAX, BrokenDumpError, Chunk, read_chunks

COMMENT: Final = (
    "created_utc bigint, id string, id_number bigint, author string, topic string, "
    "ups int, downs int, controversiality int, body_bytes int, body string"
)
"""A comment; `body` is null unless asked for. `id_number` is the id, read as base 36."""

PARSED: Final = (
    f"file int, line_number bigint, {COMMENT}, reason string, detail string, text string"
)
"""What a line became: a comment, or a reason why it is none."""

QUARANTINE: Final = "file string, line_number bigint, reason string, detail string, text string"
"""The table `quarantine`: every line that is no comment, to be looked at."""

EMPTY: Final = "empty line"
NOT_JSON: Final = "not JSON"
NOT_UTF8: Final = "not UTF-8"
NOT_A_COMMENT: Final = "not a comment"
TOO_LONG: Final = "line too long"
BROKEN_FILE: Final = "file broken"
"""The one reason that does not stand for a line: the file could not be read any further."""

BATCH_ROWS: Final = 10_000
BATCH_BYTES: Final = 8 << 20
TEXT_BYTES_MAX: Final = 1 << 16
"""How much of a broken line is kept."""

_BASE36 = re.compile(r"[0-9a-z]{1,12}\Z")  # twelve digits are the most that 63 bits hold
_DIGITS = re.compile(r"[0-9]{1,11}\Z")
_TIME_MAX: Final = 10**11

_Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)]


class _Line(msgspec.Struct, gc=False):
    """A comment as it is written; a line has more than this, which is passed over."""

    id: str
    author: str
    subreddit: str
    created_utc: int | float | str
    body: str = ""
    ups: _Int32 | None = None
    score: _Int32 | None = None
    downs: _Int32 | None = None
    controversiality: _Int32 | None = None


_line_decoder = msgspec.json.Decoder(_Line)

_ARROW: Final = pa.schema(
    [
        ("file", pa.int32()),
        ("line_number", pa.int64()),
        ("created_utc", pa.int64()),
        ("id", pa.string()),
        ("id_number", pa.int64()),
        ("author", pa.string()),
        ("topic", pa.string()),
        ("ups", pa.int32()),
        ("downs", pa.int32()),
        ("controversiality", pa.int32()),
        ("body_bytes", pa.int32()),
        ("body", pa.string()),
        ("reason", pa.string()),
        ("detail", pa.string()),
        ("text", pa.string()),
    ]
)


def check_files(files: Sequence[str | Path]) -> list[str]:
    """The files as absolute paths, sorted, so that the order in which they are named is nothing."""
    for file in files:
        if not Path(file).is_file():
            raise LocalError(f"no such file: {file}")
    paths = {str(Path(file).resolve()) for file in files}
    return sorted(paths, key=lambda path: (Path(path).name, path))


def read_dumps(spark: SparkSession, files: Sequence[str], *, bodies: bool = False) -> DataFrame:
    """Every line of these files as a row of PARSED; one task a file.

    Every executor must see the files under the same paths.
    """
    paths = list(files)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for index in batch.column(0).to_pylist():
                yield from parse_file(index, paths[index], bodies=bodies)

    return spark.range(0, len(paths), 1, numPartitions=max(1, len(paths))).mapInArrow(read, PARSED)


def parse_file(index: int, path: str | Path, *, bodies: bool = False) -> Iterator[pa.RecordBatch]:
    """The rows of one file, in batches of bounded size."""
    rows = _Rows(index, bodies=bodies)
    try:
        for chunk in read_chunks(path):
            for start in range(0, len(chunk.lines), BATCH_ROWS):
                rows.take(
                    Chunk(chunk.first_number + start, chunk.lines[start : start + BATCH_ROWS])
                )
                if rows.is_full:
                    yield rows.flush()
    except BrokenDumpError as error:
        rows.refuse(error.line_number, BROKEN_FILE, error.reason, error.rest)
    if not rows.is_empty:
        yield rows.flush()


class _Rows:
    """Rows of PARSED, until there are enough for a batch."""

    def __init__(self, file: int, *, bodies: bool) -> None:
        self._file = file
        self._bodies = bodies
        self._rows: list[tuple[Any, ...]] = []
        self._bytes = 0

    @property
    def is_empty(self) -> bool:
        return not self._rows

    @property
    def is_full(self) -> bool:
        return len(self._rows) >= BATCH_ROWS or self._bytes >= BATCH_BYTES

    def take(self, chunk: Chunk) -> None:
        """Parse some lines."""
        decode = _line_decoder.decode
        for number, line in enumerate(chunk.lines, chunk.first_number):
            try:
                if len(line) > LINE_BYTES_MAX:
                    raise _RefusalError(TOO_LONG, f"more than {LINE_BYTES_MAX} bytes")
                self._accept(number, decode(line))
            except _RefusalError as error:
                self.refuse(number, error.reason, error.detail, line)
            except msgspec.ValidationError as error:
                self.refuse(number, NOT_A_COMMENT, str(error), line)
            except msgspec.DecodeError as error:
                blank = not line.strip()
                self.refuse(number, EMPTY if blank else NOT_JSON, "" if blank else str(error), line)
            except UnicodeError as error:
                self.refuse(number, NOT_UTF8, str(error), line)

    def _accept(self, number: int, line: _Line) -> None:
        created_utc = _time(line.created_utc)
        if not _BASE36.match(line.id):
            raise _RefusalError(NOT_A_COMMENT, "the id is not base 36, of at most 12 digits")
        if not line.author or not line.subreddit:
            raise _RefusalError(NOT_A_COMMENT, "author or subreddit is empty")
        ups = line.ups if line.ups is not None else line.score
        size = len(line.body) if line.body.isascii() else len(line.body.encode())
        self._rows.append(
            (
                self._file,
                number,
                created_utc,
                line.id,
                int(line.id, 36),
                line.author,
                line.subreddit,
                ups or 0,
                line.downs or 0,
                line.controversiality or 0,
                size,
                line.body if self._bodies else None,
                None,
                None,
                None,
            )
        )
        self._bytes += size if self._bodies else 0

    def refuse(self, number: int, reason: str, detail: str, line: bytes) -> None:
        """Keep a line that is no comment, as text."""
        text = line[:TEXT_BYTES_MAX].decode(errors="replace")
        self._rows.append((self._file, number, *([None] * 10), reason, detail, text))
        self._bytes += len(text)

    def flush(self) -> pa.RecordBatch:
        """What there is, as one batch; begins the next."""
        columns = zip(*self._rows, strict=True)
        arrays = [
            pa.array(column, field.type) for column, field in zip(columns, _ARROW, strict=True)
        ]
        self._rows = []
        self._bytes = 0
        return pa.RecordBatch.from_arrays(arrays, schema=_ARROW)


class _RefusalError(Exception):
    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


def _time(written: float | str) -> int:
    if isinstance(written, str):
        if not _DIGITS.match(written):
            raise _RefusalError(NOT_A_COMMENT, "created_utc is not a number of seconds")
        return int(written)
    if not 0 <= written < _TIME_MAX or written != int(written):
        raise _RefusalError(NOT_A_COMMENT, "created_utc is not a number of seconds")
    return int(written)


def comments(parsed: DataFrame) -> DataFrame:
    """Those rows that are comments, with where they stood."""
    return parsed.where(F.col("reason").isNull()).drop("reason", "detail", "text")


def quarantine(parsed: DataFrame, files: Sequence[str]) -> DataFrame:
    """Those rows that are none, with the name of their file."""
    names = F.array(*[F.lit(name) for name in files]) if files else F.array(F.lit(""))
    return parsed.where(F.col("reason").isNotNull()).select(
        names[F.col("file")].alias("file"), "line_number", "reason", "detail", "text"
    )
