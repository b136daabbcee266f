"""The search for a parent in a dissemination tree (thesis, 3.3.2; design 2).

A join travels to peers ever closer to the root's key. Those that are no members name a closer one,
full ones name a child. A peer that failed us is avoided for a while, and one that leads into our
own subtree until we have a place. Where nobody closer is alive the tree needs a root: us.
"""

from typing import Protocol

from pulsarcast.model.ids import Cid, PeerId, is_closer, peer_key
from pulsarcast.model.keys import Key
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.dht.kademlia import Kademlia
from pulsarcast.protocol.messages import Contact, Join, JoinCode, JoinReferred, JoinRefused, Role

REFERRALS_MAX = 64
"""Steps of one join; a longer way means that somebody sends us in circles."""
FAILURES_MAX = 3
"""Failed joins after which we act as root, if nobody closer is left to ask."""
FORGIVEN_S = 5.0
"""How long we do not ask a peer again that failed us, even if others name it."""
REASKS_MAX = 16
"""Steps of a join up to which we ask a full parent again that named a child we avoid."""


class SearchOwner(Protocol):
    """What the search asks of the tree in which we look for a place."""

    parent: PeerId | None
    is_root: bool
    leaving: bool
    fresh: bool

    def become_root(self) -> None:
        """There is nobody above us."""


class _Attempt:
    """One way through the tree in search of a parent."""

    __slots__ = ("handed_down", "number", "steps", "target", "timer")

    def __init__(self, number: int) -> None:
        self.number = number
        self.target: PeerId | None = None
        self.handed_down = False
        self.steps = 0
        self.timer: int | None = None


