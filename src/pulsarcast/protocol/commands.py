"""Commands: what the application asks of a node, and the answers it gets."""

from collections.abc import Callable
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING

from pulsarcast.model import trace
from pulsarcast.model.errors import (
    Closed,
    Conflict,
    Halted,
    LocalError,
    NotAllowed,
    NotFollowed,
    NotFound,
    Refusal,
    RemoteError,
    TooLarge,
    TopicNotFound,
    Unavailable,
    caller_to_blame,
)
from pulsarcast.model.events import decode_request
from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.model.pointers import decode_pointer, sign_pointer
from pulsarcast.model.topics import (
    META,
    EventLinking,
    Mark,
    TopicDescriptor,
    check_attributes,
    create_meta_topic,
    create_topic,
    next_version,
    settled,
)
from pulsarcast.protocol.effects import Reply
from pulsarcast.protocol.inputs import (
    Acknowledge,
    Command,
    CreateTopic,
    FetchBlock,
    Input,
    Publish,
    ReadHistory,
    Resolve,
    Subscribe,
    SubscribeContent,
    Unsubscribe,
    UnsubscribeContent,
    UpdateTopic,
)
from pulsarcast.protocol.messages import RequestToPublish
from pulsarcast.protocol.publishing.outbox import Settled
from pulsarcast.protocol.publishing.publisher import NONCE_BYTES
from pulsarcast.protocol.store import (
    Block,
    Events,
    LoadBlock,
    LoadLog,
    LoadRequest,
)
from pulsarcast.protocol.topic.life import NO_REASON, FollowReason
from pulsarcast.protocol.topic.topic import Topic
from pulsarcast.protocol.topic.versions import Versions, valid_until

if TYPE_CHECKING:
    from pulsarcast.protocol.node import Node


STOPPING = Closed("the node is stopping").refusal
NO_TOPIC = TopicNotFound("no such topic was found").refusal
NO_NAME = TopicNotFound("no topic of this author has this name").refusal
NO_BLOCK = NotFound("nobody has this block").refusal
DOUBTED_BYTES_MAX = 8 << 20
"""Bytes of others' requests that wait until we know whether we may go on with our numbering."""


