"""Requests to publish: the author's durable outbox, and the publisher's side (thesis, 3.3.3).

An author that may not publish asks someone who may. Its request rests in an outbox on its disk and
is sent again, ever more slowly, until it is answered with a CID or a refusal. The publisher takes
an author's requests in the order of their numbers and publishes each once.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from pulsarcast.model.errors import LocalError, RemoteError
from pulsarcast.model.events import (
    AFTER_MAX,
    EventDescriptor,
    Sequence,
    SignedRequest,
    decode_event,
    decode_request,
    sign_request,
)
from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.model.topic_types import SEQUENCERS_MAX
from pulsarcast.model.topics import (
    DeliveryOrder,
    EventLinking,
    TopicDescriptor,
    check_attributes,
)
from pulsarcast.protocol.barrier import NO_LINKS, Links
from pulsarcast.protocol.behind import Behind, Waiting
from pulsarcast.protocol.inputs import Publish
from pulsarcast.protocol.messages import RequestAnswered, RequestToPublish
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.publishing import Publisher
from pulsarcast.protocol.sequencing.messages import RequestReferred
from pulsarcast.protocol.store import Block, DropState, LoadRequest, PutState, StateRow
from pulsarcast.protocol.turn import Turn

if TYPE_CHECKING:
    from pulsarcast.protocol.topic import Topic

BACKOFF_DOUBLINGS_MAX = 5
SEQUENCED_DOUBLINGS_MAX = 2
REFERRALS_MAX = 3
"""How often a request is sent on at once by those who say that another leads."""
TARGETS_MAX = 2 * SEQUENCERS_MAX
"""Whom a request may be sent to: a topic's sequencers, and those who took their places."""
BYTES_MAX = 8 << 20
"""Bytes of requests that wait in memory for earlier ones; their authors send them again."""

Settled = Callable[[Cid | None, int, str], None]
"""Called with the event's CID and replicas, or None and the reason."""


class _Asked:
    """A request of ours that is not answered yet."""

    __slots__ = (
        "attempts",
        "is_hurried",
        "is_sequenced",
        "referrals",
        "replicated",
        "settled",
        "signed",
        "target",
        "targets",
        "timer",
    )

    def __init__(
        self,
        signed: SignedRequest,
        targets: tuple[PeerId, ...],
        replicated: bool,
        settled: Settled | None,
        is_sequenced: bool,
    ) -> None:
        self.signed = signed
        self.targets = targets
        self.replicated = replicated
        self.settled = settled
        self.is_sequenced = is_sequenced
        """Whether the targets agree on one of them, who takes it."""
        self.target = targets[0]
        """Whom we asked last."""
        self.referrals = 0
        self.attempts = 0
        self.timer: int | None = None
        self.is_hurried = False
        """Whether another one is asked soon, whatever the attempts so far."""


