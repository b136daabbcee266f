"""Riding: how the events of a meta topic travel (docs/spec/pulsarcast.md, Meta topics).

Every member of a topic follows its meta topic too. So the meta topic needs no tree for them: its
events take the overlay of the topic, the **trunk**, and use its credit. What says which events a
member of the topic holds says it of the meta topic as well.

Nodes that follow the meta topic alone have a tree, as for any topic. The root of the trunk takes a
place in that tree once such a node asks it for one: that place is its **branch**.
"""

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.dissemination.overlay import (
    Conversation,
    CubeView,
    Link,
    Overlay,
    OverlayOwner,
    TreeView,
)
from pulsarcast.protocol.dissemination.tree import DisseminationTree
from pulsarcast.protocol.dissemination.tree_heartbeat import Heartbeat
from pulsarcast.protocol.messages import (
    Contact,
    EventMessage,
    Join,
    JoinAccepted,
    JoinCode,
    JoinReferred,
    JoinRefused,
    Leave,
    OverlayMessage,
    Role,
    Status,
)

NAMED_MAX = 4
"""Members of the trunk that are named to a visitor: as many as a tree names."""


class Trunk(NamedTuple):
    """How the events of the topic travel that a meta topic belongs to."""

    overlay: Overlay
    heartbeat: Conversation


class Branch(NamedTuple):
    """The node's place among those that follow the meta topic alone."""

    tree: DisseminationTree
    heartbeat: Heartbeat


class GrowBranch(Protocol):
    """Makes the node's place in the tree of a meta topic."""

    def __call__(self, *, started: bool) -> Branch: ...


