"""A topic that the node is a member of: connects its parts, and takes events through them.

docs/spec/pulsarcast.md, Processing.

The parts that are called answer with values, and the topic acts on them: the order of the effects
of an arriving event can be read in `Topic.receive`. The parts that timers or the disk wake ask the
topic through one narrow protocol each.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Protocol, assert_never

from pulsarcast.model.errors import Refusal, Rejection, RemoteError
from pulsarcast.model.events import EventDescriptor
from pulsarcast.model.ids import Cid, PeerId, shared_numbering
from pulsarcast.model.requests import Sequence
from pulsarcast.model.topics import TopicDescriptor
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.dht.kademlia import Kademlia
from pulsarcast.protocol.dissemination.choosing import choose_overlay
from pulsarcast.protocol.dissemination.overlay import CubeView, TreeView
from pulsarcast.protocol.dissemination.quiet_topics import QuietTopics
from pulsarcast.protocol.dissemination.riding import RidingOverlay, Trunk
from pulsarcast.protocol.limits import PART_DIGEST_BYTES
from pulsarcast.protocol.messages import (
    CompareFrontiers,
    EventMessage,
    FetchStart,
    FrontierPage,
    StartParts,
)
from pulsarcast.protocol.store import MarkState, PutMark, Write
from pulsarcast.protocol.topic.arrivals import (
    Accepted,
    Arrival,
    Ignored,
    Unproven,
    Void,
    WantsMarks,
    WantsStart,
    WantsVersion,
)
from pulsarcast.protocol.topic.equivocation import OwnEvents
from pulsarcast.protocol.topic.flow import FlowControl
from pulsarcast.protocol.topic.hash_tree import EMPTY
from pulsarcast.protocol.topic.log import TopicLog
from pulsarcast.protocol.topic.state import Resumed, TopicState
from pulsarcast.protocol.topic.versions import NOTHING, Versions
from pulsarcast.protocol.topic.work import AtWork, Work

HOPS_MAX = 255
"""Bounds the hops that an event counts, to fit one byte; further hops stay at this number."""


class TopicOwner(Protocol):
    """Asked of the node that follows the topic."""

    def started(self, topic: "Topic") -> None:
        """The subscription has its start frontier."""

    def loaded(self, topic: "Topic", marks: list[MarkState], writes: list[Write]) -> None:
        """More of the start frontier is known."""

    def resumed(self, topic: "Topic") -> None:
        """After a restart, the node knows the newest event of its log again, and may publish."""

    def stopped(self, topic: "Topic") -> None:
        """The node has left the topic's overlay."""

    def arrived(self, topic: "Topic", event: EventDescriptor) -> None:
        """An event is on the disk: its content, or the request it answers, may concern the node."""

    def want_version(self, topic: "Topic", version: Cid, sender: PeerId) -> None:
        """An event names a version that the node does not know."""

    def found_no_room(self, topic: "Topic") -> None:
        """The disk has left out what the node keeps of the topic for a stranger."""


class OwnNumberings(OwnEvents, Protocol):
    """Asked of the part that keeps the node's own numberings."""

    def saw_own_event(self, event: EventDescriptor, sender: PeerId) -> None:
        """An event arrived that the node's key signed, and this node did not publish it."""

    def heard(self, topic: Cid, peer: PeerId, marks: Iterable[MarkState], *, more: bool) -> None:
        """A peer shows its frontier."""

    def agreed(self, topic: "Topic", parent: PeerId) -> None:
        """A new parent holds the same numbers as the node."""

    def published_in(self, topic: Cid) -> Iterable[tuple[PeerId, int]]:
        """The node's numberings in a topic from before it followed it."""


