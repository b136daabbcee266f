"""Overlays: the interface between a topic and the tree or cube that carries its events.

A topic's author chooses: the tree, for many subscribers and few publishers, or the cube, where
every publisher is the root of its own tree (docs/spec/pulsarcast.md and cube.md). This file holds
what a topic asks of either, and what either asks of the topic. A part of a topic gets no more of it
than the protocol that it uses.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple, Protocol

from pulsarcast.model.ids import PeerId
from pulsarcast.protocol.messages import (
    EventMessage,
    Join,
    OverlayMessage,
    Status,
)

ENVELOPE_BYTES = 16 * 1024
"""What an event costs beside its block: a small one takes as much time as these bytes would, so
that 64 of them are a window, and not thousands that wait in line for seconds."""
DEBT_WINDOWS = 15
"""How far what others published may go beyond the credit: their pace is not the node's to choose,
and a few events late are cheaper than a comparison of frontiers."""

LATELY_S = 60.0
"""How long a pause says something about a link."""


def size_of(block: bytes) -> int:
    """What an event costs in credit."""
    return len(block) + ENVELOPE_BYTES


class Link:
    """The event flow between the node and one neighbour in an overlay."""

    __slots__ = (
        "behind",
        "credit",
        "debt",
        "dry_s",
        "heard_s",
        "pause_s",
        "silent",
        "since_s",
        "taken",
        "unheard",
    )

    def __init__(self, credit: int, now: float) -> None:
        self.credit = credit
        """Bytes of events that the neighbour may be sent until the node's own have to wait."""
        self.debt = DEBT_WINDOWS * credit
        """How far below zero the credit may go before events are skipped."""
        self.taken = 0
        """Bytes of events that the neighbour has sent since it last got credit."""
        self.behind = False
        """The neighbour could not take an event that it may lack: it must compare frontiers."""
        self.silent = False
        """The neighbour is suspected: it is sent no events."""
        self.dry_s = now
        """Since when there has been no credit, if there is none."""
        self.pause_s = 0.0
        """How long the neighbour took to give more, the last time that there was none."""
        self.heard_s = now
        self.since_s = now
        self.unheard = False
        """The neighbour was sent events, and has said nothing since."""

    def spend(self, size: int, now: float) -> bool:
        """Use credit for an event of this size; with too much debt the neighbour falls behind."""
        before = self.credit
        if before <= -self.debt:
            self.behind = True
            return False
        self.credit = before - size
        if self.credit <= 0 < before:
            self.dry_s = now
        return True

    def earn(self, size: int, window: int, now: float) -> None:
        """The neighbour gives credit."""
        was_dry = self.credit <= 0
        self.credit = min(self.credit + size, window)
        if was_dry and self.credit > 0:
            self.pause_s = now - self.dry_s

    def waited_s(self, now: float) -> float:
        """How long the neighbour lately took to give credit, or has taken by now."""
        since_s = now - self.dry_s
        if self.credit <= 0:
            return since_s
        return self.pause_s if since_s < LATELY_S else 0.0

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
    rides: bool = False
    """Of a meta topic: this is the node's place in the topic that it belongs to."""


class CubeView(NamedTuple):
    """What one node knows of a cube, for checkers and for people."""

    members: tuple[PeerId, ...]
    children: tuple[PeerId, ...]
    """The members that would get an event of the node from it, the farthest first."""
    root: bool
    """It knows no member closer to the root's key: newcomers are sent to it."""
    subscribed: bool
    lazy: tuple[PeerId, ...]
    parent: None = None
    rides: bool = False


class OverlayOwner(Protocol):
    """What an overlay asks of the topic that it belongs to."""

    def digest(self) -> bytes: ...

    def attached(self, parent: PeerId | None, digest: bytes | None) -> None:
        """The node has a place now: let in by `parent`, or as the first."""

    def welcome(self, child: PeerId, *, fresh: bool) -> None:
        """A newcomer was let in: tell it what the node holds."""

    def path_changed(self) -> None:
        """The node has a place, or another one: tell the members below it."""

    def lost_touch(self) -> None:
        """The node's parent is silent or lost: others have to be asked for events meanwhile."""

    def differs_from(self, peer: PeerId, digest: bytes | None = None) -> None:
        """A neighbour may hold other events, or does, as its digest says: find out which."""

    def overlay_left(self) -> None:
        """The node is out of the overlay, and no child depends on it."""


