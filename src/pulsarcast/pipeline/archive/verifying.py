"""Verification of an archive: every row, on all cores, by what the events themselves prove.

Nothing in the archive is believed because it is there. What is found names the file, the topic, the
offset and the event; remarks are what may be honest.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Row, SparkSession

from pulsarcast.model.errors import LocalError
from pulsarcast.model.ids import parse_cid
from pulsarcast.pipeline.archive.continuity import (
    Stretch,
    flaws_of,
    judge_numbers,
    remarks_of,
    sum_up,
)
from pulsarcast.pipeline.archive.inspecting import FOUND, GROUPS, brief, inspect_groups
from pulsarcast.pipeline.archive.layout import EVENTS, ArchiveFolder

FINDINGS_MAX: Final = 100
"""How many findings are named, unless told otherwise; all are counted."""
TASKS_MAX: Final = 2000


@dataclass(frozen=True)
class Finding:
    """Something that is wrong."""

    topic: str
    offset: int | None
    file: str
    event_id: str | None
    reason: str


@dataclass
class Verification:
    """What came of verifying an archive."""

    events: int = 0
    topics: int = 0
    files: int = 0
    bytes: int = 0
    problems: int = 0
    findings: list[Finding] = field(default_factory=list)
    """The first of them, by topic and offset."""
    remarks: list[str] = field(default_factory=list)
    seconds: float = 0.0
    cpu_s: float = 0.0
    """Of the tasks, without Spark's own."""
    events_per_s: int = 0

    def as_dict(self) -> dict[str, Any]:
        """For programs."""
        return asdict(self)


def verify(spark: SparkSession, out: str | Path, *, limit: int = FINDINGS_MAX) -> Verification:
    """Verify all that an archive has at this moment; it may grow meanwhile."""
    folder = ArchiveFolder(out)
    folder.check()
    return _Verifying(spark, folder, limit).run()


