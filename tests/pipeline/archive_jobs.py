"""Archives for tests: made without a daemon, tampered with, read by others, killed while written.

Run as a script, it archives a topic and kills itself with SIGKILL at a chosen point. The points are
put in from here: the code that archives knows nothing of them. The kill hits the whole group of
processes, so Spark's driver, which a batch is run by, dies in the same moment.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from pulsarcast.model import events
from pulsarcast.model.events import EventDescriptor, publish_own, publish_request, sign_request
from pulsarcast.model.identity import Identity
from pulsarcast.model.ids import Cid, cid_of, cid_text
from pulsarcast.model.pages import Page, decode_page, encode_page
from pulsarcast.pipeline.archive import Archiving, compacting, keeping, writing
from pulsarcast.pipeline.archive.layout import EVENTS, ArchiveFolder, Part
from pulsarcast.pipeline.merging import Task
from pulsarcast.pipeline.session import LITTLE, session
from pulsarcast.pipeline.topics.columns import TopicColumns

ROOT = Path(__file__).parents[2]
NAME = "weather"
TOPIC = cid_of(b"a topic that nobody made")
ANN, BEN, EVE = (Identity.from_seed(bytes([at]) * 32) for at in (1, 2, 3))
ATTRIBUTES = {"flag": True, "price": -3.25, "zero": 0.0, "text": "Ä", "raw": b"\0\1"}
RECEIVED_US = 1_700_000_100_000_000


# Events


def make_events(count: int, *, topic: Cid = TOPIC) -> list[EventDescriptor]:
    """A log of all that events can have: two publishers, requests, attributes of all types."""
    chance = random.Random(7)
    made: list[EventDescriptor] = []
    numbers = {ANN: 0, BEN: 0}
    for at in range(count):
        publisher = BEN if at % 5 == 3 else ANN
        numbers[publisher] += 1
        said: dict[str, Any] = {
            "topic": topic,
            "payload": chance.randbytes(chance.randrange(80)),
            "name": f"event {at}" if at % 2 else "",
            "attributes": {**ATTRIBUTES, "count": at} if at % 3 else {},
            "created": 1_700_000_000_000_000 + at * 1000,
            "nonce": chance.randbytes(16),
        }
        sequence = events.Sequence(9, numbers[publisher])
        placed: dict[str, Any] = {
            "version": topic if at % 4 else cid_of(b"a later version"),
            "sequence": sequence,
            "parents": [event.cid for event in made[-2:]],
        }
        if at % 7 == 6:
            signed = sign_request(EVE, **said, sequence=events.Sequence(3, at + 1))
            made.append(publish_request(publisher, signed, **placed))
        else:
            made.append(publish_own(publisher, **said, **placed))
    return made


def page_of(blocks: Sequence[bytes], first: int) -> Page:
    return decode_page(
        encode_page([(first + at, RECEIVED_US + at, block) for at, block in enumerate(blocks)])
    )


def table_of(made: Sequence[EventDescriptor], *, first: int = 1) -> pa.Table:
    """Rows as an archive has them."""
    page = page_of([event.block for event in made], first)
    columns = TopicColumns(cid_text(made[0].topic), NAME, blocks=True)
    return pa.Table.from_batches(columns.batches(page)).select(writing.FILE.names)


# Archives


def make_archive(
    folder: Path, made: Sequence[EventDescriptor], *, file_rows: int, group_rows: int
) -> ArchiveFolder:
    """An archive of these events, as if it had been read from a node."""
    archive = ArchiveFolder(folder)
    topic = cid_text(made[0].topic)
    with archive.writing(), archive.staging() as staged:
        parts = []
        for at in range(0, len(made), file_rows):
            rows = table_of(made[at : at + file_rows], first=at + 1)
            write_file(staged / f"{at}.parquet", rows, group_rows)
            parts.append(Part(topic, at + 1, at + len(rows), staged / f"{at}.parquet"))
        archive.publish(parts)
        note = {"log": "0" * 16, "first": 1, "last": len(made)}
        archive.write_notes(archive.notes() | {"topics": {topic: note}})
    return archive


def write_file(path: Path, rows: pa.Table, group_rows: int = 100) -> None:
    with pq.ParquetWriter(path, rows.schema, **writing.OPTIONS) as writer:
        for at in range(0, len(rows), group_rows):
            writer.write_table(rows.slice(at, group_rows))


def tamper(path: Path, change: Callable[[list[dict[str, Any]]], None]) -> None:
    """Rewrite a file with rows changed, as somebody would who knows how."""
    rows = pq.ParquetFile(path).read()
    listed = rows.to_pylist()
    change(listed)
    path.unlink()  # A generation before may have the same file.
    write_file(path, pa.Table.from_pylist(listed, rows.schema))


def read_by_duckdb(archive: Path, columns: str = "topic, event_id, payload") -> list[Any]:
    """The rows as another engine sees them, by topic and offset."""
    files = f"{archive}/events/*/*.parquet"
    source = f"read_parquet('{files}', hive_partitioning=true, hive_types_autocast=false)"
    with duckdb.connect() as database:
        return database.sql(f'SELECT {columns} FROM {source} ORDER BY topic, "offset"').fetchall()


def files_ascend(archive: ArchiveFolder) -> bool:
    """Whether each file's rows are in the order of their offsets, and files do not overlap."""
    for part in archive.parts():
        offsets = pq.ParquetFile(part.path).read(["offset"])["offset"].to_pylist()
        if offsets != list(range(part.first, part.last + 1)):
            return False
    pairs = pairwise(archive.parts())
    return all(one.topic != other.topic or one.last < other.first for one, other in pairs)


