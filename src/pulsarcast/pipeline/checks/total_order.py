"""Total order over all nodes: an event has one predecessor and one successor, wherever it went.

Where a node delivered everything in the order of positions and left none out, what came right
before an event is what stands one position below: nothing can be learned there that the positions
do not say (and `chains` holds those against the parents). So only the subscriptions in which that
is not so are gone through, step by step; then every step of theirs that is unusual is held against
the steps that all other nodes made at those places. Where a subscription has filters, what lies
between two of its deliveries need not match: its steps say nothing.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from pulsarcast.pipeline.checks.case import NUMBERING, Case
from pulsarcast.pipeline.checks.findings import findings, reference
from pulsarcast.pipeline.checks.ledger import meet

_PLACE = ("run_id", "topic", "rank")


def find_odd(case: Case, entered: DataFrame) -> DataFrame:
    """Subscriptions to a total order that were delivered something late, or not everything."""
    in_order = entered.where(F.col("order") == "total")
    out_of_order = in_order.where("late or gap").select("period_key")
    both_of_two = (
        in_order.where("tied").groupBy("period_key", "rank").count().where("count > 1")
    ).select("period_key")
    odd = out_of_order.unionByName(both_of_two).distinct()
    return case.periods.where("not filtered").join(odd, ["period_key"], how="left_semi")


def find_forked(case: Case) -> DataFrame:
    """Places of a total order at which more than one event stands."""
    return _events(case).groupBy(*_PLACE).count().where("count > 1").select(*_PLACE)


def find_disagreement(
    case: Case, odd: DataFrame, walked: DataFrame, forked: DataFrame
) -> DataFrame:
    """Events right before or after which not all nodes delivered the same one.

    `odd` are the subscriptions that `walk` went through, `forked` places with two events. Counted
    once for the predecessors of an event and once for its successors.
    """
    unusual = walked.where("not usual")
    in_doubt = (
        unusual.select("run_id", "topic", F.explode(F.array("rank", "before.rank")).alias("rank"))
        .unionByName(forked)
        .distinct()
    )
    steps = walked.unionByName(_usual_steps(case, odd, in_doubt))
    return _disagreement(steps, by="event", on="before.event").unionByName(
        _disagreement(steps, by="before.event", on="event")
    )


def walk(case: Case, odd: DataFrame) -> DataFrame:
    """Every step from one delivery to the next in these subscriptions, and whether it is usual.

    A step over events that the node could not have, or had already, shows nothing and is left out.
    """
    events = _events(case)
    firsts = (
        meet(case, odd)
        .where(F.col("order") == "total")
        .groupBy("period_key", "stream", "number")
        .agg(F.min("at").alias("at"))
        .join(events, ["stream", "number"], how="inner")
        .join(odd.select("period_key", "node_id"), ["period_key"], how="inner")
    )
    in_time = Window.partitionBy("period_key").orderBy("at")
    steps = (
        firsts.withColumn("before", F.lag(F.struct("event", "rank", "at")).over(in_time))
        .where("before is not null")
        .withColumn("usual", F.col("rank") == F.col("before.rank") + 1)
        .select(*_PLACE, "publisher", "epoch", "node_id", "event", "at", "before", "usual")
    )
    leaps = steps.where(F.col("rank") > F.col("before.rank") + 1)
    missed = (
        events.select(*NUMBERING, "number", F.col("rank").alias("between"), "has_twin")
        .join(F.broadcast(leaps.drop("publisher", "epoch")), ["run_id", "topic"], how="inner")
        .where("between > before.rank and between < rank and not has_twin")
        .join(_retired(case), ["node_id", *NUMBERING], how="left")
        .where("retired is null or number > retired")
        .select("run_id", "node_id", "at")
        .distinct()
    )
    key = ["run_id", "node_id", "at"]
    shown = leaps.join(missed, key, how="left_semi")
    return steps.where(F.col("rank") <= F.col("before.rank") + 1).unionByName(shown)


def _retired(case: Case) -> DataFrame:
    """Up to which number of each numbering each node was let off by retention."""
    return (
        case.lines.where(F.col("kind") == "retired")
        .groupBy("node_id", *NUMBERING)
        .agg(F.max("number").alias("retired"))
    )


def _events(case: Case) -> DataFrame:
    return case.standing.where(F.col("order") == "total").select(
        *NUMBERING, "number", "event", "stream", "rank", "has_twin"
    )


def _usual_steps(case: Case, odd: DataFrame, in_doubt: DataFrame) -> DataFrame:
    """The steps that all other subscriptions made to and from the places in doubt."""
    around = (
        in_doubt.select(
            "run_id",
            "topic",
            F.explode(F.array(*(F.col("rank") + by for by in (-1, 0, 1)))).alias("rank"),
        )
        .distinct()
        .join(_events(case), [*_PLACE], how="inner")
    )
    got = (
        meet(case)
        .where(F.col("verdict").isNull() & (F.col("order") == "total"))
        .select("period_key", "stream", "number", "at")
        .join(
            F.broadcast(around.select(*_PLACE, "publisher", "epoch", "event", "stream", "number")),
            ["stream", "number"],
            how="inner",
        )
        .join(odd.select("period_key"), ["period_key"], how="left_anti")
        .groupBy("period_key", *_PLACE, "publisher", "epoch", "event")
        .agg(F.min("at").alias("at"))
        .join(case.periods.select("period_key", "node_id"), ["period_key"], how="inner")
    )
    upwards = Window.partitionBy("period_key").orderBy("rank")
    return (
        got.withColumn("before", F.lag(F.struct("event", "rank", "at")).over(upwards))
        .where("before.rank = rank - 1")
        .withColumn("usual", F.lit(True))
        .select(*_PLACE, "publisher", "epoch", "node_id", "event", "at", "before", "usual")
    )


def _disagreement(steps: DataFrame, *, by: str, on: str) -> DataFrame:
    """One finding for each event that has more than one neighbour on a side."""
    step = F.struct(
        "node_id", "at", F.col("before.at").alias("before_at"), F.col(on).alias("at_hand")
    )
    # The odd one is named; the usual one is shown beside it.
    found = (
        steps.groupBy("run_id", "topic", F.col(by).alias("event"))
        .agg(
            F.count_distinct(on).alias("neighbours"),
            F.min(F.struct(~F.col("usual"), on, step)).alias("first"),
            F.max(F.struct(~F.col("usual"), on, step)).alias("last"),
        )
        .where("neighbours > 1")
        .select(
            "run_id",
            "topic",
            "event",
            F.col("first.col3").alias("one"),
            F.col("last.col3").alias("other"),
        )
    )
    return findings(
        "total_order",
        found.withColumn("node_id", F.col("other.node_id")).withColumn(
            "other_event", F.col("other.at_hand")
        ),
        *(
            reference(F.col(f"{which}.node_id"), F.col(f"{which}.{at}"))
            for which in ("other", "one")
            for at in ("before_at", "at")
        ),
    )