class RidingOverlay:
    """The node's place in one meta topic: the one that it has in the topic, a branch, or both."""

    __slots__ = ("_grow", "_is_leaving", "_open", "branch", "owner", "topic", "trunk", "turn")

    def __init__(
        self,
        topic: Cid,
        context: Context,
        owner: OverlayOwner,
        grow: GrowBranch,
        *,
        started: bool,
    ) -> None:
        self.topic = topic
        self.turn = context.turn
        self.owner = owner
        self.trunk: Trunk | None = None
        self.branch: Branch | None = None
        self._grow = grow
        self._open = started
        self._is_leaving = False

    # The trunk.

    def mount(self, trunk: Trunk) -> None:
        """The node follows the topic that this meta topic belongs to."""
        self.trunk = trunk

    def dismount(self) -> None:
        """The node is out of that topic."""
        self.trunk = None
        if self._is_leaving and self.branch is None:
            self.owner.overlay_left()

    def _branch_out(self) -> Branch:
        if self.branch is None:
            self.branch = self._grow(started=self._open)
            self.branch.heartbeat.timer.start()
            self.branch.tree.join()
        return self.branch

    # Membership.

    @property
    def attached(self) -> bool:
        """Whether the node has a place."""
        in_tree = self.branch is not None and self.branch.tree.attached
        return in_tree or (self.trunk is not None and self.trunk.overlay.attached)

    def join(self) -> None:
        """Find a place, unless the node has one in the topic, and needs no start."""
        if self.trunk is None or not self._open:
            self._branch_out()

    def let_in(self) -> None:
        """The node has its start."""
        self._open = True
        if self.branch is not None:
            self.branch.tree.let_in()

    def leave(self, *, at_once: bool = False) -> None:
        """Leave the tree; a node that is on its way out of the topic passes events on till then."""
        self._is_leaving = True
        if self.branch is not None:
            self.branch.tree.leave(at_once=at_once)
        elif self.trunk is None or not self.trunk.overlay.leaving:
            self.owner.overlay_left()

    def look_elsewhere(self) -> None:
        """The parent in the tree does not help: find another."""
        if self.branch is not None:
            self.branch.tree.look_elsewhere()

    def receive(self, sender: PeerId, message: Join | OverlayMessage) -> None:
        """A peer wants to join, or says something about the node's place in the tree or its own."""
        if self.branch is not None:
            self.branch.tree.receive(sender, message)
        elif isinstance(message, Join):
            self._receive_join(sender, message)

    def _receive_join(self, sender: PeerId, message: Join) -> None:
        """A member of the topic answers visitors; its root alone takes in who wants a place."""
        entrance = None if self.trunk is None else self.trunk.overlay.entrance
        if message.role is Role.VISITOR:
            me = (self.turn.me,)
            named = tuple(map(Contact, self.children[:NAMED_MAX]))
            digest = self.owner.digest()
            self.turn.send(sender, JoinAccepted(self.topic, message.attempt, me, named, digest))
        elif entrance is None:
            self.turn.send(sender, JoinRefused(self.topic, message.attempt, JoinCode.BUSY))
        elif entrance == self.turn.me:
            self._branch_out().tree.receive(sender, message)
        else:
            contact = Contact(entrance)
            referred = JoinReferred(self.topic, message.attempt, contact, handed_down=True)
            self.turn.send(sender, referred)

    # Forwarding.

    @property
    def links(self) -> dict[PeerId, Link]:
        """The neighbours in the tree: with those in the topic, the topic keeps the accounts."""
        return {} if self.branch is None else self.branch.tree.links

    def forward(
        self,
        message: EventMessage,
        *,
        source: PeerId | None,
        via_overlay: bool = True,
    ) -> None:
        """Pass an event on in the topic, and in the tree."""
        if self.trunk is not None:
            overlay = self.trunk.overlay
            is_live = via_overlay and source in overlay.links
            overlay.forward(message, source=source, via_overlay=is_live)
        if self.branch is not None:
            self.branch.tree.forward(message, source=source, via_overlay=via_overlay)

    def first_to_hear(self, count: int, source: PeerId | None = None) -> tuple[PeerId, ...]:
        """Some of the members that get an event from the node."""
        some = () if self.branch is None else self.branch.tree.first_to_hear(count, source)
        if self.trunk is not None:
            some += self.trunk.overlay.first_to_hear(count, source)
        return some[:count]

    def serve_fewer(self) -> None:
        """The node's line is too narrow for all its children in the tree."""
        if self.branch is not None:
            self.branch.tree.serve_fewer()

    def receive_from_stranger(self, sender: PeerId) -> None:
        """A peer that is no neighbour in the tree has passed an event on."""
        if self.trunk is not None and sender not in self.trunk.overlay.links:
            self.trunk.overlay.receive_from_stranger(sender)
        elif self.trunk is None and self.branch is not None:
            self.branch.tree.receive_from_stranger(sender)

    # The node's place.

    def _overlays(self) -> list[Overlay]:
        trunk: list[Overlay] = [] if self.trunk is None else [self.trunk.overlay]
        return trunk if self.branch is None else [*trunk, self.branch.tree]

    @property
    def upstream(self) -> PeerId | None:
        """The neighbour that is asked first for missing events: the one of the topic."""
        return next((each.upstream for each in self._overlays() if each.upstream is not None), None)

    @property
    def path(self) -> tuple[PeerId, ...]:
        """The peers between the node and the root of the tree; none for a member of the topic."""
        return () if self.trunk is not None or self.branch is None else self.branch.tree.path

    @property
    def entrance(self) -> PeerId | None:
        """The member that newcomers are sent to."""
        return next((each.entrance for each in self._overlays()), None)

    @property
    def leaving(self) -> bool:
        """Whether the node is on its way out."""
        return self._is_leaving

    @property
    def children(self) -> list[PeerId]:
        """The members that get the node's own events from it."""
        return list(dict.fromkeys(child for each in self._overlays() for child in each.children))

    @property
    def keeps_together(self) -> bool:
        """Whether there are members that would not find each other without the node."""
        return self.branch is not None and self.branch.tree.keeps_together

    def view(self, *, subscribed: bool, lazy: tuple[PeerId, ...]) -> TreeView | CubeView:
        """The node's place in the tree; without one, that in the topic."""
        if self.branch is not None:
            return self.branch.tree.view(subscribed=subscribed, lazy=lazy)
        if self.trunk is not None:
            return self.trunk.overlay.view(subscribed=subscribed, lazy=lazy)._replace(rides=True)
        return TreeView(None, (), False, subscribed, lazy)

    def footprint(self) -> dict[str, int]:
        """How much is kept in memory for the meta topic alone."""
        return {} if self.branch is None else self.branch.tree.footprint()

    # Connections: the topic hears of its own.

    def watched(self) -> Iterable[PeerId]:
        """The peers that the node relies on in the tree."""
        return () if self.branch is None else self.branch.tree.watched()

    def fell_silent(self, peer: PeerId) -> None:
        """A connected peer is suspected."""
        if self.branch is not None:
            self.branch.tree.fell_silent(peer)

    def spoke_again(self, peer: PeerId) -> None:
        """A suspected peer is alive."""
        if self.branch is not None:
            self.branch.tree.spoke_again(peer)

    def lost(self, peer: PeerId) -> None:
        """A connection ended."""
        if self.branch is not None:
            self.branch.tree.lost(peer)

    def reach_changed(self, peer: PeerId) -> None:
        """A connected peer, or the node itself, can be dialled in another way."""
        if self.branch is not None:
            self.branch.tree.reach_changed(peer)


