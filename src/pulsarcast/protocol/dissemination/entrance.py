"""The entrance: how a newcomer finds the first member of a cube.

As in a tree, a join travels towards the root's key, each hop strictly closer than the last, and
peers that are no members refer it on. Unlike there, any member lets it in: the tree that matters is
rooted at whoever publishes. Where nobody closer is alive, the newcomer is the first. A member that
knows of none closer to the key goes on looking, so that parts of a topic that lost each other meet
again there.
"""

from typing import Protocol

from pulsarcast.model.ids import Cid, PeerId, is_closer, peer_key
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.dht.kademlia import Kademlia
from pulsarcast.protocol.messages import (
    Contact,
    Join,
    JoinAccepted,
    JoinReferred,
    JoinRefused,
    Role,
)

STEPS_MAX = 64
"""Steps of one way in; a longer one means that somebody sends us in circles."""
FAILURES_MAX = 3
"""Ways that led nowhere, after which we are the first, if nobody closer is left to ask."""


class EntranceOwner(Protocol):
    """What the entrance asks of the cube that it leads to."""

    fresh: bool

    def entered(self, by: PeerId | None, message: JoinAccepted | None) -> None:
        """A member lets us in; None: there is nobody, and we are the first."""

    def knows_closer(self) -> bool:
        """Whether we know a member closer to the root's key than ourselves."""


class _Attempt:
    """One way towards the root's key."""

    __slots__ = ("number", "searching", "steps", "target", "timer")

    def __init__(self, number: int, *, searching: bool) -> None:
        self.number = number
        self.searching = searching
        """We are in, and only look for others."""
        self.target: PeerId | None = None
        self.steps = 0
        self.timer: int | None = None


