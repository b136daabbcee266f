"""Tables and streams into topics: `df.write` and `df.writeStream` of `format("pulsarcast")`.

Spark runs a task again when it fails, and two of it at a time when it is slow. So every row has a
key, and the daemon publishes once per key: whatever is run again, in whatever order and partitions,
adds what is missing and nothing else. This holds for one sink name and one daemon, for as long as
the topic's retention keeps the event. In a stream with output mode `update` a key has to change
with the row, or its later states are taken for the first one.

Nothing is undone when a job fails, because nothing that was published can be: a rerun goes on.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NoReturn, get_args

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from pulsarcast.client import Client
from pulsarcast.client.errors import after_s_of, is_passing
from pulsarcast.client.following import Backoff
from pulsarcast.model import api
from pulsarcast.model.errors import (
    Busy,
    Closed,
    LocalError,
    Malformed,
    PulsarcastError,
    TooLarge,
    TopicNotFound,
)
from pulsarcast.pipeline.topics.logs import find_daemon
from pulsarcast.pipeline.topics.options import CONNECTION, Secret, check_known, read_connection
from pulsarcast.pipeline.topics.publications import BODY_BYTES, Publication, publications, shown
from pulsarcast.pipeline.topics.writable import KEY, Columns, find_columns

WRITING: Final = ("topic", "sinkName", KEY, "ack")
CHECKPOINT: Final = "checkpointLocation"
"""Spark's own, which it hands on to the sink of a stream."""
SINK: Final = "spark"
PATIENCE_S: Final = 120.0
"""How long a task waits for a daemon that is away or busy: a restart takes less."""
HELD_BYTES_MAX: Final = 8 << 20
"""What a task holds for all of its topics together before it publishes what it has."""
STAYS: Final = (
    "What was published before stays published; the same job run again, with the same sinkName, "
    "publishes only what is missing"
)

_PASSING: Final = (Busy.code, Closed.code)
_DIVISIBLE: Final = (Malformed.code, TooLarge.code, LocalError.code)
"""Refusals of a whole call for which one of its events may be to blame."""


def make_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> DataSourceArrowWriter:
    """A writer of a table; raises LocalError for whatever will not work, before any task runs."""
    task = _plan(options, schema, overwrite=overwrite, own=())
    task.check_door()
    return TopicWriter(task)


def make_stream_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> DataSourceStreamArrowWriter:
    """A writer of a stream; Spark makes one for each of its batches, so nobody is asked here."""
    return TopicStreamWriter(_plan(options, schema, overwrite=overwrite, own=(CHECKPOINT,)))


def _plan(
    given: Mapping[str, str], schema: StructType, *, overwrite: bool, own: tuple[str, ...]
) -> WriteTask:
    options = {key.lower(): value for key, value in given.items()}
    if "path" in options:
        raise LocalError("format pulsarcast has no path: write .option('topic', 'weather').save()")
    check_known(options, (*CONNECTION, *WRITING, *own))
    if overwrite:
        raise LocalError(
            "a topic cannot be overwritten, what is published stays: write with mode('append'), "
            "a stream with outputMode('append')"
        )
    sink = options.get("sinkname", SINK).strip()
    if not sink:
        raise LocalError("sinkName is empty: leave it out, or give a name that stays the same")
    topic = options.get("topic", "").strip() or None
    columns = find_columns(schema, sink=sink, topic=topic, key_column=options.get(KEY.lower()))
    ack = _read_ack(options.get("ack", "replicated"))
    # Found here and now: other machines have neither our home nor our contexts.
    target = find_daemon(read_connection(options))
    token = None if target.token is None else Secret(target.token)
    return WriteTask(target.url, token, columns, ack)


def _read_ack(text: str) -> api.Ack:
    known: tuple[api.Ack, ...] = get_args(api.Ack)
    for ack in known:
        if text.strip().lower() == ack:
            return ack
    raise LocalError(f"ack is {' or '.join(known)}, not {text!r}")


@dataclass(frozen=True, slots=True)
class Written(WriterCommitMessage):
    """A task's word that all its rows are published."""

    rows: int


