"""Retirement: drops events for good, by the topic's retention or its author's flush.

Retention is by age, count or bytes; a flush is up to marks that a version names. A retired event
counts as delivered, and a node that lacks it waits for it no longer. `recovery` decides which gaps
may be skipped (docs/spec/pulsarcast.md, Retention and flush).
"""

from collections.abc import Iterator

from pulsarcast.model import trace
from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.model.topics import DeliveryOrder, Mark, NamedMarks, TopicDescriptor
from pulsarcast.protocol.store import (
    DropEvents,
    Events,
    LoadLog,
    LoadOldest,
    MarkState,
    Oldest,
    PutMark,
)
from pulsarcast.protocol.topic.keeping import Keeping
from pulsarcast.protocol.topic.log import PAGE
from pulsarcast.protocol.topic.state import TopicState


class Retirement:
    """Drops the events that one topic no longer keeps."""

    __slots__ = (
        "_causal",
        "_context",
        "_frontier",
        "_keeping",
        "_kept_index",
        "_log",
        "_state",
        "_timer",
        "_topic",
        "_turn",
        "_versions",
    )

    def __init__(self, state: TopicState, keeping: Keeping) -> None:
        self._state = state
        self._context = state.context
        self._turn = state.context.turn
        self._topic: Cid = state.id
        self._versions = state.versions
        self._frontier = state.frontier
        self._log = state.log
        self._causal = state.causal
        self._keeping = keeping
        self._timer: int | None = None
        self._kept_index = 0
        """The newest index when retention last ran: only events up to it may be dropped.

        So every event is kept for a while, and a member that is a little behind can fetch it.
        """

    @property
    def is_idle(self) -> bool:
        """Whether the topic keeps its events for good."""
        return self._timer is None

    def start(self) -> None:
        """Run retention from now on, as the newest version sets it."""
        self._turn.cancel(self._timer)
        self._timer = None
        if self._versions.current.retention.is_limited:
            delay = self._turn.jitter(self._context.parameters.retention_interval_s)
            self._timer = self._turn.after(delay, self._retain)

    def stop(self) -> None:
        """The topic is being left."""
        self._turn.cancel(self._timer)

    def begin(self) -> list[MarkState]:
        """Events that a known version flushed lie before the start; returns what that changes.

        Where a part of the start frontier is missing, that waits until it is loaded.
        """
        changed: list[MarkState] = []
        for version in self._versions.all():
            for mark in self._unretired(version.flushed):
                changed.append(self._frontier.retire(*mark))
                self._keeping.accept_waiting(mark.publisher, mark.epoch)
        return changed

    def _unretired(self, flushed: NamedMarks) -> Iterator[Mark]:
        """The marks of a flush that change something."""
        for mark in flushed if isinstance(flushed, tuple) else ():
            known = self._frontier.mark(mark.publisher, mark.epoch)
            is_new = known is None or known.retired < mark.number
            if is_new and self._frontier.missing_at(mark.publisher, mark.epoch) is None:
                yield mark

    def adopt(self, version: TopicDescriptor) -> None:
        """A newer version may flush, and change the retention."""
        if isinstance(version.flushed, tuple) and version.flushed:
            for mark in version.flushed:
                self.retire(*mark)
            self.drop_retired()
        self.start()

    def flush(self, index: Cid, page: tuple[Mark, ...]) -> None:
        """A page of the frontier is read up to which a version flushes."""
        marks = list(self._unretired(page))
        if not marks:
            return
        for version in self._versions.all():
            if version.flushed == index:
                self._turn.trace(said_of(version, page))
        changed = [PutMark(self._topic, self._retire_mark(*mark)) for mark in marks]
        self._state.writing.persist(*changed)
        for mark in marks:
            self._keeping.accept_waiting(mark.publisher, mark.epoch)

    def retire(self, publisher: PeerId, epoch: int, number: int) -> None:
        """Events up to a number are gone for good: they count as delivered."""
        if self._frontier.missing_at(publisher, epoch) is not None:
            return
        mark = self._retire_mark(publisher, epoch, number)
        self._state.writing.persist(PutMark(self._topic, mark))
        if self._versions.current.delivery_order is not DeliveryOrder.NONE:
            self._keeping.accept_waiting(publisher, epoch)

    def _retire_mark(self, publisher: PeerId, epoch: int, number: int) -> MarkState:
        if self._log.subscribed and self._frontier.high(publisher, epoch) < number:
            self._turn.trace(trace.Retired(self._topic, publisher, epoch, number))
        return self._frontier.retire(publisher, epoch, number)

    def needed(self, publisher: PeerId, epoch: int) -> int:
        """The highest number of a numbering that events of others wait for."""
        return 0 if self._causal is None else self._causal.needed(publisher, epoch)

    def excuse(self, publisher: PeerId, epoch: int, number: int) -> None:
        """Parents of waiting events are retired: the events wait no longer.

        The frontier does not cover them. Only the events that name them say that they existed, and
        no publisher may make the node skip numbers that another has yet to publish.
        """
        assert self._causal is not None, "only in causal order do events wait for parents"
        if self._log.subscribed:
            self._turn.trace(trace.Retired(self._topic, publisher, epoch, number))
        self._causal.excuse(publisher, epoch, number)
        self._keeping.accept_waiting(publisher, epoch)

    # The log.

    def drop_retired(self, first: int = 1) -> None:
        """Drop the beginning of the log as far as it is retired, page by page."""

        def found(page: Events) -> None:
            if self._state.ended:
                return
            last = 0
            for index, event in page.events:
                mark = self._frontier.mark(event.numbered_by, event.sequence.epoch)
                if mark is None or event.sequence.number > mark.retired:
                    break
                last = index
            if last:
                self._state.writing.persist(DropEvents(self._topic, last))
            if page.events and last == page.events[-1][0]:
                self.drop_retired(last + 1)

        self._turn.load(LoadLog(self._topic, first, PAGE), Events, found)

    def _retain(self) -> None:
        """Drop the events beyond the topic's retention."""
        retention = self._versions.current.retention
        age_us = (
            None if retention.age_s is None else self._turn.wall_us - retention.age_s * 1_000_000
        )
        # Events that the application has not been given are never dropped.
        index_max = min(self._kept_index, self._log.delivered if self._log.subscribed else 1 << 62)
        self._kept_index = self._log.newest
        query = LoadOldest(self._topic, retention.count, retention.bytes, age_us, index_max)
        self._turn.load(query, Oldest, self._drop_oldest)
        self.start()

    def _drop_oldest(self, oldest: Oldest) -> None:
        if oldest.index < 1 or self._state.ended:
            return
        self._context.counts["retention"] += 1
        # Dropping a number beyond a gap does not retire the numbers of the gap.
        marks = [
            self._retire_mark(publisher, epoch, min(number, self._frontier.high(publisher, epoch)))
            for publisher, epoch, number in oldest.floors
        ]
        self._state.writing.persist(
            DropEvents(self._topic, oldest.index), *(PutMark(self._topic, mark) for mark in marks)
        )


def said_of(version: TopicDescriptor, flushed: tuple[Mark, ...]) -> trace.TopicVersion:
    """What the trace says of a version that the node adopts, or of a page that it flushes."""
    retention = version.retention
    return trace.TopicVersion(
        version.topic,
        version.cid,
        version.number,
        version.allowed_publishers,
        retention.age_s,
        retention.count,
        retention.bytes,
        flushed,
    )
