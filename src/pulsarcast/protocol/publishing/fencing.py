"""Epoch fencing: lets a node give numbers in an epoch only if it cannot give one of them twice.

A disk can be rolled back: by a backup, a snapshot, a copied folder. A node that continues a
numbering from a rolled-back disk gives numbers a second time. So each numbering that is read from
the disk is fenced until peers have confirmed it (decision 0014). Before the node publishes in the
topic for the first time since its start, it asks what peers hold of the numbering: the peers that
received its last event first, and the neighbours of today. If they hold no more than the node, it
continues the epoch. If they hold more, or no peer can say, the node begins a new epoch, which is
safe even if the disk forgot events. A total order is one chain and has no second epoch: there the
node catches up with what its peers hold, and continues after that.

An event that another node numbers with the same key at the same time shows that two nodes use one
key. The node reports that and publishes nothing more until its next start: only people can mend it.
"""

from collections.abc import Callable, Iterable
from functools import partial

from pulsarcast.model import trace
from pulsarcast.model.errors import Rejection, Verdict
from pulsarcast.model.events import EventDescriptor
from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.model.topics import DeliveryOrder, TopicDescriptor
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.publishing.numbering import Numberings
from pulsarcast.protocol.publishing.outside import OutsidePublishing
from pulsarcast.protocol.store import RESTORED, DropState, MarkState, Write
from pulsarcast.protocol.topic.topic import Topic

ASKED_MAX = 8
"""Peers asked about one numbering: the few that may know, and no load on a large neighbourhood."""
CATCH_UP_S = 20.0
"""How long a publisher of a total order waits for its own events that peers say exist."""
REPORTED_MAX = 1024
"""Unknown numberings with the node's own key that are reported, each once: bounds memory."""

KEY_IN_USE_ELSEWHERE = (
    "another node publishes with the same key: stop one of the two, then start this one again"
)


class _FencedNumbering:
    """A numbering from the disk that has not been continued since the node's start."""

    __slots__ = (
        "answered",
        "asked_count",
        "catch_up_until_s",
        "descriptor",
        "disk_was_restored",
        "highest_shown",
        "timer",
        "topic",
        "unanswered",
        "waiting",
    )

    def __init__(self) -> None:
        self.disk_was_restored = False
        """Whether the disk itself says that it comes from a backup, and may be old."""
        self.highest_shown = 0
        """The highest number of it that any peer has shown."""
        self.asked_count = 0
        """How many peers were asked."""
        self.unanswered: dict[PeerId, None] = {}
        """Peers that were asked and may still answer."""
        self.answered: dict[PeerId, None] = {}
        """Peers that have shown something of the numbering."""
        self.waiting: list[Callable[[], None]] = []
        """Publications that wait for the outcome."""
        self.descriptor: TopicDescriptor | None = None
        self.topic: Topic | None = None
        self.timer: int | None = None
        self.catch_up_until_s: float | None = None
        """When the publisher of a total order stops to wait for its own events."""

    @property
    def has_enough(self) -> bool:
        """Whether half of the peers that were asked have answered."""
        return bool(self.answered) and 2 * len(self.answered) >= self.asked_count


