"""Order on each node: by number for each publisher, by position in a total order."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from pulsarcast.pipeline.checks.case import Case
from pulsarcast.pipeline.checks.findings import findings, life, reference


def find_disorder(case: Case, entered: DataFrame) -> DataFrame:
    """First deliveries that come after one that should have come later.

    In causal order this is asked of each publisher's own events; of the rest, `causal` asks.
    """
    tied = Window.partitionBy("period_key", "line_up", "rank")
    earliest_there = F.min(F.when(F.col("tied"), F.col("at"))).over(tied)
    found = (
        entered.where("late or tied")
        # Of two events at one position, the second to come is the one that is late.
        .withColumn("earlier_at", F.least("earlier_at", earliest_there))
        .where("earlier_at < at")
    )
    return findings(
        "order",
        case.describe(found),
        reference(F.col("node_id"), F.col("at")),
        reference(F.col("node_id"), F.col("earlier_at")),
    )


def find_disorder_again(case: Case, entered: DataFrame) -> DataFrame:
    """Redeliveries of one life that go back: each publisher's own must come in order again."""
    in_one_life = Window.partitionBy("period_key", "stream", life(F.col("at"))).orderBy("at")
    found = (
        entered.where(F.col("again") & (F.col("order") != "none"))
        .withColumn("earlier_rank", F.lag("rank").over(in_one_life))
        .withColumn("earlier_at", F.lag("at").over(in_one_life))
        .where("rank <= earlier_rank")
    )
    return findings(
        "order",
        case.describe(found),
        reference(F.col("node_id"), F.col("at")),
        reference(F.col("node_id"), F.col("earlier_at")),
    )
