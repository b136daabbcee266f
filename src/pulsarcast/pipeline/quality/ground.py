"""The ground that all measures stand on: what is read once and used by many.

Each of these tables is small beside the trace.
"""

from __future__ import annotations

from typing import NamedTuple

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from pulsarcast.pipeline import history
from pulsarcast.pipeline.history.places import PAIR, fingerprint
from pulsarcast.pipeline.quality import closely, excuses
from pulsarcast.pipeline.quality.expected import expected
from pulsarcast.pipeline.quality.tallies import by_subscriber, tally
from pulsarcast.pipeline.scratch import Scratch


class Ground(NamedTuple):
    """What happened, as far as it has been worked out."""

    lines: DataFrame
    topics: DataFrame
    events: DataFrame
    """Publications that stand, with numbers in place of names for what is joined."""
    tallies: DataFrame
    """All deliveries by node, topic and hops."""
    subscriptions: DataFrame
    """All periods without filters, with how much is due to each by algebra."""
    settled: DataFrame
    """The tallies of those subscriptions that have exactly what was due to them."""
    doubtful: DataFrame
    """The other subscriptions."""
    got: DataFrame
    """What those got, event by event."""
    explained: DataFrame
    """What those lack, with the reason."""


def lay(lines: DataFrame, scratch: Scratch) -> Ground:
    """Work it out, step by step."""
    keep = scratch.keep
    topics = keep("topics", history.topics(lines))
    events = keep("events", _events(lines))
    tallies = keep("tallies", tally(lines))
    # What is due to one with filters is in no trace: it has no part in any measure of coverage.
    full = history.periods(lines).where("not filtered").drop("filtered")
    subscriptions = keep("subscriptions", expected(events, full))
    doubtful = keep("doubtful", closely.in_doubt(subscriptions, by_subscriber(tallies)))
    settled = (
        tallies.join(subscriptions.select(*PAIR).distinct(), [*PAIR], how="left_semi")
        .join(doubtful.select(*PAIR).distinct(), [*PAIR], how="left_anti")
        .select(*tallies.columns)
    )
    ground = Ground(
        lines, topics, events, tallies, subscriptions, settled, doubtful, doubtful, doubtful
    )
    return ground._replace(**_look_closely(ground, scratch))


def _look_closely(ground: Ground, scratch: Scratch) -> dict[str, DataFrame]:
    """What those in doubt got and lack; where nobody is in doubt, no delivery is read again."""
    lines, events, doubtful = ground.lines, ground.events, ground.doubtful
    spark = lines.sparkSession
    if doubtful.isEmpty():
        return {
            "got": spark.createDataFrame([], closely.GOT),
            "explained": spark.createDataFrame([], excuses.EXPLAINED),
        }
    starts = scratch.keep("starts", closely.starts_in_doubt(doubtful))
    got = scratch.keep("got", closely.got(lines, doubtful, starts, events))
    missing = scratch.keep("missing", closely.missing(doubtful, starts, got, events))
    if missing.isEmpty():
        return {"got": got, "explained": spark.createDataFrame([], excuses.EXPLAINED)}
    explained = excuses.explain(
        lines, missing, starts=starts, got=got, events=events, topics=ground.topics
    )
    return {"got": got, "explained": scratch.keep("explained", explained)}


def _events(lines: DataFrame) -> DataFrame:
    """Publications that stand, without what no measure asks for."""
    request = Window.partitionBy("run_id", "request_id")
    return (
        history.standing(lines)
        .withColumn("fingerprint", fingerprint())
        .withColumn("topic_key", closely.topic_key())
        .select(
            "run_id",
            "topic",
            "publisher",
            "epoch",
            "number",
            "event",
            "request_id",
            # A network that knows no requests leaves them empty.
            (
                (F.coalesce("request_id", F.lit("")) != "") & (F.count(F.lit(1)).over(request) > 1)
            ).alias("has_twin"),
            "injection",
            "level",
            (F.coalesce(F.col("position_term"), F.lit(0)) == 0).alias("alone"),
            "several_said",
            "node_id",
            "incarnation",
            "mono_ns",
            "fingerprint",
            "topic_key",
            closely.numbering().alias("numbering"),
            closely.event_key().alias("event_key"),
        )
    )
