"""Topics as a stream: batch by batch, exactly once, from wherever the checkpoint says.

One process on the driver plans the batches of a query for as long as it runs; `read` happens on
executors, which know of a batch only what its partitions say.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from pulsarcast.model.api import LogView
from pulsarcast.model.errors import LocalError
from pulsarcast.pipeline.topics.beginning import starting
from pulsarcast.pipeline.topics.logs import TopicLogs, find_daemon
from pulsarcast.pipeline.topics.offsets import (
    Loss,
    Offsets,
    Place,
    Span,
    advance,
    from_json,
    gone_since,
    make_offsets,
    refuse,
    spans_between,
    split,
    to_json,
)
from pulsarcast.pipeline.topics.options import LATEST, ReadOptions
from pulsarcast.pipeline.topics.reading import Range, Wanted, filtered_range, read_range

POLL_S: Final = 0.2
"""Where nothing is new Spark asks again after 10 ms; the daemon has other things to do."""

_log = logging.getLogger(__name__)


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics as they grow."""

    def __init__(self, options: ReadOptions) -> None:
        if options.ending is not None:
            raise LocalError("endingOffsets is for batches: a stream has no end. Take it out")
        self._options = options
        self._target = find_daemon(options.connection)
        self._wanted = Wanted(
            self._target, options.fail_on_data_loss, options.headers, options.blocks
        )
        self._logs: TopicLogs | None = None
        self._latest: dict[str, LogView] = {}
        """The logs as we saw them last."""
        self._target_logs: dict[str, LogView] | None = None
        """Where to stop, for a query that reads what is there and ends."""
        self._idle_since_s: float | None = None
        self._warned: set[tuple[str, str]] = set()
        self._unread: set[str] = set()

    def __getstate__(self) -> dict[str, Any]:
        """Executors read only: connections and what was seen stay on the driver."""
        return {**self.__dict__, "_logs": None, "_latest": {}}

    # What Spark asks, in its own words.

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where a query begins that has no checkpoint yet."""
        wanted = LATEST if self._options.starting is None else self._options.starting
        logs = self._opened()
        found = logs.find(from_start=wanted != LATEST, is_strict=False, has_met=False)
        indices, losses = starting(found, wanted, logs.resolve)
        self._judge(losses)
        places = {topic: Place(found.logs[topic].log, index) for topic, index in indices.items()}
        return to_json(make_offsets(_store(found.logs), places))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """How much the user wants in a batch."""
        room = self._options.offsets_per_trigger_max
        return ReadAllAvailable() if room is None else ReadMaxRows(room)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Read what is there now, and no more."""
        self._target_logs = self._look()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The end of the next batch; `start` itself where there is nothing new."""
        before = from_json(start)
        room = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        self._rest()
        logs = self._until_target(self._look())
        self._tell_unread(before, logs)
        end, losses = advance(before, logs, room)
        self._judge(losses)
        if end is before:
            self._idle_since_s = time.monotonic()
            return start
        self._idle_since_s = None
        return to_json(end)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """How far the daemon has got, for the query's progress."""
        if not self._latest:
            return None
        places = {topic: Place(log.log, log.newest + 1) for topic, log in self._latest.items()}
        return to_json(make_offsets(_store(self._latest), places))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """A batch in pieces for one task each."""
        until = from_json(end)
        spans = spans_between(from_json(start), until)
        if not spans:
            return []
        if any(span.topic not in self._latest for span in spans):
            self._look()
        logs = self._logs_of(spans)
        spans = self._still_there(until, spans, logs)
        options = self._options
        pieces = split(spans, options.records_per_partition_max, options.partitions_min)
        return [filtered_range(each, logs.get(each.topic), options.where) for each in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One partition."""
        if not isinstance(partition, Range):
            return iter(())
        return read_range(self._wanted, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to do: a node keeps its log for as long as retention says, whoever read it."""

    def stop(self) -> None:
        """The query has ended."""
        if self._logs is not None:
            self._logs.close()

    # Within.

    def _opened(self) -> TopicLogs:
        if self._logs is None:
            self._logs = TopicLogs(self._target, self._options.topics)
        return self._logs

    def _look(self) -> dict[str, LogView]:
        # Whatever is new since the query began is read from its start.
        found = self._opened().find(from_start=True, is_strict=False, has_met=True)
        self._latest = found.logs
        return found.logs

    def _rest(self) -> None:
        if self._idle_since_s is not None:
            left_s = self._idle_since_s + POLL_S - time.monotonic()
            time.sleep(max(0.0, left_s))

    def _until_target(self, logs: dict[str, LogView]) -> dict[str, LogView]:
        """The logs as far as a query that ends may read them."""
        if self._target_logs is None:
            return logs
        found: dict[str, LogView] = {}
        for topic, log in logs.items():
            if topic not in self._target_logs:
                continue
            if log.log != self._target_logs[topic].log:
                # Counted anew: the first look at it is the target now.
                self._target_logs[topic] = log
            newest = min(log.newest, self._target_logs[topic].newest)
            found[topic] = msgspec.structs.replace(log, newest=newest)
        return found

    def _logs_of(self, spans: list[Span]) -> dict[str, LogView]:
        """The logs of a batch, which may be older than the user's choice of topics."""
        found = dict(self._latest)
        for topic in dict.fromkeys(span.topic for span in spans):
            log = found.get(topic) or self._opened().log_of(topic)
            if log is not None:
                found[topic] = log
        return found

    def _still_there(
        self, until: Offsets, spans: list[Span], logs: dict[str, LogView]
    ) -> list[Span]:
        """What of a batch can be read; what cannot is an error, or is left out where allowed."""
        found: list[Span] = []
        for span in spans:
            log = logs.get(span.topic)
            loss = None if log is None else gone_since(until.store, span, log)
            if loss is None or log is None:
                found.append(span)
                continue
            self._judge([loss])
            if log.log == span.log and log.oldest < span.end:
                found.append(Span(span.topic, span.log, log.oldest, span.end))
        return found

    def _judge(self, losses: Iterable[Loss]) -> None:
        """Fail where events are lost, or say so, once."""
        if self._options.fail_on_data_loss:
            refuse(losses)
        for loss in losses:
            if (loss.topic, loss.reason) not in self._warned:
                self._warned.add((loss.topic, loss.reason))
                _log.warning("%s. The query goes on %s", loss.reason, loss.goes_on)

    def _tell_unread(self, before: Offsets, logs: dict[str, LogView]) -> None:
        for topic in before.topics.keys() - logs.keys() - self._unread:
            self._unread.add(topic)
            _log.warning("topic %s is not among the query's topics any more: it waits", topic)


def _store(logs: dict[str, LogView]) -> str:
    return next(log.store for log in logs.values())
