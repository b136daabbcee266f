"""The request desk: what others ask us to publish (thesis, 3.3.3).

We take an author's requests in the order of their numbers and publish each once; one that comes
again gets the answer it got before. Of topics with several sequencers, `sequencing/desk.py` is the
desk.
"""

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
from pulsarcast.protocol.messages import RequestAnswered, RequestToPublish
from pulsarcast.protocol.publishing.behind import Behind, Waiting
from pulsarcast.protocol.publishing.early import Early
from pulsarcast.protocol.publishing.publisher import Publisher
from pulsarcast.protocol.store import Block, LoadRequest
from pulsarcast.protocol.topic.topic import Topic

USED_BEFORE = Conflict("this request number was used before").refusal


class RequestDesk:
    """Requests that others ask us to publish."""

    def __init__(
        self,
        context: Context,
        publisher: Publisher,
    ) -> None:
        self.turn = context.turn
        self.parameters = context.parameters
        self.publisher = publisher
        self.counts = context.counts
        self._taking: dict[bytes, dict[PeerId, None]] = {}
        """Requests on their way to the disk or to replicas, and who waits for the answer."""
        self._early = Early(context.parameters.requests_held_max)
        self._behind = Behind()

    def __len__(self) -> int:
        return len(self._early) + len(self._taking) + len(self._behind)

    def receive(self, sender: PeerId, message: RequestToPublish, topic: Topic) -> None:
        """Take a request in its turn, refuse it, or repeat the answer it got before."""
        signed = decode_request(message.block)
        request = signed.request
        refusal = refusal_of(signed, topic.descriptor, self.turn.me, self.turn.wall_us)
        if refusal is not None:
            self._refuse(sender, signed, refusal)
            return
        waiting = self._taking.get(signed.request_id)
        if waiting is not None:
            waiting[sender] = None
            return
        epoch, number = request.sequence
        if topic.requests.holds(request.author, epoch, number):
            self._repeat(sender, signed)
            return
        settled = message.settled if sender == request.author else 0
        if number > max(settled, topic.requests.high(request.author, epoch)) + 1:
            # An earlier request of this author is still on its way.
            others = len(self) - len(self._early)
            room = self.parameters.requests_held_max - others
            self._early.put(Waiting(sender, signed, message.replicated), room)
            return
        if len(self._taking) >= self.parameters.requests_held_max:
            return
        if self._take_after(Waiting(sender, signed, message.replicated), topic):
            self._take_next(topic, request.author, epoch, number + 1)

    def _take_after(self, waiting: Waiting, topic: Topic) -> bool:
        """Take a request once we have delivered what its author had seen (causal order)."""
        request = waiting.signed.request
        if topic.causal is None or topic.causal.is_behind(request.marks):
            return self._take(waiting, topic)
        self.counts["request_behind"] += 1
        self._behind.put(topic.id, waiting)
        for mark, cid in zip(request.marks, request.after, strict=True):
            if not topic.causal.is_behind((mark,)) and topic.ordering.held_back(*mark) is None:
                topic.recovery.parent_missing(mark, cid, request.author, waiting.sender)
        return False

    def advance(self, topic: Topic) -> None:
        """A topic has moved on: requests that waited for that have their turn."""
        if not len(self._behind) or topic.causal is None:
            return
        for waiting in self._behind.take_ready(topic.id, topic.causal):
            sender, signed, _ = waiting
            refusal = refusal_of(signed, topic.descriptor, self.turn.me, self.turn.wall_us)
            epoch, number = signed.request.sequence
            if refusal is not None:
                self._refuse(sender, signed, refusal)
            elif topic.requests.holds(signed.request.author, epoch, number):
                self._repeat(sender, signed)
            elif self._take(waiting, topic):
                self._take_next(topic, signed.request.author, epoch, number + 1)

    def forget(self, topic: Cid) -> None:
        """We have left a topic: nothing of it is ours to publish any more."""
        self._early.forget(topic)
        self._behind.forget(topic)

    def _take(self, waiting: Waiting, topic: Topic) -> bool:
        """Publish a request, or refuse it: then its number is not taken."""
        sender, signed, replicated = waiting
        request = signed.request
        epoch, number = request.sequence
        try:
            event = self.publisher.make_requested(signed, topic)
        except LocalError as error:
            # Its number is not used. Where two nodes have our key, others may still publish it.
            if self.publisher.numberings.refusal is None:
                self._refuse(sender, signed, error.refusal)
            return False
        topic.requests.take(request.author, epoch, number)
        self._taking[signed.request_id] = {sender: None}

        def done(event: EventDescriptor, replicas: int) -> None:
            for asker in self._taking.pop(signed.request_id, {}):
                self._answer(asker, signed, event.cid, replicas)

        self.publisher.publish_requested(event, topic, replicated=replicated, done=done)
        return True

    def _take_next(self, topic: Topic, author: PeerId, epoch: int, number: int) -> None:
        """Whatever waited for the request before this number has its turn, one after another."""
        while (early := self._early.take(topic.id, author, epoch, number)) is not None:
            refusal = refusal_of(early.signed, topic.descriptor, self.turn.me, self.turn.wall_us)
            if topic.requests.holds(author, epoch, number):
                # Another publisher took it while it waited here.
                self._repeat(early.sender, early.signed)
            elif refusal is not None:
                # Since it came there is a version that forbids it, or it has expired.
                self._refuse(early.sender, early.signed, refusal)
                return
            elif not self._take_after(early, topic):
                return
            number += 1

    def _repeat(self, sender: PeerId, signed: SignedRequest) -> None:
        """It was published before: say again as what."""
        self.counts["request_repeated"] += 1
        request = signed.request

        def found(answer: Block) -> None:
            if answer.block is None:
                self._refuse(sender, signed, USED_BEFORE)
                return
            event = decode_event(answer.block)
            # It may have been cut off before its replicas were counted: count them now.
            self.publisher.replicate_again(
                event, lambda event, replicas: self._answer(sender, signed, event.cid, replicas)
            )

        self.turn.load(LoadRequest(request.topic, request.author, request.nonce), Block, found)

    def _answer(self, to: PeerId, signed: SignedRequest, event: Cid, replicas: int) -> None:
        topic = signed.request.topic
        self.turn.send(to, RequestAnswered(topic, signed.request_id, event, replicas))

    def _refuse(self, to: PeerId, signed: SignedRequest, refusal: Refusal) -> None:
        topic = signed.request.topic
        self.turn.send(to, RequestAnswered(topic, signed.request_id, None, 0, *refusal))


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
    # Published all the same, nobody would take it, and our numbering would have a gap.
    is_causal = descriptor.delivery_order is DeliveryOrder.CAUSAL
    if len(request.marks) != (len(request.after) if is_causal else 0):
        return LocalError("the request's marks are not those of the topic's order").refusal
    try:
        check_attributes(descriptor.attributes, request.attributes)
    except RemoteError as error:
        return blamed_on_caller(error).refusal
    return None
