"""The outbox: sends the node's requests to publish until a publisher has answered them.

An author that may not publish asks a peer that may (thesis, 3.3.3). A request stays on the author's
disk and is sent again, ever more slowly, until it is answered with a CID or a refusal. The other
side of it is `request_queue.py`.
"""

from collections.abc import Callable, Iterator
from typing import Protocol

from pulsarcast.model.errors import Busy, Refusal
from pulsarcast.model.events import (
    AFTER_MAX,
    Sequence,
    SignedRequest,
    decode_request,
    sign_request,
)
from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.model.topic_types import SEQUENCERS_MAX
from pulsarcast.model.topics import DeliveryOrder, EventLinking, TopicDescriptor
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.inputs import Publish
from pulsarcast.protocol.messages import RequestAnswered, RequestReferred, RequestToPublish
from pulsarcast.protocol.store import DropState, PutState, StateRow
from pulsarcast.protocol.topic.barrier import NO_LINKS, Links
from pulsarcast.protocol.topic.followed import FollowedTopics
from pulsarcast.protocol.topic.topic import Topic

BACKOFF_DOUBLINGS_MAX = 5
"""Doublings of the retry delay: a publisher that is away for long is asked seldom."""
SEQUENCED_DOUBLINGS_MAX = 2
"""The same where sequencers publish: another one may lead soon."""
REFERRALS_MAX = 3
"""Referrals that a request follows at once: two sequencers may refer to each other."""
TARGETS_MAX = 2 * SEQUENCERS_MAX
"""Peers that a request may be sent to: a topic's sequencers, and as many successors."""

Settled = Callable[[Cid | None, int, Refusal], None]
"""Called with the event's CID and replicas, or None and why it is refused."""


class _Asked:
    """A request of the node that is not answered yet."""

    __slots__ = (
        "attempts",
        "is_hurried",
        "is_sequenced",
        "referrals",
        "replicated",
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
        is_sequenced: bool,
    ) -> None:
        self.signed = signed
        self.targets = targets
        self.replicated = replicated
        self.is_sequenced = is_sequenced
        """Whether the targets are sequencers, of which only the leader takes it."""
        self.target = targets[0]
        """The peer that was asked last."""
        self.referrals = 0
        self.attempts = 0
        self.timer: int | None = None
        self.is_hurried = False
        """Whether another target is asked soon, without back-off."""


class OutboxOwner(Protocol):
    """What an outbox asks of the node that it belongs to."""

    def ask_self(self, message: RequestToPublish) -> None:
        """A request of the node is for itself: it is one of the topic's sequencers."""


