"""Flow control: gives neighbours credit to send events (docs/spec/pulsarcast.md, Flow control).

Credit counts bytes. A neighbour may send an event of its own as long as it has any credit left, so
that every window has room for the largest event, and pass on those of others for some windows more.
If the node's disk cannot keep up, the node gives no more credit, and the neighbour skips events in
the end; so it does where too much waits on the link to it already.
Once the neighbour can send again, the two compare frontiers.
"""

from pulsarcast.model.ids import PeerId
from pulsarcast.protocol.dissemination.overlay import Forwarding, Link
from pulsarcast.protocol.limits import COUNT_MAX
from pulsarcast.protocol.messages import Credit
from pulsarcast.protocol.topic.sharing import Sharing
from pulsarcast.protocol.topic.state import TopicState

UNSYNCED_BYTES_MAX = 4 * 1024 * 1024
"""Bounds what is on its way to the disk; above it neighbours get no more credit. Nothing but the
node's own disk is waited for, so that no cycle of links waits for itself."""
GRANTS = 4
"""Credit comes back in so many parts of a window."""


class FlowControl:
    """Gives credit to neighbours, and takes it from them."""

    def __init__(self, state: TopicState, overlay: Forwarding, sharing: Sharing) -> None:
        self._topic = state.id
        self._turn = state.context.turn
        self._window = state.context.parameters.window_bytes
        self._counts = state.context.counts
        self._log = state.log
        self._overlay = overlay
        self._sharing = sharing
        self._withholds_credit = False
        """Whether credit is withheld until the disk has caught up."""

    def took_from(self, sender: PeerId, size: int) -> None:
        """A peer sent an event: it uses credit, even if the event is refused.

        A neighbour gets more credit, if the disk keeps up.
        """
        link = self._overlay.links.get(sender)
        if link is None:
            self._overlay.receive_from_stranger(sender)
            return
        link.taken += size
        if link.taken < self._window // GRANTS:
            return
        if self._disk_keeps_up:
            self._give(sender, link)
        else:
            self._withholds_credit = True

    @property
    def _disk_keeps_up(self) -> bool:
        return self._log.unsynced_bytes < UNSYNCED_BYTES_MAX

    def _give(self, peer: PeerId, link: Link) -> None:
        self._turn.send(peer, Credit(self._topic, min(link.taken, COUNT_MAX)))
        link.taken = 0

    def synced(self) -> None:
        """The disk may have caught up: neighbours get the credit that was withheld."""
        if not self._withholds_credit or not self._disk_keeps_up:
            return
        self._withholds_credit = False
        for peer, link in self._overlay.links.items():
            if link.taken:
                self._give(peer, link)

    def receive(self, sender: PeerId, message: Credit) -> None:
        """A neighbour can take more events; if it missed some, compare frontiers."""
        link = self._overlay.links.get(sender)
        if link is None:
            return
        link.earn(message.size, self._window, self._turn.now)
        self._catch_up(sender, link)

    def freed(self, peer: PeerId) -> None:
        """The link to a peer has room again; if it missed events, compare frontiers."""
        link = self._overlay.links.get(peer)
        if link is not None:
            self._catch_up(peer, link)

    def _catch_up(self, peer: PeerId, link: Link) -> None:
        if link.behind and link.credit > 0 and peer not in self._turn.full:
            link.behind = False
            self._counts["fell_behind"] += 1
            self._sharing.show(peer, answer=True)
