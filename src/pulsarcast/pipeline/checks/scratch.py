"""Scratch: a folder for tables in between, each computed once and then read as often as need be.

Spark would rather plan all checks as one: it plans again whenever a part is done, and takes minutes
for what takes seconds to compute. A table on disk ends that, and outlives an executor.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame, SparkSession


class Scratch:
    """Tables by name, in a folder that every executor can reach."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self.spark = spark
        self.folder = folder

    def keep(self, name: str, table: DataFrame) -> DataFrame:
        """The same table, computed now."""
        path = f"{self.folder}/{name}"
        table.write.mode("error").parquet(path)
        return self.spark.read.schema(table.schema).parquet(path)


@contextmanager
def open_scratch(spark: SparkSession, folder: str | None = None) -> Iterator[Scratch]:
    """A new folder, below the one given or among temporary ones; it is gone at the end."""
    made = tempfile.mkdtemp(prefix="pulsarcast-check-", dir=folder)
    try:
        yield Scratch(spark, made)
    finally:
        shutil.rmtree(made, ignore_errors=True)
