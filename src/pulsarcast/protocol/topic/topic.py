"""A followed topic: where its parts meet (design 6).

Here they are put together, find a place among the members, learn where the subscription starts, and
leave again. Each part knows only those that it needs.
"""

from collections.abc import Iterable
from functools import partial
from typing import Protocol

from pulsarcast.model.errors import Refusal, Rejection, RemoteError
from pulsarcast.model.events import EventDescriptor
from pulsarcast.model.ids import Cid, PeerId, order_of
from pulsarcast.model.requests import Sequence
from pulsarcast.model.topics import DeliveryOrder, TopicDescriptor
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.dht.kademlia import Kademlia
from pulsarcast.protocol.dissemination.choosing import choose_overlay
from pulsarcast.protocol.dissemination.overlay import CubeView, TreeView
from pulsarcast.protocol.messages import Contact, FrontierPage
from pulsarcast.protocol.store import PutMark
from pulsarcast.protocol.topic.arrivals import Arrivals
from pulsarcast.protocol.topic.barrier import CausalBarrier
from pulsarcast.protocol.topic.causality import CausalOrdering
from pulsarcast.protocol.topic.comparing import Comparing
from pulsarcast.protocol.topic.equivocation import Equivocation
from pulsarcast.protocol.topic.flow import FlowControl
from pulsarcast.protocol.topic.frontier import Frontier
from pulsarcast.protocol.topic.handovers import Handovers
from pulsarcast.protocol.topic.keeping import Keeping
from pulsarcast.protocol.topic.log import TopicLog
from pulsarcast.protocol.topic.ordering import Ordering
from pulsarcast.protocol.topic.published_requests import PublishedRequests
from pulsarcast.protocol.topic.recovery import Recovery
from pulsarcast.protocol.topic.retirement import Retirement
from pulsarcast.protocol.topic.sharing import Sharing
from pulsarcast.protocol.topic.versions import Versions
from pulsarcast.protocol.topic.witnesses import Witnesses

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

    def shown(self, topic: "Topic", sender: PeerId, message: FrontierPage) -> None:
        """A peer shows what it holds."""

    def agreed(self, topic: "Topic", parent: PeerId) -> None:
        """A new parent holds the same numbers as we do."""

    def met_own(self, event: EventDescriptor, sender: PeerId) -> None:
        """An event that our key signed has come, and we did not put it into the topic."""

    def met_own_twice(self, event: EventDescriptor) -> None:
        """An event that our key signed has the number of another one."""


