"""Comparing frontiers: decides which marks that a peer shows are compared, and how urgently.

Frontiers are compared with a new parent, with neighbours whose hash differs, and with visitors that
ask. `sharing` shows the node's frontier; `recovery` fetches (docs/spec/pulsarcast.md, Recover).
"""

from typing import NamedTuple

from pulsarcast.model.ids import PeerId
from pulsarcast.protocol.dissemination.overlay import Acquaintances, Forwarding
from pulsarcast.protocol.messages import FrontierPage
from pulsarcast.protocol.store import MarkState
from pulsarcast.protocol.topic.sharing import Sharing

VISITOR_MARKS_MAX = 64
"""Bounds the marks that a peer which is no neighbour can have compared at a time."""
URGENT_S = 5.0
"""How long a comparison with a new parent may take, part by part."""
PATIENCE_S = 2.0
"""How long events that a neighbour shows may take to arrive live, besides three round trips."""


class Shown(NamedTuple):
    """The marks of a peer that are compared with the node's frontier."""

    marks: tuple[MarkState, ...]
    patience_s: float
    """How long missing events may take to arrive live."""


class Comparing:
    """Judges the frontiers that peers show of one topic."""

    __slots__ = ("_known", "_overlay", "_sharing", "_urgent")

    def __init__(self, overlay: Forwarding, known: Acquaintances, sharing: Sharing) -> None:
        self._overlay = overlay
        self._known = known
        self._sharing = sharing
        self._urgent: dict[PeerId, float] = {}
        """New parents whose frontier is known to differ from the node's, and since when."""

    @property
    def is_idle(self) -> bool:
        """Whether no new parent is being compared with."""
        return not self._urgent

    def catch_up(self, parent: PeerId, now_s: float) -> None:
        """A new parent's frontier differs: events missing here do not arrive live."""
        self._urgent[parent] = now_s
        self._sharing.compare(parent)

    def lost(self, peer: PeerId) -> None:
        """A connection ended."""
        self._urgent.pop(peer, None)
        self._sharing.lost(peer)

    def knows(self, peer: PeerId) -> bool:
        """Whether a peer is a neighbour, or a member that the node has heard of."""
        known = self._known
        return peer in self._overlay.links or peer in known.lazy or peer in known.members()

    def consider(self, sender: PeerId, message: FrontierPage, now_s: float) -> Shown:
        """The marks of a peer's page that are compared, and how urgently."""
        since_s = self._urgent.get(sender)
        urgent = since_s is not None and now_s - since_s < URGENT_S
        patience_s = 0.0 if urgent else PATIENCE_S + 3 * self._known.round_trip_s
        if not urgent or not message.parts:
            self._urgent.pop(sender, None)
        is_known = sender in self._overlay.links or sender in self._known.lazy
        marks = message.marks if is_known else message.marks[:VISITOR_MARKS_MAX]
        return Shown(marks, patience_s)
