"""Keeping an archive current: a stream that reads a topic's log on from where the archive ends.

Spark keeps account, in the checkpoint, of how far it has read; the archive's own files say how far
they go (`layout`). Where the two differ, after a crash, the files are right.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pulsarcast.client import Client
from pulsarcast.model.errors import LocalError, NotFollowed, PulsarcastError
from pulsarcast.pipeline.archive.compacting import CompactResult, has_many_small, merge_small
from pulsarcast.pipeline.archive.layout import ArchiveFolder, Part
from pulsarcast.pipeline.archive.writing import write_rows
from pulsarcast.pipeline.folders import IncompatibleTablesError
from pulsarcast.pipeline.merging import FILE_BYTES
from pulsarcast.pipeline.streams import forget_planned, run_until
from pulsarcast.pipeline.topics.logs import find_daemon
from pulsarcast.pipeline.topics.offsets import Offsets, from_json
from pulsarcast.pipeline.topics.options import BELOW, read_connection

BATCH_EVENTS: Final = 400_000
"""Events of one batch at most: enough to make its costs small, and little to do again."""
INTERVAL_S: Final = 10.0
"""How often a continuous archive adds what is new: each time a file per topic."""

_OURS: Final = re.compile(r"pulsarcast\.[\w.]*(?:Error|Unreachable): (.+)")

_WORDS: Final = {
    "failOnDataLoss=false": "--allow-loss",
    "begin with a new checkpoint folder": "archive into another folder",
    "Begin with a new checkpoint folder": "Archive into another folder",
}


@dataclass
class Archived:
    """What was added to an archive."""

    batches: int = 0
    events: int = 0
    files: int = 0
    bytes: int = 0
    lost: int = 0  # events that were gone before they could be archived
    compactions: int = 0
    seconds: float = 0.0


@dataclass
class Archiving:
    """One topic into one archive, until all is read or somebody says stop.

    `connection` says where the daemon is, in the words of the source's options.
    """

    spark: SparkSession
    topic: str
    out: str | Path
    connection: Mapping[str, str]
    below: bool = False
    allow_loss: bool = False
    compacting: bool | None = None
    """Merge small files: at the end as well, never, or (None) only when there are many."""
    file_bytes: int = FILE_BYTES
    batch_events: int = BATCH_EVENTS
    interval_s: float = INTERVAL_S
    on_batch: Callable[[Archived, float], None] = lambda archived, seconds: None
    archived: Archived = field(default_factory=Archived)

    def __post_init__(self) -> None:
        self.folder = ArchiveFolder(self.out)
        self._begun: int | None = None
        self._refusal: LocalError | None = None

    def available_now(self) -> Archived:
        """Add what is there, and end."""
        with self._writing():
            self._sink().trigger(availableNow=True).start().awaitTermination()
        return self.archived

    def continuously(self, stop: threading.Event) -> Archived:
        """Add what comes, until `stop`; the batch that is under way is ended first."""
        with self._writing():
            query = self._sink().trigger(processingTime=f"{self.interval_s} seconds").start()
            run_until(stop, query, self.folder.checkpoint, lambda: self._begun)
        return self.archived

    def _sink(self) -> DataStreamWriter:
        source = (
            self.spark.readStream.format("pulsarcast")
            .options(**self.connection)
            .option("topics", self.topic + (BELOW if self.below else ""))
            .option("startingOffsets", "earliest")
            .option("includeBlocks", "true")
            .option("maxOffsetsPerTrigger", str(self.batch_events))
            .option("failOnDataLoss", "false" if self.allow_loss else "true")
            .load()
        )
        return (
            source.writeStream.foreachBatch(self._keep)
            .option("checkpointLocation", str(self.folder.checkpoint))
            .queryName("pulsarcast archive")
        )

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self.folder.writing():
            began_s = time.monotonic()
            self._check_files()
            self._check_logs()
            try:
                yield
            except PySparkException as error:
                if self._refusal is not None:
                    forget_planned(self.folder.checkpoint)
                raise self._refusal or _refusal(error) or error from None
            if self.compacting:
                self._compact()
            self.archived.seconds = round(time.monotonic() - began_s, 3)

    # Before anything is read

    def _check_files(self) -> None:
        """Raise where files and notes do not belong together: what is gone is not read again."""
        parts = self.folder.parts()
        firsts = {part.topic: part.first for part in reversed(parts)}
        lasts = {part.topic: part.last for part in parts}
        advice = "bring its files back, or archive into another folder"
        noted = self.folder.notes()["topics"]
        for topic, note in noted.items():
            if not note["last"]:
                continue
            if lasts.get(topic, 0) < note["last"]:
                raise IncompatibleTablesError(
                    f"{self.folder.folder} had events of topic {topic} up to offset "
                    f"{note['last']} and has them up to {lasts.get(topic, 0)}: {advice}"
                )
            if firsts[topic] > note["first"]:
                raise IncompatibleTablesError(
                    f"{self.folder.folder} had events of topic {topic} from offset "
                    f"{note['first']} on and has them from {firsts[topic]} on: {advice}"
                )
        if noted and not self.folder.checkpoint.is_dir():
            raise IncompatibleTablesError(
                f"{self.folder.folder} has no checkpoint any more: bring it back, or archive into "
                "another folder"
            )

    def _check_logs(self) -> None:
        """Ask the daemon for the logs that the archive knows, before Spark does."""
        ends = self.folder.ends()
        with self._client() as client:
            top = client.topic(self.topic).id
            for topic, note in self.folder.notes()["topics"].items():
                if topic != top and not self.below:
                    continue
                try:
                    log = client.log(topic)
                except NotFollowed:
                    continue  # Followed again, it has another log: that is seen then.
                if log.log != note["log"]:
                    raise self._another_log(topic)
                gone = log.oldest - 1 - ends.get(topic, log.oldest)
                if gone > 0 and not self.allow_loss:
                    raise LocalError(
                        f"{gone:,} events of topic {log.name} ({topic}) are gone that were not "
                        f"archived yet: retention keeps what comes from offset {log.oldest} on. "
                        "Go on without them with --allow-loss, and archive more often or give the "
                        "topic a longer retention"
                    )

    def _client(self) -> Client:
        options = {name.lower(): value for name, value in self.connection.items()}
        target = find_daemon(read_connection(options))
        return Client(target.url, target.token)

    def _another_log(self, topic: str) -> LocalError:
        return IncompatibleTablesError(
            f"{self.folder.folder} has another log of topic {topic}: the store was restored or "
            "copied, the topic was left since, or this is another node. Archive into another "
            "folder, or from the node that this one came from"
        )

    # Batches

    def _keep(self, rows: DataFrame, batch: int) -> None:
        began_s = time.monotonic()
        self._begun = batch
        try:
            self._add(rows, batch)
        except LocalError as error:
            self._refusal = error
            raise
        self.on_batch(self.archived, time.monotonic() - began_s)

    def _add(self, rows: DataFrame, batch: int) -> None:
        self._note_logs(planned_offsets(self.folder.checkpoint, batch))
        ends = self.folder.ends()
        with self.folder.staging() as staged:
            parts, count = write_rows(rows, staged, ends)
            size = sum(part.path.stat().st_size for part in parts)
            self._note_begins(parts, ends)
            self.folder.publish(parts)
        self._note_ends()
        self._note_schemas({part.topic for part in parts})
        self.archived.batches += 1
        self.archived.events += count
        self.archived.files += len(parts)
        self.archived.bytes += size
        wants = self.compacting is not False
        if wants and has_many_small(self.folder, file_bytes=self.file_bytes):
            self._compact()

    def _compact(self) -> CompactResult:
        self.archived.compactions += 1
        return merge_small(self.spark, self.folder, file_bytes=self.file_bytes)

    # Notes: before files are shown what must not be forgotten, and after them that they are there

    def _note_logs(self, reached: Offsets) -> None:
        notes = self.folder.notes()
        for topic, place in reached.topics.items():
            note = notes["topics"].setdefault(topic, {"log": place.log, "first": 0, "last": 0})
            if note["log"] != place.log:
                raise self._another_log(topic)
        self.folder.write_notes(notes)

    def _note_begins(self, parts: list[Part], ends: Mapping[str, int]) -> None:
        notes = self.folder.notes()
        reached = dict(ends)
        for part in parts:
            note = notes["topics"][part.topic]
            if part.topic not in reached:
                note["first"] = part.first
            elif part.first != reached[part.topic] + 1:
                self._note_lost(notes, part, reached[part.topic])
            reached[part.topic] = part.last
        self.folder.write_notes(notes)

    def _note_lost(self, notes: dict[str, Any], part: Part, reached: int) -> None:
        if not self.allow_loss or part.first <= reached:
            raise IncompatibleTablesError(
                f"{self.folder.folder} ends at offset {reached} of topic {part.topic}, and its "
                f"checkpoint goes on at {part.first}: they are not of one time. Bring back those "
                "that belong together, or archive into another folder"
            )
        stretch = {"topic": part.topic, "first": reached + 1, "last": part.first - 1}
        if stretch not in notes["lost"]:
            notes["lost"].append(stretch)
        self.archived.lost += part.first - 1 - reached

    def _note_ends(self) -> None:
        notes = self.folder.notes()
        for topic, last in self.folder.ends().items():
            notes["topics"][topic]["last"] = last
        self.folder.write_notes(notes)

    def _note_schemas(self, topics: Iterable[str]) -> None:
        """What events of these topics may carry by now, so that queries need no daemon.

        They can do without the note, so a daemon that is just away does not stop the archive.
        """
        notes = self.folder.notes()
        try:
            with self._client() as client:
                for topic in topics:
                    rules = client.topic(topic).settings.attributes or []
                    notes["topics"][topic]["attributes"] = msgspec.to_builtins(rules)
        except PulsarcastError:
            return
        self.folder.write_notes(notes)


def planned_offsets(checkpoint: Path, batch: int) -> Offsets:
    """How far each log will be read when this batch is done, as Spark has written it down."""
    *_, last = (checkpoint / "offsets" / str(batch)).read_text().splitlines()
    return from_json(json.loads(last))


def _refusal(error: PySparkException) -> LocalError | None:
    """What our source said, out of all that Spark says about it, in an archive's words."""
    said = _OURS.findall(str(error))
    if not said:
        return None
    text = said[-1].strip()
    for theirs, ours in _WORDS.items():
        text = text.replace(theirs, ours)
    return LocalError(text)
