"""Visits: handing events in to a topic that we do not follow.

Two kinds of peers have events for a topic without being members of its tree: a publisher that is
not subscribed, and a DHT replica that keeps an event whose publisher may have died before it was
spread. Both find a member, show what they have, let it fetch what it lacks, and are done once its
frontier covers everything. So whatever is `replicated` reaches the subscribers (promise 1).

A publisher gives its events to the member at once, and shows them afterwards: then they are there
already, unless something was lost. Who let us in last is remembered, so the next event takes one
message.
"""

from collections.abc import Callable, Iterable

from msgspec import Struct

from pulsarcast.model.events import EventDescriptor
from pulsarcast.model.ids import Cid, PeerId, peer_key
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.dht.kademlia import Kademlia
from pulsarcast.protocol.dissemination.member_search import DeadEnd, MemberSearch, NobodyFound
from pulsarcast.protocol.messages import (
    Contact,
    EventMessage,
    FetchRange,
    FrontierPage,
    JoinAccepted,
    JoinReferred,
    Range,
    Role,
)
from pulsarcast.protocol.store import (
    Block,
    DropState,
    Events,
    LoadBlock,
    LoadNumbers,
    MarkState,
    PutState,
    StateRow,
    Write,
)

TOPICS_MAX = 256
"""Topics that we have something for at a time; with events of our own, as many as there are."""
OFFERS_MAX = 1024
"""Events that we hand in per topic at a time; more are left to their publishers and replicas.

Of our own, as many are given unasked before the member has said that it holds them."""
EPOCHS_MAX = 8
"""Epochs of ours, per topic, of which we remember how far they are retired."""
TRIES_MAX = 12
PATIENT_TRIES = 3
"""Tries with the member that we find first; later ones go to others that it names."""
KNOWN_TRIES = 2
"""Tries that begin at the closest peer that we know; later ones ask the DHT."""
BLOCKS_MAX = 64
"""Events handed over per question."""
GIVEN_MAX = 64
"""Events of our own that we give at once to the member that we find; it fetches any others."""


class _Visit(Struct):
    """What we have for one topic, and how far we have come with it."""

    search: MemberSearch
    offers: dict[tuple[PeerId, int], dict[int, Cid]] = {}
    own: dict[Cid, None] = {}
    """Events of our own among them: these have a durable record too."""
    given: list[bytes] = []
    """Events of our own to give to a member as soon as we know one."""
    count: int = 0
    question: tuple[int, Callable[[int], None]] | None = None
    """An epoch of ours, and who wants to know how much of it the topic holds."""
    member: PeerId | None = None
    shown_to: PeerId | None = None
    """Whom we showed what we have: nobody else can tell us that it is handed in."""
    tries: int = 0
    timer: int | None = None

    @property
    def is_ours(self) -> bool:
        """Whether an event or a question of our own is among it."""
        return bool(self.own) or self.question is not None


