"""Comparing: which of the marks that a peer shows count, and how urgently.

Frontiers are compared with those to whom we are new, with neighbours whose hash differs from ours,
and with visitors who ask. `sharing` shows ours; `recovery` fetches (docs/spec/pulsarcast.md,
Recover).
"""

from typing import NamedTuple

from pulsarcast.model.ids import PeerId
from pulsarcast.protocol.dissemination.overlay import Conversation, Overlay
from pulsarcast.protocol.messages import FrontierPage
from pulsarcast.protocol.store import MarkState
from pulsarcast.protocol.topic.sharing import Sharing

VISITOR_MARKS_MAX = 64
"""Numberings that a peer which is no neighbour can make us compare at a time."""
PATIENCE_S = 2.0
"""How long what a neighbour shows may take to arrive by itself, besides three round trips."""


class Shown(NamedTuple):
    """What a peer shows that we compare with what we hold."""

    marks: tuple[MarkState, ...]
    patience_s: float
    """How long what we lack may take to arrive by itself."""
    is_known: bool
    """Whether the peer is a neighbour, or one whom we chose to compare with."""


class Comparing:
    """Takes notice of what others hold of one topic."""

    def __init__(self, overlay: Overlay, heartbeat: Conversation, sharing: Sharing) -> None:
        self.lacks_start = False
        """We keep a tree together without wanting its history: we start where a neighbour is."""
        self._overlay = overlay
        self._heartbeat = heartbeat
        self._sharing = sharing
        self._urgent: dict[PeerId, None] = {}
        """Those of whom we know that they hold something else than we do."""

    def catch_up(self, parent: PeerId) -> None:
        """A new parent holds something else than we do: what we lack does not come by itself."""
        self._urgent[parent] = None
        self._sharing.show(parent, answer=True)

    def lost(self, peer: PeerId) -> None:
        """A connection ended."""
        self._urgent.pop(peer, None)
        self._sharing.lost(peer)

    def starts_at(self, sender: PeerId, message: FrontierPage) -> bool:
        """Whether we, who wanted no history so far, start at what a neighbour shows."""
        if not self.lacks_start or not self._overlay.is_neighbour(sender):
            return False
        self.lacks_start = message.more
        return True

    def consider(self, sender: PeerId, message: FrontierPage) -> Shown:
        """What counts of the marks that a peer shows, and how urgent it is."""
        urgent = sender in self._urgent
        patience_s = 0.0 if urgent else PATIENCE_S + 3 * self._heartbeat.round_trip_s
        if not message.more:
            self._urgent.pop(sender, None)
        is_known = self._overlay.is_neighbour(sender) or sender in self._heartbeat.lazy
        marks = message.marks if is_known else message.marks[:VISITOR_MARKS_MAX]
        return Shown(marks, patience_s, is_known)
