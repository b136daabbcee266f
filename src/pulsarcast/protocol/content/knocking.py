"""Knocking: finding full members of a topic that we are no member of.

The way is a visitor's (`visiting`): ask the peer closest to the root's key, follow who is named,
and the first member names others.
"""

from collections.abc import Callable

from pulsarcast.model.ids import Cid, PeerId, peer_key
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.dht.kademlia import Kademlia
from pulsarcast.protocol.messages import Contact, Join, JoinAccepted, JoinReferred, Role

KNOCKS_MAX = 64
"""Searches at a time."""
STEPS_MAX = 32

Found = Callable[[list[PeerId]], None]


class _Knock:
    __slots__ = ("asked", "root", "steps", "then", "topic")

    def __init__(self, topic: Cid, root: PeerId, then: Found) -> None:
        self.topic = topic
        self.root = root
        self.then = then
        self.asked: PeerId | None = None
        """Nobody else can let us in, or send us on."""
        self.steps = 0


class Knocking:
    """Finds members, for those who want to compare with them."""

    def __init__(self, context: Context, dht: Kademlia) -> None:
        self._turn = context.turn
        self._dht = dht
        self._timeout_s = 2 * context.parameters.rpc_timeout_s
        self._knocks: dict[int, _Knock] = {}
        self._tries: dict[Cid, int] = {}

    def find(self, topic: Cid, root: PeerId, then: Found) -> None:
        """Find some members; `then` gets none of them where nobody is found in time."""
        if len(self._knocks) >= KNOCKS_MAX:
            then([])
            return
        attempt = self._turn.new_id()
        knock = self._knocks[attempt] = _Knock(topic, root, then)
        self._turn.after(self._timeout_s, lambda: self._end(attempt, []))
        tries = self._tries[topic] = self._tries.get(topic, 0) + 1
        if len(self._tries) > KNOCKS_MAX:
            del self._tries[next(iter(self._tries))]
        known = self._dht.closest_known(peer_key(root), 1)
        if known and tries % 3:
            self._ask(attempt, knock, known[0])
            return

        def found(closest: list[Contact]) -> None:
            if attempt in self._knocks and closest:
                self._ask(attempt, knock, closest[tries % min(3, len(closest))])

        self._dht.lookup(peer_key(root), found)

    def _ask(self, attempt: int, knock: _Knock, contact: Contact) -> None:
        knock.steps += 1
        if knock.steps <= STEPS_MAX and contact.peer != self._turn.me:
            knock.asked = contact.peer
            join = Join(knock.topic, attempt, Role.VISITOR, knock.root, False, False)
            self._turn.send(contact.peer, join)

    def accepted(self, sender: PeerId, message: JoinAccepted) -> None:
        """We found a member, and those that it names."""
        if self._is_asking(sender, message):
            members = {sender: None}
            members.update((contact.peer, None) for contact in message.members)
            members.update((peer, None) for peer in message.path)
            members.pop(self._turn.me, None)
            self._end(message.attempt, list(members))

    def referred(self, sender: PeerId, message: JoinReferred) -> None:
        """The peer we knocked at names another."""
        if self._is_asking(sender, message):
            self._ask(message.attempt, self._knocks[message.attempt], message.contact)

    def _is_asking(self, sender: PeerId, message: JoinAccepted | JoinReferred) -> bool:
        knock = self._knocks.get(message.attempt)
        return knock is not None and (knock.asked, knock.topic) == (sender, message.topic)

    def _end(self, attempt: int, members: list[PeerId]) -> None:
        knock = self._knocks.pop(attempt, None)
        if knock is not None:
            knock.then(members)
