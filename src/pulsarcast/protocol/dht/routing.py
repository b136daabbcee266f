"""The routing table: the peers that a node knows, in XOR buckets (Kademlia, 2.2 and 4.1).

Bucket i holds contacts whose distance from the node has its highest bit at i. Only peers that sent
a message to the node enter. A contact that failed is kept aside and tried again with back-off, so
that the halves of a healed partition find each other.

How `closest` walks: let d be the key's distance from the node. A contact of bucket i agrees with
the node above bit i and differs there. So it is closer to the key than all lower buckets if d has
bit i set, and farther than all of them if it has not. Hence: set bits downwards, then the others
upwards, and only a few buckets of k have to be sorted.
"""

import enum
from bisect import insort
from collections.abc import Collection, Iterable, Iterator
from itertools import islice

from pulsarcast.model.ids import PeerId, peer_key
from pulsarcast.model.keys import KEY_BITS, Key
from pulsarcast.protocol.messages import Contact

SPARES_MAX = 8
"""Bounds the contacts per full bucket that wait for a place."""
FAILED_MAX = 96
"""Bounds the contacts kept aside after they failed; the oldest is forgotten first."""
SHUNNED_MAX = 64
"""Bounds the peers remembered not to have answered though others named them: they are not asked
again for a while."""
BACKOFF_FACTOR_MAX = 16


class Seen(enum.IntEnum):
    """The change that a message from a peer made."""

    KNOWN = 0
    NEW = 1
    RETURNED = 2
    """It is a live contact again, after it failed."""
    SPARE = 3
    """It waits for a place in a full bucket."""


class _Bucket:
    """Contacts at one distance, the one heard from longest ago first."""

    __slots__ = ("live", "seen_s", "spare")

    def __init__(self) -> None:
        self.live: dict[Key, Contact] = {}
        self.spare: dict[Key, Contact] | None = None
        self.seen_s = 0.0


class _Failed:
    """A contact that stopped answering, and when to try it again."""

    __slots__ = ("contact", "factor", "retry_s")

    def __init__(self, contact: Contact, retry_s: float) -> None:
        self.contact = contact
        self.retry_s = retry_s
        self.factor = 1


