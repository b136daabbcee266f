"""Numbering: the place of every row in a global order, on any number of partitions.

Rows are range-partitioned and sorted, and land as files with their place in their partition; then
counts per partition give each partition's first number. No row passes the driver, and no partition
holds more than its share. They have to land in between: asked twice, Spark samples anew and draws
other borders between partitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

_ROW_BITS: Final = 33
"""monotonically_increasing_id has the partition above these bits, the row's place below."""


def number_rows(
    rows: DataFrame, key: Sequence[str], folder: Path, *, first_by: Sequence[str] = ()
) -> DataFrame:
    """The rows with their `position` (0, 1, …) by `key`; landed in `folder`.

    The key must be unique, or else `first_by` must say which of those with one key stays.
    """
    sorted_rows = rows.repartitionByRange(*key)
    if first_by:
        # Ranges of the key keep equal keys together: this window needs no further shuffle.
        same = Window.partitionBy(*key).orderBy(*first_by)
        sorted_rows = (
            sorted_rows.withColumn("_nth", F.row_number().over(same))
            .where(F.col("_nth") == 1)
            .drop("_nth")
        )
    placed = sorted_rows.sortWithinPartitions(*key).withColumn(
        "_place", F.monotonically_increasing_id()
    )
    placed = placed.withColumns(
        {
            "_part": F.shiftright("_place", _ROW_BITS).cast("int"),
            "_place": F.col("_place").bitwiseAND(F.lit((1 << _ROW_BITS) - 1)),
        }
    )
    placed.write.parquet(str(folder))
    landed = rows.sparkSession.read.schema(placed.schema).parquet(str(folder))
    # As many rows as there were partitions.
    counts = landed.groupBy("_part").count().toArrow().sort_by("_part")
    sums = [0, *accumulate(counts["count"].to_pylist())]
    offsets = pa.table({"_part": counts["_part"], "_offset": pa.array(sums[:-1], pa.int64())})
    return (
        landed.join(
            F.broadcast(rows.sparkSession.createDataFrame(offsets)), on="_part", how="inner"
        )
        .withColumn("position", F.col("_offset") + F.col("_place"))
        .drop("_part", "_place", "_offset")
    )
