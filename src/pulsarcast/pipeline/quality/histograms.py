"""Percentiles that are exact on a stated unit, from a histogram in two stages.

The first stage counts values by unit next to the data, so that only counts travel; the second adds
the counts up and walks along them. Spark's own `percentile` keeps every distinct value of a group
in one task's memory, and ran out of it where one topic had most of the load.

A percentile here is the smallest value that at least so many per cent of all values do not exceed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

PERCENTILES: Final = (50, 95, 99)

SUMMARY: Final = (
    "count",
    "total",
    "mean",
    "deviation",
    *(f"p{percent}" for percent in PERCENTILES),
    "max",
)
"""What `summarise` says of a histogram; `deviation` is that of all values, not of a sample."""


def unit_of(value: Column, unit: int) -> Column:
    """Which unit a value falls into, rounded down: 1,999,999 ns are 1 unit of 1,000,000."""
    if unit == 1:
        return value
    # First down to a multiple, in whole numbers: a quotient alone could be rounded up.
    return ((value - F.pmod(value, F.lit(unit))) / F.lit(unit)).cast("bigint")


def histogram(values: DataFrame, by: Sequence[str], value: Column) -> DataFrame:
    """How many rows have each value: the first stage, and all of it where there is one column."""
    return values.groupBy(*by, value.alias("value")).agg(F.count(F.lit(1)).alias("count"))


def summarise(histogram: DataFrame, by: Sequence[str]) -> DataFrame:
    """One row per group: `SUMMARY` of a histogram with the columns `value` and `count`."""
    merged = histogram.groupBy(*by, "value").agg(F.sum("count").alias("count"))
    group = Window.partitionBy(*by)
    up_to_here = group.orderBy("value").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    walked = merged.select(
        *by,
        "value",
        "count",
        F.sum("count").over(up_to_here).alias("_seen"),
        F.sum("count").over(group).alias("_all"),
    )
    # Squares of bytes do not fit into 64 bits.
    exact = F.col("value").cast("decimal(19,0)")
    total = F.sum("total_").cast("decimal(38,0)")
    squares = F.sum("squares_").cast("decimal(38,0)")
    number = F.sum("count").cast("decimal(19,0)")
    return (
        walked.withColumn("total_", (exact * F.col("count")).cast("decimal(38,0)"))
        .withColumn("squares_", (exact * exact * F.col("count")).cast("decimal(38,0)"))
        .groupBy(*by)
        .agg(
            F.sum("count").alias("count"),
            F.sum("total_").cast("bigint").alias("total"),
            (F.sum("total_").cast("double") / F.sum("count")).alias("mean"),
            (F.sqrt((squares * number - total * total).cast("double")) / F.sum("count")).alias(
                "deviation"
            ),
            *(
                F.min(
                    F.when(F.col("_seen") * 100 >= F.col("_all") * percent, F.col("value"))
                ).alias(f"p{percent}")
                for percent in PERCENTILES
            ),
            F.max("value").alias("max"),
        )
    )
