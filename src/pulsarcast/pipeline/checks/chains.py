"""Chains: in total order each position is taken once, by an event linked to the one before.

A position is a claim of the sequencer's: it is held against the parents, and never trusted.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from pulsarcast.pipeline.checks.case import Case
from pulsarcast.pipeline.checks.findings import findings, reference


def find_forks(case: Case) -> DataFrame:
    """Every event after the first that stands at a position."""
    there = Window.partitionBy("run_id", "topic", "position").orderBy("told_at", "event")
    found = (
        case.standing.where("position is not null")
        .withColumn("node_id", F.col("sayer"))
        .withColumn("other_event", F.lag("event").over(there))
        .withColumn("other_node", F.lag("sayer").over(there))
        .withColumn("other_at", F.lag("told_at").over(there))
        .where("other_event is not null")
    )
    return findings(
        "fork",
        found,
        reference(F.col("node_id"), F.col("told_at")),
        reference(F.col("other_node"), F.col("other_at")),
    )


def find_broken_chains(case: Case) -> DataFrame:
    """Events whose one parent is not the event one position before; the lowest has none to have.

    What stood there when the event was published counts, even if it was taken back later: on the
    same node the latest that was said before, on another any, since nobody knows when.
    """
    placed = case.told.where(
        (F.col("position").isNotNull()) & ~F.col("equivocates") & (F.col("linking") != "CUSTOM")
    ).select(
        "run_id", "topic", "publisher", "epoch", "number", "event", "parents", "position",
        "told_at", "sayer",
    )  # fmt: skip
    lowest = placed.groupBy("run_id", "topic").agg(F.min("position").alias("lowest"))
    before = placed.select(
        "run_id",
        "topic",
        (F.col("position") + 1).alias("position"),
        F.col("sayer").alias("other_node"),
        F.col("event").alias("other_event"),
        F.col("told_at").alias("other_at"),
    )
    own = F.col("other_node") == F.col("sayer")
    known_by_then = ~own | (F.col("other_at") < F.col("told_at"))
    pairs = placed.join(before, ["run_id", "topic", "position"], how="left").withColumn(
        "candidate",
        F.when(
            F.col("other_event").isNotNull() & known_by_then,
            F.struct("other_at", "other_event", "other_node"),
        ),
    )
    latest = (
        pairs.groupBy("run_id", "topic", "publisher", "epoch", "number", "event")
        .agg(
            F.first("parents").alias("parents"),
            F.first("position").alias("position"),
            F.first("told_at").alias("told_at"),
            F.first("sayer").alias("sayer"),
            F.max(F.when(own, F.col("candidate"))).alias("own_before"),
            F.collect_list(F.when(~own, F.col("candidate"))).alias("others_before"),
        )
        .join(lowest, ["run_id", "topic"], how="inner")
        .withColumn(
            "before",
            F.concat(F.array_compact(F.array("own_before")), F.col("others_before")),
        )
    )
    is_linked = (F.size("parents") == 1) & F.exists(
        "before", lambda there: there["other_event"] == F.get("parents", F.lit(0))
    )
    found = latest.where(
        ~F.coalesce(is_linked, F.lit(False))
        & ((F.size("before") > 0) | (F.col("position") != F.col("lowest")))
    ).withColumn("there", F.get("before", F.lit(0)))
    return findings(
        "chain",
        found.withColumn("node_id", F.col("sayer")).withColumn(
            "other_event", F.col("there.other_event")
        ),
        reference(F.col("node_id"), F.col("told_at")),
        reference(F.col("there.other_node"), F.col("there.other_at")),
    )
