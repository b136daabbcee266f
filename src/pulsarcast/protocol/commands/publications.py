"""Publishing, or requesting it: what the topic lets the caller do."""

from hashlib import blake2b

from pulsarcast.model import trace
from pulsarcast.model.errors import (
    LocalError,
    NotAllowed,
    Refusal,
    RemoteError,
    TooLarge,
    caller_to_blame,
)
from pulsarcast.model.ids import Cid
from pulsarcast.model.topics import (
    EventLinking,
    check_attributes,
)
from pulsarcast.protocol.commands.commands import NO_TOPIC, STOPPING, Commands
from pulsarcast.protocol.commands.reading import ReadCommands
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.effects import Reply
from pulsarcast.protocol.following.descriptors import Descriptors
from pulsarcast.protocol.following.following import Following
from pulsarcast.protocol.inputs import (
    Publish,
)
from pulsarcast.protocol.publishing.fencing import EpochFencing
from pulsarcast.protocol.publishing.outbox import Outbox, Settled
from pulsarcast.protocol.publishing.pacing import Pacing
from pulsarcast.protocol.publishing.publisher import NONCE_BYTES, Publisher
from pulsarcast.protocol.store import (
    Block,
    LoadRequest,
)
from pulsarcast.protocol.topic.versions import Versions


class PublishCommands(Commands[Publish]):
    """Carries out what publishers ask."""

    def __init__(
        self,
        context: Context,
        following: Following,
        descriptors: Descriptors,
        reading: ReadCommands,
        fencing: EpochFencing,
        publisher: Publisher,
        outbox: Outbox,
        pacing: Pacing,
    ) -> None:
        super().__init__(context, following)
        self.descriptors = descriptors
        self.reading = reading
        self.fencing = fencing
        self.publisher = publisher
        self.outbox = outbox
        self.pacing = pacing
        self._keyed: dict[tuple[Cid, bytes], list[Publish]] = {}
        """Publishes with an idempotency key that are not answered yet, and who waits for them."""

    def carry_out(self, given: Publish) -> None:
        """Publish, or request it where the node may not publish; once per idempotency key."""
        key = given.idempotency_key
        if key is None:
            self._publish_new(given, self.publisher.nonce())
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
                if not self.outbox.join(given.topic, nonce, self._settle(given)):
                    self._publish_new(given, nonce)
            elif not given.replicated:
                self._acknowledge(given, self.context.decode(answer.block).cid, 0)
            else:
                event = self.context.decode(answer.block)
                self.publisher.replicate_again(
                    event, lambda event, replicas: self._acknowledge(given, event.cid, replicas)
                )

        self.turn.load(LoadRequest(given.topic, self.turn.me, nonce), Block, known)

    def _publish_new(self, given: Publish, nonce: bytes) -> None:
        def found(versions: Versions | None) -> None:
            if versions is None:
                self._refuse_publish(given, NO_TOPIC)
                return
            topic = self.followed.members.get(given.topic)
            if self.followed.is_forgetting(given.topic):
                self.following.when_forgotten(given.topic, lambda: found(versions))
                return
            if topic is not None and not topic.may_publish:
                self.following.when_started(topic, lambda: found(versions))
                return
            if self.fencing.is_fenced(given.topic) and versions.current.may_publish(self.turn.me):
                self.fencing.confirm(versions.current, topic, lambda: found(versions))
                return
            self._check_parents(given, versions, nonce)

        self.descriptors.find(given.topic, found)

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
            self.reading.find_block(missing.pop(), found)

        def found(block: bytes | None) -> None:
            try:
                if block is None or self.context.decode(block).topic != given.topic:
                    refused = LocalError("a parent is not an event of this topic")
                    self._refuse_publish(given, refused.refusal)
                    return
            except RemoteError:
                self._refuse_publish(
                    given, LocalError("a parent is not the id of an event").refusal
                )
                return
            step()

        step()

    def _publish_linked(self, given: Publish, versions: Versions, nonce: bytes) -> None:
        me, descriptor = self.turn.me, versions.current
        if self.following.is_stopping:
            # The node has left its topics, and would publish as if it had never followed one.
            self._refuse_publish(given, STOPPING)
            return
        if given.topic not in self.followed.members:
            self.descriptors.keep(versions)
        try:
            if len(given.payload) > descriptor.payload_bytes_max:
                raise TooLarge("the payload is larger than the topic allows")
            with caller_to_blame():
                check_attributes(descriptor.attributes, given.attributes)
            topic = self.followed.members.get(given.topic)
            if topic is not None and topic.halted is not None:
                raise topic.halted.error()
            if versions.first.is_sequenced and descriptor.may_publish(me):
                # The leader of the sequencers gives it its place, as it does for any author.
                self.outbox.ask(given, descriptor, topic, nonce, self._settle(given))
            elif descriptor.may_publish(me):
                self.pacing.check(topic)
                self.publisher.publish(
                    given,
                    descriptor,
                    topic,
                    nonce,
                    lambda event, replicas: self._acknowledge(given, event.cid, replicas),
                )
            elif descriptor.may_request(me):
                self.outbox.ask(given, descriptor, topic, nonce, self._settle(given))
            else:
                raise NotAllowed(
                    "this node may neither publish nor request to publish here: ask the topic's "
                    "author to name it as a publisher, or to open the topic"
                )
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
        level = "replicated" if replicas >= self.context.parameters.replicas else "accepted"
        for asker in self._askers(given):
            self.turn.trace(
                trace.Acknowledged(given.topic, event, asker.injection, level, replicas)
            )
            self.answer(Reply(asker.call, cid=event, replicas=replicas))

    def _refuse_publish(self, given: Publish, refusal: Refusal) -> None:
        for asker in self._askers(given):
            # One that has a time to come back is not over.
            if not refusal.after_s:
                self.turn.trace(trace.Refused(given.topic, asker.injection, refusal.code))
            self.refuse(asker.call, refusal)

    def _askers(self, given: Publish) -> list[Publish]:
        """Everyone who waits for the same publish: more than one only with an idempotency key."""
        if given.idempotency_key is None:
            return [given]
        return self._keyed.pop((given.topic, nonce_of(given.idempotency_key)), [given])


def nonce_of(key: bytes) -> bytes:
    """The nonce that a caller's idempotency key fixes."""
    return blake2b(key, digest_size=NONCE_BYTES, person=b"idempotency-key").digest()
