"""Dissemination trees: the node's parent and children in a topic's tree (thesis, 3.3.2).

There is one tree per topic, rooted at its author (docs/spec/pulsarcast.md).

A join travels to peers ever closer to the root's key, so the way up has no cycle. Peers that cannot
be dialled are below those that can (docs/spec/reach.md, Who acts as root). Where a full
parent hands a joiner down to one of its children, distance proves nothing any more: the answer
carries the path to the root, and no node attaches below itself. Paths travel with every heartbeat,
so a cycle made by a race is found and broken. When the root is gone, the closest live peer to the
key acts as root and keeps looking for a closer one, so that trees split by a partition merge again.
"""

from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from typing import assert_never

from pulsarcast.model.ids import Cid, PeerId, is_closer
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.dht.kademlia import Kademlia
from pulsarcast.protocol.dissemination.delays import Delays, is_clearly_less
from pulsarcast.protocol.dissemination.handing_down import HandingDown
from pulsarcast.protocol.dissemination.join_search import JoinSearch
from pulsarcast.protocol.dissemination.overlay import Link, OverlayOwner, TreeView, size_of
from pulsarcast.protocol.effects import Send
from pulsarcast.protocol.limits import INTEGER_MAX
from pulsarcast.protocol.messages import (
    Contact,
    EventMessage,
    HandOver,
    Join,
    JoinAccepted,
    JoinCode,
    JoinReferred,
    JoinRefused,
    Leave,
    Meet,
    Members,
    Message,
    OverlayMessage,
    Role,
)

PATH_MAX = 255
"""Peers between a node and the root; a longer path is a cycle, or a lie."""
BETTER_S_MAX = 60.0
"""How long two trees of one topic may know of each other before single members move to the one with
the better root: four times as long as roots take to look for each other (`root_search_s`)."""
FANOUT_MIN = 2
"""Children that a node with a narrow line serves all the same: with fewer, trees grow too deep."""
NARROW_S = 600.0
"""How long a narrow line is remembered, before the node serves as many children as others."""
MEMBERS_MAX = 16
"""Members remembered to choose lazy neighbours from: bounds memory."""


