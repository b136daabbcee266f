"""Publications: the events that stand, each once, with what was promised about them.

A node may say again after a restart what it published last. And one that was killed before its
disk had synced may give another event the same number: that takes the first one back, as long as
nobody was told of it and nobody else got it. Where the first did leave, it stands, and the second
is an equivocation, which is for the checks to name.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from pulsarcast.pipeline.history.lives import last_harms
from pulsarcast.pipeline.history.places import LEVELS, NUMBERING, in_own_name, of_kind, place

EVENT = ("run_id", "event")

_SAID = (
    "run_id",
    "topic",
    "event",
    "version",
    "publisher",
    "author",
    "epoch",
    "number",
    "parents",
    "request_id",
    "injection",
    "node_id",
    "incarnation",
    "seq",
    "mono_ns",
)


def publications(lines: DataFrame) -> DataFrame:
    """One row per event that stands, with `excusable`: whether its publisher may have lost it.

    That is so if it was not replicated and the publisher lost its disk, or if nobody was promised
    anything, the publisher was killed, and no other node ever delivered the event. What several
    sequencers agreed on is on most of their disks: no one of them can lose it.
    """
    stands = standing(lines)
    harmed = stands.join(last_harms(lines), ["run_id", "node_id"], how="left")
    disk_lost = F.coalesce(F.col("last_disk_lost") >= F.col("incarnation"), F.lit(False))
    killed = F.coalesce(F.col("last_killed") >= F.col("incarnation"), F.lit(False))
    alone = F.coalesce(F.col("position_term"), F.lit(0)) == 0
    judged = harmed.select(
        *stands.columns,
        (alone & disk_lost & (F.col("level") < LEVELS["replicated"])).alias("_with_disk"),
        (alone & ~disk_lost & killed & (F.col("level") == 0)).alias("_perhaps"),
    )
    left = delivered_elsewhere(lines, judged.where("_perhaps").select(*EVENT))
    return (
        judged.join(left.select(*EVENT, F.lit(True).alias("_elsewhere")), [*EVENT], how="left")
        .withColumn(
            "excusable",
            F.col("_with_disk") | (F.col("_perhaps") & F.col("_elsewhere").isNull()),
        )
        .select(*stands.columns, "excusable")
    )


def standing(lines: DataFrame) -> DataFrame:
    """One row per event that stands: where and when it was first said, and the highest promise.

    `several_said`: more than one sequencer said it, and which of them was first no line tells.
    """
    told = _told(lines)
    # Where two events have one number, it counts which of them anyone else knows of.
    rivals = told.where(F.col("_rivals") > 1)
    left = delivered_elsewhere(lines, rivals.where("level = 0").select(*EVENT))
    numbered = Window.partitionBy(*NUMBERING, "number")
    with_left = told.join(
        left.select(*EVENT, F.lit(True).alias("_elsewhere")), [*EVENT], how="left"
    ).withColumn("_left", (F.col("level") > 0) | F.col("_elsewhere").isNotNull())
    # Of several sequencers two may contradict each other at the same place of their own.
    at = F.struct(place().alias("place"), F.col("node_id"))
    stands_at = F.coalesce(
        F.min(F.when(F.col("_left"), at)).over(numbered), F.max(at).over(numbered)
    )
    return (
        with_left.withColumn("_stands_at", stands_at)
        .where(at == F.col("_stands_at"))
        .select(
            *_SAID[:9],
            F.col("position.term").alias("position_term"),
            F.col("position.number").alias("position"),
            *_SAID[9:],
            "several_said",
            "level",
        )
    )


def _told(lines: DataFrame) -> DataFrame:
    """One row per event that its own publisher said to be out, where it first did."""
    by_place = ("incarnation", "seq", "node_id")
    same = Window.partitionBy(*NUMBERING, "number", "event")
    first = same.orderBy(*by_place)
    said = (
        of_kind(lines, "published")
        # In another's name nothing can be published: such an event is forged.
        .where(in_own_name())
        .select(*_SAID, "position")
        .withColumn("_time", F.row_number().over(first))
        .withColumn("several_said", F.min("node_id").over(same) < F.max("node_id").over(same))
        .where("_time = 1")
        .withColumn("_rivals", F.count(F.lit(1)).over(Window.partitionBy(*NUMBERING, "number")))
    )
    return said.join(levels(lines), [*EVENT], how="left").withColumn(
        "level", F.coalesce("level", F.lit(0))
    )


def levels(lines: DataFrame) -> DataFrame:
    """One row per event that anyone was promised anything about: the highest level."""
    level = F.lit(0)
    for name, number in LEVELS.items():
        level = F.when(F.col("level") == name, number).otherwise(level)
    return of_kind(lines, "acknowledged").groupBy(*EVENT).agg(F.max(level).alias("level"))


def delivered_elsewhere(lines: DataFrame, events: DataFrame) -> DataFrame:
    """Those of these events that any node but their publisher's own delivered.

    The events asked about are few: those in doubt after a kill. They go to the deliveries, not the
    deliveries to them; and if there are none, the deliveries are not read at all.
    """
    return (
        of_kind(lines, "delivered")
        .where(F.col("node_id") != F.col("publisher"))
        .select(*EVENT)
        .join(F.broadcast(events), [*EVENT], how="left_semi")
        .distinct()
    )
