"""Frames: what the charts show, boiled down on Spark to tables that fit on a page.

However large the traces are, a frame has at most some thousand rows: topics beyond the busiest are
added up, nodes are ranked into a fixed number of steps, time is cut into a fixed number of bins.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import pandas as pd
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

TOPICS_MAX: Final = 30
"""Topics that are shown one by one, per run."""
STEPS: Final = 100
"""Steps of the curve of nodes from the idlest to the busiest."""
BINS: Final = 60
"""Bins of a run's time."""

OTHERS: Final = "(others)"

_COUNTS = ("published", "due", "delivered", "rpc_sent")
_RANKED = ("rpc_sent", "rpc_received", "delivered")


class Frames(NamedTuple):
    """Everything that is drawn, as pandas tables."""

    totals: pd.DataFrame
    """One row per run: what was published, due, delivered, and what it cost."""
    topics: pd.DataFrame
    """Per run and topic: the same counts."""
    nodes: pd.DataFrame
    """Per run, measure and step of the ranking: messages sent and received, and deliveries."""
    time: pd.DataFrame
    """Per run and bin of its time: deliveries a second."""
    hops: pd.DataFrame
    """Per run and number of hops: deliveries of others' events."""


def boil_down(lines: DataFrame, measured: Mapping[str, DataFrame]) -> Frames:
    """The frames of all runs in `lines`, of which `measured` are the tables (`quality.compute`)."""
    own = measured["topics"].where(~F.col("is_meta"))
    delivered = _delivered_by_node(lines)
    return Frames(
        totals=_totals(lines, measured).toPandas(),
        topics=_busiest(own).toPandas(),
        nodes=_ranked(measured["nodes"], delivered).toPandas(),
        time=_over_time(lines).toPandas(),
        hops=_by_hops(measured["histograms"]).toPandas(),
    )


def _totals(lines: DataFrame, measured: Mapping[str, DataFrame]) -> DataFrame:
    names = ("published", "due", "delivered", "duplicates", "lost", "undecided")
    own = measured["runs"].where("scope = 'own'").select("run_id", *names)
    sent = measured["runs"].where("scope = 'all'").select("run_id", "rpc_sent", "rpc_bytes_sent")
    nodes = measured["nodes"].groupBy("run_id").agg(F.count(F.lit(1)).alias("nodes"))
    hops = (
        measured["histograms"]
        .where("measure = 'hops'")
        .groupBy("run_id")
        .agg(F.max("value").alias("hops_max"))
    )
    faults = (
        lines.where(F.col("kind") == "fault")
        .groupBy("run_id")
        .agg(F.count(F.lit(1)).alias("faults"))
    )
    table = own
    for part in (sent, nodes, hops, faults):
        table = table.join(part, ["run_id"], how="left")
    return table.fillna(0, ["faults"]).orderBy("run_id")


def _busiest(topics: DataFrame) -> DataFrame:
    """The busiest topics of each run one by one, all others together."""
    busiest = Window.partitionBy("run_id").orderBy(F.desc("published"), "name", "topic")
    rank = F.least(F.row_number().over(busiest), F.lit(TOPICS_MAX + 1))
    name = F.when(F.col("rank") > TOPICS_MAX, OTHERS).otherwise(F.coalesce("name", "topic"))
    return (
        topics.withColumn("rank", rank)
        .withColumn("name", name)
        .groupBy("run_id", "rank", "name")
        .agg(*(F.coalesce(F.sum(count), F.lit(0)).alias(count) for count in _COUNTS))
        .orderBy("run_id", "rank")
    )


def _delivered_by_node(lines: DataFrame) -> DataFrame:
    return (
        lines.where(F.col("kind") == "delivered")
        .groupBy("run_id", "node_id")
        .agg(F.count(F.lit(1)).alias("delivered"))
    )


def _ranked(nodes: DataFrame, delivered: DataFrame) -> DataFrame:
    """Per measure, the nodes from the idlest to the busiest, in a fixed number of steps."""
    measures = F.array(
        *(
            F.struct(F.lit(name).alias("measure"), F.col(name).cast("bigint").alias("value"))
            for name in _RANKED
        )
    )
    ranked = Window.partitionBy("run_id", "measure").orderBy("value", "node_id")
    return (
        nodes.select("run_id", "node_id", "rpc_sent", "rpc_received")
        .join(delivered, ["run_id", "node_id"], how="left")
        .fillna(0, ["delivered"])
        .select("run_id", "node_id", F.explode(measures).alias("_"))
        .select("run_id", "node_id", "_.measure", "_.value")
        .where("value is not null")
        .withColumn("step", F.ntile(STEPS).over(ranked))
        .groupBy("run_id", "measure", "step")
        .agg(F.max("value").alias("value"))
        .orderBy("run_id", "measure", "step")
    )


def _over_time(lines: DataFrame) -> DataFrame:
    """By each node's own wall clock: good enough for a picture, and for nothing else."""
    delivered = lines.where(F.col("kind") == "delivered").select("run_id", "wall_ns")
    span = delivered.groupBy("run_id").agg(
        F.min("wall_ns").alias("first_ns"), F.max("wall_ns").alias("last_ns")
    )
    width_s = F.greatest(F.lit(1), F.col("last_ns") - F.col("first_ns")) / BINS / 1e9
    at_s = (F.col("wall_ns") - F.col("first_ns")) / 1e9
    return (
        delivered.join(F.broadcast(span.withColumn("width_s", width_s)), ["run_id"], how="inner")
        .groupBy(
            "run_id",
            "width_s",
            F.least(F.lit(BINS - 1), F.floor(at_s / F.col("width_s"))).alias("bin"),
        )
        .agg(F.count(F.lit(1)).alias("delivered"))
        .select(
            "run_id",
            (F.col("bin") * F.col("width_s")).alias("time_s"),
            (F.col("delivered") / F.col("width_s")).alias("delivered_per_s"),
        )
        .orderBy("run_id", "time_s")
    )


def _by_hops(histograms: DataFrame) -> DataFrame:
    return (
        histograms.where("measure = 'hops'")
        .groupBy("run_id", F.col("value").alias("hops"))
        .agg(F.sum("count").alias("deliveries"))
        .orderBy("run_id", "hops")
    )
