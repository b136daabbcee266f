"""The tables of an ingest folder as DataFrames, and raw traces as if they were tables."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from pulsarcast.pipeline.traces.landing import land, read_table
from pulsarcast.pipeline.traces.layout import Layout


def is_tables(path: str | Path) -> bool:
    """Whether a folder holds tables that ingest made; raw traces do not."""
    return "://" not in str(path) and Layout(path).exists


def read_lines(spark: SparkSession, tables: str | Path) -> DataFrame:
    """The table `lines` of an ingest folder, with the columns of `schema.LINES`."""
    return _read(spark, tables, "lines")


def read_quarantine(spark: SparkSession, tables: str | Path) -> DataFrame:
    """The table `quarantine` of an ingest folder, with the columns of `schema.QUARANTINE`."""
    return _read(spark, tables, "quarantine")


def read_segments(spark: SparkSession, tables: str | Path) -> DataFrame:
    """The index of an ingest folder: which segment holds what of whose life."""
    return _read(spark, tables, "segments")


def _read(spark: SparkSession, tables: str | Path, name: str) -> DataFrame:
    layout = Layout(tables)
    layout.check()
    return read_table(spark, layout, name)


@contextmanager
def open_lines(spark: SparkSession, path: str | Path) -> Iterator[DataFrame]:
    """The lines of an ingest folder; raw traces are landed into a temporary one first."""
    if is_tables(path):
        yield read_lines(spark, path)
        return
    with tempfile.TemporaryDirectory(prefix="pulsarcast-lines-") as folder:
        land(spark, [path], folder)
        yield read_lines(spark, folder)