class Visits:
    """Hands events in to topics that we do not follow."""

    fresh = False
    """Whoever brings events asks for no start."""

    def __init__(self, context: Context, dht: Kademlia) -> None:
        self.context = context
        self.turn = context.turn
        self.dht = dht
        self.parameters = context.parameters
        self.counts = context.counts
        self._visits: dict[Cid, _Visit] = {}
        self._doors: dict[Cid, PeerId] = {}
        """The member that let us in last, by topic."""
        self._retired: dict[Cid, dict[int, int]] = {}
        """Of topics that we followed: up to which number each epoch of ours is retired."""

    def __len__(self) -> int:
        return sum(visit.count for visit in self._visits.values())

    def has_own(self, topic: Cid) -> bool:
        """Whether an event of our own in this topic is not handed in yet."""
        visit = self._visits.get(topic)
        return visit is not None and bool(visit.own)

    @staticmethod
    def offer_row(event: EventDescriptor) -> Write:
        """The durable record of an event of ours that a member has yet to take."""
        return PutState(StateRow("offer", event.cid, event.block))

    def offer(self, event: EventDescriptor, root: PeerId, *, own: bool = False) -> None:
        """Have an event for a topic; ours goes at once, a replica's once its publisher had time."""
        visit = self._visits.get(event.topic)
        if visit is None:
            if len(self._visits) >= TOPICS_MAX and not own:
                return
            visit = self._begin(event.topic, root)
        if visit.count >= OFFERS_MAX and not own:
            return
        numbers = visit.offers.setdefault((event.numbered_by, event.sequence.epoch), {})
        if event.sequence.number not in numbers:
            visit.count += 1
        numbers[event.sequence.number] = event.cid
        if own:
            self._give(event, visit)
        elif visit.timer is None:
            self._later(event.topic, visit, self.turn.jitter(self.parameters.offer_delay_s))

    def _begin(self, topic: Cid, root: PeerId) -> _Visit:
        """Have something for one more topic; where there are too many, the oldest gives way.

        Only one with nothing of ours: what replicas we have, others have too.
        """
        if len(self._visits) >= TOPICS_MAX:
            replicas = (cid for cid, each in self._visits.items() if not each.is_ours)
            oldest = next(replicas, None)
            if oldest is not None:
                self._end(oldest)
        search = MemberSearch(topic, root, Role.VISITOR, self.context, self.dht, self)
        visit = self._visits[topic] = _Visit(search)
        return visit

    def _end(self, topic: Cid) -> _Visit | None:
        visit = self._visits.pop(topic, None)
        if visit is not None:
            self.turn.cancel(visit.timer)
            visit.search.end()
        return visit

    def _give(self, event: EventDescriptor, visit: _Visit) -> None:
        """Give an event of ours to the member that we know, or to the first that we find."""
        door = self._doors.get(event.topic)
        if door is None:
            if len(visit.given) < GIVEN_MAX and event.cid not in visit.own:
                visit.given.append(event.block)
            if not visit.tries:
                # Whatever replicas we have for the topic, and would wait with, goes now too.
                self._later(event.topic, visit, 0.0)
        else:
            if visit.count <= OFFERS_MAX:
                # Beyond, it fetches as fast as it can take: no credit holds us back here.
                self.turn.send(door, EventMessage(event.block, 0))
            if visit.timer is None:
                # Shown as soon as it can be there, so that the member need not fetch it.
                visit.member = door
                self._later(event.topic, visit, self.turn.jitter(self.parameters.gap_delay_s))
        visit.own[event.cid] = None

    def ask(self, topic: Cid, root: PeerId, epoch: int, then: Callable[[int], None]) -> None:
        """Ask a member how much it holds of an epoch of ours; nobody may ever answer."""
        visit = self._visits.get(topic)
        if visit is None:
            visit = self._begin(topic, root)
        visit.question = (epoch, then)
        # Right after a start we know nobody yet.
        known = self.dht.closest_known(peer_key(root), 1)
        self._later(topic, visit, 0.0 if known else self.parameters.gap_delay_s)

    def remember(self, topic: Cid, marks: Iterable[MarkState]) -> None:
        """We no longer follow a topic: how far what we published there is retired."""
        retired = {
            mark.epoch: mark.retired
            for mark in marks
            if mark.publisher == self.turn.me and mark.retired
        }
        if retired:
            self._retired[topic] = dict([*retired.items()][-EPOCHS_MAX:])
            if len(self._retired) > TOPICS_MAX:
                del self._retired[next(iter(self._retired))]

    def retired(self, topic: Cid) -> dict[int, int]:
        """Of each epoch of ours that we remember: up to which number it is retired."""
        return self._retired.get(topic, {})

    def mark_outside(self, topic: Cid, epoch: int) -> MarkState:
        """What our disk says we hold of a numbering of ours in a topic that we do not follow.

        Nothing, but for what is retired: should we follow the topic one day, our own events are due
        to us like anybody's.
        """
        retired = self.retired(topic).get(epoch, 0)
        return MarkState(self.turn.me, epoch, retired, retired, None, (), retired)

    def _later(self, topic: Cid, visit: _Visit, delay_s: float) -> None:
        self.turn.cancel(visit.timer)
        visit.timer = self.turn.after(delay_s, lambda: self._go(topic))

    def _go(self, topic: Cid) -> None:
        """Show a member what we have, or find a member first."""
        visit = self._visits.get(topic)
        if visit is None:
            return
        visit.timer = None
        visit.tries += 1
        if visit.tries > TRIES_MAX and not visit.own:
            self._end(topic)
            return
        backoff_s = self.parameters.rpc_timeout_s * min(2 ** (visit.tries - 1), 8)
        self._later(topic, visit, self.turn.jitter(backoff_s))
        if visit.member is not None:
            member, visit.member = visit.member, None
            visit.shown_to = member
            self.turn.send(member, FrontierPage(topic, self._marks(topic, visit), True, False))
            # Forgotten until it answers: a silent member is not asked twice.
        else:
            self._doors.pop(topic, None)
            visit.search.begin(look_up=visit.tries > KNOWN_TRIES, rank=visit.tries)

    def _marks(self, topic: Cid, visit: _Visit) -> tuple[MarkState, ...]:
        marks = []
        if visit.question is not None and (self.turn.me, visit.question[0]) not in visit.offers:
            # It asks without showing anything.
            marks.append(MarkState(self.turn.me, visit.question[0], 0, 0, None))
        ours = self.retired(topic)
        for (publisher, epoch), numbers in visit.offers.items():
            ordered = sorted(numbers)
            high = ordered[0]
            while high + 1 in numbers:
                high += 1
            beyond = tuple(number for number in ordered if number > high)
            floor = ordered[0] - 1
            retired = min(floor, ours.get(epoch, 0)) if publisher == self.turn.me else 0
            marks.append(MarkState(publisher, epoch, floor, high, numbers[high], beyond, retired))
        return tuple(marks[: self.parameters.frontier_page])

    # Finding a member.

    def search_failed(self, outcome: DeadEnd | NobodyFound) -> None:
        """The next try is due already; until then a late answer is welcome."""

    def accepted(self, sender: PeerId, message: JoinAccepted) -> None:
        """We found a member."""
        visit = self._visits.get(message.topic)
        if visit is not None and visit.search.is_answer(sender, message.attempt):
            visit.search.end()
            visit.member = self._choose_member(visit, sender, message.members)
            self._let_in(message.topic, visit.member)
            for block in visit.given:
                self.turn.send(visit.member, EventMessage(block, 0))
            visit.given.clear()
            self.counts["visit"] += 1
            self._later(message.topic, visit, 0.0)

    def _let_in(self, topic: Cid, member: PeerId) -> None:
        self._doors.pop(topic, None)
        self._doors[topic] = member
        if len(self._doors) > TOPICS_MAX:
            del self._doors[next(iter(self._doors))]

    def turned_away(self, sender: PeerId, topic: Cid) -> None:
        """Who let us in has left the topic: find another member."""
        if self._doors.get(topic) != sender:
            return
        del self._doors[topic]
        visit = self._visits.get(topic)
        if visit is not None:
            if visit.member == sender:
                visit.member = None
            self._later(topic, visit, 0.0)

    def _choose_member(self, visit: _Visit, sender: PeerId, members: tuple[Contact, ...]) -> PeerId:
        """Whom to hand in to: not to the publisher itself, nor again to one who did not help."""
        publishers = {publisher for publisher, _ in visit.offers}
        if sender not in publishers and visit.tries <= PATIENT_TRIES:
            return sender
        others = [
            contact.peer
            for contact in members
            if contact.peer not in publishers and contact.peer != self.turn.me
        ]
        return others[visit.tries % len(others)] if others else sender

    def referred(self, sender: PeerId, message: JoinReferred) -> None:
        """The peer that we asked names another."""
        visit = self._visits.get(message.topic)
        if visit is not None:
            visit.search.referred(sender, message)

    # Handing in.

    def receive_page(self, sender: PeerId, message: FrontierPage) -> None:
        """The member shows what it holds by now."""
        visit = self._visits.get(message.topic)
        if visit is None or visit.shown_to != sender:
            return
        publishers = {publisher for publisher, _ in visit.offers}
        visit.member = None if sender in publishers else sender
        for mark in message.marks:
            source = (mark.publisher, mark.epoch)
            numbers = visit.offers.get(source)
            if numbers is None or mark.publisher == sender:
                continue
            for number in [n for n in numbers if n <= mark.high or n in mark.beyond]:
                self._handed_in(visit, numbers.pop(number))
            if not numbers:
                del visit.offers[source]
        question = visit.question
        if question is not None and not message.more:
            visit.question = None
        if not visit.offers and visit.question is None:
            self._end(message.topic)
        if question is not None:
            self._answer(question, message)

    def _answer(self, question: tuple[int, Callable[[int], None]], message: FrontierPage) -> None:
        epoch, then = question
        ours = [mark for mark in message.marks if mark[:2] == (self.turn.me, epoch)]
        if ours or not message.more:
            then(max((max((mark.high, *mark.beyond)) for mark in ours), default=0))

    def _handed_in(self, visit: _Visit, cid: Cid) -> None:
        visit.count -= 1
        if cid in visit.own:
            del visit.own[cid]
            self.turn.persist(DropState("offer", cid))

    def serve(self, sender: PeerId, message: FetchRange) -> None:
        """The member fetches what it lacks."""
        if message.publisher != self.turn.me:
            self._serve_offers(sender, message, {})
            return
        # Events of our own, handed in before or not: who took them may have lost them.
        query = LoadNumbers(
            message.topic,
            message.publisher,
            message.epoch,
            message.first,
            message.last,
            self.parameters.range_bytes_max,
        )

        def found(answer: Events) -> None:
            held = {event.sequence.number: event.block for _, event in answer.events}
            self._serve_offers(sender, message, held)

        self.turn.load(query, Events, found)

    def _serve_offers(self, sender: PeerId, message: FetchRange, held: dict[int, bytes]) -> None:
        """Answer with what was found by number, and with what we have to hand in besides."""
        visit = self._visits.get(message.topic)
        offers = {} if visit is None else visit.offers.get((message.publisher, message.epoch), {})
        others = [
            number
            for number in sorted(offers)
            if message.first <= number <= message.last and number not in held
        ]
        room = max(0, BLOCKS_MAX - len(held))
        asked = [(number, offers[number]) for number in others[:room]]
        self._load_offers(sender, message, held, asked, cut=len(others) > room)
        if held or asked:
            self._keep_on(message.topic)

    def _load_offers(
        self,
        sender: PeerId,
        message: FetchRange,
        held: dict[int, bytes],
        asked: list[tuple[int, Cid]],
        *,
        cut: bool,
    ) -> None:
        """Read one event after the other, up to a bound of bytes: a few may exceed a frame."""
        if asked and sum(map(len, held.values())) < self.parameters.range_bytes_max:
            (number, cid), *others = asked

            def found(block: Block) -> None:
                if block.block is not None:
                    held[number] = block.block
                self._load_offers(sender, message, held, others, cut=cut)

            self.turn.load(LoadBlock(cid), Block, found)
            return
        last = max(held, default=message.last)
        more = bool(asked) or cut or (message.publisher == self.turn.me and last < message.last)
        blocks = tuple(held[number] for number in sorted(held))
        if blocks:
            self.counts["visitor_offer"] += 1
        self.turn.send(sender, Range(message.request, message.topic, blocks, more))

    def _keep_on(self, topic: Cid) -> None:
        """The member is busy with what we brought: show it again soon, and not elsewhere."""
        visit = self._visits.get(topic)
        if visit is not None and visit.timer is not None:
            visit.tries = min(visit.tries, 1)
            self._later(topic, visit, self.turn.jitter(self.parameters.rpc_timeout_s))

    def lost(self, peer: PeerId) -> None:
        """A member is gone: the next try finds another."""
        for topic in [topic for topic, door in self._doors.items() if door == peer]:
            del self._doors[topic]
        for visit in self._visits.values():
            if visit.member == peer:
                visit.member = None

    def forget(self, topic: Cid) -> list[tuple[Cid, bool]]:
        """We follow the topic ourselves now: what we had for it, and whether it was our own."""
        self._doors.pop(topic, None)
        visit = self._end(topic)
        if visit is None:
            return []
        offers = [cid for numbers in visit.offers.values() for cid in numbers.values()]
        return [(cid, cid in visit.own) for cid in offers]
