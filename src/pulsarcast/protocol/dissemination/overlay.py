"""Overlays: how the events of one topic travel between its members (design 7).

There are two, and a topic's author chooses: the tree, for many subscribers and few publishers, and
the cube, where every publisher is the root of its own tree. What a topic asks of either is here,
and what either asks of the topic; who stands where, and why, is theirs alone.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple, Protocol

from pulsarcast.model.ids import PeerId
from pulsarcast.protocol.messages import (
    Contact,
    EventMessage,
    Join,
    OverlayMessage,
    Status,
)


class Link:
    """The event flow between us and one neighbour in an overlay."""

    __slots__ = ("behind", "credit", "heard_s", "since_s", "taken", "unheard")

    def __init__(self, credit: int, now: float) -> None:
        self.credit = credit
        """Events that we may still send it."""
        self.taken = 0
        """Events it has sent us since we last gave it credit."""
        self.behind = False
        """It ran out of credit and has missed events: it must compare frontiers."""
        self.heard_s = now
        self.since_s = now
        self.unheard = False
        """We have sent it events, and it has said nothing since."""

    def heard(self, now: float) -> None:
        """The neighbour is alive."""
        self.heard_s = now
        self.unheard = False


class TreeView(NamedTuple):
    """One node's place in a tree, for checkers and for people."""

    parent: PeerId | None
    children: tuple[PeerId, ...]
    root: bool
    subscribed: bool
    lazy: tuple[PeerId, ...]


class CubeView(NamedTuple):
    """What one node knows of a cube, for checkers and for people."""

    members: tuple[PeerId, ...]
    children: tuple[PeerId, ...]
    """Whom it would send an event of its own, the farthest first."""
    root: bool
    """It knows no member closer to the root's key: whoever joins is sent to it."""
    subscribed: bool
    lazy: tuple[PeerId, ...]
    parent: None = None


class OverlayOwner(Protocol):
    """What an overlay asks of the topic that it belongs to."""

    def digest(self) -> bytes: ...

    def attached(self, parent: PeerId | None, digest: bytes | None) -> None:
        """We have a place now: let in by `parent`, or as the first."""

    def learn(self, members: tuple[Contact, ...]) -> None:
        """Whoever let us in names other members."""

    def welcome(self, child: PeerId, *, fresh: bool) -> None:
        """A newcomer was let in: tell it where we stand."""

    def path_changed(self) -> None:
        """We have a place, or another one: those whom it concerns should hear of it."""

    def differs_from(self, peer: PeerId) -> None:
        """A neighbour may hold something else than we do: show it what we hold."""

    def overlay_left(self) -> None:
        """The node is out of the overlay, and no child depends on it."""


class Overlay(Protocol):
    """What a topic asks of the way in which its events travel."""

    root_peer: PeerId
    """Towards whose key joins travel."""
    links: dict[PeerId, Link]
    """Those between whom and us events flow."""
    fresh: bool
    """We hold nothing yet, and ask whoever lets us in where to start."""
    open: bool
    """Whether we know enough of the topic to let others in."""

    @property
    def upstream(self) -> PeerId | None:
        """The neighbour that is asked first for missing events: in a tree the parent."""

    @property
    def path(self) -> tuple[PeerId, ...]:
        """Those above us, nearest first, where there is such a thing."""

    @property
    def children(self) -> Collection[PeerId]:
        """Those who depend on us for an event of our own."""

    @property
    def keeps_together(self) -> bool:
        """Whether there are others who would not find each other without us."""

    def is_neighbour(self, peer: PeerId) -> bool:
        """Whether events flow between us and this peer."""

    def path_from_here(self) -> tuple[PeerId, ...]:
        """What we say of our place: ourselves first, then those above us."""

    def first_to_hear(self, count: int) -> tuple[PeerId, ...]:
        """Some of those who get an event of our own from us."""

    def join(self) -> None:
        """Find a place, or be the first."""

    def let_in(self) -> None:
        """We have our start: answer those who waited for it."""

    def leave(self) -> None:
        """Go, in good order; the owner hears of it once we are out."""

    def look_elsewhere(self) -> None:
        """Whoever let us in is no good: find another."""

    def lost(self, peer: PeerId) -> None:
        """A connection ended."""

    def receive_join(self, sender: PeerId, message: Join) -> None:
        """Somebody wants to come in, or only looks for a member."""

    def receive(self, sender: PeerId, message: OverlayMessage) -> None:
        """A peer says something about our place or its own."""

    def receive_from_stranger(self, sender: PeerId) -> None:
        """A peer that is no neighbour takes us for one: it has passed an event on to us."""

    def forward(
        self, message: EventMessage, *, source: PeerId | None, via_overlay: bool = True
    ) -> None:
        """Forward an event, never back to `source`, the peer that sent it.

        `via_overlay` says whether a member sent it live, so that other members forward it too. If
        not, it was recovered, or its publisher handed it in from outside.
        """

    def view(self, *, subscribed: bool, lazy: tuple[PeerId, ...]) -> TreeView | CubeView:
        """Our place."""

    def footprint(self) -> dict[str, int]:
        """How much we keep in memory."""


class Conversation(Protocol):
    """What a topic asks of the heartbeats between members."""

    round_trip_s: float

    @property
    def lazy(self) -> Mapping[PeerId, None]:
        """Those whom we chose ourselves to compare frontiers with."""

    def start(self) -> None:
        """Begin to beat."""

    def stop(self) -> None:
        """Fall silent."""

    def hurry(self) -> None:
        """Something changed: beat at the normal pace again."""

    def receive(self, sender: PeerId, message: Status) -> None:
        """A member says where it stands."""

    def learn(self, contacts: tuple[Contact, ...]) -> None:
        """Others name some members."""

    def lost(self, peer: PeerId) -> None:
        """A connection ended, or a member has left."""

    def members(self) -> list[PeerId]:
        """Members we could ask for something."""

    def announce(self) -> None:
        """We have a place, or another one: say so to those whom it concerns."""
