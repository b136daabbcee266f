"""Comparing: others show what they hold of a topic, and we fetch what we lack (design 6).

Frontiers are compared with those to whom we are new, with neighbours whose hash differs from ours,
and with visitors who ask. `sharing` shows ours; `recovery` fetches.
"""

from collections.abc import Callable

from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.protocol.dissemination.overlay import Conversation, Overlay
from pulsarcast.protocol.messages import FrontierPage
from pulsarcast.protocol.store import MarkState, PutMark
from pulsarcast.protocol.topic.equivocation import Equivocation
from pulsarcast.protocol.topic.frontier import Frontier
from pulsarcast.protocol.topic.keeping import Keeping
from pulsarcast.protocol.topic.recovery import Recovery
from pulsarcast.protocol.topic.sharing import Sharing
from pulsarcast.protocol.turn import Turn

VISITOR_MARKS_MAX = 64
"""Numberings that a peer which is no neighbour can make us compare at a time."""
PATIENCE_S = 2.0
"""How long what a neighbour shows may take to arrive by itself, besides three round trips."""


class Comparing:
    """Takes notice of what others hold of one topic."""

    def __init__(
        self,
        topic: Cid,
        turn: Turn,
        frontier: Frontier,
        overlay: Overlay,
        heartbeat: Conversation,
        *,
        sharing: Sharing,
        keeping: Keeping,
        equivocation: Equivocation,
        recovery: Recovery,
        is_sequenced: bool,
        find_block: Callable[[Cid, Callable[[bytes | None], None]], None],
        take: Callable[[bytes, PeerId], None],
    ) -> None:
        self.is_blank = False
        """We keep a tree together without wanting its history: we start where a neighbour is."""
        self._topic = topic
        self._turn = turn
        self._frontier = frontier
        self._overlay = overlay
        self._heartbeat = heartbeat
        self._sharing = sharing
        self._keeping = keeping
        self._equivocation = equivocation
        self._recovery = recovery
        self._is_sequenced = is_sequenced
        self._find_block = find_block
        self._take = take
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

    def receive(self, sender: PeerId, message: FrontierPage) -> None:
        """A peer shows what it holds: fetch what we lack, and show what we hold if it asks."""
        claimed = self._equivocation.claimed_otherwise(message.marks)
        if claimed is not None:
            self._look_at(sender, claimed)
        if self.is_blank and self._overlay.is_neighbour(sender):
            self._keeping.start_at(message.marks)
            marks = self._frontier.marks()
            self._turn.persist(*(PutMark(self._topic, mark) for mark in marks))
            self.is_blank = message.more
        urgent = sender in self._urgent
        patience_s = 0.0 if urgent else PATIENCE_S + 3 * self._heartbeat.round_trip_s
        if not message.more:
            self._urgent.pop(sender, None)
        known = self._overlay.is_neighbour(sender) or sender in self._heartbeat.lazy
        shown = message.marks if known else message.marks[:VISITOR_MARKS_MAX]
        self._recovery.compare(sender, shown, patience_s=patience_s)
        if message.answer:
            known = known or sender in self._heartbeat.members()
            self._sharing.answer(sender, message, known=known)

    def _look_at(self, sender: PeerId, claimed: MarkState) -> None:
        """See for ourselves what a peer has under a number where we have something else."""
        if self._is_sequenced:
            # Only with its certificate does it prove anything.
            self._recovery.look_at(sender, claimed.publisher, claimed.epoch, claimed.high)
        elif claimed.cid is not None:
            self._find_block(claimed.cid, self._claim_found)

    def _claim_found(self, block: bytes | None) -> None:
        if block is not None:
            self._take(block, self._turn.me)
