"""The trace format: encodes and decodes trace records as JSON lines, and derives Spark's schema.

This is the contract between nodes and the pipeline (docs/spec/trace.md), and its one definition.
A line is one JSON object: the envelope's fields, `kind`, and the fields of that kind of record,
with ids as text.

A run writes millions of lines, so each class of record is inspected once, when this module is
loaded. Every type of field has a column: its Spark type, and how a value is written and read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Any, Final, NamedTuple, get_type_hints

import msgspec

from pulsarcast.model.errors import LocalError, Verdict
from pulsarcast.model.events import Position
from pulsarcast.model.ids import Cid, PeerId, cid_text, parse_cid, parse_peer, peer_text
from pulsarcast.model.topic_types import DeliveryOrder, Dissemination, EventLinking, Mark
from pulsarcast.model.trace_records import (
    LEVELS,
    RECORDS,
    SCHEMA_VERSION,
    Acknowledged,
    Delivered,
    Envelope,
    Fault,
    GapFilled,
    GapFound,
    Injected,
    LeaderChanged,
    NameChanged,
    NodeStarted,
    NodeStopped,
    Published,
    Record,
    Refused,
    Rejected,
    Resources,
    Retired,
    RpcReceived,
    RpcSent,
    StartLoaded,
    StopReason,
    Subscribed,
    TopicCreated,
    TopicVersion,
    Unknown,
    Unsubscribed,
    is_written_at,
    kind_of,
)

__all__ = [
    "ENVELOPE_SCHEMA",
    "LEVELS",
    "RECORDS",
    "SCHEMA",
    "SCHEMA_VERSION",
    "Acknowledged",
    "Delivered",
    "Envelope",
    "Fault",
    "GapFilled",
    "GapFound",
    "Injected",
    "LeaderChanged",
    "Line",
    "NameChanged",
    "NodeStarted",
    "NodeStopped",
    "Published",
    "Record",
    "Refused",
    "Rejected",
    "Resources",
    "Retired",
    "RpcReceived",
    "RpcSent",
    "StartLoaded",
    "StopReason",
    "Subscribed",
    "TopicCreated",
    "TopicVersion",
    "Unknown",
    "Unsubscribed",
    "decode_line",
    "encode_line",
    "is_written_at",
    "kind_of",
]


class Line(NamedTuple):
    """One line of a trace, read back."""

    envelope: Envelope
    record: Record


class _Column(NamedTuple):
    """One type of field: its name in Spark's DDL, and its way into JSON and back."""

    ddl: str
    write: Callable[[Any], bytes]
    read: Callable[[Any], object]


_WRONG: Final = (AttributeError, KeyError, TypeError, ValueError)
"""What it raises to read one type of JSON as another."""
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode

# The same names come again and again, and base58 is slow. (Writing remembers them in `ids`.)
_read_peer = lru_cache(maxsize=1 << 17)(parse_peer)
_read_cid = lru_cache(maxsize=1 << 17)(parse_cid)
_read_text = partial(msgspec.convert, type=str)
_read_int = partial(msgspec.convert, type=int)


def _write_peer(peer: PeerId) -> bytes:
    return b'"%b"' % peer_text(peer).encode()


def _write_cid(cid: Cid) -> bytes:
    return b'"%b"' % cid_text(cid).encode()


def _write_cids(cids: tuple[Cid, ...]) -> bytes:
    return _encode([cid_text(cid) for cid in cids])


def _write_peers(peers: tuple[PeerId, ...]) -> bytes:
    return _encode([peer_text(peer) for peer in peers])


def _read_peers(texts: list[str]) -> tuple[PeerId, ...]:
    return tuple(_read_peer(text) for text in texts)


def _read_cids(texts: list[str]) -> tuple[Cid, ...]:
    return tuple(_read_cid(text) for text in texts)


def _write_marks(marks: tuple[Mark, ...]) -> bytes:
    """A frontier as objects: Spark reads those as columns, and lists of mixed types not at all."""
    return _encode([{**mark._asdict(), "publisher": peer_text(mark.publisher)} for mark in marks])


def _read_marks(marks: list[dict[str, Any]]) -> tuple[Mark, ...]:
    return tuple(
        Mark(_read_peer(mark["publisher"]), _read_int(mark["epoch"]), _read_int(mark["number"]))
        for mark in marks
    )


def _write_position(position: Position | None) -> bytes:
    return b"null" if position is None else _encode(position._asdict())


def _read_position(fields: dict[str, int] | None) -> Position | None:
    if fields is None:
        return None
    return Position(_read_int(fields["term"]), _read_int(fields["number"]))


