"""A closer look at subscriptions whose tally is not simply what was due.

These are few: where a node was restarted, left, came late, lost something or delivered twice. For
them every single event counts: which they got, how often, and which they lack. Rows are narrow
here, numbers in place of names, because in a bad run this may be most of the deliveries.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pulsarcast.pipeline.history.places import (
    NUMBERING,
    PAIR,
    fingerprint,
    is_within,
    of_kind,
    place,
)
from pulsarcast.pipeline.history.subscriptions import starts as starts_of

PERIOD = ("subject", "period")

GOT = (
    "subject bigint, period int, event_key bigint, numbering bigint, number bigint, times bigint, "
    "place bigint, mono_ns bigint, marked boolean, hops bigint, of_own boolean, "
    "duplicates bigint"
)
"""What `got` returns."""


def subject() -> Column:
    """A node's place in a topic, as one number."""
    return F.xxhash64(*PAIR)


def numbering() -> Column:
    """A numbering, as one number."""
    return F.xxhash64(*NUMBERING)


def topic_key() -> Column:
    """A topic of a run, as one number."""
    return F.xxhash64("run_id", "topic")


def event_key() -> Column:
    """An event of a topic of a run, as one number; needs `topic_key` and `fingerprint`."""
    return F.xxhash64("topic_key", "fingerprint")


def in_doubt(subscriptions: DataFrame, subscribers: DataFrame) -> DataFrame:
    """The subscriptions that need a closer look, as narrow as can be.

    All others are open, began once, and have exactly what is due to them, each once.
    """
    count = F.count(F.lit(1)).alias("periods")
    joined = subscriptions.join(subscriptions.groupBy(*PAIR).agg(count), [*PAIR], how="inner").join(
        subscribers, [*PAIR], how="left"
    )
    none = F.lit(0).cast("bigint")
    begin = place("from_incarnation", "from_seq")
    in_order = (
        (F.col("periods") == 1)
        & (F.col("ended") == "open")
        & (F.coalesce("marked", none) == 0)
        & (F.coalesce("lines", none) == F.col("due"))
        & (F.coalesce("fingerprints", none) == F.col("due_fingerprints"))
        & (F.col("first_place").isNull() | (F.col("first_place") > begin))
        & ~F.col("has_twins")
    )
    return joined.where(~in_order).select(
        subject().alias("subject"),
        *PAIR,
        topic_key().alias("topic_key"),
        "period",
        begin.alias("begin"),
        place("to_incarnation", "to_seq").alias("stop"),
        "ended",
        "due",
        "start",
        "end",
    )


def got(lines: DataFrame, doubtful: DataFrame, starts: DataFrame, events: DataFrame) -> DataFrame:
    """One row per period in doubt and standing event that it got, beyond its start.

    `times` and `duplicates` count deliveries: a second one in the same life is a duplicate, and so
    is one in a later life that does not say that it is a redelivery.
    """
    said = of_kind(lines, "delivered").select(
        subject().alias("subject"),
        place().alias("place"),
        "incarnation",
        "mono_ns",
        "redelivery",
        "hops",
        (F.col("node_id") == F.col("publisher")).alias("of_own"),
        fingerprint().alias("fingerprint"),
    )
    # Those in doubt go to the deliveries, which stay where they are.
    of_doubt = F.broadcast(doubtful.select("subject", "topic_key", "period", "begin", "stop"))
    pair = (*PERIOD, "event_key")
    lives = (
        said.join(of_doubt, ["subject"], how="inner")
        .where(is_within(F.col("place"), F.col("begin"), F.col("stop")))
        .select(
            *PERIOD,
            event_key().alias("event_key"),
            "incarnation",
            "place",
            "mono_ns",
            "redelivery",
            "hops",
            "of_own",
        )
        # Once by event: it is grouped twice and then joined with the events, all in place.
        .repartition("event_key")
        .groupBy(*pair, "incarnation")
        .agg(
            F.count(F.lit(1)).alias("times"),
            F.min("place").alias("place"),
            F.min_by("mono_ns", "place").alias("mono_ns"),
            F.min_by("redelivery", "place").alias("marked"),
            F.min_by("hops", "place").alias("hops"),
            F.max("of_own").alias("of_own"),
        )
    )
    first_marked = F.min_by("marked", "place")
    pairs = lives.groupBy(*pair).agg(
        F.sum("times").alias("times"),
        F.min("place").alias("place"),
        F.min_by("mono_ns", "place").alias("mono_ns"),
        first_marked.alias("marked"),
        F.min_by("hops", "place").alias("hops"),
        F.max("of_own").alias("of_own"),
        (
            F.sum("times")
            - F.count(F.lit(1))
            + F.count_if(~F.col("marked"))
            - F.when(first_marked, 0).otherwise(1)
        ).alias("duplicates"),
    )
    known = pairs.join(
        events.select("event_key", "numbering", "number"), ["event_key"], how="inner"
    )
    return _beyond_start(known, starts).select(
        *PERIOD,
        "event_key",
        "numbering",
        "number",
        "times",
        "place",
        "mono_ns",
        "marked",
        "hops",
        "of_own",
        F.col("duplicates").cast("bigint").alias("duplicates"),
    )


def missing(doubtful: DataFrame, starts: DataFrame, got: DataFrame, events: DataFrame) -> DataFrame:
    """One row per open period and event that is due to it and that it has not got."""
    counts = got.groupBy(*PERIOD).agg(F.count(F.lit(1)).alias("_got"))
    short = (
        doubtful.where("ended = 'open'")
        .join(counts, [*PERIOD], how="left")
        .where(F.col("due") > F.coalesce("_got", F.lit(0)))
        .select(*PERIOD, "topic_key")
    )
    # The periods go to the events: to bring both together by topic would be one task's work.
    due = events.select("topic_key", "event_key", "numbering", "number").join(
        F.broadcast(short), ["topic_key"], how="inner"
    )
    return (
        _beyond_start(due, starts)
        .select(*PERIOD, "event_key")
        .join(got.select(*PERIOD, "event_key"), [*PERIOD, "event_key"], how="left_anti")
    )


def _beyond_start(pairs: DataFrame, starts: DataFrame) -> DataFrame:
    """Of rows with a period and an event's number, those that the period's start does not cover."""
    return (
        pairs.join(
            F.broadcast(starts.select(*PERIOD, "numbering", "start")),
            [*PERIOD, "numbering"],
            how="left",
        )
        .where(F.col("number") > F.coalesce("start", F.lit(0)))
        .select(*pairs.columns)
    )


def starts_in_doubt(doubtful: DataFrame) -> DataFrame:
    """The start frontiers of periods in doubt, with numbers in place of names."""
    return starts_of(doubtful).select(
        subject().alias("subject"),
        "period",
        numbering().alias("numbering"),
        F.col("number").alias("start"),
    )
