"""Which column of a table is which part of an event, known before any row is published.

What is not understood is refused: a column that is dropped in silence is found missing much later.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from pulsarcast.model.errors import LocalError
from pulsarcast.pipeline.topics.schema import spark_schema

KEY: Final = "idempotencyKey"
VALUE: Final = "value"
"""What Kafka's users call a payload."""

_INTEGERS: Final = (ByteType, ShortType, IntegerType, LongType)
_ATTRIBUTE_TYPES: Final[dict[str, tuple[type[DataType], ...]]] = {
    "bool": (BooleanType,),
    "int": _INTEGERS,
    "float": (FloatType, DoubleType),
    "text": (StringType,),
    "bytes": (BinaryType,),
}


class _Meaning(NamedTuple):
    """What a column of a name is for, and which types it may have."""

    takes: Callable[[DataType], bool]
    types: str


def _is_parents(kind: DataType) -> bool:
    return isinstance(kind, ArrayType) and isinstance(kind.elementType, StringType)


def _is_attributes(kind: DataType) -> bool:
    if not isinstance(kind, MapType) or not isinstance(kind.keyType, StringType):
        return False
    value = kind.valueType
    if isinstance(value, StructType):
        return bool(value.fields) and all(
            isinstance(each.dataType, _ATTRIBUTE_TYPES.get(each.name, ())) for each in value.fields
        )
    return isinstance(value, StringType)


def _of(*kinds: type[DataType]) -> Callable[[DataType], bool]:
    return lambda kind: isinstance(kind, kinds)


_MEANINGS: Final = {
    "topic": _Meaning(_of(StringType), "string"),
    "payload": _Meaning(_of(BinaryType, StringType), "binary or string"),
    "name": _Meaning(_of(StringType), "string"),
    "attributes": _Meaning(
        _is_attributes,
        "map<string,string>, or map<string,struct<bool boolean,int bigint,float double,text string,"
        "bytes binary>> as the source has it",
    ),
    "created": _Meaning(_of(TimestampType), "timestamp"),
    "parents": _Meaning(_is_parents, "array<string>"),
}
_KEY_MEANING: Final = _Meaning(
    _of(StringType, BinaryType, *_INTEGERS), "string, binary or a whole number"
)


@dataclass(frozen=True, slots=True)
class Columns:
    """Where in a table's rows the parts of an event are."""

    sink: str
    topic: str | None
    """For rows that name none."""
    key: int
    places: dict[str, int] = field(default_factory=dict)


def find_columns(
    schema: StructType, *, sink: str, topic: str | None, key_column: str | None
) -> Columns:
    """What each column is for; raises LocalError for what cannot be published as it is."""
    key = _find_key(schema, key_column)
    places: dict[str, int] = {}
    strange: list[str] = []
    for place, found in enumerate(schema.fields):
        name = found.name.lower()
        meant = "payload" if name == VALUE else name
        meaning = _MEANINGS.get(meant)
        if meaning is None:
            if place != key:
                strange.append(found.name)
            continue
        if meant in places:
            one, other = schema.fields[places[meant]].name, found.name
            raise LocalError(f"columns {one} and {other} are both the {meant}: choose one")
        places[meant] = place
        if not meaning.takes(found.dataType):
            raise _mistyped(found.name, found.dataType, meaning)
    if strange:
        raise LocalError(_strange(strange))
    if "payload" not in places:
        raise LocalError("a column payload (or value) is missing: it is what an event says")
    if topic is None and "topic" not in places:
        raise LocalError(
            "say which topic to write to: .option('topic', 'weather'), or a column topic"
        )
    return Columns(sink, topic, key, places)


def _find_key(schema: StructType, chosen: str | None) -> int:
    wanted = (chosen or KEY).lower()
    fits = [at for at, name in enumerate(schema.fieldNames()) if name.lower() == wanted]
    if len(fits) > 1:
        raise LocalError(f"there are {len(fits)} columns {chosen or KEY}: one is the key")
    if not fits:
        if chosen is not None:
            raise LocalError(
                f"idempotencyKey: there is no column {chosen}; there are "
                f"{', '.join(schema.fieldNames())}"
            )
        raise LocalError(
            f"a column {KEY} is missing. Spark runs a task again after a failure, or twice at a "
            "time, and without a key per row each run would publish its rows once more: add a "
            f"column {KEY} that is unique for each event and the same in every run, or name one "
            f"that is with .option('{KEY}', 'column')"
        )
    found = schema.fields[fits[0]]
    if not _KEY_MEANING.takes(found.dataType):
        raise _mistyped(found.name, found.dataType, _KEY_MEANING)
    return fits[0]


def _mistyped(name: str, kind: DataType, meaning: _Meaning) -> LocalError:
    hint = f"column {name} is {kind.simpleString()}, and has to be {meaning.types}"
    if isinstance(kind, TimestampNTZType):
        return LocalError(f"{hint}: cast it, and say by that in which time zone it was meant")
    return LocalError(f"{hint}: cast it")


def _strange(names: list[str]) -> str:
    known = f"payload (or {VALUE}), {KEY}, name, attributes, created, parents and topic"
    given = [
        name for name in names if name.lower() in spark_schema(headers=True, blocks=True).names
    ]
    why = f" ({', '.join(given)}: the node that publishes decides)" if given else ""
    plural = "columns" if len(names) > 1 else "column"
    return (
        f"{plural} {', '.join(names)} cannot be published{why}: choose columns with select(...). "
        f"An event has {known}"
    )
