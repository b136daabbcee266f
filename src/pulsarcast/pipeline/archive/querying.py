"""Events of an archive that match a filter: what a subscriber with it would have been handed."""

from __future__ import annotations

from pathlib import Path

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pulsarcast.model import api
from pulsarcast.model.errors import LocalError
from pulsarcast.model.filters import Filter
from pulsarcast.model.topic_types import AttributeRule
from pulsarcast.pipeline.archive.layout import EVENTS, ArchiveFolder
from pulsarcast.pipeline.topics.filters import subscribed_column
from pulsarcast.pipeline.topics.schema import spark_schema


def query(spark: SparkSession, archive: str | Path, topic: str, wanted: Filter) -> DataFrame:
    """The topic's events that match, with the archive's columns, by offset."""
    folder = ArchiveFolder(Path(archive))
    folder.check()
    if topic not in folder.ends():
        raise LocalError(f"{archive} has no events of topic {topic}")
    events = spark.read.schema(spark_schema(blocks=True)).parquet(str(folder.table(EVENTS)))
    return events.where((F.col("topic") == topic) & subscribed_column(wanted)).orderBy("offset")


def schema_in(archive: str | Path, topic: str) -> tuple[AttributeRule, ...] | None:
    """The schema that a topic had when its newest events came; None if the archive has no note."""
    folder = ArchiveFolder(Path(archive))
    folder.check()
    noted = folder.notes()["topics"].get(topic, {}).get("attributes")
    if noted is None:
        return None
    return api.rules_from(msgspec.convert(noted, list[api.AttributeRuleView]))


def topic_in(archive: str | Path, name: str) -> str | None:
    """The content id that a name, or an id, stands for in an archive; None if it is not there."""
    import pyarrow.parquet as pq  # noqa: PLC0415 (only if it is needed)

    folder = ArchiveFolder(Path(archive))
    folder.check()
    parts = {part.topic: part.path for part in folder.parts()}
    if name in parts:
        return name
    found = []
    for topic, path in parts.items():
        column = pq.read_table(path, columns=["topic_name"]).column("topic_name")
        if len(column) and column[0].as_py() == name:
            found.append(topic)
    if len(found) > 1:
        raise LocalError(f"{archive} has {len(found)} topics named {name}: say which by its id")
    return found[0] if found else None
