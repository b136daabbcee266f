"""Gap repair: how long a node knew that it lacked events before it had them.

Both lines are one node's, in one life, so one clock measures. A node asks for a stretch of a
publisher's numbers at a time, may learn meanwhile that the stretch is longer, and says once when it
has all of it. So what is filled began with the first gap found since the last filling whose stretch
covers the number, or else with the last one found that begins below it.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from pulsarcast.pipeline.history.places import of_kind
from pulsarcast.pipeline.quality.histograms import unit_of

UNIT_NS: Final = 1_000_000
"""Repair times are counted in milliseconds, rounded down."""

_ASKED = ("run_id", "topic", "node_id", "incarnation", "publisher", "epoch")


def repairs(lines: DataFrame) -> DataFrame:
    """One row per topic: gaps found, filled, and of the filled those whose time is known."""
    return (
        _repaired(lines)
        .groupBy("run_id", "topic")
        .agg(
            F.sum("found").alias("gaps_found"),
            F.count("filled_ns").alias("gaps_filled"),
            F.count("value").alias("gaps_measured"),
        )
    )


def repair_times(lines: DataFrame) -> DataFrame:
    """How many gaps took how long, per topic: a histogram in milliseconds (`value`, `count`)."""
    return (
        _repaired(lines)
        .where("value is not null")
        .groupBy("run_id", "topic", "value")
        .agg(F.count(F.lit(1)).alias("count"))
    )


def _repaired(lines: DataFrame) -> DataFrame:
    """One row per filling, and one for what was found after the last."""
    in_order = Window.partitionBy(*_ASKED).orderBy("seq")
    fills = F.col("kind") == "gap_filled"
    until = in_order.rowsBetween(Window.unboundedPreceding, -1)
    stretch = Window.partitionBy(*_ASKED, "turn")
    said = (
        of_kind(lines, "gap_found", "gap_filled")
        .select(*_ASKED, "seq", "mono_ns", "kind", "first", "last", "number")
        # A filling belongs to what was found before it: a turn ends with one.
        .withColumn("turn", F.coalesce(F.count_if(fills).over(until), F.lit(0)))
        .withColumn("filled", F.max(F.when(fills, F.col("number"))).over(stretch))
    )
    below = ~fills & (F.col("first") <= F.col("filled"))
    covers = below & (F.col("filled") <= F.col("last"))
    begun = F.coalesce(
        F.min(F.when(covers, F.col("mono_ns"))), F.max(F.when(below, F.col("mono_ns")))
    )
    return (
        said.groupBy(*_ASKED, "turn")
        .agg(
            F.count_if(~fills).alias("found"),
            F.max(F.when(fills, F.col("mono_ns"))).alias("filled_ns"),
            begun.alias("begun_ns"),
        )
        .withColumn("value", unit_of(F.col("filled_ns") - F.col("begun_ns"), UNIT_NS))
    )
