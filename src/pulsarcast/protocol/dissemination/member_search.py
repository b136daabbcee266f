"""The search for a member of a topic, by referrals (docs/spec/pulsarcast.md, "Join").

The searcher asks one peer at a time. A member accepts. A peer that is no member names a peer that
is strictly closer to the root's key, so the way has no cycle. A full parent names one of its
children: distance proves nothing from there on, and the number of hops is bounded.

Every search for a member takes this way. Its owner says what follows an acceptance, and what
follows a search that failed: a place in a tree or a cube (`join_search`), events that are handed in
from outside (`publishing.outside`), members to compare with or to read from (`member_finder`).
"""

from functools import partial
from typing import NamedTuple, Protocol

from pulsarcast.model.ids import Cid, PeerId, peer_key
from pulsarcast.model.keys import Key
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.dht.kademlia import Kademlia
from pulsarcast.protocol.messages import Contact, Join, JoinCode, JoinReferred, JoinRefused, Role

REFERRALS_MAX = 64
"""Peers asked in one search; a longer way means that peers send the searcher in circles."""
REASKS_MAX = 16
"""Hops of a search up to which a full parent is asked again that named a child to avoid."""
FORGIVEN_S = 5.0
"""How long a peer that failed is not asked again, even if others name it."""
RESERVE_MAX = 16
"""Connected peers that cannot be dialled and that a node which is not public asks in one series of
searches: as many idle connections as its driver keeps. A public node asks one, at random."""
FIRST_ASKED = 3
"""Closest peers of a lookup that the searches of a visitor begin at, in turn."""


class DeadEnd(NamedTuple):
    """The peer that was asked leads no further: silent, lost, refusing, or naming a wrong peer."""

    peer: PeerId
    below: bool = False
    """The peer is in the searcher's own subtree, or knows no other way than into it."""


class NobodyFound(NamedTuple):
    """The lookup found no peer that may be asked."""

    is_alone: bool
    """The lookup found no peer at all."""


class SearchOwner(Protocol):
    """What a search asks of the part that needs a member."""

    @property
    def fresh(self) -> bool:
        """Whether the node holds nothing of the topic yet, and asks for a start."""

    def search_failed(self, outcome: DeadEnd | NobodyFound) -> None:
        """The search came to no member. The owner ends it, or waits for a late answer."""


