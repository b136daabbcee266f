"""Following: which topics a node is a member of, and why (docs/spec/pulsarcast.md, State).

A node follows a topic as a subscriber, below a topic that it subscribes to, as its author, as one
of its sequencers, because it follows the topic whose meta topic this is, or as a keeper: the
closest live peer to the root's key, which holds the tree together. Each reason ends by itself, and
the node leaves a topic with the last one. The stages of a topic's life are the table in
`topic.life`.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import NamedTuple, Protocol

from pulsarcast.model import trace
from pulsarcast.model.errors import NotFollowed
from pulsarcast.model.events import EventDescriptor
from pulsarcast.model.ids import CID_BYTES, Cid, PeerId
from pulsarcast.model.topics import META, Mark, TopicDescriptor
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.dht.kademlia import Kademlia
from pulsarcast.protocol.effects import Ended
from pulsarcast.protocol.following.below import Below
from pulsarcast.protocol.following.carrying import Carrying
from pulsarcast.protocol.following.descriptors import Descriptors
from pulsarcast.protocol.following.handing_in import HandingIn
from pulsarcast.protocol.following.renewal import Renewal
from pulsarcast.protocol.inputs import Start
from pulsarcast.protocol.store import (
    FREEING,
    DropState,
    DropTopic,
    MarkState,
    OwnTopic,
    PutState,
    StateRow,
    Write,
)
from pulsarcast.protocol.topic.barrier import TABLE as HEADS
from pulsarcast.protocol.topic.barrier import topic_of_head
from pulsarcast.protocol.topic.flushing import TABLE as FLUSHES
from pulsarcast.protocol.topic.followed import FollowedTopics
from pulsarcast.protocol.topic.frontier import Frontier
from pulsarcast.protocol.topic.halts import TwoCertificates
from pulsarcast.protocol.topic.handovers import HANDOVER, restore_handover
from pulsarcast.protocol.topic.life import NO_REASON, OWN, READ, FollowReason, Life, Stage, Step
from pulsarcast.protocol.topic.published_requests import topic_of_request
from pulsarcast.protocol.topic.starting import TABLE as STARTS
from pulsarcast.protocol.topic.starting import Missing, missing_of
from pulsarcast.protocol.topic.state import Resumed
from pulsarcast.protocol.topic.topic import Topic
from pulsarcast.protocol.topic.versions import Versions

META_RETRY_S = 10.0
"""How long until the node looks for a meta topic again that no peer had: a partition, or the loss
of messages, lasts longer than a lookup. Doubles, for a topic may name what is nowhere."""
META_BACKOFF_MAX = 32
"""The longest such pause, in first ones."""
OWN_AWAITED_S = 30.0
"""Bounds how long a new member of a causal topic waits for its own last event before it publishes:
that event may have parents that no member can deliver."""
OWN_LOOK_S = 1.0
"""Interval at which the member looks meanwhile whether that event has come."""


FORGET_AGAIN_S = 60.0
"""Until a log that was kept for a stranger is dropped again, if the disk did not take that."""


class OnDisk(NamedTuple):
    """What the disk says at a start, by topic."""

    tables: Mapping[str, Mapping[bytes, bytes]]
    marks: Mapping[Cid, list[MarkState]]
    logs: Mapping[Cid, int]

    @classmethod
    def read(cls, given: Start) -> "OnDisk":
        """Sort what a start brings."""
        tables: dict[str, dict[bytes, bytes]] = {}
        for row in given.rows:
            tables.setdefault(row.table, {})[row.key] = row.value
        marks: dict[Cid, list[MarkState]] = {}
        for cid, mark in given.marks:
            marks.setdefault(cid, []).append(mark)
        return cls(tables, marks, dict(given.logs))

    def rows(self, table: str) -> Mapping[bytes, bytes]:
        """What is in one table."""
        return self.tables.get(table, {})


class FollowingOwner(Protocol):
    """What following asks of the node that it belongs to."""

    def opened(self, topic: Topic) -> None:
        """The node is on its way into a topic."""

    def closed(self, topic: Cid) -> None:
        """The node is out of a topic, or on its way out because it stops."""

    def left(self, topic: Cid) -> None:
        """The node is out of a topic for good: nothing of it is the node's to do any more."""

    def arrived(self, topic: Topic, event: EventDescriptor) -> None:
        """An event is on the disk: what it says, or whom it answers, may concern others."""