class Commands:
    """Carries out what the application asks."""

    def __init__(self, node: "Node") -> None:
        self.node = node
        self.turn = node.turn
        self._keyed: dict[tuple[Cid, bytes], list[Publish]] = {}
        """Publishes with an idempotency key that are not answered yet, and who waits for them."""
        self._doubted_bytes = 0

    def handle(self, given: Command) -> None:
        """Do it, or say why not."""
        if self.node.following.is_stopping and not isinstance(given, Acknowledge):
            self._refuse(given.call, STOPPING)
            return
        try:
            match given:
                case Publish():
                    self._publish(given)
                case Acknowledge(topic, index):
                    followed = self.node.topics.get(topic)
                    if followed is None:
                        self.node.content.acknowledge(topic, index)
                    else:
                        followed.log.acknowledge(index)
                case Subscribe():
                    self._subscribe(given)
                case Unsubscribe():
                    self._unsubscribe(given)
                case SubscribeContent():
                    self._subscribe_content(given)
                case UnsubscribeContent():
                    self._unsubscribe_content(given)
                case CreateTopic():
                    self._create(given)
                case UpdateTopic():
                    self._update(given)
                case FetchBlock(call, cid):
                    self._fetch(call, cid)
                case Resolve():
                    self._resolve(given)
                case ReadHistory():
                    self._read_history(given)
        except LocalError as error:
            if not isinstance(given, Acknowledge):
                self._refuse(given.call, error.refusal)

    def refuse_all(self, given: Input, refusal: Refusal) -> None:
        """The node has halted: whoever asks anything hears why."""
        call = getattr(given, "call", None)
        if call is not None:
            self._refuse(call, refusal)

    def _refuse(self, call: int, refusal: Refusal) -> None:
        self.turn.effects.append(Reply(call, refusal))

    # Topics.

    def _create(self, given: CreateTopic) -> None:
        """Meta topic first, both stored, both joined (thesis, algorithm 1)."""
        turn = self.turn
        nonce = turn.rng.randbytes(NONCE_BYTES)
        meta = create_meta_topic(turn.identity, given.name, created=turn.wall_us, nonce=nonce)
        topic = create_topic(
            turn.identity,
            given.name,
            given.settings,
            created=turn.wall_us,
            meta=meta.cid,
            subtopics=given.subtopics,
        )
        for descriptor in (meta, topic):
            self.node.descriptors.keep(Versions(descriptor))

        def pointed(counts: list[int]) -> None:
            versions = self.node.descriptors.get(topic.cid) or Versions(topic)
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
                self.node.seats.summon(versions)
            self.node.following.follow(
                versions,
                FollowReason.AUTHOR,
                then=lambda: turn.effects.append(
                    Reply(given.call, cid=topic.cid, block=topic.block, replicas=min(counts))
                ),
            )

        def stored(counts: list[int]) -> None:
            # Whoever hears that the topic exists must be able to find it by its name.
            self._point_to(topic, lambda: pointed(counts))

        self.node.dht.store([meta.block, topic.block], stored)

    def _update(self, given: UpdateTopic) -> None:
        """A new version: stored, adopted by ourselves, and announced in the meta topic."""
        topic = self._followed(given.topic)
        current = topic.descriptor
        if current.author != self.turn.me:
            raise NotAllowed("only the author makes new versions of a topic")
        meta = self._followed(current.subtopics[META])
        if self.node.doubts.has(meta.id):
            self.node.doubts.resolve(meta.descriptor, meta, lambda: self.handle(given))
            return
        if self.node.numberings.refusal is not None:
            raise Halted(self.node.numberings.refusal)
        frontier = tuple(
            Mark(mark.publisher, mark.epoch, mark.high) for mark in topic.frontier.marks()
        )
        allowed = settled(given.settings, current.author).allowed_publishers
        version = next_version(
            self.turn.identity,
            current,
            given.settings,
            created=self.turn.wall_us,
            valid_until=valid_until(frontier, allowed),
            flushed=frontier if given.flush else (),
            subtopics=given.subtopics,
        )
        with caller_to_blame():
            topic.versions.check_sequencers(version)
            self.node.renewal.adopt(topic, version)
        self._point_to(version, lambda: None)
        announcement = Publish(given.call, meta.id, version.block, replicated=True)
        done = Reply(given.call, cid=version.cid, block=version.block)

        def stored(counts: list[int]) -> None:
            if topic.is_sequenced and version.sequencers != current.sequencers:
                self.node.seats.summon(topic.versions)
            try:
                self.node.publisher.publish(
                    announcement,
                    meta.descriptor,
                    meta,
                    self.node.publisher.nonce(),
                    lambda event, replicas: self.turn.effects.append(done),
                )
            except LocalError as error:
                self._refuse(given.call, error.refusal)

        self.node.dht.store([version.block], stored)

    def _point_to(self, version: TopicDescriptor, then: Callable[[], None]) -> None:
        """Write the mutable pointer: author and name lead to the newest version."""
        pointer = sign_pointer(self.turn.identity, version.name, version.number, version.cid)
        self.node.dht.put_pointer(pointer.block, lambda replicas: then())

    def _followed(self, cid: Cid) -> Topic:
        topic = self.node.topics.get(cid)
        if topic is None:
            raise NotFollowed("we do not follow this topic")
        return topic

    def _subscribe(self, given: Subscribe) -> None:
        def found(versions: Versions | None) -> None:
            if versions is None:
                self._refuse(given.call, NO_TOPIC)
                return
            if self._comes_again(given):
                return
            if given.topic in self.node.content.topics:
                refused = Conflict("we follow this topic by filters: end these first")
                self._refuse(given.call, refused.refusal)
                return
            why = FollowReason.SUBSCRIBED | (FollowReason.BELOW if given.below else NO_REASON)
            self.node.following.follow(
                versions, why, from_start=given.from_start, then=lambda: self._subscribed(given)
            )

        self.node.descriptors.find(given.topic, found)

    def _subscribed(self, given: Subscribe) -> None:
        topic = self.node.topics.get(given.topic)
        places = () if topic is None else (topic.log.delivered,)
        self.turn.effects.append(Reply(given.call, cid=given.topic, places=places))

    def _comes_again(
        self, given: Subscribe | Unsubscribe | SubscribeContent | UnsubscribeContent
    ) -> bool:
        """While our disk forgets a topic, comings and goings wait: they have their turns then."""
        following = self.node.following
        if not following.followed.is_forgetting(given.topic):
            return False
        following.when_forgotten(given.topic, lambda: self.handle(given))
        return True

    def _unsubscribe(self, given: Unsubscribe) -> None:
        if self._comes_again(given):
            return
        topic = self._followed(given.topic)
        done = Reply(given.call, cid=given.topic)
        self.node.following.unfollow(topic, lambda: self.turn.effects.append(done))

    def _subscribe_content(self, given: SubscribeContent) -> None:
        content = self.node.content

        def started() -> None:
            topic = content.topics.get(given.topic)
            places = () if topic is None else (topic.log.delivered,)
            self.turn.effects.append(Reply(given.call, cid=given.topic, places=places))

        def failed() -> None:
            self._refuse(given.call, Unavailable("no member of this topic was found").refusal)

        def found(versions: Versions | None) -> None:
            if versions is None:
                self._refuse(given.call, NO_TOPIC)
                return
            if self._comes_again(given):
                return
            try:
                content.follow(versions, given.sid, given.where, started, failed)
            except LocalError as error:
                self._refuse(given.call, error.refusal)

        self.node.descriptors.find(given.topic, found)

    def _unsubscribe_content(self, given: UnsubscribeContent) -> None:
        if self._comes_again(given):
            return
        done = Reply(given.call, cid=given.topic)
        self.node.content.unfollow(given.topic, given.sid, lambda: self.turn.effects.append(done))

    # Publishing.

    def _publish(self, given: Publish) -> None:
        """Publish or request, whatever we may; once per idempotency key."""
        key = given.idempotency_key
        if key is None:
            self._publish_new(given, self.node.publisher.nonce())
            return
        nonce = nonce_of(key)

        waiting = self._keyed.get((given.topic, nonce))
        if waiting is not None:
            # The same caller asks again before it has its answer: it gets that one.
            waiting.append(given)
            return
        self._keyed[(given.topic, nonce)] = [given]

        def known(answer: Block) -> None:
            if answer.block is None:
                if not self.node.outbox.join(given.topic, nonce, self._settle(given)):
                    self._publish_new(given, nonce)
            elif not given.replicated:
                self._acknowledge(given, self.node.decode(answer.block).cid, 0)
            else:
                event = self.node.decode(answer.block)
                self.node.publisher.replicate_again(
                    event, lambda event, replicas: self._acknowledge(given, event.cid, replicas)
                )

        self.turn.load(LoadRequest(given.topic, self.turn.me, nonce), Block, known)

    def _publish_new(self, given: Publish, nonce: bytes) -> None:
        def found(versions: Versions | None) -> None:
            if versions is None:
                self._refuse_publish(given, NO_TOPIC)
                return
            topic = self.node.topics.get(given.topic)
            if self.node.followed.is_forgetting(given.topic):
                self.node.following.when_forgotten(given.topic, lambda: found(versions))
                return
            if topic is not None and not topic.may_publish:
                self.node.following.when_started(topic, lambda: found(versions))
                return
            if self.node.doubts.has(given.topic) and versions.current.may_publish(self.turn.me):
                self.node.doubts.resolve(versions.current, topic, lambda: found(versions))
                return
            self._check_parents(given, versions, nonce)

        self.node.descriptors.find(given.topic, found)

    def _check_parents(self, given: Publish, versions: Versions, nonce: bytes) -> None:
        """In CUSTOM topics the caller names the parents, as long as they exist (thesis, 3.3.3)."""
        if versions.current.event_linking is not EventLinking.CUSTOM or not given.parents:
            self._publish_linked(given, versions, nonce)
            return
        missing = list(given.parents)

        def step() -> None:
            if not missing:
                self._publish_linked(given, versions, nonce)
                return
            self.find_block(missing.pop(), found)

        def found(block: bytes | None) -> None:
            try:
                if block is None or self.node.decode(block).topic != given.topic:
                    refused = LocalError("a parent that is no event of this topic")
                    self._refuse_publish(given, refused.refusal)
                    return
            except RemoteError:
                self._refuse_publish(given, LocalError("a parent that is no event").refusal)
                return
            step()

        step()

    def _publish_linked(self, given: Publish, versions: Versions, nonce: bytes) -> None:
        me, descriptor = self.turn.me, versions.current
        if self.node.following.is_stopping:
            # We have left our topics: it would be published as if we followed none of them.
            self._refuse_publish(given, STOPPING)
            return
        if given.topic not in self.node.topics:
            self.node.descriptors.keep(versions)
        try:
            if len(given.payload) > descriptor.payload_bytes_max:
                raise TooLarge("the payload is larger than the topic allows")
            with caller_to_blame():
                check_attributes(descriptor.attributes, given.attributes)
            topic = self.node.topics.get(given.topic)
            if topic is not None and topic.halted is not None:
                raise topic.halted.error()
            if versions.first.is_sequenced and descriptor.may_publish(me):
                # Whoever leads among us gives it its place, as it does for anybody.
                self.node.outbox.ask(given, descriptor, topic, nonce, self._settle(given))
            elif descriptor.may_publish(me):
                self.node.publisher.publish(
                    given,
                    descriptor,
                    topic,
                    nonce,
                    lambda event, replicas: self._acknowledge(given, event.cid, replicas),
                )
            elif descriptor.may_request(me):
                self.node.outbox.ask(given, descriptor, topic, nonce, self._settle(given))
            else:
                raise NotAllowed("we may neither publish nor request to publish here")
        except LocalError as error:
            self._refuse_publish(given, error.refusal)

    def _settle(self, given: Publish) -> Settled:
        def settled(event: Cid | None, replicas: int, refusal: Refusal) -> None:
            if event is None:
                self._refuse_publish(given, refusal)
            else:
                self._acknowledge(given, event, replicas)

        return settled

    def _acknowledge(self, given: Publish, event: Cid, replicas: int) -> None:
        level = "replicated" if replicas >= self.node.parameters.replicas else "accepted"
        for asker in self._askers(given):
            self.turn.trace(
                trace.Acknowledged(given.topic, event, asker.injection, level, replicas)
            )
            self.turn.effects.append(Reply(asker.call, cid=event, replicas=replicas))

    def _refuse_publish(self, given: Publish, refusal: Refusal) -> None:
        for asker in self._askers(given):
            self.turn.trace(trace.Refused(given.topic, asker.injection, refusal.code))
            self._refuse(asker.call, refusal)

    def _askers(self, given: Publish) -> list[Publish]:
        """Everyone who waits for the same publish: more than one only with an idempotency key."""
        if given.idempotency_key is None:
            return [given]
        return self._keyed.pop((given.topic, nonce_of(given.idempotency_key)), [given])

    def receive_request(self, sender: PeerId, message: RequestToPublish) -> None:
        """A peer asks us to publish for it; we do so only for topics that we follow."""
        cid = decode_request(message.block).request.topic
        topic = self.node.topics.get(cid)
        if topic is None or topic.is_sequenced:
            self.node.seats.receive_request(sender, cid, message)
            return
        refuses = self.node.numberings.refusal is not None
        if not topic.started or topic.is_behind_its_log or refuses:
            # Left without an answer the author asks others, or again.
            return
        if not self.node.doubts.has(topic.id):
            self.node.desk.receive(sender, message, topic)
        elif (
            self.node.doubts.waiting(topic.id) < self.node.parameters.requests_held_max
            and self._doubted_bytes + len(message.block) <= DOUBTED_BYTES_MAX
        ):
            self._doubted_bytes += len(message.block)
            again = partial(self._receive_again, sender, message)
            self.node.doubts.resolve(topic.descriptor, topic, again)

    def _receive_again(self, sender: PeerId, message: RequestToPublish) -> None:
        self._doubted_bytes -= len(message.block)
        self.receive_request(sender, message)

    # Reading.

    def find_block(self, cid: Cid, then: Callable[[bytes | None], None]) -> None:
        """A block from our disk, or from the DHT."""

        def loaded(answer: Block) -> None:
            if answer.block is not None:
                then(answer.block)
            else:
                self.node.dht.find_block(cid, then)

        self.turn.load(LoadBlock(cid), Block, loaded)

    def _fetch(self, call: int, cid: Cid) -> None:
        def found(block: bytes | None) -> None:
            if block is None:
                self._refuse(call, NO_BLOCK)
            else:
                self.turn.effects.append(Reply(call, cid=cid, block=block))

        self.find_block(cid, found)

    def _resolve(self, given: Resolve) -> None:
        def found(block: bytes | None) -> None:
            if block is None:
                self._refuse(given.call, NO_NAME)
            else:
                self.turn.effects.append(Reply(given.call, cid=decode_pointer(block).cid))

        self.node.dht.get_pointer(given.author, given.name, found)

    def _read_history(self, given: ReadHistory) -> None:
        def found(answer: Events) -> None:
            places = tuple(place for place, _ in answer.events)
            events = tuple(event for _, event in answer.events)
            reply = Reply(given.call, cid=given.topic, events=events, places=places)
            self.turn.effects.append(reply)

        self.turn.load(LoadLog(given.topic, given.index, given.limit), Events, found)


def nonce_of(key: bytes) -> bytes:
    """The nonce that a caller's idempotency key fixes."""
    return blake2b(key, digest_size=NONCE_BYTES, person=b"idempotency-key").digest()
