"""Findings: what a check objects to, in one table, each with the records that prove it.

A record is named by what names it in a trace: node, incarnation and seq. `proof` looks the lines
up; until then a finding is small, so that a run that breaks every promise can still be counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

KINDS: Final = {
    "lost": "due, and never delivered",
    "duplicate": "delivered twice in one life, or again without saying so",
    "order": "delivered after what should have come later",
    "total_order": "nodes disagree on what came right before or after an event",
    "causal_order": "delivered before a parent",
    "causal_parents": "not linked to what its publisher had delivered last",
    "fork": "two events at one position of a total order",
    "chain": "not linked to the event one position before",
    "election": "two sequencers lead in one term",
    "equivocation": "two events under one number",
    "published_twice": "two events for one injection",
    "forged": "delivered and never published, published in another's name, or never injected",
    "not_allowed": "published by one who may not",
    "not_subscribed": "delivered without a subscription",
    "before_start": "delivered though it came before the subscription",
    "number_gap": "a number without an event, below others that have one",
    "acknowledged_unpublished": "acknowledged and never published",
}
"""Every kind of finding, as people read it; the simulator's checkers use the same words."""
TRACES_ONLY: Final = ("total_order",)
"""Those of them that only readers of traces judge."""
COMMON: Final = tuple(kind for kind in KINDS if kind not in TRACES_ONLY)
"""Those that the simulator's checkers count as well."""

_ABOUT: Final = {
    "node_id": "string",
    "topic": "string",
    "event": "string",
    "publisher": "string",
    "epoch": "bigint",
    "number": "bigint",
    "other_event": "string",
}
_REFERENCE: Final = "struct<node_id:string,incarnation:bigint,seq:bigint>"

FINDINGS: Final = ", ".join(
    (
        "run_id string",
        "kind string",
        "count bigint",
        *(f"{name} {ddl}" for name, ddl in _ABOUT.items()),
        f"proof array<{_REFERENCE}>",
    )
)
"""The table of findings: the kind, how many times it counts, what it is about, and its proof."""


def findings(kind: str, found: DataFrame, *proof: Column, count: Column | None = None) -> DataFrame:
    """Rows that are objections as findings; those of their columns that say what about are kept.

    `proof` are references to lines; null ones are left out.
    """
    assert kind in KINDS, kind
    told = [
        (F.col(name) if name in found.columns else F.lit(None)).cast(ddl).alias(name)
        for name, ddl in _ABOUT.items()
    ]
    return found.select(
        "run_id",
        F.lit(kind).alias("kind"),
        (F.lit(1) if count is None else count).cast("bigint").alias("count"),
        *told,
        F.array_compact(F.array(*proof)).cast(f"array<{_REFERENCE}>").alias("proof"),
    )


def reference(node_id: Column, at: Column) -> Column:
    """The line of a node at a place in its own order (`history.place`), null where either is."""
    return F.when(
        node_id.isNotNull() & at.isNotNull(),
        F.struct(
            node_id.alias("node_id"),
            life(at).alias("incarnation"),
            at.bitwiseAND(F.lit((1 << 32) - 1)).alias("seq"),
        ),
    )


def life(at: Column) -> Column:
    """The incarnation that a place in a node's own order belongs to."""
    return F.shiftright(at, 32)


def union(tables: Sequence[DataFrame]) -> DataFrame:
    """Tables of one schema as one."""
    return reduce(DataFrame.unionByName, tables)
