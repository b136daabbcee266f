"""A tree's heartbeat: compares frontiers with the parent and with lazy neighbours.

Every member keeps two lazy neighbours off its path to the root and compares frontiers with them
now and then, so that neither a silent parent nor a lost last event goes unnoticed. While nothing
changes the interval grows (docs/spec/pulsarcast.md, Heartbeats and lazy neighbours).
"""

from collections.abc import Iterable

from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.dissemination.delays import MOVERS
from pulsarcast.protocol.dissemination.heartbeat_timer import HeartbeatOwner, HeartbeatTimer
from pulsarcast.protocol.dissemination.overlay import Link
from pulsarcast.protocol.dissemination.quiet_topics import QuietTopics
from pulsarcast.protocol.dissemination.tree import DisseminationTree
from pulsarcast.protocol.messages import Contact, Leave, Status

MEMBERS_TOLD = 3
"""Members named in a heartbeat: enough to spread names, and a small message."""
SEEK_S = 1.0
"""How often a node whose parent is silent compares with others."""
SEEK_SILENT_S = 2.0
"""How long a lazy neighbour may take to answer it."""
SOURCES = 2
"""Members beside the lazy neighbours that it asks each time."""
SILENT_S = 60.0
"""A lazy neighbour that has not answered for so long gives its place to another."""