class EpochFencing:
    """Decides whether the node may continue its numberings."""

    def __init__(
        self,
        context: Context,
        numberings: Numberings,
        outside: OutsidePublishing,
    ) -> None:
        self.turn = context.turn
        self.parameters = context.parameters
        self.numberings = numberings
        self.outside = outside
        self.counts = context.counts
        self._fenced: dict[Cid, _FencedNumbering] = {}
        self._reported: dict[tuple[Cid, int], None] = {}
        self._began_us = 0

    # Starting.

    def begin(self) -> None:
        """Note when the node started: no earlier incarnation can have made later events."""
        self._began_us = self.turn.wall_us

    def load(self, topic: Cid, value: bytes) -> None:
        """Read a numbering from the disk, and fence it until peers have confirmed it."""
        if not self.numberings.load(topic, value).is_abandoned:
            self._fenced[topic] = _FencedNumbering()

    def disk_was_restored(self, is_total: Callable[[Cid], bool]) -> None:
        """The disk comes from a backup: abandon all its numberings that may have a second epoch."""
        writes: list[Write] = []
        for topic, fenced in list(self._fenced.items()):
            if is_total(topic):
                fenced.disk_was_restored = True
                continue
            del self._fenced[topic]
            abandoned = self.numberings.abandon(topic)
            assert abandoned is not None, "the numbering is on the disk"
            writes.append(abandoned)
        self.turn.persist(*writes)

    def clear_restored_flag(self) -> None:
        """Every part of the node has acted on the restored disk: drop the flag that says so.

        The flag stays while a total order that the node publishes to is fenced: after a restart the
        node must again find out how far its numbering goes.
        """
        self.turn.persist(*self._drop_restored_flag())

    def _drop_restored_flag(self) -> list[Write]:
        is_needed = any(fenced.disk_was_restored for fenced in self._fenced.values())
        return [] if is_needed else [DropState(RESTORED.table, RESTORED.key)]

    # Asking.

    def is_fenced(self, topic: Cid) -> bool:
        """Whether the node must ask its peers before it publishes in a topic."""
        return topic in self._fenced

    def waiting_count(self, topic: Cid) -> int:
        """How many publications wait for the peers' answers."""
        fenced = self._fenced.get(topic)
        return 0 if fenced is None else len(fenced.waiting)

    def confirm(
        self, descriptor: TopicDescriptor, topic: Topic | None, then: Callable[[], None]
    ) -> None:
        """Run `then` once the node may give numbers; `topic` is None if it does not follow it."""
        fenced = self._fenced.get(descriptor.topic)
        if fenced is None:
            then()
            return
        fenced.waiting.append(then)
        if len(fenced.waiting) == 1:
            fenced.descriptor, fenced.topic = descriptor, topic
            self._ask(descriptor.topic, fenced)

    def _ask(self, cid: Cid, fenced: _FencedNumbering) -> None:
        assert fenced.descriptor is not None
        saved = self.numberings.saved(cid)
        assert saved is not None, "a fenced numbering is on the disk"
        self.counts["numbering_asked"] += 1
        topic = fenced.topic
        if topic is None:
            answered = partial(self._member_answered, cid)
            self.outside.ask(cid, fenced.descriptor.root_peer, saved.epoch, answered)
        else:
            held = topic.frontier.highest(self.turn.me, saved.epoch)
            if held < saved.last and not _is_total(fenced):
                # Members do not hold yet all events that the node published before it followed the
                # topic (decision 0007).
                self._finish(cid, fenced, new_epoch=True)
                return
            fenced.highest_shown = max(fenced.highest_shown, held)
            known = dict.fromkeys((*saved.witnesses, *topic.neighbours()))
            peers = [peer for peer in known if peer != self.turn.me][:ASKED_MAX]
            fenced.asked_count, fenced.unanswered = len(peers), dict.fromkeys(peers)
            for peer in peers:
                topic.work.sharing.ask_about(peer, self.turn.me, saved.epoch)
        self._decide_after(cid, fenced, 2 * self.parameters.rpc_timeout_s)
        self._decide(cid, fenced, timed_out=False)

    def _decide_after(self, cid: Cid, fenced: _FencedNumbering, delay_s: float) -> None:
        self.turn.cancel(fenced.timer)
        fenced.timer = self.turn.after(delay_s, lambda: self._decide(cid, fenced, timed_out=True))

    # Answers.

    def heard(self, topic: Cid, peer: PeerId, marks: Iterable[MarkState], *, more: bool) -> None:
        """A peer shows what it holds of a topic; it counts if the node asked that peer."""
        fenced = self._fenced.get(topic)
        if fenced is None or peer not in fenced.unanswered:
            return
        saved = self.numberings.saved(topic)
        assert saved is not None, "a fenced numbering is on the disk"
        for mark in marks:
            is_own = (mark.publisher, mark.epoch) == (self.turn.me, saved.epoch)
            if is_own and (mark.high or mark.beyond):
                fenced.highest_shown = max(fenced.highest_shown, mark.high, *mark.beyond)
                fenced.answered[peer] = None
        if not more:
            del fenced.unanswered[peer]
        self._decide(topic, fenced, timed_out=False)

    def lost(self, peer: PeerId) -> None:
        """A peer is gone and will not answer."""
        for cid, fenced in list(self._fenced.items()):
            if peer in fenced.unanswered:
                del fenced.unanswered[peer]
                self._decide(cid, fenced, timed_out=False)

    def _member_answered(self, cid: Cid, high: int) -> None:
        """A member of a topic that the node does not follow says what it holds; 0: no answer."""
        fenced = self._fenced.get(cid)
        if fenced is not None and fenced.waiting:
            fenced.highest_shown = max(fenced.highest_shown, high)
            if high:
                fenced.answered[self.turn.me] = None
            self._decide(cid, fenced, timed_out=not high)

    # Deciding.

    def _decide(self, cid: Cid, fenced: _FencedNumbering, *, timed_out: bool) -> None:
        if self._fenced.get(cid) is not fenced or not fenced.waiting:
            return
        saved = self.numberings.saved(cid)
        assert saved is not None, "a fenced numbering is on the disk"
        if fenced.highest_shown > saved.last:
            if _is_total(fenced):
                self._catch_up(cid, fenced)
            else:
                self._finish(cid, fenced, new_epoch=True)
        elif fenced.has_enough or (timed_out and fenced.answered):
            self._finish(cid, fenced, new_epoch=False)
        elif timed_out or (fenced.topic is not None and not fenced.unanswered):
            # No peer can say.
            if not fenced.disk_was_restored:
                self._finish(cid, fenced, new_epoch=not _is_total(fenced))
            elif timed_out:
                self._ask(cid, fenced)

    def _catch_up(self, cid: Cid, fenced: _FencedNumbering) -> None:
        """The disk of a total order's publisher lacks events: continue once they are back.

        After CATCH_UP_S the publisher continues after those that came.
        """
        if fenced.topic is None:
            self._finish(cid, fenced, new_epoch=True)
            return
        saved = self.numberings.saved(cid)
        assert saved is not None, "a fenced numbering is on the disk"
        frontier = fenced.topic.frontier
        high = frontier.high(self.turn.me, saved.epoch)
        if fenced.catch_up_until_s is None:
            fenced.catch_up_until_s = self.turn.now + CATCH_UP_S
        if high < fenced.highest_shown and self.turn.now < fenced.catch_up_until_s:
            self._decide_after(cid, fenced, self.parameters.gap_delay_s)
            return
        if high > saved.last:
            last = frontier.cid_at(self.turn.me, saved.epoch, high)
            self.numberings.continue_after(cid, high, last)
        self._finish(cid, fenced, new_epoch=False)

    def _finish(self, cid: Cid, fenced: _FencedNumbering, *, new_epoch: bool) -> None:
        """Open the topic for publishing, in its old epoch or in a new one."""
        self.turn.cancel(fenced.timer)
        del self._fenced[cid]
        if new_epoch:
            self.counts["numbering_left"] += 1
            self.numberings.abandon(cid)
        if fenced.disk_was_restored:
            self.turn.persist(*self._drop_restored_flag())
        for then in fenced.waiting:
            then()

    def follow(self, topic: Topic) -> None:
        """The node begins to follow a topic: its start frontier confirms the numbering, or not."""
        self.numberings.reconcile(topic)
        fenced = self._fenced.get(topic.id)
        if fenced is not None:
            self._finish(topic.id, fenced, new_epoch=False)

    # Two nodes with one key.

    def agreed(self, topic: Topic, parent: PeerId) -> None:
        """A new parent holds the same numbers: ask whether it holds the same events."""
        own = self.numberings.last_of(topic.id)
        if own is not None and self.numberings.is_used_since_start(topic.id, own[0]):
            topic.work.sharing.ask_about(parent, self.turn.me, own[0])

    def published_in(self, topic: Cid) -> list[tuple[PeerId, int]]:
        """The node's numberings in a topic of which it remembers how far they go."""
        last = self.numberings.last_of(topic)
        epochs = dict.fromkeys(self.outside.retired(topic))
        if last is not None:
            epochs[last[0]] = None
        return [(self.turn.me, epoch) for epoch in epochs]

    def saw_own_event(self, event: EventDescriptor, sender: PeerId) -> None:
        """An event has come that the node's key signed and its frontier does not hold."""
        if self.numberings.remembers(event):
            # From before the node followed the topic.
            return
        epoch, number = event.sequence
        if self._is_from_another_node(event):
            self._halt_publishing(event.topic, sender)
            return
        fenced = self._fenced.get(event.topic)
        saved = self.numberings.saved(event.topic)
        if fenced is not None and saved is not None and saved.epoch == epoch:
            fenced.highest_shown = max(fenced.highest_shown, number)
        if (event.topic, epoch) not in self._reported and len(self._reported) < REPORTED_MAX:
            self._reported[event.topic, epoch] = None
            self._report(Rejection.UNKNOWN_OWN_EVENT, event.topic, sender)

    def _is_from_another_node(self, event: EventDescriptor) -> bool:
        """Whether an unknown event with the node's key cannot come from an earlier incarnation.

        It continues an epoch that the node uses since its start; or it links to an event published
        since then; or it was made since then. Only the last depends on a clock: a node whose clock
        was set back suspects itself, until its next start.
        """
        return (
            self.numberings.is_used_since_start(event.topic, event.sequence.epoch)
            or any(map(self.numberings.is_recent, event.parents))
            or (event.author == self.turn.me and event.request.created > self._began_us)
        )

    def saw_own_number_twice(self, event: EventDescriptor) -> None:
        """An event with the node's key has the number of another one."""
        if self.numberings.is_used_since_start(event.topic, event.sequence.epoch):
            self._halt_publishing(event.topic, None)

    def _halt_publishing(self, topic: Cid, sender: PeerId | None) -> None:
        if self.numberings.refusal is not None:
            return
        self.numberings.refusal = KEY_IN_USE_ELSEWHERE
        self._report(Rejection.KEY_IN_USE, topic, sender)
        abandoned = self.numberings.abandon(topic)
        if abandoned is not None:
            self.turn.persist(abandoned)

    def _report(self, code: Rejection, topic: Cid, sender: PeerId | None) -> None:
        self.turn.trace(trace.Rejected(Verdict.IGNORE, code, sender, topic))


def _is_total(fenced: _FencedNumbering) -> bool:
    assert fenced.descriptor is not None
    return fenced.descriptor.delivery_order is DeliveryOrder.TOTAL
