"""The queue of requests that other peers ask the node to publish (docs/spec/pulsarcast.md).

An author's requests are published in the order of their numbers, each once; in causal order, after
the events that the author had seen. A request that was published before gets the same answer
again. A `RequestHandler` makes the events: the publisher, or the leader of several sequencers.
"""

from functools import partial
from typing import Protocol

from pulsarcast.model.errors import (
    Conflict,
    LocalError,
    NotAllowed,
    Refusal,
    RemoteError,
    TooLarge,
    blamed_on_caller,
)
from pulsarcast.model.events import EventDescriptor, SignedRequest, decode_event, decode_request
from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.model.topics import DeliveryOrder, TopicDescriptor, check_attributes
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.messages import RequestAnswered, RequestReferred, RequestToPublish
from pulsarcast.protocol.publishing.outbox import Outbox
from pulsarcast.protocol.publishing.publisher import Done, Publisher
from pulsarcast.protocol.publishing.waiting_requests import (
    CAUSAL_COUNT_MAX,
    RequestPlace,
    Waiting,
    causal_wait,
    place_of,
    reorder_buffer,
)
from pulsarcast.protocol.store import Block, LoadRequest
from pulsarcast.protocol.topic.topic import Topic

USED_BEFORE = "this request number was used before"


class RequestHandler(Protocol):
    """How a request that has its turn becomes an event."""

    def version(self, topic: Topic) -> TopicDescriptor | None:
        """The version that the next event names; None while no event can be made."""

    def is_under_way(self, request_id: bytes) -> bool:
        """Whether a request's event is made, and not in the history yet."""

    def last_number(self, topic: Topic, author: PeerId, epoch: int) -> int | None:
        """The last number taken of an author; None where another node takes the requests."""

    def publish(self, waiting: Waiting, topic: Topic, done: Done) -> None:
        """Make a request's event, or raise LocalError; then its number is not taken."""

    def referral(self, topic: Cid, request_id: bytes) -> RequestReferred | None:
        """What the sender of a request hears that cannot be taken; None: it asks again."""


