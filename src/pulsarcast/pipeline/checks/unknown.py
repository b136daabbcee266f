"""What the traces do not show, so that a verdict is not clean (docs/guides/checking.md).

A node's lines are gapless, so a missing one shows; a life ends with a line of the node or of
whoever killed it, so a missing end shows; and whoever is spoken of has lines of its own. Which
events match a filter no line says: a trace has no attributes.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pulsarcast.model.trace import SCHEMA_VERSION
from pulsarcast.pipeline.checks.findings import union
from pulsarcast.pipeline.history.lives import RESTARTS, harms
from pulsarcast.pipeline.history.places import place
from pulsarcast.pipeline.history.subscriptions import is_whole

REASONS: Final = {
    "seq_gap": "lines of a life are missing",
    "no_end": "a life neither stopped nor was killed on record",
    "no_lines": "a node or a life that others speak of has no lines",
    "no_events": "nothing was published",
    "filtered": "a subscription has filters: what was due to it is in no trace",
    "open_start": "where a subscription starts was never told whole",
    "newer_version": "lines of a schema that is not known here",
    "quarantined": "lines that could not be read",
}
"""Everything that makes a verdict unknown, as people read it."""

UNKNOWN: Final = "run_id string, reason string, node_id string, incarnation bigint, lines bigint"
"""The table of what is not known: where, and how many lines are missing, where that shows."""

_FIRST_SEQ: Final = 1


def find_unknown(
    lines: DataFrame, lives: DataFrame, quarantine: DataFrame | None = None
) -> DataFrame:
    """One row for each reason not to trust in what is not found, of the schema `UNKNOWN`.

    `lives` is `history.lives`: the one pass over all lines that this takes.
    """
    first_seq = F.least(F.col("first_seq"), F.lit(_FIRST_SEQ))
    missing = F.col("last_seq") - first_seq + 1 - F.col("lines")
    # A driver that does not say that it started is not asked to say that it stopped.
    must_end = ~F.col("is_driver") | F.col("started")
    published = lines.where(F.col("kind") == "published").select("run_id").distinct()
    newer = lines.where(F.col("schema_version") > SCHEMA_VERSION)
    reasons = [
        _because("seq_gap", lives.where(missing != 0), missing),
        _because("no_end", lives.where(must_end & ~F.col("stopped") & ~F.col("killed"))),
        _because("no_lines", _spoken_of(lines).join(lives, _LIFE, how="left_anti")),
        _because("no_lines", _asked(lines).join(lives, _LIFE[:2], how="left_anti")),
        _because(
            "no_events",
            lives.select("run_id").distinct().join(published, ["run_id"], how="left_anti"),
        ),
        _because("filtered", _filtered(lines)),
        _because("open_start", _open_starts(lines)),
        _because(
            "newer_version",
            newer.groupBy(*_LIFE).agg(F.count(F.lit(1)).alias("lines")),
            F.col("lines"),
        ),
    ]
    if quarantine is not None:
        broken = quarantine.agg(F.count(F.lit(1)).alias("lines")).where("lines > 0")
        reasons.append(_because("quarantined", broken, F.col("lines")))
    return union(reasons)


def unread(unknown: DataFrame) -> DataFrame:
    """The nodes with lines of a newer schema: `run_id` and `node_id`."""
    return unknown.where("reason = 'newer_version'").select("run_id", "node_id").distinct()


_LIFE = ["run_id", "node_id", "incarnation"]


def _because(reason: str, where: DataFrame, lines: Column | None = None) -> DataFrame:
    assert reason in REASONS, reason

    def known(name: str, ddl: str) -> Column:
        return (F.col(name) if name in where.columns else F.lit(None)).cast(ddl).alias(name)

    return where.select(
        known("run_id", "string"),
        F.lit(reason).alias("reason"),
        known("node_id", "string"),
        known("incarnation", "bigint"),
        (F.lit(None) if lines is None else lines).cast("bigint").alias("lines"),
    )


def _spoken_of(lines: DataFrame) -> DataFrame:
    """The lives that the testbed ended, and those that it began after another one."""
    began = lines.where(
        (F.col("kind") == "fault")
        & F.col("action").isin(*RESTARTS)
        & F.col("target_incarnation").isNotNull()
    ).select(
        "run_id",
        F.col("target").alias("node_id"),
        (F.col("target_incarnation") + 1).alias("incarnation"),
    )
    return harms(lines).select(*_LIFE).unionByName(began).distinct()


def _filtered(lines: DataFrame) -> DataFrame:
    """The subscriptions with filters, each where its node first said so."""
    said = lines.where((F.col("kind") == "subscribed") & F.col("filters").isNotNull())
    return said.groupBy("run_id", "node_id", "topic").agg(F.min("incarnation").alias("incarnation"))


def _open_starts(lines: DataFrame) -> DataFrame:
    """The subscriptions that began at a start of which parts were to be loaded, and were not."""
    told = lines.where(F.col("kind").isin("subscribed", "start_loaded"))
    return (
        told.groupBy("run_id", "node_id", "topic")
        .agg(
            F.max_by(is_whole(), place()).alias("_whole"),
            F.max("incarnation").alias("incarnation"),
        )
        .where("not _whole")
    )


def _asked(lines: DataFrame) -> DataFrame:
    """The nodes that the load driver gave something to publish."""
    return (
        lines.where(F.col("kind") == "injected")
        .select("run_id", F.col("author").alias("node_id"))
        .distinct()
    )