class DisseminationTree:
    """The node's place in one topic's dissemination tree."""

    __slots__ = (
        "_below_private",
        "_better_since_s",
        "_down",
        "_leave_timer",
        "_move_timer",
        "_narrow",
        "_parting",
        "_reachability",
        "_shortening",
        "_start_timer",
        "_useless",
        "children",
        "counts",
        "delays",
        "is_root",
        "leaving",
        "links",
        "members",
        "open",
        "owner",
        "parameters",
        "parent",
        "path",
        "root_peer",
        "search",
        "topic",
        "turn",
    )

    def __init__(
        self,
        topic: Cid,
        root: PeerId,
        context: Context,
        dht: Kademlia,
        owner: OverlayOwner,
        *,
        started: bool = True,
    ) -> None:
        self.topic = topic
        self.root_peer = root
        self.turn = context.turn
        self.parameters = context.parameters
        self.owner = owner
        self.counts = context.counts
        self.parent: PeerId | None = None
        self.path: tuple[PeerId, ...] = ()
        """From the parent, first, to the root, last; empty for a root."""
        self._below_private = False
        """Whether the root that the parent named cannot be dialled."""
        self.children: dict[PeerId, None] = {}
        self._parting: dict[PeerId, None] = {}
        """Children that are about to leave, and may have left: no joiner is handed down to them."""
        self.links: dict[PeerId, Link] = {}
        self._narrow: tuple[int, float] | None = None
        """How many children the node's line can serve, and until when that is believed."""
        self.is_root = False
        self.delays = Delays()
        self._useless: dict[PeerId, None] = {}
        """The last parents that the node left because they did not help."""
        self._shortening: int | None = None
        """The number of the last search for a parent that is less far from the root."""
        self.members: dict[PeerId, None] = {}
        """Members that the node has heard of, the latest last."""
        self.open = started
        """Whether the node has its start, and takes children in; if not, it asks for one."""
        self.leaving = False
        self.search = JoinSearch(topic, root, context, dht, self)
        self._reachability = dht.reachability
        self._better_since_s: float | None = None
        """Since when other members name a root that ranks before the node's."""
        self._down = HandingDown(self._reachability)
        self._leave_timer: int | None = None
        self._move_timer: int | None = None
        self._start_timer: int | None = None

    # The node's place.

    @property
    def attached(self) -> bool:
        """Whether the node has a place in the tree."""
        return self.is_root or self.parent is not None

    @property
    def upstream(self) -> PeerId | None:
        """The parent."""
        return self.parent

    def is_connected(self, peer: PeerId) -> bool:
        """Whether there is a connection to a peer."""
        return self._reachability.is_connected(peer)

    @property
    def in_touch(self) -> bool:
        """Whether the node is the root, or has a parent that is not silent."""
        return self.attached and not self._is_silent(self.parent)

    @property
    def keeps_together(self) -> bool:
        """Whether the node is a root with children."""
        return self.parent is None and bool(self.children)

    @property
    def private_root(self) -> bool:
        """Whether the root cannot be dialled directly, as far as the root says so."""
        return self._below_private if self.parent is not None else self._reachability.is_private

    def path_from_here(self) -> tuple[PeerId, ...]:
        """The node's path to the root, the node first."""
        return (self.turn.me, *self.path)

    @property
    def entrance(self) -> PeerId | None:
        """The root."""
        return self.turn.me if self.is_root else next(reversed(self.path), None)

    @property
    def fanout(self) -> int:
        """How many children the node serves."""
        if self._narrow is not None and self.turn.now >= self._narrow[1]:
            self._narrow = None
        return self.parameters.fanout if self._narrow is None else self._narrow[0]

    def first_to_hear(self, count: int, source: PeerId | None = None) -> tuple[PeerId, ...]:
        """Some of the neighbours that get an event of the node, or of `source`, from it."""
        return tuple(peer for peer in self.links if peer != source)[:count]

    # Joining.

    def join(self) -> None:
        """Find a parent, or become the root."""
        self.search.begin()

    def become_root(self) -> None:
        """No peer is above the node: it is the author, or ranks first among those alive."""
        if self.root_peer != self.turn.me:
            self.counts["acting_root"] += 1
        if not self.search.is_top:
            self.search.keep_a_lookout()
        old, self.parent, self.path = self.parent, None, ()
        if old is not None:
            self._unlink(old)
            self.turn.send(old, Leave(self.topic))
        self.is_root = True
        self._settled(None, None)

    # Answers.

    def receive(self, sender: PeerId, message: Join | OverlayMessage) -> None:
        """A peer wants to join, or says something about the node's place or its own."""
        match message:
            case Join():
                self.receive_join(sender, message)
            case JoinAccepted():
                self.accepted(sender, message)
            case JoinReferred():
                self.search.walk.referred(sender, message)
            case JoinRefused():
                self.search.walk.refused(sender, message)
            case Leave():
                self.receive_leave(sender)
            case HandOver():
                self.receive_hand_over(sender, message)
            case Meet() | Members():
                """A cube's; there is none here."""
            case _ as unreachable:
                assert_never(unreachable)

    def accepted(self, sender: PeerId, message: JoinAccepted) -> None:
        """A peer takes the node in; the members that it names count only if the node asked it."""
        if not self.search.walk.is_answer(sender, message.attempt):
            if sender != self.parent and not self.search.walk.is_asking(sender):
                self.turn.send(sender, Leave(self.topic))
            return
        # A child above the peer has not told it yet that it has another parent, the node, now.
        closes_cycle = self.is_cycle(message.path) or any(
            above in self.children for above in message.path[1:]
        )
        if closes_cycle or self._outranks(message.path, message.private_root):
            self.turn.send(sender, Leave(self.topic))
            self.search.walk.dead_end()
            return
        self.delays.told(sender, message.delay_us)
        self.delays.measured(sender, self.search.walk.waited_s)
        is_shorter = sender == self.parent or self._is_shorter(sender)
        if message.attempt == self._shortening and not is_shorter:
            # The peer that was chosen had no room, and this one is no gain.
            self.turn.send(sender, Leave(self.topic))
            self.search.walk.end()
            return
        merged = self.is_root
        old = self.parent
        if old is not None and old != sender:
            self._unlink(old)
            self.turn.send(old, Leave(self.topic))
        if sender in self.children:
            # Two nodes that both looked for a parent: the path says who is above.
            del self.children[sender]
        self.parent, self.path, self.is_root = sender, message.path, False
        self._below_private = message.private_root
        self.links[sender] = Link(self.parameters.window_bytes, self.turn.now)
        self.search.end_lookout()
        if merged:
            self.counts["tree_merge"] += 1
        self.hear_of(message.members)
        self._settled(sender, message.digest)
        self._expect_start()

    def _expect_start(self) -> None:
        """A fresh node's parent owes it a start; without one, look for another parent."""
        self.turn.cancel(self._start_timer)
        if not self.open and not self.leaving:
            wait_s = 2 * self.parameters.join_timeout_s
            self._start_timer = self.turn.after(wait_s, self._check_start)

    def _check_start(self) -> None:
        if not self.open:
            self.look_elsewhere()

    @property
    def delay_s(self) -> float:
        """How long an event takes from the root to the node, as far as it knows."""
        return 0.0 if self.parent is None else self.delays.through(self.parent) or 0.0

    @property
    def delay_us(self) -> int:
        """The same, to tell others."""
        return min(round(1e6 * self.delay_s), INTEGER_MAX)

    def _is_shorter(self, peer: PeerId) -> bool:
        """Whether events would come clearly sooner by way of a peer than from the parent."""
        delay_s = None if peer in self._useless else self.delays.through(peer)
        return delay_s is not None and is_clearly_less(delay_s, self.delay_s)

    def shorten(self, peers: Iterable[PeerId]) -> None:
        """Move to the one of some members by which events come soonest, if it is worth it."""
        if self.is_root or self.leaving or not self.in_touch or self.search.walk.is_under_way:
            return
        closer = [peer for peer in peers if peer not in self.links and self._is_shorter(peer)]
        if closer:
            self.counts["shortened"] += 1
            closest = min(closer, key=lambda peer: self.delays.through(peer) or 0.0)
            self.search.walk.begin_at(Contact(closest))
            self._shortening = self.search.walk.attempt

    def is_cycle(self, path: tuple[PeerId, ...]) -> bool:
        """Whether attaching there would put the node below itself."""
        return self.turn.me in path or len(path) >= PATH_MAX

    def _outranks(self, path: tuple[PeerId, ...], private_root: bool) -> bool:
        """Whether the node, and not the root of this path, is to act as root.

        Among public peers any root will do, until it finds a closer one, but for the author.
        """
        if self._reachability.is_public(self.turn.me):
            return private_root or self.search.is_top
        root = path[-1] if path else self.turn.me
        return private_root and is_closer(self.turn.me, root, self.search.walk.root_key)

    def is_above(self, peer: PeerId) -> bool:
        """Whether a peer that wants to be a child is on the node's path to the root."""
        return peer in self.path

    # Peers that join below the node.

    def receive_join(self, sender: PeerId, message: Join) -> None:
        """A peer wants to be a child: take it in, hand it down, or let it wait."""
        if message.role is Role.VISITOR:
            self._answer(sender, message)
            return
        if self.leaving:
            self.search.refuse(sender, message, JoinCode.LEAVING)
        elif self.is_above(sender):
            self.search.refuse(sender, message, JoinCode.BELOW_YOU)
        elif not (self.attached and self.open):
            self.search.wait(sender, message)
        else:
            self._find_place(sender, message)

    def _find_place(self, sender: PeerId, message: Join) -> None:
        staying = self._staying()
        if sender in staying or len(staying) < self.fanout:
            self._take_in(sender, message)
        elif (child := self._down.child_for(staying, sender, message.attempt)) is None:
            self.counts["overfill"] += 1
            self._take_in(sender, message)
        else:
            self._hand_down(sender, message, child)

    def _staying(self) -> list[PeerId]:
        """The children that may be counted on: neither about to leave nor silent."""
        return [
            child
            for child in self.children
            if child not in self._parting and not self._is_silent(child)
        ]

    def serve_fewer(self) -> None:
        """The node's line is narrow: half of its children move below the others."""
        staying = self._staying()
        count = max(FANOUT_MIN, len(staying) // 2)
        kept = sorted(staying, key=self._is_poor_parent)[:count]
        self._narrow = (count, self.turn.now + NARROW_S)
        if len(kept) == len(staying):
            return
        self.counts["served_fewer"] += 1
        for child in kept:
            self.links[child].pause_s = 0.0
        for index, child in enumerate(each for each in staying if each not in kept):
            self._parting[child] = None
            self.turn.send(child, HandOver(self.topic, Contact(kept[index % count])))

    def _is_poor_parent(self, child: PeerId) -> tuple[bool, float]:
        return not self._reachability.is_dialable(child), self.links[child].pause_s

    def let_in(self) -> None:
        """The node has a place and a start: answer the peers that waited for it."""
        self.open = True
        for sender, message in self.search.take_waiting():
            self.receive_join(sender, message)

    def _take_in(self, sender: PeerId, message: Join) -> None:
        self.children[sender] = None
        self._parting.pop(sender, None)
        if sender == self.parent:
            self.parent = None
            self.path = ()
        self.links[sender] = Link(self.parameters.window_bytes, self.turn.now)
        self._answer(sender, message)
        self.owner.welcome(sender, fresh=message.fresh)
        if not self.attached:
            self.join()

    def _answer(self, sender: PeerId, message: Join) -> None:
        self.turn.send(
            sender,
            JoinAccepted(
                self.topic,
                message.attempt,
                self.path_from_here(),
                self.to_name((child for child in self.children if child != sender), 4),
                self.owner.digest(),
                self.private_root,
                self.delay_us,
            ),
        )

    def to_name(self, peers: Iterable[PeerId], count: int) -> tuple[Contact, ...]:
        """Some of these peers, to be named to others: only those that others can dial."""
        dialable = filter(self._reachability.is_dialable, peers)
        return tuple(Contact(peer) for peer in islice(dialable, count))

    def _hand_down(self, sender: PeerId, message: Join, child: PeerId) -> None:
        self.counts["hand_down"] += 1
        self.turn.send(
            sender, JoinReferred(self.topic, message.attempt, Contact(child), handed_down=True)
        )

    def hear_of(self, contacts: tuple[Contact, ...]) -> None:
        """Remember some members, the latest heard of first to stay."""
        for contact in contacts:
            if contact.peer != self.turn.me:
                self.members.pop(contact.peer, None)
                self.members[contact.peer] = None
        while len(self.members) > MEMBERS_MAX:
            del self.members[next(iter(self.members))]

    # Losing neighbours.

    def watched(self) -> Iterable[PeerId]:
        """The parent, the children, and the peer that the node asks for a place."""
        target = self.search.walk.target
        return self.links if target is None else (*self.links, target)

    def fell_silent(self, peer: PeerId) -> None:
        """A neighbour gets no events while it is silent; the node looks for another parent.

        Until it has one, it keeps its place: the silent parent may come back.
        """
        self.search.lost(peer)
        link = self.links.get(peer)
        if link is None:
            return
        link.silent = True
        if peer == self.parent and not self.leaving:
            self.counts["silent_parent"] += 1
            self.search.move(peer, *self._ways_up())
            self.owner.lost_touch()

    def spoke_again(self, peer: PeerId) -> None:
        """A neighbour was silent: it has missed events, or the node has."""
        link = self.links.get(peer)
        if link is None or not link.silent:
            return
        link.silent = False
        if peer in self.children and len(self._staying()) > self.fanout:
            # Another child has its place.
            self.drop_child(peer)
            return
        if link.behind and link.credit > 0 and peer not in self.turn.full:
            link.behind = False
            self.owner.differs_from(peer)
        if peer == self.parent and not self.leaving:
            self.search.stay()

    def _is_silent(self, peer: PeerId | None) -> bool:
        link = None if peer is None else self.links.get(peer)
        return link is not None and link.silent

    def _ways_up(self) -> list[Contact]:
        """Where to look for another parent first: the grandparent, then the root."""
        above = dict.fromkeys((*self.path[1:2], *self.path[-1:]))
        return [Contact(peer) for peer in above if peer not in (self.parent, self.turn.me)]

    def lost(self, peer: PeerId) -> None:
        """A connection ended."""
        self.links.pop(peer, None)
        self.children.pop(peer, None)
        self.delays.forget(peer)
        self.search.lost(peer)
        if peer == self.parent:
            self._orphaned(avoid=peer)
        elif self.leaving:
            self._leave_if_free()

    def receive_leave(self, sender: PeerId) -> None:
        """A neighbour says that it no longer is one."""
        self.children.pop(sender, None)
        self.links.pop(sender, None)
        if sender == self.parent:
            self._orphaned(avoid=sender)
        elif self.leaving:
            self._leave_if_free()

    def _orphaned(self, avoid: PeerId) -> None:
        self.parent, self.path = None, ()
        if self.leaving:
            self._leave_if_free()
            return
        self.counts["rejoin"] += 1
        self.owner.lost_touch()
        self.search.begin_again(without=avoid)

    def drop_child(self, child: PeerId) -> None:
        """Let go of a child that is silent, or has another parent."""
        self._unlink(child)
        self.turn.send(child, Leave(self.topic))

    def look_elsewhere(self) -> None:
        """The parent is silent, below the node, or does not help: look for another."""
        parent = self.parent
        if parent is not None:
            self._useless[parent] = None
            if len(self._useless) > MEMBERS_MAX:
                del self._useless[next(iter(self._useless))]
            self.turn.send(parent, Leave(self.topic))
            self.links.pop(parent, None)
            self._orphaned(avoid=parent)

    def receive_from_stranger(self, sender: PeerId) -> None:
        """The sender takes the node for a neighbour, and would send everything twice."""
        self.turn.send(sender, Leave(self.topic))

    def heard_path(
        self, sender: PeerId, path: tuple[PeerId, ...], *, private_root: bool = False
    ) -> None:
        """The parent says its path: one that comes through the node is a cycle."""
        if sender != self.parent or not path:
            return
        if self.is_cycle(path):
            self.counts["cycle_broken"] += 1
            self.look_elsewhere()
            return
        if (path, private_root) != (self.path, self._below_private):
            self.path, self._below_private = path, private_root
            self.owner.path_changed()
        self._move_if_outranking(sender)

    @property
    def author_elsewhere(self) -> PeerId | None:
        """The author, where it could be the root, is connected, and another peer is the root."""
        author, reachability = self.root_peer, self._reachability
        is_elsewhere = author not in (self.turn.me, *self.path[-1:]) and author not in self.links
        if is_elsewhere and reachability.is_connected(author) and reachability.is_public(author):
            return author
        return None

    def heard_root(self, sender: PeerId, path: tuple[PeerId, ...], *, private_root: bool) -> None:
        """A member says its path: move there if its root is the better one, and stays so.

        For a while, so that the two roots can find each other first.
        """
        if not path or sender == self.parent or self.is_cycle(path) or self.leaving:
            return
        root = self.path[-1] if self.path else self.turn.me
        if root == path[-1] or not self._is_better(path[-1], private_root, root):
            return
        since_s = self._better_since_s
        if since_s is None or self.turn.now - since_s > BETTER_S_MAX * 2:
            self._better_since_s = self.turn.now
        elif self.turn.now - since_s > BETTER_S_MAX and not self.search.walk.is_under_way:
            self.counts["moved"] += 1
            self._better_since_s = None
            self.search.walk.begin_at(Contact(sender))

    def _is_better(self, root: PeerId, private_root: bool, than: PeerId) -> bool:
        if private_root is self.private_root:
            return is_closer(root, than, self.search.walk.root_key)
        return self.private_root

    def reach_changed(self, peer: PeerId) -> None:
        """A connected peer, or the node itself, can be dialled in another way."""
        if self.leaving or not self.attached:
            return
        if peer != self.turn.me:
            if self.is_root and self.search.ranks_before_node(peer):
                self.search.look_out_soon()
        elif self.parent is not None:
            self._move_if_outranking(self.parent)
        elif self.is_root:
            self.search.look_out_soon()
            self.owner.path_changed()

    def _move_if_outranking(self, parent: PeerId) -> None:
        """Leave a root that is to be below the node; the parent forwards until then."""
        outranks = self._outranks(self.path, self._below_private)
        if outranks and not self.leaving and not self.search.walk.is_under_way:
            self.counts["outranked"] += 1
            self.search.move(parent)

    # Leaving.

    def leave(self, *, at_once: bool = False) -> None:
        """Hand the children over to the parent, then leave (docs/spec/pulsarcast.md)."""
        self.leaving = True
        self.search.stop()
        if at_once:
            self._leave_now()
        else:
            self._hand_children_over()
            self._leave_if_free()

    def _hand_children_over(self) -> None:
        if self.children:
            self.counts["hand_over"] += 1
            self._leave_timer = self.turn.after(self.parameters.handover_timeout_s, self._leave_now)
            to = None
            if self.parent is not None:
                to = Contact(self.parent)
                self.turn.send(self.parent, HandOver(self.topic, None))
            for child in self.children:
                self.turn.send(child, HandOver(self.topic, to))

    def receive_hand_over(self, sender: PeerId, message: HandOver) -> None:
        """The parent is about to leave: find another while it still forwards. Or a child is."""
        if sender in self.children:
            self._parting = {child: None for child in self._parting if child in self.children}
            self._parting[sender] = None
        elif sender == self.parent and not self.leaving:
            self.turn.cancel(self._move_timer)
            if self.search.walk.is_under_way:
                # It may end here, below a parent that leaves.
                again = partial(self.receive_hand_over, sender, message)
                self._move_timer = self.turn.after(self.parameters.join_backoff_s, again)
            else:
                self.search.move(sender, *filter(None, (message.contact,)))

    def _leave_if_free(self) -> None:
        if not self.children:
            self._leave_now()

    def _leave_now(self) -> None:
        self.turn.cancel(self._leave_timer)
        self.turn.cancel(self._start_timer)
        for peer in self.links:
            self.turn.send(peer, Leave(self.topic))
        self.links.clear()
        self.children.clear()
        self.parent, self.path, self.is_root = None, (), False
        self.owner.overlay_left()

    # Forwarding.

    def forward(
        self, message: EventMessage, *, source: PeerId | None, via_overlay: bool = True
    ) -> None:
        """Pass an event on, up and down, never back where it came from (thesis, algorithm 4)."""
        effects, full = self.turn.effects, self.turn.full
        size = size_of(message.block)
        for peer, link in self.links.items():
            if peer == source:
                continue
            if peer in full or link.silent:
                link.behind = True
            elif link.spend(size, self.turn.now):
                effects.append(Send(peer, message))

    def send_children(self, make: Callable[[], Message]) -> None:
        """Say the same to all children."""
        if self.children:
            message = make()
            for child in self.children:
                self.turn.send(child, message)

    def view(self, *, subscribed: bool, lazy: tuple[PeerId, ...]) -> TreeView:
        """The node's place in the tree."""
        return TreeView(self.parent, tuple(self.children), self.is_root, subscribed, lazy)

    def footprint(self) -> dict[str, int]:
        """How much is kept in memory."""
        return {"links": len(self.links)}

    # Helpers.

    def _settled(self, parent: PeerId | None, digest: bytes | None) -> None:
        self.search.settled()
        self.owner.attached(parent, digest)
        if self.open:
            self.let_in()
        self.owner.path_changed()

    def _unlink(self, peer: PeerId) -> None:
        self.links.pop(peer, None)
        self.children.pop(peer, None)
