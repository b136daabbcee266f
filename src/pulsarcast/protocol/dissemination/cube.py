"""The dissemination cube: each publisher is the root of its own tree (docs/spec/cube.md; VCube-PS).

Every member knows others of its topic in XOR buckets around its own key: all of them while they are
few, k per bucket where they are many. A publisher sends an event to the first of each bucket, and
each of those answers for its own buckets below the one that it shares with the sender. So an event
reaches each member once, no peer forwards what it does not want itself, and two publishers load
different members.

The paper assumes that nothing fails. Here a lost child is skipped: the next in its bucket's order
takes its place. What a dead member had yet to pass on is found by comparing frontiers with the
nearest members (`cube_heartbeat`), and passed on from there as if it were new. Nothing waits for an
acknowledgement: numbers and recovery give each publisher's order, where the paper's publisher waits
until every member has the message before.
"""

from collections.abc import Iterable
from typing import assert_never

import msgspec

from pulsarcast.model.ids import Cid, PeerId, peer_key
from pulsarcast.model.keys import KEY_BITS, Key
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.dht.kademlia import Kademlia
from pulsarcast.protocol.dissemination.candidates import Candidates
from pulsarcast.protocol.dissemination.cluster import Clusters
from pulsarcast.protocol.dissemination.join_search import JoinSearch
from pulsarcast.protocol.dissemination.overlay import CubeView, Link, OverlayOwner, size_of
from pulsarcast.protocol.effects import Send
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
    OverlayMessage,
    Role,
)

LINKS_MAX = 512
"""Members that the node takes events from: far more than its parents, which are about as many as
its children."""
CONTACTS_MAX = 64
"""Members named in one message: the wire's bound."""
INTRODUCED_MAX = 16
"""Members named to a newcomer: enough to have all of its nearest among them."""


