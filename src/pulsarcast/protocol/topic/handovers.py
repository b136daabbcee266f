"""Handovers between sequencers: which list of sequencers certifies at which positions.

The old sequencers hand the order over to those of another version by a handover event, the last
that they certify. A node that has it refuses their later certificates. The position of each
handover is kept, so that old events can still be checked against the old lists
(docs/decisions/0024; docs/spec/sequencing.md, Changing sequencers).
"""

from pulsarcast.model.errors import Rejection, RemoteError
from pulsarcast.model.events import EventDescriptor
from pulsarcast.model.ids import CID_BYTES, Cid
from pulsarcast.protocol.store import DropState, PutState, StateRow, Write
from pulsarcast.protocol.topic.state import TopicState
from pulsarcast.protocol.topic.versions import NOTHING, Versions

HANDOVER = "handover"
HANDOVERS_MAX = 1024
"""Bounds the handovers of one topic: as many as it can have versions."""


class Handovers:
    """The positions at which each list of one topic's sequencers is in force."""

    __slots__ = ("_frontier", "_topic", "_versions")

    def __init__(self, state: TopicState) -> None:
        self._topic: Cid = state.id
        self._versions = state.versions
        self._frontier = state.frontier

    def unknown_version(self, event: EventDescriptor) -> Cid | None:
        """The version whose sequencers are in force at an event's position, if it is unknown.

        Raises RemoteError if sequencers are in force there that the event's version does not name.
        """
        cid = self._versions.in_force_at(event.sequence.number)
        in_force = self._versions.by_cid.get(cid)
        if in_force is None:
            return cid
        version = self._versions.by_cid[event.version]
        if version.sequencers == in_force.sequencers:
            return None
        if version.number <= in_force.number:
            raise RemoteError(
                "certified by sequencers that were replaced", code=Rejection.BAD_CERTIFICATE
            )
        if self._has_seen_all_before(event):
            raise RemoteError(
                "certified by sequencers to whom nobody has handed over",
                code=Rejection.BAD_CERTIFICATE,
            )
        return None

    def _has_seen_all_before(self, event: EventDescriptor) -> bool:
        """Whether the node would know a handover before an event.

        It would if it has all events before, and began with the first event or knows a handover.
        """
        source, (epoch, number) = event.numbered_by, event.sequence
        if self._frontier.high(source, epoch) + 1 < number:
            return False
        known = self._versions.handovers
        return bool(known) or self._frontier.floor(source, epoch) == 0

    def taken(self, event: EventDescriptor) -> list[Write]:
        """An event is accepted: the rows that record which sequencers are in force after it."""
        if not event.is_ordered:
            return []
        position, to = event.sequence.number, event.hands_over_to
        if to is None:
            in_force = self._versions.by_cid.get(self._versions.in_force_at(position))
            version = self._versions.by_cid[event.version]
            if in_force is None or version.sequencers == in_force.sequencers:
                return []
            # The subscription began after the handover.
            position, to = position - 1, event.version
        if len(self._versions.handovers) >= HANDOVERS_MAX:
            raise RemoteError("sequencers that change without end", code=Rejection.TOO_MANY)
        self._versions.hand_over(position, to)
        return [PutState(StateRow(HANDOVER, self._key(position), to))]

    def forget(self) -> list[Write]:
        """Drop all handovers: the node leaves the topic."""
        known, self._versions.handovers = self._versions.handovers, NOTHING
        return [DropState(HANDOVER, self._key(position)) for position in known]

    def _key(self, position: int) -> bytes:
        return self._topic + position.to_bytes(8, "big")


def restore_handover(versions: Versions, key: bytes, value: bytes) -> None:
    """Restore a handover from its row."""
    versions.hand_over(int.from_bytes(key[CID_BYTES:], "big"), Cid(value))