class Heartbeat:
    """The node's regular comparison with a few other members of one tree."""

    __slots__ = (
        "_asked",
        "_is_seeking",
        "_quiet",
        "counts",
        "lazy",
        "owner",
        "parameters",
        "round_trip_s",
        "timer",
        "topic",
        "tree",
        "turn",
    )

    def __init__(
        self,
        topic: Cid,
        context: Context,
        tree: DisseminationTree,
        quiet: QuietTopics,
        owner: HeartbeatOwner,
    ) -> None:
        self.topic = topic
        self.turn = context.turn
        self.parameters = context.parameters
        self.tree = tree
        self.owner = owner
        self.counts = context.counts
        self.lazy: dict[PeerId, None] = {}
        self.round_trip_s = 0.0
        self._asked: dict[PeerId, float] = {}
        self._is_seeking = False
        self._quiet = quiet
        self.timer = HeartbeatTimer(context, owner, self, quiet)

    # Beating.

    def beat(self) -> None:
        """Ask the parent and the lazy neighbours what they hold."""
        self._prune_children()
        if not self.turn.rng.randrange(MOVERS):
            self.tree.shorten(self.tree.delays)
        self.choose_lazy()
        for peer in self.conversation():
            self.ask(peer)

    def ask(self, peer: PeerId) -> None:
        """Ask a member what it holds."""
        self._asked.setdefault(peer, self.turn.now)
        self.turn.send(peer, self._status(answer=True, regular=peer == self.tree.parent))

    def is_settled(self) -> bool:
        """Whether the node and its parent agree, and no other member is looked for."""
        tree = self.tree
        if not tree.in_touch or tree.leaving or tree.author_elsewhere is not None:
            return False
        return tree.parent is None or self._quiet.agrees(tree.parent, self.topic)

    def summary(self, peer: PeerId) -> bytes:
        """The frontier's hash, the tree's root, and which of the two is the other's parent."""
        tree, me = self.tree, self.turn.me
        parent = peer if peer == tree.parent else me if peer in tree.children else b""
        return b"".join((self.owner.digest(), parent, tree.path_from_here()[-1]))

    def conversation(self) -> list[PeerId]:
        """The members that a beat goes to: the parent first."""
        peers = list(self.lazy)
        if self.tree.parent is not None:
            peers.insert(0, self.tree.parent)
            above = [peer for peer in self.tree.path[1:] if peer != self.turn.me]
            if not self.lazy and above:
                # The node knows members from its parent only, which may hide the others.
                peers.append(above[self.turn.rng.randrange(len(above))])
            others = [p for p in self.tree.members if p not in self.lazy and not self._unfit(p)]
            if others:
                # It may be a better parent.
                peers.append(others[self.turn.rng.randrange(len(others))])
        author = self.tree.author_elsewhere
        if author is not None and author not in peers:
            peers.append(author)
        return peers

    def lost_touch(self) -> None:
        """Compare with other members, often, until the node has a parent that speaks."""
        if not self._is_seeking:
            self._is_seeking = True
            self._seek()

    def _seek(self) -> None:
        if self.tree.in_touch or self.tree.leaving or not self.timer.is_beating:
            self._is_seeking = False
            return
        self.turn.after(SEEK_S, self._seek)
        self.choose_lazy(SEEK_SILENT_S)
        for peer in self.sources():
            self.ask(peer)

    def sources(self) -> list[PeerId]:
        """Members that may have what a silent parent withholds: some of each kind.

        Siblings wait for the same parent, and the members above it may be silent too.
        """
        rng = self.turn.rng
        others = [peer for peer in self.tree.members if not self._unfit(peer)]
        some = rng.sample(others, min(len(others), SOURCES))
        above = [peer for peer in self.tree.path[1:] if peer != self.turn.me]
        if above:
            some.append(above[rng.randrange(len(above))])
        return list(dict.fromkeys((*self.lazy, *some)))

    def _prune_children(self) -> None:
        """A child that was silent for long has another parent by now, or is dead."""
        silence_s = self.parameters.silence_factor * self.parameters.status_interval_s_max
        for child in list(self.tree.children):
            link = self.tree.links.get(child)
            heard_s = self._quiet.heard_s(child, self.topic)
            if link is None or self.turn.now - max(link.heard_s, heard_s) > silence_s:
                self.tree.drop_child(child)

    def choose_lazy(self, silent_s: float = SILENT_S) -> None:
        """Keep enough lazy neighbours, none of them a neighbour or above the node in the tree.

        The first is one with which the node is connected anyhow, where there is one.

        A silent one gives its place to another; if there is none, it is asked again a heartbeat
        later: it may have been cut off.
        """
        before = list(self.lazy)
        for peer in before:
            if self._unfit(peer) or self.turn.now - self._asked.get(peer, self.turn.now) > silent_s:
                del self.lazy[peer]
                self._asked.pop(peer, None)
        fit = [peer for peer in self.tree.members if peer not in before and not self._unfit(peer)]
        while fit and len(self.lazy) < self.parameters.lazy_neighbours:
            near = [] if self.lazy else list(filter(self.tree.is_connected, fit))
            chosen = self.turn.rng.choice(near or fit)
            fit.remove(chosen)
            self.lazy[chosen] = None

    def _unfit(self, peer: PeerId) -> bool:
        return peer == self.turn.me or peer in self.tree.links or peer in self.tree.path

    # Listening.

    def receive(self, sender: PeerId, message: Status) -> None:
        """A neighbour says what it holds."""
        self.tree.hear_of((*message.members, Contact(sender)))
        self.tree.delays.told(sender, message.delay_us)
        link = self.tree.links.get(sender)
        if link is not None:
            self._hear_link(sender, link, message.path)
        elif message.path[1:2] == (self.turn.me,):
            # The sender takes the node for its parent, and would wait for events in vain.
            self.turn.send(sender, Leave(self.topic))
            return
        self.tree.heard_path(sender, message.path, private_root=message.private_root)
        if sender not in self.tree.children:
            self.tree.heard_root(sender, message.path, private_root=message.private_root)
        self._note(sender, message)
        if message.answer:
            is_parent = sender == self.tree.parent
            self.turn.send(sender, self._status(answer=False, regular=is_parent))
            return
        asked = self._asked.pop(sender, None)
        if asked is not None:
            round_trip_s = self.turn.now - asked
            self.round_trip_s = max(round_trip_s, 0.9 * self.round_trip_s)
            self.tree.delays.measured(sender, round_trip_s)
        if message.digest != self.owner.digest():
            if sender in self.lazy:
                self.counts["lazy_difference"] += 1
            self.owner.differs_from(sender, message.digest)

    def _note(self, sender: PeerId, message: Status) -> None:
        """Whether the node and a neighbour agree."""
        is_counted_on = message.regular or sender == self.tree.parent
        has_same_root = message.path[-1:] == self.tree.path_from_here()[-1:]
        if is_counted_on and has_same_root and message.digest == self.owner.digest():
            self._quiet.agree(sender, self)
        else:
            self._quiet.disagree(sender, self.topic)

    def _hear_link(self, sender: PeerId, link: Link, path: tuple[PeerId, ...]) -> None:
        """A child whose path does not come through the node has another parent."""
        link.heard_s = self.turn.now
        elsewhere = sender in self.tree.children and path[1:2] != (self.turn.me,)
        # A path from before it became a child may still be on its way: give it time.
        if elsewhere and self.turn.now - link.since_s > self.parameters.status_interval_s:
            self.tree.drop_child(sender)

    def watched(self) -> Iterable[PeerId]:
        """The members that have yet to answer."""
        return self._asked

    def gone(self, peer: PeerId) -> None:
        """A member is suspected, or has left: it gives its place to another, if one is known."""
        self._quiet.disagree(peer, self.topic)
        self.tree.members.pop(peer, None)
        self._asked.pop(peer, None)
        if self.lazy.pop(peer, self) is None:
            self.choose_lazy()

    def lost(self, peer: PeerId) -> None:
        """A connection ended: in a topic that is asleep, maybe because nobody used it."""
        if peer in self._asked or not self._quiet.is_asleep(self.topic):
            self.gone(peer)

    def members(self) -> list[PeerId]:
        """Members that can be asked for something, latest heard of first."""
        return list(reversed(self.tree.members))

    def announce(self) -> None:
        """Tell all children the node's path."""
        self.tree.send_children(lambda: self._status(answer=False))

    def _status(self, *, answer: bool, regular: bool = False) -> Status:
        told = self.tree.to_name(reversed(self.tree.members), MEMBERS_TOLD)
        return Status(
            self.topic,
            self.owner.digest(),
            self.tree.path_from_here(),
            told,
            answer,
            self.tree.private_root,
            self.tree.delay_us,
            regular,
        )
