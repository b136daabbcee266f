"""Traffic: messages and bytes between nodes, from traces of level `rpc` (thesis, 5.3).

One pass counts messages by node, topic and operation, and events by whom they were sent to. From
that come the figures per topic, per node, and the fan-out: how many different peers a node sent
the events of a topic to, over the whole run. A message does not say which event it carries, so the
copies of one event cannot be told apart; and a node that changed its place in the tree has had
more children than it ever had at one time.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pulsarcast.pipeline.history.places import of_kind

EVENT_OPERATION: Final = "EventMessage"
"""The operation that carries an event along a tree."""

MESSAGES: Final = ("rpc_sent", "rpc_received", "rpc_bytes_sent", "rpc_bytes_received")


def messages(lines: DataFrame) -> DataFrame:
    """Messages by node, topic and operation, and for events by receiver: all that is asked later.

    `peer` is null but where an event was sent; `topic` is null for what belongs to none.
    """
    sends_event = (F.col("kind") == "rpc_sent") & (F.col("operation") == EVENT_OPERATION)
    return (
        of_kind(lines, "rpc_sent", "rpc_received")
        .groupBy(
            "run_id",
            "node_id",
            "topic",
            "operation",
            "kind",
            F.when(sends_event, F.col("peer")).alias("peer"),
        )
        .agg(F.count(F.lit(1)).alias("messages"), F.sum("bytes").alias("bytes"))
    )


def _sums(messages: DataFrame, *by: str) -> DataFrame:
    """`MESSAGES` by some columns."""
    sent = F.col("kind") == "rpc_sent"
    none = F.lit(0).cast("bigint")
    figures = {
        "rpc_sent": F.when(sent, F.col("messages")),
        "rpc_received": F.when(~sent, F.col("messages")),
        "rpc_bytes_sent": F.when(sent, F.col("bytes")),
        "rpc_bytes_received": F.when(~sent, F.col("bytes")),
    }
    return messages.groupBy(*by).agg(
        *(F.coalesce(F.sum(figures[name]), none).alias(name) for name in MESSAGES)
    )


def by_operation(messages: DataFrame) -> DataFrame:
    """One row per run, topic (null: none) and operation."""
    return _sums(messages, "run_id", "topic", "operation")


def by_topic(messages: DataFrame) -> DataFrame:
    """One row per run and topic (null: none)."""
    return _sums(messages, "run_id", "topic")


def by_node(messages: DataFrame) -> DataFrame:
    """One row per run and node."""
    return _sums(messages, "run_id", "node_id")


def fan_out(messages: DataFrame) -> DataFrame:
    """To how many peers nodes sent a topic's events: a histogram (`value`, `count`) per topic."""
    return (
        messages.where("peer is not null")
        .groupBy("run_id", "topic", "node_id")
        .agg(F.count_distinct("peer").alias("value"))
        .groupBy("run_id", "topic", "value")
        .agg(F.count(F.lit(1)).alias("count"))
    )