class _Verifying:
    """One verification, on its way."""

    def __init__(self, spark: SparkSession, folder: ArchiveFolder, limit: int) -> None:
        self._spark = spark
        self._limit = limit
        self._folder = folder
        # Notes first: whatever they know of is in the files already.
        self._notes = folder.notes()
        self._events = folder.table(EVENTS)
        self._parts = folder.parts_in(self._events)
        self._there: dict[str, list[Stretch]] = {}
        self._found: list[Finding] = []
        self._result = Verification()

    def run(self) -> Verification:
        """All of it."""
        try:
            found = self._run()
        except OSError:
            self._check_generation()
            raise
        if found.problems:
            self._check_generation()
        return found

    def _check_generation(self) -> None:
        """Raise where files are gone because others took their place, for the second time."""
        if self._folder.table(EVENTS) == self._events:
            return
        if not all(part.path.exists() for part in self._parts):
            raise LocalError(
                f"{self._folder.folder}: its files were merged twice while they were verified, and "
                "those that were there are gone: verify it again, or a copy of it"
            )

    def _run(self) -> Verification:
        began_s = time.monotonic()
        result = self._result
        result.files = len(self._parts)
        result.bytes = sum(part.path.stat().st_size for part in self._parts)
        self._find_strangers()
        groups = list(self._groups())
        if groups:
            tasks = min(len(groups), TASKS_MAX)
            rows = [(at * tasks // len(groups), *group) for at, group in enumerate(groups)]
            shared = self._spark.createDataFrame(rows, f"task int, {GROUPS}")
            told = shared.repartitionById(tasks, "task").drop("task")
            self._take(told.mapInArrow(inspect_groups, FOUND).persist())
        self._find_gaps()
        result.problems += len(self._found)
        result.findings = sorted(self._found + result.findings, key=_order)[: self._limit]
        seconds = time.monotonic() - began_s
        result.seconds = round(seconds, 3)
        result.events_per_s = round(result.events / seconds)
        return result

    # What to look at

    def _find_strangers(self) -> None:
        """Whatever an engine would read and no archive has written."""
        there = sorted(self._events.rglob("*"))
        # Some may have come since we looked.
        ours = {part.path for part in self._folder.parts_in(self._events)}
        for path in there:
            if path.is_file() and path not in ours and not path.name.startswith((".", "_")):
                self._add("", None, path, "it is no file of an archive")
        for part in list(self._parts):
            try:
                parse_cid(part.topic)
            except LocalError:
                self._parts.remove(part)
                self._add(part.topic, None, part.path, "its folder does not name a topic")

    def _groups(self) -> Iterator[tuple[str, str, int, int, int, int, int | None]]:
        """What there is to look at: rows of `GROUPS`."""
        for part in self._parts:
            try:
                footer = pq.read_metadata(part.path)
                sizes = [footer.row_group(at).num_rows for at in range(footer.num_row_groups)]
            except (OSError, pa.ArrowException) as error:
                self._add(part.topic, part.first, part.path, f"it cannot be read: {brief(error)}")
                self._note_there(part.topic, part.first, part.last, part.path)
                continue
            is_whole = sum(sizes) == part.last - part.first + 1
            starts = accumulate(sizes, initial=part.first)
            for at, (size, start) in enumerate(zip(sizes, starts, strict=False)):
                known = start if is_whole else None
                yield part.topic, str(part.path), at, part.first, part.last, size, known

    # What was found

    def _take(self, told: DataFrame) -> None:
        try:
            shape = told.where("kind IN ('group', 'offsets')").collect()
            self._take_groups([row for row in shape if row.kind == "group"])
            for row in shape:
                if row.kind == "offsets":
                    self._note_there(row.topic, row.first, row.last, Path(row.file))
            if self._result.problems:
                self._take_wrong(told.where("kind = 'wrong'"))
            self._take_numbers(judge_numbers(told.where("kind = 'numbers'")))
        finally:
            told.unpersist()

    def _take_groups(self, groups: Sequence[Row]) -> None:
        result = self._result
        result.events = sum(row.rows for row in groups)
        result.problems = sum(row.wrong for row in groups)
        result.cpu_s = round(sum(row.cpu_s for row in groups), 3)
        back = sum(row.back for row in groups)
        if back:
            result.remarks.append(f"the node's clock went back {back:,} times between two events")
        names: dict[str, Counter[str]] = {}
        readable = [row for row in groups if row.rows]
        for row in readable:
            names.setdefault(row.topic, Counter())[row.reason] += row.rows
        for row in readable:
            if row.reason != names[row.topic].most_common(1)[0][0]:
                reason = f"topic_name is {row.reason} in a whole group of rows, unlike in others"
                self._add(row.topic, None, Path(row.file), reason)

    def _take_wrong(self, wrong: DataFrame) -> None:
        shown = wrong.orderBy("topic", "offset", "file", "part").limit(self._limit)
        self._result.findings = [
            Finding(row.topic, row.offset, self._name(Path(row.file)), row.event_id, row.reason)
            for row in shown.collect()
        ]

    def _take_numbers(self, judged: DataFrame) -> None:
        sums = sum_up(judged)
        self._result.remarks += remarks_of(sums)
        if not sums["twice"]:
            return
        for row in judged.where("twice > 0").orderBy("topic", "offset").collect():
            numbers = f"{row.twice:,} of the numbers from {row.first} on"
            if row.twice == 1:
                numbers = f"number {row.first}"
            reason = f"{numbers} of publisher {row.publisher} (epoch {row.epoch}): there twice"
            self._add(row.topic, row.offset, Path(row.file), reason)

    def _find_gaps(self) -> None:
        noted = self._notes["topics"]
        topics = sorted({*self._there, *(topic for topic in noted if noted[topic]["last"])})
        self._result.topics = len(topics)
        for topic in topics:
            lost = [
                Stretch(each["first"], each["last"])
                for each in self._notes["lost"]
                if each["topic"] == topic
            ]
            if lost:
                gone = sum(each.last - each.first + 1 for each in lost)
                said = f"{gone:,} events of topic {topic} were gone before they could be archived"
                self._result.remarks.append(said)
            for flaw in flaws_of(self._there.get(topic, []), lost, noted.get(topic)):
                self._add(topic, flaw.offset, Path(flaw.file) if flaw.file else None, flaw.reason)

    def _note_there(self, topic: str, first: int, last: int, path: Path) -> None:
        self._there.setdefault(topic, []).append(Stretch(first, last, str(path)))

    def _add(self, topic: str, offset: int | None, path: Path | None, reason: str) -> None:
        name = "" if path is None else self._name(path)
        self._found.append(Finding(topic, offset, name, None, reason))

    def _name(self, path: Path) -> str:
        """A file as people find it, whatever generation it is of."""
        return str(Path(EVENTS) / path.relative_to(self._events))


def _order(finding: Finding) -> tuple[str, int, str]:
    return finding.topic, finding.offset or 0, finding.file
