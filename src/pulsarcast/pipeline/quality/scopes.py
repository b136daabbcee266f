"""Scopes: every figure is given per topic, for the load's own topics, for those that came with
them, and for all together."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

SCOPE: Final = ("run_id", "scope", "topic")
"""What a figure is about; `topic` is null where it is about more than one."""


def in_scopes(by_topic: DataFrame, topics: DataFrame) -> DataFrame:
    """Rows with a run and a topic, once for every scope that they belong to.

    The rows are counts already, so that three times as many are still few. A topic that is not
    known belongs to those that came with others; rows without a topic are in `all` alone.
    """
    kinds = F.broadcast(topics.select("run_id", "topic", "is_meta"))
    no_topic = F.lit(None).cast("string")
    scopes = F.array(
        F.struct(F.lit("topic").alias("scope"), F.col("topic").alias("topic")),
        F.struct(
            F.when(F.coalesce("is_meta", F.lit(True)), "meta").otherwise("own").alias("scope"),
            no_topic.alias("topic"),
        ),
        F.struct(F.lit("all").alias("scope"), no_topic.alias("topic")),
    )
    others = [column for column in by_topic.columns if column not in ("run_id", "topic")]
    return (
        by_topic.join(kinds, ["run_id", "topic"], how="left")
        .withColumn("_in", F.explode(scopes))
        .where(F.col("topic").isNotNull() | (F.col("_in.scope") == "all"))
        .select("run_id", "_in.scope", "_in.topic", *others)
    )
