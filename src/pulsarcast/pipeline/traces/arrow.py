"""The schema of `lines` in Arrow's words, derived from the same definition as Spark's.

Executors read and write with Arrow and have no session that could translate for them; a test holds
this translation against Spark's own.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from pulsarcast.model.trace import ENVELOPE_SCHEMA, SCHEMA

_PLAIN: Final = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
}


def arrow_type(ddl: str) -> pa.DataType:
    """The Arrow type that a type in DDL stands for."""
    outer, _, inner = ddl.removesuffix(">").partition("<")
    match outer:
        case "array":
            return pa.list_(pa.field("element", arrow_type(inner)))
        case "struct":
            fields = (field.partition(":") for field in inner.split(","))
            return pa.struct([(name, arrow_type(of)) for name, _, of in fields])
        case _:
            return _PLAIN[outer]


def _line() -> pa.Schema:
    fields = {**ENVELOPE_SCHEMA, "kind": "string"}
    for kind in SCHEMA.values():
        fields |= kind
    return pa.schema([(name, arrow_type(ddl)) for name, ddl in fields.items()])


LINE: Final = _line()
"""One line as its writer meant it."""

_PLACE: Final = [("unknown", pa.string()), ("segment", pa.string()), ("line_number", pa.int64())]
LINES: Final = pa.schema([*LINE, *(pa.field(*field) for field in _PLACE)])
"""The table `lines`."""

PARTITIONS: Final = ("run_id", "kind")
FILE: Final = pa.schema([field for field in LINES if field.name not in PARTITIONS])
"""What stands in a file of `lines`: its folders' names say the rest."""

QUARANTINE: Final = pa.schema(
    [
        ("segment", pa.string()),
        ("line_number", pa.int64()),
        ("reason", pa.string()),
        ("text", pa.string()),
    ]
)