class Topic:
    """One topic that the node is a member of."""

    __slots__ = (
        "_shown",
        "_work",
        "at_work",
        "awaited_own",
        "barrier",
        "carrier",
        "causal",
        "context",
        "dht",
        "frontier",
        "heartbeat",
        "id",
        "is_meta",
        "is_ready",
        "is_sequenced",
        "log",
        "meta",
        "ordering",
        "overlay",
        "own",
        "owner",
        "requests",
        "state",
        "turn",
        "versions",
        "writing",
    )

    def __init__(
        self,
        versions: Versions,
        context: Context,
        dht: Kademlia,
        quiet: QuietTopics,
        owner: TopicOwner,
        own: OwnNumberings,
        at_work: AtWork,
        *,
        subscribed: bool,
        resumed: Resumed | None = None,
        place: str | None = None,
    ) -> None:
        frontier, log_index, cursor, roots, flushes = resumed or Resumed(None, 0, 0)
        self.versions = versions
        self.id: Cid = versions.first.cid
        self.is_meta = versions.first.is_meta
        self.turn = context.turn
        self.context = context
        self.dht = dht
        self.owner = owner
        self.own = own
        self.at_work = at_work
        self.log = TopicLog(
            self.id,
            self.turn,
            self,
            newest=log_index,
            cursor=cursor,
            subscribed=subscribed,
            place=place,
        )
        self.writing = self.log.writing
        self.state = state = TopicState(context, versions, self.log, frontier)
        self.is_sequenced = state.is_sequenced
        self.frontier = state.frontier
        self.requests = state.requests
        self.ordering = state.ordering
        self.causal = state.causal
        self.barrier = state.barrier
        self.is_ready = state.started and log_index == 0
        """Whether the start frontier is on the disk and, after a restart, the log's newest event is
        known: the node may link to it, and callers that waited have been told."""
        self.overlay, self.heartbeat = choose_overlay(
            versions.first, context, dht, quiet, self, started=state.started
        )
        self._work: Work | None = None
        """Its parts, while something happens."""
        self.meta: Topic | None = None
        """The meta topic, where its events ride on the overlay of this topic."""
        self.carrier: Topic | None = None
        """The topic that carries the events of this meta topic."""
        if roots or flushes:
            self._begin_work(roots, flushes)
        self._shown = b""
        """What the parent holds of the meta topic, as it said when it let the node in."""
        self.awaited_own: Sequence | None = None
        """Causal order: the node's own last event from before it followed the topic. While it has
        not arrived, the node does not publish."""

    @property
    def work(self) -> Work:
        """The parts that take events in, made where there are none."""
        return self._begin_work() if self._work is None else self._work

    def _begin_work(
        self, roots: Mapping[bytes, bytes] = NOTHING, flushes: Iterable[Cid] = ()
    ) -> Work:
        if self.carrier is not None and self.carrier._work is None:
            self.carrier._begin_work()  # Its neighbours may fall behind with events of this topic.
        around = (self.overlay, self.heartbeat, self.dht)
        self._work = Work(self.state, *around, self, self.own, roots, flushes)
        self.at_work.begin(self)
        return self._work

    def rest(self) -> bool:
        """Drop the parts if all of them are idle; returns whether there are none."""
        carries_work = self.meta is not None and self.meta._work is not None
        if self._work is not None and not carries_work and self._work.is_idle:
            self._work = None
        return self._work is None

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
    def knows_start(self) -> bool:
        """Whether the node has all of its start frontier, and so knows what it holds."""
        return self.started and not self.state.lacks_start and not self.frontier.missing

    @property
    def halted(self) -> Refusal | None:
        """Why the topic is halted, if it is."""
        halt = self.state.halted
        return None if halt is None else halt.refusal

    # Coming and going.

    def open(self, *, from_start: bool = False) -> None:
        """Join the overlay; a subscription from the start wants the whole history."""
        if from_start and not self.started:
            self._complete_start()
        self.overlay.join()
        self.heartbeat.timer.start()
        if self._work is not None or self.versions.current.retention.is_limited:
            self.work.retirement.start()
            self.work.flushing.go_on()
        self.log.open(replay=self.started)

    def newest_loaded(self) -> None:
        """After a restart, the newest event of the log is known."""
        if not self.is_behind_its_log:
            self.owner.resumed(self)

    def found_no_room(self) -> None:
        """The disk has left out what the topic keeps for a stranger."""
        self.owner.found_no_room(self)

    def replayed(self) -> None:
        """The application has been given all events of the log."""
        if self.causal is not None and (self.log.is_newest_loaded or self.is_ready):
            self.owner.resumed(self)

    @property
    def is_behind_its_log(self) -> bool:
        """Whether causal order has to wait: the log holds events that were not delivered yet.

        An event follows all events of its publisher's log, so the application there must have been
        given them.
        """
        return self.log.is_replaying and self.causal is not None

    @property
    def may_publish(self) -> bool:
        """Whether the node knows which events its next one follows."""
        return self.is_ready and not self.is_behind_its_log and self.awaited_own is None

    def must_begin_anew(self, from_start: bool) -> bool:
        """Whether a subscription cannot build on the events that the node holds.

        Events that retention dropped are in time gone at every node: no reason to drop the rest.
        """
        if self.subscribed:
            return False
        if from_start:
            drops = any(mark.floor > mark.retired for mark in self.frontier)
            return drops or self.state.lacks_start or bool(self.frontier.missing)
        return self.lacks_start and not self.overlay.children

    @property
    def lacks_start(self) -> bool:
        """Whether the node keeps the tree for others, and no child has shown it a frontier yet."""
        return self.started and self.state.lacks_start

    def adopt_version(self, version: TopicDescriptor) -> bool:
        """Adopt a newer version; False if the node knew it."""
        if not self.versions.add(version):
            return False
        self.work.retirement.adopt(version)
        self.work.flushing.want(version)
        self.unpark(version.cid)
        return True

    def leave(self, *, at_once: bool = False) -> None:
        """Begin to leave the overlay, handing children over; `overlay_left` follows.

        At once: the node takes nothing in any more, and the neighbours are told.
        """
        self.overlay.leave(at_once=at_once)

    def overlay_left(self) -> None:
        """The node is out of the overlay: stop all timers."""
        self.state.ended = True
        self.heartbeat.timer.stop()
        if self._work is not None:
            self._work.stop()
        self.at_work.end(self.id)
        self.owner.stopped(self)

    def attached(self, parent: PeerId | None, digest: bytes | None) -> None:
        """The node has a place in the overlay: catch up, or learn the start frontier."""
        self.heartbeat.timer.hurry()
        self._shown = _of_meta(digest)
        if self.meta is not None:
            self.meta.carried_to(parent, self._shown)
        digest = _of_topic(digest)
        if not self.started:
            self.work.loader.expect(parent)
            if parent is None:
                self._complete_start()
            return
        if self._work is not None or self.frontier.missing:
            self.work.loader.go_on()
        self._meet(parent, digest)

    def _meet(self, parent: PeerId | None, digest: bytes | None) -> None:
        """A new parent says what it holds."""
        if parent is not None and digest != self.frontier.digest():
            self.context.counts["catch_up"] += 1
            self.work.comparing.catch_up(parent, self.turn.now)
        elif parent is not None:
            self.own.agreed(self, parent)

    # The meta topic, and the topic that it belongs to.

    def carry(self, meta: "Topic") -> None:
        """The events of the meta topic travel with those of the topic from now on."""
        assert isinstance(meta.overlay, RidingOverlay)
        self.meta, meta.carrier = meta, self
        meta.overlay.mount(Trunk(self.overlay, self.heartbeat))
        if meta._work is not None and self._work is None:
            self._begin_work()

    def catch_up_meta(self) -> None:
        """The node follows the meta topic now, and lacks what its parent had said that it holds."""
        if self.meta is not None and self.overlay.attached:
            self.meta.carried_to(self.overlay.upstream, self._shown)

    def put_down(self) -> None:
        """The node is out of the topic."""
        meta = self.meta
        self.forget_meta()
        if meta is not None:
            assert isinstance(meta.overlay, RidingOverlay)
            meta.overlay.dismount()

    def forget_meta(self) -> None:
        """The two are not followed together any more."""
        if self.meta is not None:
            self.meta.carrier = None
            self.meta = None

    @property
    def unsynced_bytes(self) -> int:
        """Bytes of events on their way to the disk: the topic's, and its meta topic's."""
        riding = 0 if self.meta is None else self.meta.log.unsynced_bytes
        return self.log.unsynced_bytes + riding

    def flow_with(self, peer: PeerId) -> FlowControl:
        """The account of the events that a peer sends: those of a meta topic use the topic's."""
        carrier = self.carrier
        is_carried = carrier is not None and peer in carrier.overlay.links
        return carrier.work.flow if carrier is not None and is_carried else self.work.flow

    def carried_to(self, parent: PeerId | None, digest: bytes) -> None:
        """The node has a place, or another one, in the topic that this meta topic belongs to."""
        if self.started:
            self._meet(parent, digest or EMPTY)

    def _complete_start(self) -> None:
        """The start frontier is known, or its hash: from here on every event is due."""
        self.state.started = True
        self.work.retirement.begin()
        marks = self.frontier.marks()
        rows = self.work.loader.moved()
        self.writing.persist(*(PutMark(self.id, mark) for mark in marks), *rows)
        self.work.flushing.start_loaded(marks)
        self.owner.started(self)
        self.overlay.let_in()

    def welcome(self, child: PeerId, *, fresh: bool) -> None:
        """A child was taken in: a `fresh` one has no start frontier yet, and gets the node's.

        A keeper without a start asks for the child's, unless the child starts at the keeper's.
        """
        if fresh:
            self.state.lacks_start = False
            self.work.giver.give(child)
        elif self.state.lacks_start:
            self.work.loader.ask(child)

    def lost_touch(self) -> None:
        """The node's parent is silent or lost."""
        self.heartbeat.lost_touch()

    def path_changed(self) -> None:
        """The node's path to the root changed: tell its children."""
        self.heartbeat.announce()

    def fell_silent(self, peer: PeerId) -> None:
        """A connected peer is suspected: do not wait for it."""
        self.heartbeat.gone(peer)
        self.overlay.fell_silent(peer)
        if self._work is not None:
            self._work.flow.look_again()
            self._work.recovery.lost(peer)

    def lost(self, peer: PeerId) -> None:
        """A connection ended."""
        work = self._work
        if work is not None:
            work.comparing.lost(peer)
            work.loader.lost(peer)
        self.overlay.lost(peer)
        if work is not None:
            work.flow.look_again()
        self.heartbeat.lost(peer)
        if work is not None:
            work.recovery.lost(peer)

    def freed(self, peer: PeerId) -> None:
        """The link to a peer has room again."""
        if self._work is not None:
            self._work.flow.freed(peer)

    # An event's way into the topic.

    def receive_live(
        self, event: EventDescriptor, sender: PeerId, hops: int, certificate: bytes
    ) -> None:
        """Take an event from a neighbour, or from its publisher, which hands it in with 0 hops."""
        self.work.lag.heard(sender)
        self.receive(event, sender, hops or 1, certificate, via_overlay=hops > 0)

    def receive(
        self,
        event: EventDescriptor,
        sender: PeerId,
        hops: int,
        certificate: bytes = b"",
        *,
        via_overlay: bool = False,
    ) -> None:
        """Take an event: live, recovered, or unparked (docs/spec/pulsarcast.md, Receive).

        It is on the disk before it is delivered. So every delivered event is on the disk, and a
        redelivery after a crash can be marked as one.
        """
        state = self.state
        if not state.started or state.ended or state.halted is not None:
            return
        numbered_by, epoch = event.numbered_by, event.sequence.epoch
        arrival = Arrival(event, sender, hops, certificate, via_overlay)
        match self.work.arrivals.judge(arrival):
            case None:
                pass
            case Ignored():
                return
            case WantsVersion(version):
                self.owner.want_version(self, version, sender)
                return
            case WantsMarks(indexes):
                self.context.counts["marks_awaited"] += 1
                found = partial(self._marks_found, event.cid)
                self.dht.marks.find(indexes, (event.publisher, epoch), found)
                return
            case WantsStart(part):
                self.context.counts["start_awaited"] += 1
                self.work.loader.want(part)
                return
            case Unproven(missing):
                self.work.recovery.gap(numbered_by, epoch, missing, sender)
                return
            case Void(error):
                # A void event is not forwarded: a member that joined late may not know yet that
                # its publisher lost the right, and would deliver it.
                self.work.keeping.void(event)
                raise error
            case _ as unreachable:
                assert_never(unreachable)
        if numbered_by == self.turn.me:
            self.own.saw_own_event(event, sender)
        placed = self.work.arrivals.place(arrival)
        message = EventMessage(event.block, min(hops, HOPS_MAX - 1) + 1, certificate)
        self.overlay.forward(message, source=sender, via_overlay=via_overlay)
        is_accepted = isinstance(placed, Accepted)
        if is_accepted:
            self.work.lag.took(sender)
            self.work.keeping.accept(event, hops)
            if len(state.ordering):
                self.work.keeping.accept_waiting(numbered_by, epoch)
        if placed.gap is not None:
            self.work.recovery.gap(numbered_by, epoch, placed.gap, sender)
        if state.causal is not None and not is_accepted:
            # One at a time: a parent that is recovered or retired meanwhile is not missing.
            for mark, cid in state.causal.lacking(event):
                self.context.counts["parent_missing"] += 1
                self.work.recovery.parent_missing(mark, cid, event.publisher, sender)

    def take_recovered(self, block: bytes, sender: PeerId, certificate: bytes = b"") -> None:
        """Take a fetched event, and so forward it, like a new one."""
        try:
            event = self.context.decode(block)
            if event.topic != self.id:
                raise RemoteError("an answer from another topic", code=Rejection.WRONG_TOPIC)
            self.context.counts["recovered"] += 1
            self.work.lag.heard(sender)
            self.receive(event, sender, 1, certificate)
        except RemoteError as error:
            self.context.rejected(sender, self.id, error)

    def unpark(self, version: Cid) -> None:
        """A version became known, or will not: judge the events that waited for it again."""
        is_known = version in self.versions.by_cid
        self._receive_again(self.work.arrivals.unpark(version, is_known=is_known))

    def _marks_found(self, event: Cid, is_known: bool) -> None:
        """The marks by which an event is judged were looked for."""
        self._receive_again(self.work.arrivals.unpark(event, is_known=is_known))

    def _receive_again(self, arrivals: Iterable[Arrival]) -> None:
        for event, sender, hops, certificate, via_overlay in arrivals:
            try:
                self.receive(event, sender, hops, certificate, via_overlay=via_overlay)
            except RemoteError as error:
                self.context.rejected(sender, self.id, error)

    # The frontier, and those of peers.

    def synced_position(self) -> int:
        """The position up to which every event, with its certificate, is on the disk."""
        return self.frontier.high(shared_numbering(self.id), 0) - self.log.unsynced

    def holds(self, event: EventDescriptor) -> bool:
        """Whether the node holds this event, as far as memory tells without asking the disk."""
        place = (event.numbered_by, *event.sequence)
        return self.frontier.holds(*place) and self.frontier.cid_at(*place) in (None, event.cid)

    def has_gaps(self) -> bool:
        """Whether the node holds events beyond others that it lacks."""
        return next(self.frontier.gaps(), None) is not None

    def digest(self) -> bytes:
        """The hash of the node's frontier; behind it that of the meta topic's, if it has events."""
        of_meta = EMPTY if self.meta is None else self.meta.frontier.digest()
        return self.frontier.digest() + (b"" if of_meta == EMPTY else of_meta)

    def compare(self, peer: PeerId) -> None:
        """Find out with a peer where the two frontiers differ, and those of the meta topic."""
        self.work.sharing.compare(peer)
        if self.meta is not None:
            self.meta.work.sharing.compare(peer)

    def differs_from(self, peer: PeerId, digest: bytes | None = None) -> None:
        """A neighbour's frontier differs from the node's, or its digest does: find out where."""
        if self.meta is not None:
            is_same = digest is not None and _of_meta(digest) == _of_meta(self.digest())
            if not is_same:
                self.meta.differs_from(peer)
        if _of_topic(digest) == self.frontier.digest():
            return
        if self.state.lacks_start and peer in self.overlay.links:
            self.work.loader.ask(peer)
        elif self.started:
            self.work.sharing.compare_now_and_then(peer)

    def compare_parts(self, sender: PeerId, message: CompareFrontiers) -> None:
        """A member asks where its frontier and the node's differ."""
        if not self.started or not self.work.comparing.knows(sender):
            return
        if self.state.lacks_start and sender in self.overlay.links:
            self.work.loader.ask(sender)
        else:
            self.work.sharing.compare_parts(sender, message.parts)

    def receive_page(self, sender: PeerId, message: FrontierPage) -> None:
        """A peer shows marks of its frontier: fetch the missing events."""
        if not self.started:
            return
        self.own.heard(self.id, sender, message.marks, more=bool(message.parts))
        claimed = self.work.equivocation.claimed_otherwise(message.marks)
        if claimed is not None:
            self.work.recovery.look_at(sender, claimed)
        shown = self.work.comparing.consider(sender, message, self.turn.now)
        self._compare(sender, shown.marks, patience_s=shown.patience_s)
        if message.answer:
            self.writing.when_written(partial(self._answer_page, sender, message))

    def _answer_page(self, sender: PeerId, message: FrontierPage) -> None:
        """Show a peer what the node holds, and so will give to others."""
        if self.writing.is_whole and not self.state.ended:
            self.work.sharing.answer(sender, message, known=self.work.comparing.knows(sender))

    def _compare(self, sender: PeerId, marks: Iterable[MarkState], *, patience_s: float) -> None:
        """Fetch what a peer's marks show and the node lacks, where it knows what it lacks."""
        known = list[MarkState]()
        for mark in marks:
            missing = self.frontier.missing_at(mark.publisher, mark.epoch)
            if missing is None:
                known.append(mark)
            else:
                self.work.loader.want(missing)
        self.work.recovery.compare(sender, known, patience_s=patience_s)

    # The start frontier.

    def give_start(self, sender: PeerId, message: FetchStart) -> None:
        """A member asks for parts of the frontier at which it starts, or for a start."""
        if self.started and not self.state.lacks_start:
            self.work.giver.serve(sender, message, known=self.work.comparing.knows(sender))

    def receive_start(self, sender: PeerId, message: StartParts) -> None:
        """A peer gives parts of the frontier at which the node starts."""
        if not self.work.loader.is_awaited(sender):
            return
        try:
            marks = self.work.loader.take(message)
        except RemoteError:
            if not self.started:
                self.overlay.look_elsewhere()
            raise
        is_late, went_on = self.state.lacks_start, self.started
        self.state.lacks_start = False
        if went_on:
            self._start_goes_on(marks)
        elif not self._lacks_own():
            self._complete_start()
        else:
            self.work.loader.moved()
        for mark in marks:
            self.work.keeping.accept_waiting(mark.publisher, mark.epoch)
        self._receive_again(self.work.arrivals.unpark_started())
        # Events that the giver holds beyond a gap are due, and so are those of the gap.
        self._compare(sender, marks, patience_s=0.0)
        if is_late:
            # The other neighbours were told of less.
            for peer in self.overlay.links:
                if peer != sender:
                    self.work.sharing.compare(peer)
        elif went_on and marks and not self.frontier.missing and self.overlay.upstream is not None:
            # What was shown meanwhile of the parts that were missing was not compared.
            self.work.comparing.catch_up(self.overlay.upstream, self.turn.now)

    def _lacks_own(self) -> bool:
        """Whether the node cannot tell yet how far its own numberings go."""
        missing = [self.frontier.missing_at(*each) for each in self.own.published_in(self.id)]
        for part in missing:
            if part is not None:
                self.work.loader.want(part)
        return any(part is not None for part in missing)

    def _start_goes_on(self, marks: Iterable[MarkState]) -> None:
        found = [self.frontier.mark(mark.publisher, mark.epoch) for mark in marks]
        started = [mark for mark in found if mark is not None]
        changed = started + self.work.retirement.begin()
        writes = [PutMark(self.id, mark) for mark in changed]
        self.owner.loaded(self, changed, [*writes, *self.work.loader.moved()])
        self.work.flushing.start_loaded(started)

    def start_alone(self) -> None:
        """Nobody has a frontier: what is missing starts at nothing."""
        self.context.counts["start_alone"] += 1
        for part in list(self.frontier.missing):
            self.frontier.miss(part, EMPTY)
        self._start_goes_on(())
        self._receive_again(self.work.arrivals.unpark_started())

    # Asked by parts that timers or the disk wake.

    def began(self, publisher: PeerId, epoch: int) -> None:
        """A numbering begins of which the start frontier, as far as it is loaded, has none."""
        self.owner.loaded(self, [MarkState(publisher, epoch, 0, 0, None)], [])

    def arrived(self, event: EventDescriptor) -> None:
        """An event is on the disk."""
        self.owner.arrived(self, event)

    def want_version(self, version: Cid, sender: PeerId) -> None:
        """An event can only be judged by a version that the node does not know."""
        self.owner.want_version(self, version, sender)

    def neighbours(self) -> Iterable[PeerId]:
        """Members to ask for a missing event, best first."""
        yield from (peer for peer in self.overlay.path if peer != self.turn.me)
        yield from self.heartbeat.lazy
        yield from self.overlay.children
        yield from self.heartbeat.members()
        if self.versions.first.root_peer != self.turn.me:
            yield self.versions.first.root_peer

    # For checkers.

    def view(self) -> TreeView | CubeView:
        """The node's place among the members."""
        return self.overlay.view(subscribed=self.subscribed, lazy=tuple(self.heartbeat.lazy))

    def footprint(self) -> dict[str, int]:
        """How much this topic keeps in memory."""
        work = self._work
        return {
            "marks": len(self.frontier),
            "request_marks": len(self.requests),
            "held_back": len(self.ordering),
            "heads": 0 if self.barrier is None else len(self.barrier),
            "at_work": int(work is not None),
            "wants": 0 if work is None else len(work.recovery),
            "parked": 0 if work is None else work.arrivals.parked_count,
            **self.overlay.footprint(),
        }


def _of_topic(digest: bytes | None) -> bytes | None:
    """The part of a digest that says what a member holds of the topic."""
    return None if digest is None else digest[:PART_DIGEST_BYTES]


def _of_meta(digest: bytes | None) -> bytes:
    """The part that says what it holds of the meta topic."""
    return b"" if digest is None else digest[PART_DIGEST_BYTES:]
