"""Reasons why an event that is due may be missing, and how it is counted (docs/guides/metrics.md).

Nothing here is asked about events that everyone got. The others are, one after the other: had the
node another event of the same request; was that request there before the subscription; did the
publisher lose it before anyone was promised anything; had retention or a flush let go of it. What
none of these explains is lost.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pulsarcast.pipeline.history.lives import last_harms
from pulsarcast.pipeline.history.places import LEVELS, of_kind
from pulsarcast.pipeline.history.publications import delivered_elsewhere
from pulsarcast.pipeline.history.topics import flushes
from pulsarcast.pipeline.quality.closely import PERIOD, numbering, subject

EXPLAINED = (
    "subject bigint, period int, event_key bigint, run_id string, topic string, event string, "
    "numbering bigint, number bigint, level int, reason string"
)
"""What `explain` returns."""

_ASKED = (
    "run_id",
    "topic",
    "event",
    "level",
    "alone",
    "node_id",
    "incarnation",
    "numbering",
    "number",
)


def explain(
    lines: DataFrame,
    missing: DataFrame,
    *,
    starts: DataFrame,
    got: DataFrame,
    events: DataFrame,
    topics: DataFrame,
) -> DataFrame:
    """The missing pairs, each with its `reason`, and with what is known of the event."""
    asked = missing.join(
        events.select("event_key", "request_id", "has_twin", *_ASKED), ["event_key"], how="inner"
    )
    return _retired(
        lines, _unacknowledged(lines, _twins(asked, starts, got, events)), events, topics
    ).select(
        *PERIOD,
        "event_key",
        "run_id",
        "topic",
        "event",
        "numbering",
        "number",
        "level",
        F.when(F.col("twin"), "twin")
        .when(F.col("concurrent"), "concurrent")
        .when(F.col("unacknowledged"), "unacknowledged")
        .when(F.col("retired"), "retired")
        .otherwise("lost")
        .alias("reason"),
    )


def _twins(asked: DataFrame, starts: DataFrame, got: DataFrame, events: DataFrame) -> DataFrame:
    """Add `twin`: the period got another event of the request; `concurrent`: it began after one."""
    others = events.where("has_twin").select(
        "run_id",
        "request_id",
        F.col("event_key").alias("other_key"),
        F.col("numbering").alias("other_numbering"),
        F.col("number").alias("other_number"),
    )
    had = got.select(*PERIOD, F.col("event_key").alias("other_key"), F.lit(True).alias("_had"))
    began = starts.select(*PERIOD, F.col("numbering").alias("other_numbering"), "start")
    seen = (
        asked.where("has_twin")
        .select(*PERIOD, "event_key", "run_id", "request_id")
        .join(others, ["run_id", "request_id"], how="inner")
        .where(F.col("event_key") != F.col("other_key"))
        .join(had, [*PERIOD, "other_key"], how="left")
        .join(began, [*PERIOD, "other_numbering"], how="left")
        .groupBy(*PERIOD, "event_key")
        .agg(
            F.bool_or(F.col("_had").isNotNull()).alias("twin"),
            F.bool_or(F.coalesce(F.col("other_number") <= F.col("start"), F.lit(False))).alias(
                "concurrent"
            ),
        )
    )
    no = F.lit(False)
    return (
        asked.join(seen, [*PERIOD, "event_key"], how="left")
        .withColumn("twin", F.coalesce("twin", no))
        .withColumn("concurrent", ~F.col("twin") & F.coalesce("concurrent", no))
    )


def _unacknowledged(lines: DataFrame, asked: DataFrame) -> DataFrame:
    """Add `unacknowledged`: the publisher lost the event before it was safe.

    What several sequencers agreed on is on most of their disks: no one of them can lose it.
    """
    harmed = asked.where(F.col("alone") & ~F.col("twin") & ~F.col("concurrent")).join(
        last_harms(lines), ["run_id", "node_id"], how="inner"
    )
    disk_lost = F.coalesce(F.col("last_disk_lost") >= F.col("incarnation"), F.lit(False))
    killed = F.coalesce(F.col("last_killed") >= F.col("incarnation"), F.lit(False))
    suspicion = harmed.select(
        "run_id",
        "event",
        "event_key",
        (disk_lost & (F.col("level") < LEVELS["replicated"])).alias("with_disk"),
        (~disk_lost & killed & (F.col("level") == 0)).alias("perhaps"),
    ).distinct()
    left = delivered_elsewhere(lines, suspicion.where("perhaps").select("run_id", "event"))
    gone = (
        suspicion.join(left.withColumn("elsewhere", F.lit(True)), ["run_id", "event"], how="left")
        .where(F.col("with_disk") | (F.col("perhaps") & F.col("elsewhere").isNull()))
        .select("event_key", F.lit(True).alias("unacknowledged"))
    )
    return asked.join(gone, ["event_key"], how="left").withColumn(
        "unacknowledged", F.coalesce("unacknowledged", F.lit(False))
    )


def _retired(lines: DataFrame, asked: DataFrame, events: DataFrame, topics: DataFrame) -> DataFrame:
    """Add `retired`: the node was told that a flush or retention had let go of the event.

    Nobody is believed beyond what a version flushed, or where retention cannot have let go.
    """
    told = (
        of_kind(lines, "retired")
        .groupBy(subject().alias("subject"), numbering().alias("numbering"))
        .agg(F.max("number").alias("retired_to"))
    )
    published = events.groupBy("run_id", "topic").agg(F.count(F.lit(1)).alias("published"))
    lets_go = (
        topics.where("retains")
        .join(published, ["run_id", "topic"], how="inner")
        .where(F.col("retains_otherwise") | (F.col("published") > F.col("retention_count")))
        .select("run_id", "topic", F.lit(True).alias("lets_go"))
    )
    flushed = flushes(lines).select(numbering().alias("numbering"), "flushed_to")
    can_be = F.coalesce("lets_go", F.lit(False)) | F.coalesce(
        F.col("flushed_to") >= F.col("number"), F.lit(False)
    )
    return (
        asked.join(told, ["subject", "numbering"], how="left")
        .join(F.broadcast(lets_go), ["run_id", "topic"], how="left")
        .join(flushed, ["numbering"], how="left")
        .withColumn(
            "retired",
            can_be & F.coalesce(F.col("retired_to") >= F.col("number"), F.lit(False)),
        )
    )
