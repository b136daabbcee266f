"""Flow control: credits between us and our neighbours in one topic (design 6).

A neighbour may send us as many events as it has credit for. Where our disk cannot keep up we give
no more, and it leaves events out; once it has credit again it hears what it missed.
"""

from collections import Counter

from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.protocol.dissemination.overlay import Link, Overlay
from pulsarcast.protocol.messages import Credit
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.topic.log import TopicLog
from pulsarcast.protocol.topic.sharing import Sharing
from pulsarcast.protocol.turn import Turn

UNSYNCED_MAX = 4096
"""Events on their way to the disk; beyond this we give neighbours no more credit."""


class FlowControl:
    """Gives our neighbours credit, and takes it from them."""

    def __init__(
        self,
        topic: Cid,
        turn: Turn,
        parameters: Parameters,
        overlay: Overlay,
        log: TopicLog,
        sharing: Sharing,
        counts: Counter[str],
    ) -> None:
        self._topic = topic
        self._turn = turn
        self._parameters = parameters
        self._overlay = overlay
        self._log = log
        self._sharing = sharing
        self._counts = counts
        self._stingy = False
        """We hold credit back until our disk has caught up."""

    def took_from(self, sender: PeerId, link: Link) -> None:
        """A neighbour has used some of its credit: give it more, if our disk keeps up."""
        link.taken += 1
        if link.taken < self._parameters.window // 2:
            return
        if self._log.unsynced < UNSYNCED_MAX:
            self._turn.send(sender, Credit(self._topic, link.taken))
            link.taken = 0
        else:
            self._stingy = True

    def synced(self) -> None:
        """Our disk may have caught up: neighbours get the credit that we held back."""
        if not self._stingy or self._log.unsynced >= UNSYNCED_MAX:
            return
        self._stingy = False
        for peer, link in self._overlay.links.items():
            if link.taken:
                self._turn.send(peer, Credit(self._topic, link.taken))
                link.taken = 0

    def receive(self, sender: PeerId, message: Credit) -> None:
        """A neighbour can take more; if it missed events meanwhile, it should compare."""
        link = self._overlay.links.get(sender)
        if link is None:
            return
        link.credit = min(link.credit + message.count, self._parameters.window)
        if link.behind:
            link.behind = False
            self._counts["fell_behind"] += 1
            self._sharing.show(sender, answer=True)