class Following:
    """The topics that the node is a member of."""

    def __init__(
        self,
        context: Context,
        dht: Kademlia,
        followed: FollowedTopics,
        descriptors: Descriptors,
        handing_in: HandingIn,
        renewal: Renewal,
        owner: FollowingOwner,
    ) -> None:
        self.context = context
        self.turn = context.turn
        self.parameters = context.parameters
        self.dht = dht
        self.followed = followed
        self.topics = followed.members
        self.descriptors = descriptors
        self.handing_in = handing_in
        self.renewal = renewal
        self.owner = owner
        self.below = Below(context, followed, descriptors, self)
        self.carrying = Carrying(followed)
        self._stopped: Callable[[], None] | None = None
        self.is_stopping = False
        """Whether the node stops: it leaves overlays now, and forgets no subscription."""

    # Beginning and ending.

    def follow(
        self,
        versions: Versions,
        why: FollowReason,
        *,
        from_start: bool = False,
        then: Callable[[], None] | None = None,
        place: str | None = None,
    ) -> None:
        """Become a member of a topic; `then` runs once the subscription has its start.

        The node keeps the topic for a stranger at a place, or (None) follows it for itself.
        """
        cid = versions.first.cid
        if self.is_stopping or cid in self.followed.by_content:
            # A node that stops keeps its logs for the next life. A log of what matches filters
            # cannot become the log of a member.
            return
        life = self.followed.life(cid)
        again = partial(self.follow, versions, why, from_start=from_start, then=then)
        if life.is_waiting:
            life.on_forgotten += (again,)
            return
        topic = self.topics.get(cid)
        subscribes = bool(why & READ)
        if topic is not None and place is None and topic.writing.place is not None:
            self._claim(topic, then=again)
            return
        if topic is not None and subscribes and topic.must_begin_anew(from_start):
            # A keeper may have no start frontier yet, and lack history that the subscriber wants.
            self._begin_anew(topic, why, from_start=from_start, then=then)
            return
        if versions.names(self.turn.me) and FollowReason.SEQUENCER not in why | life.reasons:
            # A sequencer needs the whole history, wherever a subscription begins.
            self.follow(versions, FollowReason.SEQUENCER, from_start=True, then=again)
            return
        life.step(Step.FOLLOW)
        life.reasons |= why
        if then is not None:
            life.on_start += (then,)
        if topic is None:
            topic = self._open(versions, life, why, from_start=from_start, place=place)
        elif subscribes and not topic.subscribed:
            if from_start or life.subscribing is None:
                life.subscribing = self.turn.new_id()
                self._subscribe_too(topic, life.subscribing, from_start=from_start)
        elif topic.is_ready:
            self.turn.persist(*self._rows(cid))
            self._run_on_start(cid)
        self.follow_links(topic)

    def _claim(self, topic: Topic, then: Callable[[], None]) -> None:
        """The node needs a topic itself that it kept for a stranger; its meta topic too.

        `then` runs once the disk has all that was written before, or has left some out: in that
        case the node is on its way out of the topic, and `then` waits.
        """
        meta = self.topics.get(topic.descriptor.subtopics.get(META, topic.id), topic)
        claimed = [each for each in dict.fromkeys((topic, meta)) if each.writing.place is not None]
        for each in claimed:
            each.writing.claim()

        def synced() -> None:
            for each in claimed:
                if self.followed.is_followed(each.id) and self.followed.is_current(each):
                    each.writing.place = None
                    self.descriptors.keep(each.versions)
                    self.turn.persist(OwnTopic(each.id))
            then()

        self.turn.persist(then=synced)

    def _build(
        self,
        versions: Versions,
        reasons: FollowReason,
        resumed: Resumed | None = None,
        place: str | None = None,
    ) -> Topic:
        quiet, at_work = self.followed.quiet, self.followed.at_work
        of_node = (self.context, self.dht, quiet, self, self.handing_in.fencing, at_work)
        is_wanted = bool(reasons & READ)
        topic = self.context.part(Topic)(
            versions, *of_node, subscribed=is_wanted, resumed=resumed, place=place
        )
        self.topics[topic.id] = topic
        return topic

    def _open(
        self,
        versions: Versions,
        life: Life,
        why: FollowReason,
        *,
        from_start: bool,
        place: str | None,
    ) -> Topic:
        self.descriptors.follow(versions, for_stranger=place is not None)
        topic = self._build(versions, life.reasons, place=place)
        self.carrying.mount(topic)
        self.handing_in.follow(topic.id)
        if FollowReason.KEEPER in why:
            topic.state.lacks_start = True
        topic.open(from_start=from_start or FollowReason.META in why)
        self.carrying.catch_up(topic)
        self.owner.opened(topic)
        return topic

    def _begin_anew(
        self,
        topic: Topic,
        why: FollowReason,
        *,
        from_start: bool,
        then: Callable[[], None] | None = None,
    ) -> None:
        """Leave a topic that the node holds too little of, and follow it again as a newcomer."""
        life = self.followed.life(topic.id)
        life.step(Step.BEGIN_ANEW)
        life.subscribing = None
        why |= life.reasons & ~FollowReason.KEEPER
        life.reasons = NO_REASON
        self.follow(topic.versions, why, from_start=from_start, then=then)
        topic.leave()

    def _subscribe_too(
        self, topic: Topic, subscribing: int, *, from_start: bool, waited_s: float = 0.0
    ) -> None:
        """An application subscribes to a topic that the node follows for another reason.

        A subscription that ends before it is on the disk never was.
        """
        if not self._is_subscribing(topic, subscribing):
            return
        life = self.followed.life(topic.id)
        if life.stage is Stage.JOINING:
            life.subscribing = None
            topic.state.lacks_start = False
            topic.log.subscribed = True
            return
        if topic.must_begin_anew(from_start) or (
            topic.lacks_start and waited_s > self.parameters.rpc_timeout_s
        ):
            self._begin_anew(topic, NO_REASON, from_start=from_start)
            return
        if not from_start and (topic.has_gaps() or topic.lacks_start):
            # An event beyond a gap would be neither before the start nor delivered after it.
            delay_s = self.parameters.gap_delay_s
            waited_s += delay_s
            again = partial(
                self._subscribe_too, topic, subscribing, from_start=False, waited_s=waited_s
            )
            self.turn.after(delay_s, again)
            return
        start = _start_of([] if from_start else self.handing_in.marks_with_own(topic))
        retired = sorted(mark for mark in topic.frontier if mark.retired) if from_start else []
        cursor = topic.log.cursor_for(from_start=from_start)

        def synced() -> None:
            if not self._is_subscribing(topic, subscribing):
                return
            life.subscribing = None
            in_parts = bool(topic.frontier.missing)
            self.turn.trace(trace.Subscribed(topic.id, start, in_parts=in_parts))
            for mark in retired:
                self.turn.trace(trace.Retired(topic.id, mark.publisher, mark.epoch, mark.retired))
            topic.log.subscribe(cursor)
            if topic.is_ready:
                self._run_on_start(topic.id)

        row = StateRow("cursor", topic.id, cursor.to_bytes(8, "big"))
        self.turn.persist(PutState(row), *self._rows(topic.id), then=synced)

    def _is_subscribing(self, topic: Topic, subscribing: int) -> bool:
        life = self.followed.lives.get(topic.id)
        is_the_last = life is not None and life.subscribing == subscribing
        return is_the_last and self.followed.is_current(topic)

    def resumed(self, topic: Topic) -> None:
        """After a restart the node may publish once it knows what to link to."""
        if self.followed.is_current(topic):
            self._run_on_start(topic.id)

    def _run_on_ready(self, cid: Cid) -> None:
        self.topics[cid].is_ready = True
        for then in self.followed.life(cid).take_on_ready():
            then()

    def _run_on_start(self, cid: Cid) -> None:
        self._run_on_ready(cid)
        life = self.followed.life(cid)
        if life.subscribing is None:
            for then in life.take_on_start():
                then()

    def follow_links(self, topic: Topic) -> None:
        """Follow the meta topic, and the sub-topics where a subscription takes them in."""
        meta = topic.descriptor.subtopics.get(META)
        if meta is not None:
            self.carrying.begin(topic)
            self._find_meta(topic)
        self._links_changed(topic.id)

    def _find_meta(self, topic: Topic, tries: int = 0) -> None:
        cid = topic.descriptor.subtopics[META]
        if self.followed.is_current(topic) and FollowReason.META not in self.followed.reasons(cid):
            self.descriptors.find(cid, partial(self._follow_meta, topic.id, tries))

    def _links_changed(self, cid: Cid) -> None:
        if self.followed.reasons(cid) & (FollowReason.BELOW | FollowReason.SUBTOPIC):
            self.below.changed()

    def _follow_meta(self, above: Cid, tries: int, versions: Versions | None) -> None:
        topic = self.topics.get(above)
        if topic is None or not self.followed.is_followed(above):
            return  # It was left during the lookup.
        if versions is None:
            delay_s = META_RETRY_S * min(2**tries, META_BACKOFF_MAX)
            again = partial(self._find_meta, topic, tries + 1)
            self.turn.after(self.turn.jitter(delay_s), again)
        elif versions.first.is_meta:
            self.follow(versions, FollowReason.META, place=topic.writing.place)

    def unfollow(
        self, topic: Topic, then: Callable[[], None] | None = None, *, dropped: FollowReason = OWN
    ) -> None:
        """Drop reasons to follow a topic; with the last one leave it, and its meta topic."""
        life = self.followed.life(topic.id)
        if life.is_waiting:
            # The node may be asked to follow again before it is out, and then to leave again.
            life.on_forgotten += (partial(self._unfollow_again, topic.id, dropped, then),)
            return
        had_below = FollowReason.BELOW in life.reasons & dropped
        life.reasons &= ~(dropped | FollowReason.KEEPER)
        if life.reasons & READ or (life.reasons and not dropped & READ):
            # An application still gets the events, or got none for this reason.
            self.turn.persist(*self._rows(topic.id), then=then)
        else:
            self._end(topic, life, then)
        if had_below:
            self.below.walk()

    def _end(self, topic: Topic, life: Life, then: Callable[[], None] | None) -> None:
        """No application wants the events any more; leave, unless another reason is left."""
        life.subscribing = None
        if then is not None:
            life.on_forgotten += (then,)
        was_subscribed, topic.log.subscribed = topic.subscribed, False
        stays = bool(life.reasons)
        # A subscriber that comes from now on waits for a subscription of its own.
        waiting = life.take_on_start()
        rows = (DropState("follow", topic.id), DropState("cursor", topic.id))
        if not stays:
            life.step(Step.UNFOLLOW)

        def synced() -> None:
            # A caller that still waits for the start was subscribed for a moment. A caller that
            # waits to publish does so from outside.
            for done in waiting:
                done()
            # Traced once the disk knows: after a crash before that, the subscription goes on.
            if was_subscribed:
                self.turn.trace(trace.Unsubscribed(topic.id, topic.ordering.known()))
            if stays:
                for done in life.take_on_forgotten():
                    done()
            else:
                life.on_forgotten += life.take_on_ready()
                topic.leave()

        if was_subscribed:
            self.turn.effects.append(Ended(topic.id))
        self.turn.persist(*rows, *self._rows(topic.id), then=synced)
        if not stays:
            self._unfollow_meta(topic)

    def _go_on_alone(self, meta: Topic) -> None:
        """No topic carries this meta topic any more: it needs a place of its own, or none."""
        if self.followed.reasons(meta.id) & ~FollowReason.META:
            meta.overlay.join()

    def _unfollow_meta(self, topic: Topic, *, at_once: bool = False) -> None:
        meta = topic.descriptor.subtopics.get(META)
        if meta is not None and not self.carrying.is_named(meta):
            self.drop_reason(meta, FollowReason.META, at_once=at_once)

    def _unfollow_again(
        self, cid: Cid, dropped: FollowReason, then: Callable[[], None] | None
    ) -> None:
        topic = self.topics.get(cid)
        if topic is not None:
            self.unfollow(topic, then, dropped=dropped)
        elif then is not None:
            then()

    def drop_reason(self, cid: Cid, reason: FollowReason, *, at_once: bool = False) -> None:
        """A reason to follow a topic is gone: leave it, unless another one is left."""
        topic = self.topics.get(cid)
        if topic is None or reason not in self.followed.reasons(cid):
            return
        if topic.writing.place is None:
            self.unfollow(topic, dropped=reason)
        else:
            self.stop_keeping(topic, at_once=at_once)

    def add_mark(self, cid: Cid, mark: FollowReason) -> None:
        """Remember something of a subscription, on the disk too."""
        self.followed.life(cid).reasons |= mark
        self.turn.persist(*self._rows(cid))

    def member(self, cid: Cid) -> Topic:
        """A topic that the node is a member of; raises NotFollowed where it is not."""
        topic = self.topics.get(cid)
        if topic is None:
            raise NotFollowed("the node does not follow this topic")
        return topic

    def when_forgotten(self, cid: Cid, then: Callable[[], None]) -> None:
        """Do something once the disk has forgotten a topic."""
        self.followed.life(cid).on_forgotten += (then,)

    def when_started(self, topic: Topic, then: Callable[[], None]) -> None:
        """Do something once the node may publish in a topic."""
        self.followed.life(topic.id).on_ready += (then,)

    def stop(self, then: Callable[[], None]) -> None:
        """Leave every overlay in good order, and forget no subscription."""
        self.is_stopping = True
        self._stopped = then
        self.turn.trace(trace.NodeStopped(trace.StopReason.ASKED))
        # A meta topic's events travel with its topic's, until the node is out of that.
        for topic in sorted(self.topics.values(), key=lambda topic: topic.is_meta):
            self.owner.closed(topic.id)
            topic.leave()
        self._stop_if_empty()

    def _stop_if_empty(self) -> None:
        if self._stopped is not None and not self.topics:
            then, self._stopped = self._stopped, None
            then()

    # What topics report.

    def started(self, topic: Topic) -> None:
        """A subscription has its start frontier."""
        self.followed.life(topic.id).step(Step.STARTED)
        retired = self.handing_in.retire_own(topic)
        self._links_changed(topic.id)
        start, in_parts = _start_of(topic.frontier.marks()), bool(topic.frontier.missing)

        def synced() -> None:
            # Traced once the disk knows: after a crash before that, there is no subscription.
            if not self.followed.is_current(topic):
                return
            if topic.subscribed:
                self.turn.trace(trace.Subscribed(topic.id, start, in_parts=in_parts))
            self._run_on_start(topic.id)

        self.handing_in.hand_in_missing(topic)
        self._wait_for_own(topic)
        head = self.handing_in.begin(topic)
        topic.writing.persist(*retired, *self._rows(topic.id), *head, then=synced)

    def loaded(self, topic: Topic, marks: list[MarkState], writes: list[Write]) -> None:
        """More of a subscription's start frontier is known."""
        start = tuple(Mark(mark.publisher, mark.epoch, mark.floor) for mark in marks)
        said = trace.StartLoaded(topic.id, start, whole=not topic.frontier.missing)

        def synced() -> None:
            if topic.subscribed and self.followed.is_current(topic):
                self.turn.trace(said)

        topic.writing.persist(*writes, then=synced)

    def _wait_for_own(self, topic: Topic) -> None:
        """In causal order the node's next event follows its last one, which has to come first."""
        topic.awaited_own = self.handing_in.last_own(topic)
        self._look_for_own(topic, self.turn.now + OWN_AWAITED_S)

    def _look_for_own(self, topic: Topic, until_s: float) -> None:
        """Whether it has come, was retired, or was waited for long enough."""
        own = topic.awaited_own
        if own is None:
            return
        if topic.frontier.high(self.turn.me, own.epoch) >= own.number or self.turn.now >= until_s:
            self._own_came(topic)
        else:
            self.turn.after(OWN_LOOK_S, partial(self._look_for_own, topic, until_s))

    def _own_came(self, topic: Topic) -> None:
        """The wait for the node's own last event is over."""
        topic.awaited_own = None
        if self.followed.is_current(topic) and topic.may_publish:
            self._run_on_ready(topic.id)

    def stopped(self, topic: Topic) -> None:
        """The overlay has let the node go."""
        self.owner.closed(topic.id)
        alone = self.carrying.end(topic)
        self.topics.pop(topic.id, None)
        if alone is not None and not self.is_stopping:
            self._go_on_alone(alone)
        life = self.followed.life(topic.id)
        if self.is_stopping:
            life.step(Step.PAUSED)
            self._stop_if_empty()
            return
        life.step(Step.OUT)
        self.descriptors.unfollow(topic.id)
        self.owner.left(topic.id)
        # A later subscription must not take an event for one that was delivered in this one.
        forgotten = topic.requests.forget() + topic.work.handovers.forget()
        if topic.barrier is not None:
            forgotten += topic.barrier.forget()
        forgotten += topic.work.loader.forget() + topic.work.flushing.forget()
        marks = sorted(mark for mark in topic.frontier if mark.publisher == self.turn.me)
        forget = self._forget if topic.writing.place is None else self._forget_kept
        root = topic.versions.first.root_peer
        self._forget_later(topic.id, root, marks, forgotten, forget)

    def _forget_later(
        self,
        cid: Cid,
        root: PeerId,
        marks: Iterable[MarkState],
        forgotten: Iterable[Write],
        forget: Callable[[Cid, Iterable[Write]], None],
    ) -> None:
        """Forget a topic once a member has, or is sure to get, the node's own events in it."""
        forget = partial(forget, cid)
        self.handing_in.see_own_handed_in(cid, root, marks, forgotten, forget)

    def forget_content(
        self,
        cid: Cid,
        root: PeerId,
        marks: Iterable[MarkState],
        ended: Iterable[Write],
        forgotten: Iterable[Write],
        then: Callable[[], None],
    ) -> None:
        """Forget a topic that was followed by content, like one of a member."""
        self.followed.life(cid).forget()

        def synced() -> None:
            then()
            self._forget_later(cid, root, marks, forgotten, self._forget)

        self.turn.persist(*ended, then=synced)

    def _forget(self, cid: Cid, more: Iterable[Write]) -> None:
        self.turn.persist(DropTopic(cid), *more)
        self._forgotten(cid)

    def _forget_kept(self, cid: Cid, more: Iterable[Write]) -> None:
        """Forget what was kept for a stranger, as soon as the disk takes that."""
        writes = (DropTopic(cid), *more)
        if not all(isinstance(write, FREEING) for write in writes):
            self._forget(cid, more)  # Some of it is the node's own.
            return

        def settled(is_kept: bool) -> None:
            if is_kept:
                self._forgotten(cid)
            else:
                self.turn.after(FORGET_AGAIN_S, partial(self._forget_kept, cid, writes[1:]))

        self.turn.keep(*writes, then=settled)

    def _forgotten(self, cid: Cid) -> None:
        life = self.followed.life(cid)
        life.step(Step.FORGOTTEN)
        for then in life.take_on_forgotten():
            then()
        if life.is_over:
            self.followed.lives.pop(cid, None)

    def arrived(self, topic: Topic, event: EventDescriptor) -> None:
        """An event is on the disk: in a meta topic it announces a version."""
        self.owner.arrived(topic, event)
        if event.sequence == topic.awaited_own and event.publisher == self.turn.me:
            self._own_came(topic)
        if topic.is_meta:
            self.renewal.announced(topic, event)

    def want_version(self, topic: Topic, version: Cid, sender: PeerId) -> None:
        """An event names a version that the node does not know."""
        self.renewal.find(topic, version, sender)

    def add_version(self, versions: Versions, version: TopicDescriptor) -> None:
        """Take in a version that was looked for; a member of its topic has to act on it."""
        topic = self.topics.get(versions.first.cid)
        if topic is None:
            versions.add(version)
        else:
            self.renewal.adopt(topic, version)

    # Keeping a tree together.

    def kept_count(self) -> int:
        """How many trees the node holds together as a keeper alone."""
        return sum(life.reasons == FollowReason.KEEPER for life in self.followed.lives.values())

    def is_kept(self, cid: Cid) -> bool:
        """Whether the node follows a topic as a keeper alone."""
        return self.followed.reasons(cid) == FollowReason.KEEPER

    def stop_keeping(self, topic: Topic, *, at_once: bool = False) -> None:
        """The tree needs this keeper no longer, or cannot have it any longer."""
        life = self.followed.life(topic.id)
        life.reasons = NO_REASON
        life.step(Step.UNFOLLOW)
        self._unfollow_meta(topic, at_once=at_once)
        topic.leave(at_once=at_once)

    def found_no_room(self, topic: Topic) -> None:
        """The disk has no room for a tree: leave it, since the log has a hole now."""
        place = topic.writing.place
        if place is not None:
            self.dht.found_no_room(place)
        is_meta = FollowReason.META in self.followed.reasons(topic.id)
        for kept in list(self.carrying.naming(topic.id)) if is_meta else [topic]:
            if self.is_kept(kept.id) and self.followed.is_current(kept):
                self.context.counts["keeper_without_room"] += 1
                self.stop_keeping(kept, at_once=True)

    # The disk.

    def _rows(self, cid: Cid) -> list[Write]:
        """The rows that the disk keeps of a topic that the node follows."""
        why = self.followed.reasons(cid) & ~FollowReason.KEEPER
        return [PutState(StateRow("follow", cid, bytes([why])))] if why else []

    def restore(self, disk: OnDisk) -> None:
        """Follow again, after a restart, the topics on the disk."""
        cursors, requests = disk.rows("cursor"), disk.rows("request")
        starts = missing_of(disk.rows(STARTS).items())
        flushes: dict[Cid, list[Cid]] = {}
        for key in disk.rows(FLUSHES):
            flushes.setdefault(Cid(key[:CID_BYTES]), []).append(Cid(key[CID_BYTES:]))
        for key, value in disk.rows("follow").items():
            cid = Cid(key)
            versions = self.descriptors.get(cid)
            if versions is None:
                continue
            reasons = FollowReason(value[0])
            self.followed.lives[cid] = Life(Stage.MEMBER, reasons)
            missing = starts.get(cid, Missing({}, {}))
            marks, list_max = disk.marks.get(cid, []), self.parameters.frontier_list
            frontier = Frontier(marks, missing.digests, list_max)
            cursor = int.from_bytes(cursors.get(key, b""), "big")
            due = tuple(flushes.get(cid, ()))
            resumed = Resumed(frontier, disk.logs.get(cid, 0), cursor, missing.roots, due)
            self._build(versions, reasons, resumed)
            self.descriptors.follow(versions)
        for key, value in requests.items():
            held = self.followed.get(topic_of_request(key))
            if held is not None:
                held.requests.restore(key, value)
        self._restore_heads(disk.rows(HEADS))
        for table in (STARTS, FLUSHES):
            for key in disk.rows(table):
                if Cid(key[:CID_BYTES]) not in self.topics:
                    self.turn.persist(DropState(table, key))
        for cid in {**disk.logs, **disk.marks}:
            # Only a member has a log, or marks of other publishers.
            marks = disk.marks.get(cid, [])
            is_left = disk.logs.get(cid, 0) or any(mark.publisher != self.turn.me for mark in marks)
            if is_left and self.followed.get(cid) is None:
                keys = [key for key in requests if key.startswith(cid)]
                self._finish_leaving(cid, marks, keys)
        self.handing_in.restore(disk.marks)
        for key, value in disk.rows(HANDOVER).items():
            if (found := self.topics.get(Cid(key[:CID_BYTES]))) is not None:
                restore_handover(found.versions, key, value)
        for key, value in disk.rows("halted").items():
            if Cid(key) in self.topics:
                self.topics[Cid(key)].state.halted = TwoCertificates.from_bytes(value)
        for topic in self.topics.values():
            self.carrying.begin(topic)
        for topic in list(self.topics.values()):
            self._wait_for_own(topic)
            self.handing_in.say_again(topic)
            topic.open()
            self.owner.opened(topic)
            self.follow_links(topic)
        linked = {topic.descriptor.subtopics.get(META): None for topic in self.topics.values()}
        for cid in list(self.topics):
            if cid not in linked:
                # The topic above was left just before the restart.
                self.drop_reason(cid, FollowReason.META)
        self.below.walk()  # Now: deliveries from the log are for the readers above, too.

    def _finish_leaving(
        self, cid: Cid, marks: Iterable[MarkState], request_keys: Iterable[bytes]
    ) -> None:
        """The node left this topic before the restart, and its disk had yet to forget it."""
        versions = self.descriptors.get(cid)
        self.followed.life(cid).forget()
        requests = [DropState("request", key) for key in request_keys]
        if versions is None:
            self._forget_kept(cid, requests)
        else:
            root = versions.first.root_peer
            self._forget_later(cid, root, marks, requests, self._forget_kept)

    def _restore_heads(self, rows: Mapping[bytes, bytes]) -> None:
        """Restore the heads that the next event links to; forget those of topics that were left."""
        for key, value in rows.items():
            held = self.followed.get(topic_of_head(key))
            if held is not None and held.barrier is not None:
                held.barrier.restore(key, value)
            else:
                self.turn.persist(DropState(HEADS, key))


def _start_of(marks: list[MarkState]) -> tuple[Mark, ...]:
    return tuple(Mark(mark.publisher, mark.epoch, mark.high) for mark in marks)
