"""The folder of a workload: Parquet tables, the listing, and what it was made of.

    OUT/events/          every event in order, with its node, topic, author and time
    OUT/topics/          every topic with its creator, events and subscribers
    OUT/subscriptions/   every (node, topic)
    OUT/users/           the authors that nodes are named after
    OUT/authors/         every author with its node
    OUT/quarantine/      lines that were no comments
    OUT/workload.ndjson.zst   the thesis' Listing 5.1, for simulator and testbed, if wanted
    OUT/workload.json    the options and the counts

Names of people stand in here and nowhere else: reports show topics and counts. The folder is built
aside and appears whole or not at all.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pulsarcast.model.errors import LocalError
from pulsarcast.pipeline.workloads.assign import AUTHORS, EVENTS, SUBSCRIPTIONS, TOPICS, USERS
from pulsarcast.pipeline.workloads.comments import QUARANTINE

SCHEMAS: Final = {
    "events": EVENTS,
    "topics": TOPICS,
    "subscriptions": SUBSCRIPTIONS,
    "users": USERS,
    "authors": AUTHORS,
    "quarantine": QUARANTINE,
}
LISTING: Final = "workload.ndjson.zst"
ABOUT: Final = "workload.json"
STAGING: Final = ".staging"


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What a workload is made with; with the same input, the same options make the same one."""

    nodes: int = 100
    seed: int = 1
    first: int | None = None
    """Only the first so many comments, in order, deleted and repeated ones counted in."""
    sample: int | None = None
    """Only so many comments, chosen by the hash of their id."""
    redraw: bool = False
    """Draw a node for every comment of an author without one, as the original did."""
    bodies: bool = False
    """Keep the texts."""
    listing: bool = True
    """Write the listing as well: the driver streams it, a line for each user."""

    def __post_init__(self) -> None:
        """Refuse what has no meaning."""
        if self.nodes < 1 or self.nodes >= 2**31:
            raise LocalError("a workload needs at least one node")
        if self.first is not None and self.sample is not None:
            raise LocalError("first and sample exclude each other")
        for name, value in (("first", self.first), ("sample", self.sample)):
            if value is not None and value < 1:
                raise LocalError(f"{name} must be at least 1")


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """What was read, what was left out, and what came of it."""

    lines: int
    """Whole lines in the files; for a made-up workload, its comments."""
    broken: int
    """Lines that are no comments."""
    broken_files: int
    """Files that could not be read to their end."""
    reasons: dict[str, int]
    """Records of the quarantine by reason."""
    taken: int
    """Comments that `first` or `sample` left: all, without them."""
    deleted: int
    """Of these, by authors who are gone."""
    repeated: int
    """Of these, seen before."""
    events: int
    authors: int
    nodes: int
    topics: int
    subscriptions: int
    deliveries_due: int
    """If every subscriber gets every event of its topics, a node's own included."""


class About(msgspec.Struct, frozen=True, kw_only=True):
    """The file `workload.json`."""

    source: dict[str, Any]
    options: Options
    counts: Counts


def check_out(out: str | Path) -> None:
    """Refuse a folder that holds anything."""
    path = Path(out)
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise LocalError(f"{out} exists and is not empty")


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """A folder to build in, whose content moves to `out` once it is complete.

    What is left under `.staging` by then goes with it.
    """
    check_out(out)
    building = out.parent / f".{out.name}.building"
    if building.exists():
        raise LocalError(f"{building} exists: another one builds there, or was killed; remove it")
    building.mkdir(parents=True)
    try:
        yield building
        shutil.rmtree(building / STAGING, ignore_errors=True)
        if out.exists():
            out.rmdir()
        building.rename(out)
    finally:
        shutil.rmtree(building, ignore_errors=True)


def write(table: DataFrame, folder: Path, name: str) -> DataFrame:
    """Write a table with exactly the columns of its schema, and return it as it is on disk."""
    columns = table.sparkSession.createDataFrame([], SCHEMAS[name]).schema
    chosen = table.select(*(F.col(field.name).cast(field.dataType) for field in columns))
    chosen.write.parquet(str(folder / name))
    return read(table.sparkSession, folder, name)


def read(spark: SparkSession, folder: str | Path, name: str) -> DataFrame:
    """A table of a workload's folder: `events`, `topics`, `subscriptions`, `users`, `authors`."""
    return spark.read.schema(SCHEMAS[name]).parquet(str(Path(folder) / name))


def read_about(folder: str | Path) -> About:
    """What a workload's folder was made of."""
    return msgspec.json.decode((Path(folder) / ABOUT).read_bytes(), type=About)
