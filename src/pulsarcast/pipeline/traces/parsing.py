"""Lines of text into columns: what is a line of a trace, what is none, and why.

Arrow's reader takes a block of lines at once and is strict: it refuses a value of another type and
a field that is there twice, instead of making something up. Where it refuses a block, the block is
halved until the lines at fault stand alone. So there is one parser, and a bad line costs its
neighbours nothing but time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
from pyarrow import json

from pulsarcast.model.trace import ENVELOPE_SCHEMA, SCHEMA, SCHEMA_VERSION
from pulsarcast.pipeline.traces import arrow

TEXT_BYTES_MAX: Final = 64 * 1024
"""Of a line in quarantine: enough to see what it is."""
ENVELOPE: Final = (*ENVELOPE_SCHEMA, "kind")

_OPTIONS: Final = json.ParseOptions(
    explicit_schema=arrow.LINE, unexpected_field_behavior="ignore", newlines_in_values=False
)


class Reject(NamedTuple):
    """A line that goes to quarantine."""

    line: int  # counted from the beginning of the block
    reason: str
    text: str


class Piece(NamedTuple):
    """Lines that were read: a row of `arrow.LINE` for each line of the text."""

    rows: pa.RecordBatch
    text: bytes
    first: int  # which line of the block its first one is


def parse(text: bytes, rejects: list[Reject], *, first: int = 0) -> Iterator[Piece]:
    """Read a block of whole lines; those that are none become rejects."""
    count = text.count(b"\n")
    try:
        yield Piece(_rows(text, count), text, first)
    except (pa.ArrowInvalid, UnicodeDecodeError, _NotPlainError) as error:
        if count > 1:
            middle = _middle(text)
            half = text[:middle]
            yield from parse(half, rejects, first=first)
            yield from parse(text[middle:], rejects, first=first + half.count(b"\n"))
            return
        row = _look_at(text, error)
        if isinstance(row, str):
            rejects.append(Reject(first, row, show(text)))
        else:
            yield Piece(row, text, first)


def is_known(kind: str, version: int) -> bool:
    """Whether we know what the fields of such a line mean."""
    return kind in SCHEMA and 1 <= version <= SCHEMA_VERSION


def show(text: bytes) -> str:
    """A line as it is shown in quarantine: always text, of bounded length."""
    return text[:TEXT_BYTES_MAX].decode(errors="backslashreplace").rstrip("\n")


class _NotPlainError(Exception):
    """The text may not be one object a line, so the reader's rows may not be its lines."""


def _rows(text: bytes, count: int) -> pa.RecordBatch:
    # A row is a line only if each line is one object: each begins and ends like one (so none is
    # empty, or goes on in the next), and there are as many rows as lines (so none is two).
    if not (text.startswith(b"{") and text.endswith(b"}\n") and text.count(b"}\n{") == count - 1):
        raise _NotPlainError
    if not text.isascii():
        text.decode()  # Arrow does not look, and every reader of the tables would stumble over it
    table = json.read_json(
        pa.BufferReader(text),
        read_options=json.ReadOptions(use_threads=False, block_size=len(text) + 1),
        parse_options=_OPTIONS,
    )
    if table.num_rows != count:
        raise _NotPlainError
    (rows,) = table.combine_chunks().to_batches()
    return rows


def _middle(text: bytes) -> int:
    """Where a line ends, as near to the middle as can be; there are at least two lines."""
    half = len(text) // 2
    return text.rfind(b"\n", 0, half) + 1 or text.find(b"\n", half) + 1


def _look_at(text: bytes, error: Exception) -> pa.RecordBatch | str:
    """Say what is wrong with one line, or read it after all: only its looks may be strange."""
    fields = _fields(text, error)
    if isinstance(fields, str):
        return fields
    try:
        return pa.RecordBatch.from_pylist([fields], schema=arrow.LINE)
    except pa.ArrowInvalid as problem:  # a number that a double does not hold
        return f"not readable: {problem}"


def _fields(text: bytes, error: Exception) -> dict[str, Any] | str:
    try:
        fields = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        return f"no JSON: {problem}"
    if not isinstance(fields, dict):
        return "no JSON object"
    wrong = [name for name in ENVELOPE if not _fits(fields.get(name), arrow.LINE.field(name).type)]
    if wrong:
        return f"wrong or missing: {', '.join(wrong)}"
    if not is_known(fields["kind"], fields["schema_version"]):
        # Its fields may be of any type: the whole text is kept instead.
        return {name: fields[name] for name in ENVELOPE}
    wrong = [
        name
        for name in SCHEMA[fields["kind"]]
        if (value := fields.get(name)) is not None and not _fits(value, arrow.LINE.field(name).type)
    ]
    if wrong:
        return f"wrong: {', '.join(wrong)}"
    if isinstance(error, _NotPlainError):
        return fields
    return f"not readable: {error}"


def _fits(value: Any, of: pa.DataType) -> bool:
    """Whether a value read from JSON is of a type, without any conversion."""
    if pa.types.is_string(of):
        return isinstance(value, str)
    if pa.types.is_int64(of):
        return type(value) is int and -(1 << 63) <= value < 1 << 63
    if pa.types.is_float64(of):
        return type(value) in {int, float}
    if pa.types.is_boolean(of):
        return isinstance(value, bool)
    if pa.types.is_list(of):
        return isinstance(value, list) and all(_fits(item, of.value_type) for item in value)
    return isinstance(value, dict) and all(_fits(value.get(part.name), part.type) for part in of)