class Outbox:
    """Requests that we author."""

    def __init__(
        self,
        turn: Turn,
        parameters: Parameters,
        counts: dict[str, int],
        *,
        ask_self: Callable[[RequestToPublish], None] = lambda message: None,
    ) -> None:
        self.turn = turn
        self.parameters = parameters
        self.counts = counts
        self.ask_self = ask_self
        self._leaders: dict[Cid, PeerId] = {}
        """Who acts as sequencer, of topics that we ask in, as far as we were told."""
        self._scouts: dict[Cid, bytes] = {}
        """Of topics where nobody seems to lead: the request that asks around for all."""
        self._waiting: dict[Cid, dict[bytes, None]] = {}
        """And those who wait to hear what it finds out."""
        self._asked: dict[bytes, _Asked] = {}
        self._open: dict[Cid, dict[Sequence, bytes]] = {}
        """Per topic: requests that are not answered, of each epoch the lowest number first."""
        self._numbers: dict[Cid, Sequence] = {}

    def __len__(self) -> int:
        return len(self._asked)

    def has(self, topic: Cid) -> bool:
        """Whether a request of ours in this topic is not answered yet."""
        return topic in self._open

    def ask(
        self,
        given: Publish,
        descriptor: TopicDescriptor,
        followed: "Topic | None",
        nonce: bytes,
        settled: Settled,
    ) -> None:
        """Put a request into the outbox; it goes out once it is on our disk."""
        after = self._after(given, descriptor, followed)
        if len(self._asked) >= self.parameters.outbox_max:
            settled(None, 0, "the outbox is full")
            return
        topic = descriptor.topic
        last = self._numbers.get(topic)
        if last is None:
            last = Sequence(self.turn.rng.getrandbits(63), 0)
        sequence = self._numbers[topic] = Sequence(last.epoch, last.number + 1)
        signed = sign_request(
            self.turn.identity,
            topic=topic,
            payload=given.payload,
            name=given.name,
            attributes=given.attributes,
            created=self.turn.wall_us if given.created_us is None else given.created_us,
            nonce=nonce,
            sequence=sequence,
            expires=given.expires_us,
            after=after.parents,
            marks=after.marks,
        )
        asked = self._remember(signed, descriptor, given.replicated, settled)
        number = sequence.epoch.to_bytes(8, "big") + sequence.number.to_bytes(8, "big")
        self.turn.persist(
            PutState(StateRow("outbox", signed.request_id, signed.block)),
            PutState(StateRow("asked", topic, number)),
            then=lambda: self._send(asked),
        )

    @staticmethod
    def _after(given: Publish, descriptor: TopicDescriptor, topic: "Topic | None") -> Links:
        """What is to come before: what the caller says, or in causal order all that we have seen.

        A publisher would merge the heads; we may not publish, and a head is never dropped.
        """
        if descriptor.event_linking is EventLinking.CUSTOM:
            return Links(given.parents)
        if topic is None or topic.barrier is None:
            return NO_LINKS
        if len(topic.barrier) > AFTER_MAX:
            raise LocalError("more events were seen at once than a request can name: try later")
        return topic.barrier.links(AFTER_MAX)

    def _remember(
        self,
        signed: SignedRequest,
        descriptor: TopicDescriptor,
        replicated: bool,
        settled: Settled | None,
    ) -> _Asked:
        targets = publishers_of(descriptor)
        # One that was left alone by others may get successors.
        is_total = descriptor.delivery_order is DeliveryOrder.TOTAL
        is_sequenced = descriptor.is_sequenced or (is_total and descriptor.number > 0)
        asked = _Asked(signed, targets, replicated, settled, is_sequenced)
        self._asked[signed.request_id] = asked
        open_numbers = self._open.setdefault(signed.request.topic, {})
        open_numbers[signed.request.sequence] = signed.request_id
        return asked

    def join(self, topic: Cid, nonce: bytes, settled: Settled) -> bool:
        """Whether a request under an idempotency key is open: its caller hears the answer too."""
        for request_id in self._open.get(topic, {}).values():
            asked = self._asked[request_id]
            if asked.signed.request.nonce == nonce:
                asked.settled = settled
                return True
        return False

    def restore_number(self, topic: Cid, value: bytes) -> None:
        """Remember from the disk how far we have numbered our requests."""
        epoch, number = int.from_bytes(value[:8], "big"), int.from_bytes(value[8:], "big")
        self._numbers[topic] = Sequence(epoch, number)

    def resume(
        self, blocks: list[bytes], descriptor_of: Callable[[Cid], TopicDescriptor | None]
    ) -> None:
        """After a restart: send again what was never answered, in the order of its numbers."""
        requests = sorted(
            (decode_request(block) for block in blocks), key=lambda signed: signed.request.sequence
        )
        for signed in requests:
            descriptor = descriptor_of(signed.request.topic)
            if descriptor is None:
                continue
            self.counts["outbox_resumed"] = self.counts.get("outbox_resumed", 0) + 1
            asked = self._remember(signed, descriptor, replicated=True, settled=None)
            asked.timer = self.turn.after(
                self.turn.jitter(1.0),
                lambda asked=asked: self._send(asked),  # type: ignore[misc]
            )

    def _send(self, asked: _Asked) -> None:
        signed = asked.signed
        if signed.request_id not in self._asked:
            return
        if asked.attempts:
            self.counts["outbox_retry"] = self.counts.get("outbox_retry", 0) + 1
        asked.target = self._choose(asked)
        epoch = signed.request.sequence.epoch
        lowest = next(each for each in self._open[signed.request.topic] if each.epoch == epoch)
        settled = lowest.number - 1
        message = RequestToPublish(signed.block, asked.replicated, settled)
        if asked.target != self.turn.me:
            self.turn.send(asked.target, message)
        delay = self.parameters.outbox_retry_s * 2 ** min(asked.attempts, BACKOFF_DOUBLINGS_MAX)
        if asked.is_sequenced:
            # Another one may lead by then.
            doublings = min(asked.attempts, SEQUENCED_DOUBLINGS_MAX)
            delay = min(delay, self.parameters.election_timeout_s * 2**doublings)
        asked.attempts += 1
        asked.is_hurried = False
        asked.timer = self.turn.after(self.turn.jitter(delay), lambda: self._try_another(asked))
        if asked.target == self.turn.me:
            # Last: the answer may come at once.
            self.ask_self(message)

    def _choose(self, asked: _Asked) -> PeerId:
        """Whom to ask: the acting sequencer if we know it, else each in turn."""
        leader = self._leaders.get(asked.signed.request.topic)
        if asked.is_sequenced and leader in asked.targets:
            return leader
        if asked.is_sequenced and not asked.attempts and self.turn.me in asked.targets:
            return self.turn.me
        return asked.targets[asked.attempts % len(asked.targets)]

    def _try_another(self, asked: _Asked) -> None:
        """No answer came."""
        topic = asked.signed.request.topic
        if self._leaders.get(topic) == asked.target:
            del self._leaders[topic]
        asked.referrals = 0
        self._send(asked)

    def lost(self, peer: PeerId) -> None:
        """A sequencer is gone: what we asked of it, we ask another soon."""
        for topic in [topic for topic, leader in self._leaders.items() if leader == peer]:
            del self._leaders[topic]
        for asked in self._asked.values():
            if asked.is_sequenced and asked.target == peer:
                self._ask_soon(asked)

    def _ask_soon(self, asked: _Asked) -> None:
        if asked.is_hurried:
            # Every request to one that is gone fails anew: were the others put off each time, a
            # steady stream of them would keep all from ever asking another.
            return
        topic = asked.signed.request.topic
        scout = self._scouts.get(topic)
        if scout in self._asked and scout != asked.signed.request_id:
            # While nobody leads, one of a topic's requests keeps asking who does.
            self._waiting.setdefault(topic, {})[asked.signed.request_id] = None
            return
        self._scouts[topic] = asked.signed.request_id
        asked.is_hurried = True
        self.turn.cancel(asked.timer)
        delay_s = self.turn.jitter(self.parameters.leader_heartbeat_s)
        asked.timer = self.turn.after(delay_s, lambda: self._try_another(asked))

    def _referred(self, asked: _Asked, sender: PeerId, leader: PeerId | None) -> None:
        """A sequencer says that another leads, or that it knows of none."""
        topic = asked.signed.request.topic
        may_add = asked.is_sequenced and len(asked.targets) < TARGETS_MAX
        if leader is not None and leader not in asked.targets and may_add:
            # By a version that we have not heard of; those whom we trust with the order say so.
            asked.targets += (leader,)
        if leader is None or leader == sender or leader not in asked.targets:
            if self._leaders.get(topic) == sender:
                del self._leaders[topic]
            if sender == asked.target and leader is None:
                self._ask_soon(asked)
            return
        if asked.target != leader and asked.referrals < REFERRALS_MAX:
            asked.referrals += 1
            self.turn.cancel(asked.timer)
            self._leaders[topic] = leader
            self._send(asked)
        self._found_leader(topic, leader)

    def _found_leader(self, topic: Cid, leader: PeerId) -> None:
        """Somebody leads: those who waited to hear of it ask, too."""
        self._leaders[topic] = leader
        self._scouts.pop(topic, None)
        for request_id in self._waiting.pop(topic, {}):
            waiting = self._asked.get(request_id)
            if waiting is not None:
                self.turn.cancel(waiting.timer)
                self._send(waiting)

    def receive(self, sender: PeerId, message: RequestAnswered | RequestReferred) -> None:
        """A publisher answers. Only those whom we asked are believed."""
        asked = self._asked.get(message.request_id)
        if asked is None or sender not in asked.targets:
            return
        if isinstance(message, RequestReferred):
            self._referred(asked, sender, message.leader)
            return
        self.turn.cancel(asked.timer)
        self._close(asked)
        if asked.is_sequenced and self.has(message.topic):
            self._found_leader(message.topic, sender)
        if asked.settled is not None:
            asked.settled(message.event, message.replicas, message.reason)

    def _close(self, asked: _Asked) -> None:
        request = asked.signed.request
        del self._asked[asked.signed.request_id]
        open_numbers = self._open[request.topic]
        open_numbers.pop(request.sequence, None)
        if not open_numbers:
            del self._open[request.topic]
            self._leaders.pop(request.topic, None)
            self._scouts.pop(request.topic, None)
            self._waiting.pop(request.topic, None)
        self.turn.persist(DropState("outbox", asked.signed.request_id))


