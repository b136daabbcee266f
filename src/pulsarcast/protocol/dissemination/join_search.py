"""The search for a node's place in a topic's overlay (docs/spec/pulsarcast.md, "Join"; cube.md).

A peer that failed is avoided for a while, and a peer that leads into the node's own subtree, or is
the parent that it leaves, until the node has a place. After a failure the search begins again,
later and later. If no peer that ranks before the node is alive the overlay needs a root: the node.
Public peers rank before others, and closer ones before farther ones (docs/spec/reach.md). An acting
root goes on looking for a better one, so that parts of a topic that lost each other merge again.
"""

from collections.abc import Iterable
from typing import Protocol

from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.dht.kademlia import Kademlia
from pulsarcast.protocol.dissemination.member_search import DeadEnd, MemberSearch, NobodyFound
from pulsarcast.protocol.messages import Contact, Join, JoinCode, JoinRefused, Role

FAILURES_MAX = 3
"""Failed searches after which the node acts as root, if no closer peer is left to ask."""
BACKOFF_MAX = 16
"""The longest back-off, in first back-offs."""
WAITING_MAX = 64
"""Joiners that wait until the node has a place and a start itself: bounds memory."""
REJOIN_S = 0.2
"""Peers that lost the same neighbour at the same time spread their searches over so long."""


class JoinOwner(Protocol):
    """What the search asks of the overlay in which the node looks for a place."""

    open: bool
    """Whether the node has its start."""
    leaving: bool

    @property
    def attached(self) -> bool:
        """Whether the node has a place."""

    @property
    def is_root(self) -> bool:
        """Whether no known member is closer to the root's key than the node."""

    def become_root(self) -> None:
        """No peer is above the node."""


