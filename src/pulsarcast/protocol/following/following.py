"""Following: which topics we are a member of, and why (design 6).

A topic is followed by its subscribers; by every subscriber of the topic whose meta topic it is; and
by a peer that has to keep a tree together because nobody closer to the root's key is alive.
"""

import enum
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from pulsarcast.model import trace
from pulsarcast.model.events import EventDescriptor
from pulsarcast.model.ids import CID_BYTES, Cid, PeerId
from pulsarcast.model.requests import Sequence
from pulsarcast.model.topics import META, Mark
from pulsarcast.protocol.inputs import Start
from pulsarcast.protocol.messages import FrontierPage
from pulsarcast.protocol.store import (
    DropState,
    DropTopic,
    MarkState,
    PutMark,
    PutState,
    StateRow,
    Write,
)
from pulsarcast.protocol.topic.barrier import TABLE as HEADS
from pulsarcast.protocol.topic.barrier import topic_of_head
from pulsarcast.protocol.topic.frontier import Frontier
from pulsarcast.protocol.topic.handovers import HANDOVER, restore_handover
from pulsarcast.protocol.topic.published_requests import topic_of_request
from pulsarcast.protocol.topic.topic import Topic
from pulsarcast.protocol.topic.versions import Versions

if TYPE_CHECKING:
    from pulsarcast.protocol.node import Node


class Why(enum.IntFlag):
    """Why we follow a topic; kept on disk as one byte."""

    SUBSCRIBED = 1
    BELOW = 2
    """The subscription takes in all sub-topics."""
    META = 4
    """It tells of new versions of a topic that we follow."""
    AUTHOR = 8
    """It is our own topic: its tree is rooted with us whether or not we subscribe."""
    KEEPER = 16
    """We are the closest live peer to the root's key. Not remembered over a restart."""
    SEQUENCER = 32
    """We are one of its sequencers: we hold all of it, whether or not anyone here subscribes."""


LASTING = Why.AUTHOR | Why.SEQUENCER
"""What does not end with a subscription."""

OWN_AWAITED_S = 30.0
"""How long what we say waits for what we said before we followed a causal topic."""
OWN_LOOK_S = 1.0
"""How often we look meanwhile whether it is still due."""


