"""Arrivals: an event's way into a topic that we follow (design 6).

An event that arrives is known by its number, judged by the topic's version, passed on as the same
bytes, held back until its turn, put on the disk, and only then delivered. So whatever was delivered
is on our disk, and a redelivery after a crash can be marked as one.
"""

from collections import Counter
from collections.abc import Callable

from pulsarcast.model.certificates import check_certificate
from pulsarcast.model.errors import Rejection, RemoteError, Verdict
from pulsarcast.model.events import EventDescriptor
from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.protocol.dissemination.overlay import Overlay
from pulsarcast.protocol.messages import EventMessage
from pulsarcast.protocol.topic.causality import CausalOrdering
from pulsarcast.protocol.topic.equivocation import Equivocation
from pulsarcast.protocol.topic.flow import FlowControl
from pulsarcast.protocol.topic.frontier import Frontier
from pulsarcast.protocol.topic.handovers import Handovers
from pulsarcast.protocol.topic.keeping import Keeping
from pulsarcast.protocol.topic.ordering import Ordering
from pulsarcast.protocol.topic.parking import Parked, Parking
from pulsarcast.protocol.topic.recovery import Recovery
from pulsarcast.protocol.topic.versions import Versions
from pulsarcast.protocol.turn import Turn

HOPS_MAX = 255
"""Hops are counted up to here; they are nobody's proof of anything."""


class Arrivals:
    """Takes one topic's events in, from wherever they come."""

    def __init__(
        self,
        versions: Versions,
        turn: Turn,
        frontier: Frontier,
        ordering: Ordering,
        overlay: Overlay,
        *,
        flow: FlowControl,
        equivocation: Equivocation,
        handovers: Handovers,
        keeping: Keeping,
        recovery: Recovery,
        has_started: Callable[[], bool],
        decode: Callable[[bytes], EventDescriptor],
        want_version: Callable[[Cid, PeerId], None],
        met_own: Callable[[EventDescriptor, PeerId], None],
        rejected: Callable[[PeerId, Cid, RemoteError], None],
        counts: Counter[str],
    ) -> None:
        self._topic: Cid = versions.first.cid
        self._is_sequenced = versions.first.is_sequenced
        self._versions = versions
        self._turn = turn
        self._frontier = frontier
        self._ordering = ordering
        self._causal = ordering if isinstance(ordering, CausalOrdering) else None
        self._overlay = overlay
        self._flow = flow
        self._equivocation = equivocation
        self._handovers = handovers
        self._keeping = keeping
        self._recovery = recovery
        self._has_started = has_started
        """Whether we know where our subscription begins, and so what is due to us."""
        self._decode = decode
        self._want_version = want_version
        self._met_own = met_own
        self._rejected = rejected
        self._counts = counts
        self._parking = Parking()

    @property
    def parked_count(self) -> int:
        """How many events wait for a version that we do not know."""
        return len(self._parking)

    def count(self, sender: PeerId) -> None:
        """A neighbour has passed an event on: it has used credit, whatever becomes of the event."""
        link = self._overlay.links.get(sender)
        if link is not None:
            self._flow.took_from(sender, link)
        else:
            self._overlay.receive_from_stranger(sender)

    def receive_live(
        self, event: EventDescriptor, sender: PeerId, hops: int, certificate: bytes
    ) -> None:
        """Take an event in that a neighbour passed on, or that its publisher hands in."""
        self.receive(event, sender, hops or 1, certificate, passed_on=hops > 0)

    def receive(
        self,
        event: EventDescriptor,
        sender: PeerId,
        hops: int,
        certificate: bytes = b"",
        *,
        passed_on: bool = False,
    ) -> None:
        """Take an event in, from wherever it comes; `passed_on`: through the overlay."""
        if not self._has_started() or self._equivocation.halted is not None:
            return
        if self._equivocation.knows(event, certificate):
            return
        source, (epoch, number) = event.numbered_by, event.sequence
        if self._frontier.is_full(source, epoch, number):
            return
        if event.version not in self._versions.by_cid:
            self._park(Parked(event, sender, hops, certificate, passed_on))
            return
        if self._is_sequenced and not self._is_proven(event, sender, certificate):
            return
        try:
            self._versions.judge(event)
        except RemoteError as error:
            if error.verdict is Verdict.IGNORE:
                self._keeping.void(event)
            raise
        self._keeping.check_links(event)
        if source == self._turn.me:
            self._met_own(event, sender)
        missing = self._frontier.gap_before(source, epoch, number)
        in_turn = self._ordering.offer(event, hops)
        if certificate and (in_turn or self._ordering.held_back(source, epoch, number)):
            self._keeping.certified(event, certificate)
        message = EventMessage(event.block, min(hops, HOPS_MAX - 1) + 1, certificate)
        self._overlay.forward(message, source=sender, passed_on=passed_on)
        if in_turn:
            self._keeping.accept(event, hops)
            if len(self._ordering):
                self._keeping.accept_waiting(source, epoch)
        if missing is not None:
            self._recovery.gap(source, epoch, missing, sender)
        if self._causal is not None and not in_turn:
            for mark, cid in self._causal.lacking(event):
                self._counts["parent_missing"] += 1
                self._recovery.parent_missing(mark, cid, event.publisher, sender)

    def _is_proven(self, event: EventDescriptor, sender: PeerId, certificate: bytes) -> bool:
        """Where several sequencers agree, nothing is taken in without a certificate (design 7).

        Whoever published it. A copy from the DHT has none: whoever holds the event in the topic has
        it with both.
        """
        if certificate:
            check_certificate(self._versions.sequencers_of(event), event, certificate)
            return self._handovers.is_judged(event, sender)
        self._versions.judge(event)
        number = event.sequence.number
        place = (event.numbered_by, event.sequence.epoch)
        self._recovery.gap(*place, (self._frontier.high(*place) + 1, number), sender)
        return False

    def take_recovered(self, block: bytes, sender: PeerId, certificate: bytes = b"") -> None:
        """A fetched event is taken in, and so passed on, like a new one."""
        try:
            event = self._decode(block)
            if event.topic != self._topic:
                raise RemoteError("an answer from another topic", code=Rejection.WRONG_TOPIC)
            self._counts["recovered"] += 1
            self.receive(event, sender, 1, certificate)
        except RemoteError as error:
            self._rejected(sender, self._topic, error)

    # Versions that we do not know.

    def _park(self, parked: Parked) -> None:
        """Keep an event aside until the version it names is known."""
        if self._parking.add(parked):
            self._want_version(parked.event.version, parked.sender)

    def unpark(self, version: Cid) -> None:
        """A version became known, or will not: look again at what waited for it."""
        parked = self._parking.take(version)
        if version not in self._versions.by_cid:
            return
        for event, sender, hops, certificate, passed_on in parked:
            try:
                self.receive(event, sender, hops, certificate, passed_on=passed_on)
            except RemoteError as error:
                self._rejected(sender, self._topic, error)
