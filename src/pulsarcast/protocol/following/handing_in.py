"""Handing in: events that the node keeps and the topic may lack (docs/spec/pulsarcast.md, Visits).

A replica in the DHT may hold the last copy of an event whose publisher crashed before the event
spread. And an event that the node published from outside a topic, or before it left the topic, must
reach a member before the node forgets it. In a followed topic, the node puts an event into the tree
that does not come through the tree by itself; `publishing.outside` brings it to other topics. After
a restart the node does not know how far its own events had come: it traces them as published again,
replicates them, and hands them in.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import NamedTuple

from pulsarcast.model.errors import RemoteError
from pulsarcast.model.events import EventDescriptor
from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.model.requests import Sequence
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.following.descriptors import Descriptors
from pulsarcast.protocol.publishing.fencing import EpochFencing
from pulsarcast.protocol.publishing.outside import OutsidePublishing
from pulsarcast.protocol.publishing.publisher import Publisher
from pulsarcast.protocol.store import (
    Block,
    Events,
    LoadBlock,
    LoadNumbers,
    MarkState,
    PutEvent,
    PutMark,
    Write,
)
from pulsarcast.protocol.topic.followed import FollowedTopics
from pulsarcast.protocol.topic.frontier import Frontier
from pulsarcast.protocol.topic.topic import Topic
from pulsarcast.protocol.topic.versions import Versions

LATE_MAX = 4096
"""Replicas of followed topics' events that have yet to arrive through the tree."""
LATE_TRIES = 3
"""How often a replica hands in one event, which may find no room in the topic's reorder buffer. The
node's own events have no such bound."""
OWN_KEPT_MAX = 256
"""Own events that the node still hands in after it has left their topic."""
RETRACED_MAX = 256
"""Own events of a topic that are traced again after a restart, the newest ones."""
PIECE_BYTES_MAX = 1 << 24
"""Bytes of own events that are in memory at a time."""

Then = Callable[[], None]
Found = Callable[[list[EventDescriptor], Then], None]
"""Takes some of the node's own events, and calls for the next."""


class _Late(NamedTuple):
    """An event that may not come through the tree by itself."""

    event: EventDescriptor
    sender: PeerId
    tries: int = 0


