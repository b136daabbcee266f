"""Elections: of several sequencers that agree on an order, one leads in a term (Raft, 5.2)."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from pulsarcast.pipeline import history
from pulsarcast.pipeline.checks.case import Case
from pulsarcast.pipeline.checks.findings import findings, reference


def find_rival_leaders(case: Case) -> DataFrame:
    """Every line in which a node says that it leads in a term that another one leads in too.

    Of those who say so, one is right, and nobody can say which: the first by name is not counted.
    """
    of_term = Window.partitionBy("run_id", "topic", "term")
    at = history.place().alias("at")
    leads = (F.col("kind") == "leader_changed") & (F.col("leader") == F.col("node_id"))
    found = (
        case.lines.where(leads)
        .select("run_id", "topic", "term", "node_id", at)
        .withColumn("other", F.min(F.struct("node_id", "at")).over(of_term))
        .where(F.col("node_id") != F.col("other.node_id"))
    )
    return findings(
        "election",
        found,
        reference(F.col("node_id"), F.col("at")),
        reference(F.col("other.node_id"), F.col("other.at")),
    )