class RequestQueue:
    """Requests of other peers on their way to become events."""

    def __init__(
        self, context: Context, publisher: Publisher, outbox: Outbox, handler: RequestHandler
    ) -> None:
        self.turn = context.turn
        self.counts = context.counts
        self.publisher = publisher
        self.outbox = outbox
        self.handler = handler
        self._count_max = context.parameters.requests_held_max
        self._askers: dict[bytes, dict[PeerId, bool]] = {}
        """Per request under way: the peers to answer, and whether once it is replicated."""
        self._counting: dict[bytes, None] = {}
        """Requests whose events' replicas are being counted."""
        self._reorder_buffer = reorder_buffer(self._count_max)
        self._causal_wait = causal_wait()

    def __len__(self) -> int:
        return len(self._askers) + len(self._reorder_buffer) + len(self._causal_wait)

    def receive(self, sender: PeerId, message: RequestToPublish, topic: Topic) -> None:
        """Publish a request, let it wait, refuse it, refer it, or repeat its answer."""
        waiting = Waiting(sender, decode_request(message.block), message.replicated)
        place = place_of(waiting.signed)
        if self._refuses(waiting, topic) or self._is_taken(waiting, topic):
            return
        last = self.handler.last_number(topic, place.author, place.epoch)
        if last is None:
            self._refer(topic.id, sender, waiting.signed.request_id)
            return
        settled = message.settled if sender == place.author else 0
        done = max(settled, last)
        if place.number > done + 1:
            room = self._count_max - len(self._askers) - len(self._causal_wait)
            self._reorder_buffer.put(waiting, room)
            # Another publisher may have answered the one that the others here wait for.
            self._publish_next(place._replace(number=done), topic)
        elif self._publish(waiting, topic):
            self._publish_next(place, topic)

    def advance(self, topic: Topic) -> None:
        """Publish the requests whose causal wait has ended with the topic's last event."""
        if not len(self._causal_wait) or topic.causal is None:
            return
        for waiting in self._causal_wait.take_ready(topic.id, topic.causal):
            if self._has_turn(waiting, topic):
                self._publish_next(place_of(waiting.signed), topic)

    def forget(self, topic: Cid) -> None:
        """Drop what waits in a topic that the node has left."""
        self._reorder_buffer.forget(topic)
        self._causal_wait.forget(topic)

    def refer_all(self, topic: Cid) -> None:
        """Refer all askers of the one topic of this queue: its leader has changed."""
        askers = [(asker, each) for each, some in self._askers.items() for asker in some]
        self._askers.clear()
        early = self._reorder_buffer.forget(topic)
        askers += [(each.sender, each.signed.request_id) for each in early]
        for asker, request_id in askers:
            self._refer(topic, asker, request_id)

    def _refuses(self, waiting: Waiting, topic: Topic) -> bool:
        """Refuse a request that the topic forbids, as far as this can be said now."""
        refusal, version = topic.halted, self.handler.version(topic)
        if refusal is None and version is not None:
            refusal = refusal_of(waiting.signed, version, self.turn.me, self.turn.wall_us)
        if refusal is not None:
            self._refuse(waiting, refusal)
        return refusal is not None

    def _is_taken(self, waiting: Waiting, topic: Topic) -> bool:
        """Answer the sender of a request that was taken before, at the latest with the others."""
        request, request_id = waiting.signed.request, waiting.signed.request_id
        is_held = topic.requests.holds(request.author, *request.sequence)
        askers = self._askers.get(request_id)
        if askers is not None:
            # Of an event in the history, nothing but its replicas is waited for any more.
            askers[waiting.sender] = waiting.replicated or is_held
        elif is_held:
            self._repeat(waiting)
        elif not self.handler.is_under_way(request_id):
            return False
        elif len(self._askers) < self._count_max:
            self._askers[request_id] = {waiting.sender: waiting.replicated}
        return True

    def _has_turn(self, waiting: Waiting, topic: Topic) -> bool:
        """Publish a request that has waited; whether its author's next one has its turn."""
        if self._refuses(waiting, topic):
            return False
        return self._is_taken(waiting, topic) or self._publish(waiting, topic)

    def _publish(self, waiting: Waiting, topic: Topic) -> bool:
        """Publish a request, unless it has to wait or to be refused or referred."""
        sender, signed, replicated = waiting
        if self.handler.version(topic) is None or len(self._askers) >= self._count_max:
            self._refer(topic.id, sender, signed.request_id)
            return False
        if topic.causal is not None and not topic.causal.is_behind(signed.request.marks):
            self._wait_for_parents(waiting, topic)
            return False
        self._askers[signed.request_id] = {sender: replicated}
        try:
            self.handler.publish(waiting, topic, self.answer_all)
        except LocalError as error:
            del self._askers[signed.request_id]
            self._refuse(waiting, error.refusal)
            return False
        # It may have waited before its author said that the earlier ones are settled.
        self._reorder_buffer.take(place_of(signed))
        return True

    def _publish_next(self, place: RequestPlace, topic: Topic) -> None:
        """Publish those that waited for the request at a place, one after another."""
        while True:
            place = place._replace(number=place.number + 1)
            waiting = self._reorder_buffer.take(place)
            if waiting is None or not self._has_turn(waiting, topic):
                return

    def _wait_for_parents(self, waiting: Waiting, topic: Topic) -> None:
        """Let a request wait for what its author had seen, and fetch what is missing of that."""
        assert topic.causal is not None
        request = waiting.signed.request
        self.counts["request_behind"] += 1
        self._causal_wait.put(waiting, CAUSAL_COUNT_MAX)
        for mark, cid in zip(request.marks, request.after, strict=True):
            if not topic.causal.is_behind((mark,)) and topic.ordering.held_back(*mark) is None:
                topic.work.recovery.parent_missing(mark, cid, request.author, waiting.sender)

    # Answers.

    def answer_all(self, event: EventDescriptor, replicas: int) -> None:
        """Answer all askers of an event that is published."""
        self._answer_askers(event, replicas, (False, True))

    def arrived(self, event: EventDescriptor) -> None:
        """Answer the askers of a certified event that is in the history now."""
        self._answer_askers(event, 0, (False,))
        if event.request_id in self._askers and event.request_id not in self._counting:
            # Another sequencer has let it out, or it was counted before the asker came.
            self.count_replicas(event)

    def count_replicas(self, event: EventDescriptor) -> None:
        """Replicate an event, and answer the askers that wait for that."""
        self._counting[event.request_id] = None
        self.publisher.replicate_again(event, self._counted)

    def _counted(self, event: EventDescriptor, replicas: int) -> None:
        self._counting.pop(event.request_id, None)
        self._answer_askers(event, replicas, (True,))

    def _answer_askers(
        self, event: EventDescriptor, replicas: int, replicated: tuple[bool, ...]
    ) -> None:
        askers = self._askers.get(event.request_id, {})
        answered = [asker for asker, waits in askers.items() if waits in replicated]
        for asker in answered:
            del askers[asker]
        if not askers:
            self._askers.pop(event.request_id, None)
        for asker in answered:
            self._answer(asker, event.request_id, event, replicas)

    def _repeat(self, waiting: Waiting) -> None:
        """Load the event of a request that was published before, and answer with it."""
        self.counts["request_repeated"] += 1
        request = waiting.signed.request
        wanted = LoadRequest(request.topic, request.author, request.nonce)
        self.turn.load(wanted, Block, partial(self._found, waiting))

    def _found(self, waiting: Waiting, found: Block) -> None:
        if found.block is None:
            self._refuse(waiting, Conflict(USED_BEFORE).refusal)
            return
        event = decode_event(found.block)
        # An idempotency key may come again with another request.
        answer = partial(self._answer, waiting.sender, waiting.signed.request_id)
        if event.is_ordered and not waiting.replicated:
            answer(event, 0)
        else:
            # The node may have stopped before it counted the replicas.
            self.publisher.replicate_again(event, answer)

    def _answer(self, to: PeerId, request_id: bytes, event: EventDescriptor, replicas: int) -> None:
        self._tell(to, RequestAnswered(event.topic, request_id, event.cid, replicas))

    def _refuse(self, waiting: Waiting, refusal: Refusal) -> None:
        topic, request_id = waiting.signed.request.topic, waiting.signed.request_id
        said = (refusal.code, refusal.message)
        self._tell(waiting.sender, RequestAnswered(topic, request_id, None, 0, *said))

    def _refer(self, topic: Cid, to: PeerId, request_id: bytes) -> None:
        referral = self.handler.referral(topic, request_id)
        if referral is not None:
            self._tell(to, referral)

    def _tell(self, to: PeerId, message: RequestAnswered | RequestReferred) -> None:
        """Answer a sender, which is the node itself where it leads the sequencers that it asks."""
        if to != self.turn.me:
            self.turn.send(to, message)
        else:
            self.outbox.receive(to, message)


