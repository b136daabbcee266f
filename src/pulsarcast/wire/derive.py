"""Derives codecs from the types of messages: compiles functions once, at import, for each kind.

A field's type and checks (`protocol/fields.py`) become a shape, a record's shapes become source,
and Python compiles it. For `Credit`, for example:

    def pack(it): return _Frame(credit={"topic": it.topic, "size": it.size})

    def _read_Credit(given):
        size = given.size
        if size > 4294967295:
            raise _refusal('Credit.size breaks Bound(low=0, high=4294967295)')
        return Credit(_check_cid(given.topic), size)

    def size(it):
        size = 38
        if n := it.size: size += (n.bit_length() * 9 + 128) >> 6
        return size + ((size.bit_length() * 9 + 128) >> 6)

`source_of` shows it for any kind. Packing trusts the node's own core; reading trusts no peer.
"""

import enum
import linecache
from collections.abc import Callable
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    NamedTuple,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from pulsarcast.protocol.fields import BigEndian, Flat, Inside, Newer, Parts, Steps, Total, Unsent
from pulsarcast.wire import pulsarcast_pb2 as pb
from pulsarcast.wire import shapes
from pulsarcast.wire.bounds import Bounds, bounds_of
from pulsarcast.wire.shapes import NAMES, Field, Record, Row, Shape, indented

_ROWS: Final[dict[type, type[Row]]] = {Steps: shapes.Ascending, Total: shapes.Summed}
_RECORDS: Final[dict[str, Record]] = {}


class Codec(NamedTuple):
    """The functions that `wire` uses for messages of one kind."""

    pack: Callable[[Any], pb.Frame]
    read: Callable[[Any], Any]
    """From the field of a frame."""
    size: Callable[[Any], int]
    """The bytes of its frame, counted without packing."""
    bounds: Bounds
    """What its frame may take."""


def derive(kind: type, name: str) -> Codec:
    """The codec of a kind of message that is field `name` of Frame."""
    record = _record(kind, _frame_field(name).message_type)
    _compile(f"{record.title} packed", _pack_function(record, name))
    _compile(f"{record.title} sized", _size_function(record, name))
    return Codec(NAMES["pack"], NAMES[f"_read_{record.title}"], NAMES["size"], bounds_of(record))


def source_of(kind: type, name: str) -> str:
    """The source of a kind's codec, for people."""
    record = _record(kind, _frame_field(name).message_type)
    functions = (_pack_function(record, name), record.read_function(), _size_function(record, name))
    return "\n\n".join("\n".join(lines) for lines in functions)


def _frame_field(name: str) -> FieldDescriptor:
    field: FieldDescriptor = pb.Frame.DESCRIPTOR.fields_by_name[name]
    return field


def _pack_function(record: Record, name: str) -> list[str]:
    return ["def pack(it):", f"    return _Frame({name}={record.pack('it')})"]


def _size_function(record: Record, name: str) -> list[str]:
    tag = 1 if _frame_field(name).number < 16 else 2
    total = f"return size + ((size.bit_length() * 9 + {64 + 64 * tag}) >> 6)"
    return ["def size(it):", *indented(["size = 0", *record.size_fields("it.", "size"), total])]


def _compile(title: str, lines: list[str]) -> None:
    """Make a function of source, which tracebacks can show."""
    file = f"<{title}>"
    linecache.cache[file] = (0, None, [line + "\n" for line in lines], file)
    exec(compile("\n".join(lines), file, "exec"), NAMES)


# From types to shapes.


def _record(kind: Any, schema: Descriptor) -> Record:
    """The record that a type is in the schema, with a function that reads it."""
    title = kind.__name__ if isinstance(kind, type) else schema.name
    if title not in _RECORDS:
        fields = fields_of(kind, schema)
        flat = [
            it.shape.fields if isinstance(it.shape, shapes.FlatRecord) else [it] for it in fields
        ]
        unlike = {it.name for some in flat for it in some} ^ set(schema.fields_by_name)
        if unlike:
            raise TypeError(f"{title} and the schema differ in {unlike}")
        _RECORDS[title] = Record(kind, title, fields)
        _compile(f"{title} read", _RECORDS[title].read_function())
    return _RECORDS[title]


def fields_of(kind: Any, schema: Descriptor) -> list[Field]:
    """The fields of a type, as the schema has them; raises TypeError if one has no bound."""
    hints, defaults = _types_of(kind)
    found: list[Field] = []
    for name, hint in hints.items():
        base, checks = _split(hint)
        inside = [check.record for check in checks if isinstance(check, Inside)]
        is_empty = name in defaults and not defaults[name]
        if Unsent() in checks:
            continue
        if Flat() in checks:
            flat = shapes.FlatRecord(base, base.__name__, fields_of(base, schema))
            found.append(Field(name, flat, False))
        elif inside:
            inner = schema.fields_by_name[inside[0]].message_type.fields_by_name[name]
            field = Field(name, _shape(base, checks[:-1], inner), False)
            if not found or found[-1].name != inside[0]:
                found.append(Field(inside[0], shapes.InnerRecord((), inside[0], []), False))
            cast(shapes.InnerRecord, found[-1].shape).fields.append(field)
        else:
            found.append(Field(name, _shape(base, checks, schema.fields_by_name[name]), is_empty))
    return found


def _types_of(kind: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The types of a record's fields, and the defaults of those that have one."""
    if not isinstance(kind, type):  # a plain tuple
        base, checks = _split(kind)
        (parts,) = (check for check in checks if isinstance(check, Parts))
        return dict(zip(parts.names, get_args(base), strict=True)), {}
    hints = get_type_hints(kind, include_extras=True)
    if issubclass(kind, tuple):
        return hints, kind._field_defaults  # type: ignore[attr-defined]
    names, defaults = kind.__struct_fields__, kind.__struct_defaults__  # type: ignore[attr-defined]
    return hints, dict(zip(names[len(names) - len(defaults) :], defaults, strict=True))


def _shape(base: Any, checks: list[object], field: FieldDescriptor) -> Shape:
    if base in shapes.IDS:
        return shapes.Id(base)
    if get_origin(base) in (Union, UnionType):
        (some,) = (each for each in get_args(base) if each is not NoneType)
        return shapes.Maybe(_shape(*_split(some), field), has_presence=field.has_presence)
    for check in checks:
        match check:
            case BigEndian(size):
                return shapes.WideNumber(size)
            case Parts():
                return _record(Annotated[base, check], field.message_type)
    if get_origin(base) is tuple:
        element = _shape(*_split(get_args(base)[0]), field)
        for check in checks:
            if type(check) in _ROWS:
                return _ROWS[type(check)](element, checks, field)
        return Row(element, checks, field)
    if field.message_type is not None:
        return _record(base, field.message_type)
    if issubclass(base, enum.IntEnum):
        return shapes.Choice(base, Newer() if Newer() in checks else None)
    return shapes.Plain(base, checks, field)


def _split(hint: Any) -> tuple[Any, list[object]]:
    """A type, and what its annotation says of it."""
    if get_origin(hint) is Annotated:
        return hint.__origin__, list(hint.__metadata__)
    return hint, []


NAMES["_Frame"] = pb.Frame
