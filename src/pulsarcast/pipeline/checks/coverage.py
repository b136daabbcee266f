"""Coverage: was everything delivered that was due (docs/glossary.md)?

How many events a subscription lacks is a subtraction: those that stand, less those before its
start, less those it got. Only where something is left over are single events looked at, and only
then is it asked what may excuse it: the publisher lost the event before anyone was promised
anything, retention or a flush let go of it, or the node has another event of the same request.
What a subscription with filters lacks is not asked, nor what a node lacks that wrote lines of a
newer schema: that is `unknown`.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pulsarcast.pipeline import history
from pulsarcast.pipeline.checks.case import NUMBERING, SLOT, Case
from pulsarcast.pipeline.checks.findings import findings, reference
from pulsarcast.pipeline.checks.ledger import meet

_EVENT = ("stream", "number")


def find_lost(case: Case, entered: DataFrame, short: DataFrame) -> DataFrame:
    """One row for each event and open subscription that it is due to and missing from.

    `short` are the subscriptions that lack something.
    """
    missing = _missing(case, short)
    found = _without_retired(case, _without_excused(case, _without_twins(case, missing, entered)))
    return findings(
        "lost",
        found,
        reference(F.col("sayer"), F.col("told_at")),
        reference(F.col("node_id"), F.col("from_at")),
    )


def find_short(case: Case, entered: DataFrame) -> DataFrame:
    """The open periods that lack something, as `case.periods`."""
    got = (
        entered.groupBy("period_key")
        .agg(
            (F.sum(F.when(F.col("last"), F.col("rows")).otherwise(0)) - F.count_if("again")).alias(
                "got"
            )
        )
        .select("period_key", "got")
    )
    there_are = case.standing.groupBy("run_id", "topic").agg(F.count(F.lit(1)).alias("there_are"))
    return (
        case.periods.where((F.col("ended") == "open") & ~F.col("filtered"))
        # Those may have got it, or left, in lines that nobody here can read.
        .join(case.unread, ["run_id", "node_id"], how="left_anti")
        .join(there_are, ["run_id", "topic"], how="inner")
        .join(_covered(case), ["period_key"], how="left")
        .join(got, ["period_key"], how="left")
        .where(F.col("there_are") - F.coalesce("covered", F.lit(0)) > F.coalesce("got", F.lit(0)))
        .select(*case.periods.columns)
    )


def _covered(case: Case) -> DataFrame:
    """How many events that stand each period's start frontier covers."""
    streams = case.standing.groupBy("stream").agg(
        F.count(F.lit(1)).alias("there_are"), F.max("number").alias("high")
    )
    started = case.starts.join(streams, ["stream"], how="inner")
    gapless = started.where("there_are = high").select(
        "period_key", F.least("start", "high").alias("covered")
    )
    # Where numbers are missing, nothing but counting helps.
    others = (
        started.where("there_are <> high")
        .join(case.standing.select("stream", "number"), ["stream"], how="inner")
        .where("number <= start")
        .select("period_key", F.lit(1).cast("bigint").alias("covered"))
    )
    return gapless.unionByName(others).groupBy("period_key").agg(F.sum("covered").alias("covered"))


def _missing(case: Case, short: DataFrame) -> DataFrame:
    """Every event that stands, beyond the start, and not delivered, of these periods."""
    events = case.standing.select(
        *SLOT, "event", "stream", "request_id", "has_twin", "told_at", "sayer"
    )
    wanted = short.select("run_id", "topic", "period_key", "node_id", "from_at")
    starts = case.starts.select("period_key", "stream", "start")
    due = (
        # The periods go to the events: by topic alone, one partition might get most of them.
        events.join(F.broadcast(wanted), ["run_id", "topic"], how="inner")
        .join(starts, ["period_key", "stream"], how="left")
        .where(F.col("number") > F.coalesce("start", F.lit(0)))
    )
    got = meet(case, short).select("period_key", *_EVENT)
    return due.join(got, ["period_key", *_EVENT], how="left_anti")


def _without_twins(case: Case, missing: DataFrame, entered: DataFrame) -> DataFrame:
    """Less those of which the node has another event of the same request, or began beyond one."""
    twins = case.standing.where("has_twin").select("run_id", "request_id", *_EVENT)
    got = (
        entered.where("twin")
        .join(twins, [*_EVENT], how="inner")
        .select("period_key", "run_id", "request_id")
    )
    began_beyond = (
        case.starts.join(twins, ["stream"], how="inner")
        .where("number <= start")
        .select("period_key", "run_id", "request_id")
    )
    excused = got.unionByName(began_beyond).distinct()
    return missing.join(excused, ["period_key", "run_id", "request_id"], how="left_anti")


def _without_excused(case: Case, missing: DataFrame) -> DataFrame:
    """Less those that their publisher may have lost before it promised to keep them."""
    excusable = history.publications(case.lines).where("excusable").select(*SLOT)
    return missing.join(excusable, [*SLOT], how="left_anti")


def _without_retired(case: Case, missing: DataFrame) -> DataFrame:
    """Less those that a flush or the topic's retention let go of, where the node says so.

    One that says nothing still waits for it, however old it is. And nobody is believed beyond what
    a version flushed, or where retention cannot have let go of anything.
    """
    published = case.standing.groupBy("run_id", "topic").agg(F.count(F.lit(1)).alias("there_are"))
    letting_go = (
        case.topics.where("retains")
        .join(published, ["run_id", "topic"], how="inner")
        .where("retains_otherwise or there_are > retention_count")
        .select("run_id", "topic", F.lit(True).alias("letting_go"))
    )
    let_go = F.when(F.col("letting_go"), F.col("retired")).otherwise(
        F.least("retired", F.coalesce("flushed_to", F.lit(0)))
    )
    retired = (
        case.lines.where(F.col("kind") == "retired")
        .groupBy("node_id", *NUMBERING)
        .agg(F.max("number").alias("retired"))
        .join(letting_go, ["run_id", "topic"], how="left")
        .join(history.flushes(case.lines), [*NUMBERING], how="left")
        .select("node_id", *NUMBERING, let_go.alias("retired"))
    )
    return missing.join(retired, ["node_id", *NUMBERING], how="left").where(
        "retired is null or number > retired"
    )
