"""Topic descriptors: a cache of those that are known, and lookups of others (thesis, 3.3.2).

Descriptors of topics that the node follows, or has unsent events or requests for, stay in memory
and on the disk. The rest is a cache of bounded size, in memory and on the disk alike, so that
neither grows with all the topics that the node ever followed.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from pulsarcast.model.errors import RemoteError
from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.model.topics import TopicDescriptor, decode_topic
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.dht.kademlia import Kademlia
from pulsarcast.protocol.publishing.outbox import Outbox
from pulsarcast.protocol.publishing.outside import OutsidePublishing
from pulsarcast.protocol.store import VERSIONS, DropState, PutState, StateRow
from pulsarcast.protocol.topic.versions import VERSIONS_MAX, Versions

CACHED_MAX = 1024
"""Topics whose descriptors the node remembers without following them."""
STRANGE_MAX = 64
"""Bounds the walk back from an unknown version to a known one: versions that the topic's author did
not sign. Recovery keys may have signed them, and so may strangers."""


class Descriptors:
    """Every topic descriptor that the node has seen and may need again."""

    def __init__(
        self, context: Context, dht: Kademlia, outbox: Outbox, outside: OutsidePublishing
    ) -> None:
        self.turn = context.turn
        self.dht = dht
        self._outbox = outbox
        self._outside = outside
        self._versions: dict[Cid, Versions] = {}
        self._followed: dict[Cid, None] = {}
        self._saved: dict[Cid, tuple[Cid, ...]] = {}
        """Which versions of each topic are on the disk."""
        self._looking: dict[Cid, list[Callable[[Versions | None], None]]] = {}

    def __len__(self) -> int:
        return len(self._versions)

    def restore(self, blocks: Iterable[bytes]) -> None:
        """Remember what the disk holds; `trim` comes once the followed topics are known."""
        versions = sorted((decode_topic(block) for block in blocks), key=lambda v: v.number)
        for version in versions:
            self._saved[version.topic] = (*self._saved.get(version.topic, ()), version.cid)
            self._add(version)
        for topic in [topic for topic in self._saved if topic not in self._versions]:
            self._drop_saved(topic)  # A version is of no use without the first one.

    def _add(self, version: TopicDescriptor) -> None:
        """Remember a first version, or one whose parent is known."""
        known = self._versions.get(version.topic)
        if known is not None:
            if version.first is not None and known.knows_parent_of(version):
                known.add(version)
        elif version.first is None:
            self._versions[version.topic] = Versions(version)

    def follow(self, versions: Versions, *, for_stranger: bool = False) -> None:
        """Keep a topic's descriptors for good, on disk too unless it is kept for a stranger."""
        self._followed[versions.first.cid] = None
        self._versions[versions.first.cid] = versions
        if not for_stranger:
            self.keep(versions)

    def unfollow(self, topic: Cid) -> None:
        """A topic's descriptors may be forgotten when others need the room."""
        self._followed.pop(topic, None)
        self.trim()

    def followed(self) -> Iterator[TopicDescriptor]:
        """Every version of the followed topics."""
        for topic in self._followed:
            yield from self._versions[topic].all()

    def keep(self, versions: Versions) -> None:
        """Keep a topic's versions on disk: the node needs them after a restart."""
        # They may have left the cache since the caller found them.
        self._versions[versions.first.cid] = versions
        for version in versions.all():
            self.save(version)

    def save(self, version: TopicDescriptor) -> None:
        """Keep one version on disk."""
        saved = self._saved.get(version.topic, ())
        if version.cid not in saved:
            self._saved[version.topic] = (*saved, version.cid)
            self.turn.persist(PutState(StateRow(VERSIONS, version.cid, version.block)))

    def get(self, topic: Cid) -> Versions | None:
        """A topic's versions, if they are known."""
        return self._versions.get(topic)

    def current(self, topic: Cid) -> TopicDescriptor | None:
        """The newest version that is known of a topic."""
        versions = self._versions.get(topic)
        return None if versions is None else versions.current

    def find(self, topic: Cid, then: Callable[[Versions | None], None]) -> None:
        """A topic's versions: those that are known, or the first version from the DHT."""
        known = self._versions.get(topic)
        if known is not None:
            then(known)
            return
        waiting = self._looking.setdefault(topic, [])
        waiting.append(then)
        if len(waiting) == 1:
            self.dht.find_block(topic, lambda block: self._found(topic, block))

    def _found(self, topic: Cid, block: bytes | None) -> None:
        if block is not None:
            try:
                version = decode_topic(block)
                if version.cid == topic and version.first is None:
                    self._add(version)
            except RemoteError:
                pass  # As if the replica had given nothing.
        versions = self._versions.get(topic)
        for then in self._looking.pop(topic, []):
            then(versions)
        self.trim()

    def find_version(
        self,
        topic: Cid,
        version: Cid,
        then: Callable[[list[TopicDescriptor]], None],
        holder: PeerId | None = None,
    ) -> None:
        """The versions from the first unknown one up to `version`, oldest first.

        A `holder` named the version: it is asked for those that the DHT does not give, since
        replicas may have had no room for them.
        """
        found: list[TopicDescriptor] = []

        def step(cid: Cid) -> None:
            self.dht.find_block(cid, lambda block: looked_up(cid, block))

        def looked_up(cid: Cid, block: bytes | None) -> None:
            if block is not None or holder is None or holder == self.turn.me:
                check(cid, block)
            else:
                self.dht.want_blocks(
                    holder, [cid], lambda blocks: check(cid, blocks[0] if blocks else None)
                )

        def check(cid: Cid, block: bytes | None) -> None:
            known = self._versions.get(topic)
            try:
                descriptor = None if block is None else decode_topic(block)
            except RemoteError:
                descriptor = None
            if descriptor is None or descriptor.cid != cid or descriptor.topic != topic:
                then([])
                return
            found.insert(0, descriptor)
            parent = descriptor.parent
            author = None if known is None else known.first.author
            strange = sum(each.signer != author for each in found)
            is_too_long = strange > STRANGE_MAX or len(found) > VERSIONS_MAX
            if known is None or parent is None or is_too_long:
                then([])
            elif known.knows_parent_of(descriptor):
                then(found)
            else:
                step(parent)

        step(version)

    def trim(self) -> None:
        """Forget the topics that were remembered longest and that the node does not need."""
        excess = len(self._versions) - CACHED_MAX - len(self._followed)
        if excess <= 0:
            return
        idle = (t for t in self._versions if t not in self._followed and not self._is_in_use(t))
        for topic in list(islice(idle, excess)):
            del self._versions[topic]
            self._drop_saved(topic)

    def _is_in_use(self, topic: Cid) -> bool:
        """Whether the node has a request or an event for a topic that no member has taken."""
        return self._outbox.has(topic) or self._outside.has_own(topic)

    def _drop_saved(self, topic: Cid) -> None:
        if saved := self._saved.pop(topic, None):
            self.turn.persist(*(DropState(VERSIONS, version) for version in saved))
