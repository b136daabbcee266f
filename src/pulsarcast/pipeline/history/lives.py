"""Lives: from a start of a node to its end, and what the testbed did to it meanwhile."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pulsarcast.pipeline.history.places import of_kind

DRIVER: Final = "driver"
"""The node_id of the load driver, which is no peer and is never killed."""

KILLS: Final = ("kill", "lose")
DISK_LOSSES: Final = ("restart_empty", "lose")
RESTARTS: Final = ("restart", "restart_empty")
"""Said of the life before; another one follows."""

_LIFE = ("run_id", "node_id", "incarnation")


def lives(lines: DataFrame) -> DataFrame:
    """One row per life of a node: which lines there are of it, and how it began and ended."""
    told = lines.groupBy(*_LIFE).agg(
        F.min("seq").alias("first_seq"),
        F.max("seq").alias("last_seq"),
        F.count(F.lit(1)).alias("lines"),
        F.bool_or(F.col("kind") == "node_started").alias("started"),
        F.bool_or(F.col("kind") == "node_stopped").alias("stopped"),
    )
    return told.join(harms(lines), [*_LIFE], how="left").select(
        *_LIFE,
        "first_seq",
        "last_seq",
        "lines",
        "started",
        "stopped",
        F.coalesce("killed", F.lit(False)).alias("killed"),
        F.coalesce("disk_lost", F.lit(False)).alias("disk_lost"),
        (F.col("node_id") == DRIVER).alias("is_driver"),
    )


def harms(lines: DataFrame) -> DataFrame:
    """One row per life that the testbed ended: whether by a kill, and whether its disk went too."""
    return (
        of_kind(lines, "fault")
        .where(F.col("action").isin(*KILLS, *DISK_LOSSES) & F.col("target_incarnation").isNotNull())
        .groupBy(
            "run_id",
            F.col("target").alias("node_id"),
            F.col("target_incarnation").alias("incarnation"),
        )
        .agg(
            F.bool_or(F.col("action").isin(*KILLS)).alias("killed"),
            F.bool_or(F.col("action").isin(*DISK_LOSSES)).alias("disk_lost"),
        )
    )


def last_harms(lines: DataFrame) -> DataFrame:
    """One row per node that was harmed: the last life that was killed, and that lost its disk."""
    return (
        harms(lines)
        .groupBy("run_id", "node_id")
        .agg(
            F.max(F.when(F.col("killed"), F.col("incarnation"))).alias("last_killed"),
            F.max(F.when(F.col("disk_lost"), F.col("incarnation"))).alias("last_disk_lost"),
        )
    )