class JoinSearch:
    """The node's way into one topic's overlay, and an acting root's lookout for a closer peer."""

    __slots__ = (
        "_failures",
        "_lookout_timer",
        "_moving",
        "_owner",
        "_parameters",
        "_reachability",
        "_retry_timer",
        "_turn",
        "_waiting",
        "_ways",
        "walk",
    )

    def __init__(
        self,
        topic: Cid,
        root: PeerId,
        context: Context,
        dht: Kademlia,
        owner: JoinOwner,
    ) -> None:
        self.walk = MemberSearch(topic, root, Role.MEMBER, context, dht, self)
        self._reachability = dht.reachability
        self._turn = context.turn
        self._parameters = context.parameters
        self._owner = owner
        self._failures = 0
        self._moving = False
        """Whether the parent is about to leave: it forwards while the node looks for another."""
        self._ways: list[Contact] = []
        """Where the search begins next."""
        self._waiting: dict[PeerId, Join] = {}
        self._retry_timer: int | None = None
        self._lookout_timer: int | None = None

    @property
    def fresh(self) -> bool:
        """Whether the node holds nothing yet, and asks for a start."""
        return not self._owner.open

    @property
    def _may_stay(self) -> bool:
        return self._owner.attached and not self._moving

    def begin(self) -> None:
        """Find a place, or become the root."""
        if self._owner.leaving or self.walk.is_under_way:
            return
        self._turn.cancel(self._retry_timer)
        if self._ways:
            self.walk.begin_at(self._ways.pop(0))
        elif self.walk.root == self._turn.me and not self._reachability.is_private:
            self._owner.become_root()
        else:
            self.walk.begin()

    def begin_again(self, without: PeerId | None = None) -> None:
        """The node lost its place: begin soon, and avoid the peer that failed."""
        if without is not None:
            self.walk.avoided[without] = self._turn.now
        self._failures = 0
        self._ways.clear()
        self.walk.end()
        self._begin_after(REJOIN_S * self._turn.rng.random())

    def move(self, parent: PeerId, *ways: Contact) -> None:
        """The parent is about to leave, or silent: find another before the node gives it up.

        The search begins at each of some peers in turn, before it looks for others.
        """
        # It must not be found again, however alive others know it to be.
        self.walk.below[parent] = None
        self._moving = True
        self.walk.end()
        self._ways = [way for way in ways if way.peer != self._turn.me]
        self.begin()

    def stay(self) -> None:
        """The parent that the node looked for another of is to be kept."""
        self._turn.cancel(self._retry_timer)
        self.settled()

    def settled(self) -> None:
        """The node has a place: forget the failures on the way to it."""
        self.walk.end()
        self._failures = 0
        self._moving = False
        self._ways.clear()
        self._forget_failures()

    def _forget_failures(self) -> None:
        self.walk.avoided.clear()
        self.walk.below.clear()
        self.walk.reserve.clear()

    def lost(self, peer: PeerId) -> None:
        """A connection ended."""
        self._waiting.pop(peer, None)
        self.walk.lost(peer)

    def stop(self) -> None:
        """The node is about to leave."""
        self.walk.end()
        self._turn.cancel(self._retry_timer)
        self.end_lookout()
        for sender, message in self.take_waiting():
            self.refuse(sender, message, JoinCode.LEAVING)

    # Peers that want a place before the node has its own.

    def wait(self, sender: PeerId, message: Join) -> None:
        """Let a joiner wait, if there is room.

        If both asked each other, the one that ranks first goes on, and the other waits.
        """
        if self.walk.is_asking(sender) and self.ranks_before_node(sender):
            self.refuse(sender, message, JoinCode.WAITING_FOR_YOU)
        elif len(self._waiting) < WAITING_MAX or sender in self._waiting:
            self._waiting[sender] = message
        else:
            self.refuse(sender, message, JoinCode.BUSY)

    def take_waiting(self) -> Iterable[tuple[PeerId, Join]]:
        """The joiners that waited, with what they said."""
        waiting, self._waiting = self._waiting, {}
        return waiting.items()

    def refuse(self, sender: PeerId, message: Join, code: JoinCode) -> None:
        """Tell a joiner that it gets no place here."""
        self._turn.send(sender, JoinRefused(self.walk.topic, message.attempt, code))

    # Failing.

    def search_failed(self, outcome: DeadEnd | NobodyFound) -> None:
        """Try again, at once or later, unless the node has a place; or become the root."""
        self.walk.end()
        match outcome:
            case DeadEnd(peer, below=True):
                self.walk.below[peer] = None
                if not self._may_stay:
                    # Other closer peers had nothing to do with it, and may accept at once.
                    self.begin()
            case DeadEnd(peer):
                self.walk.avoided[peer] = self._turn.now
                if self._ways:
                    self.begin()
                else:
                    self._fail()
            case NobodyFound(is_alone):
                is_early = self._failures < FAILURES_MAX and (self.walk.avoided or is_alone)
                if is_early or self._may_stay:
                    # A closer peer is there but did not accept, or no peer is known yet.
                    self.walk.avoided.clear()
                    self._fail()
                else:
                    # No closer peer is alive, or all are below the node: the overlay needs a root.
                    self._owner.become_root()

    def _fail(self) -> None:
        if self._may_stay:
            self.walk.avoided.clear()
            return
        backoff = min(2**self._failures, BACKOFF_MAX)
        self._failures += 1
        self._begin_after(self._turn.jitter(self._parameters.join_backoff_s * backoff))

    def _begin_after(self, delay_s: float) -> None:
        self._turn.cancel(self._retry_timer)
        self._retry_timer = self._turn.after(delay_s, self.begin)

    # Looking out.

    def ranks_before_node(self, peer: PeerId) -> bool:
        """Whether a peer is to act as root rather than the node."""
        return self._reachability.ranks_before(peer, self._turn.me, self.walk.root_key)

    @property
    def is_top(self) -> bool:
        """Whether no other peer can rank before the node: it is the author, and public."""
        return self.walk.root == self._turn.me and self._reachability.is_public(self._turn.me)

    def look_out_soon(self) -> None:
        """Another peer may have become a better root."""
        self._look_out_after(REJOIN_S + REJOIN_S * self._turn.rng.random())

    def keep_a_lookout(self) -> None:
        """Look now and then for a peer closer to the key, so that parts of a topic merge again."""
        self._look_out_after(self._turn.jitter(self._parameters.root_search_s))

    def _look_out_after(self, delay_s: float) -> None:
        self.end_lookout()
        self._lookout_timer = self._turn.after(delay_s, self._look_out)

    def end_lookout(self) -> None:
        """The node is an acting root no longer."""
        self._turn.cancel(self._lookout_timer)

    def _look_out(self) -> None:
        self.keep_a_lookout()
        if self._owner.is_root and not self.is_top and not self.walk.is_under_way:
            self._forget_failures()
            self.walk.begin(look_up=True)
