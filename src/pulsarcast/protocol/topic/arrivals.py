"""Arrivals: judges an event that arrives, and places it in the delivery order.

docs/spec/pulsarcast.md, Receive.

A duplicate is known by its number. An event is judged by the version that it names. The answers
are values, on which the topic acts.
"""

import enum
from typing import NamedTuple, TypeAlias

from pulsarcast.model.certificates import check_certificate
from pulsarcast.model.errors import RemoteError, Verdict
from pulsarcast.model.events import EventDescriptor
from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.protocol.limits import STEPS_MAX
from pulsarcast.protocol.topic.equivocation import Equivocation
from pulsarcast.protocol.topic.handovers import Handovers
from pulsarcast.protocol.topic.state import TopicState
from pulsarcast.protocol.topic.versions import KnownMarks

PARKED_MAX = 64
"""Bounds the events of one topic that wait in memory for an unknown version, for marks by which
they are judged, or for a part of the start frontier. An event that is dropped is fetched again
after the next comparison of frontiers."""

Gap: TypeAlias = tuple[int, int]
"""The first and the last of the numbers that are missing before an event."""


class Arrival(NamedTuple):
    """An event, and how it arrived."""

    event: EventDescriptor
    sender: PeerId
    hops: int
    certificate: bytes
    via_overlay: bool
    """Whether a member of the overlay sent it, and so other members forward it too."""


class Ignored(enum.Enum):
    """Nothing follows from the event."""

    DUPLICATE = enum.auto()
    TOO_FAR_AHEAD = enum.auto()
    PARKED = enum.auto()
    """It waits for a version that the node is looking up already, or there is no room to wait."""


class WantsVersion(NamedTuple):
    """The event can only be judged by a version that the node does not know."""

    version: Cid


class WantsMarks(NamedTuple):
    """The event can only be judged by marks that are to be found in these frontiers."""

    indexes: list[Cid]


class WantsStart(NamedTuple):
    """The event may be from before the start: that part of the start frontier is missing."""

    part: bytes


class Unproven(NamedTuple):
    """The event came without its certificate: other members hold it with one."""

    missing: Gap


class Void(NamedTuple):
    """The event is void: no node delivers it, but it takes its number."""

    error: RemoteError


Stopped: TypeAlias = Ignored | WantsVersion | WantsMarks | WantsStart | Unproven | Void


class Accepted(NamedTuple):
    """The event is next in the delivery order."""

    gap: Gap | None


class HeldBack(NamedTuple):
    """The event waits for others, or was dropped because there was no room."""

    gap: Gap | None


Placed: TypeAlias = Accepted | HeldBack


class Arrivals:
    """Judges and places one topic's events."""

    __slots__ = (
        "_causal",
        "_equivocation",
        "_frontier",
        "_handovers",
        "_marks",
        "_ordering",
        "_parked",
        "_state",
        "_versions",
        "parked_count",
    )

    def __init__(
        self,
        state: TopicState,
        equivocation: Equivocation,
        handovers: Handovers,
        marks: KnownMarks,
    ) -> None:
        self._state = state
        self._marks = marks
        self._versions = state.versions
        self._frontier = state.frontier
        self._ordering = state.ordering
        self._causal = state.causal
        self._equivocation = equivocation
        self._handovers = handovers
        self._parked: dict[bytes, list[Arrival]] = {}
        """Events that wait, by what they wait for: the CID of a version, the event's own where it
        waits for marks, or the name of a part of the start frontier, which is shorter."""
        self.parked_count = 0

    @property
    def is_idle(self) -> bool:
        """Whether no event waits to be judged."""
        return not self.parked_count

    def judge(self, arrival: Arrival) -> Stopped | None:
        """Why an event cannot be placed; None: it can. A forbidden event raises RemoteError."""
        event, certificate = arrival.event, arrival.certificate
        missing = self.missing_start(event)
        if missing is not None:
            self._park(arrival, missing)
            return WantsStart(missing)
        if self._equivocation.knows(event, certificate):
            return Ignored.DUPLICATE
        if self._frontier.is_full(event.numbered_by, *event.sequence):
            return Ignored.TOO_FAR_AHEAD
        if event.version not in self._versions.by_cid:
            is_first = self._park(arrival, event.version)
            return WantsVersion(event.version) if is_first else Ignored.PARKED
        if self._state.is_sequenced:
            stopped = self.prove(event, certificate)
            if stopped is not None:
                return stopped
        try:
            unread = self._versions.judge(event, self._marks)
        except RemoteError as error:
            if error.verdict is Verdict.IGNORE:
                return Void(error)
            raise
        if unread:
            return WantsMarks(unread) if self._park(arrival, event.cid) else Ignored.PARKED
        if self._causal is not None:
            # Nodes differ in which parents they know. A node that does not see the false link
            # delivers the event and links to it. This node must take the event's number, or it
            # would wait for the event for ever.
            try:
                self._causal.check_links(event)
            except RemoteError as error:
                return Void(error)
        return None

    def missing_start(self, event: EventDescriptor) -> bytes | None:
        """The missing part of the start frontier that says whether the event is due, if any."""
        return self._frontier.missing_at(event.numbered_by, event.sequence.epoch)

    def prove(self, event: EventDescriptor, certificate: bytes) -> Stopped | None:
        """Require a certificate, if several sequencers agree on the order.

        A copy from the DHT has none: other members hold the event with its certificate.
        """
        if certificate:
            check_certificate(self._versions.sequencers_of(event), event, certificate)
            lacking = self._handovers.unknown_version(event)
            return None if lacking is None else WantsVersion(lacking)
        self._versions.judge(event, self._marks)
        epoch, number = event.sequence
        return Unproven((self._frontier.high(event.numbered_by, epoch) + 1, number))

    def place(self, arrival: Arrival) -> Placed:
        """Place an event in the delivery order; an event without a place raises RemoteError."""
        event = arrival.event
        numbered_by, (epoch, number) = event.numbered_by, event.sequence
        gap = self._frontier.gap_before(numbered_by, epoch, number)
        is_next = self._ordering.offer(event, arrival.hops)
        certificate = arrival.certificate
        if certificate and (is_next or self._ordering.held_back(numbered_by, epoch, number)):
            self._state.certificates[event.cid] = certificate
        return Accepted(gap) if is_next else HeldBack(gap)

    # Events that cannot be judged yet.

    def _park(self, arrival: Arrival, until: bytes) -> bool:
        """Keep an event in memory until what it waits for is known.

        Whether it is the first that waits for that. One without room is fetched again later.
        """
        is_first = until not in self._parked
        if self.parked_count >= PARKED_MAX:
            return False
        self.parked_count += 1
        self._parked.setdefault(until, []).append(arrival)
        return is_first

    def unpark(self, until: Cid, *, is_known: bool) -> list[Arrival]:
        """A version or marks became known, or will not: what waited for them, in its order."""
        parked = self._unpark(until)
        return parked if is_known else []

    def unpark_started(self) -> list[Arrival]:
        """The events of parts of the start frontier that are missing no longer."""
        missing = self._frontier.missing
        parts = [until for until in self._parked if len(until) <= STEPS_MAX]
        return [each for part in parts if part not in missing for each in self._unpark(part)]

    def _unpark(self, until: bytes) -> list[Arrival]:
        parked = self._parked.pop(until, [])
        self.parked_count -= len(parked)
        return parked