class Following:
    """The topics that we are a member of."""

    def __init__(self, node: "Node") -> None:
        self.node = node
        self.turn = node.turn
        self.parameters = node.parameters
        self.topic_type = Topic
        self.topics: dict[Cid, Topic] = {}
        self._why: dict[Cid, Why] = {}
        self._subscribing: dict[Cid, int] = {}
        """Topics followed for another reason whose subscription is on its way to the disk."""
        self._on_start: dict[Cid, list[Callable[[], None]]] = {}
        self._on_ready: dict[Cid, list[Callable[[], None]]] = {}
        self._on_stop: dict[Cid, list[Callable[[], None]]] = {}
        self._ending: dict[Cid, None] = {}
        """Topics that we are leaving: whoever wants to follow one again waits until we are out."""
        self._stopped: Callable[[], None] | None = None
        self.is_stopping = False
        """Whether the node was asked to go: what we leave now is on our disk, and stays there."""

    # Beginning and ending.

    def follow(
        self,
        versions: Versions,
        why: Why,
        *,
        from_start: bool = False,
        then: Callable[[], None] | None = None,
    ) -> None:
        """Become a member of a topic; `then` runs once the subscription has its start."""
        if self.is_stopping:
            # Begun anew it would know nothing of its log, which the next life goes on with.
            return
        cid = versions.first.cid
        if cid in self.node.content.topics:
            # Our log of it holds what matches our filters: a member's would be another one.
            return
        topic = self.topics.get(cid)
        if cid in self._ending:
            # We are on our way out: go all the way, then come back.
            again = partial(self.follow, versions, why, from_start=from_start, then=then)
            self._on_stop.setdefault(cid, []).append(again)
            return
        if topic is not None and Why.SUBSCRIBED in why and topic.must_begin_anew(from_start):
            # We kept the tree together without a start, or without its history: begin anew.
            self._ending[cid] = None
            self._subscribing.pop(cid, None)
            why |= self._why.pop(cid, Why(0)) & ~Why.KEEPER
            self.follow(versions, why, from_start=from_start, then=then)
            topic.close()
            return
        is_ours = versions.names(self.turn.me)
        if is_ours and Why.SEQUENCER not in why | self._why.get(cid, Why(0)):
            # A sequencer needs the whole history, wherever a subscription begins.
            again = partial(self.follow, versions, why, from_start=from_start, then=then)
            self.follow(versions, Why.SEQUENCER, from_start=True, then=again)
            return
        self._why[cid] = why | self._why.get(cid, Why(0))
        if topic is None:
            topic = self._open(versions, self._why[cid])
            if then is not None:
                self._on_start.setdefault(cid, []).append(then)
            if Why.KEEPER in why:
                topic.comparing.is_blank = True
            topic.open(from_start=from_start or Why.META in why)
            self.node.seats.open(topic)
        else:
            if then is not None:
                self._on_start.setdefault(cid, []).append(then)
            if Why.SUBSCRIBED in why and not topic.subscribed:
                if from_start or cid not in self._subscribing:
                    self._subscribing[cid] = self.turn.new_id()
                    self._subscribe_too(topic, self._subscribing[cid], from_start=from_start)
            elif topic.announced:
                self.turn.persist(*self._rows(cid))
                self._run_on_start(cid)
        if Why.KEEPER not in why:
            self.follow_below(topic)

    def _subscribe_too(self, topic: Topic, subscribing: int, *, from_start: bool) -> None:
        """An application wants the events of a topic that we follow for another reason.

        Whoever leaves before it is on the disk has never subscribed.
        """
        if not self._is_subscribing(topic, subscribing):
            return
        if not topic.started:
            del self._subscribing[topic.id]
            topic.log.subscribed = True
            return
        if not from_start and topic.has_gaps():
            # What we hold beyond a gap would be neither before the start nor delivered after it.
            again = partial(self._subscribe_too, topic, subscribing, from_start=False)
            self.turn.after(self.parameters.gap_delay_s, again)
            return
        start = _start_of([] if from_start else self._marks_with_own(topic))
        retired = [mark for mark in topic.frontier.marks() if from_start and mark.retired]
        cursor = topic.log.cursor_for(from_start=from_start)

        def synced() -> None:
            if not self._is_subscribing(topic, subscribing):
                return
            del self._subscribing[topic.id]
            self.turn.trace(trace.Subscribed(topic.id, start))
            for mark in retired:
                self.turn.trace(trace.Retired(topic.id, mark.publisher, mark.epoch, mark.retired))
            topic.log.subscribe(cursor)
            if topic.announced:
                self._run_on_start(topic.id)

        row = StateRow("cursor", topic.id, cursor.to_bytes(8, "big"))
        self.turn.persist(PutState(row), *self._rows(topic.id), then=synced)

    def _is_subscribing(self, topic: Topic, subscribing: int) -> bool:
        is_the_last = self._subscribing.get(topic.id) == subscribing
        return is_the_last and self.topics.get(topic.id) is topic

    def _marks_with_own(self, topic: Topic) -> list[MarkState]:
        """What our log holds, events of our own included that are not synced yet."""
        marks = Frontier(topic.frontier.marks())
        own = self.node.numberings.last_of(topic.id)
        if own is not None:
            marks.retire(self.turn.me, *own)
        return marks.marks()

    def recalled(self, topic: Topic) -> None:
        """After a restart we may publish once we know what to link to."""
        if self.topics.get(topic.id) is topic:
            # Whoever subscribed meanwhile was subscribed already.
            self._run_on_start(topic.id)

    def _run_on_ready(self, cid: Cid) -> None:
        self.topics[cid].announced = True
        for then in self._on_ready.pop(cid, []):
            then()

    def _run_on_start(self, cid: Cid) -> None:
        self._run_on_ready(cid)
        if cid not in self._subscribing:
            for then in self._on_start.pop(cid, []):
                then()

    def _open(self, versions: Versions, why: Why) -> Topic:
        self.node.descriptors.follow(versions)
        topic = self.topic_type(
            versions,
            self.node.context,
            self.node.dht,
            self,
            subscribed=Why.SUBSCRIBED in why,
        )
        self._add(topic)
        return topic

    def _add(self, topic: Topic) -> None:
        self.topics[topic.id] = topic
        self.node.handing_in.followed(topic.id)

    def follow_below(self, topic: Topic) -> None:
        """Follow the meta topic, and all sub-topics where the subscription takes them in."""
        why = self._why.get(topic.id, Why(0))
        for name, cid in topic.descriptor.subtopics.items():
            if name == META:
                if not self.is_followed(cid):
                    self.node.descriptors.find(cid, partial(self._follow_meta, topic.id))
            elif Why.BELOW in why and not self.is_followed(cid):
                self.node.descriptors.find(cid, partial(self._follow_sub_topic, topic.id))

    def _follow_meta(self, above: Cid, versions: Versions | None) -> None:
        # It was looked for, and whoever wanted it may have left meanwhile.
        if versions is not None and versions.first.is_meta and self.is_followed(above):
            self.follow(versions, Why.META)

    def _follow_sub_topic(self, above: Cid, versions: Versions | None) -> None:
        is_wanted = self.is_followed(above) and Why.BELOW in self._why.get(above, Why(0))
        if versions is not None and not versions.first.is_meta and is_wanted:
            self.follow(versions, Why.SUBSCRIBED | Why.BELOW)

    def unfollow(self, topic: Topic, then: Callable[[], None] | None = None) -> None:
        """Leave a topic, and its meta topic with it."""
        if topic.id in self._ending:
            # We are on our way out; whoever comes back before we are leaves again.
            again = partial(self._unfollow_again, topic.id, then)
            self._on_stop.setdefault(topic.id, []).append(again)
            return
        self._subscribing.pop(topic.id, None)
        if then is not None:
            self._on_stop.setdefault(topic.id, []).append(then)
        was_subscribed, topic.log.subscribed = topic.subscribed, False
        lasting = self._why.pop(topic.id, Why(0)) & LASTING
        # Whoever subscribes from now on hears of a subscription of its own.
        waiting = self._on_start.pop(topic.id, [])
        rows = (DropState("follow", topic.id), DropState("cursor", topic.id))
        if lasting:
            self._why[topic.id] = lasting
        else:
            self._ending[topic.id] = None

        def synced() -> None:
            # Whoever still waits to be subscribed was so for a moment, and whoever waits to publish
            # does so from outside: what never begins must not keep anyone waiting.
            for done in waiting:
                done()
            # Said only now: a crash before would have left us with the subscription.
            if was_subscribed:
                self.turn.trace(trace.Unsubscribed(topic.id, topic.ordering.known()))
            if lasting:
                for done in self._on_stop.pop(topic.id, []):
                    done()
            else:
                ready = self._on_ready.pop(topic.id, [])
                self._on_stop.setdefault(topic.id, []).extend(ready)
                topic.close()

        self.turn.persist(*rows, *self._rows(topic.id), then=synced)
        if lasting:
            return
        meta = self.topics.get(topic.descriptor.subtopics.get(META, topic.id))
        if meta is not None and meta is not topic:
            self.unfollow(meta)

    def _unfollow_again(self, cid: Cid, then: Callable[[], None] | None) -> None:
        topic = self.topics.get(cid)
        if topic is not None:
            self.unfollow(topic, then)
        elif then is not None:
            then()

    def release(self, cid: Cid) -> None:
        """We are no sequencer of a topic any more: what else would we follow it for?"""
        topic = self.topics.get(cid)
        if topic is None or Why.SEQUENCER not in self._why.get(cid, Why(0)):
            return
        self._why[cid] &= ~Why.SEQUENCER
        if self._why[cid]:
            self.turn.persist(*self._rows(cid))
        else:
            self.unfollow(topic)

    def is_followed(self, cid: Cid) -> bool:
        """Whether we follow a topic, and are not about to leave it."""
        return cid in self.topics and cid not in self._ending

    def is_forgetting(self, cid: Cid) -> bool:
        """Whether we have left a topic, but our disk has not forgotten it yet."""
        return cid in self._ending and cid not in self.topics

    def when_stopped(self, cid: Cid, then: Callable[[], None]) -> None:
        """Do something once we are out of a topic."""
        self._on_stop.setdefault(cid, []).append(then)

    def when_started(self, topic: Topic, then: Callable[[], None]) -> None:
        """Do something once a topic's start frontier is known, and we may publish in it."""
        self._on_ready.setdefault(topic.id, []).append(then)

    def stop(self, then: Callable[[], None]) -> None:
        """Leave every tree in good order, without forgetting what we subscribed to."""
        self.is_stopping = True
        self._stopped = then
        self.turn.trace(trace.NodeStopped("asked to"))
        for topic in list(self.topics.values()):
            self.node.seats.close(topic.id)
            topic.close()
        self._stop_if_empty()

    def _stop_if_empty(self) -> None:
        if self._stopped is not None and not self.topics:
            then, self._stopped = self._stopped, None
            then()

    # What topics report.

    def shown(self, topic: Topic, sender: PeerId, message: FrontierPage) -> None:
        """A peer shows what it holds: we may have asked it about our own numbering."""
        self.node.doubts.heard(topic.id, sender, message.marks, more=message.more)

    def agreed(self, topic: Topic, parent: PeerId) -> None:
        """A new parent holds the same numbers as we do: ask whether the events are the same."""
        own = self.node.numberings.last_of(topic.id)
        if own is not None and self.node.numberings.is_in_use(topic.id, own[0]):
            topic.sharing.ask_about(parent, self.turn.me, own[0])

    def met_own(self, event: EventDescriptor, sender: PeerId) -> None:
        """An event of ours has come that the topic did not have from us."""
        self.node.doubts.met(event, sender)

    def met_own_twice(self, event: EventDescriptor) -> None:
        """An event of ours has the number of another one."""
        self.node.doubts.met_twice(event)

    def started(self, topic: Topic) -> None:
        """A subscription has its start frontier."""
        # What we published here before, and know to be retired, is due to nobody, so not to us.
        retired = [
            PutMark(topic.id, topic.frontier.retire(self.turn.me, epoch, number))
            for epoch, number in self.node.outside.retired(topic.id).items()
        ]
        start = _start_of(topic.frontier.marks())

        def synced() -> None:
            # Said only now: a crash before would have left us without the subscription.
            if self.topics.get(topic.id) is not topic:
                return
            if topic.subscribed:
                self.turn.trace(trace.Subscribed(topic.id, start))
            self._run_on_start(topic.id)

        self.node.handing_in.hand_in_missing(topic)
        self._wait_for_own(topic)
        # Events that we published before, and that are still on their way into the topic, keep
        # their own epoch: the order of a numbering must not depend on how they get here.
        self.node.doubts.follow(topic)
        self.turn.persist(*retired, *self._rows(topic.id), *self._own_head(topic), then=synced)

    def _own_head(self, topic: Topic) -> list[Write]:
        """Where we go on with a numbering, what we said before is what our next event follows."""
        own = self.node.numberings.last_link(topic.id)
        return [] if own is None or topic.barrier is None else list(topic.barrier.put(*own))

    def _wait_for_own(self, topic: Topic) -> None:
        """In causal order our next event follows our last one: we have to be given that first.

        Not for ever: its parents may be such as nobody can ever deliver.
        """
        own = self.node.numberings.last_of(topic.id)
        if own is None or topic.barrier is None:
            return
        topic.own_before = Sequence(*own)
        self._look_for_own(topic, self.turn.now + OWN_AWAITED_S)

    def _look_for_own(self, topic: Topic, until_s: float) -> None:
        """It may also be counted as had without ever coming: where it was retired, say."""
        own = topic.own_before
        if own is None:
            return
        if topic.frontier.high(self.turn.me, own.epoch) >= own.number or self.turn.now >= until_s:
            self._own_came(topic)
        else:
            self.turn.after(OWN_LOOK_S, partial(self._look_for_own, topic, until_s))

    def _own_came(self, topic: Topic) -> None:
        """What we said before we followed a topic is in our log, or we waited long enough."""
        topic.own_before = None
        if self.topics.get(topic.id) is topic and topic.may_publish:
            self._run_on_ready(topic.id)

    def stopped(self, topic: Topic) -> None:
        """We are out of a topic's tree."""
        self.node.seats.close(topic.id)
        self.topics.pop(topic.id, None)
        self._ending.pop(topic.id, None)
        if self.is_stopping:
            self._stop_if_empty()
            return
        self.node.descriptors.unfollow(topic.id)
        self._ending[topic.id] = None
        self.node.desk.forget(topic.id)
        # Whoever follows it again must not take an event for one that was delivered before.
        forgotten = topic.requests.forget() + topic.handovers.forget()
        if topic.barrier is not None:
            forgotten += topic.barrier.forget()
        marks = topic.frontier.marks()
        self._forget_later(topic.id, topic.overlay.root_peer, marks, forgotten)

    def _forget_later(
        self, cid: Cid, root: PeerId, marks: Iterable[MarkState], forgotten: Iterable[Write]
    ) -> None:
        """Forget a topic, once a member is sure to get what we published in it."""
        forget = partial(self._forget, cid)
        self.node.handing_in.see_own_handed_in(cid, root, marks, forgotten, forget)

    def forget_content(
        self,
        cid: Cid,
        root: PeerId,
        marks: Iterable[MarkState],
        ended: Iterable[Write],
        forgotten: Iterable[Write],
        then: Callable[[], None],
    ) -> None:
        """Forget a topic that we followed by content, like one that we were a member of."""
        self._ending[cid] = None

        def synced() -> None:
            then()
            self._forget_later(cid, root, marks, forgotten)

        self.turn.persist(*ended, then=synced)

    def _forget(self, cid: Cid, more: Iterable[Write]) -> None:
        self._ending.pop(cid, None)
        self.turn.persist(DropTopic(cid), *more)
        for then in self._on_stop.pop(cid, []):
            then()

    def arrived(self, topic: Topic, event: EventDescriptor) -> None:
        """An event is on our disk: in a meta topic it tells of a version."""
        self.node.desk.advance(topic)
        if event.sequence == topic.own_before and event.publisher == self.turn.me:
            self._own_came(topic)
        if topic.is_meta:
            self.node.renewal.announced(topic, event)
            return
        seat = self.node.seats.by_topic.get(topic.id)
        if seat is not None:
            seat.arrived(event)

    def want_version(self, topic: Topic, version: Cid, sender: PeerId) -> None:
        """An event names a version that we have not seen."""
        self.node.renewal.find(topic, version, sender)

    # Keeping a tree together.

    def kept_count(self) -> int:
        """How many trees we keep together without any other reason to follow them."""
        return sum(why == Why.KEEPER for why in self._why.values())

    def is_kept(self, cid: Cid) -> bool:
        """Whether we follow a topic only to keep its tree together."""
        return self._why.get(cid, Why(0)) == Why.KEEPER

    def stop_keeping(self, topic: Topic) -> None:
        """The tree needs us no longer."""
        self._why.pop(topic.id, None)
        self._ending[topic.id] = None
        topic.close()

    # The disk.

    def _rows(self, cid: Cid) -> list[Write]:
        """What our disk should say about a topic that we follow."""
        why = self._why.get(cid, Why(0)) & ~Why.KEEPER
        return [PutState(StateRow("follow", cid, bytes([why])))] if why else []

    def restore(self, given: Start, tables: dict[str, dict[bytes, bytes]]) -> None:
        """Take up again, after a restart, what our disk says we follow."""
        marks: dict[Cid, list[MarkState]] = {}
        for cid, mark in given.marks:
            marks.setdefault(cid, []).append(mark)
        logs = dict(given.logs)
        cursors = tables.get("cursor", {})
        content = self.node.content
        content.restore(tables, marks, logs)
        for key, value in tables.get("follow", {}).items():
            cid = Cid(key)
            versions = self.node.descriptors.get(cid)
            if versions is None:
                continue
            self._why[cid] = Why(value[0])
            topic = self.topic_type(
                versions,
                self.node.context,
                self.node.dht,
                self,
                subscribed=Why.SUBSCRIBED in self._why[cid],
                frontier=Frontier(marks.get(cid, [])),
                log_index=logs.get(cid, 0),
                cursor=int.from_bytes(cursors.get(key, b""), "big"),
            )
            self.topics[cid] = topic
            self.node.descriptors.follow(versions)
        for key, value in tables.get("request", {}).items():
            self._restore_request(key, value)
        self._restore_heads(tables.get(HEADS, {}))
        for cid in {**logs, **marks}:
            # From outside we have neither a log nor marks of others: it is a member's.
            held = marks.get(cid, [])
            is_left = logs.get(cid, 0) or any(mark.publisher != self.turn.me for mark in held)
            if is_left and cid not in self.topics and cid not in content.topics:
                keys = [key for key in tables.get("request", {}) if key.startswith(cid)]
                self._finish_leaving(cid, held, keys)
        for cid, held in marks.items():
            if cid not in self.topics:
                self.node.outside.remember(cid, held)
        for key, value in tables.get(HANDOVER, {}).items():
            if (found := self.topics.get(Cid(key[:CID_BYTES]))) is not None:
                restore_handover(found.versions, key, value)
        for key, reason in tables.get("halted", {}).items():
            if Cid(key) in self.topics:
                self.topics[Cid(key)].equivocation.halted = reason.decode()
        for topic in list(self.topics.values()):
            self._wait_for_own(topic)
            self.node.handing_in.say_again(topic)
            topic.open()
            self.node.seats.open(topic)
            self.follow_below(topic)
        content.resume()

    def _finish_leaving(
        self, cid: Cid, marks: Iterable[MarkState], request_keys: Iterable[bytes]
    ) -> None:
        """We had left a topic before the restart, but our disk had not forgotten it yet."""
        versions = self.node.descriptors.get(cid)
        self._ending[cid] = None
        requests = [DropState("request", key) for key in request_keys]
        if versions is None:
            self._forget(cid, requests)
        else:
            self._forget_later(cid, versions.first.root_peer, marks, requests)

    def _restore_heads(self, rows: dict[bytes, bytes]) -> None:
        """Link to what our log holds; a topic that we were about to forget has no heads."""
        for key, value in rows.items():
            cid = topic_of_head(key)
            topic = self.topics.get(cid) or self.node.content.topics.get(cid)
            if topic is not None and topic.barrier is not None:
                topic.barrier.restore(key, value)
            else:
                self.turn.persist(DropState(HEADS, key))

    def _restore_request(self, key: bytes, value: bytes) -> None:
        cid = topic_of_request(key)
        topic = self.topics.get(cid) or self.node.content.topics.get(cid)
        if topic is not None:
            topic.requests.restore(key, value)


def _start_of(marks: list[MarkState]) -> tuple[Mark, ...]:
    return tuple(Mark(mark.publisher, mark.epoch, mark.high) for mark in marks)
