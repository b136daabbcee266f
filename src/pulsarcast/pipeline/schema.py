"""What a line of a trace is in Spark, derived from `model.trace` (docs/spec/trace.md).

All kinds share one wide table: the envelope's columns, then every field that any kind has, empty
where a kind has no such field. Columnar files make empty columns free, and one table is read with
one scan, by kind.
"""

from __future__ import annotations

from typing import Final

from pulsarcast.model.trace import ENVELOPE_SCHEMA, SCHEMA


def _fields() -> dict[str, str]:
    """Every field of every kind, in the order in which the kinds first name them."""
    fields: dict[str, str] = {}
    for kind in SCHEMA.values():
        for name, ddl in kind.items():
            assert fields.setdefault(name, ddl) == ddl, f"{name} has two types"
    assert not fields.keys() & ENVELOPE_SCHEMA.keys()
    return fields


ENVELOPE: Final = (*ENVELOPE_SCHEMA, "kind")
FIELDS: Final = tuple(_fields())


# Schemas are DDL text: that needs no session, and every reader of Spark takes it.

LINE: Final = ", ".join(
    f"`{name}` {ddl}" for name, ddl in {**ENVELOPE_SCHEMA, "kind": "string", **_fields()}.items()
)
"""One line as its writer meant it."""

LINES: Final = f"{LINE}, `unknown` string, `segment` string, `line_number` bigint"
"""The table `lines`: every line once, with where it came from.

`unknown` is the whole text of a line whose kind or version is not known here: kept, never dropped.
"""

QUARANTINE: Final = "`segment` string, `line_number` bigint, `reason` string, `text` string"
"""The table `quarantine`: what is no line of a trace, kept to be looked at, and counted."""
