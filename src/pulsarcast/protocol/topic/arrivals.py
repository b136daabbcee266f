"""Arrivals: what becomes of an event that arrives (docs/spec/pulsarcast.md, Receive).

An event is known by its number, judged by the version that it names, and placed in the delivery
order. The answers are values: the topic acts on them.
"""

import enum
from typing import NamedTuple, TypeAlias

from pulsarcast.model.certificates import check_certificate
from pulsarcast.model.errors import RemoteError, Verdict
from pulsarcast.model.events import EventDescriptor
from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.protocol.topic.equivocation import Equivocation
from pulsarcast.protocol.topic.handovers import Handovers
from pulsarcast.protocol.topic.state import TopicState

PARKED_MAX = 64
"""Events of one topic that wait for versions: frontiers are compared, so a dropped one comes again.
"""

Gap: TypeAlias = tuple[int, int]
"""The first and the last of the numbers that are missing before an event."""


class Arrival(NamedTuple):
    """An event, and how it came to us."""

    event: EventDescriptor
    sender: PeerId
    hops: int
    certificate: bytes
    via_overlay: bool
    """Whether it came through the overlay."""


class Ignored(enum.Enum):
    """Nothing follows from the event."""

    DUPLICATE = enum.auto()
    TOO_FAR_AHEAD = enum.auto()
    PARKED = enum.auto()
    """It waits for a version that is looked for already, or there is no room to wait."""


class WantsVersion(NamedTuple):
    """Who may publish the event is said in a version that we do not know."""

    version: Cid


class Unproven(NamedTuple):
    """The event has no certificate: another member holds it with one."""

    missing: Gap


class Void(NamedTuple):
    """The event is delivered to nobody, but takes its number."""

    error: RemoteError


Stopped: TypeAlias = Ignored | WantsVersion | Unproven | Void


class Accepted(NamedTuple):
    """The event has its turn."""

    gap: Gap | None


class HeldBack(NamedTuple):
    """The event waits for others, or was dropped where there is no room."""

    gap: Gap | None


Placed: TypeAlias = Accepted | HeldBack


class Arrivals:
    """Judges and places one topic's events."""

    def __init__(self, state: TopicState, equivocation: Equivocation, handovers: Handovers) -> None:
        self._state = state
        self._versions = state.versions
        self._frontier = state.frontier
        self._ordering = state.ordering
        self._causal = state.causal
        self._equivocation = equivocation
        self._handovers = handovers
        self._parked: dict[Cid, list[Arrival]] = {}
        """Events that wait for a version, by that version."""
        self.parked_count = 0

    def judge(self, arrival: Arrival) -> Stopped | None:
        """What keeps an event from its place; None: nothing. A forbidden one raises RemoteError."""
        event, certificate = arrival.event, arrival.certificate
        if self._equivocation.knows(event, certificate):
            return Ignored.DUPLICATE
        if self._frontier.is_full(event.numbered_by, *event.sequence):
            return Ignored.TOO_FAR_AHEAD
        if event.version not in self._versions.by_cid:
            return self._park(arrival)
        if self._state.is_sequenced:
            stopped = self.prove(event, certificate)
            if stopped is not None:
                return stopped
        try:
            self._versions.judge(event)
        except RemoteError as error:
            if error.verdict is Verdict.IGNORE:
                return Void(error)
            raise
        if self._causal is not None:
            # Whether the other event is known differs from node to node. Where one node delivers
            # the liar and links to it, those who know better must not wait for ever.
            try:
                self._causal.check_links(event)
            except RemoteError as error:
                return Void(error)
        return None

    def prove(self, event: EventDescriptor, certificate: bytes) -> Stopped | None:
        """Where several sequencers agree, nothing is taken in without a certificate.

        Whoever published it. A copy from the DHT has none: another member has the event with both.
        """
        if certificate:
            check_certificate(self._versions.sequencers_of(event), event, certificate)
            lacking = self._handovers.unknown_version(event)
            return None if lacking is None else WantsVersion(lacking)
        self._versions.judge(event)
        epoch, number = event.sequence
        return Unproven((self._frontier.high(event.numbered_by, epoch) + 1, number))

    def place(self, arrival: Arrival) -> Placed:
        """Find an event's place in the order; one that cannot have any raises RemoteError."""
        event = arrival.event
        numbered_by, (epoch, number) = event.numbered_by, event.sequence
        gap = self._frontier.gap_before(numbered_by, epoch, number)
        is_next = self._ordering.offer(event, arrival.hops)
        certificate = arrival.certificate
        if certificate and (is_next or self._ordering.held_back(numbered_by, epoch, number)):
            self._state.certificates[event.cid] = certificate
        return Accepted(gap) if is_next else HeldBack(gap)

    # Versions that we do not know.

    def _park(self, arrival: Arrival) -> Stopped:
        """Keep an event aside until the version it names is known."""
        if self.parked_count >= PARKED_MAX:
            return Ignored.PARKED
        self.parked_count += 1
        version = arrival.event.version
        is_first = version not in self._parked
        self._parked.setdefault(version, []).append(arrival)
        return WantsVersion(version) if is_first else Ignored.PARKED

    def unpark(self, version: Cid) -> list[Arrival]:
        """A version became known, or will not: the events that waited for it, in their order."""
        parked = self._parked.pop(version, [])
        self.parked_count -= len(parked)
        return parked if version in self._versions.by_cid else []
