"""The ledger: one pass over all deliveries, which leaves those that are not simply the next event.

Nearly all deliveries are what they should be: of an event that stands, in a subscription, once, and
in order. To know that, each is met with its publication and its period, and then all that a node
got in one order is put side by side: once sorted by where events belong, the latest first, a
delivery that came again is next to the one before, and one that came out of order sees an earlier
one among those that should have come later. What is left over is small, and `deliveries`, `order`,
`total_order` and `coverage` name it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from operator import and_
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pulsarcast.pipeline import history
from pulsarcast.pipeline.checks.case import NUMBERING, SEAT, SLOT, Case

_NAMED: Final = (*SLOT, "event", "node_id")


def enter(case: Case) -> DataFrame:
    """The deliveries that are worth a second look, and the last one of each line-up.

    `verdict` says what is wrong with one by itself, and `named` is then what it names; the others
    have their `period_key`, `stream` and `number`. Of those, `again` came before, last at
    `before_at`; `late` came after one that should have come later, which came at `earlier_at`;
    above a `gap` the next of a total order is missing; `twin` and `tied` are first deliveries of
    such events; and `last` is the last row of its line-up, the `rows`-th.
    """
    line_up = ["period_key", "line_up"]
    by_rank = Window.partitionBy(*line_up).orderBy(F.desc("rank"), "stream", "number", "at")
    so_far = by_rank.rowsBetween(Window.unboundedPreceding, -1)
    is_fine = F.col("verdict").isNull()
    again = (F.col("before_stream") == F.col("stream")) & (
        F.col("before_number") == F.col("number")
    )
    late = (F.col("order") != "none") & (F.col("earlier_at") < F.col("at"))
    gap = (F.col("order") == "total") & (F.col("before_rank") - F.col("rank") > 1)
    # One window for everything: each one more would copy every delivery once more.
    side_by_side = meet(case).select(
        "*",
        F.lag("stream").over(by_rank).alias("before_stream"),
        F.lag("number").over(by_rank).alias("before_number"),
        F.lag("rank").over(by_rank).alias("before_rank"),
        F.lag("at").over(by_rank).alias("before_at"),
        F.min("at").over(so_far).alias("earlier_at"),
        F.row_number().over(by_rank).alias("rows"),
        F.lead(F.lit(True)).over(by_rank).isNull().alias("last"),
    )
    judged = (
        side_by_side.withColumn("again", is_fine & F.coalesce(again, F.lit(False)))
        .withColumn("late", is_fine & ~F.col("again") & F.coalesce(late, F.lit(False)))
        .withColumn("gap", is_fine & ~F.col("again") & F.coalesce(gap, F.lit(False)))
    )
    return judged.where(
        ~is_fine | F.expr("again or late or gap or last or has_twin or is_tied")
    ).select(
        "period_key",
        "line_up",
        "stream",
        "number",
        "rank",
        "order",
        "at",
        "redelivery",
        "verdict",
        "named",
        "again",
        "before_at",
        "late",
        "earlier_at",
        "gap",
        (F.col("has_twin") & ~F.col("again")).alias("twin"),
        (F.col("is_tied") & ~F.col("again")).alias("tied"),
        (is_fine & F.col("last")).alias("last"),
        "rows",
    )


def meet(case: Case, periods: DataFrame | None = None) -> DataFrame:
    """Every delivery with its publication and its period, by their numbers.

    With `periods`, only those that fall into one of them and that nothing is wrong with.
    """
    published = _with_publication(case, _delivered(case))
    subscribed = _with_period(case, published, periods)
    verdict = (
        F.when(_is_forged(), "forged")
        .when(F.col("taken_back"), "taken_back")
        .when(F.col("period_key").isNull(), "not_subscribed")
        .when(F.col("number") <= F.col("start"), "before_start")
    )
    met = subscribed.withColumn("verdict", verdict)
    if periods is not None:
        met = met.where("verdict is null")
    wrong = F.col("verdict").isNotNull()
    return met.select(
        # What is wrong by itself must not stand beside the rest, nor all of it in one place.
        F.when(wrong, F.col("seat")).otherwise(F.col("period_key")).alias("period_key"),
        F.when(~wrong, F.col("line_up")).alias("line_up"),
        "rank",
        F.when(~wrong, F.col("stream")).alias("stream"),
        F.when(~wrong, F.col("number")).alias("number"),
        "at",
        "order",
        "redelivery",
        (~wrong & F.coalesce("has_twin", F.lit(False))).alias("has_twin"),
        (~wrong & F.coalesce("is_tied", F.lit(False))).alias("is_tied"),
        "verdict",
        F.when(wrong, F.struct(*_NAMED, "period_key")).alias("named"),
    )


def _delivered(case: Case) -> DataFrame:
    return case.lines.where(F.col("kind") == "delivered").select(
        *_NAMED,
        "redelivery",
        history.place().alias("at"),
        case.names.number(*NUMBERING).alias("_stream"),
        case.names.number(*SEAT).alias("seat"),
    )


def _with_publication(case: Case, delivered: DataFrame) -> DataFrame:
    """Met by number, then compared by name: what is not published may share a number by chance."""
    streams = case.told.select(
        *(F.col(name).alias(f"_{name}") for name in NUMBERING), "stream", "line_up", "order"
    ).distinct()
    with_stream = delivered.join(
        case.sent_along(streams, case.events), F.col("_stream") == F.col("stream"), how="left"
    ).drop("_stream")
    is_same = _all(F.col(f"_{name}") == F.col(name) for name in NUMBERING)
    numbered = with_stream.withColumn("stream", F.when(is_same, F.col("stream"))).withColumn(
        "_entry", case.names.number("stream", "number", "event")
    )
    entries = case.told.select(
        "entry",
        F.col("stream").alias("_of"),
        F.col("number").alias("_at"),
        F.col("event").alias("_event"),
        "rank",
        "told_at",
        "stands",
        "taken_back",
        F.when(~F.col("stands"), F.col("rival_at")).alias("rival_at"),
        "has_twin",
        "is_tied",
    )
    met = numbered.join(
        case.sent_along(entries, case.events), F.col("_entry") == F.col("entry"), how="left"
    )
    is_known = (
        (F.col("_event") == F.col("event"))
        & (F.col("_at") == F.col("number"))
        & (F.col("_of") == F.col("stream"))
    )
    return met.withColumn("known", F.coalesce(is_known, F.lit(False)))


def _is_forged() -> Column:
    """Never published under that name, or not by then where publisher and receiver are one."""
    own = F.col("node_id") == F.col("publisher")
    too_early = own & (F.col("at") < F.col("told_at"))
    was_fine = F.col("taken_back") & own & (F.col("at") < F.col("rival_at"))
    return ~F.col("known") | too_early | ~(F.col("stands") | was_fine)


def _with_period(case: Case, published: DataFrame, periods: DataFrame | None) -> DataFrame:
    chosen = case.periods if periods is None else periods
    known = chosen.select(
        F.col("seat").alias("_seat"),
        "period_key",
        "from_at",
        "to_at",
        *(F.col(name).alias(f"_seat_{name}") for name in SEAT),
    )
    within = history.is_within(F.col("at"), F.col("from_at"), F.col("to_at"))
    with_period = published.join(
        case.sent_along(known, case.subscriptions),
        (F.col("seat") == F.col("_seat")) & within,
        how="left" if periods is None else "inner",
    )
    is_same = _all(F.col(f"_seat_{name}") == F.col(name) for name in SEAT)
    seated = with_period.withColumn("period_key", F.when(is_same, F.col("period_key")))
    starts = case.starts.select(
        F.col("period_key").alias("_period"), F.col("stream").alias("_start_of"), "start"
    )
    return seated.join(
        case.sent_along(starts, case.starts_count),
        (F.col("period_key") == F.col("_period")) & (F.col("stream") == F.col("_start_of")),
        how="left",
    )


def _all(conditions: Iterable[Column]) -> Column:
    """Whether all of these are true, and none is null."""
    return F.coalesce(reduce(and_, conditions), F.lit(False))
