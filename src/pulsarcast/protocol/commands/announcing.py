"""Announcing: the versions that the node makes reach the DHT and the members, whatever happens.

From the moment a version is adopted, the node's events name it, and nobody can judge them without
it. So the disk says in the same write that the version is to be announced, and a node that was
stopped before it could announces it after its start (docs/spec/pulsarcast.md, Versions).
"""

from collections.abc import Callable, Iterable, Sequence

from pulsarcast.model.errors import LocalError, Refusal
from pulsarcast.model.ids import Cid
from pulsarcast.model.topics import META, TopicDescriptor
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.dht.kademlia import Kademlia
from pulsarcast.protocol.following.republishing import Republishing
from pulsarcast.protocol.inputs import Publish
from pulsarcast.protocol.publishing.fencing import EpochFencing
from pulsarcast.protocol.publishing.publisher import Publisher
from pulsarcast.protocol.sequencing.registry import summon
from pulsarcast.protocol.store import DropState, PutState, StateRow
from pulsarcast.protocol.topic.followed import FollowedTopics
from pulsarcast.protocol.topic.topic import Topic

TABLE = "announce"
"""On the disk: the versions that are to be announced."""


class Announcing:
    """Places versions that the node made, and then announces them in their meta topics."""

    def __init__(
        self,
        context: Context,
        followed: FollowedTopics,
        dht: Kademlia,
        publisher: Publisher,
        fencing: EpochFencing,
        republishing: Republishing,
    ) -> None:
        self.turn = context.turn
        self.followed = followed
        self.dht = dht
        self.publisher = publisher
        self.fencing = fencing
        self.republishing = republishing

    def meta_of(self, topic: Topic) -> Topic:
        """The topic's meta topic, in which its versions are announced."""
        return self.followed.members[topic.descriptor.subtopics[META]]

    def is_held_up(self, topic: Topic, then: Callable[[], None]) -> bool:
        """Whether the node may not give numbers yet; `then` is called once it may."""
        meta = self.meta_of(topic)
        if self.fencing.is_fenced(meta.id):
            self.fencing.confirm(meta.descriptor, meta, then)
            return True
        return False

    @property
    def refusal(self) -> str | None:
        """Why the node can give no numbers any more, if it can't."""
        return self.publisher.numberings.refusal

    def announce(
        self,
        topic: Topic,
        version: TopicDescriptor,
        marks: Sequence[bytes],
        then: Callable[[Refusal | None], None],
    ) -> None:
        """Place a new version and the marks that it names, then announce it."""
        self.turn.persist(PutState(StateRow(TABLE, version.cid, b"")))
        previous = topic.versions.by_cid[version.parent] if version.parent else version

        def stored(counts: list[int]) -> None:
            if not any(counts):
                self.republishing.owe(version)
            # Members may hear of the version already: its marks are placed before they need them.
            self.dht.marks.place(marks, placed)

        def placed() -> None:
            if topic.is_sequenced and version.sequencers != previous.sequencers:
                summon(self.turn, topic.versions)
            self._publish(topic, version, then)

        self.dht.store([version.block], stored)

    def resume(self, begun: Iterable[Cid]) -> None:
        """The node starts: announce what it had not announced when it stopped."""
        wanted = set(begun)
        versions = [
            (topic, version)
            for topic in self.followed.members.values()
            for cid, version in topic.versions.by_cid.items()
            if cid in wanted
        ]
        left = wanted.difference(version.cid for _, version in versions)
        if left:
            self.turn.persist(*(DropState(TABLE, cid) for cid in sorted(left)))
        versions.sort(key=lambda each: each[1].number)
        for topic, version in versions:
            self.republishing.owe(version)
            self._resume(topic, version)

    def _resume(self, topic: Topic, version: TopicDescriptor) -> None:
        if not self.is_held_up(topic, lambda: self._resume(topic, version)):
            self._publish(topic, version, lambda _: None)

    def _publish(
        self, topic: Topic, version: TopicDescriptor, then: Callable[[Refusal | None], None]
    ) -> None:
        meta = self.meta_of(topic)
        announcement = Publish(0, meta.id, version.block, replicated=True)

        def announced(event: object, replicas: int) -> None:
            self.turn.persist(DropState(TABLE, version.cid))
            then(None)

        try:
            self.publisher.publish(
                announcement, meta.descriptor, meta, self.publisher.nonce(), announced
            )
        except LocalError as error:
            then(error.refusal)
