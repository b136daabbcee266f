"""Rows to their places: each line to its run and kind, each stretch of a life to the index.

What cannot have a place is rejected here: a line without an envelope, one whose run or kind cannot
name a folder, one that lacks what its kind must say. A missing value never becomes an empty one
in silence.
"""

from __future__ import annotations

import re
import typing
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pulsarcast.model.trace import ENVELOPE_SCHEMA, RECORDS, SCHEMA, SCHEMA_VERSION
from pulsarcast.pipeline.traces import arrow
from pulsarcast.pipeline.traces.parsing import ENVELOPE, Piece, Reject, show

NAME_BYTES_MAX: Final = 80
"""Of a run's and of a kind's name: both become folders, of which a name has up to 255 bytes."""
_NAME: Final = re.compile(rf"[ -~]{{1,{NAME_BYTES_MAX}}}")
_NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
"""Spark's folder of rows without a value: as a name it would read back as none."""

_Mask: TypeAlias = npt.NDArray[np.bool_]
_Rows: TypeAlias = npt.NDArray[np.int64]


class Group(NamedTuple):
    """Lines of one run and one kind."""

    run_id: str
    kind: str
    rows: pa.RecordBatch  # those columns of `arrow.FILE` that this kind has
    unknown: bool


class Place(NamedTuple):
    """Lines of one segment that stand together in a block."""

    segment: str
    first_line: int
    lines: int


class Life(NamedTuple):
    """One incarnation of a node in one run, as far as one segment shows it."""

    segment: str
    run_id: str
    node_id: str
    incarnation: int


class Stretch(NamedTuple):
    """What some text holds of one life of a node."""

    first_seq: int
    last_seq: int
    lines: int
    in_order: bool
    """Each seq is greater than the one before it, so no line is there twice."""

    def then(self, later: Stretch) -> Stretch:
        """This stretch and one that stands behind it."""
        return Stretch(
            min(self.first_seq, later.first_seq),
            max(self.last_seq, later.last_seq),
            self.lines + later.lines,
            self.in_order and later.in_order and self.last_seq < later.first_seq,
        )


class _Needs(NamedTuple):
    """The fields that no line of a kind may be without."""

    always: tuple[str, ...]
    now: tuple[str, ...]  # in the present version; an earlier one did not have them


def _needs() -> dict[str, _Needs]:
    needs = {}
    for record in RECORDS:
        fields = [
            field
            for field in msgspec.structs.fields(record)
            if type(None) not in typing.get_args(field.type)
        ]
        needs[str(record.__struct_config__.tag)] = _Needs(
            tuple(field.name for field in fields if field.required),
            tuple(field.name for field in fields if not field.required),
        )
    return needs


_NEEDS: Final = _needs()