class Forwarding(Protocol):
    """The flow of events between the node and its neighbours."""

    @property
    def links(self) -> dict[PeerId, Link]:
        """The neighbours: events flow between each of them and the node."""

    def forward(
        self, message: EventMessage, *, source: PeerId | None, via_overlay: bool = True
    ) -> None:
        """Forward an event, never back to `source`, the peer that sent it.

        `via_overlay` says whether a member sent it live, so that other members forward it too. If
        not, it was recovered, or its publisher handed it in from outside.
        """

    def first_to_hear(self, count: int, source: PeerId | None = None) -> tuple[PeerId, ...]:
        """Some of the members that get an event from the node: its own, or one of `source`.

        For those of others only where they can be waited for: where links form no circles.
        """

    def serve_fewer(self) -> None:
        """The node's line is too narrow for all the members that it passes events on to."""

    def receive_from_stranger(self, sender: PeerId) -> None:
        """A peer that is no neighbour has passed an event on: it takes the node for one."""


class Neighbourhood(Protocol):
    """The node's place among the members."""

    @property
    def upstream(self) -> PeerId | None:
        """The neighbour that is asked first for missing events: in a tree the parent."""

    @property
    def path(self) -> tuple[PeerId, ...]:
        """The peers between the node and the root, nearest first; none in a cube."""

    @property
    def entrance(self) -> PeerId | None:
        """The member that newcomers are sent to, as far as the node knows: the root."""

    @property
    def children(self) -> Collection[PeerId]:
        """The members that get the node's own events from it."""

    @property
    def keeps_together(self) -> bool:
        """Whether there are members that would not find each other without the node."""

    def view(self, *, subscribed: bool, lazy: tuple[PeerId, ...]) -> TreeView | CubeView:
        """The node's place, for checkers and for people."""

    def footprint(self) -> dict[str, int]:
        """How much is kept in memory."""


class Membership(Protocol):
    """How the node becomes a member, stays one, and leaves."""

    @property
    def attached(self) -> bool:
        """Whether the node has a place."""

    @property
    def leaving(self) -> bool:
        """Whether the node is on its way out."""

    def join(self) -> None:
        """Find a place, or be the first."""

    def let_in(self) -> None:
        """The node has its start: answer the peers that waited for it."""

    def leave(self, *, at_once: bool = False) -> None:
        """Leave in good order, or at once; the owner hears of it once the node is out."""

    def look_elsewhere(self) -> None:
        """The member that let the node in does not help: find another."""

    def receive(self, sender: PeerId, message: Join | OverlayMessage) -> None:
        """A peer wants to join, or says something about the node's place or its own."""


class Connections(Protocol):
    """What an overlay hears of the node's connections."""

    def watched(self) -> Iterable[PeerId]:
        """The peers that the node relies on, to be watched for silence."""

    def fell_silent(self, peer: PeerId) -> None:
        """A connected peer is suspected."""

    def spoke_again(self, peer: PeerId) -> None:
        """A suspected peer is alive."""

    def lost(self, peer: PeerId) -> None:
        """A connection ended."""

    def reach_changed(self, peer: PeerId) -> None:
        """A connected peer, or the node itself, can be dialled in another way."""


class Overlay(Forwarding, Neighbourhood, Membership, Connections, Protocol):
    """The way in which a topic's events travel, whole: a tree or a cube."""


class Acquaintances(Protocol):
    """The members that the node knows beside its neighbours, from heartbeats."""

    @property
    def round_trip_s(self) -> float:
        """How long a member took to answer, at most, of late."""

    @property
    def lazy(self) -> Mapping[PeerId, None]:
        """The members, beside the main neighbour, that the node compares frontiers with."""

    def members(self) -> list[PeerId]:
        """Members that can be asked for something."""


class Timer(Protocol):
    """When heartbeats are due."""

    def start(self) -> None:
        """Begin."""

    def stop(self) -> None:
        """Fire no more."""

    def hurry(self) -> None:
        """Something changed: fire at the normal interval again."""


class Conversation(Acquaintances, Protocol):
    """The heartbeats between members."""

    @property
    def timer(self) -> Timer:
        """When the next one is due."""

    def lost_touch(self) -> None:
        """Events come from no neighbour for now: compare with other members until they do."""

    def watched(self) -> Iterable[PeerId]:
        """The members that have yet to answer, to be watched for silence."""

    def gone(self, peer: PeerId) -> None:
        """A member is suspected, or has left."""

    def announce(self) -> None:
        """The node has a place, or another one: tell the members that it concerns."""

    def receive(self, sender: PeerId, message: Status) -> None:
        """A member says what it holds."""

    def lost(self, peer: PeerId) -> None:
        """A connection ended."""
