"""Own listings: has the DHT list the topics whose author the node is (docs/spec/discovery.md).

A topic is listed for as long as its author's node follows it and its newest version has a
description or a tag. No other node can list it: a listing ends soon, and its author alone signs the
next one. `republishing` says when.
"""

from collections.abc import Iterator

from pulsarcast.model.ids import Cid
from pulsarcast.model.keys import Key
from pulsarcast.model.listings import AUTHOR_QUOTA, Listing, author_key, keys_of, sign_listing
from pulsarcast.model.topics import TopicDescriptor
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.dht.expiry import listing_lifetime_us
from pulsarcast.protocol.dht.kademlia import Kademlia
from pulsarcast.protocol.limits import LISTINGS_MAX
from pulsarcast.protocol.topic.followed import FollowedTopics

START_S = 10.0
"""How long after a start the node lists its topics: it has found its place in the DHT by then."""
PLACING_MAX = 8
"""Bounds the keys for which the node places listings at a time."""


class OwnListings:
    """The listings of the node's own topics."""

    def __init__(self, context: Context, dht: Kademlia, followed: FollowedTopics) -> None:
        self.turn = context.turn
        self.dht = dht
        self.followed = followed
        self._lifetime_us = listing_lifetime_us(context.parameters)
        self._versions: dict[Cid, TopicDescriptor] = {}
        """The listed topics, in their newest versions."""
        self._signed: dict[Cid, Listing] = {}
        self._by_key: dict[Key, dict[Cid, None]] = {}
        self._replacing: dict[Key, dict[Cid, Listing]] = {}
        """Listings for keys under which only older ones of their topics belong."""
        self._due: dict[Key, None] = {}
        self._placing = 0
        self._draining = False

    def start(self) -> None:
        """List soon what the node listed before a restart."""
        if next(self._listed(), None) is not None:
            self.turn.after(START_S, self.renew)

    def renew(self) -> None:
        """List all of the node's listed topics again."""
        self._versions = {version.topic: version for version in self._listed()}
        self._signed = {cid: each for cid, each in self._signed.items() if cid in self._versions}
        self._by_key = {}
        for version in self._versions.values():
            self._index(version)
        self._place_next()

    def changed(self, version: TopicDescriptor, before: TopicDescriptor | None = None) -> None:
        """The node has made a version of a topic: list it, or end what is listed."""
        if before is not None and before.is_listed:
            current = keys_of(version) if version.is_listed else ()
            replacing = self._sign(version)
            for key in keys_of(before):
                if key not in current:
                    self._by_key.get(key, {}).pop(version.topic, None)
                    self._replacing.setdefault(key, {})[version.topic] = replacing
                    self._due[key] = None
        self._versions.pop(version.topic, None)
        if version.is_listed:
            self._versions[version.topic] = version
            self._index(version)
        self._place_next()

    def _listed(self) -> Iterator[TopicDescriptor]:
        """The topics to list: those that the node made, follows, and describes."""
        for topic in self.followed.members.values():
            if topic.descriptor.author == self.turn.me and topic.descriptor.is_listed:
                yield topic.descriptor

    def _index(self, version: TopicDescriptor) -> None:
        for key in keys_of(version):
            self._by_key.setdefault(key, {})[version.topic] = None
            self._due[key] = None

    def _place_next(self) -> None:
        """Place listings under the keys that are due, a few keys at a time."""
        if self._draining:
            return  # A placement that ends at once comes back here.
        self._draining = True
        try:
            while self._due and self._placing < PLACING_MAX:
                key = next(iter(self._due))
                del self._due[key]
                listings = self._under(key)
                if listings:
                    self._placing += 1
                    self.dht.put_listings(key, listings, self._placed)
        finally:
            self._draining = False

    def _placed(self, _: int) -> None:
        self._placing -= 1
        self._place_next()

    def _under(self, key: Key) -> list[Listing]:
        """As many listings as a peer keeps of one author under a key, the newest topics first."""
        replacing = list(self._replacing.pop(key, {}).values())
        most = LISTINGS_MAX if key == author_key(self.turn.me) else AUTHOR_QUOTA
        versions = [self._versions[topic] for topic in self._by_key.get(key, ())]
        versions.sort(key=lambda version: -version.created)
        return [*replacing, *map(self._sign, versions[:most])][:LISTINGS_MAX]

    def _sign(self, version: TopicDescriptor) -> Listing:
        """A listing of a version with half of its time ahead."""
        known = self._signed.get(version.topic)
        now_us = self.turn.wall_us
        is_current = known is not None and known.number == version.number
        if known is None or not is_current or known.expires_us < now_us + self._lifetime_us // 2:
            known = sign_listing(self.turn.identity, version, now_us + self._lifetime_us)
            self._signed[version.topic] = known
        return known
