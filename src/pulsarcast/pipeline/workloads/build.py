"""Building a workload: from comments, wherever they came from, to its folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from pulsarcast.model.errors import LocalError
from pulsarcast.pipeline.workloads import assign, synthetic, tables
from pulsarcast.pipeline.workloads.comments import (
    BROKEN_FILE,
    PARSED,
    check_files,
    comments,
    quarantine,
    read_dumps,
)
from pulsarcast.pipeline.workloads.listing import write_listing
from pulsarcast.pipeline.workloads.ordering import number_rows
from pulsarcast.pipeline.workloads.tables import ABOUT, LISTING, STAGING, About, Counts, Options


def make_from_dumps(
    spark: SparkSession, files: Sequence[str | Path], options: Options, out: str | Path
) -> Counts:
    """Turn raw dumps of comments into a workload."""
    paths = check_files(files)
    if not paths:
        raise LocalError("no files to read")
    with tables.new_folder(Path(out)) as folder:
        # Decoded once: a compressed file is one task, and sorting reads its input twice.
        landed = str(folder / STAGING / "parsed")
        read_dumps(spark, paths, bodies=options.bodies).write.parquet(landed)
        parsed = spark.read.schema(PARSED).parquet(landed)
        tables.write(quarantine(parsed, paths), folder, "quarantine")
        source = {"kind": "dumps", "files": [Path(path).name for path in paths]}
        return _make(parsed, options, folder, source)


def make_synthetic(
    spark: SparkSession, size: synthetic.Size, options: Options, out: str | Path
) -> Counts:
    """Make a workload up, of any size."""
    with tables.new_folder(Path(out)) as folder:
        made = synthetic.comments(spark, size, seed=options.seed, bodies=options.bodies)
        landed = str(folder / STAGING / "made")
        made.write.parquet(landed)
        parsed = spark.read.schema(PARSED).parquet(landed)
        tables.write(quarantine(parsed, []), folder, "quarantine")
        source = {"kind": "synthetic", **msgspec.structs.asdict(size)}
        return _make(parsed, options, folder, source)


def _make(parsed: DataFrame, options: Options, folder: Path, source: dict[str, Any]) -> Counts:
    staging = folder / STAGING
    is_taken = _chosen(comments(parsed), options, staging)
    read = _count_read(parsed, is_taken)
    if read.taken == read.deleted:
        raise LocalError("there is no comment of a known author in the input")

    taken = comments(parsed).where(is_taken & ~assign.is_deleted())
    ordered = number_rows(taken, assign.ORDER, staging / "ordered", first_by=assign.PLACE)
    seen = assign.count_by_author(ordered)
    seen.write.parquet(str(staging / "authors"))
    by_author = seen.sparkSession.read.schema(seen.schema).parquet(str(staging / "authors"))
    users = assign.first_authors(by_author, options.nodes)
    tables.write(users, folder, "users")
    # With fewer authors than nodes there are fewer nodes, and nobody left to draw one for.
    rule = assign.Rule(nodes=options.nodes, seed=options.seed, redraw=options.redraw)
    tables.write(assign.assign_authors(by_author, users, rule), folder, "authors")
    events = tables.write(assign.assign_events(ordered, users, rule), folder, "events")
    subscribed = tables.write(assign.subscriptions(events), folder, "subscriptions")
    topics = tables.write(assign.topics(subscribed, users, seed=options.seed), folder, "topics")
    if options.listing:
        write_listing(
            folder / LISTING, topics=topics, users=users, events=events, subscribed=subscribed
        )

    due = F.sum(F.col("event_count") * F.col("subscriber_count"))
    event_count, topic_count, subscription_count, deliveries_due = topics.agg(
        F.sum("event_count"), F.count("*"), F.sum("subscriber_count"), due
    ).collect()[0]
    counts = Counts(
        **msgspec.structs.asdict(read),
        repeated=read.taken - read.deleted - event_count,
        events=event_count,
        authors=by_author.count(),
        nodes=users.count(),
        topics=topic_count,
        subscriptions=subscription_count,
        deliveries_due=deliveries_due,
    )
    about = msgspec.json.encode(About(source=source, options=options, counts=counts))
    (folder / ABOUT).write_bytes(msgspec.json.format(about) + b"\n")
    return counts


def _chosen(all_comments: DataFrame, options: Options, staging: Path) -> Column:
    """Which comments `first` or `sample` takes: all up to the n-th key, in the order of keys."""
    if options.first is not None:
        key, n = assign.first_key(), options.first
    elif options.sample is not None:
        key, n = assign.sample_key(options.seed), options.sample
    else:
        return F.lit(True)
    key = [part.alias(f"key{index}") for index, part in enumerate(key)]
    keys = all_comments.select(*key)
    numbered = number_rows(keys, keys.columns, staging / "keys")
    last = numbered.where(F.col("position") == n - 1).first()
    if last is None:  # there are fewer
        return F.lit(True)
    last_key = [
        F.lit(last[field.name]).cast(field.dataType).alias(field.name) for field in keys.schema
    ]
    return F.struct(*key) <= F.struct(*last_key)


class _Read(msgspec.Struct, frozen=True):
    """What there was, and what was taken of it."""

    lines: int
    broken: int
    broken_files: int
    reasons: dict[str, int]
    taken: int
    deleted: int


def _count_read(parsed: DataFrame, is_taken: Column) -> _Read:
    counted = parsed.groupBy("reason").agg(
        F.count("*").alias("lines"),
        F.count_if(is_taken).alias("taken"),
        F.count_if(is_taken & assign.is_deleted()).alias("deleted"),
    )
    rows = counted.collect()  # one for each reason there is
    reasons = {row["reason"]: row["lines"] for row in rows if row["reason"] is not None}
    broken_files = reasons.get(BROKEN_FILE, 0)
    return _Read(
        lines=sum(row["lines"] for row in rows) - broken_files,
        broken=sum(reasons.values()) - broken_files,
        broken_files=broken_files,
        reasons=dict(sorted(reasons.items())),
        taken=sum(row["taken"] for row in rows if row["reason"] is None),
        deleted=sum(row["deleted"] for row in rows if row["reason"] is None),
    )