# Kills


def die(group: int) -> None:
    os.killpg(group, signal.SIGKILL)
    time.sleep(60)  # our own turn comes


def replace(owner: object, name: str, value: object) -> None:
    """Put something in the place of what the code that archives would use."""
    mock.patch.object(owner, name, value).start()


def before_the_write(group: int) -> None:
    """The batch is planned, and nothing is written."""
    replace(keeping, "write_rows", lambda *_: die(group))


def within_the_write(group: int) -> None:
    """A task has written some rows, and not all of them."""
    archiving_into = writing._archiving_into

    def archiving(staged: Path, ends: Mapping[str, int]) -> Task:
        task = archiving_into(staged, ends)

        def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            # This runs in an executor's interpreter, with a module of its own.
            end = writing._Files._end

            def end_and_die(files: Any) -> None:
                end(files)
                die(group)

            replace(writing._Files, "_end", end_and_die)
            return task(batches)

        return write

    replace(writing, "_archiving_into", archiving)


def after_the_write(group: int) -> None:
    """All files are written, and none is visible."""
    replace(ArchiveFolder, "publish", lambda *_: die(group))


def between_the_renames(group: int) -> None:
    """One file of the batch is visible, and the others are not."""
    publish = ArchiveFolder.publish

    def publish_one(archive: ArchiveFolder, parts: Sequence[Part]) -> None:
        assert len(parts) > 1
        publish(archive, sorted(parts)[:1])
        die(group)

    replace(ArchiveFolder, "publish", publish_one)


def before_the_notes(group: int) -> None:
    """All is visible, and neither the notes nor Spark know it."""
    replace(Archiving, "_note_ends", lambda *_: die(group))


def before_the_commit(group: int) -> None:
    """All is visible and noted, and Spark does not know it."""
    note_ends = Archiving._note_ends

    def note_and_die(archiving: Archiving) -> None:
        note_ends(archiving)
        die(group)

    replace(Archiving, "_note_ends", note_and_die)


def within_the_merge(group: int) -> None:
    """Compaction has written its files, and no generation has them."""
    replace(compacting, "gather", lambda *_: die(group))


def before_the_switch(group: int) -> None:
    """Compaction's generation is whole, and not shown."""
    replace(ArchiveFolder, "_switch", lambda *_: die(group))


def after_the_switch(group: int) -> None:
    """Compaction's generation is shown, within a batch that Spark does not know to be done."""
    switch = ArchiveFolder._switch

    def switch_and_die(archive: ArchiveFolder, generation: Path) -> None:
        switch(archive, generation)
        die(group)

    replace(ArchiveFolder, "_switch", switch_and_die)


POINTS: dict[str, Callable[[int], None]] = {
    point.__name__.replace("_", " "): point
    for point in (
        before_the_write,
        within_the_write,
        after_the_write,
        between_the_renames,
        before_the_notes,
        before_the_commit,
        within_the_merge,
        before_the_switch,
        after_the_switch,
    )
}


def archive_and_die(point: str, topic: str, out: Path, place: Mapping[str, str]) -> None:
    """Archive in a process of its own that is killed at a point."""
    arguments = [point, topic, str(out), place["url"], place["token"]]
    process = subprocess.run(
        [sys.executable, "-m", "tests.pipeline.archive_jobs", *arguments],
        cwd=ROOT,
        start_new_session=True,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert process.returncode == -signal.SIGKILL, process.stderr


def main(point: str, topic: str, out: str, url: str, token: str) -> None:
    group = os.getpgid(0)
    # A first run makes the folder: that is not what is killed here.
    ArchiveFolder(out).create()
    POINTS[point](group)
    if "merge" in point or "switch" in point:
        replace(compacting, "SMALL_FILES_MAX", 1)
    settings = {**LITTLE, "spark.driver.memory": "1g"}
    with session("killed", master="local[2]", settings=settings) as spark:
        place = {"url": url, "token": token, "maxRecordsPerPartition": "500"}
        Archiving(spark, topic, out, place, batch_events=1500).available_now()


def events_of(archive: Path) -> Path:
    """The folder that engines read."""
    return archive / EVENTS


if __name__ == "__main__":
    main(*sys.argv[1:])
