"""What an event is in Spark, and the same in Arrow, in which it travels there.

An attribute's value is a struct with exactly one field set: a number stays a number, and a filter
can be written on it.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

HEADERS: Final = "headers"
BLOCK: Final = "block"

SEQUENCE: Final = StructType(
    [StructField("epoch", LongType()), StructField("number", LongType())],
)
ATTRIBUTE: Final = StructType(
    [
        StructField("bool", BooleanType()),
        StructField("int", LongType()),
        StructField("float", DoubleType()),
        StructField("text", StringType()),
        StructField("bytes", BinaryType()),
    ]
)
HEADER: Final = StructType([StructField("key", StringType()), StructField("value", BinaryType())])

_FIELDS: Final = (
    StructField("topic", StringType()),
    StructField("topic_name", StringType()),
    StructField("offset", LongType()),
    StructField("event_id", StringType()),
    StructField("version", StringType()),
    StructField("publisher", StringType()),
    StructField("author", StringType()),
    StructField("sequence", SEQUENCE),
    StructField("parents", ArrayType(StringType())),
    StructField("name", StringType()),
    StructField("payload", BinaryType()),
    StructField("attributes", MapType(StringType(), ATTRIBUTE)),
    StructField("created", TimestampType()),
    StructField("received", TimestampType()),
)

ARROW_TIME: Final = pa.timestamp("us", tz="UTC")
ARROW_SEQUENCE: Final = pa.struct([("epoch", pa.int64()), ("number", pa.int64())])
ARROW_ATTRIBUTE: Final = pa.struct(
    [
        ("bool", pa.bool_()),
        ("int", pa.int64()),
        ("float", pa.float64()),
        ("text", pa.string()),
        ("bytes", pa.binary()),
    ]
)
ARROW_ATTRIBUTES: Final = pa.map_(pa.string(), ARROW_ATTRIBUTE)
ARROW_HEADER: Final = pa.struct([("key", pa.string()), ("value", pa.binary())])
ARROW_PARENTS: Final = pa.list_(pa.field("element", pa.string()))
ARROW_HEADERS: Final = pa.list_(pa.field("element", ARROW_HEADER))

_ARROW: Final[tuple[tuple[str, Any], ...]] = (
    ("topic", pa.string()),
    ("topic_name", pa.string()),
    ("offset", pa.int64()),
    ("event_id", pa.string()),
    ("version", pa.string()),
    ("publisher", pa.string()),
    ("author", pa.string()),
    ("sequence", ARROW_SEQUENCE),
    ("parents", ARROW_PARENTS),
    ("name", pa.string()),
    ("payload", pa.binary()),
    ("attributes", ARROW_ATTRIBUTES),
    ("created", ARROW_TIME),
    ("received", ARROW_TIME),
)


def spark_schema(*, headers: bool = False, blocks: bool = False) -> StructType:
    """The columns of a topic."""
    fields = list(_FIELDS)
    if headers:
        fields.append(StructField(HEADERS, ArrayType(HEADER)))
    if blocks:
        fields.append(StructField(BLOCK, BinaryType()))
    return StructType(fields)


def arrow_schema(*, headers: bool = False, blocks: bool = False) -> pa.Schema:
    """The same columns as Spark expects them from Python."""
    fields = list(_ARROW)
    if headers:
        fields.append((HEADERS, ARROW_HEADERS))
    if blocks:
        fields.append((BLOCK, pa.binary()))
    return pa.schema(fields)
