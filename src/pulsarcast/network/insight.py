"""Insight: what a daemon shows of its node, and does with it, beyond what a program needs.

It reads the parts of a node and of its core as they are now; nothing here changes a topic.
"""

from __future__ import annotations

from collections.abc import Mapping

from pulsarcast.model.api import BootstrapView, FollowedView
from pulsarcast.model.errors import Refusal
from pulsarcast.model.filters import Filter
from pulsarcast.model.ids import Cid
from pulsarcast.model.publications import Publication
from pulsarcast.model.topics import TopicDescriptor, TopicSettings
from pulsarcast.network import views, walking
from pulsarcast.network.driver import Counters
from pulsarcast.network.naming import Found, Naming
from pulsarcast.network.node import Node
from pulsarcast.network.values import Ack, Published, Topic, TopicRef
from pulsarcast.storage.logs import LogState


class Insight:
    """A running node, seen from inside."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._home = node._home
        self._driver = node._running
        self._offsets = node._offsets
        self._log_reader = node._home.log_reader()

    # The node.

    @property
    def incarnation(self) -> int:
        """Number of this start of the node, from 1."""
        return self._node._incarnation

    @property
    def counters(self) -> Counters:
        """Messages, bytes, publications, deliveries and commits since the start."""
        return self._driver.counters()

    @property
    def peers_known(self) -> int:
        """Number of peers in the routing table."""
        return self._driver.core.dht.known_count

    @property
    def peers_remembered(self) -> int:
        """Number of peers that the node tries after a restart, besides the bootstrap peers."""
        return self._driver.core.dht.remembered_count

    def bootstrap(self) -> list[BootstrapView]:
        """The peers that the operator named, and whether they answer."""
        return views.bootstrap_of(self._driver.core, self._driver.neighbours)

    @property
    def store_bytes(self) -> int:
        """Size of the store, without what it keeps for strangers and what it may write over."""
        return self._home.store.own_bytes()

    @property
    def strangers_bytes(self) -> int:
        """Size of what the store keeps for strangers, as it is charged to them."""
        return self._home.store.strangers_bytes

    def footprint(self) -> dict[str, int]:
        """Number of items that the core holds in memory, by kind."""
        return self._driver.core.footprint()

    @property
    def recoveries(self) -> Mapping[str, int]:
        """How often the core took each way of recovering."""
        return self._driver.core.counts

    # Topics and readers.

    @property
    def naming(self) -> Naming:
        """The node's way from texts to topics."""
        return self._node._naming

    async def topic(self, named: Found) -> Topic:
        """A topic's newest version, and what to know of the name by which it was found."""
        return await self._node._look_up(named)

    async def ensure_topic(
        self,
        name: str,
        settings: TopicSettings,
        compared: tuple[str, ...],
        subtopics: Mapping[str, TopicRef],
    ) -> Topic:
        """The node's topic of this name: the one there is, where `compared` settings are alike."""
        return await self._node._create(name, settings, subtopics, compared)

    def topics(self, aliases: Mapping[str, str] = {}) -> list[FollowedView]:
        """The topics that the node follows, with their local names."""
        return views.topics_of(self._driver.core, self._offsets.by_topic, aliases)

    def descriptor(self, topic: Cid) -> TopicDescriptor:
        """The newest known version of a topic that the node follows."""
        return self._driver.core.topics[topic].descriptor

    def newest(self, topic: Cid) -> int:
        """The index of the newest event in the node's log of a topic, 0 if there is none."""
        core = self._driver.core
        followed = core.topics.get(topic) or core.content.topics.get(topic)
        return 0 if followed is None else followed.log.newest

    def is_subscribed(self, topic: Cid) -> bool:
        """Whether the node is subscribed to a topic, or only passes its events on."""
        core = self._driver.core
        followed = core.topics.get(topic)
        return topic in core.content.topics if followed is None else followed.subscribed

    @property
    def topics_read(self) -> tuple[Cid, ...]:
        """The topics that have readers."""
        return tuple(self._offsets.by_topic)

    def close_readers(self, refusal: Refusal) -> None:
        """End all subscriptions; the offsets are kept."""
        self._offsets.close_all(refusal)

    async def filter_of(self, topic: TopicRef, where: str | None) -> Filter | None:
        """A filter on a topic's attributes, by the schema of its newest known version."""
        return await self._node._filter_of(topic, where)

    async def publish(
        self, topic: TopicRef, publication: Publication, *, ack: Ack, injection: str
    ) -> Published:
        """Publish for a load driver, whose own name for the event the trace records."""
        return await self._node._publish(topic, publication, ack, injection)

    # Logs.

    @property
    def store_id(self) -> str:
        """The id of the store; a copied or restored store has another."""
        return self._log_reader.store

    def log(self, topic: Cid) -> LogState | None:
        """The part of a topic's log that is on the disk, if the node follows the topic."""
        return self._log_reader.state(topic) if topic in self._driver.core.topics else None

    def read_log(
        self, topic: Cid, first: int, end: int, bytes_max: int
    ) -> list[tuple[int, int, bytes]]:
        """Index, time of receipt and signed bytes of events with first <= index < end."""
        return self._log_reader.read(topic, first, end, bytes_max)

    def index_of(self, topic: Cid, event: Cid) -> int | None:
        """The index of an event in the node's log of a topic, if the log has the event."""
        descriptor = walking.kept_event(self._home.store, event)
        if descriptor is None or descriptor.topic != topic:
            return None
        return walking.index_of(self._home.store, descriptor)
