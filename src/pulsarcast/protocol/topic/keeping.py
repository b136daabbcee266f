"""Keeping: events whose turn has come go to the disk, and from there to the application (design 6).

An event takes its number in our frontier when it is accepted, not when it is synced: what comes
next must know of it. One that nobody delivers takes its number too.
"""

from collections import Counter
from collections.abc import Callable, Iterable

from pulsarcast.model.errors import RemoteError
from pulsarcast.model.events import EventDescriptor
from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.protocol.dissemination.overlay import Conversation
from pulsarcast.protocol.store import MarkState, PutMark, Write
from pulsarcast.protocol.topic.barrier import CausalBarrier
from pulsarcast.protocol.topic.causality import CausalOrdering
from pulsarcast.protocol.topic.equivocation import Equivocation
from pulsarcast.protocol.topic.flow import FlowControl
from pulsarcast.protocol.topic.frontier import Frontier
from pulsarcast.protocol.topic.handovers import Handovers
from pulsarcast.protocol.topic.log import TopicLog
from pulsarcast.protocol.topic.ordering import Ordering
from pulsarcast.protocol.topic.published_requests import PublishedRequests
from pulsarcast.protocol.turn import Turn


class Keeping:
    """Takes one topic's events into our log, in their order."""

    def __init__(
        self,
        topic: Cid,
        turn: Turn,
        frontier: Frontier,
        ordering: Ordering,
        barrier: CausalBarrier | None,
        requests: PublishedRequests,
        log: TopicLog,
        *,
        equivocation: Equivocation,
        handovers: Handovers,
        flow: FlowControl,
        heartbeat: Conversation,
        arrived: Callable[[EventDescriptor], None],
        rejected: Callable[[PeerId, Cid, RemoteError], None],
        counts: Counter[str],
    ) -> None:
        self._topic = topic
        self._turn = turn
        self._frontier = frontier
        self._ordering = ordering
        self._causal = ordering if isinstance(ordering, CausalOrdering) else None
        self._barrier = barrier
        self._requests = requests
        self._log = log
        self._equivocation = equivocation
        self._handovers = handovers
        self._flow = flow
        self._heartbeat = heartbeat
        self._arrived = arrived
        self._rejected = rejected
        self._counts = counts
        self._certificates: dict[Cid, bytes] = {}
        """Those of events on their way into our log."""

    def certified(self, event: EventDescriptor, certificate: bytes) -> None:
        """An event that was taken in, or waits, has a certificate: keep the two together."""
        self._certificates[event.cid] = certificate

    def check_links(self, event: EventDescriptor) -> None:
        """An event that calls another what it is not is nobody's to deliver, and takes its number.

        Whether the other is known differs from node to node. Where one delivers the liar and links
        to it, those who know better must not wait for ever.
        """
        if self._causal is None:
            return
        try:
            self._causal.check_links(event)
        except RemoteError:
            self.void(event)
            raise

    def accept(self, event: EventDescriptor, hops: int) -> None:
        """Put an event on the disk and deliver it from there."""
        try:
            if self._causal is not None:
                self._causal.check_links(event)
        except RemoteError as error:
            # It waited for the one about which it lies. Those that waited for it have their turn
            # next, like behind any other: one inside the other, they would be as many as frames.
            self._take_number(event)
            self._rejected(event.publisher, self._topic, error)
            return
        if event.is_ordered and not self._may_count(event):
            return
        mark = self._frontier.add(event.numbered_by, *event.sequence, event.cid)
        if _is_request(event) and not self._requests.is_first(event):
            self._counts["request_deduplicated"] += 1
            self._log.append_undelivered(event, mark, self._certificates.pop(event.cid, b""))
            return
        self.keep(event, mark, hops, then=None)

    def _may_count(self, event: EventDescriptor) -> bool:
        """It may have waited for the handover that ends what its sequencers have to say."""
        try:
            if not self._handovers.is_judged(event, event.publisher):
                return False
            self._turn.persist(*self._handovers.taken(event))
        except RemoteError as error:
            self._certificates.pop(event.cid, None)
            self._rejected(event.publisher, self._topic, error)
            return False
        return True

    def accept_waiting(self, publisher: PeerId, epoch: int) -> None:
        """Events that waited for the one just accepted have their turn now.

        Whatever moved us on, a timer or a flush too, is not to blame for one that is out of place.
        """
        while True:
            try:
                found = self._ordering.next_of(publisher, epoch)
            except RemoteError as error:
                self._rejected(publisher, self._topic, error)
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
        """Write an event into our log; once it is synced, deliver it and do `then`."""
        is_request = _is_request(event)
        writes = list(more)
        if self._barrier is not None:
            writes += self._barrier.take(event)
        if is_request:
            writes.append(self._requests.row(event))

        def synced(index: int) -> None:
            self._flow.synced()
            if then is not None:
                then()
            if self._equivocation.halted is None:
                self._log.deliver(index, event, hops)
            self._arrived(event)

        self._log.append(
            event,
            mark,
            *writes,
            asked_for=is_request or event.author == self._turn.me,
            certificate=self._certificates.pop(event.cid, b""),
            then=synced,
        )
        self._heartbeat.hurry()

    def void(self, event: EventDescriptor) -> None:
        """An event that nobody delivers still takes its number, or it would be a gap for ever.

        We do not pass it on: one who joins late may not know yet that its publisher lost the right.
        """
        self._take_number(event)
        self.accept_waiting(event.numbered_by, event.sequence.epoch)

    def _take_number(self, event: EventDescriptor) -> None:
        mark = self._frontier.add(event.numbered_by, *event.sequence, event.cid)
        self._turn.persist(PutMark(self._topic, mark))

    def start_at(self, marks: Iterable[MarkState]) -> None:
        """Begin where another stands: nothing that it had by then is due to us."""
        for mark in marks:
            self._frontier.begin_at(mark)
            self.accept_waiting(mark.publisher, mark.epoch)


def _is_request(event: EventDescriptor) -> bool:
    """Whether others may ask what became of it: several sequencers publish requests only."""
    if event.hands_over_to is not None:
        return False
    return event.author != event.publisher or event.is_ordered
