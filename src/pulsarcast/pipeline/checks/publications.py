"""Publications: in one's own name and right, one event per number and per injection, no gaps."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pulsarcast.pipeline import history
from pulsarcast.pipeline.checks.case import NUMBERING, SLOT, Case
from pulsarcast.pipeline.checks.findings import findings, reference
from pulsarcast.pipeline.history.lives import harms


def find_in_anothers_name(case: Case) -> DataFrame:
    """Published by a node under the name of another."""
    found = _said(case).where("not in_own_name")
    return findings("forged", found, _here())


def find_never_injected(case: Case) -> DataFrame:
    """Published for an injection that the load driver never made, if it made any in that run."""
    injected = case.lines.where(F.col("kind") == "injected")
    driven = injected.select("run_id").distinct()
    asked = injected.select("run_id", "topic", "injection", "author").distinct()
    found = (
        case.told.where("injection <> ''")
        .join(driven, ["run_id"], how="left_semi")
        .join(asked, ["run_id", "topic", "injection", "author"], how="left_anti")
        .withColumn("node_id", F.col("sayer"))
    )
    return findings("forged", found, reference(F.col("node_id"), F.col("told_at")))


def find_not_allowed(case: Case) -> DataFrame:
    """Published by one who is not among those whom the topic's version names."""
    declared = (
        case.lines.where(
            F.col("kind").isin("topic_created", "topic_version") & F.col("allowed").isNotNull()
        )
        .groupBy("run_id", "version")
        .agg(
            F.min_by(
                F.struct("allowed", "node_id", history.place().alias("at")),
                F.struct("node_id", "incarnation", "seq"),
            ).alias("declared")
        )
    )
    found = (
        _said(case)
        .where("in_own_name")
        .join(declared, ["run_id", "version"], how="inner")
        .where(~F.array_contains("declared.allowed", F.col("node_id")))
    )
    declaration = reference(F.col("declared.node_id"), F.col("declared.at"))
    return findings("not_allowed", found, _here(), declaration)


def find_equivocations(case: Case) -> DataFrame:
    """Two events under one number, of which the first has left: every line that says the other."""
    stands = case.standing.select(*SLOT, F.col("sayer").alias("rival_sayer"))
    rivals = (
        case.told.where("equivocates")
        .select(*SLOT, "event", F.col("rival").alias("other_event"), "rival_at")
        .join(stands, [*SLOT], how="inner")
    )
    found = _said(case).where("in_own_name").join(rivals, [*SLOT, "event"], how="inner")
    rival = reference(F.col("rival_sayer"), F.col("rival_at"))
    return findings("equivocation", found, _here(), rival)


def find_published_twice(case: Case) -> DataFrame:
    """One injection, two events; a publisher that lost its disk in between cannot know."""
    of_injection = Window.partitionBy("run_id", "injection").orderBy("sayer", "told_at")
    pairs = (
        case.standing.where("injection <> ''")
        .withColumn("node_id", F.col("sayer"))
        .withColumn("other_event", F.lag("event").over(of_injection))
        .withColumn("other_node", F.lag("sayer").over(of_injection))
        .withColumn("other_at", F.lag("told_at").over(of_injection))
        .where("other_event is not null")
    )
    lost = harms(case.lines).where("disk_lost")
    began = F.when(F.col("other_node") == F.col("node_id"), F.col("other_at")).otherwise(0)
    lost_at = history.place("incarnation", F.lit(history.END_OF_LIFE))
    forgot = pairs.join(
        lost.withColumn("lost_at", lost_at), ["run_id", "node_id"], how="inner"
    ).where((F.col("lost_at") > began) & (F.col("lost_at") < F.col("told_at")))
    found = pairs.join(forgot, ["run_id", "event"], how="left_anti").unionByName(
        _ordered_twice(case), allowMissingColumns=True
    )
    return findings(
        "published_twice",
        found,
        reference(F.col("node_id"), F.col("told_at")),
        reference(F.col("other_node"), F.col("other_at")),
    )


def _ordered_twice(case: Case) -> DataFrame:
    """One request, two places: sequencers that agree on an order agree on each request once."""
    of_request = Window.partitionBy("run_id", "topic", "request_id").orderBy("rank")
    return (
        case.standing.where("is_shared")
        .withColumn("node_id", F.col("sayer"))
        .withColumn("other_event", F.lag("event").over(of_request))
        .withColumn("other_node", F.lag("sayer").over(of_request))
        .withColumn("other_at", F.lag("told_at").over(of_request))
        .where("other_event is not null")
    )


def find_number_gaps(case: Case) -> DataFrame:
    """A numbering in which a number has no event, below others that have one: counted once."""
    upwards = Window.partitionBy(*NUMBERING).orderBy("number")
    above_a_gap = case.standing.withColumn(
        "below", F.coalesce(F.lag("number").over(upwards), F.lit(0))
    ).where("number > below + 1")
    found = above_a_gap.groupBy(*NUMBERING).agg(
        F.min_by(F.struct("below", "event", "told_at", "sayer"), "number").alias("first")
    )
    return findings(
        "number_gap",
        found.select(
            *NUMBERING,
            F.col("first.sayer").alias("node_id"),
            (F.col("first.below") + 1).alias("number"),
            F.col("first.event").alias("other_event"),
            "first.told_at",
        ),
        reference(F.col("node_id"), F.col("told_at")),
    )


def find_acknowledged_unpublished(case: Case) -> DataFrame:
    """A caller was promised to be safe with an event that nobody may believe was published.

    Nobody can tell in a run with lines that cannot be read here: anyone may have published it.
    """
    known = case.told.where("not equivocates").select("run_id", "event")
    found = (
        case.lines.where(F.col("kind") == "acknowledged")
        .select("run_id", "node_id", "topic", "event", history.place().alias("at"))
        .join(known, ["run_id", "event"], how="left_anti")
        .join(case.unread, ["run_id"], how="left_anti")
    )
    return findings("acknowledged_unpublished", found, _here())


def _said(case: Case) -> DataFrame:
    return case.lines.where(F.col("kind") == "published").select(
        *SLOT,
        "event",
        "version",
        "node_id",
        history.in_own_name().alias("in_own_name"),
        history.place().alias("at"),
    )


def _here() -> Column:
    return reference(F.col("node_id"), F.col("at"))
