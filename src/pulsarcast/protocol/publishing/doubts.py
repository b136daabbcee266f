"""Doubts: is our disk as old as our last event, and are we the only one with our key (0014)?

A disk may go back in time: a backup, a snapshot, a copied folder. Whoever numbers on from an old
one gives numbers twice. So before we publish in a topic for the first time in a life, we ask those
who would know what they hold of our numbering: whoever heard of its last event first, and our
neighbours of today. If they hold no more than we do, we go on. If they do, or nobody can say, we
begin a new epoch, which is safe whatever we have forgotten. A total order is one chain and has no
second epoch: there we catch up with what others hold and go on behind it.

If somebody numbers in our name while we do, two nodes have our key. We say so and publish nothing
more until we are started again: going on would hide what only people can mend.
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
"""Peers asked what they hold of a numbering of ours."""
CATCH_UP_S = 20.0
"""How long a sequencer waits for events of its own that others say there are."""
SAID_MAX = 1024
"""Numberings of ours that we do not remember, of each of which we say so once."""

ANOTHER = "another node publishes with our key: stop one of the two, then start this one again"


class _Doubt:
    """A numbering from our disk that we have not gone on with in this life."""

    __slots__ = (
        "asked",
        "descriptor",
        "due",
        "restored",
        "shown",
        "spoke",
        "timer",
        "topic",
        "until_s",
        "waiting",
    )

    def __init__(self) -> None:
        self.restored = False
        """The disk itself says that it may be old."""
        self.shown = 0
        """The highest number of it that anyone has shown."""
        self.asked = 0
        """How many were asked,"""
        self.due: dict[PeerId, None] = {}
        """who of them may still answer,"""
        self.spoke: dict[PeerId, None] = {}
        """and who has shown something of the numbering."""
        self.waiting: list[Callable[[], None]] = []
        self.descriptor: TopicDescriptor | None = None
        self.topic: Topic | None = None
        self.timer: int | None = None
        self.until_s: float | None = None
        """When a sequencer has waited long enough."""

    @property
    def has_enough(self) -> bool:
        """Whether half of those who were asked have answered."""
        return bool(self.spoke) and 2 * len(self.spoke) >= self.asked


class Doubts:
    """Decides whether we may go on with our numberings."""

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
        self._doubts: dict[Cid, _Doubt] = {}
        self._said: dict[tuple[Cid, int], None] = {}
        self._began_us = 0

    # What our disk remembers.

    def begin(self) -> None:
        """This life begins now."""
        self._began_us = self.turn.wall_us

    def restore(self, topic: Cid, value: bytes) -> None:
        """Remember a numbering from the disk, and do not take its word for it."""
        if not self.numberings.restore(topic, value).closed:
            self._doubts[topic] = _Doubt()

    def came_back(self, is_total: Callable[[Cid], bool]) -> None:
        """The disk says that it was restored: go on with none of its numberings, not even later."""
        writes: list[Write] = []
        for topic, doubt in list(self._doubts.items()):
            if is_total(topic):
                doubt.restored = True
                continue
            del self._doubts[topic]
            closed = self.numberings.close(topic)
            assert closed is not None, "it is on the disk"
            writes.append(closed)
        self.turn.persist(*writes)

    def saw_to_all(self) -> None:
        """A disk that was restored need not say so any more: all that rests on it knows.

        It goes on saying so while a sequencer has not found out how far it was.
        """
        self.turn.persist(*self._seen_to())

    def _seen_to(self) -> list[Write]:
        restored = any(doubt.restored for doubt in self._doubts.values())
        return [] if restored else [DropState(RESTORED.table, RESTORED.key)]

    # Asking.

    def has(self, topic: Cid) -> bool:
        """Whether we must ask before we publish in a topic."""
        return topic in self._doubts

    def waiting(self, topic: Cid) -> int:
        """How many wait for the answer."""
        doubt = self._doubts.get(topic)
        return 0 if doubt is None else len(doubt.waiting)

    def resolve(
        self, descriptor: TopicDescriptor, topic: Topic | None, then: Callable[[], None]
    ) -> None:
        """Do something once we may number; `topic` is None where we do not follow it."""
        doubt = self._doubts.get(descriptor.topic)
        if doubt is None:
            then()
            return
        doubt.waiting.append(then)
        if len(doubt.waiting) == 1:
            doubt.descriptor, doubt.topic = descriptor, topic
            self._ask(descriptor.topic, doubt)

    def _ask(self, cid: Cid, doubt: _Doubt) -> None:
        assert doubt.descriptor is not None
        saved = self.numberings.saved(cid)
        assert saved is not None, "what we doubt is on our disk"
        self.counts["numbering_asked"] += 1
        topic = doubt.topic
        if topic is None:
            answered = partial(self._member_said, cid)
            self.outside.ask(cid, doubt.descriptor.root_peer, saved.epoch, answered)
        else:
            held = topic.frontier.highest(self.turn.me, saved.epoch)
            if held < saved.last and not _is_total(doubt):
                # What we published from outside is not all in the topic yet (0007).
                self._settle(cid, doubt, anew=True)
                return
            doubt.shown = max(doubt.shown, held)
            known = dict.fromkeys((*saved.witnesses, *topic.neighbours()))
            peers = [peer for peer in known if peer != self.turn.me][:ASKED_MAX]
            doubt.asked, doubt.due = len(peers), dict.fromkeys(peers)
            for peer in peers:
                topic.sharing.ask_about(peer, self.turn.me, saved.epoch)
        self._later(cid, doubt, 2 * self.parameters.rpc_timeout_s)
        self._decide(cid, doubt, late=False)

    def _later(self, cid: Cid, doubt: _Doubt, delay_s: float) -> None:
        self.turn.cancel(doubt.timer)
        doubt.timer = self.turn.after(delay_s, lambda: self._decide(cid, doubt, late=True))

    # What others say.

    def heard(self, topic: Cid, peer: PeerId, marks: Iterable[MarkState], *, more: bool) -> None:
        """Somebody shows what it holds of a topic; it counts if we asked it."""
        doubt = self._doubts.get(topic)
        if doubt is None or peer not in doubt.due:
            return
        saved = self.numberings.saved(topic)
        assert saved is not None, "what we doubt is on our disk"
        for mark in marks:
            ours = (mark.publisher, mark.epoch) == (self.turn.me, saved.epoch)
            if ours and (mark.high or mark.beyond):
                doubt.shown = max(doubt.shown, mark.high, *mark.beyond)
                doubt.spoke[peer] = None
        if not more:
            del doubt.due[peer]
        self._decide(topic, doubt, late=False)

    def lost(self, peer: PeerId) -> None:
        """A peer is gone and will not answer."""
        for cid, doubt in list(self._doubts.items()):
            if peer in doubt.due:
                del doubt.due[peer]
                self._decide(cid, doubt, late=False)

    def _member_said(self, cid: Cid, high: int) -> None:
        """A member of a topic that we do not follow says how much it holds; 0 is no answer."""
        doubt = self._doubts.get(cid)
        if doubt is not None and doubt.waiting:
            doubt.shown = max(doubt.shown, high)
            if high:
                doubt.spoke[self.turn.me] = None
            self._decide(cid, doubt, late=not high)

    # Deciding.

    def _decide(self, cid: Cid, doubt: _Doubt, *, late: bool) -> None:
        if self._doubts.get(cid) is not doubt or not doubt.waiting:
            return
        saved = self.numberings.saved(cid)
        assert saved is not None, "what we doubt is on our disk"
        if doubt.shown > saved.last:
            if _is_total(doubt):
                self._catch_up(cid, doubt)
            else:
                self._settle(cid, doubt, anew=True)
        elif doubt.has_enough or (late and doubt.spoke):
            self._settle(cid, doubt, anew=False)
        elif late or (doubt.topic is not None and not doubt.due):
            # Nobody can say.
            if not doubt.restored:
                self._settle(cid, doubt, anew=not _is_total(doubt))
            elif late:
                self._ask(cid, doubt)

    def _catch_up(self, cid: Cid, doubt: _Doubt) -> None:
        """A sequencer has forgotten something: go on once it is here again, or all that will be."""
        if doubt.topic is None:
            self._settle(cid, doubt, anew=True)
            return
        saved = self.numberings.saved(cid)
        assert saved is not None, "what we doubt is on our disk"
        frontier = doubt.topic.frontier
        high = frontier.high(self.turn.me, saved.epoch)
        if doubt.until_s is None:
            doubt.until_s = self.turn.now + CATCH_UP_S
        if high < doubt.shown and self.turn.now < doubt.until_s:
            self._later(cid, doubt, self.parameters.gap_delay_s)
            return
        if high > saved.last:
            last = frontier.cid_at(self.turn.me, saved.epoch, high)
            self.numberings.go_on_behind(cid, high, last)
        self._settle(cid, doubt, anew=False)

    def _settle(self, cid: Cid, doubt: _Doubt, *, anew: bool) -> None:
        self.turn.cancel(doubt.timer)
        del self._doubts[cid]
        if anew:
            self.counts["numbering_left"] += 1
            self.numberings.close(cid)
        if doubt.restored:
            self.turn.persist(*self._seen_to())
        for then in doubt.waiting:
            then()

    def follow(self, topic: Topic) -> None:
        """We begin to follow a topic: what it holds of ours where we start settles everything."""
        self.numberings.begin_anew(topic)
        doubt = self._doubts.get(topic.id)
        if doubt is not None:
            self._settle(topic.id, doubt, anew=False)

    # Who else has our key.

    def agreed(self, topic: Topic, parent: PeerId) -> None:
        """A new parent holds the same numbers as we do: ask whether the events are the same."""
        own = self.numberings.last_of(topic.id)
        if own is not None and self.numberings.is_in_use(topic.id, own[0]):
            topic.sharing.ask_about(parent, self.turn.me, own[0])

    def met(self, event: EventDescriptor, sender: PeerId) -> None:
        """An event has come that our key signed and our frontier does not hold."""
        if self.numberings.gave(event):
            # From before we followed the topic.
            return
        epoch, number = event.sequence
        if self._is_of_another(event):
            self._refuse_from_now_on(event.topic, sender)
            return
        doubt = self._doubts.get(event.topic)
        saved = self.numberings.saved(event.topic)
        if doubt is not None and saved is not None and saved.epoch == epoch:
            doubt.shown = max(doubt.shown, number)
        if (event.topic, epoch) not in self._said and len(self._said) < SAID_MAX:
            self._said[event.topic, epoch] = None
            self._say(Rejection.UNKNOWN_OWN_EVENT, event.topic, sender)

    def _is_of_another(self, event: EventDescriptor) -> bool:
        """Whether an event that we do not know cannot be from an earlier life of ours.

        It goes on where we do; or it names an event of this life; or it was made since this life
        began. The last is a matter of clocks, and the only one here: if ours was set back, we
        suspect ourselves, until the next start.
        """
        return (
            self.numberings.is_in_use(event.topic, event.sequence.epoch)
            or any(map(self.numberings.is_recent, event.parents))
            or (event.author == self.turn.me and event.request.created > self._began_us)
        )

    def met_twice(self, event: EventDescriptor) -> None:
        """An event of ours has the number of another one."""
        if self.numberings.is_in_use(event.topic, event.sequence.epoch):
            self._refuse_from_now_on(event.topic, None)

    def _refuse_from_now_on(self, topic: Cid, sender: PeerId | None) -> None:
        if self.numberings.refusal is not None:
            return
        self.numberings.refusal = ANOTHER
        self._say(Rejection.KEY_IN_USE, topic, sender)
        closed = self.numberings.close(topic)
        if closed is not None:
            self.turn.persist(closed)

    def _say(self, code: Rejection, topic: Cid, sender: PeerId | None) -> None:
        self.turn.trace(trace.Rejected(Verdict.IGNORE, code, sender, topic))


def _is_total(doubt: _Doubt) -> bool:
    assert doubt.descriptor is not None
    return doubt.descriptor.delivery_order is DeliveryOrder.TOTAL
