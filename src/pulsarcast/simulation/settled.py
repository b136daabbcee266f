"""Settled worlds: the routing tables of a network in which all nodes have joined.

A node that joins looks up its own key, and then a random key of every bucket that is still empty
(Kademlia, 2.3). So it knows the k peers closest to it out of those that were there before, and some
of every farther bucket; and each peer that it asked knows it, if the bucket has room. Here the same
follows from the keys alone, node after node, without a message.

A topic of such a network was made before: its author was alone, for all that the topic can tell.
Then its descriptors are put where looking them up and storing them would have put them.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping, Sequence
from heapq import nsmallest
from random import Random
from typing import Final

from pulsarcast.model.ids import Cid, PeerId, cid_key, peer_key
from pulsarcast.model.keys import KEY_BITS, Key, bucket_of
from pulsarcast.model.topics import decode_topic
from pulsarcast.protocol.dht.expiry import topic_lifetime
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.store import PutBlock, PutState
from pulsarcast.storage.memory import MemoryStore

DRAWN: Final = 4
"""Peers of a farther bucket that a node asks as it joins: the r that a lookup ends with, and one on
its way, as in joined networks of 200 and 1,000 nodes."""


def tables(keys: Sequence[Key], bucket_size: int, rng: Random) -> list[list[int]]:
    """For every node, given by its key, the nodes that it knows: those of farther buckets first."""
    known = [_Table() for _ in keys]
    indices = {key: index for index, key in enumerate(keys)}
    there: list[Key] = []
    for index, key in enumerate(keys):
        for peer in _asked(key, there, bucket_size, rng):
            other, bucket = indices[peer], bucket_of(key, peer)
            for one, two in ((index, other), (other, index)):
                known[one].meet(two, bucket, bucket_size)
        insort(there, key)
    return [table.all() for table in known]


class _Table:
    """The buckets of one node."""

    __slots__ = ("_buckets",)

    def __init__(self) -> None:
        self._buckets: dict[int, list[int]] = {}

    def meet(self, other: int, bucket: int, bucket_size: int) -> None:
        """Another node is known now, if its bucket has room."""
        met = self._buckets.setdefault(bucket, [])
        if len(met) < bucket_size:
            met.append(other)

    def all(self) -> list[int]:
        """The nodes that are known."""
        return [
            each for bucket in sorted(self._buckets, reverse=True) for each in self._buckets[bucket]
        ]


def _asked(key: Key, there: list[Key], bucket_size: int, rng: Random) -> list[Key]:
    """The peers that a node asks as it joins, out of the sorted keys of those that are there."""
    asked: list[Key] = []
    first, end = 0, len(there)
    for bit in range(KEY_BITS - 1, -1, -1):
        if end - first <= bucket_size:
            break
        # All peers of the node's own half are closer to it than any of the other half.
        upper = key >> bit << bit | 1 << bit
        middle = bisect_left(there, upper, first, end)
        if key >> bit & 1:
            near, far = (middle, end), (first, middle)
        else:
            near, far = (first, middle), (middle, end)
        first, end = near
        lacking = bucket_size - (end - first)
        if lacking > 0:
            asked += nsmallest(lacking, there[slice(*far)], key=key.__xor__)
        else:
            places = range(*far)
            asked += [there[place] for place in rng.sample(places, min(DRAWN, len(places)))]
    return asked + there[first:end]


def hand_out_topics(
    author: MemoryStore,
    readers: Iterable[MemoryStore],
    peers: Mapping[PeerId, MemoryStore],
    parameters: Parameters,
) -> None:
    """Put the descriptors on an author's disk on those of readers, and of the closest `peers`."""
    rows = [row for row in author.rows() if row.table == "topic"]
    for reader in readers:
        reader.apply([PutState(row) for row in rows])
    for row in rows:
        cid, block = Cid(row.key), row.value
        key, lifetime = cid_key(cid), topic_lifetime(decode_topic(block), parameters)
        closest = nsmallest(parameters.replicas, peers, key=lambda peer: peer_key(peer) ^ key)
        for peer in closest:
            peers[peer].apply([PutBlock(cid, block, key, lifetime.expires_us)])
