"""An archive's folder: where its files stand, and what their names say (`folders`).

    DIR/events/topic=CONTENT_ID/FIRST-LAST.parquet   events by their offset in the node's log
    DIR/checkpoint/                                  Spark's own notes on what it has read
    DIR/.format.json  .lock  .staging/  .generations/

**Exactly once.** Files of a topic become visible one by one, in the order of their offsets: at any
moment an archive has the log up to some offset, all of it, each event once. So where it goes on is
read from the names, and of a batch that Spark does again after a crash, only what lies behind that
is added. Nothing is ever replaced, but for a compaction, which makes a new generation.

**One log.** Offsets mean something in one log of one store only. Which one it is was noted when a
topic's first events came; events of another log never get in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

from pulsarcast.pipeline.folders import TableFolder, sync
from pulsarcast.pipeline.topics.schema import spark_schema

EVENTS: Final = "events"

_NAME: Final = re.compile(r"(\d{15})-(\d{15})\.parquet")
_TOPIC: Final = "topic="


class Part(NamedTuple):
    """A file of an archive: a stretch of a topic's log."""

    topic: str
    first: int
    last: int
    path: Path


class ArchiveFolder(TableFolder):
    """The paths of one archive."""

    FORMAT = 1
    TABLES = (EVENTS,)
    KIND = "archive"
    WRITER = "pipeline archive"
    ADVICE = "archive into another folder, or remove this one first"

    def columns(self) -> dict[str, str]:
        """The source's, with the signed events."""
        return {field.name: field.dataType.simpleString() for field in spark_schema(blocks=True)}

    def first_notes(self) -> dict[str, Any]:
        """No topic yet.

        Of each topic, notes say which log it is, the first offset that was there, the last one
        that surely is, and the attributes of its schema, as the API has them, where a daemon could
        be asked; `lost` are stretches that were gone before they could be archived.
        """
        return {"topics": {}, "lost": []}

    def parts(self) -> list[Part]:
        """All files, by topic and offset."""
        return self.parts_in(self.table(EVENTS))

    def parts_in(self, events: Path) -> list[Part]:
        """All files of a generation."""
        found = []
        for path in events.glob(f"{_TOPIC}*/*.parquet"):
            if name := _NAME.fullmatch(path.name):
                topic = path.parent.name.removeprefix(_TOPIC)
                found.append(Part(topic, int(name[1]), int(name[2]), path))
        return sorted(found)

    def ends(self) -> dict[str, int]:
        """The last offset that is there of each topic."""
        return {part.topic: part.last for part in self.parts()}

    def publish(self, parts: Iterable[Part]) -> None:
        """Make files visible that stand elsewhere, each topic's in the order of its offsets.

        They and their names are on the disk before Spark hears that the batch is done.
        """
        events = self.table(EVENTS)
        folders: dict[Path, None] = {}
        for part in sorted(parts):
            target = events / place_of(part.topic, part.first, part.last)
            if target.parent not in folders:
                target.parent.mkdir(exist_ok=True)
            part.path.rename(target)
            folders[target.parent] = None
        for folder in (*folders, events):
            sync(folder)


def place_of(topic: str, first: int, last: int) -> Path:
    """Where a stretch of a topic's log stands, below `events`."""
    return Path(f"{_TOPIC}{topic}") / f"{first:015}-{last:015}.parquet"
