"""Handing in: events that we keep, and that their topic may not have (promise 1).

A replica in the DHT may be all that is left of an event whose publisher died before it was spread.
And what we published ourselves, from outside a topic or before we left it, must reach a member
before we forget it. In a topic that we follow, what does not come through the tree by itself is put
into it; to others, `visiting` brings it. After a restart we do not know how far we had come with
our own: we say them again, replicate them, and hand them in.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

from pulsarcast.model.errors import RemoteError
from pulsarcast.model.events import EventDescriptor
from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.model.requests import Sequence
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.following.descriptors import Descriptors
from pulsarcast.protocol.publishing.doubts import Doubts
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
"""Replicated events of topics we follow that we have yet to see arrive through the tree."""
LATE_TRIES = 3
"""How often we hand the same one in: it may find no room to wait for its turn. Our own, always."""
OWN_KEPT_MAX = 256
"""Events of our own that we see handed in after we have left their topic."""
RETRACED_MAX = 256
"""At least so many of our newest events in a topic are said again after a restart."""
PIECE_BYTES_MAX = 1 << 24
"""Bytes of our own events that we read at a time."""

Then = Callable[[], None]
Found = Callable[[list[EventDescriptor], Then], None]
"""Takes a piece of our events, and then goes on to the next."""


class _Late(NamedTuple):
    """An event that may not come through the tree by itself."""

    event: EventDescriptor
    sender: PeerId
    tries: int = 0


class HandingIn:
    """Sees to it that topics get the events that we keep."""

    def __init__(
        self,
        context: Context,
        followed: FollowedTopics,
        descriptors: Descriptors,
        outside: OutsidePublishing,
        doubts: Doubts,
        publisher: Publisher,
    ) -> None:
        self.context = context
        self.turn = context.turn
        self.followed = followed
        self.descriptors = descriptors
        self.outside = outside
        self.doubts = doubts
        self.publisher = publisher
        self.numberings = publisher.numberings
        self._own_offers: dict[Cid, dict[Cid, None]] = {}
        """Events of ours from before we followed a topic: no other member may have them yet."""
        self._late: dict[Cid, _Late] = {}
        self._late_timer: int | None = None

    def hand_in(self, event: EventDescriptor, sender: PeerId) -> None:
        """We keep a new replica: its topic gets the event even if its publisher is no more."""
        if event.topic in self.followed.members:
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
        """What did not come through the tree by now, we put into it ourselves.

        Of each numbering in its order: whatever is not in its turn takes room, or is dropped where
        there is none. Nobody else may have it, so nobody else would ever show it to us again.
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

    # Our own events.

    def hand_in_own(self, event: EventDescriptor) -> None:
        """An event of ours, from before we followed its topic, is not known to be handed in."""
        self._own_offers.setdefault(event.topic, {})[event.cid] = None
        self.hand_in(event, self.turn.me)

    def follow(self, topic: Cid) -> None:
        """We follow a topic now: what we had for it as a visitor, we hand in as a member."""
        for cid, own in self.outside.forget(topic):
            if own:
                self._own_offers.setdefault(topic, {})[cid] = None
            self.receive_again(cid)

    def last_of(self, topic: Cid) -> tuple[int, int] | None:
        """Our numbering in a topic, and how far it goes."""
        return self.numberings.last_of(topic)

    def marks_with_own(self, topic: Topic) -> list[MarkState]:
        """What our log holds, events of our own included that are not synced yet."""
        marks = Frontier(topic.frontier.marks())
        own = self.numberings.last_of(topic.id)
        if own is not None:
            marks.retire(self.turn.me, *own)
        return marks.marks()

    def retired(self, topic: Cid) -> dict[int, int]:
        """How far our numberings in a topic that we did not follow are retired."""
        return self.outside.retired(topic)

    def remember(self, topic: Cid, marks: Iterable[MarkState]) -> None:
        """What our disk holds of a topic that we do not follow."""
        self.outside.remember(topic, marks)

    def begin(self, topic: Topic) -> list[Write]:
        """We begin to follow a topic, and go on with our numbering there.

        Events that we published before, and that are still on their way into the topic, keep their
        own epoch: the order of a numbering must not depend on how they get here. What we said last
        is what our next event follows.
        """
        self.doubts.follow(topic)
        own = self.numberings.last_link(topic.id)
        return [] if own is None or topic.barrier is None else list(topic.barrier.put(*own))

    def hand_in_missing(self, topic: Topic) -> None:
        """What we once handed in may be gone again, with the disk of the member that took it."""
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

        # Not before what we published last is on the disk, where the query can see it.
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
        """Before we forget a topic, a member must have the events that we published in it.

        How far our numberings are retired we remember: only their publisher can say it alone.
        `then` is given all that the disk should be told together with the forgetting.
        """
        outside = self.outside
        marks = list(marks)
        outside.remember(cid, marks)
        retired = [outside.mark_outside(cid, epoch) for epoch in outside.retired(cid)]
        remembered = [*forgotten, *(PutMark(cid, mark) for mark in retired)]
        numberings = self._own_numberings(cid, marks)
        # What we said before we followed it, no other member may have.
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
            # Kept outside of any log, to be handed in, and found again by an idempotency key: all
            # of them together with the forgetting, which would else take them too.
            kept = [self._keep_own(event) for event in events.values()]
            rows = [outside.offer_row(event) for event in events.values()]
            for event in events.values():
                outside.offer(event, root, own=True)
            then([*kept, *rows, *remembered])

        self.turn.persist(then=load)

    def _own_numberings(self, cid: Cid, marks: Iterable[MarkState]) -> list[tuple[int, int]]:
        """Our epochs in a topic and how far each goes, the newest last."""
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
        """Read events of ours piece by piece: they may be more than our memory has room for."""

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
        """Our newest events are published if they are on our disk: say so once more.

        A kill may have come between the sync and the trace line that tells of it.
        """
        numbering = self.numberings.last_of(topic.id)
        if numbering is None:
            return
        epoch, last = numbering
        unreplicated = self.numberings.first_unreplicated(topic.id)
        first = max(1, min(unreplicated, last - RETRACED_MAX + 1))
        publisher = self.publisher
        # Before anything new is: else a later number would speak for these.
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
        """See to the replicas of our events, of one piece after the other."""
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
        """An event of ours for a topic we do not follow was not handed in before the restart."""

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
        """We follow a topic that we had an event for: it goes through our own tree now."""

        def found(answer: Block) -> None:
            if answer.block is not None:
                event = self.context.decode(answer.block)
                self.hand_in(event, self.turn.me)

        self.turn.load(LoadBlock(cid), Block, found)


def _place(late: _Late) -> tuple[PeerId, Sequence]:
    return late.event.numbered_by, late.event.sequence


def _nothing() -> None:
    """Nothing is left to do."""
