"""The case: what the traces say that all checks ask about, looked up once and kept.

Everything in here is small beside the deliveries, of which there are a hundred for each event:
topics, subscriptions and publications, each with its narrow name (`names`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pulsarcast.pipeline import history
from pulsarcast.pipeline.checks.names import BITS, Names, choose_names
from pulsarcast.pipeline.scratch import Scratch

SLOT: Final = ("run_id", "topic", "publisher", "epoch", "number")
"""What one event only can have: a number of a publisher in a topic."""
NUMBERING: Final = SLOT[:-1]
SEAT: Final = ("run_id", "node_id", "topic")
"""A node in a topic: what a subscription belongs to."""

BROADCAST_MAX: Final = 1_000_000
"""Rows up to which a table goes to the deliveries; a larger one is met half way.

A publication takes some 130 bytes there, so this many fit into the smallest heap we run in.
"""


@dataclass(frozen=True)
class Case:
    """The traces of some runs, ready to be judged."""

    lines: DataFrame
    unread: DataFrame
    """The nodes with lines of a newer schema, which may say anything: `run_id`, `node_id`."""
    names: Names
    topics: DataFrame
    """As `history.topics`, with `order` never null: who promised none promised "none"."""
    told: DataFrame
    """One row per event that its own publisher said to be out, where it first did.

    It `stands`, or was `taken_back` (another event took its number), or `equivocates`: `rival` is
    the event that stands, and `rival_at` where that was said. `rank` is where the event belongs in
    its topic's order (`is_tied`: with another event); `stream` numbers its numbering, `line_up`
    what it is in one order with. `sayer` is the node that said so first; where several sequencers
    count together (`is_shared`) that is any of them.
    """
    periods: DataFrame
    """As `history.periods`, with `from_at` and `to_at`, and numbered: `seat` and `period_key`."""
    starts: DataFrame
    """Up to which number of a stream a period began: `period_key`, `stream`, `start`."""
    events: int
    subscriptions: int
    starts_count: int

    @property
    def standing(self) -> DataFrame:
        """The events that stand: what was published, as far as anyone may believe it."""
        return self.told.where("stands")

    def describe(self, entries: DataFrame) -> DataFrame:
        """Deliveries by their numbers, with the names of what they are about."""
        whose = self.periods.select("period_key", "node_id", "period", "from_at")
        what = self.standing.select(
            "stream", "number", "run_id", "topic", "publisher", "epoch", "event", "request_id",
            "told_at", "sayer",
        )  # fmt: skip
        return entries.join(whose, ["period_key"], how="inner").join(
            what, ["stream", "number"], how="inner"
        )

    def sent_along(self, table: DataFrame, rows: int) -> DataFrame:
        """A table that goes to the deliveries if it is small enough."""
        return F.broadcast(table) if rows <= BROADCAST_MAX else table


def open_case(lines: DataFrame, unread: DataFrame, scratch: Scratch, *, bits: int = BITS) -> Case:
    """Look up what the checks need."""
    topics = scratch.keep("topics", history.topics(lines).withColumn("order", _promised()))
    told = scratch.keep("told", _told(lines, topics))
    periods = scratch.keep("periods", _periods(lines))
    names = choose_names(lambda names: _named(names, told, periods), bits=bits)
    starts = scratch.keep("starts", _starts(periods, told, names))
    return Case(
        lines=lines,
        unread=unread,
        names=names,
        topics=topics,
        told=_numbered_told(told, names),
        periods=_numbered_periods(periods, names),
        starts=starts,
        events=told.count(),
        subscriptions=periods.count(),
        starts_count=starts.count(),
    )


def _promised() -> Column:
    return F.coalesce("order", F.lit("none"))


def _told(lines: DataFrame, topics: DataFrame) -> DataFrame:
    at = history.place()
    said = (
        lines.where((F.col("kind") == "published") & history.in_own_name())
        .select(
            *SLOT,
            "event",
            "version",
            "author",
            "parents",
            F.coalesce("merge", F.lit(False)).alias("merge"),
            F.col("position.number").alias("position"),
            "request_id",
            "injection",
            F.col("node_id").alias("sayer"),
            history.is_shared().alias("is_shared"),
            at.alias("told_at"),
            F.row_number()
            .over(Window.partitionBy(*SLOT, "event").orderBy("incarnation", "seq", "node_id"))
            .alias("_time"),
        )
        .where("_time = 1")
        .drop("_time")
    )
    stands = history.standing(lines).select(
        *SLOT, F.col("event").alias("rival"), at.alias("rival_at"), "level"
    )
    asked = Window.partitionBy("run_id", "request_id")
    there = Window.partitionBy("run_id", "topic", "rank")
    in_order = F.col("order") == "total"
    is_standing = F.col("event") == F.col("rival")
    shared = F.col("is_shared")
    return (
        said.join(stands, [*SLOT], how="left")
        .join(topics.select("run_id", "topic", "order", "linking"), ["run_id", "topic"], how="left")
        .withColumn("stands", is_standing)
        # What several agreed on nobody takes back.
        .withColumn("taken_back", ~is_standing & ~shared & (F.col("told_at") < F.col("rival_at")))
        .withColumn("equivocates", ~is_standing & (shared | (F.col("told_at") > F.col("rival_at"))))
        .withColumn(
            "has_twin",
            F.col("stands")
            & (F.coalesce("request_id", F.lit("")) != "")
            & (F.count_if("stands").over(asked) > 1),
        )
        .withColumn("rank", F.coalesce("position", "number"))
        .withColumn("is_tied", F.col("stands") & in_order & (F.count_if("stands").over(there) > 1))
        .withColumn("linking", F.coalesce("linking", F.lit("LAST_SEEN")))
    )


def _periods(lines: DataFrame) -> DataFrame:
    return history.periods(lines).select(
        *SEAT,
        "period",
        history.place("from_incarnation", "from_seq").alias("from_at"),
        history.place("to_incarnation", "to_seq").alias("to_at"),
        "ended",
        "start",
        "filtered",
    )


def _stream(names: Names) -> Column:
    return names.number(*NUMBERING)


def _numbered_told(told: DataFrame, names: Names) -> DataFrame:
    topic = names.number("run_id", "topic")
    return (
        told.withColumn("stream", _stream(names))
        .withColumn("entry", names.number("stream", "number", "event"))
        .withColumn("line_up", F.when(F.col("order") == "total", topic).otherwise(F.col("stream")))
    )


def _numbered_periods(periods: DataFrame, names: Names) -> DataFrame:
    return periods.withColumn("seat", names.number(*SEAT)).withColumn(
        "period_key", names.number(*SEAT, "period")
    )


def _named(names: Names, told: DataFrame, periods: DataFrame) -> Iterator[DataFrame]:
    """All numbers that must differ: those of one table among themselves."""
    numbered = _numbered_told(told, names)
    yield numbered.select("entry")
    yield numbered.select(*NUMBERING, "stream").distinct().select("stream")
    # Streams and topics stand in one column, as what an event is in one order with.
    yield numbered.select("run_id", "topic", "line_up").distinct().select("line_up")
    seats = _numbered_periods(periods, names)
    yield seats.select("period_key")
    yield seats.select(*SEAT, "seat").distinct().select("seat")


def _starts(periods: DataFrame, told: DataFrame, names: Names) -> DataFrame:
    """Only of numberings that have events here: nothing else can be before a start."""
    streams = told.select(*NUMBERING).distinct()
    return (
        history.starts(periods)
        .where("number > 0")
        .join(streams, [*NUMBERING], how="left_semi")
        .select(
            names.number(*SEAT, "period").alias("period_key"),
            _stream(names).alias("stream"),
            F.col("number").alias("start"),
        )
    )
