"""Keeping: writes accepted events to the disk, then delivers them to the application.

An event takes its number in the frontier when it is accepted, not when it is synced: the next event
must find it there. A void event takes its number too (docs/spec/pulsarcast.md, Receive).
"""

from collections.abc import Callable
from typing import Protocol

from pulsarcast.model.errors import RemoteError
from pulsarcast.model.events import EventDescriptor
from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.protocol.dissemination.overlay import Timer
from pulsarcast.protocol.store import MarkState, PutMark, Write
from pulsarcast.protocol.topic.flow import FlowControl
from pulsarcast.protocol.topic.handovers import Handovers
from pulsarcast.protocol.topic.state import TopicState


class KeepingOwner(Protocol):
    """Asked of the topic whose events are kept."""

    def arrived(self, event: EventDescriptor) -> None:
        """An event is on the disk."""

    def began(self, publisher: PeerId, epoch: int) -> None:
        """The first event of a numbering is here, and parts of the start are still missing."""

    def want_version(self, version: Cid, sender: PeerId) -> None:
        """The version whose sequencers are in force at an event's position is unknown."""


class Keeping:
    """Writes one topic's events into the log, in their order."""

    __slots__ = (
        "_certificates",
        "_flow",
        "_frontier",
        "_handovers",
        "_heartbeat",
        "_owner",
        "_state",
        "_turn",
    )

    def __init__(
        self,
        state: TopicState,
        handovers: Handovers,
        flow: FlowControl,
        heartbeat: Timer,
        owner: KeepingOwner,
    ) -> None:
        self._state = state
        self._turn = state.context.turn
        self._frontier = state.frontier
        self._certificates = state.certificates
        self._handovers = handovers
        self._flow = flow
        self._heartbeat = heartbeat
        self._owner = owner

    def accept(self, event: EventDescriptor, hops: int) -> None:
        """Put an event on the disk and deliver it from there."""
        try:
            if self._state.causal is not None:
                self._state.causal.check_links(event)
        except RemoteError as error:
            # It waited for the parent that it names falsely. The caller accepts the events that
            # waited for it next: accepting them here would recurse once per event.
            self._take_number(event)
            self._rejected(event.publisher, error)
            return
        if event.is_ordered and not self._may_count(event):
            return
        mark = self._add(event)
        if _is_request(event) and not self._state.requests.is_first(event):
            self._state.context.counts["request_deduplicated"] += 1
            certificate = self._certificates.pop(event.cid, b"")
            self._state.log.append_undelivered(event, mark, certificate)
            return
        self.keep(event, mark, hops, then=None)

    def _may_count(self, event: EventDescriptor) -> bool:
        """Whether an event's sequencers are in force: it may have waited for their handover."""
        try:
            lacking = self._handovers.unknown_version(event)
            if lacking is not None:
                self._owner.want_version(lacking, event.publisher)
                return False
            self._state.writing.persist(*self._handovers.taken(event))
        except RemoteError as error:
            self._certificates.pop(event.cid, None)
            self._rejected(event.publisher, error)
            return False
        return True

    def _rejected(self, publisher: PeerId, error: RemoteError) -> None:
        self._state.context.rejected(publisher, self._state.id, error)

    def accept_waiting(self, publisher: PeerId, epoch: int) -> None:
        """Accept the events that waited for the one just accepted.

        An event that is out of place is its publisher's fault, not that of the event, timer or
        flush that moved the frontier.
        """
        while True:
            try:
                found = self._state.ordering.next_of(publisher, epoch)
            except RemoteError as error:
                self._rejected(publisher, error)
                continue
            if found is None:
                return
            self.accept(*found)

    def keep(
        self,
        event: EventDescriptor,
        mark: MarkState,
        hops: int,
        then: Callable[[], None] | None,
        *more: Write,
    ) -> None:
        """Write an event into the log; once it is synced, deliver it and do `then`."""
        is_request = _is_request(event)
        writes = list(more)
        if self._state.barrier is not None:
            writes += self._state.barrier.take(event)
        if is_request:
            writes.append(self._state.requests.row(event))

        def synced(index: int) -> None:
            self._flow.synced()
            if then is not None:
                then()
            if self._state.halted is None:
                self._state.log.deliver(index, event, hops)
            self._owner.arrived(event)

        self._state.log.append(
            event,
            mark,
            *writes,
            asked_for=is_request or event.author == self._turn.me,
            certificate=self._certificates.pop(event.cid, b""),
            then=synced,
        )
        self._heartbeat.hurry()

    def void(self, event: EventDescriptor) -> None:
        """Take the number of an event that no node delivers, or it would be a gap for ever."""
        self._take_number(event)
        self.accept_waiting(event.numbered_by, event.sequence.epoch)

    def _take_number(self, event: EventDescriptor) -> None:
        self._state.writing.persist(PutMark(self._state.id, self._add(event)))

    def _add(self, event: EventDescriptor) -> MarkState:
        frontier, source = self._frontier, (event.numbered_by, event.sequence.epoch)
        if frontier.missing and frontier.mark(*source) is None:
            self._owner.began(*source)
        return frontier.add(event.numbered_by, *event.sequence, event.cid)


def _is_request(event: EventDescriptor) -> bool:
    """Whether an event answers a request: several sequencers publish requests only."""
    if event.hands_over_to is not None:
        return False
    return event.author != event.publisher or event.is_ordered