class Sorter:
    """Sorts the lines of one piece of a block, which may come from several segments."""

    def __init__(self, places: Sequence[Place], piece: Piece) -> None:
        self.rejects: list[Reject] = []
        self._piece = piece
        self._table = piece.rows
        self._good: _Mask = np.ones(piece.rows.num_rows, dtype=bool)
        # For each row which segment it is from, and which line it is there.
        sizes = [place.lines for place in places]
        rows = slice(piece.first, piece.first + piece.rows.num_rows)
        self._segments = pa.array([place.segment for place in places])
        self._segment_of: _Rows = np.repeat(np.arange(len(places)), sizes)[rows]
        offsets = np.cumsum([0, *sizes[:-1]]) - [place.first_line for place in places]
        self._line_of: _Rows = (np.arange(sum(sizes)) - np.repeat(offsets, sizes))[rows]

    def groups(self) -> Iterator[Group]:
        """Every line that has a place, by run and kind."""
        self._check_envelopes()
        runs, run_of = self._names("run_id")
        kinds, kind_of = self._names("kind")
        group_of = run_of * len(kinds) + kind_of
        for group in np.unique(group_of[self._good]).tolist():
            run_id, kind = runs[group // len(kinds)], kinds[group % len(kinds)]
            rows = np.flatnonzero((group_of == group) & self._good)
            known, strange = self._split(kind, rows)
            if known.size:
                known = self._check_fields(kind, known)
            if known.size:
                yield self._group(run_id, kind, known, unknown=False)
            if strange.size:
                yield self._group(run_id, kind, strange, unknown=True)

    def stretches(self) -> Iterator[tuple[Life, Stretch]]:
        """Where the lines that have a place stand in the lives of their nodes (after `groups`)."""
        if not self._good.any():
            return
        runs, run_of = self._names("run_id")
        nodes, node_of = self._names("node_id")
        lives, life_of = self._names("incarnation")
        sizes = (len(self._segments), len(runs), len(nodes), len(lives))
        codes = np.ravel_multi_index((self._segment_of, run_of, node_of, life_of), sizes)
        codes, seqs = codes[self._good], self._seqs[self._good]
        if (np.diff(codes) < 0).any():
            order = np.argsort(codes, kind="stable")
            codes, seqs = codes[order], seqs[order]
        starts = np.flatnonzero(np.diff(codes, prepend=-1))
        rises = np.diff(seqs, prepend=0) > 0
        rises[starts] = True
        columns = (
            np.minimum.reduceat(seqs, starts),
            np.maximum.reduceat(seqs, starts),
            np.diff(starts, append=codes.size),
            np.logical_and.reduceat(rises, starts),
        )
        for code, *stretch in zip(codes[starts], *columns, strict=True):
            segment, run, node, life = np.unravel_index(code, sizes)
            place = self._segments[segment].as_py()
            yield (
                Life(place, runs[run], nodes[node], lives[life]),
                Stretch(*(value.item() for value in stretch)),
            )

    # Checks

    def _check_envelopes(self) -> None:
        for name in ENVELOPE:
            if self._table[name].null_count:
                missing = pc.is_null(self._table[name]).to_numpy(zero_copy_only=False)
                self._reject(np.flatnonzero(missing & self._good), f"wrong or missing: {name}")
        for name in arrow.PARTITIONS:
            names, name_of = self._names(name)
            for number, value in enumerate(names):
                if value is not None and (value == _NO_VALUE or not _NAME.fullmatch(value)):
                    reason = f"{name} names a folder: 1 to {NAME_BYTES_MAX} printable ASCII signs"
                    self._reject(np.flatnonzero((name_of == number) & self._good), reason)

    def _split(self, kind: str, rows: _Rows) -> tuple[_Rows, _Rows]:
        """The lines whose fields we know the meaning of, and the others."""
        if kind not in SCHEMA:
            return rows[:0], rows
        versions = self._take("schema_version", rows).to_numpy()
        known = (versions >= 1) & (versions <= SCHEMA_VERSION)
        return rows[known], rows[~known]

    def _check_fields(self, kind: str, rows: _Rows) -> _Rows:
        """Reject the lines that lack what their kind must say; return the rest."""
        needs = _NEEDS[kind]
        for name in SCHEMA[kind]:
            column = self._table[name]
            if name in needs.always or name in needs.now:
                lacking = self._empty(column, rows)
                if name in needs.now and lacking.any():
                    lacking &= self._take("schema_version", rows).to_numpy() >= SCHEMA_VERSION
                rows = self._keep(rows, lacking, f"missing: {name}")
            rows = self._keep(rows, _holes(column, rows), f"wrong: {name}")
        return rows

    def _empty(self, column: pa.Array, rows: _Rows) -> _Mask:
        if not column.null_count:
            return np.zeros(rows.size, dtype=bool)
        empty: _Mask = pc.is_null(column).to_numpy(zero_copy_only=False)[rows]
        return empty

    def _keep(self, rows: _Rows, wrong: _Mask, reason: str) -> _Rows:
        if not wrong.any():
            return rows
        self._reject(rows[wrong], reason)
        return rows[~wrong]

    def _reject(self, rows: _Rows, reason: str) -> None:
        self._good[rows] = False
        for row in rows.tolist():
            self.rejects.append(Reject(self._piece.first + row, reason, show(self._texts[row])))

    # Columns

    def _group(self, run_id: str, kind: str, rows: _Rows, *, unknown: bool) -> Group:
        columns = {name: self._take(name, rows) for name in ENVELOPE_SCHEMA if name != "run_id"}
        if unknown:
            columns["unknown"] = pa.array([self._texts[row].decode() for row in rows.tolist()])
        else:
            columns |= {name: self._take(name, rows) for name in SCHEMA[kind]}
        columns["segment"] = self._segments.take(pa.array(self._segment_of[rows]))
        columns["line_number"] = pa.array(self._line_of[rows])
        return Group(run_id, kind, pa.record_batch(columns), unknown)

    def _take(self, name: str, rows: _Rows) -> pa.Array:
        column = self._table[name]
        return column if rows.size == len(column) else column.take(pa.array(rows))

    def _names(self, name: str) -> tuple[list[Any], _Rows]:
        """The distinct values of a column, and for each row which one it has."""
        encoded = self._table[name].dictionary_encode(null_encoding="encode")
        return encoded.dictionary.to_pylist(), encoded.indices.to_numpy().astype(np.int64)

    @cached_property
    def _seqs(self) -> _Rows:
        """The seq of each line; whatever, where a line has none."""
        seqs: _Rows = pc.fill_null(self._table["seq"], 0).to_numpy()
        return seqs

    @cached_property
    def _texts(self) -> list[bytes]:
        return self._piece.text.split(b"\n")


def _holes(column: pa.Array, rows: _Rows) -> _Mask:
    """Which rows hold a value that has holes: a number that is none, a part that is missing."""
    none = np.zeros(rows.size, dtype=bool)
    if pa.types.is_floating(column.type):
        if pc.all(pc.is_finite(column)).as_py() is not False:
            return none
        finite = pc.fill_null(pc.is_finite(column), True)
        holes: _Mask = ~finite.to_numpy(zero_copy_only=False)[rows]
        return holes
    if pa.types.is_list(column.type):
        inner = column.flatten()
        parts = inner.flatten() if pa.types.is_struct(inner.type) else [inner]
        if not any(part.null_count for part in parts):
            return none
    elif pa.types.is_struct(column.type):
        if all(part.null_count == column.null_count for part in column.flatten()):
            return none
    else:
        return none
    return np.array([_has_hole(value) for value in column.take(pa.array(rows)).to_pylist()])


def _has_hole(value: Any) -> bool:
    match value:
        case dict():
            return any(part is None for part in value.values())
        case list():
            return any(item is None or _has_hole(item) for item in value)
        case _:
            return False