class ParentSearch:
    """Our way to a parent in one topic's tree, and an acting root's lookout for a closer peer."""

    def __init__(
        self,
        topic: Cid,
        root: PeerId,
        context: Context,
        dht: Kademlia,
        owner: SearchOwner,
    ) -> None:
        self.topic = topic
        self.root = root
        self.root_key: Key = peer_key(root)
        self.turn = context.turn
        self.dht = dht
        self.parameters = context.parameters
        self.owner = owner
        self._attempt: _Attempt | None = None
        self._failures = 0
        self._avoid: dict[PeerId, float] = {}
        """Peers that failed us, and when."""
        self._below: dict[PeerId, None] = {}
        """Peers that are in our own subtree, or know no other way than into it."""
        self._moving = False
        """Our parent is about to leave: we look for another while it still forwards to us."""
        self._lookout_timer: int | None = None
        self._retry_timer: int | None = None

    @property
    def is_under_way(self) -> bool:
        """Whether we are looking for a parent right now."""
        return self._attempt is not None

    def is_asking(self, peer: PeerId) -> bool:
        """Whether we wait for this peer's answer."""
        return self._attempt is not None and self._attempt.target == peer

    def is_answer(self, sender: PeerId, attempt: int) -> bool:
        """Whether this is what we wait for."""
        return self._attempt is not None and (
            attempt == self._attempt.number and sender == self._attempt.target
        )

    # Looking.

    def begin(self) -> None:
        """Find a parent, or become the root."""
        if self.owner.leaving or self._attempt is not None:
            return
        self.turn.cancel(self._retry_timer)
        self._retry_timer = None
        if self.root == self.turn.me:
            self.owner.become_root()
            return
        self._attempt = _Attempt(self.turn.new_id())
        self._step_closer()

    def _step_closer(self) -> None:
        """Ask the closest peer to the root that we know and that is closer than ourselves."""
        attempt = self._attempt
        assert attempt is not None
        exclude = {**self._avoid, **self._below}
        contacts = self.dht.closest_known(self.root_key, 1, exclude=exclude)
        if contacts and is_closer(contacts[0].peer, self.turn.me, self.root_key):
            self._ask(contacts[0], handed_down=False)
        else:
            self._look_up(attempt.number)

    def _look_up(self, number: int) -> None:
        """Nobody we know is closer: ask the DHT before we believe that we are the closest."""

        def found(contacts: list[Contact]) -> None:
            attempt = self._attempt
            if attempt is None or attempt.number != number or attempt.target is not None:
                return
            for contact in contacts:
                failed = contact.peer in self._avoid or contact.peer in self._below
                if not failed and is_closer(contact.peer, self.turn.me, self.root_key):
                    self._ask(contact, handed_down=False)
                    return
            self._attempt = None
            if (self._avoid or not contacts) and self._failures < FAILURES_MAX:
                # Somebody closer is there but did not take us, or we do not know anybody yet:
                # try once more before we rule.
                self._avoid.clear()
                self._fail()
            else:
                # Nobody closer is alive, or they are all below us: the tree needs a root.
                self.owner.become_root()

        self.dht.lookup(self.root_key, found)

    def _ask(self, contact: Contact, *, handed_down: bool) -> None:
        attempt = self._attempt
        assert attempt is not None
        attempt.target = contact.peer
        attempt.handed_down = handed_down
        attempt.steps += 1
        self.turn.cancel(attempt.timer)
        number = attempt.number
        attempt.timer = self.turn.after(
            self.parameters.join_timeout_s, lambda: self._timed_out(number)
        )
        self.turn.send(
            contact.peer,
            Join(self.topic, number, Role.MEMBER, self.root, handed_down, fresh=self.owner.fresh),
        )

    def _timed_out(self, number: int) -> None:
        if self._attempt is not None and self._attempt.number == number:
            self.give_up_target()

    # What peers answer.

    def referred(self, sender: PeerId, message: JoinReferred) -> None:
        """The peer we asked names another."""
        attempt = self._attempt
        if attempt is None or not self.is_answer(sender, message.attempt):
            return
        peer = message.contact.peer
        if message.handed_down and peer in self._avoid and attempt.steps < REASKS_MAX:
            # Its children take turns: next time it names another one.
            self._ask(Contact(sender), handed_down=attempt.handed_down)
            return
        if peer in self._below and not message.handed_down:
            self._try_without(sender)
            return
        if self.turn.now - self._avoid.get(peer, self.turn.now) > FORGIVEN_S:
            # Somebody knows it as alive: it may be back.
            del self._avoid[peer]
        progress = message.handed_down or is_closer(peer, sender, self.root_key)
        if (
            not progress
            or peer == self.turn.me
            or peer in self._avoid
            or attempt.steps >= REFERRALS_MAX
        ):
            self.give_up_target()
            return
        self._ask(message.contact, handed_down=message.handed_down)

    def refused(self, sender: PeerId, message: JoinRefused) -> None:
        """The peer we asked can do nothing for us."""
        if not self.is_answer(sender, message.attempt):
            return
        if message.code == JoinCode.BELOW_YOU:
            self._try_without(sender)
        else:
            self.give_up_target()

    def _try_without(self, peer: PeerId) -> None:
        """A peer leads into our own subtree: whoever else is closer may still take us, at once."""
        self._below[peer] = None
        self.end()
        if not (self.owner.is_root or self.owner.parent is not None) or self._moving:
            self.begin()

    # How it ends.

    def give_up_target(self) -> None:
        """The peer we asked did not take us: start over without it."""
        attempt = self._attempt
        assert attempt is not None
        if attempt.target is not None:
            self._avoid[attempt.target] = self.turn.now
        self.end()
        self._fail()

    def end(self) -> None:
        """Ask nobody any more."""
        if self._attempt is not None:
            self.turn.cancel(self._attempt.timer)
            self._attempt = None

    def _fail(self) -> None:
        """Try again later, unless we have a place that we can stay in."""
        if self.owner.is_root or (self.owner.parent is not None and not self._moving):
            self._avoid.clear()
            return
        self._failures += 1
        delay = self.parameters.join_backoff_s * min(2 ** (self._failures - 1), 16)
        self._retry_timer = self.turn.after(self.turn.jitter(delay), self.begin)

    def settled(self) -> None:
        """We have a place: what went wrong on the way to it counts no longer."""
        self._failures = 0
        self._moving = False
        self._avoid.clear()
        self._below.clear()

    def stop(self) -> None:
        """We are about to leave the tree."""
        self.end()
        self.turn.cancel(self._retry_timer)

    # Without a parent, or soon to be.

    def begin_again_without(self, parent: PeerId) -> None:
        """We lost our parent. Jittered: the siblings lost the same one at the same time."""
        self._avoid[parent] = self.turn.now
        self._failures = 0
        self.end()
        self._retry_timer = self.turn.after(0.2 * self.turn.rng.random(), self.begin)

    def move(self, parent: PeerId, to: Contact | None) -> None:
        """Our parent is about to leave: find another while it still forwards to us."""
        self._avoid[parent] = self.turn.now
        self._moving = True
        self._attempt = _Attempt(self.turn.new_id())
        if to is not None and to.peer != self.turn.me:
            self._ask(to, handed_down=True)
        else:
            self._step_closer()

    def keep_a_lookout(self) -> None:
        """An acting root looks for a peer closer to the key, so that trees merge again."""
        self.turn.cancel(self._lookout_timer)
        self._lookout_timer = self.turn.after(
            self.turn.jitter(self.parameters.root_search_s), self._look_out
        )

    def end_lookout(self) -> None:
        """We are an acting root no longer."""
        self.turn.cancel(self._lookout_timer)

    def _look_out(self) -> None:
        if not self.owner.is_root or self.owner.leaving:
            return
        self.keep_a_lookout()
        if self._attempt is not None:
            return
        self._attempt = attempt = _Attempt(self.turn.new_id())
        self._avoid.clear()

        def found(contacts: list[Contact]) -> None:
            if self._attempt is not attempt or attempt.target is not None:
                return
            for contact in contacts:
                if is_closer(contact.peer, self.turn.me, self.root_key):
                    self._ask(contact, handed_down=False)
                    return
            self._attempt = None

        self.dht.lookup(self.root_key, found)