def _or_null(write: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    return lambda value: b"null" if value is None else write(value)


def _or_none(read: Callable[[Any], object]) -> Callable[[Any], object]:
    return lambda value: None if value is None else read(value)


_MARKS_DDL = "array<struct<publisher:string,epoch:bigint,number:bigint>>"
_POSITION_DDL = "struct<term:bigint,number:bigint>"
_COLUMNS: Final[Mapping[object, _Column]] = {
    str: _Column("string", _encode, _read_text),
    str | None: _Column("string", _encode, _or_none(_read_text)),
    int: _Column("bigint", _encode, _read_int),
    int | None: _Column("bigint", _encode, _or_none(_read_int)),
    float: _Column("double", _encode, partial(msgspec.convert, type=float)),
    bool: _Column("boolean", _encode, partial(msgspec.convert, type=bool)),
    bytes: _Column("string", lambda data: _encode(data.hex()), bytes.fromhex),
    PeerId: _Column("string", _write_peer, _read_peer),
    PeerId | None: _Column("string", _or_null(_write_peer), _or_none(_read_peer)),
    tuple[PeerId, ...] | None: _Column(
        "array<string>", _or_null(_write_peers), _or_none(_read_peers)
    ),
    tuple[str, ...] | None: _Column(
        "array<string>", _encode, _or_none(partial(msgspec.convert, type=tuple[str, ...]))
    ),
    Cid: _Column("string", _write_cid, _read_cid),
    Cid | None: _Column("string", _or_null(_write_cid), _or_none(_read_cid)),
    tuple[Cid, ...]: _Column("array<string>", _write_cids, _read_cids),
    tuple[Mark, ...]: _Column(_MARKS_DDL, _write_marks, _read_marks),
    Position | None: _Column(_POSITION_DDL, _write_position, _read_position),
    DeliveryOrder: _Column("string", _encode, DeliveryOrder),
    EventLinking: _Column("string", _encode, EventLinking),
    Dissemination: _Column("string", _encode, Dissemination),
    Verdict: _Column("string", _encode, Verdict),
}


class _Kind(NamedTuple):
    """All that is needed to write and read one kind of record."""

    record: type[Record]
    columns: dict[str, _Column]
    writers: tuple[Callable[[Any], bytes], ...]
    template: bytes  # the record's part of a line, with a gap for each field


def _look_at(record: type[Record]) -> _Kind:
    hints = get_type_hints(record)
    columns = {name: _COLUMNS[hints[name]] for name in record.__struct_fields__}
    gaps = [f'"kind":"{record.__struct_config__.tag}"', *(f'"{name}":%b' for name in columns)]
    writers = tuple(column.write for column in columns.values())
    return _Kind(record, columns, writers, ",".join(gaps).encode() + b"}\n")


_BY_CLASS: Final[Mapping[type[Record], _Kind]] = {record: _look_at(record) for record in RECORDS}
_BY_NAME: Final[Mapping[str, _Kind]] = {
    str(record.__struct_config__.tag): kind for record, kind in _BY_CLASS.items()
}

# The parts of Spark's schema: every field's type in DDL. A name has one type in all kinds.
ENVELOPE_SCHEMA: Final[Mapping[str, str]] = MappingProxyType(
    {name: _COLUMNS[hint].ddl for name, hint in get_type_hints(Envelope).items()}
)
SCHEMA: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        name: MappingProxyType({field: column.ddl for field, column in kind.columns.items()})
        for name, kind in _BY_NAME.items()
    }
)


# Writing


def encode_line(envelope: Envelope, record: Record) -> bytes:
    """Encode a record as a line, with its line end."""
    beginning = _beginning(
        envelope.schema_version, envelope.run_id, envelope.node_id, envelope.incarnation
    )
    place = (envelope.seq, envelope.wall_ns, envelope.mono_ns)
    return beginning + b'"seq":%d,"wall_ns":%d,"mono_ns":%d,' % place + _encode_record(record)


@lru_cache(maxsize=1 << 14)
def _beginning(schema_version: int, run_id: str, node_id: str, incarnation: int) -> bytes:
    """The part of a line that stays the same as long as a node runs."""
    fields = {
        "schema_version": schema_version,
        "run_id": run_id,
        "node_id": node_id,
        "incarnation": incarnation,
    }
    return _encode(fields)[:-1] + b","


def _encode_record(record: Record) -> bytes:
    """The part of a line that is the record's own, to its end."""
    kind = _BY_CLASS.get(type(record))
    if kind is None:
        assert isinstance(record, Unknown), type(record)
        return _encode({"kind": record.unknown_kind, **record.fields})[1:] + b"\n"
    values = zip(kind.writers, msgspec.structs.astuple(record), strict=False)
    return kind.template % tuple([write(value) for write, value in values])


# Reading


def decode_line(line: bytes | str) -> Line:
    """Decode a line; fields that this version does not know are ignored.

    A kind that it does not know comes back as `Unknown`, with all its fields.
    """
    try:
        fields = _decode(line)
        envelope = msgspec.convert(
            {name: fields.pop(name) for name in ENVELOPE_SCHEMA}, type=Envelope
        )
        kind = _BY_NAME.get(name := fields.pop("kind"))
        if kind is None:
            return Line(envelope, Unknown(name, fields))
        values = {
            name: column.read(fields[name])
            for name, column in kind.columns.items()
            # A field that came with a later version may be absent in an earlier one.
            if name in fields or envelope.schema_version >= SCHEMA_VERSION
        }
        record = kind.record(**values)
    except (msgspec.DecodeError, LocalError, *_WRONG) as error:
        raise LocalError(f"not a line of a trace: {error}") from error
    return Line(envelope, record)
