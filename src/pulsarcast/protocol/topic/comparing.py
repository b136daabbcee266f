"""Comparing frontiers: decides which marks that a peer shows are compared, and how urgently.

Frontiers are compared with a new parent, with neighbours whose hash differs, and with visitors that
ask. `sharing` shows the node's frontier; `recovery` fetches (docs/spec/pulsarcast.md, Recover).
"""

from collections.abc import Mapping
from typing import NamedTuple

from pulsarcast.model.ids import PeerId
from pulsarcast.protocol.dissemination.overlay import Acquaintances, Link
from pulsarcast.protocol.messages import FrontierPage
from pulsarcast.protocol.store import MarkState
from pulsarcast.protocol.topic.sharing import Sharing

VISITOR_MARKS_MAX = 64
"""Bounds the marks that a peer which is no neighbour can have compared at a time."""
PATIENCE_S = 2.0
"""How long events that a neighbour shows may take to arrive live, besides three round trips."""


class Shown(NamedTuple):
    """The marks of a peer that are compared with the node's frontier."""

    marks: tuple[MarkState, ...]
    patience_s: float
    """How long missing events may take to arrive live."""
    is_known: bool
    """Whether the peer is a neighbour or a lazy neighbour."""


class Comparing:
    """Judges the frontiers that peers show of one topic."""

    def __init__(
        self, links: Mapping[PeerId, Link], known: Acquaintances, sharing: Sharing
    ) -> None:
        self.lacks_start = False
        """Whether a keeper, which wants no history, has yet to take its start from a neighbour."""
        self._links = links
        self._known = known
        self._sharing = sharing
        self._urgent: dict[PeerId, None] = {}
        """New parents whose frontier is known to differ from the node's."""

    def catch_up(self, parent: PeerId) -> None:
        """A new parent's frontier differs: events missing here do not arrive live."""
        self._urgent[parent] = None
        self._sharing.show(parent, answer=True)

    def lost(self, peer: PeerId) -> None:
        """A connection ended."""
        self._urgent.pop(peer, None)
        self._sharing.lost(peer)

    def starts_at(self, sender: PeerId, message: FrontierPage) -> bool:
        """Whether a keeper starts at the frontier that a neighbour shows."""
        if not self.lacks_start or sender not in self._links:
            return False
        self.lacks_start = message.more
        return True

    def consider(self, sender: PeerId, message: FrontierPage) -> Shown:
        """The marks of a peer's page that are compared, and how urgently."""
        urgent = sender in self._urgent
        patience_s = 0.0 if urgent else PATIENCE_S + 3 * self._known.round_trip_s
        if not message.more:
            self._urgent.pop(sender, None)
        is_known = sender in self._links or sender in self._known.lazy
        marks = message.marks if is_known else message.marks[:VISITOR_MARKS_MAX]
        return Shown(marks, patience_s, is_known)
