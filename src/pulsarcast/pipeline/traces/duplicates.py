"""Duplicate lines: (run, node, incarnation, seq) is a key (docs/spec/trace.md, Every line).

A node counts its lines, and a segment holds a stretch of them in order. So the index alone proves
in nearly every batch that no line is there twice: within each segment the count rises, and no two
stretches of one life overlap. Only lives for which that does not hold are looked at line by line.

The line that came first stays: of an earlier batch before this one, then by segment and number. One
that says the same is dropped and counted. One that says something else goes to quarantine: a node
that contradicts itself is a finding, never a choice made in silence.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pulsarcast.pipeline.merging import PARQUET
from pulsarcast.pipeline.traces import arrow
from pulsarcast.pipeline.traces.writing import lines_folder, write_parquet

LIFE: Final = ("run_id", "node_id", "incarnation")
KEY: Final = (*LIFE, "seq")
REASON: Final = "same seq, other content"


def suspicious_lives(index: DataFrame, earlier: DataFrame) -> DataFrame:
    """The lives of which the index does not prove that each line is there once.

    `earlier` is the index of all other batches. What overlaps there only was settled long ago.
    """
    is_stretch = F.col("run_id").isNotNull()
    stretches = index.where(is_stretch).select(
        *LIFE, "first_seq", "last_seq", "in_order", F.lit(True).alias("is_new")
    )
    before = (
        earlier.where(is_stretch)
        .join(stretches.select(*LIFE).distinct(), on=list(LIFE), how="left_semi")
        .select(*LIFE, "first_seq", "last_seq", F.lit(True), F.lit(False))
    )
    preceding = (
        Window.partitionBy(*LIFE)
        .orderBy("first_seq", "last_seq")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    reached = F.max("last_seq").over(preceding)
    reached_by_new = F.max(F.when(F.col("is_new"), F.col("last_seq"))).over(preceding)
    overlaps = F.col("first_seq") <= F.when(F.col("is_new"), reached).otherwise(reached_by_new)
    return (
        stretches.unionAll(before)
        .select(*LIFE, (F.coalesce(overlaps, F.lit(False)) | ~F.col("in_order")).alias("twice"))
        .where("twice")
        .select(*LIFE)
        .distinct()
    )


def surplus(lines: DataFrame, earlier: DataFrame, lives: DataFrame) -> DataFrame:
    """The lines of a batch that have to go: where they are, and whether they contradict."""
    places = ("segment", "line_number", "kind", "file")
    new = lines.select("*", F.col("_metadata.file_name").alias("file"), F.lit(1).alias("age"))
    old = earlier.select("*", F.lit(None).cast("string").alias("file"), F.lit(0).alias("age"))
    same_key = Window.partitionBy(*KEY).orderBy("age", "segment", "line_number")
    return (
        new.unionByName(old)
        .join(lives, on=list(LIFE), how="left_semi")
        # A digest travels lighter than the text, and nobody can make two texts that share one.
        .select(*KEY, "age", *places, F.sha2(_said(), 256).alias("digest"))
        .select(
            "*",
            F.row_number().over(same_key).alias("rank"),
            F.first("digest").over(same_key).alias("first_digest"),
        )
        .where((F.col("rank") > 1) & (F.col("age") == 1))
        .select(*KEY, *places, (F.col("digest") != F.col("first_digest")).alias("contradicts"))
    )


def _said() -> Column:
    """A line as text again; equal for lines that say the same."""
    fields = F.to_json(F.struct(*(F.col(name) for name in arrow.LINE.names)))
    return F.coalesce(F.col("unknown"), fields)


def settle(staged: Path, index: DataFrame, earlier: DataFrame, lives: DataFrame) -> None:
    """Take the surplus out of a staged batch and its index."""
    spark = index.sparkSession
    lines = spark.read.schema(earlier.schema).parquet(str(staged / "lines"))
    # What has to go is written down first: the files change under whoever asks again.
    surplus(lines, earlier, lives).write.parquet(str(staged / "surplus"))
    found = spark.read.parquet(str(staged / "surplus"))
    contradicting = found.where("contradicts").select("segment", "line_number")
    if not contradicting.isEmpty():
        texts = lines.join(contradicting, on=["segment", "line_number"], how="left_semi").select(
            "segment", "line_number", F.lit(REASON).alias("reason"), _said().alias("text")
        )
        write_parquet(texts.repartition(1), staged / "quarantine")
    # Each file is changed in place, and nobody wants to hear about it.
    dropped = found.groupBy("run_id", "kind", "file").applyInArrow(_dropping_in(staged), "done int")
    dropped.write.format("noop").mode("overwrite").save()
    write_parquet(_without(index, found), staged / "settled")
    (staged / "segments").rename(staged / "unsettled")
    (staged / "settled").rename(staged / "segments")


def _without(index: DataFrame, found: DataFrame) -> DataFrame:
    """The index of what is left."""
    contradict = F.count_if("contradicts")
    by_life = found.groupBy("segment", *LIFE).agg(
        F.count(F.lit(1)).alias("gone"), contradict.alias("said_else")
    )
    by_segment = found.groupBy("segment").agg(contradict.alias("more"))
    zero = F.lit(0)
    stretches = (
        index.where(F.col("run_id").isNotNull())
        .join(by_life, on=["segment", *LIFE], how="left")
        .withColumn("lines", F.col("lines") - F.coalesce("gone", zero))
        .withColumn("duplicates", F.coalesce(F.col("gone") - F.col("said_else"), zero))
    )
    segments = (
        index.where(F.col("run_id").isNull())
        .join(by_segment, on="segment", how="left")
        .withColumn("quarantined", F.col("quarantined") + F.coalesce("more", zero))
    )
    names = index.columns
    return stretches.select(*names).unionAll(segments.select(*names))


def _dropping_in(staged: Path) -> Callable[[tuple[pa.Scalar, ...], pa.Table], pa.Table]:
    """Take lines out of one file. To do it twice does no harm, so Spark may retry it."""

    def drop(key: tuple[pa.Scalar, ...], lines: pa.Table) -> pa.Table:
        run_id, kind, file = (part.as_py() for part in key)
        path = staged / lines_folder(run_id, kind) / file
        if path.exists():
            rows = pq.ParquetFile(path).read().cast(arrow.FILE)
            segments = pc.unique(lines["segment"])
            keep = ~np.isin(_places(rows, segments), _places(lines, segments))
            if keep.any():
                new = path.with_name(f".{path.name}")
                with pq.ParquetWriter(new, arrow.FILE, **PARQUET) as writer:
                    writer.write_table(rows.filter(pa.array(keep)))
                new.rename(path)
            else:
                path.unlink()
        return pa.table({"done": pa.array([1], pa.int32())})

    return drop


def _places(rows: pa.Table, segments: pa.Array) -> npt.NDArray[np.int64]:
    """Segment and line number of each row as one number; -1 where the segment is none of these."""
    segment = pc.fill_null(pc.index_in(rows["segment"], value_set=segments), -1).to_numpy()
    number: npt.NDArray[np.int64] = rows["line_number"].to_numpy()
    return np.where(segment < 0, -1, (segment.astype(np.int64) << 40) + number)
