"""Topics as their authors made them, and as the nodes that follow them saw them change."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pulsarcast.pipeline.history.places import NUMBERING, of_kind

_DESCRIBED = ("name", "author", "order", "dissemination", "linking")


def topics(lines: DataFrame) -> DataFrame:
    """One row per topic: what its author chose.

    A topic that nobody said to have created came with another one (`is_meta`); nothing but its id
    is known of it. `retains` says that some version of it lets go of old events;
    `retention_count` is the fewest events that any version keeps, and `retains_otherwise` that some
    version goes by age or size, which a trace cannot retrace.
    """
    said = of_kind(
        lines, "topic_created", "topic_version", "subscribed", "injected", "published"
    ).where(F.col("topic").isNotNull())
    created = F.col("kind") == "topic_created"
    otherwise = F.coalesce("retention_age_s", "retention_bytes").isNotNull()
    return (
        said.groupBy("run_id", "topic")
        .agg(
            # One line says it; `max` is what hashes of text can be kept with.
            *(F.max(F.when(created, F.col(name))).alias(name) for name in _DESCRIBED),
            F.bool_or(created).alias("_created"),
            F.min("retention_count").alias("retention_count"),
            F.bool_or(otherwise).alias("retains_otherwise"),
        )
        .select(
            "run_id",
            "topic",
            *_DESCRIBED,
            (~F.col("_created")).alias("is_meta"),
            (F.col("retention_count").isNotNull() | F.col("retains_otherwise")).alias("retains"),
            "retention_count",
            "retains_otherwise",
        )
    )


def versions(lines: DataFrame) -> DataFrame:
    """Who may publish under each version of a topic (`allowed`, null: anyone), once each."""
    return (
        of_kind(lines, "topic_created", "topic_version")
        .select("run_id", "topic", "version", "allowed")
        .distinct()
    )


def flushes(lines: DataFrame) -> DataFrame:
    """Up to which number of a numbering some version of its topic flushed: `flushed_to`."""
    return (
        of_kind(lines, "topic_version")
        .select("run_id", "topic", F.explode("flushed").alias("mark"))
        .select("run_id", "topic", "mark.publisher", "mark.epoch", "mark.number")
        .groupBy(*NUMBERING)
        .agg(F.max("number").alias("flushed_to"))
    )
