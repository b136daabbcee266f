"""Publishing: links, numbers and signs the node's events, spreads and replicates them.

An event is on the node's disk before any peer receives it. It then spreads through the topic and to
its DHT replicas at the same time; the caller chooses what to wait for, and nothing ever waits for
the whole network (docs/spec/pulsarcast.md).
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

from pulsarcast.model import trace
from pulsarcast.model.events import (
    PARENTS_MAX,
    EventDescriptor,
    Position,
    Sequence,
    SignedRequest,
    publish_own,
    publish_request,
)
from pulsarcast.model.ids import Cid
from pulsarcast.model.topics import DeliveryOrder, EventLinking, TopicDescriptor
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.dht.expiry import event_lifetime
from pulsarcast.protocol.dht.kademlia import Kademlia
from pulsarcast.protocol.inputs import Publish
from pulsarcast.protocol.messages import EventMessage
from pulsarcast.protocol.publishing.numbering import Numbering, Numberings
from pulsarcast.protocol.publishing.outside import OutsidePublishing
from pulsarcast.protocol.store import MarkState, PutEvent
from pulsarcast.protocol.topic.barrier import NO_LINKS, CausalBarrier, Links
from pulsarcast.protocol.topic.followed import FollowedTopics
from pulsarcast.protocol.topic.topic import Topic

NONCE_BYTES = 16
REPLICATION_ATTEMPTS = 3
"""Attempts at r replicas before the caller is told how many there are: bounds its wait."""
MEMBERS_ASKED = 8
"""Neighbours that may keep a replica where fewer than r peers can be dialled: twice r, or a little
more, since several may be behind one relay."""

Done = Callable[[EventDescriptor, int], None]
"""Called with the event and its number of replicas (0: on the node's own disk only)."""


class PublisherOwner(Protocol):
    """What a publisher asks of the node that it belongs to."""

    def published(self, event: EventDescriptor) -> None:
        """An event of the node is on its disk: it may be routed by content."""


class Publisher:
    """Publishes the node's events, and those that authors ask it to publish."""

    def __init__(
        self,
        context: Context,
        dht: Kademlia,
        numberings: Numberings,
        outside: OutsidePublishing,
        followed: FollowedTopics,
        owner: PublisherOwner,
    ) -> None:
        self.turn = context.turn
        self.dht = dht
        self.parameters = context.parameters
        self.numberings = numberings
        self.outside = outside
        self.counts = context.counts
        self.followed = followed
        self.owner = owner

    def nonce(self) -> bytes:
        """A fresh nonce."""
        return self.turn.rng.randbytes(NONCE_BYTES)

    # Publishing.

    def publish(
        self,
        given: Publish,
        descriptor: TopicDescriptor,
        topic: Topic | None,
        nonce: bytes,
        done: Done,
    ) -> None:
        """Publish an event of the node; `topic` is None if the node does not follow it."""
        numbering = self.numberings.open(descriptor.topic, descriptor.delivery_order)
        links = self._link(descriptor, topic, numbering, given.parents)
        sequence = Sequence(numbering.epoch, numbering.last + 1)
        event = publish_own(
            self.turn.identity,
            topic=descriptor.topic,
            version=descriptor.cid,
            payload=given.payload,
            name=given.name,
            attributes=given.attributes,
            created=self.turn.wall_us if given.created_us is None else given.created_us,
            nonce=nonce,
            sequence=sequence,
            parents=links.parents,
            marks=links.marks,
            position=self._position(descriptor, sequence),
        )
        self._launch(event, numbering, topic, descriptor, given.replicated, given.injection, done)

    def publish_requested(
        self, signed: SignedRequest, topic: Topic, *, replicated: bool, done: Done
    ) -> None:
        """Publish what an author asked for, or raise LocalError where it cannot be an event."""
        descriptor = topic.descriptor
        numbering = self.numberings.open(descriptor.topic, descriptor.delivery_order)
        links = self._link(descriptor, topic, numbering, signed.request.after)
        sequence = Sequence(numbering.epoch, numbering.last + 1)
        event = publish_request(
            self.turn.identity,
            signed,
            version=descriptor.cid,
            sequence=sequence,
            parents=links.parents,
            marks=links.marks,
            position=self._position(descriptor, sequence),
        )
        topic.requests.take(event.author, *event.request.sequence)
        self._launch(event, numbering, topic, descriptor, replicated, "", done)

    def _link(
        self,
        descriptor: TopicDescriptor,
        topic: Topic | None,
        numbering: Numbering,
        wanted: tuple[Cid, ...],
    ) -> Links:
        """Choose the parents: all heads, the caller's, the chain's last, or the last one seen."""
        if descriptor.delivery_order is DeliveryOrder.CAUSAL:
            return self._link_to_heads(descriptor, topic, numbering)
        if descriptor.event_linking is EventLinking.CUSTOM:
            return Links(wanted)
        if descriptor.delivery_order is DeliveryOrder.TOTAL or topic is None:
            last = numbering.last_cid
        else:
            last = topic.log.last_seen
        return NO_LINKS if last is None else Links((last,))

    def _link_to_heads(
        self, descriptor: TopicDescriptor, topic: Topic | None, numbering: Numbering
    ) -> Links:
        """Link to all that the node has delivered, or without a subscription to its own last event.

        If an event has no room for all heads, merges take them in first.
        """
        barrier = (
            self.followed.barrier_outside(descriptor.topic) if topic is None else topic.barrier
        )
        if barrier is None:
            last = self.numberings.last_link(descriptor.topic)
            return NO_LINKS if last is None else Links((last[1],), (last[0],))
        own = (self.turn.me, numbering.epoch)
        limit = max(2, min(self.parameters.barrier_max, PARENTS_MAX))
        self.merge_heads(barrier, limit, descriptor, topic, numbering)
        return barrier.links(limit, own)

    def merge_heads(
        self,
        barrier: CausalBarrier,
        limit: int,
        descriptor: TopicDescriptor,
        topic: Topic | None,
        numbering: Numbering,
    ) -> None:
        """Publish events without a payload until an event has room for all heads."""
        own = (self.turn.me, numbering.epoch)
        while len(barrier) > limit:
            self.counts["merge"] += 1
            links = barrier.links(limit, own)
            merge = publish_own(
                self.turn.identity,
                topic=descriptor.topic,
                version=descriptor.cid,
                payload=b"",
                created=self.turn.wall_us,
                nonce=self.nonce(),
                sequence=Sequence(numbering.epoch, numbering.last + 1),
                parents=links.parents,
                marks=links.marks,
                is_merge=True,
            )
            self._launch(merge, numbering, topic, descriptor, False, "", lambda *_: None)

    @staticmethod
    def _position(descriptor: TopicDescriptor, sequence: Sequence) -> Position | None:
        if descriptor.delivery_order is not DeliveryOrder.TOTAL:
            return None
        return Position(0, sequence.number)

    def _launch(
        self,
        event: EventDescriptor,
        numbering: Numbering,
        topic: Topic | None,
        descriptor: TopicDescriptor,
        replicated: bool,
        injection: str,
        done: Done,
    ) -> None:
        """Sync first, then spread and replicate at once."""
        record = self.numberings.give(event, topic)
        lifetime = event_lifetime(event, self.parameters)
        replica = self.dht.own_replica(event.cid, event.block, lifetime)
        more = (record,) if replica is None else (record, replica)

        def synced() -> None:
            if replica is not None:
                self.dht.kept(replica)
            self.trace_published(event, injection)
            self._spread(event, topic, descriptor)
            self.owner.published(event)
            if not replicated:
                done(event, 0)
            self._replicate_in_order(event, numbering, done if replicated else None)

        epoch, number = event.sequence
        if topic is not None:
            before = topic.frontier.mark(self.turn.me, epoch)
            floor, retired = (0, 0) if before is None else (before.floor, before.retired)
            mark = MarkState(self.turn.me, epoch, floor, number, event.cid, (), retired)
            topic.work.keeping.keep(event, mark, 0, synced, *more)
        else:
            # Not in a log, since the node does not follow the topic; found by number and by nonce.
            mark = self._mark_outside(event.topic, epoch)
            kept = PutEvent(0, event, mark, self.turn.wall_us)
            offer = self.outside.offer_row(event)
            barrier = self.followed.barrier_outside(event.topic)
            heads = () if barrier is None else barrier.take(event)
            self.turn.persist(kept, *more, offer, *heads, then=synced)

    def _mark_outside(self, topic: Cid, epoch: int) -> MarkState:
        """The mark of the node's own numbering in a topic that it is no member of."""
        by_content = self.followed.by_content.get(topic)
        held = None if by_content is None else by_content.frontier.mark(self.turn.me, epoch)
        return self.outside.mark_outside(topic, epoch) if held is None else held

    def _spread(
        self, event: EventDescriptor, topic: Topic | None, descriptor: TopicDescriptor
    ) -> None:
        if topic is None:
            self.outside.offer(event, descriptor.root_peer, own=True)
            return
        topic.frontier.add(self.turn.me, *event.sequence, event.cid)
        topic.overlay.forward(EventMessage(event.block, 1), source=None)

    def _replicate_in_order(
        self,
        event: EventDescriptor,
        numbering: Numbering,
        done: Done | None,
        then: Callable[[], None] = lambda: None,
    ) -> None:
        """Replicate an event; the caller hears of it once everything before it is replicated too.

        Otherwise a lost disk could leave a gap below an event that was promised to last, and
        subscribers of an ordered topic would wait for ever. `then` runs once its own are counted.
        """
        number = event.sequence.number

        def counted(event: EventDescriptor, replicas: int) -> None:
            if done is not None:
                numbering.waiting[number] = partial(done, event, replicas)
            numbering.settle((number,))
            then()

        self._replicate(event, 1, counted)

    def _replicate(self, event: EventDescriptor, attempt: int, done: Done) -> None:
        """Store in the DHT until r peers hold the event, or nothing more helps."""
        if not event_lifetime(event, self.parameters).covers(self.turn.wall_us):
            # An old one, or an author with another calendar: no replica would keep it.
            done(event, 0)
            return

        def stored(counts: list[int]) -> None:
            replicas = counts[0]
            # In a small network there may be no other peer to ask, or none that has room.
            others = self.dht.known_with_room_count + len(also)
            wanted = min(self.parameters.replicas, others + 1)
            if replicas >= wanted or attempt >= REPLICATION_ATTEMPTS:
                done(event, replicas)
                return
            delay = self.turn.jitter(self.parameters.rpc_timeout_s * attempt)
            self.turn.after(delay, lambda: self._replicate(event, attempt + 1, done))

        topic = self.followed.members.get(event.topic)
        members = () if topic is None else topic.overlay.first_to_hear(MEMBERS_ASKED)
        also = self.dht.reachability.one_per_place(members)
        self.dht.store([event.block], stored, also=also)

    def replicate_again(self, event: EventDescriptor, done: Done) -> None:
        """Count, and if need be complete, the replicas of an event published before."""
        self._replicate(event, 1, done)

    def trace_published(self, event: EventDescriptor, injection: str) -> None:
        """Trace that an event of the node is published."""
        self.turn.trace(
            trace.Published(
                event.topic,
                event.cid,
                event.version,
                event.numbered_by,
                event.author,
                event.sequence.epoch,
                event.sequence.number,
                event.parents,
                event.position,
                event.request_id,
                injection,
                event.is_silent,
            )
        )

    # After a restart.

    def expect(self, topic: Cid, numbers: range) -> None:
        """These numbers of the node count as replicated only after `resume` or `skip`."""
        numbering = self.numberings.resumed(topic) if numbers else None
        if numbering is not None:
            numbering.replicating.update(dict.fromkeys(numbers))

    def resume(self, event: EventDescriptor, then: Callable[[], None] = lambda: None) -> None:
        """Count the replicas of an event from before the restart; `then` runs once they are."""
        numbering = self.numberings.resumed(event.topic)
        if numbering is None:
            self._replicate(event, 1, lambda event, replicas: then())
        elif event.sequence.epoch == numbering.epoch:
            numbering.replicating[event.sequence.number] = None
            self._replicate_in_order(event, numbering, None, then)
        else:
            then()

    def skip(self, topic: Cid, epoch: int, numbers: Iterable[int]) -> None:
        """The disk has no event of these numbers any more."""
        numbering = self.numberings.resumed(topic)
        if numbering is not None and numbering.epoch == epoch:
            numbering.settle(numbers)
