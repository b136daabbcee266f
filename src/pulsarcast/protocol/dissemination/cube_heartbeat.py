"""A cube's heartbeat: compares frontiers with the nearest members, and with some far ones.

Deep buckets hold one or two members, so a member that dies may leave its nearest ones without any
other that forwards to them: they compare frontiers with each other. A whole bucket may miss an
event together, if the member that answers for it dies at the wrong moment: so each heartbeat goes
to some members of far buckets too. The member that finds a gap passes on what was missing
(docs/spec/cube.md).
"""

from collections.abc import Iterable

from pulsarcast.model.ids import Cid, PeerId, peer_key
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.dissemination.cube import DisseminationCube
from pulsarcast.protocol.dissemination.heartbeat_timer import HeartbeatOwner, HeartbeatTimer
from pulsarcast.protocol.dissemination.quiet_topics import QuietTopics
from pulsarcast.protocol.messages import Contact, Status

FAR = 2
"""Members of far buckets that each heartbeat goes to, in turn: bounds its messages."""
FIRST_BEATS_S = (1.0, 5.0)
"""Delays of a newcomer's first heartbeats: they find what it missed before the members that forward
to it had met it."""
MEMBERS_TOLD = 3
"""Members named in a heartbeat: enough to spread names, and a small message."""


class CubeHeartbeat:
    """The node's regular comparison with a few other members of one cube."""

    __slots__ = (
        "_asked",
        "_far_turn",
        "_quiet",
        "counts",
        "cube",
        "owner",
        "parameters",
        "round_trip_s",
        "timer",
        "topic",
        "turn",
    )

    def __init__(
        self,
        topic: Cid,
        context: Context,
        cube: DisseminationCube,
        quiet: QuietTopics,
        owner: HeartbeatOwner,
    ) -> None:
        self.topic = topic
        self.turn = context.turn
        self.parameters = context.parameters
        self.cube = cube
        self.owner = owner
        self.counts = context.counts
        self.round_trip_s = 0.0
        self._quiet = quiet
        self.timer = HeartbeatTimer(context, owner, self, quiet)
        self._asked: dict[PeerId, float] = {}
        """Members that were asked, and when first without an answer since."""
        self._far_turn = 0

    @property
    def lazy(self) -> dict[PeerId, None]:
        """The nearest members, but for the very nearest."""
        return dict.fromkeys(self._nearest()[1:])

    def _nearest(self) -> list[PeerId]:
        return self.cube.members.nearest(self.parameters.cube_nearest)

    # Beating.

    def announce(self) -> None:
        """The node became a member: its first heartbeats find what it has missed."""
        for delay_s in FIRST_BEATS_S:
            self.turn.after(self.turn.jitter(delay_s), self._beat_early)

    def _beat_early(self) -> None:
        if self.timer.is_beating:
            self._talk()

    def lost_touch(self) -> None:
        """A cube has no parent to lose."""

    def beat(self) -> None:
        """Ask some members what they hold."""
        for peer in [peer for peer in self._asked if peer not in self.cube.members]:
            self.lost(peer)
        self._talk()
        self.cube.refresh()

    def _talk(self) -> None:
        for peer in self.conversation():
            self.ask(peer)

    def ask(self, peer: PeerId) -> None:
        """Ask a member what it holds."""
        self._asked.setdefault(peer, self.turn.now)
        self.turn.send(peer, self._status(peer, answer=True))

    def is_settled(self) -> bool:
        """Whether the node and its nearest members agree."""
        agree = (self._quiet.agrees(peer, self.topic) for peer in self._nearest())
        return self.cube.attached and not self.cube.leaving and all(agree)

    def summary(self, peer: PeerId) -> bytes:
        """The frontier's hash, and whether the two have met."""
        return self.owner.digest() + bytes([peer in self.cube.links])

    def conversation(self) -> list[PeerId]:
        """The nearest members, children silent since they took events, and some others."""
        chosen = dict.fromkeys(self._nearest())
        children = self.cube.children
        for child in children:
            link = self.cube.links.get(child)
            if link is not None and link.unheard:
                chosen[child] = None
        far = [child for child in children if child not in chosen]
        for _ in range(min(FAR, len(far))):
            self._far_turn += 1
            chosen[far[self._far_turn % len(far)]] = None
        return list(chosen)

    # Listening.

    def receive(self, sender: PeerId, message: Status) -> None:
        """A member says what it holds."""
        link = self.cube.links.get(sender)
        if link is not None:
            link.heard(self.turn.now)
            self.cube.hear_of(message.members, sender)
        else:
            self.cube.receive_from_stranger(sender)
        is_counted_on = message.regular or sender in self._nearest()
        if is_counted_on and link is not None and message.digest == self.owner.digest():
            self._quiet.agree(sender, self)
        else:
            self._quiet.disagree(sender, self.topic)
        if message.answer:
            self.turn.send(sender, self._status(sender, answer=False))
            return
        asked = self._asked.pop(sender, None)
        if asked is None:
            return
        self.round_trip_s = max(self.turn.now - asked, 0.9 * self.round_trip_s)
        if message.digest != self.owner.digest():
            self.counts["cube_difference"] += 1
            self.owner.differs_from(sender, message.digest)

    def watched(self) -> Iterable[PeerId]:
        """The members that have yet to answer."""
        return self._asked

    def gone(self, peer: PeerId) -> None:
        """A member is suspected, or has left: the cube lets go of it."""
        self.lost(peer)

    def lost(self, peer: PeerId) -> None:
        """A connection ended."""
        if self._quiet.agrees(peer, self.topic):
            # Another member takes its place.
            self.timer.hurry()
        self._asked.pop(peer, None)

    def members(self) -> list[PeerId]:
        """Members that can be asked for something, the nearest first."""
        return self.cube.members.closest(peer_key(self.turn.me), len(self.cube.members))

    def _status(self, peer: PeerId, *, answer: bool) -> Status:
        """What the node holds, and the members that the peer should know first."""
        near = self.cube.members.closest(peer_key(peer), MEMBERS_TOLD)
        told = tuple(Contact(member) for member in near if member != peer)
        path = self.cube.path_from_here()
        regular = peer in self._nearest()
        return Status(self.topic, self.owner.digest(), path, told, answer, regular=regular)
