"""Latency: how long after its publication an event was delivered, as far as clocks tell.

Two nodes have two clocks. But an event that P published and R delivered cannot have arrived before
it left, so the difference of the two readings is never below the offset of R's clock to P's; and
events that went from R to P bound the same offset from the other side. What one direction's
difference exceeds the least one in its direction by is the lowest latency it can have had; with the
least one of the other direction added, it is the highest. So each latency comes with two bounds,
which are as far apart as the fastest round trip that two events made between these two nodes.

Offsets are kept apart by pair of lives, because a restart begins a new clock, and by stretches of
time, because clocks drift. Where in a stretch no event went the other way, there is no upper bound,
and such a delivery is counted as not measured. The readings are of the monotonic clocks: no
operator can set those.

Of several sequencers P is the one that said the event, and not their common count, which has no
clock. Where more than one said it, after a change of leader, it may have left the other one before:
such an event bounds nothing, and is not measured.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pulsarcast.pipeline.history.places import PAIR, fingerprint, of_kind
from pulsarcast.pipeline.quality.closely import (
    event_key,
    subject,
    topic_key,
)
from pulsarcast.pipeline.quality.ground import Ground
from pulsarcast.pipeline.quality.histograms import unit_of

UNIT_NS: Final = 1_000_000
"""Latencies are counted in milliseconds, rounded down."""
STRETCH_NS: Final = 60_000_000_000
"""Over how long an offset is taken to be the same, but for the drift."""
DRIFT_PPM: Final = 400
"""How fast two clocks may drift apart, taken into both bounds: twice 200 ppm."""

EVENTS_SENT_MAX: Final = 2_000_000
"""Up to this many events go to the deliveries; more than that, and both are sorted by event."""


def latencies(ground: Ground) -> DataFrame:
    """Histograms per topic of first deliveries at others' nodes, in milliseconds.

    `bound` is `low` or `high`, each over the same deliveries. Those that have no bounds are in
    neither, but under `unmeasured`, with no value.
    """
    bounded = _bounded(_differences(ground))
    values = F.when(F.col("high").isNull(), F.array(_row("unmeasured", F.lit(None)))).otherwise(
        F.array(_row("low", F.col("low")), _row("high", F.col("high")))
    )
    return (
        bounded.select("topic_key", F.explode(values).alias("_is"))
        .groupBy("topic_key", "_is.bound", "_is.value")
        .agg(F.count(F.lit(1)).alias("count"))
        .join(
            F.broadcast(ground.topics.select("run_id", "topic", topic_key().alias("topic_key"))),
            ["topic_key"],
            how="inner",
        )
        .select("run_id", "topic", "bound", "value", "count")
    )


def _row(bound: str, value: Column) -> Column:
    return F.struct(
        F.lit(bound).alias("bound"),
        unit_of(value.cast("bigint"), UNIT_NS).alias("value"),
    )


def _arrivals(ground: Ground) -> DataFrame:
    """First deliveries at others' nodes: event, node, the clock that was read, and the reading."""
    doubtful = ground.doubtful.select("subject", "run_id", "node_id").distinct()
    # Who is in doubt is known event by event, and who is not subscribed does not count. All the
    # others delivered once whatever they delivered.
    apart = (
        ground.tallies.select(*PAIR)
        .distinct()
        .join(ground.settled.select(*PAIR).distinct(), [*PAIR], how="left_anti")
        .select(subject().alias("subject"))
    )
    simple = (
        of_kind(ground.lines, "delivered")
        .where(F.col("node_id") != F.col("publisher"))
        .select(
            subject().alias("subject"),
            topic_key().alias("topic_key"),
            fingerprint().alias("fingerprint"),
            _node().alias("node"),
            _clock().alias("arrival_clock"),
            F.col("mono_ns").alias("arrival_ns"),
        )
        .join(F.broadcast(apart), ["subject"], how="left_anti")
        .select(event_key().alias("event_key"), "node", "arrival_clock", "arrival_ns")
    )
    closer = (
        ground.got.where(~F.col("of_own"))
        .join(F.broadcast(doubtful), ["subject"], how="inner")
        .withColumn("incarnation", F.shiftright("place", 32))
        .select(
            "event_key",
            _node().alias("node"),
            _clock().alias("arrival_clock"),
            F.col("mono_ns").alias("arrival_ns"),
        )
    )
    return simple.unionByName(closer)


