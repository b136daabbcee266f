"""Reading one partition: a span of a log, page by page, on whatever executor it falls to.

A partition gives the same rows whenever it is read, or fails; only who asked for failOnDataLoss
to be false gets what is left of it. One page is in memory at a time.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from pulsarcast.client import Client, Target
from pulsarcast.client.errors import is_passing
from pulsarcast.client.following import Backoff
from pulsarcast.model.api import LogView, rules_from
from pulsarcast.model.errors import Gone, LocalError, LogChanged, NotFollowed, PulsarcastError
from pulsarcast.model.filters import FilterError, parse
from pulsarcast.model.pages import Page
from pulsarcast.model.topic_types import AttributeRule
from pulsarcast.pipeline.topics import logs
from pulsarcast.pipeline.topics.columns import TopicColumns
from pulsarcast.pipeline.topics.offsets import SourceError, Span

_log = logging.getLogger(__name__)


@dataclass
class Range(InputPartition):
    """Events of one log with start <= index < end: one task's work."""

    topic: str
    name: str
    log: str
    start: int
    end: int
    where: str | None = None
    schema: tuple[AttributeRule, ...] = ()
    """Of the topic, for the filter."""

    def __str__(self) -> str:
        return f"events {self.start} to {self.end - 1} of topic {self.name} ({self.topic})"


@dataclass(frozen=True)
class Wanted:
    """What every partition of a query has in common; travels to the executors."""

    target: Target
    fail_on_data_loss: bool
    headers: bool
    blocks: bool


def filtered_range(span: Span, log: LogView | None, where: str | None) -> Range:
    """One task's work, with the filter in place; a LocalError if it is none for the topic."""
    name = "" if log is None else log.name
    schema = () if log is None else rules_from(log.attributes)
    if where is not None:
        try:
            parse(where, schema)
        except FilterError as error:
            raise LocalError(f"where, for topic {name or span.topic}: {error}") from None
    return Range(span.topic, name, span.log, span.start, span.end, where, schema)


def read_range(wanted: Wanted, part: Range) -> Iterator[pa.RecordBatch]:
    """The rows of a partition."""
    columns = TopicColumns(
        part.topic,
        part.name,
        headers=wanted.headers,
        blocks=wanted.blocks,
        wanted=None if part.where is None else parse(part.where, part.schema),
    )
    with Client(wanted.target.url, wanted.target.token) as client:
        for page in _pages(client, wanted, part):
            yield from columns.batches(page)


def _pages(client: Client, wanted: Wanted, part: Range) -> Iterator[Page]:
    """All pages, over broken connections and restarts of the daemon."""
    start = part.start
    backoff = Backoff(logs.PATIENCE_S)
    while start < part.end:
        try:
            for page in client.log_pages(part.topic, part.log, start, part.end):
                backoff.connected()
                backoff.progressed()
                expected = start
                start = page.indices[-1] + 1
                if len(page) != start - expected:
                    raise SourceError(f"{part}: the daemon left some out. Run the query again")
                yield page
            if start < part.end:
                raise SourceError(f"{part}: the daemon's log ends before index {start}")
        except PulsarcastError as error:
            if isinstance(error, (LogChanged, Gone, NotFollowed)):
                start = _after_loss(client, wanted, part, error, start)
                continue
            if not is_passing(error):
                raise logs.explained(error) from None
            delay_s = backoff.failed(time.monotonic())
            if delay_s is None:
                raise SourceError(
                    f"{part}: the daemon was away for {logs.PATIENCE_S:.0f} s ({error}). "
                    "Nothing is lost: start the query again once the daemon is back"
                ) from None
            time.sleep(delay_s)


def _after_loss(client: Client, wanted: Wanted, part: Range, error: LocalError, start: int) -> int:
    """Where to go on behind events that went while they were read, if that was asked for."""
    if wanted.fail_on_data_loss:
        raise SourceError(
            f"{part}: {error}. Begin with a new checkpoint folder, or go on without these "
            "events with failOnDataLoss=false"
        ) from None
    goes_on = part.end
    if isinstance(error, Gone):
        view = logs.patiently(lambda: client.log(part.topic), patience_s=logs.PATIENCE_S)
        goes_on = min(max(view.oldest, start), part.end)
    _log.warning("%s: %s; going on without %d events", part, error, goes_on - start)
    return goes_on