class RequestDesk:
    """Requests that others ask us to publish."""

    def __init__(
        self,
        turn: Turn,
        parameters: Parameters,
        publisher: Publisher,
        counts: dict[str, int],
    ) -> None:
        self.turn = turn
        self.parameters = parameters
        self.publisher = publisher
        self.counts = counts
        self._taking: dict[bytes, dict[PeerId, None]] = {}
        """Requests on their way to the disk or to replicas, and who waits for the answer."""
        self._early: dict[tuple[Cid, PeerId, int], dict[int, tuple[PeerId, SignedRequest, bool]]]
        self._early = {}
        self._behind = Behind()
        self._early_count = 0
        self._early_bytes = 0

    def __len__(self) -> int:
        return self._early_count + len(self._taking) + len(self._behind)

    def receive(self, sender: PeerId, message: RequestToPublish, topic: "Topic") -> None:
        """Take a request in its turn, refuse it, or repeat the answer it got before."""
        signed = decode_request(message.block)
        request = signed.request
        refusal = refusal_of(signed, topic.descriptor, self.turn.me, self.turn.wall_us)
        if refusal is not None:
            self._answer(sender, signed, None, 0, refusal)
            return
        waiting = self._taking.get(signed.request_id)
        if waiting is not None:
            waiting[sender] = None
            return
        epoch, number = request.sequence
        if topic.requests.holds(request.author, epoch, number):
            self._repeat(sender, signed, topic)
            return
        settled = message.settled if sender == request.author else 0
        if number > max(settled, topic.requests.high(request.author, epoch)) + 1:
            self._hold(sender, signed, message.replicated)
            return
        if len(self._taking) < self.parameters.requests_held_max:
            self._take_after(sender, signed, topic, replicated=message.replicated)

    def _hold(self, sender: PeerId, signed: SignedRequest, replicated: bool) -> None:
        """An earlier request of this author is still on its way."""
        request = signed.request
        size = len(signed.block)
        if len(self) >= self.parameters.requests_held_max or self._early_bytes + size > BYTES_MAX:
            return
        early = self._early.setdefault((request.topic, request.author, request.sequence.epoch), {})
        if request.sequence.number not in early:
            self._early_count += 1
            self._early_bytes += size
        early[request.sequence.number] = (sender, signed, replicated)

    def _take_after(
        self, sender: PeerId, signed: SignedRequest, topic: "Topic", *, replicated: bool
    ) -> None:
        """Take a request once we have delivered what its author had seen (causal order)."""
        request = signed.request
        if topic.causal is None or topic.causal.is_behind(request.marks):
            self._take(sender, signed, topic, replicated=replicated)
            return
        self.counts["request_behind"] = self.counts.get("request_behind", 0) + 1
        self._behind.put(topic.id, Waiting(sender, signed, replicated))
        for mark, cid in zip(request.marks, request.after, strict=True):
            if not topic.causal.is_behind((mark,)) and topic.ordering.held_back(*mark) is None:
                topic.recovery.parent_missing(mark, cid, request.author, sender)

    def advance(self, topic: "Topic") -> None:
        """A topic has moved on: requests that waited for that have their turn."""
        if not len(self._behind) or topic.causal is None:
            return
        for sender, signed, replicated in self._behind.take_ready(topic.id, topic.causal):
            refusal = refusal_of(signed, topic.descriptor, self.turn.me, self.turn.wall_us)
            epoch, number = signed.request.sequence
            if refusal is not None:
                self._answer(sender, signed, None, 0, refusal)
            elif topic.requests.holds(signed.request.author, epoch, number):
                self._repeat(sender, signed, topic)
            else:
                self._take(sender, signed, topic, replicated=replicated)

    def forget(self, topic: Cid) -> None:
        """We have left a topic: nothing of it is ours to publish any more."""
        self._behind.forget(topic)

    def _take(
        self, sender: PeerId, signed: SignedRequest, topic: "Topic", *, replicated: bool
    ) -> None:
        request = signed.request
        epoch, number = request.sequence
        topic.requests.take(request.author, epoch, number)
        self._taking[signed.request_id] = {sender: None}

        def done(event: EventDescriptor, replicas: int) -> None:
            for waiting in self._taking.pop(signed.request_id, {}):
                self._answer(waiting, signed, event.cid, replicas, "")

        self.publisher.publish_request(signed, topic, replicated=replicated, done=done)
        self._take_next(topic, request.author, epoch, number + 1)

    def _take_next(self, topic: "Topic", author: PeerId, epoch: int, number: int) -> None:
        early = self._early.get((topic.id, author, epoch))
        if early is None:
            return
        found = early.pop(number, None)
        if not early:
            del self._early[(topic.id, author, epoch)]
        if found is not None:
            self._early_count -= 1
            self._early_bytes -= len(found[1].block)
            sender, signed, replicated = found
            if topic.requests.holds(author, epoch, number):
                # Another publisher took it while it waited here.
                self._repeat(sender, signed, topic)
                self._take_next(topic, author, epoch, number + 1)
            else:
                self._take_after(sender, signed, topic, replicated=replicated)

    def _repeat(self, sender: PeerId, signed: SignedRequest, topic: "Topic") -> None:
        """It was published before: say again as what."""
        self.counts["request_repeated"] = self.counts.get("request_repeated", 0) + 1
        request = signed.request

        def found(answer: Block) -> None:
            if answer.block is None:
                self._answer(sender, signed, None, 0, "this request number was used before")
                return
            event = decode_event(answer.block)
            # It may have been cut off before its replicas were counted: count them now.
            self.publisher.replicate_again(
                event, lambda event, replicas: self._answer(sender, signed, event.cid, replicas, "")
            )

        self.turn.load(LoadRequest(request.topic, request.author, request.nonce), Block, found)

    def _answer(
        self, to: PeerId, signed: SignedRequest, event: Cid | None, replicas: int, reason: str
    ) -> None:
        self.turn.send(
            to,
            RequestAnswered(signed.request.topic, signed.request_id, event, replicas, reason),
        )


