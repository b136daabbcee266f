"""Renewal: newer versions of followed topics (docs/spec/descriptors.md, Topic).

A topic's author, or the holder of a recovery key, announces a version in the topic's meta topic. A
member that meets an event of an unknown version looks that version up in the DHT, which keeps them
all.
"""

from typing import Protocol

from pulsarcast.model.errors import Rejection, RemoteError
from pulsarcast.model.events import EventDescriptor
from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.model.topics import META, TopicDescriptor, decode_topic
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.following.descriptors import Descriptors
from pulsarcast.protocol.topic.followed import FollowedTopics
from pulsarcast.protocol.topic.retirement import said_of
from pulsarcast.protocol.topic.topic import Topic


class RenewalOwner(Protocol):
    """What renewing asks of the node that it belongs to."""

    def renewed(self, topic: Topic) -> None:
        """A followed topic has another version."""


class Renewal:
    """Adopts newer versions."""

    def __init__(
        self,
        context: Context,
        followed: FollowedTopics,
        descriptors: Descriptors,
        owner: RenewalOwner,
    ) -> None:
        self.context = context
        self.followed = followed
        self.descriptors = descriptors
        self.owner = owner

    def announced(self, meta: Topic, event: EventDescriptor) -> None:
        """An event of a meta topic announces a version."""
        try:
            self._take(meta, decode_topic(event.payload))
        except RemoteError as error:
            self.context.rejected(event.publisher, meta.id, error)

    def _take(self, meta: Topic, version: TopicDescriptor) -> None:
        main = self.followed.members.get(version.topic)
        if main is None or version.first is None:
            return
        if main.descriptor.subtopics.get(META) != meta.id:
            raise RemoteError(
                "a version announced in another topic's meta topic", code=Rejection.WRONG_TOPIC
            )
        if main.versions.knows_parent_of(version):
            self.adopt(main, version)
        else:
            # The author may have crashed before it announced the version in between.
            self.find(main, version.cid, meta.versions.first.root_peer)

    def adopt(self, topic: Topic, version: TopicDescriptor) -> None:
        """Adopt a newer version of a followed topic."""
        if topic.adopt_version(version):
            if topic.writing.place is None:
                self.descriptors.save(version)
            flushed = version.flushed if isinstance(version.flushed, tuple) else ()
            self.context.turn.trace(said_of(version, flushed))
            self.owner.renewed(topic)

    def find(self, topic: Topic, version: Cid, sender: PeerId) -> None:
        """Look up a version that the node does not know, and that an event of `sender` names."""

        def found(versions: list[TopicDescriptor]) -> None:
            if not self.followed.is_current(topic):
                return  # The node has left the topic during the lookup.
            try:
                for newer in versions:
                    self.adopt(topic, newer)
            except RemoteError as error:
                self.context.rejected(sender, topic.id, error)
            topic.unpark(version)

        self.descriptors.find_version(topic.id, version, found, sender)
