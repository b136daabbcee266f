"""The listing: a workload as the thesis wrote it (Listing 5.1), for simulator and testbed.

NDJSON: a line for each topic, then one for each user with all of its events. A line grows with the
events, so none is ever built: Spark sorts the pieces of text that the file consists of, glues them
into blocks, and the driver streams the blocks through one zstd frame.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
import zstandard
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

BLOCK_BYTES: Final = 1 << 20
LEVEL: Final = 9

# The sections of a user's line, in their order. Topics stand before node 1, as node 0.
_TOPIC, _HEAD, _EVENT, _MIDDLE, _SUBSCRIPTION, _TAIL = range(6)


def write_listing(
    target: Path, *, topics: DataFrame, users: DataFrame, events: DataFrame, subscribed: DataFrame
) -> None:
    """Write the listing of these tables; events have a `body` where it is not null."""
    text = pieces(topics, users, events, subscribed)
    compressor = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True)
    with target.open("wb") as raw, compressor.stream_writer(raw) as plain:
        # A partition at a time passes through the driver; blocks, not rows.
        for row in glue(text).toLocalIterator(prefetchPartitions=True):
            plain.write(row["block"])


def pieces(
    topics: DataFrame, users: DataFrame, events: DataFrame, subscribed: DataFrame
) -> DataFrame:
    """The text of the listing in pieces: in their order, and put together, they are the file."""
    creators = users.select("node", F.col("name").alias("author"))
    topic_lines = topics.join(F.broadcast(creators), on="node", how="left").select(
        *_place(F.lit(0), _TOPIC, F.col("first_internal_id")),
        F.concat(
            _json(
                F.lit("topic").alias("type"),
                _node_name().alias("node"),
                F.col("topic").alias("name"),
                "author",
                F.col("event_count").alias("totalNumberEvents"),
            ),
            F.lit("\n"),
        ).alias("text"),
    )
    # Its node's first event has no comma before it: that is the first of the user's own, since
    # the author that a node is named after is the first who posts on it.
    first_events = users.select("node", F.col("first_internal_id").alias("first"))
    heads = users.select(
        *_place(F.col("node"), _HEAD, F.lit(0)),
        F.concat(
            F.lit('{"type":"user","name":'),
            _quoted(F.col("name")),
            F.lit(',"node":'),
            _quoted(_node_name()),
            F.lit(',"events":['),
        ).alias("text"),
    )
    entries = events.join(F.broadcast(first_events), on="node", how="left").select(
        *_place(F.col("node"), _EVENT, F.col("internal_id")),
        F.concat(
            _comma(F.col("internal_id") != F.col("first")),
            _json(
                F.col("internal_id").alias("internalId"),
                "topic",
                "ups",
                "downs",
                "controversiality",
                "body",
            ),
        ).alias("text"),
    )
    middles = users.select(
        *_place(F.col("node"), _MIDDLE, F.lit(0)), F.lit('],"subscriptions":{').alias("text")
    )
    wanted = subscribed.join(F.broadcast(first_events), on="node", how="left").select(
        *_place(F.col("node"), _SUBSCRIPTION, F.col("first_internal_id")),
        F.concat(
            _comma(F.col("first_internal_id") != F.col("first")),
            _quoted(F.col("topic")),
            F.lit(":true"),
        ).alias("text"),
    )
    tails = users.select(*_place(F.col("node"), _TAIL, F.lit(0)), F.lit("}}\n").alias("text"))
    all_pieces = topic_lines
    for some in (heads, entries, middles, wanted, tails):
        all_pieces = all_pieces.unionByName(some)
    return all_pieces


def glue(pieces_: DataFrame) -> DataFrame:
    """The pieces in their order, as blocks of bytes: a column `block`, over ordered partitions."""
    return (
        pieces_.orderBy("_node", "_section", "_number")
        .select("text")
        .mapInArrow(_glue, "block binary")
    )


def _glue(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    waiting: list[str] = []
    size = 0
    for batch in batches:
        texts = batch.column(0).to_pylist()
        waiting += texts
        size += sum(map(len, texts))
        if size >= BLOCK_BYTES:
            yield _block(waiting)
            waiting, size = [], 0
    if waiting:
        yield _block(waiting)


def _block(texts: list[str]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array(["".join(texts).encode()], pa.binary())], names=["block"]
    )


def _place(node: Column, section: int, number: Column) -> tuple[Column, Column, Column]:
    return (
        node.cast("int").alias("_node"),
        F.lit(section).alias("_section"),
        number.cast("bigint").alias("_number"),
    )


def _node_name() -> Column:
    return F.concat(F.lit("node-"), F.col("node").cast("string"))


def _comma(wanted: Column) -> Column:
    return F.when(wanted, F.lit(",")).otherwise(F.lit(""))


def _json(*fields: Column | str) -> Column:
    """An object; a field that is null is left out."""
    return F.to_json(F.struct(*fields))


def _quoted(text: Column) -> Column:
    """A string of JSON: what stands between the brackets of a list of one."""
    listed = F.to_json(F.array(text))
    return F.substring(listed, F.lit(2), F.length(listed) - 2)
