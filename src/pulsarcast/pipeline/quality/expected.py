"""What each subscription should have: a count and a sum of fingerprints, by algebra.

Due to a period is all of its topic's events but those that its start frontier covers. So there is
no need for a row per event and subscriber: the whole topic is one row, and what a frontier covers
is the sum up to a number of a numbering, which a walk along the numbering gives.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from pulsarcast.pipeline.history.places import NUMBERING, PAIR
from pulsarcast.pipeline.history.subscriptions import starts as starts_of

BLOCK_BITS: Final = 12
"""2^12 numbers are walked along in one go: one publisher may have nearly all of a topic."""


def expected(events: DataFrame, periods: DataFrame) -> DataFrame:
    """The periods, each with `due` and `due_fingerprints`, whatever ended it."""
    of_topic = events.groupBy("run_id", "topic").agg(
        F.count(F.lit(1)).alias("_all"),
        F.bit_xor("fingerprint").alias("_all_fingerprints"),
        F.bool_or("has_twin").alias("has_twins"),
    )
    covered = _covered(events, starts_of(periods))
    none = F.lit(0).cast("bigint")
    return (
        periods
        # One row per topic goes to all subscriptions: by topic alone nothing is to be sorted.
        .join(F.broadcast(of_topic), ["run_id", "topic"], how="left")
        .join(covered, [*PAIR, "period"], how="left")
        .select(
            *periods.columns,
            (F.coalesce("_all", none) - F.coalesce("_covered", none)).alias("due"),
            F.coalesce("_all_fingerprints", none)
            .bitwiseXOR(F.coalesce("_covered_fingerprints", none))
            .alias("due_fingerprints"),
            F.coalesce("has_twins", F.lit(False)).alias("has_twins"),
        )
    )


def _covered(events: DataFrame, starts: DataFrame) -> DataFrame:
    """Per period: how many events its start frontier covers, and their sum of fingerprints."""
    sums = sums_up_to(events, starts.select(*NUMBERING, "number").distinct())
    return (
        starts.join(sums, [*NUMBERING, "number"], how="inner")
        .groupBy(*PAIR, "period")
        .agg(
            F.sum("sum").alias("_covered"),
            F.bit_xor("fingerprints").alias("_covered_fingerprints"),
        )
    )


def sums_up_to(events: DataFrame, cuts: DataFrame) -> DataFrame:
    """Per cut: how many events of its numbering have its number or a lower one, and their sum.

    In two walks, inside of blocks of numbers and from block to block, so that no task has to walk
    along a whole numbering.
    """
    block = F.shiftright("number", BLOCK_BITS).alias("block")
    rows = events.select(
        *NUMBERING, block, "number", F.lit(False).alias("cut"), F.lit(1).alias("n"), "fingerprint"
    ).unionByName(
        cuts.select(
            *NUMBERING,
            block,
            "number",
            F.lit(True).alias("cut"),
            F.lit(0).alias("n"),
            F.lit(0).cast("bigint").alias("fingerprint"),
        )
    )
    inside = (
        Window.partitionBy(*NUMBERING, "block")
        .orderBy("number", "cut")
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    before = (
        Window.partitionBy(*NUMBERING).orderBy("block").rowsBetween(Window.unboundedPreceding, -1)
    )
    none = F.lit(0).cast("bigint")
    blocks = (
        rows.groupBy(*NUMBERING, "block")
        .agg(F.sum("n").alias("n"), F.bit_xor("fingerprint").alias("fingerprint"))
        .select(
            *NUMBERING,
            "block",
            F.coalesce(F.sum("n").over(before), none).alias("n_before"),
            F.coalesce(F.bit_xor("fingerprint").over(before), none).alias("before"),
        )
    )
    return (
        rows.select(
            *NUMBERING,
            "block",
            "number",
            "cut",
            F.sum("n").over(inside).alias("n"),
            F.bit_xor("fingerprint").over(inside).alias("fingerprint"),
        )
        .where("cut")
        .join(blocks, [*NUMBERING, "block"], how="inner")
        .select(
            *NUMBERING,
            "number",
            (F.col("n") + F.col("n_before")).alias("sum"),
            F.col("fingerprint").bitwiseXOR(F.col("before")).alias("fingerprints"),
        )
    )