class RidingHeartbeat:
    """The heartbeats of a meta topic: the topic's say what a member holds of both."""

    __slots__ = ("overlay", "timer")

    def __init__(self, overlay: RidingOverlay) -> None:
        self.overlay = overlay
        self.timer = self

    def _conversations(self) -> list[Conversation]:
        trunk, branch = self.overlay.trunk, self.overlay.branch
        found: list[Conversation] = [] if trunk is None else [trunk.heartbeat]
        return found if branch is None else [*found, branch.heartbeat]

    @property
    def round_trip_s(self) -> float:
        """How long a member took to answer, at most, of late."""
        return max((each.round_trip_s for each in self._conversations()), default=0.0)

    @property
    def lazy(self) -> dict[PeerId, None]:
        """The members, beside the main neighbour, that the node compares frontiers with."""
        return {peer: None for each in self._conversations() for peer in each.lazy}

    def members(self) -> list[PeerId]:
        """Members that can be asked for something: those of the topic know its meta topic."""
        found = [peer for each in self._conversations() for peer in each.members()]
        if self.overlay.trunk is not None:
            overlay = self.overlay.trunk.overlay
            found = [*overlay.links, *overlay.path, *found]
        return [peer for peer in dict.fromkeys(found) if peer != self.overlay.turn.me]

    # As a timer.

    def start(self) -> None:
        """A branch starts its own when it grows."""

    def stop(self) -> None:
        """The node is out of the tree."""
        if self.overlay.branch is not None:
            self.overlay.branch.heartbeat.timer.stop()

    def hurry(self) -> None:
        """Something changed: the topic's heartbeats say so, and those of the tree."""
        for each in self._conversations():
            each.timer.hurry()

    # In the tree.

    def lost_touch(self) -> None:
        """Events come from no neighbour in the tree."""
        if self.overlay.branch is not None:
            self.overlay.branch.heartbeat.lost_touch()

    def watched(self) -> Iterable[PeerId]:
        """The members that have yet to answer."""
        return () if self.overlay.branch is None else self.overlay.branch.heartbeat.watched()

    def gone(self, peer: PeerId) -> None:
        """A member is suspected, or has left."""
        if self.overlay.branch is not None:
            self.overlay.branch.heartbeat.gone(peer)

    def announce(self) -> None:
        """The node has a place in the tree, or another one."""
        if self.overlay.branch is not None:
            self.overlay.branch.heartbeat.announce()

    def receive(self, sender: PeerId, message: Status) -> None:
        """A member of the tree says what it holds."""
        if self.overlay.branch is not None:
            self.overlay.branch.heartbeat.receive(sender, message)
        elif message.answer:
            self.overlay.turn.send(sender, Leave(self.overlay.topic))

    def lost(self, peer: PeerId) -> None:
        """A connection ended."""
        if self.overlay.branch is not None:
            self.overlay.branch.heartbeat.lost(peer)
