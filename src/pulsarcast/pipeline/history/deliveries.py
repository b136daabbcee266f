"""Deliveries: who got which event, how often, and in which period of its subscription."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pulsarcast.pipeline.history.places import PAIR, is_within, of_kind, place
from pulsarcast.pipeline.history.subscriptions import periods as periods_of

_OF = ("run_id", "node_id", "topic", "period", "publisher", "epoch", "number", "event")


def deliveries(lines: DataFrame) -> DataFrame:
    """One row per event that a node delivered in a period; `period` is null outside of any.

    `times` counts all, `redeliveries` those that were marked as such; `hops`, `first_index` and
    the place are of the first. Every delivery goes through one wide shuffle here, by node and
    topic: whoever needs less than all of this should group less.
    """
    said = with_period(
        of_kind(lines, "delivered").select(
            *PAIR,
            "publisher",
            "epoch",
            "number",
            "event",
            "redelivery",
            "hops",
            "index",
            "incarnation",
            "seq",
        ),
        periods_of(lines),
    )
    first = place()
    return (
        said.groupBy(*_OF)
        .agg(
            F.count(F.lit(1)).alias("times"),
            F.count_if("redelivery").alias("redeliveries"),
            # All numbers: with anything else in it this would be done by sorting every row.
            F.min("incarnation").alias("first_incarnation"),
            F.min_by("seq", first).alias("first_seq"),
            F.min_by("index", first).alias("first_index"),
            F.min_by("hops", first).alias("hops"),
        )
        .withColumn("of_own", F.col("node_id") == F.col("publisher"))
    )


def with_period(said: DataFrame, periods: DataFrame) -> DataFrame:
    """Lines of nodes about topics, with the number of the period that each falls into, or null."""
    known = periods.select(
        *PAIR,
        "period",
        place("from_incarnation", "from_seq").alias("_from"),
        place("to_incarnation", "to_seq").alias("_to"),
    )
    within = is_within(place(said["incarnation"], said["seq"]), known["_from"], known["_to"])
    same = [said[column] == known[column] for column in PAIR]
    # A subscription is one row for thousands of deliveries: a table of them per partition saves
    # sorting those, and what is grouped by node and topic afterwards need not move again.
    return said.join(known.hint("shuffle_hash"), [*same, within], how="left").select(
        *(said[column] for column in said.columns), known["period"]
    )
