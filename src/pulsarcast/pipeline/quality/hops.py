"""Hops: over how many nodes an event came to each of those who got it.

Counted are first deliveries on nodes other than the publisher's own. What a node delivers from its
log after a crash has no hops to tell of and is left out. The most hops in a topic are the depth of
its dissemination tree, as the events saw it.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pulsarcast.pipeline.quality.closely import PERIOD
from pulsarcast.pipeline.quality.ground import Ground


def hops(ground: Ground) -> DataFrame:
    """How many deliveries came over each number of hops, per topic: `value`, `count`."""
    travelled = ~F.col("of_own") & (F.col("hops") > 0)
    simple = ground.settled.where(travelled).select("run_id", "topic", "hops", "lines")
    closer = (
        ground.got.where(travelled)
        .groupBy(*PERIOD, "hops")
        .agg(F.count(F.lit(1)).alias("lines"))
        .join(ground.doubtful.select(*PERIOD, "run_id", "topic"), [*PERIOD], how="inner")
        .select("run_id", "topic", "hops", "lines")
    )
    return (
        simple.unionByName(closer)
        .groupBy("run_id", "topic", F.col("hops").alias("value"))
        .agg(F.sum("lines").alias("count"))
    )
