"""Clusters: keeps the known members of one topic in XOR buckets around the node's own key.

VCube-PS (section 2) groups the other nodes around node i into clusters c(i,s). Its cluster s is
bucket s-1 here, all keys whose highest differing bit is that one. Its order within the cluster is
the order of XOR distance from i xor 2^(s-1). So its trees need neither dense ids nor N = 2^d: the
child in a bucket is the first known member of its order, and answers for its own lower buckets.
"""

from bisect import insort
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

from pulsarcast.model.keys import Key, bucket_of

PeerT = TypeVar("PeerT", bound=Hashable)


class Clusters(Generic[PeerT]):
    """Known members, by bucket; a full view while they are few, k per bucket beyond that.

    A known member stays: a peer that floods a topic with new names cannot push it out.
    """

    def __init__(
        self, centre: Key, key_of: Callable[[PeerT], Key], *, view_max: int, bucket_max: int
    ) -> None:
        self.centre = centre
        self.key_of = key_of
        self.view_max = view_max
        self.bucket_max = bucket_max
        self.members_max = max(4 * view_max, 32 * bucket_max)
        """Bounds all buckets together: forged keys ever closer to the node's open ever more."""
        self._keys: dict[PeerT, Key] = {}
        self._buckets: dict[int, list[PeerT]] = {}
        """Each in the order of its cluster; the farthest bucket, of the highest index, first."""

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, peer: PeerT) -> bool:
        return peer in self._keys

    def __iter__(self) -> Iterator[PeerT]:
        """All members, in the order in which they were met."""
        return iter(self._keys)

    def bucket(self, peer: PeerT) -> int:
        """The index of the bucket that a peer belongs to, known or not; -1 for the node itself."""
        return bucket_of(self.centre, self.key_of(peer))

    def has_room(self, peer: PeerT) -> bool:
        """Whether a peer would be kept if it were a member."""
        index = self.bucket(peer)
        if index < 0 or peer in self._keys or len(self._keys) >= self.members_max:
            return False
        return len(self._keys) < self.view_max or not self.is_full(index)

    def is_empty(self, index: int) -> bool:
        """Whether no member of a bucket is known."""
        return index not in self._buckets

    def is_full(self, index: int) -> bool:
        """Whether a bucket holds as many as it keeps in a large topic.

        All members of the nearest bucket are kept: in the bucket that the node belongs to, they
        have no other member, so each of them must know the node.
        """
        most = self.view_max if index <= self.lowest else self.bucket_max
        return len(self._buckets.get(index, ())) >= max(most, self.bucket_max)

    def add(self, peer: PeerT) -> bool:
        """Keep a member, if there is room for it."""
        if not self.has_room(peer):
            return False
        key, index = self.key_of(peer), self.bucket(peer)
        self._keys[peer] = key
        if index not in self._buckets:
            self._buckets[index] = []
            self._buckets = dict(sorted(self._buckets.items(), reverse=True))
        first = self.first_key(index)
        insort(self._buckets[index], peer, key=lambda member: self._keys[member] ^ first)
        return True

    def remove(self, peer: PeerT) -> None:
        """Forget a member."""
        if self._keys.pop(peer, None) is None:
            return
        index = self.bucket(peer)
        self._buckets[index].remove(peer)
        if not self._buckets[index]:
            del self._buckets[index]

    def first_key(self, index: int) -> Key:
        """The key from which a bucket's order is measured: the node's, with one bit flipped."""
        return self.centre ^ (1 << index)

    def below(self, level: int) -> Iterator[tuple[int, list[PeerT]]]:
        """The buckets below a level that have members, the farthest first, each in its order."""
        for index, members in self._buckets.items():
            if index < level:
                yield index, members

    def children(self, level: int) -> list[PeerT]:
        """The first of each bucket below a level: CHILDREN(i, t, h) of VCube-PS (section 3.3)."""
        return [members[0] for _, members in self.below(level)]

    def nearest(self, count: int) -> list[PeerT]:
        """The members closest to the node."""
        found: list[PeerT] = []
        for index in reversed(self._buckets):
            if len(found) >= count:
                break
            found += sorted(
                self._buckets[index], key=lambda member: self._keys[member] ^ self.centre
            )
        return found[:count]

    def closest(self, key: Key, count: int) -> list[PeerT]:
        """The members closest to a key."""
        return sorted(self._keys, key=lambda member: self._keys[member] ^ key)[:count]

    @property
    def lowest(self) -> int:
        """The index of the nearest bucket that has a member; -1 if none has."""
        return next(reversed(self._buckets), -1)