class RoutingTable:
    """The contacts of one node."""

    __slots__ = (
        "_bucket_size",
        "_buckets",
        "_count",
        "_failed",
        "_indices",
        "_kept",
        "_retry_s",
        "_shunned",
        "me",
        "peer",
    )

    def __init__(self, peer: PeerId, *, bucket_size: int, retry_s: float) -> None:
        self.peer = peer
        self.me: Key = peer_key(peer)
        self._bucket_size = bucket_size
        self._retry_s = retry_s
        self._buckets: dict[int, _Bucket] = {}
        self._indices: list[int] = []
        self._count = 0
        self._failed: dict[PeerId, _Failed] = {}
        self._shunned: dict[PeerId, float] = {}
        self._kept: dict[PeerId, Contact] = {}

    def __len__(self) -> int:
        """How many live contacts are known."""
        return self._count

    def __iter__(self) -> Iterator[Contact]:
        """All live contacts, nearest bucket first."""
        for index in self._indices:
            yield from self._buckets[index].live.values()

    def __contains__(self, peer: PeerId) -> bool:
        """Whether a peer is a live contact."""
        return self.get(peer) is not None

    def get(self, peer: PeerId) -> Contact | None:
        """The live contact of a peer."""
        key = peer_key(peer)
        bucket = self._buckets.get((key ^ self.me).bit_length() - 1)
        return None if bucket is None else bucket.live.get(key)

    def keep(self, contacts: Iterable[Contact]) -> None:
        """Never forget these contacts: they are the bootstrap peers."""
        self._kept = {contact.peer: contact for contact in contacts}

    def saw(self, contact: Contact, now: float) -> Seen:
        """A peer sent a message."""
        key = peer_key(contact.peer)
        index = (key ^ self.me).bit_length() - 1
        if index < 0:
            return Seen.KNOWN
        bucket = self._buckets.get(index)
        if bucket is None:
            bucket = self._buckets[index] = _Bucket()
            insort(self._indices, index)
        bucket.seen_s = now
        known = bucket.live.pop(key, None)
        if known is not None:
            bucket.live[key] = contact if contact.addresses else known
            return Seen.KNOWN
        aside = None
        if self._failed or self._shunned:
            self._shunned.pop(contact.peer, None)
            aside = self._failed.pop(contact.peer, None)
            if aside is not None and not contact.addresses:
                contact = aside.contact
        if len(bucket.live) < self._bucket_size:
            bucket.live[key] = contact
            self._count += 1
            if bucket.spare is not None:
                bucket.spare.pop(key, None)
            return Seen.NEW if aside is None else Seen.RETURNED
        spare = bucket.spare
        if spare is None:
            spare = bucket.spare = {}
        before = spare.pop(key, None)
        spare[key] = contact if contact.addresses or before is None else before
        if len(spare) > SPARES_MAX:
            del spare[next(iter(spare))]
        return Seen.SPARE

    def failed(self, contact: Contact, now: float) -> bool:
        """A peer did not answer; returns whether it was a live contact until now."""
        peer = contact.peer
        aside = self._failed.get(peer)
        if aside is not None:
            aside.factor = min(aside.factor * 2, BACKOFF_FACTOR_MAX)
            aside.retry_s = now + self._retry_s * aside.factor
            return False
        known = self._take_out(peer)
        if known is None and self._drop_spare(peer) and peer not in self._kept:
            return False
        if known is None and peer not in self._kept:
            self._shunned[peer] = now + self._retry_s
            if len(self._shunned) > SHUNNED_MAX:
                del self._shunned[next(iter(self._shunned))]
            return False
        known_as = known or self._kept.get(peer, contact)
        self._failed[peer] = _Failed(known_as, now + self._retry_s)
        if len(self._failed) > FAILED_MAX:
            for oldest in self._failed:
                if oldest not in self._kept:
                    del self._failed[oldest]
                    break
        return known is not None

    def remove(self, peer: PeerId) -> bool:
        """A peer is up and belongs here no longer; returns whether it was a live contact."""
        self._drop_spare(peer)
        self._failed.pop(peer, None)
        return self._take_out(peer) is not None

    def _take_out(self, peer: PeerId) -> Contact | None:
        """Take a live contact out, and let a spare take its place."""
        key = peer_key(peer)
        bucket = self._buckets.get((key ^ self.me).bit_length() - 1)
        known = None if bucket is None else bucket.live.pop(key, None)
        if bucket is not None and known is not None:
            self._count -= 1
            if bucket.spare:
                # The spare heard from last is the likeliest to live.
                newest, spare = bucket.spare.popitem()
                bucket.live[newest] = spare
                self._count += 1
        return known

    def _drop_spare(self, peer: PeerId) -> bool:
        key = peer_key(peer)
        bucket = self._buckets.get((key ^ self.me).bit_length() - 1)
        if bucket is None or bucket.spare is None:
            return False
        return bucket.spare.pop(key, None) is not None

    @property
    def shuns(self) -> bool:
        """Whether `is_shunned` may be true for any peer."""
        return bool(self._failed or self._shunned)

    def is_shunned(self, peer: PeerId, now: float) -> bool:
        """Whether a peer that another one names failed so lately that asking it is of no use."""
        aside = self._failed.get(peer)
        if aside is not None:
            return aside.retry_s > now
        until_s = self._shunned.get(peer)
        return until_s is not None and until_s > now

    def to_retry(self, now: float, count: int) -> list[Contact]:
        """Up to `count` failed contacts that it is time to try again."""
        due: list[Contact] = []
        for aside in self._failed.values():
            if aside.retry_s <= now:
                due.append(aside.contact)
                if len(due) == count:
                    break
        return due

    def closest(self, key: Key, count: int, exclude: Collection[PeerId] = ()) -> list[Contact]:
        """The `count` live contacts closest to a key, closest first."""
        found: list[Contact] = []
        away = key ^ self.me
        far = key.__xor__
        buckets = self._buckets
        upwards: list[int] = []
        for index in reversed(self._indices):
            if away >> index & 1:
                live = buckets[index].live
                for near in sorted(live, key=far):
                    contact = live[near]
                    if contact.peer not in exclude:
                        found.append(contact)
                        if len(found) == count:
                            return found
            else:
                upwards.append(index)
        for index in reversed(upwards):
            live = buckets[index].live
            for near in sorted(live, key=far):
                contact = live[near]
                if contact.peer not in exclude:
                    found.append(contact)
                    if len(found) == count:
                        return found
        return found

    def is_among_closest(self, key: Key, count: int) -> bool:
        """Whether fewer than `count` live contacts are closer to a key than the node."""
        closest = self.closest(key, count)
        return len(closest) < count or peer_key(closest[-1].peer) ^ key > self.me ^ key

    def around(self, count: int) -> list[Contact]:
        """The contacts that decide for which keys the node is among the `count` closest.

        All keys of a bucket with that many contacts belong to them, and none to the node. Any
        `count` of them show that, once as many are nearer to the node.
        """
        found: list[Contact] = []
        for index in self._indices:
            live = self._buckets[index].live
            found.extend(islice(live.values(), count if len(found) >= count else None))
        return found

    def empty(self) -> list[int]:
        """Buckets without a contact that should have some: those farther than the k nearest."""
        known = 0
        nearest = KEY_BITS
        for nearest in self._indices:
            known += len(self._buckets[nearest].live)
            if known >= self._bucket_size:
                break
        return [
            index
            for index in range(KEY_BITS - 1, nearest, -1)
            if index not in self._buckets or not self._buckets[index].live
        ]

    def quietest(self) -> tuple[float, int] | None:
        """The bucket heard from longest ago: (when, which)."""
        return min(
            ((bucket.seen_s, index) for index, bucket in self._buckets.items() if bucket.live),
            default=None,
        )

    def touch(self, index: int, now: float) -> None:
        """A bucket was refreshed, whether or not a peer answered."""
        bucket = self._buckets.get(index)
        if bucket is not None:
            bucket.seen_s = now

    def to_check(self, index: int) -> Contact | None:
        """The contact of a full bucket that others wait to replace, if it should be gone."""
        bucket = self._buckets.get(index)
        if bucket is None or not bucket.spare or not bucket.live:
            return None
        return next(iter(bucket.live.values()))

    def footprint(self) -> dict[str, int]:
        """How many entries are in memory."""
        return {
            "dht_contacts": self._count,
            "dht_spares": sum(len(b.spare) for b in self._buckets.values() if b.spare),
            "dht_failed": len(self._failed) + len(self._shunned),
        }
