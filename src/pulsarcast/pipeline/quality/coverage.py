"""Coverage: events published, deliveries due, deliveries that arrived, per topic (thesis, 5.3).

`docs/glossary.md` says what is due.

Two integers each: deliveries that were due and deliveries that came, of what was published and of
what was injected. An injection that was never published counts as due to every subscription of
its topic that is still open; the thesis counted likewise, its subscriptions never ended.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pulsarcast.pipeline.history.places import NUMBERING, PAIR, of_kind
from pulsarcast.pipeline.history.subscriptions import ends as ends_of
from pulsarcast.pipeline.history.subscriptions import starts as starts_of
from pulsarcast.pipeline.quality.closely import PERIOD, numbering, subject
from pulsarcast.pipeline.quality.expected import sums_up_to
from pulsarcast.pipeline.quality.ground import Ground

_TOPIC = ("run_id", "topic")

COUNTS = (
    "injected",
    "injected_published",
    "published",
    "acknowledged",
    "replicated",
    "subscriptions",
    "ended_subscriptions",
    "received",
    "due",
    "delivered",
    "due_of_injected",
    "undecided",
    "retired",
    "unacknowledged_lost",
    "lost",
    "lost_acknowledged",
    "redeliveries",
    "duplicates",
)
"""Everything that is counted per topic; all of it adds up over topics."""


def coverage(ground: Ground) -> DataFrame:
    """One row per topic with all `COUNTS`.

    `received` are first deliveries inside of subscriptions; `delivered` are those of them that were
    due. `lost` are pairs of event and subscription, `lost_acknowledged` and
    `unacknowledged_lost` are events.
    """
    parts = (
        _injected(ground),
        _published(ground),
        _subscribed(ground),
        _received(ground),
        _unsettled(ground),
        _missing(ground),
        _excused(ground),
        _twin_duplicates(ground),
    )
    table = ground.topics.select(*_TOPIC)
    for part in parts:
        table = table.unionByName(part, allowMissingColumns=True)
    names = [column for column in table.columns if column not in _TOPIC]
    table = table.groupBy(*_TOPIC).agg(*(F.sum(name).alias(name) for name in names))

    def n(name: str) -> Column:
        return F.coalesce(F.col(name), F.lit(0)).cast("bigint")

    due = (
        n("open_due")
        + n("ended_got")
        - n("concurrent")
        - n("missing_retired")
        - (n("excused_due_to") - n("excused_concurrent"))
    )
    delivered = (
        n("open_due")
        + n("ended_got")
        - (n("missing") - n("twins"))
        - (n("excused_due_to") - n("excused_missing") - n("excused_concurrent"))
    )
    unpublished = n("injected") - n("injected_published")
    figures = {
        "due": due,
        "delivered": delivered,
        "due_of_injected": due + unpublished * n("subscriptions"),
        "undecided": n("concurrent") + n("ended_undecided"),
        "retired": n("missing_retired"),
        "unacknowledged_lost": n("excused"),
        "lost": due - delivered,
        "duplicates": n("duplicates") + n("twin_duplicates"),
    }
    return table.select(*_TOPIC, *(figures.get(name, n(name)).alias(name) for name in COUNTS))


def _injected(ground: Ground) -> DataFrame:
    """What callers asked for, and how much of it became an event that stands."""
    asked = of_kind(ground.lines, "injected").select(*_TOPIC, "injection").distinct()
    own = ground.events.select(*_TOPIC, "injection")
    # Whoever asks another to publish is told the event: the publisher does not know the injection.
    requested = (
        of_kind(ground.lines, "acknowledged")
        .select(*_TOPIC, "injection", "event")
        .join(ground.events.select("run_id", "event"), ["run_id", "event"], how="left_semi")
        .select(*_TOPIC, "injection")
    )
    answered = (
        own.unionByName(requested)
        .where("injection <> ''")
        .distinct()
        .withColumn("_published", F.lit(True))
    )
    return (
        asked.join(answered, [*_TOPIC, "injection"], how="left")
        .groupBy(*_TOPIC)
        .agg(
            F.count(F.lit(1)).alias("injected"),
            F.count("_published").alias("injected_published"),
        )
    )


def _published(ground: Ground) -> DataFrame:
    return ground.events.groupBy(*_TOPIC).agg(
        F.count(F.lit(1)).alias("published"),
        F.count_if(F.col("level") > 0).alias("acknowledged"),
        F.count_if(F.col("level") > 1).alias("replicated"),
    )


def _subscribed(ground: Ground) -> DataFrame:
    is_open = F.col("ended") == "open"
    return ground.subscriptions.groupBy(*_TOPIC).agg(
        F.count_if(is_open).alias("subscriptions"),
        F.count_if(~is_open).alias("ended_subscriptions"),
        F.sum(F.when(is_open, F.col("due"))).alias("open_due"),
    )


def _received(ground: Ground) -> DataFrame:
    """First deliveries, from the tallies where those say all, else event by event."""
    simple = ground.settled.groupBy(*_TOPIC).agg(
        F.sum("lines").alias("received"),
        F.lit(0).cast("bigint").alias("ended_got"),
        F.lit(0).cast("bigint").alias("redeliveries"),
        F.lit(0).cast("bigint").alias("duplicates"),
    )
    each = ground.got.groupBy(*PERIOD).agg(
        F.count(F.lit(1)).alias("received"),
        F.sum(F.col("times") - 1).alias("redeliveries"),
        F.sum("duplicates").alias("duplicates"),
    )
    closer = (
        ground.doubtful.select(*PERIOD, *_TOPIC, "ended")
        .join(each, [*PERIOD], how="inner")
        .groupBy(*_TOPIC)
        .agg(
            F.sum("received").alias("received"),
            F.sum(F.when(F.col("ended") != "open", F.col("received"))).alias("ended_got"),
            F.sum("redeliveries").alias("redeliveries"),
            F.sum("duplicates").alias("duplicates"),
        )
    )
    names = ("received", "ended_got", "redeliveries", "duplicates")
    return (
        simple.unionByName(closer)
        .groupBy(*_TOPIC)
        .agg(*(F.sum(name).alias(name) for name in names))
    )


def _unsettled(ground: Ground) -> DataFrame:
    """Per topic: what subscriptions that ended knew of by then, and had not got."""
    ended = ground.doubtful.where("ended = 'unsubscribed'")
    marks = (
        ends_of(ended)
        .withColumnRenamed("number", "last")
        .join(
            starts_of(ended).withColumnRenamed("number", "first"),
            [*PAIR, "period", "publisher", "epoch"],
            how="left",
        )
        .withColumn("first", F.least(F.coalesce("first", F.lit(0)), F.col("last")))
    )
    sums = sums_up_to(
        ground.events,
        marks.select(*NUMBERING, F.explode(F.array("first", "last")).alias("number")).distinct(),
    ).select(*NUMBERING, "number", "sum")
    known = (
        marks.join(sums.toDF(*NUMBERING, "last", "_to"), [*NUMBERING, "last"], how="inner")
        .join(sums.toDF(*NUMBERING, "first", "_from"), [*NUMBERING, "first"], how="inner")
        .select(
            *_TOPIC,
            subject().alias("subject"),
            "period",
            numbering().alias("numbering"),
            "last",
            (F.col("_to") - F.col("_from")).alias("known"),
        )
    )
    have = (
        known.select(*PERIOD, "numbering", "last")
        .join(
            ground.got.select(*PERIOD, "numbering", "number"), [*PERIOD, "numbering"], how="inner"
        )
        .where(F.col("number") <= F.col("last"))
        .groupBy(*PERIOD, "numbering")
        .agg(F.count(F.lit(1)).alias("have"))
    )
    return (
        known.join(have, [*PERIOD, "numbering"], how="left")
        .groupBy(*_TOPIC)
        .agg(F.sum(F.col("known") - F.coalesce("have", F.lit(0))).alias("ended_undecided"))
    )


def _missing(ground: Ground) -> DataFrame:
    """Per topic: pairs that are missing, by reason, and events lost that were promised."""
    lost = F.col("reason") == "lost"
    by_event = ground.explained.groupBy(*_TOPIC, "event_key", "level").agg(
        F.count(F.lit(1)).alias("missing"),
        F.count_if(F.col("reason") == "twin").alias("twins"),
        F.count_if(F.col("reason") == "concurrent").alias("concurrent"),
        F.count_if(F.col("reason") == "retired").alias("missing_retired"),
        F.bool_or(lost).alias("_lost"),
    )
    return by_event.groupBy(*_TOPIC).agg(
        *(
            F.sum(name).alias(name)
            for name in ("missing", "twins", "concurrent", "missing_retired")
        ),
        F.count_if(F.col("_lost") & (F.col("level") > 0)).alias("lost_acknowledged"),
    )


def _excused(ground: Ground) -> DataFrame:
    """Per topic: events that their publishers lost before anyone was promised anything.

    Such an event is due to nobody, those who got it included.
    """
    gone = (
        ground.explained.groupBy(*_TOPIC, "event_key", "numbering", "number")
        .agg(
            F.count_if(F.col("reason") == "unacknowledged").alias("excused_missing"),
            F.count_if(F.col("reason") == "concurrent").alias("excused_concurrent"),
        )
        .where("excused_missing > 0")
    )
    still = ground.subscriptions.where("ended = 'open'")
    all_open = still.groupBy(*_TOPIC).agg(F.count(F.lit(1)).alias("_open"))
    covering = (
        starts_of(still)
        .select(numbering().alias("numbering"), F.col("number").alias("_start"))
        .join(F.broadcast(gone.select("event_key", "numbering", "number")), ["numbering"])
        .where(F.col("_start") >= F.col("number"))
        .groupBy("event_key")
        .agg(F.count(F.lit(1)).alias("_covering"))
    )
    return (
        gone.join(all_open, [*_TOPIC], how="inner")
        .join(covering, ["event_key"], how="left")
        .groupBy(*_TOPIC)
        .agg(
            F.count(F.lit(1)).alias("excused"),
            F.sum("excused_missing").alias("excused_missing"),
            F.sum("excused_concurrent").alias("excused_concurrent"),
            F.sum(F.col("_open") - F.coalesce("_covering", F.lit(0))).alias("excused_due_to"),
        )
    )


def _twin_duplicates(ground: Ground) -> DataFrame:
    """Per topic: deliveries of a second event for a request that the period had got already."""
    twins = ground.events.where("has_twin").select("event_key", *_TOPIC, "request_id")
    first = Window.partitionBy(*PERIOD, "run_id", "request_id").orderBy("place")
    return (
        ground.got.select(*PERIOD, "event_key", "place", "marked")
        .join(F.broadcast(twins), ["event_key"], how="inner")
        .withColumn("_rank", F.row_number().over(first))
        .where((F.col("_rank") > 1) & ~F.col("marked"))
        .groupBy(*_TOPIC)
        .agg(F.count(F.lit(1)).alias("twin_duplicates"))
    )
