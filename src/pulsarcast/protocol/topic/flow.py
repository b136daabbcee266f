"""Flow control: gives neighbours credit to send events (docs/spec/pulsarcast.md, Flow control).

Credit counts bytes. A neighbour may send an event of its own as long as it has any credit left, so
that every window has room for the largest event, and pass on those of others for some windows more.
If the node's disk cannot keep up, the node gives no more credit, and the neighbour skips events in
the end; so it does where too much waits on the link to it already.
Once the neighbour can send again, the two compare frontiers.

The members of a tree hand pressure on: a node gives a neighbour credit as long as half of those
that it passes the neighbour's events on to have room. The members of a cube wait for nobody: their
links form circles, that could wait for themselves.
"""

from typing import Protocol

from pulsarcast.model.ids import PeerId
from pulsarcast.protocol.dissemination.overlay import Forwarding, Link
from pulsarcast.protocol.limits import COUNT_MAX
from pulsarcast.protocol.messages import Credit
from pulsarcast.protocol.topic.state import TopicState

UNSYNCED_BYTES_MAX = 4 * 1024 * 1024
"""Bounds what is on its way to the disk; above it neighbours get no more credit."""
HANDED_ON_S = 2.0
"""How long credit is withheld for a member further on that takes nothing: a hostile one slows the
members before it no longer."""
HEARERS_MAX = 64
"""Bounds the members whose room is looked at: more than a member of a tree or a cube has."""
NARROW_PAUSE_S = 2.0
"""Where most members take this long to give credit, it is the node's line that is too narrow."""
GRANTS = 4
"""Credit comes back in so many parts of a window."""


class FlowOwner(Protocol):
    """Asked of the topic."""

    @property
    def unsynced_bytes(self) -> int:
        """Bytes of events on their way to the disk: the topic's, and its meta topic's."""

    def compare(self, peer: PeerId) -> None:
        """Find out with a peer what the two hold that the other does not."""


class FlowControl:
    """Gives credit to neighbours, and takes it from them."""

    __slots__ = (
        "_counts",
        "_disk_is_late",
        "_overlay",
        "_owner",
        "_stall_s",
        "_timer",
        "_topic",
        "_turn",
        "_window",
        "_withholds_credit",
    )

    def __init__(self, state: TopicState, overlay: Forwarding, owner: FlowOwner) -> None:
        self._topic = state.id
        self._turn = state.context.turn
        self._window = state.context.parameters.window_bytes
        self._counts = state.context.counts
        self._overlay = overlay
        self._owner = owner
        self._stall_s = state.context.parameters.stall_s
        self._withholds_credit = False
        """Whether credit is withheld until the disk, or the members further on, have caught up."""
        self._disk_is_late = False
        self._timer: int | None = None

    @property
    def is_idle(self) -> bool:
        """Whether no credit is withheld."""
        return not (self._withholds_credit or self._disk_is_late or self._timer is not None)

    def took_from(self, sender: PeerId, size: int) -> None:
        """A peer sent an event: it uses credit, even if the event is refused.

        A neighbour gets more credit, if disk and members keep up.
        """
        link = self._overlay.links.get(sender)
        if link is None:
            self._overlay.receive_from_stranger(sender)
            return
        link.taken += size
        if link.taken < self._window // GRANTS:
            return
        if self._keeps_up(sender):
            self._give(sender, link)
        else:
            self._withhold()

    def _keeps_up(self, sender: PeerId) -> bool:
        self._disk_is_late = self._owner.unsynced_bytes >= UNSYNCED_BYTES_MAX
        return not self._disk_is_late and not self.pauses_s(sender)

    def _withhold(self) -> None:
        self._withholds_credit = True
        if self._timer is None:
            # By then a member that takes nothing at all does not count any more.
            self._timer = self._turn.after(HANDED_ON_S, self._expire)

    def _expire(self) -> None:
        self._timer = None
        self.look_again()

    def pauses_s(self, source: PeerId | None = None) -> list[float]:
        """How long the members that events are passed on to took lately to give credit.

        Of those that have no room, if they are most of them; one that takes nothing at all counts
        for a while only. The events are those of a neighbour, or the node's own.
        """
        now, full, links = self._turn.now, self._turn.full, self._overlay.links
        # What is on its way to the node's own disk leaves soon.
        reserved = self._owner.unsynced_bytes if source is None else 0
        patience_s = self._stall_s if source is None else HANDED_ON_S
        ready, pauses_s = 0, []
        for peer in self._overlay.first_to_hear(HEARERS_MAX, source):
            link = links.get(peer)
            if link is None or link.silent:
                continue
            backlog = full.get(peer)
            if link.credit > reserved and backlog is None:
                ready += 1
                continue
            since_s = link.dry_s if link.credit <= 0 else now
            if backlog is not None:
                since_s = min(since_s, backlog.since_s)
            if now - since_s < patience_s:
                pauses_s.append(link.pause_s)
        return [] if ready >= len(pauses_s) else sorted(pauses_s)

    def _give(self, peer: PeerId, link: Link) -> None:
        self._turn.send(peer, Credit(self._topic, min(link.taken, COUNT_MAX)))
        link.taken = 0

    def look_again(self) -> None:
        """The disk or members may have caught up: neighbours get the credit that was withheld."""
        if not self._withholds_credit:
            return
        self._withholds_credit = False
        for peer, link in self._overlay.links.items():
            if link.taken >= self._window // GRANTS:
                if self._keeps_up(peer):
                    self._give(peer, link)
                else:
                    self._withhold()

    def synced(self) -> None:
        """An event is on the disk."""
        if self._disk_is_late and self._owner.unsynced_bytes < UNSYNCED_BYTES_MAX:
            self.look_again()

    def receive(self, sender: PeerId, message: Credit) -> None:
        """A neighbour can take more events; if it missed some, compare frontiers."""
        link = self._overlay.links.get(sender)
        if link is None:
            return
        was_dry = link.credit <= 0
        link.earn(message.size, self._window, self._turn.now)
        if was_dry and link.pause_s >= NARROW_PAUSE_S:
            self._see_whether_narrow()
        self.look_again()
        self._catch_up(sender, link)

    def _see_whether_narrow(self) -> None:
        links = self._overlay.links.values()
        waits_s = [link.waited_s(self._turn.now) for link in links if not link.silent]
        if sum(each >= NARROW_PAUSE_S for each in waits_s) > len(waits_s) // 2:
            self._overlay.serve_fewer()

    def freed(self, peer: PeerId) -> None:
        """The link to a peer has room again; if it missed events, compare frontiers."""
        link = self._overlay.links.get(peer)
        if link is not None:
            self.look_again()
            self._catch_up(peer, link)

    def _catch_up(self, peer: PeerId, link: Link) -> None:
        if link.behind and link.credit > 0 and peer not in self._turn.full:
            link.behind = False
            self._counts["fell_behind"] += 1
            self._owner.compare(peer)
