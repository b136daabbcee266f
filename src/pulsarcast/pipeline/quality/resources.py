"""Resources: processor time, memory and bytes of each node (thesis, 5.3).

A line holds totals since the start of a life, so a node's total is the sum of the last lines of its
lives. Between a life's last line and its end nothing is known: what a killed node used then is
missing.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from pulsarcast.pipeline.history.places import of_kind

RESOURCES: Final = ("cpu_us", "cpu_milli_max", "rss_bytes_max", "bytes_in", "bytes_out")
"""Per node: microseconds of processor time, the most thousandths of a processor that it used from
one line to the next, the largest memory, and the bytes that came in and went out."""


def by_node(lines: DataFrame) -> DataFrame:
    """One row per node with `RESOURCES`; a fraction of a unit is rounded."""
    life = ("run_id", "node_id", "incarnation")
    before = Window.partitionBy(*life).orderBy("seq")
    cpu_us = F.round(F.col("cpu_s") * 1_000_000).cast("bigint")
    said = (
        of_kind(lines, "resources")
        .select(
            *life, "seq", "mono_ns", cpu_us.alias("cpu_us"), "rss_bytes", "bytes_in", "bytes_out"
        )
        # A life begins with nothing used, but when that was on its clock is not known.
        .withColumn("_cpu_us", F.col("cpu_us") - F.lag("cpu_us").over(before))
        .withColumn("_ns", F.col("mono_ns") - F.lag("mono_ns").over(before))
    )
    milli = F.round(F.col("_cpu_us") * F.lit(1_000_000) / F.col("_ns")).cast("bigint")
    return (
        said.groupBy(*life)
        .agg(
            *(F.max_by(name, "seq").alias(name) for name in ("cpu_us", "bytes_in", "bytes_out")),
            F.max("rss_bytes").alias("rss_bytes_max"),
            F.max(F.when(F.col("_ns") > 0, milli)).alias("cpu_milli_max"),
        )
        .groupBy("run_id", "node_id")
        .agg(
            F.sum("cpu_us").alias("cpu_us"),
            F.max("cpu_milli_max").alias("cpu_milli_max"),
            F.max("rss_bytes_max").alias("rss_bytes_max"),
            F.sum("bytes_in").alias("bytes_in"),
            F.sum("bytes_out").alias("bytes_out"),
        )
    )
