"""Retirement: what the topic's retention or its author's flush lets go of, for good.

By age, count or bytes, or up to a place that a version names. What is retired counts as delivered,
and whoever lacks it waits for it no longer. Which gaps may be skipped, `recovery` decides
(docs/spec/pulsarcast.md, Retention and flush).
"""

from pulsarcast.model import trace
from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.model.topics import DeliveryOrder, TopicDescriptor
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
    """Drops what one topic no longer keeps."""

    def __init__(self, state: TopicState, keeping: Keeping) -> None:
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
        """What our log held when retention was last looked at: only that may be dropped.

        So every event is kept for a while, and whoever is a little behind can still fetch it.
        """

    def start(self) -> None:
        """Look after retention from now on, as the newest version wants it."""
        self._turn.cancel(self._timer)
        self._timer = None
        if self.has_retention():
            delay = self._turn.jitter(self._context.parameters.retention_interval_s)
            self._timer = self._turn.after(delay, self._retain)

    def stop(self) -> None:
        """The topic is being left."""
        self._turn.cancel(self._timer)

    def has_retention(self) -> bool:
        """Whether the topic lets go of anything by itself."""
        retention = self._versions.current.retention
        return (retention.age_s, retention.count, retention.bytes) != (None, None, None)

    def begin(self) -> None:
        """What a version flushed that we knew before our start lies before it."""
        for version in self._versions.all():
            for mark in version.flushed:
                self._frontier.retire(mark.publisher, mark.epoch, mark.number)
                self._keeping.accept_waiting(mark.publisher, mark.epoch)

    def adopt(self, version: TopicDescriptor) -> None:
        """A newer version may flush, and change what is kept."""
        for mark in version.flushed:
            self.retire(mark.publisher, mark.epoch, mark.number)
        if version.flushed:
            self._drop_retired(1)
        self.start()

    def retire(self, publisher: PeerId, epoch: int, number: int) -> None:
        """Events up to a number are gone for good: they count as delivered."""
        self._turn.persist(PutMark(self._topic, self._retire_mark(publisher, epoch, number)))
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
        """What others wait for is retired: they wait no longer.

        We do not count it as ours. That it ever existed we know only from those who name it, and
        nobody shall make us skip what its publisher has yet to publish.
        """
        assert self._causal is not None, "only there anything waits for another's event"
        if self._log.subscribed:
            self._turn.trace(trace.Retired(self._topic, publisher, epoch, number))
        self._causal.excuse(publisher, epoch, number)
        self._keeping.accept_waiting(publisher, epoch)

    # Our log.

    def _drop_retired(self, first: int) -> None:
        """Forget the beginning of our log as far as it is retired, page by page."""

        def found(page: Events) -> None:
            last = 0
            for index, event in page.events:
                mark = self._frontier.mark(event.numbered_by, event.sequence.epoch)
                if mark is None or event.sequence.number > mark.retired:
                    break
                last = index
            if last:
                self._turn.persist(DropEvents(self._topic, last))
            if page.events and last == page.events[-1][0]:
                self._drop_retired(last + 1)

        self._turn.load(LoadLog(self._topic, first, PAGE), Events, found)

    def _retain(self) -> None:
        """Drop what the topic's retention no longer asks us to keep."""
        retention = self._versions.current.retention
        age_us = (
            None if retention.age_s is None else self._turn.wall_us - retention.age_s * 1_000_000
        )
        # What the application has not seen yet is never dropped under its feet.
        index_max = min(self._kept_index, self._log.delivered if self._log.subscribed else 1 << 62)
        self._kept_index = self._log.newest
        query = LoadOldest(self._topic, retention.count, retention.bytes, age_us, index_max)
        self._turn.load(query, Oldest, self._drop_oldest)
        self.start()

    def _drop_oldest(self, oldest: Oldest) -> None:
        if oldest.index < 1:
            return
        self._context.counts["retention"] += 1
        # A number before a gap of ours is not retired because we let go of one behind it.
        marks = [
            self._retire_mark(publisher, epoch, min(number, self._frontier.high(publisher, epoch)))
            for publisher, epoch, number in oldest.floors
        ]
        self._turn.persist(
            DropEvents(self._topic, oldest.index), *(PutMark(self._topic, mark) for mark in marks)
        )
