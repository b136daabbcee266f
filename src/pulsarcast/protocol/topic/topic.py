"""A followed topic: where its parts meet (docs/spec/pulsarcast.md, Processing).

The parts that are called answer with values, and the topic acts on them: the order of the effects
of an arriving event can be read in `Topic.receive`. The parts that timers or the disk wake ask the
topic through one narrow protocol each.
"""

from collections.abc import Callable, Iterable
from typing import Protocol, assert_never

from pulsarcast.model.errors import Refusal, Rejection, RemoteError
from pulsarcast.model.events import EventDescriptor
from pulsarcast.model.ids import Cid, PeerId, order_of
from pulsarcast.model.requests import Sequence
from pulsarcast.model.topics import TopicDescriptor
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.dht.kademlia import Kademlia
from pulsarcast.protocol.dissemination.choosing import choose_overlay
from pulsarcast.protocol.dissemination.overlay import CubeView, TreeView
from pulsarcast.protocol.messages import Contact, EventMessage, FrontierPage
from pulsarcast.protocol.store import MarkState, PutMark
from pulsarcast.protocol.topic.arrivals import (
    Accepted,
    Arrival,
    Arrivals,
    Ignored,
    Unproven,
    Void,
    WantsVersion,
)
from pulsarcast.protocol.topic.comparing import Comparing
from pulsarcast.protocol.topic.equivocation import Equivocation, OwnEvents
from pulsarcast.protocol.topic.flow import FlowControl
from pulsarcast.protocol.topic.handovers import Handovers
from pulsarcast.protocol.topic.keeping import Keeping
from pulsarcast.protocol.topic.log import TopicLog
from pulsarcast.protocol.topic.recovery import Recovery
from pulsarcast.protocol.topic.retirement import Retirement
from pulsarcast.protocol.topic.sharing import Sharing
from pulsarcast.protocol.topic.state import Resumed, TopicState
from pulsarcast.protocol.topic.versions import Versions
from pulsarcast.protocol.topic.witnesses import Witnesses

HOPS_MAX = 255
"""Hops are counted up to here: a message has one byte for them."""
START_MARKS_MAX = 65_536
"""Publishers of a topic that a new subscriber takes from its parent."""


class TopicOwner(Protocol):
    """What a topic asks of the node that it belongs to."""

    def started(self, topic: "Topic") -> None:
        """The subscription has its start frontier."""

    def recalled(self, topic: "Topic") -> None:
        """After a restart, we know again which event we saw last."""

    def stopped(self, topic: "Topic") -> None:
        """We are out of its tree or cube."""

    def arrived(self, topic: "Topic", event: EventDescriptor) -> None:
        """An event is on the disk: what it says, or whom it answers, may concern the node."""

    def want_version(self, topic: "Topic", version: Cid, sender: PeerId) -> None:
        """An event names a version that we have not seen."""


class OwnNumberings(OwnEvents, Protocol):
    """What a topic asks of those who keep our own numberings."""

    def saw_own_event(self, event: EventDescriptor, sender: PeerId) -> None:
        """An event that our key signed has come, and we did not put it into the topic."""

    def heard(self, topic: Cid, peer: PeerId, marks: Iterable[MarkState], *, more: bool) -> None:
        """A peer shows what it holds."""

    def agreed(self, topic: "Topic", parent: PeerId) -> None:
        """A new parent holds the same numbers as we do."""