class Topic:
    """One topic that we follow: as a subscriber, for its versions, or to keep its tree together."""

    def __init__(
        self,
        versions: Versions,
        context: Context,
        dht: Kademlia,
        owner: TopicOwner,
        *,
        subscribed: bool,
        frontier: Frontier | None = None,
        log_index: int = 0,
        cursor: int = 0,
    ) -> None:
        self.versions = versions
        self.id: Cid = versions.first.cid
        self.turn = turn = context.turn
        self.parameters = parameters = context.parameters
        self.owner = owner
        self.counts = counts = context.counts
        self.started = frontier is not None
        self.announced = self.started and log_index == 0
        """Whether our start is on the disk, and so known to whoever asked for the subscription."""
        self.frontier = Frontier() if frontier is None else frontier
        self.is_sequenced = versions.first.is_sequenced
        self.is_meta = versions.first.is_meta
        self.requests = PublishedRequests(self.id)
        self.overlay, self.heartbeat = choose_overlay(versions.first, context, dht, self)
        self.overlay.fresh = not self.started
        self.overlay.open = self.started
        order = versions.current.delivery_order
        self.causal: CausalOrdering | None = None
        self.barrier: CausalBarrier | None = None
        """What our next event follows; only causal topics have these two."""
        self.ordering = Ordering(order, self.frontier, parameters.held_back_max)
        if order is DeliveryOrder.CAUSAL:
            self.ordering = self.causal = CausalOrdering(self.frontier, parameters.held_back_max)
            self.barrier = CausalBarrier(self.id)
        self.log = TopicLog(
            self.id,
            turn,
            newest=log_index,
            cursor=cursor,
            subscribed=subscribed,
            recalled=self._recalled,
            replayed=self._replayed,
        )
        self.sharing = Sharing(self.id, turn, parameters, self.frontier)
        self.flow = FlowControl(
            self.id, turn, parameters, self.overlay, self.log, self.sharing, counts
        )
        self.equivocation = Equivocation(
            versions,
            turn,
            self.frontier,
            self.ordering,
            self.overlay,
            rejected=context.rejected,
            met_own_twice=owner.met_own_twice,
        )
        self.handovers = Handovers(versions, turn, self.frontier, partial(owner.want_version, self))
        self.keeping = Keeping(
            self.id,
            turn,
            self.frontier,
            self.ordering,
            self.barrier,
            self.requests,
            self.log,
            equivocation=self.equivocation,
            handovers=self.handovers,
            flow=self.flow,
            heartbeat=self.heartbeat,
            arrived=partial(owner.arrived, self),
            rejected=context.rejected,
            counts=counts,
        )
        self.retirement = Retirement(
            versions,
            turn,
            parameters,
            self.frontier,
            self.log,
            self.causal,
            self.keeping.accept_waiting,
            counts,
        )
        witnesses = Witnesses(
            turn,
            parameters,
            author=versions.first.author,
            publishers_of=versions.publishers_of,
            parent=lambda: self.overlay.mainstay,
            lazy=lambda: self.heartbeat.lazy,
            members=self.heartbeat.members,
            consult=self.sharing.consult,
        )
        self.recovery = Recovery(
            self.id,
            turn,
            parameters,
            self.frontier,
            witnesses=witnesses,
            parent=lambda: self.overlay.mainstay,
            neighbours=self.neighbours,
            take=self._take_recovered,
            find_block=dht.find_block,
            seen=self.ordering.seen,
            retire=self.retirement.retire,
            retires=self.retirement.has_retention,
            needed=self.retirement.needed,
            excuse=self.retirement.excuse,
            counts=counts,
        )
        self.arrivals = Arrivals(
            versions,
            turn,
            self.frontier,
            self.ordering,
            self.overlay,
            flow=self.flow,
            equivocation=self.equivocation,
            handovers=self.handovers,
            keeping=self.keeping,
            recovery=self.recovery,
            has_started=lambda: self.started,
            decode=context.decode,
            want_version=partial(owner.want_version, self),
            met_own=owner.met_own,
            rejected=context.rejected,
            counts=counts,
        )
        self.comparing = Comparing(
            self.id,
            turn,
            self.frontier,
            self.overlay,
            self.heartbeat,
            sharing=self.sharing,
            keeping=self.keeping,
            equivocation=self.equivocation,
            recovery=self.recovery,
            is_sequenced=self.is_sequenced,
            find_block=dht.find_block,
            take=self.arrivals.take_recovered,
        )
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
    def halted(self) -> Refusal | None:
        """Why the topic does not go on, for anyone."""
        halt = self.equivocation.halted
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

    def _recalled(self) -> None:
        """After a restart, we know again what we saw last."""
        if not self.is_behind_its_log:
            self.owner.recalled(self)

    def _replayed(self) -> None:
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
        self.arrivals.unpark(version.cid)
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
            self.counts["catch_up"] += 1
            self.comparing.catch_up(parent)
        elif parent is not None:
            self.owner.agreed(self, parent)

    def _begin(self) -> None:
        """Our start frontier is known: from here on every event is due to us."""
        self.started = True
        self._start_from = None
        self.overlay.fresh = False
        self.retirement.begin()
        self.turn.persist(*(PutMark(self.id, mark) for mark in self.frontier.marks()))
        self.owner.started(self)
        self.overlay.let_in()

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
        if self.started:
            self.owner.shown(self, sender, message)
            self.comparing.receive(sender, message)
        elif sender == self._start_from:
            self._start_at(message)

    def _start_at(self, message: FrontierPage) -> None:
        """Our parent's frontier is where our subscription starts."""
        if len(self.frontier) + len(message.marks) > START_MARKS_MAX:
            self.overlay.look_elsewhere()
            raise RemoteError("a start frontier without end", code=Rejection.TOO_MANY)
        self.keeping.start_at(message.marks)
        if not message.more:
            self._begin()
        # What our parent holds beyond a gap is due to us, like the gap itself.
        self.recovery.compare(self.overlay.mainstay or self.turn.me, message.marks, patience_s=0.0)

    def _take_recovered(self, block: bytes, sender: PeerId, certificate: bytes) -> None:
        """An event was fetched: it arrives like any other."""
        self.arrivals.take_recovered(block, sender, certificate)

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
