"""Publishing from outside: hands events in to topics that the node does not follow.

Two kinds of peers have events for a topic without being members of its tree: a publisher that is
not subscribed, and a DHT replica that keeps an event whose publisher may have died before it was
spread. Both find a member, show what they have, let it fetch what it lacks, and are done once its
frontier covers everything. So an event that is `replicated` reaches the subscribers
(docs/spec/pulsarcast.md).

A publisher gives its events to the member at once, and shows them afterwards: then they are there
already, unless something was lost. The member that accepted the node last is its relay: the next
event takes one message.
"""

from collections.abc import Callable, Iterable
from functools import partial

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
"""Topics with events to hand in at a time: bounds memory. Topics with own events do not count."""
OFFERS_MAX = 1024
"""Events handed in per topic at a time; more are left to their publishers and other replicas.

Of its own events the node gives as many unasked before the member has said that it holds them."""
EPOCHS_MAX = 8
"""Epochs of the node, per topic, whose retirement is remembered: bounds memory."""
TRIES_MAX = 12
"""Tries to hand in a replica's events: other replicas and the publisher have them too."""
PATIENT_TRIES = 3
"""Tries with the member found first; later ones go to others that it names."""
KNOWN_TRIES = 2
"""Tries that begin at the closest known peer; later ones ask the DHT."""
BLOCKS_MAX = 64
"""Events handed over per `FetchRange`: bounds one answer."""
GIVEN_MAX = 64
"""Own events given at once to the member that is found; it fetches any others."""


class _Offer(Struct):
    """The events to hand in to one topic, and how far that has come."""

    search: MemberSearch
    events: dict[tuple[PeerId, int], dict[int, Cid]] = {}
    """By publisher and epoch, then by number."""
    own: dict[Cid, None] = {}
    """The node's own events among them: these have a durable record too."""
    given: list[bytes] = []
    """Own events to give to a member as soon as one is known."""
    count: int = 0
    question: tuple[int, Callable[[int], None]] | None = None
    """An epoch of the node, and the call that wants to know how much of it the topic holds."""
    member: PeerId | None = None
    shown_to: PeerId | None = None
    """The member that was shown the events: no other peer can say that they are handed in."""
    tries: int = 0
    timer: int | None = None

    @property
    def is_own(self) -> bool:
        """Whether an event or a question of the node itself is among it."""
        return bool(self.own) or self.question is not None

    @property
    def publishers(self) -> set[PeerId]:
        """Peers whose events these are: they need not be told."""
        return {publisher for publisher, _ in self.events}


