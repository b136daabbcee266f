"""An ingest that kills itself with SIGKILL at a chosen point of a batch; run as a script by tests.

The points are put in from here: the code that ingests knows nothing of them. The kill hits the
whole group of processes, so Spark's driver, which a batch is run by, dies in the same moment.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa

from pulsarcast.pipeline.merging import Task
from pulsarcast.pipeline.session import session
from pulsarcast.pipeline.traces import Ingest, landing, streaming, writing
from pulsarcast.pipeline.traces.layout import Layout

SETTINGS = {"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "1g"}


def die(group: int) -> None:
    os.killpg(group, signal.SIGKILL)
    time.sleep(60)  # our own turn comes


def replace(owner: object, name: str, value: object) -> None:
    """Put something in the place of what the code that ingests would use."""
    mock.patch.object(owner, name, value).start()


def before_the_write(group: int) -> None:
    """The offset is logged, and nothing is written."""
    replace(streaming, "land_batch", lambda *_: die(group))


def within_the_write(group: int, *, files: int = 2) -> None:
    """A task has written some files, and not all of them."""

    def writing_into(folder: Path, name: str, *, run_id: str | None = None) -> Task:
        task = writing.writing_into(folder, name, run_id=run_id)

        def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            # This runs in an executor's interpreter, with a module of its own.
            whole = writing.Tables._write

            def some(tables: Any, place: Path) -> None:
                whole(tables, place)
                if tables._files == files:
                    die(group)

            replace(writing.Tables, "_write", some)
            return task(batches)

        return write

    replace(landing, "writing_into", writing_into)


def after_the_write(group: int) -> None:
    """All files are written, and none is visible."""
    replace(Layout, "publish", lambda *_: die(group))


def between_the_renames(group: int) -> None:
    """The lines are visible, and the record that they are is not."""
    publish, rename = Layout.publish, Path.rename

    def publish_some(self: Layout, batch: int, staged: Path) -> None:
        def rename_one(path: Path, target: Path) -> Path:
            result = rename(path, target)
            if path == staged / "lines":
                die(group)
            return result

        replace(Path, "rename", rename_one)
        publish(self, batch, staged)

    replace(Layout, "publish", publish_some)


def before_the_commit(group: int) -> None:
    """All is visible and on record, and Spark does not know it."""
    publish = Layout.publish

    def publish_and_die(self: Layout, batch: int, staged: Path) -> None:
        publish(self, batch, staged)
        die(group)

    replace(Layout, "publish", publish_and_die)


def after_the_commit(group: int, commits: Path) -> None:
    """A batch is done."""
    before = len(list(commits.glob("[0-9]*")))

    def watch() -> None:
        while len(list(commits.glob("[0-9]*"))) == before:
            time.sleep(0.001)
        die(group)

    threading.Thread(target=watch, daemon=True).start()


POINTS: dict[str, Callable[[int], None]] = {
    "before the write": before_the_write,
    "within the write": within_the_write,
    "after the write": after_the_write,
    "between the renames": between_the_renames,
    "before the commit": before_the_commit,
}
"""All of these lie inside a batch: its offset is logged, its commit is not."""


def main(traces: str, out: str, point: str) -> None:
    group = os.getpgid(0)
    if point in POINTS:
        POINTS[point](group)
    elif point == "after the commit":
        after_the_commit(group, Path(out) / "checkpoint" / "commits")
    with session("killed", master="local[2]", settings=SETTINGS) as spark:
        Ingest(spark, [traces], out, batch_bytes=2_000_000).available_now()


if __name__ == "__main__":
    main(*sys.argv[1:])
