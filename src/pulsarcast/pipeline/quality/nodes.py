"""Nodes: what each sent, received and used, and how that is spread over all of them."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pulsarcast.pipeline.history.places import of_kind
from pulsarcast.pipeline.quality import resources, traffic
from pulsarcast.pipeline.quality.ground import Ground

MEASURES: Final = {
    "deliveries": "deliveries",
    "rpc_sent": "messages",
    "rpc_received": "messages",
    "rpc_bytes_sent": "bytes",
    "rpc_bytes_received": "bytes",
    "cpu_us": "microseconds",
    "cpu_milli_max": "thousandths of a processor",
    "rss_bytes_max": "bytes",
    "bytes_in": "bytes",
    "bytes_out": "bytes",
}
"""What is known of a node, and the unit on which its percentiles are exact."""


def nodes(ground: Ground, messages: DataFrame) -> DataFrame:
    """One row per node that was ever started: its lives, and `MEASURES`.

    `deliveries` are all of them, redeliveries included. Null is what the run's trace has no lines
    for. A node without a message, in a trace of level `rpc`, has sent none.
    """
    started = (
        of_kind(ground.lines, "node_started")
        .groupBy("run_id", "node_id")
        .agg(F.count_distinct("incarnation").alias("lives"))
    )
    with_messages = messages.select("run_id").distinct().withColumn("_rpc", F.lit(True))
    delivered = ground.tallies.groupBy("run_id", "node_id").agg(F.sum("lines").alias("deliveries"))
    counted = F.when(F.col("_rpc"), F.lit(0).cast("bigint"))
    return (
        started.join(traffic.by_node(messages), ["run_id", "node_id"], how="left")
        .join(resources.by_node(ground.lines), ["run_id", "node_id"], how="left")
        .join(delivered, ["run_id", "node_id"], how="left")
        .join(F.broadcast(with_messages), ["run_id"], how="left")
        .select(
            "run_id",
            "node_id",
            "lives",
            F.coalesce("deliveries", F.lit(0)).cast("bigint").alias("deliveries"),
            *(F.coalesce(name, counted).alias(name) for name in traffic.MESSAGES),
            *resources.RESOURCES,
        )
    )


def spread(nodes: DataFrame) -> DataFrame:
    """How many nodes of a run have each value of each measure: `measure`, `value`, `count`."""
    measures = F.array(
        *(
            F.struct(F.lit(name).alias("measure"), F.col(name).cast("bigint").alias("value"))
            for name in MEASURES
        )
    )
    return (
        nodes.select("run_id", F.explode(measures).alias("_is"))
        .where("_is.value is not null")
        .groupBy("run_id", "_is.measure", "_is.value")
        .agg(F.count(F.lit(1)).alias("count"))
    )
