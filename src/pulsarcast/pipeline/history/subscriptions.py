"""Subscriptions: from where on events are due to a node, and until when.

A crash does not end a subscription, a lost disk does. So a node's time in a topic falls into
periods, each with the frontier at which it began; most have exactly one.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pulsarcast.pipeline.history.lives import harms
from pulsarcast.pipeline.history.places import END_OF_LIFE, PAIR, is_within, of_kind, place

_MARKS = "array<struct<publisher:string,epoch:bigint,number:bigint>>"


def periods(lines: DataFrame) -> DataFrame:
    """One row per period: its first and its last place on its node, and its two frontiers.

    `to_incarnation` and `to_seq` are null while it is open; a period that ended with its node's
    disk ends at `END_OF_LIFE`, and has no `end` frontier: nobody could say it any more. One that
    is `filtered` is due only what matches: which events that are is in no trace. So is what is due
    to one whose start was never loaded whole.
    """
    in_order = Window.partitionBy(*PAIR).orderBy("incarnation", "seq")
    was_in = F.coalesce(F.lag("begins").over(in_order), F.lit(False))
    # Said twice without an end between: the first stands. And only what has begun can end.
    turns = _turns(lines).withColumn("_was_in", was_in).where(F.col("begins") != F.col("_was_in"))
    following = {
        name: F.lead(name).over(in_order) for name in ("incarnation", "seq", "ended", "marks")
    }
    found = (
        turns.select(
            *PAIR,
            "begins",
            F.col("incarnation").alias("from_incarnation"),
            F.col("seq").alias("from_seq"),
            following["incarnation"].alias("to_incarnation"),
            following["seq"].alias("to_seq"),
            F.coalesce(following["ended"], F.lit("open")).alias("ended"),
            F.col("marks").alias("start"),
            following["marks"].alias("end"),
            "filtered",
        )
        .where("begins")
        .withColumn(
            "period",
            F.row_number().over(Window.partitionBy(*PAIR).orderBy("from_incarnation", "from_seq")),
        )
        .select(
            *PAIR,
            "period",
            "from_incarnation",
            "from_seq",
            "to_incarnation",
            "to_seq",
            "ended",
            "start",
            "end",
            "filtered",
        )
    )
    return _with_all_of_the_start(lines, found)


def _with_all_of_the_start(lines: DataFrame, found: DataFrame) -> DataFrame:
    """Periods with what the node said later of where they start."""
    key = [*PAIR, "period"]
    said = of_kind(lines, "subscribed", "start_loaded").select(
        *PAIR,
        place().alias("_at"),
        F.when(F.col("kind") == "start_loaded", F.col("start")).alias("_more"),
        is_whole().alias("_whole"),
    )
    begin = place("from_incarnation", "from_seq")
    within = (F.col("_at") == begin) | is_within(
        F.col("_at"), begin, place("to_incarnation", "to_seq")
    )
    loaded = (
        found.join(said, [*PAIR], how="inner")
        .where(within)
        .groupBy(*key)
        .agg(F.flatten(F.collect_list("_more")).alias("_more"), F.bool_or("_whole").alias("_whole"))
    )
    return (
        found.join(loaded, key, how="left")
        .withColumn("start", F.concat("start", "_more"))
        .withColumn("filtered", F.col("filtered") | ~F.col("_whole"))
        .drop("_more", "_whole")
    )


def is_whole() -> Column:
    """Of a line that says where a subscription starts: whether it says the last of it."""
    in_parts = F.coalesce(F.col("in_parts"), F.lit(False))
    return F.when(F.col("kind") == "subscribed", ~in_parts).otherwise(F.col("whole"))


def _turns(lines: DataFrame) -> DataFrame:
    """Everything that begins or ends a period, in one column each."""
    said = of_kind(lines, "subscribed", "unsubscribed").select(
        *PAIR,
        "incarnation",
        "seq",
        (F.col("kind") == "subscribed").alias("begins"),
        F.lit("unsubscribed").alias("ended"),
        F.coalesce(
            F.when(F.col("kind") == "subscribed", F.col("start")).otherwise(F.col("end")),
            F.array().cast(_MARKS),
        ).alias("marks"),
        F.col("filters").isNotNull().alias("filtered"),
    )
    lost = (
        harms(lines)
        .where("disk_lost")
        .select("run_id", "node_id", "incarnation")
        # To every topic that the node ever subscribed to: which it was in then shows in order.
        .join(said.where("begins").select(*PAIR).distinct(), ["run_id", "node_id"], how="inner")
        .select(
            *PAIR,
            "incarnation",
            F.lit(END_OF_LIFE).cast("bigint").alias("seq"),
            F.lit(False).alias("begins"),
            F.lit("disk_lost").alias("ended"),
            F.lit(None).cast(_MARKS).alias("marks"),
            F.lit(False).alias("filtered"),
        )
    )
    return said.unionByName(lost)


def starts(periods: DataFrame) -> DataFrame:
    """One row per period and numbering that its start frontier covers: up to which number."""
    return (
        periods.select(*PAIR, "period", F.explode("start").alias("mark"))
        .select(*PAIR, "period", "mark.publisher", "mark.epoch", "mark.number")
        .groupBy(*PAIR, "period", "publisher", "epoch")
        .agg(F.max("number").alias("number"))
    )


def ends(periods: DataFrame) -> DataFrame:
    """One row per period that ended and numbering that it knew of then: up to which number."""
    return (
        periods.select(*PAIR, "period", F.explode("end").alias("mark"))
        .select(*PAIR, "period", "mark.publisher", "mark.epoch", "mark.number")
        .groupBy(*PAIR, "period", "publisher", "epoch")
        .agg(F.max("number").alias("number"))
    )