class Entrance:
    """Our way into one topic's cube, and our lookout for those who took another."""

    def __init__(
        self,
        topic: Cid,
        root: PeerId,
        context: Context,
        dht: Kademlia,
        owner: EntranceOwner,
    ) -> None:
        self.topic = topic
        self.root = root
        self.root_key = peer_key(root)
        self.turn = context.turn
        self.dht = dht
        self.parameters = context.parameters
        self.owner = owner
        self.counts = context.counts
        self._attempt: _Attempt | None = None
        self._failures = 0
        self._avoid: dict[PeerId, None] = {}
        self._retry_timer: int | None = None
        self._search_timer: int | None = None
        self._closed = False

    @property
    def target(self) -> PeerId | None:
        """Whom we are asking right now."""
        return None if self._attempt is None else self._attempt.target

    # Looking.

    def enter(self) -> None:
        """Find a member, or be the first."""
        if self._closed:
            return
        if self._attempt is not None:
            # Whatever it began as: we are out, and do not come in by only looking.
            self._attempt.searching = False
            return
        self.turn.cancel(self._retry_timer)
        self._retry_timer = None
        if self.root == self.turn.me:
            self.owner.entered(None, None)
            return
        self._attempt = _Attempt(self.turn.new_id(), searching=False)
        contacts = self.dht.closest_known(self.root_key, 1, exclude=self._avoid)
        if contacts and is_closer(contacts[0].peer, self.turn.me, self.root_key):
            self._ask(contacts[0])
        else:
            self._look_up(self._attempt)

    def _look_up(self, attempt: _Attempt) -> None:
        """Nobody we know is closer: ask the DHT before we believe that we are the closest."""

        def found(contacts: list[Contact]) -> None:
            if self._attempt is not attempt or attempt.target is not None:
                return
            for contact in contacts:
                closer = is_closer(contact.peer, self.turn.me, self.root_key)
                if closer and contact.peer not in self._avoid:
                    self._ask(contact)
                    return
            self._attempt = None
            if attempt.searching:
                return
            if (self._avoid or not contacts) and self._failures < FAILURES_MAX:
                # Somebody closer is there but did not let us in, or we do not know anybody yet.
                self._avoid.clear()
                self._fail()
            else:
                self._failures = 0
                self._avoid.clear()
                self.counts["acting_root"] += 1
                self.owner.entered(None, None)

        self.dht.lookup(self.root_key, found)

    def _ask(self, contact: Contact) -> None:
        attempt = self._attempt
        assert attempt is not None
        attempt.target = contact.peer
        attempt.steps += 1
        self.turn.cancel(attempt.timer)
        number = attempt.number
        attempt.timer = self.turn.after(
            self.parameters.join_timeout_s, lambda: self._timed_out(number)
        )
        fresh = self.owner.fresh
        self.turn.send(
            contact.peer,
            Join(self.topic, number, Role.MEMBER, self.root, handed_down=False, fresh=fresh),
        )

    def watch(self) -> None:
        """We are in: look now and then whether others are who do not know of us."""
        self.turn.cancel(self._search_timer)
        self._search_timer = self.turn.after(
            self.turn.jitter(self.parameters.root_search_s), self._search
        )

    def _search(self) -> None:
        self.watch()
        at_root = self.root == self.turn.me
        if at_root or self._attempt is not None or self.owner.knows_closer():
            return
        self._avoid.clear()
        self._attempt = _Attempt(self.turn.new_id(), searching=True)
        self._look_up(self._attempt)

    # What peers answer.

    def accepted(self, sender: PeerId, message: JoinAccepted) -> None:
        """A member lets us in."""
        if self._is_answer(sender, message):
            searching = self._attempt is not None and self._attempt.searching
            self._end()
            self._failures = 0
            self._avoid.clear()
            if searching:
                self.counts["cube_merge"] += 1
            self.owner.entered(sender, message)

    def referred(self, sender: PeerId, message: JoinReferred) -> None:
        """A peer that is no member names one closer to the root's key."""
        attempt, peer = self._attempt, message.contact.peer
        if attempt is None or not self._is_answer(sender, message):
            return
        progress = is_closer(peer, sender, self.root_key) and attempt.steps < STEPS_MAX
        if not progress or peer == self.turn.me or peer in self._avoid:
            self._give_up_target()
        else:
            self._ask(message.contact)

    def refused(self, sender: PeerId, message: JoinRefused) -> None:
        """The peer we asked can do nothing for us."""
        if self._is_answer(sender, message):
            self._give_up_target()

    def lost(self, peer: PeerId) -> None:
        """A connection ended."""
        if self.target == peer:
            self._give_up_target()

    def _is_answer(
        self, sender: PeerId, message: JoinAccepted | JoinReferred | JoinRefused
    ) -> bool:
        attempt = self._attempt
        return (
            attempt is not None and message.attempt == attempt.number and sender == attempt.target
        )

    def _timed_out(self, number: int) -> None:
        if self._attempt is not None and self._attempt.number == number:
            self._give_up_target()

    def _give_up_target(self) -> None:
        attempt = self._attempt
        assert attempt is not None
        if attempt.target is not None:
            self._avoid[attempt.target] = None
        self._end()
        if not attempt.searching:
            self._fail()

    def _fail(self) -> None:
        self._failures += 1
        delay_s = self.parameters.join_backoff_s * min(2 ** (self._failures - 1), 16)
        self.enter_later(self.turn.jitter(delay_s))

    def enter_later(self, delay_s: float) -> None:
        """Find a member again, but not at once."""
        self.turn.cancel(self._retry_timer)
        self._retry_timer = self.turn.after(delay_s, self.enter)

    def avoid(self, peer: PeerId) -> None:
        """A peer let us in that is no good: ask it last."""
        self._avoid[peer] = None

    def _end(self) -> None:
        if self._attempt is not None:
            self.turn.cancel(self._attempt.timer)
            self._attempt = None

    def close(self) -> None:
        """Look no more."""
        self._closed = True
        self._end()
        self.turn.cancel(self._retry_timer)
        self.turn.cancel(self._search_timer)
