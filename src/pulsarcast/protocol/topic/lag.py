"""Lag: leaves a parent that brings no events while others do (docs/spec/pulsarcast.md, Pressure).

A parent that is slow, or grants its own parent no credit, is sent nothing, and has nothing to pass
on. Its heartbeats go on, so silence does not tell. The node hears of the events from other members
and fetches them there; after some of them it looks for another parent.
"""

from pulsarcast.model.ids import PeerId
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.dissemination.overlay import Overlay

MISSED_MAX = 8
"""Events from others, and none from the parent, after which the node looks elsewhere: more than
replicas and hand-ins bring ahead of the tree."""
LAG_S = 5.0
"""Over at least how long: a commit of a busy disk, or a round trip of recovery, takes less."""


class Lag:
    """Compares what the parent brings with what others do."""

    __slots__ = ("_counts", "_missed", "_overlay", "_since_s", "_turn")

    def __init__(self, context: Context, overlay: Overlay) -> None:
        self._turn = context.turn
        self._counts = context.counts
        self._overlay = overlay
        self._missed = 0
        self._since_s = 0.0

    @property
    def is_idle(self) -> bool:
        """Whether no event is counted against the parent."""
        return not self._missed

    def heard(self, sender: PeerId) -> None:
        """A peer sent an event, new or not."""
        if sender == self._overlay.upstream:
            self._missed = 0

    def took(self, sender: PeerId) -> None:
        """A new event came from this peer: from above, from below, or from aside."""
        overlay = self._overlay
        # A cube has no path to a root, so no parent that all comes through.
        if overlay.upstream is None or not overlay.path or sender in overlay.links:
            return
        if not self._missed:
            self._since_s = self._turn.now
        self._missed += 1
        if self._missed >= MISSED_MAX and self._turn.now - self._since_s >= LAG_S:
            self._missed = 0
            self._counts["lagging_parent"] += 1
            overlay.look_elsewhere()
