"""Scratch: a folder for tables in between, each computed once and then read as often as need be.

Left alone, Spark plans all that stands on one another as one: it plans again whenever a part is
done, and takes minutes for what takes seconds to compute. A table on disk ends that: plans stay
short, joins know how large their sides are, and a lost executor loses nothing.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame


class Scratch:
    """Tables by name, in a folder that every executor can reach."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def keep(self, name: str, table: DataFrame) -> DataFrame:
        """The same table, computed now, as its file has it; no name is taken twice."""
        path = str(self.folder / name)
        table.write.mode("error").parquet(path)
        return table.sparkSession.read.schema(table.schema).parquet(path)


@contextmanager
def open_scratch(folder: str | Path | None = None) -> Iterator[Scratch]:
    """A new folder, below the one given or among temporary ones; it is gone at the end."""
    with tempfile.TemporaryDirectory(prefix=".pulsarcast-scratch-", dir=folder) as made:
        yield Scratch(made)
