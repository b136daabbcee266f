"""Routing: finds the next hop of a message for a tree node (2d-tree thesis, 3.4.2).

A message travels to peers ever closer to the key of its tree node. Targets with the same next hop
travel together, and each hop groups them anew. This is the thesis' multicast: on Pastry by shared
prefix; on XOR buckets "one message per next hop" comes to the same.
"""

from collections import deque

from pulsarcast.model.ids import PeerId, is_closer, peer_key
from pulsarcast.model.keys import Key
from pulsarcast.protocol.content.messages import ProbeEvent, Target
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.dht.kademlia import Kademlia

HOPS_MAX = 64
LOOKED_AT = 8
"""Bounds the peers, closest to a key, among which the next one outwards is chosen."""
UNSURE_MAX = 128
"""Bounds the probes remembered in case the peer that took them is gone."""
UNSURE_S = 10.0


class Routing:
    """Finds the next hop, and another one if that was lost."""

    def __init__(self, context: Context, dht: Kademlia) -> None:
        self._turn = context.turn
        self._dht = dht
        self._me: Key = peer_key(context.turn.me)
        self._unsure: deque[tuple[float, PeerId, ProbeEvent]] = deque(maxlen=UNSURE_MAX)

    def closer(self, key: Key) -> PeerId | None:
        """The known peer that is closest to a key; None if that is this node."""
        closest = self._dht.closest_known(key, 1)
        if closest and self.is_closer(closest[0].peer, key):
            return closest[0].peer
        return None

    def farther(self, key: Key, sender: PeerId | None) -> PeerId | None:
        """The next known peer outwards from a key: farther than this node, or than the sender.

        A sender that has just joined knows few peers, and may skip closer ones: so the message
        can come back to one of these.
        """
        inner = self._me ^ key
        if sender is not None:
            inner = min(inner, peer_key(sender) ^ key)
        for contact in self._dht.closest_known(key, LOOKED_AT):
            if contact.peer != sender and peer_key(contact.peer) ^ key > inner:
                return contact.peer
        return None

    def around(self, key: Key, count: int) -> list[PeerId]:
        """The closest other peers."""
        return [contact.peer for contact in self._dht.closest_known(key, count)]

    def is_closer(self, peer: PeerId, key: Key) -> bool:
        """Whether a peer is closer to a key than this node."""
        return is_closer(peer, self._turn.me, key)

    def send_probe(self, peer: PeerId, probe: ProbeEvent) -> None:
        """Pass an event on; if the peer is gone, `lost` gives it back."""
        self._unsure.append((self._turn.now, peer, probe))
        self._turn.send(peer, probe)

    def lost(self, peer: PeerId) -> list[ProbeEvent]:
        """A connection ended: the events sent to it a moment ago may have to go another way."""
        since_s = self._turn.now - UNSURE_S
        again = [probe for at, to, probe in self._unsure if to == peer and at >= since_s]
        if again:
            others = [each for each in self._unsure if each[1] != peer]
            self._unsure = deque(others, maxlen=UNSURE_MAX)
        return again


def grouped(ways: list[tuple[PeerId, Target]]) -> dict[PeerId, list[Target]]:
    """Targets by their next hop."""
    groups: dict[PeerId, list[Target]] = {}
    for peer, target in ways:
        groups.setdefault(peer, []).append(target)
    return groups