class PublisherRequests:
    """The requests of topics in which the node publishes without other sequencers."""

    def __init__(self, publisher: Publisher) -> None:
        self.publisher = publisher

    def version(self, topic: Topic) -> TopicDescriptor | None:
        """The newest version, unless another node has this node's key: that one may publish."""
        return topic.descriptor if self.publisher.numberings.refusal is None else None

    def is_under_way(self, request_id: bytes) -> bool:
        """No: every request with an event under way has its asker in the queue."""
        return False

    def last_number(self, topic: Topic, author: PeerId, epoch: int) -> int | None:
        """The last number up to which all were published, by any publisher."""
        return topic.requests.high(author, epoch)

    def publish(self, waiting: Waiting, topic: Topic, done: Done) -> None:
        """Make the publisher's next event and send it on its way."""
        self.publisher.publish_requested(
            waiting.signed, topic, replicated=waiting.replicated, done=done
        )

    def referral(self, topic: Cid, request_id: bytes) -> RequestReferred | None:
        """None: an author without an answer asks another publisher, or again."""
        return None


def refusal_of(
    signed: SignedRequest, descriptor: TopicDescriptor, me: PeerId, wall_us: int
) -> Refusal | None:
    """Why a request cannot be published, if it cannot."""
    request = signed.request
    if not descriptor.may_publish(me):
        return NotAllowed("this peer may not publish").refusal
    is_sequencer = request.author in descriptor.sequencers
    if not is_sequencer and not descriptor.may_request(request.author):
        return NotAllowed("the author may not request").refusal
    if len(request.payload) > descriptor.payload_bytes_max:
        return TooLarge("the payload is larger than the topic allows").refusal
    if request.expires is not None and request.expires < wall_us:
        return LocalError("the request has expired").refusal
    # Members would reject its event, and the publisher's numbering would have a gap.
    is_causal = descriptor.delivery_order is DeliveryOrder.CAUSAL
    if len(request.marks) != (len(request.after) if is_causal else 0):
        return LocalError("the request's marks are not those of the topic's order").refusal
    try:
        check_attributes(descriptor.attributes, request.attributes)
    except RemoteError as error:
        return blamed_on_caller(error).refusal
    return None