class MemberSearch:
    """One search at a time for a member of one topic."""

    __slots__ = (
        "_asked_s",
        "_attempt",
        "_dht",
        "_handed_down",
        "_owner",
        "_parameters",
        "_role",
        "_steps",
        "_target",
        "_timer",
        "_turn",
        "avoided",
        "below",
        "reserve",
        "root",
        "root_key",
        "topic",
    )

    def __init__(
        self,
        topic: Cid,
        root: PeerId,
        role: Role,
        context: Context,
        dht: Kademlia,
        owner: SearchOwner,
    ) -> None:
        self.topic = topic
        self.root = root
        self.root_key: Key = peer_key(root)
        self.avoided: dict[PeerId, float] = {}
        """Peers that failed, and when."""
        self.below: dict[PeerId, None] = {}
        """Peers that lead into the searcher's own subtree, or that it leaves."""
        self.reserve: dict[PeerId, None] = {}
        """Connected peers that were asked in case they are members, since no other was found."""
        self._role = role
        self._turn = context.turn
        self._parameters = context.parameters
        self._dht = dht
        self._owner = owner
        self._asked_s = 0.0
        self._attempt: int | None = None
        self._target: PeerId | None = None
        self._handed_down = False
        self._steps = 0
        self._timer: int | None = None

    @property
    def is_under_way(self) -> bool:
        """Whether a search has begun and not ended."""
        return self._attempt is not None

    @property
    def target(self) -> PeerId | None:
        """The peer whose answer the search waits for."""
        return self._target

    @property
    def waited_s(self) -> float:
        """How long ago that peer was asked."""
        return self._turn.now - self._asked_s

    @property
    def attempt(self) -> int | None:
        """The number of the search that is under way."""
        return self._attempt

    def is_asking(self, peer: PeerId) -> bool:
        """Whether the search waits for this peer's answer."""
        return self._attempt is not None and self._target == peer

    def is_answer(self, sender: PeerId, attempt: int) -> bool:
        """Whether the search waits for this answer: no other peer can accept or refer."""
        return attempt == self._attempt and sender == self._target

    def begin(self, *, look_up: bool = False, rank: int = 0) -> None:
        """Ask the closest known peer, or where there is none one that a lookup finds.

        A member asks only peers that rank before itself. Where there is none it asks connected
        peers that are in no routing table: they may know a root. A visitor has no place that could
        close a cycle, and takes the first few of a lookup in turn, by `rank`.
        """
        self._start()
        exclude = {**self.avoided, **self.below}
        known = [] if look_up else self._dht.closest_known(self.root_key, 1, exclude=exclude)
        if candidates := self._candidates(known):
            self._ask(candidates[0], handed_down=False)
        else:
            self._dht.lookup(self.root_key, partial(self._looked_up, self._attempt, rank))

    def begin_at(self, contact: Contact) -> None:
        """Ask a peer that a parent handed the searcher over to."""
        self._start()
        self._ask(contact, handed_down=True)

    def end(self) -> None:
        """End the search: no answer counts any more."""
        self._turn.cancel(self._timer)
        self._attempt = self._target = self._timer = None

    def _start(self) -> None:
        self.end()
        self._attempt = self._turn.new_id()
        self._steps = 0

    def _candidates(self, contacts: list[Contact]) -> list[Contact]:
        """The contacts at which a search may begin."""
        me, excluded = self._turn.me, {**self.avoided, **self.below}
        others = [each for each in contacts if each.peer != me and each.peer not in excluded]
        if self._role is Role.VISITOR:
            return others
        return [each for each in others if self._ranks_before(each.peer, me)]

    def _ranks_before(self, peer: PeerId, other: PeerId) -> bool:
        return self._dht.reachability.ranks_before(peer, other, self.root_key)

    def _looked_up(self, attempt: int | None, rank: int, contacts: list[Contact]) -> None:
        if attempt != self._attempt or self._target is not None:
            return
        if candidates := self._candidates(contacts):
            first = candidates[rank % min(FIRST_ASKED, len(candidates))]
            self._ask(first, handed_down=False)
        elif not self._ask_reserve():
            self._owner.search_failed(NobodyFound(is_alone=not contacts))

    def _ask_reserve(self) -> bool:
        """Ask a peer that lookups do not find: the author, or a connected one.

        Returns whether there is one left.
        """
        if self._role is Role.VISITOR:
            return False
        reachability, turn = self._dht.reachability, self._turn
        is_public = reachability.is_public(turn.me)
        if len(self.reserve) >= (1 if is_public else RESERVE_MAX):
            return False
        passed = {**self.avoided, **self.below, **self.reserve}
        peers = [peer for peer in reachability.in_reserve(self.root_key) if peer not in passed]
        if not is_public and self.root != turn.me and self.root not in (*passed, *peers):
            # No lookup finds an author that relays alone lead to.
            peers.insert(0, self.root)
        if not peers:
            return False
        peer = peers[turn.rng.randrange(len(peers))] if is_public else peers[0]
        self.reserve[peer] = None
        self._ask(Contact(peer), handed_down=False)
        return True

    def _ask(self, contact: Contact, *, handed_down: bool) -> None:
        assert self._attempt is not None
        self._target = contact.peer
        self._asked_s = self._turn.now
        self._handed_down = handed_down
        self._steps += 1
        if self._role is Role.MEMBER:
            # A visitor's owner bounds the time of the whole search.
            self._turn.cancel(self._timer)
            self._timer = self._turn.after(self._parameters.join_timeout_s, self.dead_end)
        down = handed_down and self._role is Role.MEMBER
        join = Join(self.topic, self._attempt, self._role, self.root, down, self._owner.fresh)
        self._turn.send(contact.peer, join)

    def referred(self, sender: PeerId, message: JoinReferred) -> None:
        """The peer that was asked names another."""
        if not self.is_answer(sender, message.attempt):
            return
        peer, handed_down = message.contact.peer, message.handed_down
        is_in_vain = peer in self.avoided or peer in self.below
        if handed_down and is_in_vain and self._steps < REASKS_MAX:
            # Its children take turns: next time it names another one.
            self._ask(Contact(sender), handed_down=self._handed_down)
            return
        if peer in self.below and not handed_down:
            self.dead_end(below=True)
            return
        if self._turn.now - self.avoided.get(peer, self._turn.now) > FORGIVEN_S:
            # Another peer knows it as alive: it may be back.
            del self.avoided[peer]
        leads_on = handed_down or self._ranks_before(peer, sender)
        may_ask = peer != self._turn.me and peer not in self.avoided
        if leads_on and may_ask and self._steps < REFERRALS_MAX:
            self._ask(message.contact, handed_down=handed_down)
        else:
            self.dead_end()

    def refused(self, sender: PeerId, message: JoinRefused) -> None:
        """The peer that was asked can do nothing for the searcher."""
        if self.is_answer(sender, message.attempt):
            self.dead_end(below=message.code == JoinCode.BELOW_YOU)

    def lost(self, peer: PeerId) -> None:
        """A connection ended."""
        if self.is_asking(peer):
            self.dead_end()

    def dead_end(self, *, below: bool = False) -> None:
        """Tell the owner that the peer which was asked leads no further."""
        assert self._target is not None
        if self._target not in self.reserve or below:
            self._owner.search_failed(DeadEnd(self._target, below))
        elif not self._ask_reserve():
            self._owner.search_failed(NobodyFound(is_alone=False))