class Topic:
    """One topic that we follow: as a subscriber, for its versions, or to keep its tree together."""

    def __init__(
        self,
        versions: Versions,
        context: Context,
        dht: Kademlia,
        owner: TopicOwner,
        own: OwnNumberings,
        *,
        subscribed: bool,
        resumed: Resumed | None = None,
    ) -> None:
        frontier, log_index, cursor = (None, 0, 0) if resumed is None else resumed
        self.versions = versions
        self.id: Cid = versions.first.cid
        self.is_meta = versions.first.is_meta
        self.turn = context.turn
        self.context = context
        self.dht = dht
        self.owner = owner
        self.own = own
        self.log = TopicLog(
            self.id, self.turn, self, newest=log_index, cursor=cursor, subscribed=subscribed
        )
        self.state = state = TopicState(context, versions, self.log, frontier)
        self.is_sequenced = state.is_sequenced
        self.frontier = state.frontier
        self.requests = state.requests
        self.ordering = state.ordering
        self.causal = state.causal
        self.barrier = state.barrier
        self.announced = state.started and log_index == 0
        """Whether our start is on the disk, and so known to whoever asked for the subscription."""
        self.overlay, self.heartbeat = choose_overlay(versions.first, context, dht, self)
        self.overlay.fresh = not state.started
        self.overlay.open = state.started
        self.sharing = context.part(Sharing)(state)
        self.flow = FlowControl(state, self.overlay, self.sharing)
        self.equivocation = context.part(Equivocation)(state, self.overlay, own)
        self.handovers = Handovers(state)
        self.arrivals = context.part(Arrivals)(state, self.equivocation, self.handovers)
        self.keeping = Keeping(state, self.handovers, self.flow, self.heartbeat, self)
        self.retirement = Retirement(state, self.keeping)
        witnesses = Witnesses(state, self.overlay, self.heartbeat, self.sharing)
        self.recovery = context.part(Recovery)(state, self.retirement, witnesses, self)
        self.comparing = Comparing(self.overlay, self.heartbeat, self.sharing)
        self.own_before: Sequence | None = None
        """Causal order: our last event from before we followed the topic, if it is yet to come."""
        self._start_from: PeerId | None = None
        """Whoever let us in while we hold nothing: what it shows us is our start."""

    @property
    def descriptor(self) -> TopicDescriptor:
        """The newest version."""
        return self.versions.current

    @property
    def subscribed(self) -> bool:
        """Whether an application wants the events."""
        return self.log.subscribed

    @property
    def started(self) -> bool:
        """Whether the subscription has its start frontier."""
        return self.state.started

    @property
    def halted(self) -> Refusal | None:
        """Why the topic does not go on, for anyone."""
        halt = self.state.halted
        return None if halt is None else halt.refusal

    # Coming and going.

    def open(self, *, from_start: bool = False) -> None:
        """Join the tree; a subscription from the start wants all history there is."""
        if from_start and not self.started:
            self._begin()
        self.overlay.join()
        self.heartbeat.start()
        self.retirement.start()
        self.log.open(replay=self.started)

    def recalled(self) -> None:
        """After a restart, we know again what we saw last."""
        if not self.is_behind_its_log:
            self.owner.recalled(self)

    def replayed(self) -> None:
        """The application has been given all that is in our log."""
        if self.causal is not None and (self.log.is_recalled or self.announced):
            self.owner.recalled(self)

    @property
    def is_behind_its_log(self) -> bool:
        """Whether causal order has to wait: our log holds what was not handed out yet.

        What we publish follows all that is in our log: the application must have been given it.
        """
        return self.log.is_replaying and self.causal is not None

    @property
    def may_publish(self) -> bool:
        """Whether we know what to link to."""
        return self.announced and not self.is_behind_its_log and self.own_before is None

    def must_begin_anew(self, from_start: bool) -> bool:
        """Whether a subscription cannot build on what we hold.

        What retention took from us is gone for everyone in time: no reason to forget the rest.
        """
        if self.subscribed:
            return False
        return self.comparing.is_blank or (
            from_start and any(mark.floor > mark.retired for mark in self.frontier.marks())
        )

    def adopt_version(self, version: TopicDescriptor) -> bool:
        """Take a newer version over; True where it was new to us."""
        if not self.versions.add(version):
            return False
        self.retirement.adopt(version)
        self.unpark(version.cid)
        return True

    def close(self) -> None:
        """Leave the tree, handing children over."""
        self.overlay.leave()

    def left(self) -> None:
        """The tree has let us go."""
        self.heartbeat.stop()
        self.recovery.stop()
        self.retirement.stop()
        self.owner.stopped(self)

    def attached(self, parent: PeerId | None, digest: bytes | None) -> None:
        """We have a place in the tree: catch up, or learn where we start."""
        if not self.started:
            self._start_from = parent
            if parent is None:
                self._begin()
        elif parent is not None and digest != self.digest():
            self.context.counts["catch_up"] += 1
            self.comparing.catch_up(parent)
        elif parent is not None:
            self.own.agreed(self, parent)

    def _begin(self) -> None:
        """Our start frontier is known: from here on every event is due to us."""
        self.state.started = True
        self._start_from = None
        self.overlay.fresh = False
        self.retirement.begin()
        self._persist_marks()
        self.owner.started(self)
        self.overlay.let_in()

    def _persist_marks(self) -> None:
        self.turn.persist(*(PutMark(self.id, mark) for mark in self.frontier.marks()))

    def learn(self, members: tuple[Contact, ...]) -> None:
        """Our parent names other members."""
        self.heartbeat.learn(members)

    def welcome(self, child: PeerId, *, fresh: bool) -> None:
        """A child was taken in: one that holds nothing hears where it starts."""
        if fresh:
            self.sharing.show(child, answer=False)

    def path_changed(self) -> None:
        """Our children should hear our new path to the root."""
        self.heartbeat.announce()

    def lost(self, peer: PeerId) -> None:
        """A connection ended."""
        self.comparing.lost(peer)
        if peer == self._start_from:
            self._start_from = None
        self.overlay.lost(peer)
        self.heartbeat.lost(peer)
        self.recovery.lost(peer)

    # An event's way into the topic.

    def receive_live(
        self, event: EventDescriptor, sender: PeerId, hops: int, certificate: bytes
    ) -> None:
        """Take an event in that a neighbour passed on, or that its publisher hands in."""
        self.receive(event, sender, hops or 1, certificate, passed_on=hops > 0)

    def receive(
        self,
        event: EventDescriptor,
        sender: PeerId,
        hops: int,
        certificate: bytes = b"",
        *,
        passed_on: bool = False,
    ) -> None:
        """Take an event in, from wherever it comes (docs/spec/pulsarcast.md, Receive).

        It is on the disk before it is delivered. So what was delivered is on our disk, and a
        redelivery after a crash can be marked as one.
        """
        state = self.state
        if not state.started or state.halted is not None:
            return
        source, epoch = event.numbered_by, event.sequence.epoch
        arrival = Arrival(event, sender, hops, certificate, passed_on)
        match self.arrivals.judge(arrival):
            case None:
                pass
            case Ignored():
                return
            case WantsVersion(version):
                self.owner.want_version(self, version, sender)
                return
            case Unproven(missing):
                self.recovery.gap(source, epoch, missing, sender)
                return
            case Void(error):
                # We do not pass it on: one who joins late may not know yet that its publisher lost
                # the right.
                self.keeping.void(event)
                raise error
            case _ as unreachable:
                assert_never(unreachable)
        if source == self.turn.me:
            self.own.saw_own_event(event, sender)
        placed = self.arrivals.place(arrival)
        message = EventMessage(event.block, min(hops, HOPS_MAX - 1) + 1, certificate)
        self.overlay.forward(message, source=sender, passed_on=passed_on)
        in_turn = isinstance(placed, Accepted)
        if in_turn:
            self.keeping.accept(event, hops)
            if len(state.ordering):
                self.keeping.accept_waiting(source, epoch)
        if placed.gap is not None:
            self.recovery.gap(source, epoch, placed.gap, sender)
        if state.causal is not None and not in_turn:
            # Asked for one by one: what is recovered or retired meanwhile is lacking no longer.
            for mark, cid in state.causal.lacking(event):
                self.context.counts["parent_missing"] += 1
                self.recovery.parent_missing(mark, cid, event.publisher, sender)

    def take_recovered(self, block: bytes, sender: PeerId, certificate: bytes = b"") -> None:
        """A fetched event is taken in, and so passed on, like a new one."""
        try:
            event = self.context.decode(block)
            if event.topic != self.id:
                raise RemoteError("an answer from another topic", code=Rejection.WRONG_TOPIC)
            self.context.counts["recovered"] += 1
            self.receive(event, sender, 1, certificate)
        except RemoteError as error:
            self.context.rejected(sender, self.id, error)

    def unpark(self, version: Cid) -> None:
        """A version became known, or will not: look again at what waited for it."""
        for event, sender, hops, certificate, passed_on in self.arrivals.unpark(version):
            try:
                self.receive(event, sender, hops, certificate, passed_on=passed_on)
            except RemoteError as error:
                self.context.rejected(sender, self.id, error)

    # What we hold, and what others do.

    def held_position(self) -> int:
        """The position up to which every event, with its certificate, is on our disk."""
        return self.frontier.high(order_of(self.id), 0) - self.log.unsynced

    def holds(self, event: EventDescriptor) -> bool:
        """Whether we have this event, as far as we can tell without asking the disk."""
        place = (event.numbered_by, *event.sequence)
        return self.frontier.holds(*place) and self.frontier.cid_at(*place) in (None, event.cid)

    def has_gaps(self) -> bool:
        """Whether we hold events beyond others that we lack."""
        return next(self.frontier.gaps(), None) is not None

    def digest(self) -> bytes:
        """What we hold, as a hash."""
        return self.frontier.digest()

    def differs_from(self, peer: PeerId) -> None:
        """A neighbour holds something else than we do: show it what we hold."""
        if self.started:
            self.sharing.show_now_and_then(peer)

    def receive_page(self, sender: PeerId, message: FrontierPage) -> None:
        """A peer shows what it holds: start there, or fetch what we lack."""
        if not self.started:
            if sender == self._start_from:
                self._start_at(message)
            return
        self.own.heard(self.id, sender, message.marks, more=message.more)
        claimed = self.equivocation.claimed_otherwise(message.marks)
        if claimed is not None:
            self.recovery.look_at(sender, claimed)
        if self.comparing.starts_at(sender, message):
            self.keeping.start_at(message.marks)
            self._persist_marks()
        shown = self.comparing.consider(sender, message)
        self.recovery.compare(sender, shown.marks, patience_s=shown.patience_s)
        if message.answer:
            is_known = shown.is_known or sender in self.heartbeat.members()
            self.sharing.answer(sender, message, known=is_known)

    def _start_at(self, message: FrontierPage) -> None:
        """Our parent's frontier is where our subscription starts."""
        if len(self.frontier) + len(message.marks) > START_MARKS_MAX:
            self.overlay.look_elsewhere()
            raise RemoteError("a start frontier without end", code=Rejection.TOO_MANY)
        self.keeping.start_at(message.marks)
        if not message.more:
            self._begin()
        # What our parent holds beyond a gap is due to us, like the gap itself.
        self.recovery.compare(
            self.overlay.main_neighbour or self.turn.me, message.marks, patience_s=0.0
        )

    # What parts ask that timers or the disk wake.

    def arrived(self, event: EventDescriptor) -> None:
        """An event is on the disk."""
        self.owner.arrived(self, event)

    def want_version(self, version: Cid, sender: PeerId) -> None:
        """An event can only be judged by a version that we do not know."""
        self.owner.want_version(self, version, sender)

    def find_block(self, cid: Cid, then: Callable[[bytes | None], None]) -> None:
        """Look an event up in the DHT."""
        self.dht.find_block(cid, then)

    @property
    def parent(self) -> PeerId | None:
        """The neighbour that we count on first."""
        return self.overlay.main_neighbour

    def neighbours(self) -> Iterable[PeerId]:
        """Whom we could ask for an event, best first."""
        yield from (peer for peer in self.overlay.path if peer != self.turn.me)
        yield from self.heartbeat.lazy
        yield from self.overlay.children
        yield from self.heartbeat.members()
        if self.overlay.root_peer != self.turn.me:
            yield self.overlay.root_peer

    # For checkers.

    def view(self) -> TreeView | CubeView:
        """Our place among the members."""
        return self.overlay.view(subscribed=self.subscribed, lazy=tuple(self.heartbeat.lazy))

    def footprint(self) -> dict[str, int]:
        """How much this topic keeps in memory."""
        return {
            "marks": len(self.frontier),
            "request_marks": len(self.requests),
            "held_back": len(self.ordering),
            "heads": 0 if self.barrier is None else len(self.barrier),
            "wants": len(self.recovery),
            "parked": self.arrivals.parked_count,
            **self.overlay.footprint(),
        }
