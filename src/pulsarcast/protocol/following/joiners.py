"""Joiners: peers that look for a place in a topic (docs/spec/pulsarcast.md, Join).

A member takes a joiner in; any other node refers it to a peer closer to the root's key. Where no
closer peer is alive, the node becomes the keeper of the tree, for as long as the tree needs one.
"""

from functools import partial

from pulsarcast.model.ids import Cid, PeerId, peer_key
from pulsarcast.model.keys import Key
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.dht.kademlia import Kademlia
from pulsarcast.protocol.following.descriptors import Descriptors
from pulsarcast.protocol.following.following import Following
from pulsarcast.protocol.messages import Contact, Join, JoinReferred, JoinRefused, Role
from pulsarcast.protocol.topic.life import FollowReason
from pulsarcast.protocol.topic.versions import Versions

REFERRED_MAX = 4
"""Joiners of a topic that are remembered: the first ones are near the root."""
NAMED_MAX = 32
"""How often each is named to later ones. It hands them down, so that its part of the tree is
even."""
NAMED_S = 60.0
"""How long joiners are remembered at most: they may have left again."""
TOPICS_MAX = 256
"""Topics of which joiners are remembered: bounds memory."""
KEPT_MAX = 64
"""Trees that the node keeps at a time: any stranger can ask for one more."""
KEEPER_CHECK_S = 60.0


class Joiners:
    """Refers joiners, and keeps trees that have no root."""

    def __init__(
        self, context: Context, dht: Kademlia, descriptors: Descriptors, following: Following
    ) -> None:
        self.turn = context.turn
        self.counts = context.counts
        self.dht = dht
        self.descriptors = descriptors
        self.following = following
        self._referred: dict[Cid, dict[PeerId, int]] = {}
        """By topic, joiners that were sent on, and so are members by now or about to be; and how
        often each was named."""

    def __len__(self) -> int:
        """Of how many topics joiners are remembered."""
        return len(self._referred)

    def receive_join(self, sender: PeerId, message: Join) -> None:
        """A peer looks for a place in a topic: take it in, refer it, or keep the tree for it."""
        topic = self.following.topics.get(message.topic)
        if topic is not None:
            topic.overlay.receive(sender, message)
            return
        self.dht.saw(Contact(sender))
        if self.following.is_stopping:
            self.turn.send(sender, JoinRefused(message.topic, message.attempt, "stopping"))
            return
        joiner = None
        if message.role is Role.MEMBER:
            joiner = self._joiner_before(sender, message.topic)
        if joiner is not None:
            down = JoinReferred(message.topic, message.attempt, Contact(joiner), handed_down=True)
            self.turn.send(sender, down)
            return
        key = peer_key(message.root)
        contacts = self.dht.closest_known(key, 1, exclude=(sender,))
        if contacts and self._ranks_before(contacts[0].peer, key):
            self._refer(sender, message, contacts[0])
        else:
            self._look_further(sender, message)

    def _joiner_before(self, sender: PeerId, topic: Cid) -> PeerId | None:
        """A peer that joined lately by way of the node: so not all ask the root.

        A joiner that asks again found no place there: it is sent towards the root.
        """
        if not self._referred:
            self.turn.after(NAMED_S, self._referred.clear)
        referred = self._referred.pop(topic, {})
        self._referred[topic] = referred
        if len(self._referred) > TOPICS_MAX:
            del self._referred[next(iter(self._referred))]
        asks_again = referred.pop(sender, None) is not None
        found = None if asks_again else min(referred, key=referred.__getitem__, default=None)
        if found is not None:
            referred[found] += 1
            if referred[found] == NAMED_MAX:
                del referred[found]
        if self.dht.reachability.is_dialable(sender) and len(referred) < REFERRED_MAX:
            referred[sender] = 0
        return found

    def _look_further(self, sender: PeerId, message: Join) -> None:
        """No known peer is closer: look the key up, and keep the tree if no peer is found."""
        key = peer_key(message.root)

        def found(contacts: list[Contact]) -> None:
            topic = self.following.topics.get(message.topic)
            if topic is not None:
                topic.overlay.receive(sender, message)
                return
            for contact in contacts:
                if contact.peer != sender and self._ranks_before(contact.peer, key):
                    self._refer(sender, message, contact)
                    return
            if message.role is Role.VISITOR or not self._ranks_before_joiner(sender, key):
                self.turn.send(sender, JoinRefused(message.topic, message.attempt, "no member"))
                return
            if not self.dht.has_room_for(sender):
                self.turn.send(sender, JoinRefused(message.topic, message.attempt, "no room"))
                return
            self.descriptors.find(message.topic, partial(self._keep, sender, message))

        self.dht.lookup(key, found)

    def _ranks_before(self, peer: PeerId, key: Key) -> bool:
        return self.dht.reachability.ranks_before(peer, self.turn.me, key)

    def _ranks_before_joiner(self, joiner: PeerId, key: Key) -> bool:
        """Whether the node would be a better root than a joiner: only a public node is."""
        reachability = self.dht.reachability
        is_public = reachability.is_public(self.turn.me)
        return is_public and reachability.ranks_before(self.turn.me, joiner, key)

    def _refer(self, sender: PeerId, message: Join, contact: Contact) -> None:
        referred = JoinReferred(message.topic, message.attempt, contact, handed_down=False)
        self.turn.send(sender, referred)

    # Keeping a tree together.

    def _keep(self, joiner: PeerId, message: Join, versions: Versions | None) -> None:
        """Act as root of a topic that the node does not follow, while the tree needs one."""
        if versions is None or versions.first.root_peer != message.root:
            return
        if message.topic not in self.following.topics and self.following.kept_count() < KEPT_MAX:
            self.counts["keeper"] += 1
            place = self.dht.reachability.place_of(joiner)
            self.following.follow(versions, FollowReason.KEEPER, place=place)
            self._check_later(message.topic)
        topic = self.following.topics.get(message.topic)
        if topic is not None:
            topic.overlay.receive(joiner, message)

    def _check_later(self, cid: Cid) -> None:
        self.turn.after(self.turn.jitter(KEEPER_CHECK_S), lambda: self._check(cid))

    def _check(self, cid: Cid) -> None:
        """Stop keeping a tree that has a better root by now, or no members."""
        topic = self.following.topics.get(cid)
        if topic is None or not self.following.is_kept(cid):
            return
        if not topic.overlay.keeps_together:
            self.following.stop_keeping(topic)
        else:
            self._check_later(cid)
