"""Carrying: which topic carries the events of which meta topic (docs/spec/pulsarcast.md).

A topic's descriptor names its meta topic, and any author may name any. Only a topic of the same
author carries its events: members of others have nothing to do with it.
"""

from collections.abc import Iterator

from pulsarcast.model.ids import Cid
from pulsarcast.model.topics import META
from pulsarcast.protocol.topic.followed import FollowedTopics
from pulsarcast.protocol.topic.topic import Topic


class Carrying:
    """The meta topics of the topics that the node is a member of."""

    def __init__(self, followed: FollowedTopics) -> None:
        self._followed = followed
        self._naming: dict[Cid, dict[Cid, None]] = {}
        """By meta topic, the topics that name it and whose overlay the node is in."""

    def begin(self, topic: Topic) -> None:
        """The node is a member of a topic, or on its way: the topic carries its meta topic."""
        cid = topic.descriptor.subtopics.get(META)
        if cid is None:
            return
        self._naming.setdefault(cid, {})[topic.id] = None
        meta = self._followed.members.get(cid)
        if meta is not None and meta.carrier is None:
            self.mount(meta)
            self.catch_up(meta)

    def mount(self, meta: Topic) -> None:
        """Let a topic that names this one carry its events, if there is one."""
        first = meta.versions.first
        for above in self.naming(meta.id):
            named_by = above.versions.first
            if first.is_meta and not named_by.is_meta and first.author == named_by.author:
                above.carry(meta)
                return

    def catch_up(self, meta: Topic) -> None:
        """The node follows a meta topic: learn what members of its topic hold of it."""
        if meta.carrier is not None:
            meta.carrier.catch_up_meta()

    def end(self, topic: Topic) -> Topic | None:
        """The node is out of a topic; returns the meta topic that no topic carries any more."""
        if topic.carrier is not None:
            topic.carrier.forget_meta()
        cid = topic.descriptor.subtopics.get(META, topic.id)
        naming = self._naming.get(cid, {})
        naming.pop(topic.id, None)
        if not naming:
            self._naming.pop(cid, None)
        meta = topic.meta
        topic.put_down()
        if meta is None or not self._followed.is_followed(meta.id):
            return None
        self.mount(meta)
        self.catch_up(meta)
        return meta if meta.carrier is None else None

    def is_named(self, meta: Cid) -> bool:
        """Whether a topic that the node follows has this meta topic."""
        return any(self._followed.is_followed(above.id) for above in self.naming(meta))

    def naming(self, meta: Cid) -> Iterator[Topic]:
        """The topics that have this meta topic, and whose overlay the node is in."""
        members = self._followed.members
        return (members[cid] for cid in self._naming.get(meta, {}) if cid in members)
