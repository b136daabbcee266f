"""Assignment: which node is which author, who creates a topic, who subscribes (thesis, 5.2).

The first `nodes` distinct authors, in order, are node 1 to n. Any other author goes to a node by
hash, always the same one; the original drew again for each comment, which `redraw` does too. A
topic is a subreddit; a node that was known when it was first seen, chosen by hash, creates it. A
node subscribes to every topic that it posts in.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pulsarcast.pipeline.workloads.chance import draw, ticket
from pulsarcast.pipeline.workloads.comments import COMMENT

DELETED: Final = "[deleted]"
"""What a dump calls the author of a comment whose author is gone."""

ORDER: Final = ("created_utc", "id_number")
"""The order of comments. Two with the same of both are one comment, repeated."""
PLACE: Final = ("file", "line_number")
"""Of a repeated comment the first stays, in the order of files and lines."""

AUTHORS: Final = "author string, node int, first_internal_id bigint, event_count bigint"
"""`node` is null where comments are drawn for nodes one by one (`redraw`)."""
USERS: Final = "node int, name string, first_internal_id bigint, event_count bigint"
"""Those authors that nodes are named after."""
EVENTS: Final = f"internal_id bigint, node int, {COMMENT}"
TOPICS: Final = (
    "topic string, node int, first_internal_id bigint, event_count bigint, subscriber_count bigint"
)
SUBSCRIPTIONS: Final = "node int, topic string, first_internal_id bigint, event_count bigint"


def is_deleted() -> Column:
    """Whether a comment's author is gone."""
    return F.col("author") == DELETED


class Rule(NamedTuple):
    """How those authors come to a node that no node is named after."""

    nodes: int
    seed: int
    redraw: bool = False

    def node(self) -> Column:
        """The node of a row: by its author or, redrawn, by its comment."""
        purpose, text = ("comment", "id") if self.redraw else ("author", "author")
        drawn = draw(self.seed, purpose, F.col(text), F.lit(self.nodes))
        return (drawn + 1).cast("int")


def first_key() -> list[Column]:
    """What `first` goes by: the order of comments; the place, for repeated ones."""
    return [F.col(name) for name in (*ORDER, *PLACE)]


def sample_key(seed: int) -> list[Column]:
    """What `sample` goes by: a hash of the id before that."""
    return [ticket(seed, "sample", F.col("id")), *first_key()]


def count_by_author(ordered: DataFrame) -> DataFrame:
    """One row an author: when it was first seen, and how many events it has."""
    return ordered.groupBy("author").agg(
        F.min("position").alias("first_internal_id"), F.count("*").alias("event_count")
    )


def first_authors(by_author: DataFrame, nodes: int) -> DataFrame:
    """The table `users`: the first authors, numbered in the order in which they were first seen.

    They pass the driver, which is to say: as many names as there are nodes.
    """
    first = by_author.orderBy("first_internal_id").limit(nodes).toArrow()
    first = first.sort_by("first_internal_id")
    users = pa.table(
        {
            "node": pa.array(range(1, first.num_rows + 1), pa.int32()),
            "name": first["author"],
            "first_internal_id": first["first_internal_id"],
            "event_count": first["event_count"],
        }
    )
    return by_author.sparkSession.createDataFrame(users)


def assign_authors(by_author: DataFrame, users: DataFrame, rule: Rule) -> DataFrame:
    """The table `authors`."""
    other = F.lit(None).cast("int") if rule.redraw else rule.node()
    named = users.select(F.col("name").alias("author"), F.col("node").alias("own"))
    return by_author.join(F.broadcast(named), on="author", how="left").select(
        "author", F.coalesce("own", other).alias("node"), "first_internal_id", "event_count"
    )


def assign_events(ordered: DataFrame, users: DataFrame, rule: Rule) -> DataFrame:
    """The table `events`: every comment with the node that publishes it."""
    named = users.select(F.col("name").alias("author"), F.col("node").alias("own"))
    return ordered.join(F.broadcast(named), on="author", how="left").select(
        F.col("position").alias("internal_id"),
        F.coalesce("own", rule.node()).alias("node"),
        "created_utc",
        "id",
        "id_number",
        "author",
        "topic",
        "ups",
        "downs",
        "controversiality",
        "body_bytes",
        "body",
    )


def subscriptions(events: DataFrame) -> DataFrame:
    """One row for every topic that a node posts in."""
    return events.groupBy("node", "topic").agg(
        F.min("internal_id").alias("first_internal_id"), F.count("*").alias("event_count")
    )


def topics(subscribed: DataFrame, users: DataFrame, *, seed: int) -> DataFrame:
    """One row a topic: who creates it, and how many post in it and subscribe to it."""
    # By topic alone, yet of one row for each of its subscribers, not of its events.
    seen = subscribed.groupBy("topic").agg(
        F.min("first_internal_id").alias("first_internal_id"),
        F.sum("event_count").alias("event_count"),
        F.count("*").alias("subscriber_count"),
    )
    # One row, of as many numbers as there are nodes.
    firsts = users.select("first_internal_id").toArrow()["first_internal_id"].to_pylist()
    known = pa.table({"known_from": pa.array([firsts], pa.list_(pa.int64()))})
    known_by_then = F.when(
        F.col("first_internal_id") >= F.array_max("known_from"), F.size("known_from")
    ).otherwise(F.size(F.filter("known_from", lambda known: known <= F.col("first_internal_id"))))
    return seen.crossJoin(F.broadcast(users.sparkSession.createDataFrame(known))).select(
        "topic",
        (draw(seed, "topic", F.col("topic"), known_by_then) + 1).cast("int").alias("node"),
        "first_internal_id",
        "event_count",
        "subscriber_count",
    )
