"""Whose certificates count where: a topic's sequencers may be replaced in the middle of its order.

The old ones leave the order to those of another version by an event of their own, the last that
they certify. From then on their certificates convince nobody who has it. Where each list counts is
kept, so that old events can still be held against the old lists. (Decision 0024.)
"""

from pulsarcast.model.errors import Rejection, RemoteError
from pulsarcast.model.events import EventDescriptor
from pulsarcast.model.ids import CID_BYTES, Cid
from pulsarcast.protocol.store import DropState, PutState, StateRow, Write
from pulsarcast.protocol.topic.state import TopicState
from pulsarcast.protocol.topic.versions import Versions

HANDOVER = "handover"
HANDOVERS_MAX = 1024
"""Of one topic: as many as it can have versions."""


class Handovers:
    """Where each list of one topic's sequencers counts."""

    def __init__(self, state: TopicState) -> None:
        self._topic: Cid = state.id
        self._versions = state.versions
        self._frontier = state.frontier

    def unknown_version(self, event: EventDescriptor) -> Cid | None:
        """The version that says who counts there, if we lack it.

        Raises RemoteError where others count than those that the event says.
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
        """Whether a handover before it would have come to us: we began with one, or with all."""
        source, (epoch, number) = event.numbered_by, event.sequence
        if self._frontier.high(source, epoch) + 1 < number:
            return False
        known = self._versions.handovers
        return bool(known) or self._frontier.floor(source, epoch) == 0

    def taken(self, event: EventDescriptor) -> list[Write]:
        """An event has its turn: what our disk should know of who counts behind it."""
        if not event.is_ordered:
            return []
        position, to = event.sequence.number, event.hands_over_to
        if to is None:
            in_force = self._versions.by_cid.get(self._versions.in_force_at(position))
            version = self._versions.by_cid[event.version]
            if in_force is None or version.sequencers == in_force.sequencers:
                return []
            # We began behind the handover.
            position, to = position - 1, event.version
        if len(self._versions.handovers) >= HANDOVERS_MAX:
            raise RemoteError("sequencers that change without end", code=Rejection.TOO_MANY)
        self._versions.hand_over(position, to)
        return [PutState(StateRow(HANDOVER, self._key(position), to))]

    def forget(self) -> list[Write]:
        """We leave the topic."""
        known, self._versions.handovers = self._versions.handovers, {}
        return [DropState(HANDOVER, self._key(position)) for position in known]

    def _key(self, position: int) -> bytes:
        return self._topic + position.to_bytes(8, "big")


def restore_handover(versions: Versions, key: bytes, value: bytes) -> None:
    """Remember from the disk who counts where."""
    versions.hand_over(int.from_bytes(key[CID_BYTES:], "big"), Cid(value))
