"""Topics: making them, and making new versions (thesis, algorithm 1)."""

from collections.abc import Callable
from typing import assert_never

from pulsarcast.model import trace
from pulsarcast.model.errors import (
    Halted,
    LocalError,
    NotAllowed,
    caller_to_blame,
)
from pulsarcast.model.pointers import sign_pointer
from pulsarcast.model.topics import (
    META,
    Mark,
    TopicDescriptor,
    create_meta_topic,
    create_topic,
    next_version,
    settled,
)
from pulsarcast.protocol.commands.commands import Commands
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.dht.kademlia import Kademlia
from pulsarcast.protocol.effects import Reply
from pulsarcast.protocol.following.following import Following
from pulsarcast.protocol.following.own_listings import OwnListings
from pulsarcast.protocol.following.renewal import Renewal
from pulsarcast.protocol.inputs import (
    CreateTopic,
    Publish,
    TopicCommand,
    UpdateTopic,
)
from pulsarcast.protocol.publishing.fencing import EpochFencing
from pulsarcast.protocol.publishing.publisher import NONCE_BYTES, Publisher
from pulsarcast.protocol.sequencing.registry import summon
from pulsarcast.protocol.topic.life import FollowReason
from pulsarcast.protocol.topic.versions import Versions, valid_until


class TopicCommands(Commands[TopicCommand]):
    """Carries out what authors ask about their topics."""

    def __init__(
        self,
        context: Context,
        following: Following,
        dht: Kademlia,
        renewal: Renewal,
        publisher: Publisher,
        fencing: EpochFencing,
        listings: OwnListings,
    ) -> None:
        super().__init__(context, following)
        self.dht = dht
        self.renewal = renewal
        self.publisher = publisher
        self.fencing = fencing
        self.listings = listings

    def carry_out(self, given: TopicCommand) -> None:
        match given:
            case CreateTopic():
                self._create(given)
            case UpdateTopic():
                self._update(given)
            case _ as unreachable:
                assert_never(unreachable)

    def _create(self, given: CreateTopic) -> None:
        """Meta topic first, both stored, both joined (thesis, algorithm 1)."""
        turn = self.turn
        if given.name.rpartition("/")[2] == META:
            raise LocalError(f"a name that ends in {META} is a meta topic's: choose another")
        nonce = turn.rng.randbytes(NONCE_BYTES)
        meta = create_meta_topic(
            turn.identity,
            given.name,
            created=turn.wall_us,
            nonce=nonce,
            recovery_keys=given.settings.recovery_keys,
        )
        topic = create_topic(
            turn.identity,
            given.name,
            given.settings,
            created=turn.wall_us,
            meta=meta.cid,
            subtopics=given.subtopics,
        )
        for descriptor in (meta, topic):
            self.renewal.descriptors.keep(Versions(descriptor))

        def pointed(counts: list[int]) -> None:
            versions = self.renewal.descriptors.get(topic.cid) or Versions(topic)
            turn.trace(
                trace.TopicCreated(
                    topic.cid,
                    topic.name,
                    topic.author,
                    topic.delivery_order,
                    topic.dissemination,
                    topic.cid,
                    topic.event_linking,
                    topic.allowed_publishers,
                    topic.retention.age_s,
                    topic.retention.count,
                    topic.retention.bytes,
                )
            )
            if topic.is_sequenced:
                summon(self.turn, versions)
            self.listings.changed(topic)
            self.following.follow(
                versions,
                FollowReason.AUTHOR,
                then=lambda: self.answer(
                    Reply(given.call, cid=topic.cid, block=topic.block, replicas=min(counts))
                ),
            )

        def stored(counts: list[int]) -> None:
            # Before the caller hears of the topic, its name leads to it.
            self._point_to(topic, lambda: pointed(counts))

        self.dht.store([meta.block, topic.block], stored)

    def _update(self, given: UpdateTopic) -> None:
        """Make a new version: store it, adopt it, and announce it in the meta topic."""
        topic = self.following.member(given.topic)
        current = topic.descriptor
        is_author = current.author == self.turn.me
        if not is_author and self.turn.me not in current.recovery_keys:
            raise NotAllowed("only the topic's author, or a recovery key, may make a new version")
        meta = self.following.member(current.subtopics[META])
        if self.fencing.is_fenced(meta.id):
            self.fencing.confirm(meta.descriptor, meta, lambda: self.handle(given))
            return
        if self.publisher.numberings.refusal is not None:
            raise Halted(self.publisher.numberings.refusal)
        frontier = tuple(
            Mark(mark.publisher, mark.epoch, mark.high) for mark in topic.frontier.marks()
        )
        chosen = settled(given.settings, current.author)
        version = next_version(
            self.turn.identity,
            current,
            chosen,
            created=self.turn.wall_us,
            valid_until=valid_until(frontier, None if chosen.open else chosen.publishers),
            flushed=frontier if given.flush else (),
            subtopics=given.subtopics,
        )
        with caller_to_blame():
            topic.versions.check_sequencers(version)
            self.renewal.adopt(topic, version)
        if is_author:  # A name is its author's: without that key it leads to the version it led to.
            self._point_to(version, lambda: None)
            self.listings.changed(version, current)
        announcement = Publish(given.call, meta.id, version.block, replicated=True)
        done = Reply(given.call, cid=version.cid, block=version.block)

        def stored(counts: list[int]) -> None:
            if topic.is_sequenced and version.sequencers != current.sequencers:
                summon(self.turn, topic.versions)
            try:
                self.publisher.publish(
                    announcement,
                    meta.descriptor,
                    meta,
                    self.publisher.nonce(),
                    lambda event, replicas: self.answer(done),
                )
            except LocalError as error:
                self.refuse(given.call, error.refusal)

        self.dht.store([version.block], stored)

    def _point_to(self, version: TopicDescriptor, then: Callable[[], None]) -> None:
        """Write the mutable pointer: author and name lead to the newest version."""
        pointer = sign_pointer(self.turn.identity, version.name, version.number, version.cid)
        self.dht.put_pointer(pointer.block, lambda replicas: then())
