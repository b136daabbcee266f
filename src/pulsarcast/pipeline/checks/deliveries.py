"""Deliveries that are forged, outside a subscription, or duplicates (docs/guides/checking.md)."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from pulsarcast.pipeline.checks.case import SLOT, Case
from pulsarcast.pipeline.checks.findings import findings, life, reference


def find_forged(case: Case, entered: DataFrame) -> DataFrame:
    """Delivered, and not what was published under that number, if anything was.

    Where nothing was, the publisher may have said so in lines that nobody here can read.
    """
    rivals = case.standing.select(*SLOT, F.col("event").alias("other_event"), "told_at", "sayer")
    unread = case.unread.select("run_id", F.col("node_id").alias("publisher"))
    forged = _with_verdict(entered, "forged").join(rivals, [*SLOT], how="left")
    never = forged.where("sayer is null").join(unread, ["run_id", "publisher"], how="left_anti")
    forged = forged.where("sayer is not null").unionByName(never)
    return findings(
        "forged",
        forged,
        reference(F.col("node_id"), F.col("at")),
        reference(F.col("sayer"), F.col("told_at")),
    )


def find_not_subscribed(entered: DataFrame) -> DataFrame:
    """Delivered to a node that had no subscription then."""
    found = _with_verdict(entered, "not_subscribed")
    return findings("not_subscribed", found, reference(F.col("node_id"), F.col("at")))


def find_before_start(case: Case, entered: DataFrame) -> DataFrame:
    """Delivered though the subscription's start frontier covers it."""
    began = case.periods.select("period_key", "from_at")
    found = _with_verdict(entered, "before_start").join(began, ["period_key"], how="left")
    return findings(
        "before_start",
        found,
        reference(F.col("node_id"), F.col("at")),
        reference(F.col("node_id"), F.col("from_at")),
    )


def find_duplicates(case: Case, entered: DataFrame) -> DataFrame:
    """Delivered again: allowed once a life, and only when it is marked as a redelivery."""
    twice_in_one_life = life(F.col("before_at")) == life(F.col("at"))
    found = entered.where(F.col("again") & (twice_in_one_life | ~F.col("redelivery")))
    return findings(
        "duplicate",
        case.describe(found),
        reference(F.col("node_id"), F.col("at")),
        reference(F.col("node_id"), F.col("before_at")),
    )


def find_second_twins(case: Case, entered: DataFrame) -> DataFrame:
    """Two events of one request: a node must deliver one of them only."""
    of_request = Window.partitionBy("period_key", "request_id").orderBy("at")
    found = (
        case.describe(entered.where("twin"))
        .withColumn("other_event", F.first("event").over(of_request))
        .withColumn("other_at", F.first("at").over(of_request))
        .where((F.col("event") != F.col("other_event")) & ~F.col("redelivery"))
    )
    return findings(
        "duplicate",
        found,
        reference(F.col("node_id"), F.col("at")),
        reference(F.col("node_id"), F.col("other_at")),
    )


def _with_verdict(entered: DataFrame, verdict: str) -> DataFrame:
    return entered.where(F.col("verdict") == verdict).select("named.*", "at")