def refusal_of(
    signed: SignedRequest, descriptor: TopicDescriptor, me: PeerId, wall_us: int
) -> str | None:
    """Why a request cannot be published, if it cannot."""
    request = signed.request
    if not descriptor.may_publish(me):
        return "this peer may not publish"
    is_sequencer = request.author in descriptor.sequencers
    if not is_sequencer and not descriptor.may_request(request.author):
        return "the author may not request"
    if len(request.payload) > descriptor.payload_bytes_max:
        return "the payload is too large"
    if request.expires is not None and request.expires < wall_us:
        return "the request has expired"
    # Published all the same, nobody would take it, and our numbering would have a gap.
    is_causal = descriptor.delivery_order is DeliveryOrder.CAUSAL
    if len(request.marks) != (len(request.after) if is_causal else 0):
        return "the request's marks are not those that the topic's order asks for"
    try:
        check_attributes(descriptor.attributes, request.attributes)
    except RemoteError as error:
        return error.reason
    return None


def publishers_of(descriptor: TopicDescriptor) -> tuple[PeerId, ...]:
    """Whom to ask to publish, best first."""
    if descriptor.delivery_order is DeliveryOrder.TOTAL:
        return descriptor.sequencers
    allowed = descriptor.allowed_publishers or (descriptor.author,)
    if descriptor.author in allowed:
        return (descriptor.author, *(peer for peer in allowed if peer != descriptor.author))
    return allowed
