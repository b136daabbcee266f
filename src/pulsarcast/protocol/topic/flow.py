"""Flow control: gives neighbours credit to send events (docs/spec/pulsarcast.md, Flow control).

A neighbour may send as many events as it has credit for. If the node's disk cannot keep up, the
node gives no more credit, and the neighbour skips events. Once it has credit again, the two compare
frontiers.
"""

from pulsarcast.model.ids import PeerId
from pulsarcast.protocol.dissemination.overlay import Forwarding
from pulsarcast.protocol.messages import Credit
from pulsarcast.protocol.topic.sharing import Sharing
from pulsarcast.protocol.topic.state import TopicState

UNSYNCED_MAX = 4096
"""Bounds the events on their way to the disk; above it neighbours get no more credit."""


class FlowControl:
    """Gives credit to neighbours, and takes it from them."""

    def __init__(self, state: TopicState, overlay: Forwarding, sharing: Sharing) -> None:
        self._topic = state.id
        self._turn = state.context.turn
        self._window = state.context.parameters.window
        self._counts = state.context.counts
        self._log = state.log
        self._overlay = overlay
        self._sharing = sharing
        self._withholds_credit = False
        """Whether credit is withheld until the disk has caught up."""

    def took_from(self, sender: PeerId) -> None:
        """A peer sent an event: it uses credit, even if the event is refused.

        A neighbour gets more credit, if the disk keeps up.
        """
        link = self._overlay.links.get(sender)
        if link is None:
            self._overlay.receive_from_stranger(sender)
            return
        link.taken += 1
        if link.taken < self._window // 2:
            return
        if self._log.unsynced < UNSYNCED_MAX:
            self._turn.send(sender, Credit(self._topic, link.taken))
            link.taken = 0
        else:
            self._withholds_credit = True

    def synced(self) -> None:
        """The disk may have caught up: neighbours get the credit that was withheld."""
        if not self._withholds_credit or self._log.unsynced >= UNSYNCED_MAX:
            return
        self._withholds_credit = False
        for peer, link in self._overlay.links.items():
            if link.taken:
                self._turn.send(peer, Credit(self._topic, link.taken))
                link.taken = 0

    def receive(self, sender: PeerId, message: Credit) -> None:
        """A neighbour can take more events; if it missed some, compare frontiers."""
        link = self._overlay.links.get(sender)
        if link is None:
            return
        link.credit = min(link.credit + message.count, self._window)
        if link.behind:
            link.behind = False
            self._counts["fell_behind"] += 1
            self._sharing.show(sender, answer=True)