class HandingIn:
    """Brings events that the node keeps into their topics."""

    def __init__(
        self,
        context: Context,
        followed: FollowedTopics,
        descriptors: Descriptors,
        outside: OutsidePublishing,
        fencing: EpochFencing,
        publisher: Publisher,
    ) -> None:
        self.context = context
        self.turn = context.turn
        self.followed = followed
        self.descriptors = descriptors
        self.outside = outside
        self.fencing = fencing
        self.publisher = publisher
        self.numberings = publisher.numberings
        self._own_offers: dict[Cid, dict[Cid, None]] = {}
        """Own events from before the node followed a topic: no other member may have them yet."""
        self._late: dict[Cid, _Late] = {}
        self._late_timer: int | None = None

    def hand_in(self, event: EventDescriptor, sender: PeerId) -> None:
        """The node keeps a new replica: the topic gets the event even if its publisher is gone."""
        topic = self.followed.members.get(event.topic)
        if topic is not None:
            if topic.holds(event):
                return
            if len(self._late) < LATE_MAX:
                self._late[event.cid] = _Late(event, sender)
            self._check_later()
            return

        def found(versions: Versions | None) -> None:
            if versions is not None and not self.followed.is_followed(event.topic):
                self.outside.offer(event, versions.first.root_peer)

        self.descriptors.find(event.topic, found)

    def _check_later(self) -> None:
        if self._late_timer is None:
            delay_s = self.turn.jitter(self.context.parameters.offer_delay_s)
            self._late_timer = self.turn.after(delay_s, self._check_late)

    def _check_late(self) -> None:
        """Put events into the tree that have not come through it.

        Each numbering goes in its order: an event out of its turn takes room in the reorder buffer,
        or is dropped where there is none. No other member may have it, or ever show it again.
        """
        self._late_timer = None
        late, self._late = self._late, {}
        for event, sender, tries in sorted(late.values(), key=_place):
            topic = self.followed.members.get(event.topic)
            if topic is None or topic.holds(event):
                continue
            if not tries:
                self.context.counts["replica_handed_in"] += 1
            try:
                topic.receive(event, sender, 1)
            except RemoteError as error:
                self.context.rejected(sender, topic.id, error)
                continue
            may_try_again = event.publisher == self.turn.me or tries + 1 < LATE_TRIES
            if may_try_again and not topic.holds(event):
                self._late[event.cid] = _Late(event, sender, tries + 1)
        if self._late:
            self._check_later()

    # Own events.

    def hand_in_own(self, event: EventDescriptor) -> None:
        """An own event from before the node followed its topic may not be handed in yet."""
        self._own_offers.setdefault(event.topic, {})[event.cid] = None
        self.hand_in(event, self.turn.me)

    def follow(self, topic: Cid) -> None:
        """The node follows a topic now: it hands in as a member what it had from outside."""
        for cid, own in self.outside.forget(topic):
            if own:
                self._own_offers.setdefault(topic, {})[cid] = None
            self.receive_again(cid)

    def last_own(self, topic: Topic) -> Sequence | None:
        """In causal order: the node's own last event, which its next one follows."""
        own = self.numberings.last_of(topic.id)
        return None if own is None or topic.barrier is None else Sequence(*own)

    def marks_with_own(self, topic: Topic) -> list[MarkState]:
        """What the log holds, with own events that are not synced yet."""
        own = self.numberings.last_of(topic.id)
        if own is None:
            return topic.frontier.marks()
        held = topic.frontier.mark(self.turn.me, own[0])
        ours = Frontier(() if held is None else (held,)).retire(self.turn.me, *own)
        return sorted((ours, *(mark for mark in topic.frontier if mark != held)))

    def retire_own(self, topic: Topic) -> list[Write]:
        """Own events from before the node followed a topic that are retired are due to no one."""
        retire = partial(topic.frontier.retire, self.turn.me)
        return [PutMark(topic.id, retire(*own)) for own in self.outside.retired(topic.id).items()]

    def restore(self, marks: Mapping[Cid, Iterable[MarkState]]) -> None:
        """Remember, after a restart, the numberings in topics that the node does not follow."""
        for topic, theirs in marks.items():
            if topic not in self.followed.members:
                self.outside.remember(topic, theirs)

    def begin(self, topic: Topic) -> list[Write]:
        """The node begins to follow a topic; returns rows of the head that its next event follows.

        Own events that are still on their way into the topic keep their epoch: the order within a
        numbering must not depend on the way that its events take.
        """
        self.fencing.follow(topic)
        own = self.numberings.last_link(topic.id)
        return [] if own is None or topic.barrier is None else list(topic.barrier.put(*own))

    def hand_in_missing(self, topic: Topic) -> None:
        """Hand in again what the topic lacks: the member that took it may have lost its disk."""
        own = self.numberings.last_of(topic.id)
        if own is None:
            return
        epoch, last = own
        first = max(topic.frontier.high(self.turn.me, epoch), last - OWN_KEPT_MAX) + 1
        if first > last:
            return

        def found(events: list[EventDescriptor], go_on: Then) -> None:
            for event in events:
                self.hand_in_own(event)
            go_on()

        # Once the newest own event is on the disk, where the query finds it.
        load = partial(self._load_own, topic.id, epoch, first, last, found, _nothing)
        self.turn.persist(then=load)

    def see_own_handed_in(
        self,
        cid: Cid,
        root: PeerId,
        marks: Iterable[MarkState],
        forgotten: Iterable[Write],
        then: Callable[[Iterable[Write]], None],
    ) -> None:
        """Keep own events of a topic that the node is about to forget until a member has them.

        The node remembers how far its numberings are retired: a publisher alone can vouch for that.
        `then` gets all writes that belong into one commit with the forgetting.
        """
        outside = self.outside
        marks = list(marks)
        outside.remember(cid, marks)
        retired = [outside.mark_outside(cid, epoch) for epoch in outside.retired(cid)]
        remembered = [*forgotten, *(PutMark(cid, mark) for mark in retired)]
        numberings = self._own_numberings(cid, marks)
        # No other member may have those from before the node followed the topic.
        offers = list(self._own_offers.pop(cid, {}))
        if not numberings and not offers:
            then(remembered)
            return
        events: dict[Cid, EventDescriptor] = {}

        def found(some: list[EventDescriptor], go_on: Then) -> None:
            events.update((event.cid, event) for event in some)
            go_on()

        def load() -> None:
            room = OWN_KEPT_MAX - len(events)
            if numberings and room > 0:
                epoch, last = numberings.pop()
                self._load_own(cid, epoch, max(1, last - room + 1), last, found, load)
            elif offers:
                self.turn.load(LoadBlock(offers.pop()), Block, found_offer)
            else:
                done()

        def found_offer(answer: Block) -> None:
            found([] if answer.block is None else [self.context.decode(answer.block)], load)

        def done() -> None:
            # Kept outside of any log, to be handed in and to be found by an idempotency key; in one
            # commit with the forgetting, which would else drop them too.
            kept = [self._keep_own(event) for event in events.values()]
            rows = [outside.offer_row(event) for event in events.values()]
            for event in events.values():
                outside.offer(event, root, own=True)
            then([*kept, *rows, *remembered])

        self.turn.persist(then=load)

    def _own_numberings(self, cid: Cid, marks: Iterable[MarkState]) -> list[tuple[int, int]]:
        """The node's epochs in a topic and the last number of each, the newest epoch last."""
        ours = [mark for mark in marks if mark.publisher == self.turn.me]
        known = {mark.epoch: max((mark.high, *mark.beyond)) for mark in ours}
        newest = self.numberings.last_of(cid)
        if newest is not None:
            known.pop(newest[0], None)
            known[newest[0]] = newest[1]
        return list(known.items())

    def _keep_own(self, event: EventDescriptor) -> Write:
        mark = self.outside.mark_outside(event.topic, event.sequence.epoch)
        return PutEvent(0, event, mark, self.turn.wall_us)

    def _load_own(
        self, cid: Cid, epoch: int, first: int, last: int, found: Found, done: Then
    ) -> None:
        """Read own events piece by piece: they may be more than memory has room for."""

        def loaded(answer: Events) -> None:
            events = [event for _, event in answer.events]
            reached = events[-1].sequence.number if events else last
            if reached < last:
                found(events, partial(self._load_own, cid, epoch, reached + 1, last, found, done))
            else:
                found(events, done)

        query = LoadNumbers(cid, self.turn.me, epoch, first, last, PIECE_BYTES_MAX)
        self.turn.load(query, Events, loaded)

    # After a restart.

    def say_again(self, topic: Topic) -> None:
        """Trace the newest own events again: those on the disk are published.

        The node may have been killed between the sync and the trace line.
        """
        numbering = self.numberings.last_of(topic.id)
        if numbering is None:
            return
        epoch, last = numbering
        unreplicated = self.numberings.first_unreplicated(topic.id)
        first = max(1, min(unreplicated, last - RETRACED_MAX + 1))
        publisher = self.publisher
        # Before the next event is published: else its number would vouch for these.
        publisher.expect(topic.id, range(unreplicated, last + 1))

        def found(events: list[EventDescriptor], go_on: Then) -> None:
            for event in events:
                publisher.trace_published(event, "")
            go_on()

        def said() -> None:
            if unreplicated <= last:
                self._resume(topic.id, epoch, unreplicated, last)

        self._load_own(topic.id, epoch, first, last, found, said)

    def _resume(self, cid: Cid, epoch: int, first: int, last: int) -> None:
        """Count, and complete, the replicas of own events, some at a time."""
        publisher = self.publisher
        missing = dict.fromkeys(range(first, last + 1))

        def found(events: list[EventDescriptor], go_on: Then) -> None:
            reached = events[-1].sequence.number if events else last
            for event in events:
                missing.pop(event.sequence.number, None)
            gone = [number for number in missing if number <= reached]
            for number in gone:
                del missing[number]
            publisher.skip(cid, epoch, gone)
            waiting = len(events)

            def counted() -> None:
                nonlocal waiting
                waiting -= 1
                if not waiting:
                    go_on()

            for event in events:
                publisher.resume(event, counted)
            if not events:
                go_on()

        self._load_own(cid, epoch, first, last, found, _nothing)

    def offer_again(self, event: EventDescriptor) -> None:
        """An own event was not handed in before the restart."""

        def found(versions: Versions | None) -> None:
            if versions is None:
                return
            self.publisher.trace_published(event, "")
            self.publisher.resume(event)
            if event.topic in self.followed.members:
                self.hand_in_own(event)
            else:
                self.outside.offer(event, versions.first.root_peer, own=True)

        self.descriptors.find(event.topic, found)

    def receive_again(self, cid: Cid) -> None:
        """The node follows a topic that it keeps an event for: hand it in as a member."""

        def found(answer: Block) -> None:
            if answer.block is not None:
                event = self.context.decode(answer.block)
                self.hand_in(event, self.turn.me)

        self.turn.load(LoadBlock(cid), Block, found)


def _place(late: _Late) -> tuple[PeerId, Sequence]:
    return late.event.numbered_by, late.event.sequence


def _nothing() -> None:
    """Nothing is left to do."""