class TopicWriter(DataSourceArrowWriter):
    """Publishes a table's rows; there is nothing to commit, and nothing to undo."""

    def __init__(self, task: WriteTask) -> None:
        self._task = task

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._task!r})"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Publish what one task has."""
        return self._task.run(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Every row is published already."""

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """What was published stays: a rerun publishes only what is missing."""


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """Publishes a stream's rows; a batch that Spark replays has the same keys, and adds nothing."""

    def __init__(self, task: WriteTask) -> None:
        self._task = task

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._task!r})"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Publish what one task has of a batch."""
        return self._task.run(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Every row is published already."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """What was published stays: the batch that is run again publishes what is missing."""


@dataclass(frozen=True, slots=True)
class WriteTask:
    """All that a task needs to know; it travels to the executors."""

    url: str
    token: Secret | None = field(repr=False)
    columns: Columns
    ack: api.Ack
    patience_s: float = PATIENCE_S

    def check_door(self) -> None:
        """Publish nothing: a wrong address, token or topic is better known before tasks run."""
        if self.columns.topic is not None:
            with Client(self.url, self.token) as client:
                client.publish_many(self.columns.topic, (), ack=self.ack)

    def run(self, batches: Iterator[pa.RecordBatch]) -> Written:
        """Publish all rows, those of a topic in their order."""
        rows = held_bytes = 0
        waiting: dict[str, _Waiting] = {}
        with Client(self.url, self.token) as client:
            publisher = Publisher(client, self.ack, self.patience_s)
            for batch in batches:
                for each in publications(self.columns, batch):
                    group = waiting.setdefault(each.topic, _Waiting())
                    if not group.has_room(each):
                        held_bytes -= group.size
                        publisher.publish(each.topic, group.take())
                    group.add(each)
                    rows += 1
                    held_bytes += each.size
                    if held_bytes > HELD_BYTES_MAX:
                        publisher.publish_all(waiting)
                        held_bytes = 0
            publisher.publish_all(waiting)
        return Written(rows)


class _Waiting:
    """Rows of one topic that will go with one call."""

    def __init__(self) -> None:
        self.size = 0
        self._rows: list[Publication] = []

    def has_room(self, row: Publication) -> bool:
        rows = self._rows
        return not rows or (len(rows) < api.BATCH_MAX and self.size + row.size <= BODY_BYTES)

    def add(self, row: Publication) -> None:
        self._rows.append(row)
        self.size += row.size

    def take(self) -> list[Publication]:
        rows, self._rows, self.size = self._rows, [], 0
        return rows


class Publisher:
    """Publishes through a daemon that may be busy, restart, or refuse.

    Whatever is sent again has the same keys. Where a node that asks others to publish is busy in
    the middle of a call, the rows that it refused are sent again behind those it took.
    """

    def __init__(self, client: Client, ack: api.Ack, patience_s: float) -> None:
        self._client = client
        self._ack: api.Ack = ack
        self._patience_s = patience_s
        self._found: set[str] = set()
        """Topics that the daemon knew: one that it has lost sight of in a restart comes back."""

    def publish_all(self, waiting: dict[str, _Waiting]) -> None:
        """Publish what is held for all topics."""
        for topic, group in waiting.items():
            self.publish(topic, group.take())
        waiting.clear()

    def publish(self, topic: str, rows: list[Publication]) -> None:
        """Publish rows of one topic; returns when the daemon has promised all of them."""
        backoff = Backoff(self._patience_s)
        while rows:
            try:
                events = [row.event for row in rows]
                # Patience is ours: also for a daemon that we have not met, which may be restarting.
                found = self._client.publish_many(topic, events, ack=self._ack, patience_s=0.0)
            except PulsarcastError as error:
                if _may_be_one(error) and len(rows) > 1:
                    middle = len(rows) // 2
                    self.publish(topic, rows[:middle])
                    rows = rows[middle:]
                    continue
                if not self._will_pass(topic, error):
                    _fail(topic, rows[0], str(error))
                reason, after_s = str(error), after_s_of(error)
            else:
                self._found.add(topic)
                left, reason, after_s = _still_waiting(topic, rows, found)
                if len(left) < len(rows):
                    backoff = Backoff(self._patience_s)
                rows = left
                if not rows:
                    return
            delay_s = backoff.failed(time.monotonic(), after_s)
            if delay_s is None:
                _fail(topic, rows[0], f"gave up after {self._patience_s:.0f} s: {reason}")
            time.sleep(delay_s)

    def _will_pass(self, topic: str, error: PulsarcastError) -> bool:
        is_lost = isinstance(error, TopicNotFound)
        return is_passing(error) or (is_lost and topic in self._found)


def _may_be_one(error: PulsarcastError) -> bool:
    return isinstance(error, LocalError) and error.code in _DIVISIBLE


def _still_waiting(
    topic: str, rows: list[Publication], results: list[api.BatchResult]
) -> tuple[list[Publication], str, float]:
    """The rows that have to be sent again, why, and when."""
    left: list[Publication] = []
    reason, after_s = "", 0.0
    for row, result in zip(rows, results, strict=True):
        if result.id is not None:
            continue
        if result.code not in _PASSING:
            _fail(topic, row, result.error)
        left.append(row)
        reason, after_s = result.error, max(after_s, result.after_s or 0.0)
    return left, reason, after_s


def _fail(topic: str, row: Publication, reason: str) -> NoReturn:
    raise LocalError(
        f"the row with the key {shown(row.key)} was not published to {topic}: {reason}. {STAYS}"
    ) from None