def _clock() -> Column:
    """One life of one node, as one number: it has one monotonic clock."""
    return F.xxhash64("run_id", "node_id", "incarnation")


def _node() -> Column:
    """A node of a run, as one number."""
    return F.xxhash64("run_id", "node_id")


def _ranks(ground: Ground) -> DataFrame:
    """Which place each node's name has among those of its run, for all that got or said events."""
    names = ground.tallies.select("run_id", "node_id").union(
        ground.events.select("run_id", "node_id")
    )
    by_name = Window.partitionBy("run_id").orderBy("node_id")
    return names.distinct().select(
        _node().alias("node"), F.row_number().over(by_name).alias("rank")
    )


def _differences(ground: Ground) -> DataFrame:
    """Per arrival: its difference to the publication, by pair of clocks, direction and stretch.

    The difference is null where nobody knows which of several sequencers published.
    """
    ranks = F.broadcast(_ranks(ground))
    departures = (
        ground.events.select(
            "event_key",
            "topic_key",
            "several_said",
            _node().alias("node"),
            _clock().alias("departure_clock"),
            F.col("mono_ns").alias("departure_ns"),
        )
        .join(ranks, ["node"], how="inner")
        .withColumnRenamed("rank", "departure_rank")
        .drop("node")
    )
    if ground.events.count() <= EVENTS_SENT_MAX:
        departures = F.broadcast(departures)
    # Time is that of the node whose name comes first, whichever way an event went.
    ascending = F.col("departure_rank") < F.col("rank")
    time = F.when(ascending, F.col("departure_ns")).otherwise(F.col("arrival_ns"))
    return (
        _arrivals(ground)
        .join(ranks, ["node"], how="inner")
        .drop("node")
        .join(departures, ["event_key"], how="inner")
        # What a sequencer said itself is its own, though not by the name that it is numbered under.
        .where(F.col("departure_rank") != F.col("rank"))
        .select(
            "topic_key",
            F.xxhash64(
                F.least("departure_clock", "arrival_clock"),
                F.greatest("departure_clock", "arrival_clock"),
                unit_of(time, STRETCH_NS),
            ).alias("stretch"),
            ascending.alias("there"),
            F.when(~F.col("several_said"), F.col("arrival_ns") - F.col("departure_ns")).alias(
                "difference"
            ),
        )
    )


def _bounded(differences: DataFrame) -> DataFrame:
    """The same with `low` and `high`, null where nothing bounds it, in nanoseconds."""
    stretch = Window.partitionBy("stretch")
    least_there = F.min(F.when(F.col("there"), F.col("difference"))).over(stretch)
    least_back = F.min(F.when(~F.col("there"), F.col("difference"))).over(stretch)
    low = F.col("difference") - F.when(F.col("there"), F.col("_there")).otherwise(F.col("_back"))
    high = F.col("difference") + F.when(F.col("there"), F.col("_back")).otherwise(F.col("_there"))
    round_trip = F.col("_there") + F.col("_back")
    drift = ((F.lit(STRETCH_NS) + 2 * F.col("_high") + round_trip) * F.lit(DRIFT_PPM / 1e6)).cast(
        "bigint"
    )
    return (
        differences.withColumn("_there", least_there)
        .withColumn("_back", least_back)
        .withColumn("_low", low)
        .withColumn("_high", high)
        .select(
            "topic_key",
            F.greatest(F.lit(0).cast("bigint"), F.col("_low") - drift).alias("low"),
            (F.col("_high") + drift).alias("high"),
        )
    )