class DisseminationCube:
    """The node's place in one topic's cube."""

    __slots__ = (
        "_farewells",
        "_host",
        "_leave_timer",
        "_reachability",
        "_refreshed",
        "_silent",
        "_start_timer",
        "_unexplored",
        "attached",
        "candidates",
        "counts",
        "leaving",
        "links",
        "members",
        "open",
        "owner",
        "parameters",
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
        self.members: Clusters[PeerId] = Clusters(
            peer_key(context.turn.me),
            peer_key,
            view_max=context.parameters.cube_view,
            bucket_max=context.parameters.cube_bucket,
        )
        self.links: dict[PeerId, Link] = {}
        """All members that the node has met, kept among `members` or not."""
        self.open = started
        self.leaving = False
        self.search = JoinSearch(topic, root, context, dht, self)
        self._reachability = dht.reachability
        self.candidates = Candidates(
            context, wanted=self._wants, ask=self._introduce, idle=self._explore
        )
        self.attached = False
        """Whether a member has let the node in, or the node is the first."""
        self._host: PeerId | None = None
        """The member that let the node in."""
        self._start_timer: int | None = None
        self._silent: dict[PeerId, None] = {}
        """Connected members that are suspected."""
        self._unexplored = -1
        """The highest bucket that the node has yet to ask about."""
        self._refreshed = 0
        self._farewells: dict[PeerId, None] = {}
        """Members that have yet to answer the node's `Leave`."""
        self._leave_timer: int | None = None

    # The node's place.

    @property
    def upstream(self) -> PeerId | None:
        """The nearest member; before any is known, the peer that let the node in."""
        nearest = self.members.nearest(1)
        return nearest[0] if nearest else self._host

    @property
    def path(self) -> tuple[PeerId, ...]:
        """A cube has no way to a root."""
        return ()

    @property
    def children(self) -> list[PeerId]:
        """The members that would get an event of the node from it, the farthest first."""
        return self.members.children(KEY_BITS)

    @property
    def keeps_together(self) -> bool:
        """Whether newcomers are sent to the node, and it knows a member that they could meet."""
        return bool(self.members) and not self._knows_closer()

    @property
    def is_root(self) -> bool:
        """Whether newcomers are sent to the node: it knows no member closer to the root's key."""
        return self.attached and not self._knows_closer()

    @property
    def entrance(self) -> PeerId | None:
        """The member closest to the root's key, as far as the node knows."""
        if self.is_root:
            return self.turn.me
        key = self.search.walk.root_key
        above = filter(self.search.ranks_before_node, self.members)
        return min(above, key=lambda peer: peer_key(peer) ^ key, default=None)

    def _knows_closer(self) -> bool:
        return any(map(self.search.ranks_before_node, self.members))

    def path_from_here(self) -> tuple[PeerId, ...]:
        """The node itself."""
        return (self.turn.me,)

    def first_to_hear(self, count: int, source: PeerId | None = None) -> tuple[PeerId, ...]:
        """Some of the members that get an event of the node from it."""
        return tuple(self.children[:count]) if source is None else ()

    def serve_fewer(self) -> None:
        """The members of a cube have the children that the cube gives them."""

    def view(self, *, subscribed: bool, lazy: tuple[PeerId, ...]) -> CubeView:
        """What the node knows of the cube."""
        return CubeView(
            tuple(self.members),
            tuple(self.children),
            self.is_root,
            subscribed,
            lazy,
        )

    def footprint(self) -> dict[str, int]:
        """How much is kept in memory."""
        return {
            "cube_members": len(self.members),
            "cube_links": len(self.links),
            "cube_candidates": len(self.candidates),
        }

    # Joining.

    def join(self) -> None:
        """Find a member, or be the first."""
        if not self.leaving:
            self.search.begin()

    def become_root(self) -> None:
        """The node is the first member."""
        if self.root_peer != self.turn.me:
            self.counts["acting_root"] += 1
        self._enter(None, None)

    def _accepted(self, sender: PeerId, message: JoinAccepted) -> None:
        if self.search.walk.is_answer(sender, message.attempt):
            if self.attached:
                self.counts["cube_merge"] += 1
            self._enter(sender, message)

    def _enter(self, by: PeerId | None, message: JoinAccepted | None) -> None:
        """A member lets the node in, or the node is the first."""
        self.search.settled()
        self.attached = True
        self._host = by
        self.search.keep_a_lookout()
        if by is not None and message is not None:
            self._unexplored = KEY_BITS - 1
            self.candidates.hear_of((by, *(contact.peer for contact in message.members)), by)
            if not self.open:
                self._expect_start()
        self.owner.attached(by, None if message is None else message.digest)
        if self.open:
            self.let_in()

    def _expect_start(self) -> None:
        """The member that let the node in owes it a start; without one, look for another member."""
        self.turn.cancel(self._start_timer)
        wait_s = 2 * self.parameters.join_timeout_s
        self._start_timer = self.turn.after(wait_s, self.look_elsewhere)

    def look_elsewhere(self) -> None:
        """The member that let the node in does not help: find another."""
        if not self.open and not self.leaving:
            self._rejoin(without=self._host)

    def _rejoin(self, without: PeerId | None = None) -> None:
        self.counts["cube_rejoin"] += 1
        self.attached, self._host = False, None
        self.search.begin_again(without)

    def let_in(self) -> None:
        """The node has its start: answer the peers that waited, and introduce it to the members."""
        self.open = True
        self.turn.cancel(self._start_timer)
        for sender, message in self.search.take_waiting():
            self.receive_join(sender, message)
        self.candidates.open()
        self.owner.path_changed()

    # Newcomers.

    def receive_join(self, sender: PeerId, message: Join) -> None:
        """A peer wants to join, or only looks for a member."""
        if message.role is Role.VISITOR:
            self._answer(sender, message)
        elif self.leaving:
            self.search.refuse(sender, message, JoinCode.LEAVING)
        elif not (self.attached and self.open):
            self.search.wait(sender, message)
        else:
            self._answer(sender, message)
            self.owner.welcome(sender, fresh=message.fresh)

    def _answer(self, sender: PeerId, message: Join) -> None:
        members = self._closest(peer_key(sender), INTRODUCED_MAX, sender)
        digest = self.owner.digest()
        accepted = JoinAccepted(self.topic, message.attempt, (self.turn.me,), members, digest)
        self.turn.send(sender, accepted)

    # Meeting.

    def receive(self, sender: PeerId, message: Join | OverlayMessage) -> None:
        """A peer wants to join, or says something about the node's place or its own."""
        match message:
            case Join():
                self.receive_join(sender, message)
            case Meet():
                self._receive_meet(sender, message)
            case Members():
                self._receive_members(sender, message)
            case JoinAccepted():
                self._accepted(sender, message)
            case JoinReferred():
                # A cube has no children to hand a newcomer down to: each hop is strictly closer.
                closer = msgspec.structs.replace(message, handed_down=False)
                self.search.walk.referred(sender, closer)
            case JoinRefused():
                self.search.walk.refused(sender, message)
            case Leave():
                self._receive_leave(sender)
            case HandOver():
                """A tree's; there is none here."""
            case _ as unreachable:
                assert_never(unreachable)

    def _wants(self, peer: PeerId) -> bool:
        return not self.leaving and self.members.has_room(peer)

    def _introduce(self, peer: PeerId) -> None:
        """Say that the node is a member, and ask for others near to it.

        The nearest members have no other in the bucket that the node belongs to: they must hear of
        it.
        """
        # The first that the node meets may name all members there are.
        count = CONTACTS_MAX if peer == self._host else INTRODUCED_MAX
        self.turn.send(peer, Meet(self.topic, peer_key(self.turn.me), count))

    def _explore(self) -> None:
        """All candidates were tried: ask about the node's buckets, the farthest first."""
        while self.members and self._unexplored >= self.members.lowest:
            index = self._unexplored
            self._unexplored -= 1
            if not self.members.is_full(index):
                self._ask_about(self.members.first_key(index))
                return

    def _ask_about(self, key: Key, turn: int = 0) -> None:
        """Ask which members are closest to a key: the closest known member, or others in turn.

        Of an empty bucket the nearest member should know best, and its own may be empty as well.
        The last in turn are members that were met and not kept: in the one bucket where the node
        lacks a member, all members that it keeps may have room for the node alone.
        """
        known = self.members.closest(key, len(self.members))
        if known:
            others = (peer for peer in self.links if peer not in self.members)
            known += sorted(others, key=lambda peer: peer_key(peer) ^ key)
            peer = known[turn % len(known)]
            if not self.candidates.is_asked(peer):
                self.candidates.expect(peer)
                self.turn.send(peer, Meet(self.topic, key, self.parameters.cube_bucket))

    def _receive_meet(self, sender: PeerId, message: Meet) -> None:
        if self.leaving:
            self.turn.send(sender, Leave(self.topic))
            return
        if not self.open:
            # The node is no member yet: the sender hears of it as soon as it is.
            return
        self._meet(sender)
        if not self.attached:
            # A node that lost all others is found by a member that remembers it.
            self.attached = True
            self.search.keep_a_lookout()
            self.owner.differs_from(sender)
            self.let_in()
        count = min(message.count, CONTACTS_MAX)
        self.turn.send(sender, Members(self.topic, self._closest(message.key, count, sender)))

    def _receive_members(self, sender: PeerId, message: Members) -> None:
        if self.leaving or not self.candidates.is_asked(sender):
            return
        self._meet(sender)
        self.candidates.answered(sender)
        self.candidates.hear_of((contact.peer for contact in message.members), sender)

    def _meet(self, peer: PeerId) -> None:
        """A peer has said itself that it is a member: both begin with full credit.

        Both ends come here, one on `Meet` and the other on its answer: credit that was lost with
        a connection, or given twice, is forgotten on either side.
        """
        old = self.links.pop(peer, None)
        if len(self.links) >= LINKS_MAX:
            self._forget_one()
        self.links[peer] = Link(self.parameters.window_bytes, self.turn.now)
        self.members.add(peer)
        self.candidates.met(peer)
        if old is not None and old.behind:
            self.owner.differs_from(peer)

    def _forget_one(self) -> None:
        """Too many peers say that they are members: the first met of those not needed goes."""
        for peer in self.links:
            if peer not in self.members:
                del self.links[peer]
                return

    def _closest(self, key: Key, count: int, asker: PeerId) -> tuple[Contact, ...]:
        closest = self.members.closest(key, count + 1)
        dialable = filter(self._reachability.is_dialable, closest)
        return tuple(Contact(peer) for peer in dialable if peer != asker)[:count]

    def hear_of(self, contacts: tuple[Contact, ...], namer: PeerId) -> None:
        """A member names others."""
        if not self.leaving:
            self.candidates.hear_of((contact.peer for contact in contacts), namer)

    def receive_from_stranger(self, sender: PeerId) -> None:
        """The sender has met the node, which forgot it: meet it again, so that credit flows."""
        self.candidates.meet_again(sender)

    def refresh(self) -> None:
        """Ask about one of the node's buckets, each in its turn: there may be a new member."""
        lowest = self.members.lowest
        if lowest < 0 or self.leaving:
            return
        span = KEY_BITS - lowest + 1
        round_, place = divmod(self._refreshed, span)
        self._refreshed += 1
        index = KEY_BITS - 1 - place
        if index < lowest:
            # The last in turn are the members nearest to the node.
            self._ask_about(peer_key(self.turn.me), round_)
        else:
            self._ask_about(self.members.first_key(index), round_)

    # Losing members.

    def watched(self) -> Iterable[PeerId]:
        """The members that were sent events and have said nothing since, and who lets the node in.

        Heartbeats say which other members are asked for an answer.
        """
        for peer, link in self.links.items():
            if link.unheard:
                yield peer
        if self.search.walk.target is not None:
            yield self.search.walk.target

    def fell_silent(self, peer: PeerId) -> None:
        """A member that is suspected counts as lost, though its connection stands."""
        self.search.lost(peer)
        if peer in self.links and not self.leaving:
            self.counts["silent_member"] += 1
            if peer in self.members:
                self.candidates.lost_member(peer)
            self._silent[peer] = None
            self._remove(peer)

    def spoke_again(self, peer: PeerId) -> None:
        """A member that was suspected is alive: meet it again."""
        if self._silent.pop(peer, self) is None:
            self.candidates.meet_again(peer)

    def lost(self, peer: PeerId) -> None:
        """A connection ended."""
        self._silent.pop(peer, None)
        self.search.lost(peer)
        self.candidates.failed(peer)
        if peer in self.members:
            self.candidates.lost_member(peer)
        self._remove(peer)

    def reach_changed(self, peer: PeerId) -> None:
        """A connected peer, or the node itself, can be dialled in another way."""
        if self.is_root and (peer == self.turn.me or self.search.ranks_before_node(peer)):
            self.search.look_out_soon()

    def _receive_leave(self, sender: PeerId) -> None:
        """A peer is no longer a member, or never was one."""
        self.candidates.is_none(sender)
        known = sender in self.links
        self._remove(sender)
        if known and not self.leaving:
            # The sender waits for this: nothing that the node sent comes after it.
            self.turn.send(sender, Leave(self.topic))

    def _remove(self, peer: PeerId) -> None:
        if self.leaving:
            # Members that have answered still get events that are on their way.
            self._farewells.pop(peer, None)
            if not self._farewells:
                self._leave_now()
            return
        link = self.links.pop(peer, None)
        if peer in self.members:
            index = self.members.bucket(peer)
            self.members.remove(peer)
            if link is not None and link.unheard:
                self.mend(index)
            if self.members.is_empty(index):
                # There may be members that had no room here.
                self._ask_about(self.members.first_key(index))
        if (peer == self._host and not self.open) or (
            not self.members and self.attached and self.open
        ):
            self._rejoin()

    def mend(self, index: int) -> None:
        """A lost member may not have passed its last events on: compare with the next one."""
        for _, members in self.members.below(index + 1):
            if self.members.bucket(members[0]) == index:
                self.counts["child_skipped"] += 1
                self.owner.differs_from(members[0])
            return

    # Leaving.

    def leave(self, *, at_once: bool = False) -> None:
        """Send all members `Leave`, and pass on the events that still arrive."""
        self.leaving = True
        self.search.stop()
        self.candidates.close()
        self.turn.cancel(self._start_timer)
        self._farewells = dict.fromkeys(self.links)
        for peer in self._farewells:
            self.turn.send(peer, Leave(self.topic))
        if self._farewells and not at_once:
            self._leave_timer = self.turn.after(self.parameters.rpc_timeout_s, self._leave_now)
        else:
            self._leave_now()

    def _leave_now(self) -> None:
        self.turn.cancel(self._leave_timer)
        self._farewells.clear()
        self.links.clear()
        for peer in list(self.members):
            self.members.remove(peer)
        self.attached = False
        self.owner.overlay_left()

    # Forwarding.

    def forward(
        self, message: EventMessage, *, source: PeerId | None, via_overlay: bool = True
    ) -> None:
        """Pass an event on to the first member of each bucket that the node answers for.

        Those are the buckets below the one that the node shares with the sender, which has taken
        care of the others itself (CHILDREN(i, t, CLUSTER(i, j) - 1) in VCube-PS). The level is not
        on the wire but follows from the keys, so no peer can make the node send more than its
        part. For its own events, and for those found by recovery or handed in, the node answers
        for all buckets.
        """
        level = KEY_BITS
        if source is not None and via_overlay:
            level = self.members.bucket(source)
        effects = self.turn.effects
        size = size_of(message.block)
        for _, members in self.members.below(level):
            child = self._first_ready(members, source, size)
            if child is not None:
                effects.append(Send(child, message))

    def _first_ready(
        self, members: list[PeerId], source: PeerId | None, size: int
    ) -> PeerId | None:
        """The first of a bucket that can take an event; the others hear of it through that one.

        A member without credit may have missed the event, and compares frontiers later.
        """
        for peer in members:
            link = self.links.get(peer)
            if peer == source or link is None:
                continue
            if peer in self.turn.full:
                link.behind = True
            elif link.spend(size, self.turn.now):
                link.unheard = True
                return peer
        return None