class OutsidePublishing:
    """Hands events in to topics that the node does not follow."""

    fresh = False
    """A peer that brings events asks for no start."""

    def __init__(self, context: Context, dht: Kademlia) -> None:
        self.context = context
        self.turn = context.turn
        self.dht = dht
        self.parameters = context.parameters
        self.counts = context.counts
        self._offers: dict[Cid, _Offer] = {}
        self._relays: dict[Cid, PeerId] = {}
        """The member that accepted the node last, by topic."""
        self._retired: dict[Cid, dict[int, int]] = {}
        """Of topics that the node followed: up to which number its epochs are retired."""

    def __len__(self) -> int:
        return sum(offer.count for offer in self._offers.values())

    def has_own(self, topic: Cid) -> bool:
        """Whether an event of the node in this topic is not handed in yet."""
        offer = self._offers.get(topic)
        return offer is not None and bool(offer.own)

    @staticmethod
    def offer_row(event: EventDescriptor) -> Write:
        """The durable record of an event of the node that a member has yet to take."""
        return PutState(StateRow("offer", event.cid, event.block))

    def offer(self, event: EventDescriptor, root: PeerId, *, own: bool = False) -> None:
        """Hand an event in: an own one at once, a replica's once its publisher had time."""
        if len(self._offers) >= TOPICS_MAX and event.topic not in self._offers and not own:
            return
        offer = self._offer_for(event.topic, root)
        if offer.count >= OFFERS_MAX and not own:
            return
        numbers = offer.events.setdefault((event.numbered_by, event.sequence.epoch), {})
        if event.sequence.number not in numbers:
            offer.count += 1
        numbers[event.sequence.number] = event.cid
        if own:
            self._give(event, offer)
        elif offer.timer is None:
            self._later(event.topic, offer, self.turn.jitter(self.parameters.offer_delay_s))

    def _offer_for(self, topic: Cid, root: PeerId) -> _Offer:
        """The events to hand in to a topic; if there are too many topics, the oldest gives way.

        Only one with replicas alone gives way: other replicas have their events too.
        """
        if topic in self._offers:
            return self._offers[topic]
        if len(self._offers) >= TOPICS_MAX:
            replicas = (cid for cid, each in self._offers.items() if not each.is_own)
            oldest = next(replicas, None)
            if oldest is not None:
                self._end(oldest)
        search = MemberSearch(topic, root, Role.VISITOR, self.context, self.dht, self)
        offer = self._offers[topic] = _Offer(search)
        return offer

    def _end(self, topic: Cid) -> _Offer | None:
        offer = self._offers.pop(topic, None)
        if offer is not None:
            self.turn.cancel(offer.timer)
            offer.search.end()
        return offer

    def _give(self, event: EventDescriptor, offer: _Offer) -> None:
        """Give an event of the node to the relay, or to the first member that is found."""
        relay = self._relays.get(event.topic)
        if relay is None:
            if len(offer.given) < GIVEN_MAX and event.cid not in offer.own:
                offer.given.append(event.block)
            if not offer.tries:
                # Replicas' events for the topic, which would wait, go now too.
                self._later(event.topic, offer, 0.0)
        else:
            if offer.count <= OFFERS_MAX:
                # Beyond, the member fetches as fast as it can: no credit bounds what is sent here.
                self.turn.send(relay, EventMessage(event.block, 0))
            if offer.timer is None:
                # Shown as soon as it can be there, so that the member need not fetch it.
                offer.member = relay
                self._later(event.topic, offer, self.turn.jitter(self.parameters.gap_delay_s))
        offer.own[event.cid] = None

    def ask(self, topic: Cid, root: PeerId, epoch: int, then: Callable[[int], None]) -> None:
        """Ask a member how much it holds of an epoch of the node; no member may ever answer."""
        offer = self._offer_for(topic, root)
        offer.question = (epoch, then)
        # Right after a start no peer is known yet.
        known = self.dht.closest_known(peer_key(root), 1)
        self._later(topic, offer, 0.0 if known else self.parameters.gap_delay_s)

    # Retired events of the node.

    def remember(self, topic: Cid, marks: Iterable[MarkState]) -> None:
        """The node leaves a topic: remember how far its own events there are retired."""
        ours = (mark for mark in marks if mark.publisher == self.turn.me and mark.retired)
        retired = {mark.epoch: mark.retired for mark in ours}
        if retired:
            self._retired[topic] = dict([*retired.items()][-EPOCHS_MAX:])
            if len(self._retired) > TOPICS_MAX:
                del self._retired[next(iter(self._retired))]

    def retired(self, topic: Cid) -> dict[int, int]:
        """The number up to which each remembered epoch of the node is retired."""
        return self._retired.get(topic, {})

    def mark_outside(self, topic: Cid, epoch: int) -> MarkState:
        """The mark on the disk of the node's numbering in a topic that it does not follow.

        It holds nothing but what is retired: should the node follow the topic one day, its own
        events are due to it like those of any other publisher.
        """
        retired = self.retired(topic).get(epoch, 0)
        return MarkState(self.turn.me, epoch, retired, retired, None, (), retired)

    # Trying.

    def _later(self, topic: Cid, offer: _Offer, delay_s: float) -> None:
        self.turn.cancel(offer.timer)
        offer.timer = self.turn.after(delay_s, partial(self._try, topic, offer))

    def _try(self, topic: Cid, offer: _Offer) -> None:
        """Show a member the events, or find a member first."""
        offer.timer = None
        offer.tries += 1
        if offer.tries > TRIES_MAX and not offer.own:
            self._end(topic)
            return
        backoff_s = self.parameters.rpc_timeout_s * min(2 ** (offer.tries - 1), 8)
        self._later(topic, offer, self.turn.jitter(backoff_s))
        if offer.member is not None:
            # Forgotten until it answers: a silent member is not asked twice.
            offer.shown_to, offer.member = offer.member, None
            page = FrontierPage(topic, self._marks(topic, offer), answer=True)
            self.turn.send(offer.shown_to, page)
        else:
            self._relays.pop(topic, None)
            offer.search.begin(look_up=offer.tries > KNOWN_TRIES, rank=offer.tries)

    def _marks(self, topic: Cid, offer: _Offer) -> tuple[MarkState, ...]:
        marks = []
        if offer.question is not None and (self.turn.me, offer.question[0]) not in offer.events:
            # It asks without showing anything.
            marks.append(MarkState(self.turn.me, offer.question[0], 0, 0, None))
        ours = self.retired(topic)
        for (publisher, epoch), numbers in offer.events.items():
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

    def referred(self, sender: PeerId, message: JoinReferred) -> None:
        """The peer that was asked names another."""
        offer = self._offers.get(message.topic)
        if offer is not None:
            offer.search.referred(sender, message)

    def accepted(self, sender: PeerId, message: JoinAccepted) -> None:
        """A member was found."""
        offer = self._offers.get(message.topic)
        if offer is None or not offer.search.is_answer(sender, message.attempt):
            return
        offer.search.end()
        offer.member = self._choose_member(offer, sender, message.members)
        self._relays.pop(message.topic, None)
        self._relays[message.topic] = offer.member
        if len(self._relays) > TOPICS_MAX:
            del self._relays[next(iter(self._relays))]
        for block in offer.given:
            self.turn.send(offer.member, EventMessage(block, 0))
        offer.given.clear()
        self.counts["visit"] += 1
        self._later(message.topic, offer, 0.0)

    def _choose_member(self, offer: _Offer, sender: PeerId, named: tuple[Contact, ...]) -> PeerId:
        """Choose neither the publisher of the events nor again a member that did not help."""
        publishers = offer.publishers
        if sender not in publishers and offer.tries <= PATIENT_TRIES:
            return sender
        others = [each.peer for each in named if each.peer not in (*publishers, self.turn.me)]
        return others[offer.tries % len(others)] if others else sender

    def turned_away(self, sender: PeerId, topic: Cid) -> None:
        """The relay has left the topic: find another member."""
        if self._relays.get(topic) != sender:
            return
        del self._relays[topic]
        offer = self._offers.get(topic)
        if offer is not None:
            if offer.member == sender:
                offer.member = None
            self._later(topic, offer, 0.0)

    def lost(self, peer: PeerId) -> None:
        """A member is gone: the next try finds another."""
        for topic in [topic for topic, relay in self._relays.items() if relay == peer]:
            del self._relays[topic]
        for offer in self._offers.values():
            if offer.member == peer:
                offer.member = None

    # Handing in.

    def receive_page(self, sender: PeerId, message: FrontierPage) -> None:
        """The member shows what it holds by now."""
        offer = self._offers.get(message.topic)
        if offer is None or offer.shown_to != sender:
            return
        offer.member = None if sender in offer.publishers else sender
        for mark in message.marks:
            source = (mark.publisher, mark.epoch)
            numbers = offer.events.get(source)
            if numbers is None or mark.publisher == sender:
                continue
            for number in [n for n in numbers if n <= mark.high or n in mark.beyond]:
                self._handed_in(offer, numbers.pop(number))
            if not numbers:
                del offer.events[source]
        question = offer.question
        if question is not None:
            offer.question = None
        if not offer.events and offer.question is None:
            self._end(message.topic)
        if question is not None:
            epoch, then = question
            ours = [mark for mark in message.marks if mark[:2] == (self.turn.me, epoch)]
            then(max((max((mark.high, *mark.beyond)) for mark in ours), default=0))

    def _handed_in(self, offer: _Offer, cid: Cid) -> None:
        offer.count -= 1
        if cid in offer.own:
            del offer.own[cid]
            self.turn.persist(DropState("offer", cid))

    def serve(self, sender: PeerId, message: FetchRange) -> None:
        """The member fetches what it lacks."""
        if message.publisher != self.turn.me:
            self._serve_offers(sender, message, {})
            return

        def found(answer: Events) -> None:
            held = {event.sequence.number: event.block for _, event in answer.events}
            self._serve_offers(sender, message, held)

        # Own events, handed in before or not: the member that took them may have lost them.
        which = (message.topic, message.publisher, message.epoch, message.first, message.last)
        self.turn.load(LoadNumbers(*which, self.parameters.range_bytes_max), Events, found)

    def _serve_offers(self, sender: PeerId, message: FetchRange, held: dict[int, bytes]) -> None:
        """Answer with the events found by number, and with others that wait to be handed in."""
        offer = self._offers.get(message.topic)
        events = {} if offer is None else offer.events.get((message.publisher, message.epoch), {})
        others = [
            (number, events[number])
            for number in sorted(events)
            if message.first <= number <= message.last and number not in held
        ]
        room = max(0, BLOCKS_MAX - len(held))
        asked = others[:room]
        self._load_offers(sender, message, held, asked, cut=len(others) > room)
        if offer is not None and offer.timer is not None and (held or asked):
            # The member is busy with these events: show them again soon, and not elsewhere.
            offer.tries = min(offer.tries, 1)
            self._later(message.topic, offer, self.turn.jitter(self.parameters.rpc_timeout_s))

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

    def forget(self, topic: Cid) -> list[tuple[Cid, bool]]:
        """The node follows the topic now: the events it had for it, and whether each is its own."""
        self._relays.pop(topic, None)
        offer = self._end(topic)
        if offer is None:
            return []
        offers = [cid for numbers in offer.events.values() for cid in numbers.values()]
        return [(cid, cid in offer.own) for cid in offers]