class Outbox:
    """The requests that the node authors."""

    def __init__(self, context: Context, followed: FollowedTopics, owner: OutboxOwner) -> None:
        self.turn = context.turn
        self.parameters = context.parameters
        self.counts = context.counts
        self.followed = followed
        self.owner = owner
        self._leaders: dict[Cid, PeerId] = {}
        """The leading sequencer of each topic with open requests, if one was named."""
        self._scouts: dict[Cid, bytes] = {}
        """In topics without a known leader: the request that looks for one, for all."""
        self._waiting: dict[Cid, dict[bytes, None]] = {}
        """The requests that wait for the leader that it finds."""
        self._asked: dict[bytes, _Asked] = {}
        self._settled: dict[bytes, Settled] = {}
        """Callers that wait for the answer to a request."""
        self._open: dict[Cid, dict[Sequence, bytes]] = {}
        """Per topic: requests that are not answered, of each epoch the lowest number first."""
        self._numbers: dict[Cid, Sequence] = {}

    def __len__(self) -> int:
        return len(self._asked)

    def has(self, topic: Cid) -> bool:
        """Whether a request of the node in this topic is not answered yet."""
        return topic in self._open

    def ask(
        self,
        given: Publish,
        descriptor: TopicDescriptor,
        followed: Topic | None,
        nonce: bytes,
        settled: Settled,
    ) -> None:
        """Put a request into the outbox; it is sent once it is on the disk."""
        after = self._after(given, descriptor, followed)
        if len(self._asked) >= self.parameters.outbox_max:
            settled(None, 0, Busy("the outbox is full").refusal)
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
            after=after.parents,
            marks=after.marks,
        )
        asked = self._remember(signed, descriptor, given.replicated)
        self._settled[signed.request_id] = settled
        number = sequence.epoch.to_bytes(8, "big") + sequence.number.to_bytes(8, "big")
        self.turn.persist(
            PutState(StateRow("outbox", signed.request_id, signed.block)),
            PutState(StateRow("asked", topic, number)),
            then=lambda: self._send(asked),
        )

    def _after(self, given: Publish, descriptor: TopicDescriptor, topic: Topic | None) -> Links:
        """The events that must come before: the caller's, or in causal order all that were seen.

        A publisher would merge the heads; an author may not publish, and no head is dropped.
        """
        if descriptor.event_linking is EventLinking.CUSTOM:
            return Links(given.parents)
        barrier = (
            self.followed.barrier_outside(descriptor.topic) if topic is None else topic.barrier
        )
        if barrier is None:
            return NO_LINKS
        if len(barrier) > AFTER_MAX:
            raise Busy("more events were seen at once than a request can name: try later")
        return barrier.links(AFTER_MAX)

    def _remember(
        self, signed: SignedRequest, descriptor: TopicDescriptor, replicated: bool
    ) -> _Asked:
        targets = publishers_of(descriptor)
        # The last sequencer of a list may get successors.
        is_total = descriptor.delivery_order is DeliveryOrder.TOTAL
        is_sequenced = descriptor.is_sequenced or (is_total and descriptor.number > 0)
        asked = _Asked(signed, targets, replicated, is_sequenced)
        self._asked[signed.request_id] = asked
        open_numbers = self._open.setdefault(signed.request.topic, {})
        open_numbers[signed.request.sequence] = signed.request_id
        return asked

    def join(self, topic: Cid, nonce: bytes, settled: Settled) -> bool:
        """Whether a request under an idempotency key is open: its caller hears the answer too."""
        for request_id in self._open.get(topic, {}).values():
            if self._asked[request_id].signed.request.nonce == nonce:
                self._settled[request_id] = settled
                return True
        return False

    def restore_number(self, topic: Cid, value: bytes) -> None:
        """Load from the disk the number of the node's last request in a topic."""
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
            self.counts["outbox_resumed"] += 1
            asked = self._remember(signed, descriptor, replicated=True)
            asked.timer = self.turn.after(
                self.turn.jitter(1.0),
                lambda asked=asked: self._send(asked),  # type: ignore[misc]
            )

    def _send(self, asked: _Asked) -> None:
        signed = asked.signed
        if signed.request_id not in self._asked:
            return
        if asked.attempts:
            self.counts["outbox_retry"] += 1
        asked.target = self._choose(asked)
        epoch = signed.request.sequence.epoch
        lowest = next(each for each in self._open[signed.request.topic] if each.epoch == epoch)
        settled = lowest.number - 1
        message = RequestToPublish(signed.block, asked.replicated, settled)
        if asked.target != self.turn.me:
            self.turn.send(asked.target, message)
        delay = self.parameters.outbox_retry_s * 2 ** min(asked.attempts, BACKOFF_DOUBLINGS_MAX)
        if asked.is_sequenced:
            # Another sequencer may lead by then.
            doublings = min(asked.attempts, SEQUENCED_DOUBLINGS_MAX)
            delay = min(delay, self.parameters.election_timeout_s * 2**doublings)
        asked.attempts += 1
        asked.is_hurried = False
        asked.timer = self.turn.after(self.turn.jitter(delay), lambda: self.ask_again(asked))
        if asked.target == self.turn.me:
            # Last: the answer may come at once.
            self.owner.ask_self(message)

    def _choose(self, asked: _Asked) -> PeerId:
        """The peer to ask: the leading sequencer if it is known, else each target in turn."""
        leader = self._leaders.get(asked.signed.request.topic)
        if asked.is_sequenced and leader in asked.targets:
            return leader
        if asked.is_sequenced and not asked.attempts and self.turn.me in asked.targets:
            return self.turn.me
        return asked.targets[asked.attempts % len(asked.targets)]

    def ask_again(self, asked: _Asked) -> None:
        """No answer came in time: send the request again, to another where there is one."""
        topic = asked.signed.request.topic
        if self._leaders.get(topic) == asked.target:
            del self._leaders[topic]
        asked.referrals = 0
        self._send(asked)

    def watched(self) -> Iterator[PeerId]:
        """The peers that have yet to answer a request, to be watched for silence."""
        for asked in self._asked.values():
            if asked.is_sequenced:
                yield asked.target

    def lost(self, peer: PeerId) -> None:
        """A sequencer is gone: send its requests to another one soon."""
        for topic in [topic for topic, leader in self._leaders.items() if leader == peer]:
            del self._leaders[topic]
        for asked in self._asked.values():
            if asked.is_sequenced and asked.target == peer:
                self._ask_soon(asked)

    def _ask_soon(self, asked: _Asked) -> None:
        if asked.is_hurried:
            # Each request to a lost sequencer fails anew: were the others put off each time, a
            # steady stream of requests would keep all from asking another one.
            return
        topic = asked.signed.request.topic
        scout = self._scouts.get(topic)
        if scout in self._asked and scout != asked.signed.request_id:
            # While no leader is known, one of a topic's requests looks for it.
            self._waiting.setdefault(topic, {})[asked.signed.request_id] = None
            return
        self._scouts[topic] = asked.signed.request_id
        asked.is_hurried = True
        self.turn.cancel(asked.timer)
        delay_s = self.turn.jitter(self.parameters.leader_heartbeat_s)
        asked.timer = self.turn.after(delay_s, lambda: self.ask_again(asked))

    def _referred(self, asked: _Asked, sender: PeerId, leader: PeerId | None) -> None:
        """A sequencer says that another leads, or that it knows of none."""
        topic = asked.signed.request.topic
        may_add = asked.is_sequenced and len(asked.targets) < TARGETS_MAX
        if leader is not None and leader not in asked.targets and may_add:
            # By a version that the node does not know; a sequencer that it trusts says so.
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
        """A leader is known: send it the requests that waited for one."""
        self._leaders[topic] = leader
        self._scouts.pop(topic, None)
        for request_id in self._waiting.pop(topic, {}):
            waiting = self._asked.get(request_id)
            if waiting is not None:
                self.turn.cancel(waiting.timer)
                self._send(waiting)

    def receive(self, sender: PeerId, message: RequestAnswered | RequestReferred) -> None:
        """A publisher answers. Only answers of peers that were asked count."""
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
        settled = self._settled.pop(message.request_id, None)
        if settled is not None:
            settled(message.event, message.replicas, message.refusal)

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


def publishers_of(descriptor: TopicDescriptor) -> tuple[PeerId, ...]:
    """The peers that may be asked to publish, best first."""
    if descriptor.delivery_order is DeliveryOrder.TOTAL:
        return descriptor.sequencers
    allowed = descriptor.allowed_publishers or (descriptor.author,)
    if descriptor.author in allowed:
        return (descriptor.author, *(peer for peer in allowed if peer != descriptor.author))
    return allowed
