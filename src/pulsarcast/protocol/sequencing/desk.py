"""The acting sequencer's desk: requests that wait for their place, and answers (thesis, 3.3.3).

Whoever does not lead says who does. The leader takes an author's requests in the order of their
numbers and puts each into the log once: what is in the log, or in the topic's history, is not
proposed again, whoever proposed it first. An answer goes out once the event is certified and in our
own history; if the author asked for replicas, once these are counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsarcast.model.errors import LocalError, Refusal
from pulsarcast.model.events import (
    EventDescriptor,
    Position,
    Sequence,
    SignedRequest,
    decode_event,
    decode_request,
    publish_request,
)
from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.model.topics import EventLinking, TopicDescriptor
from pulsarcast.protocol.messages import (
    RequestAnswered,
    RequestReferred,
    RequestToPublish,
)
from pulsarcast.protocol.publishing.behind import Waiting
from pulsarcast.protocol.publishing.early import Early
from pulsarcast.protocol.publishing.request_desk import USED_BEFORE, refusal_of
from pulsarcast.protocol.sequencing.log import EntryKind
from pulsarcast.protocol.store import Block, LoadRequest

if TYPE_CHECKING:
    from pulsarcast.protocol.sequencing.seat import Seat

Author = tuple[PeerId, int]
"""An author's numbering of its requests."""


class SequencerDesk:
    """Requests to the sequencers of one topic."""

    def __init__(self, seat: Seat) -> None:
        self.seat = seat
        self.turn = seat.turn
        self._waiting: dict[bytes, dict[PeerId, bool]] = {}
        """Requests that have their place, who wants to know, and whether it waits for replicas."""
        self._taken: dict[Author, dict[int, None]] = {}
        """Of each author the numbers that are in our log, and not in our history yet."""
        self._under_way: dict[int, tuple[Author, int]] = {}
        """The same by position, the lowest first."""
        self._counting: dict[bytes, None] = {}
        """Requests whose events' replicas are being counted."""
        self._early = Early(seat.parameters.requests_held_max)

    def __len__(self) -> int:
        return len(self._early) + len(self._waiting)

    def receive(self, sender: PeerId, message: RequestToPublish) -> None:
        """Give a request its place, say who does, or repeat the answer that it got before."""
        signed = decode_request(message.block)
        request, topic = signed.request, self.seat.topic
        sequencer = self.seat.sequencer
        acting = self.seat.acting() if sequencer.leads else None
        refusal = topic.halted
        if refusal is None and acting is not None and sequencer.may_propose:
            refusal = refusal_of(signed, acting, self.turn.me, self.turn.wall_us)
        if refusal is not None:
            self._refuse(sender, signed.request_id, refusal)
            return
        if topic.requests.holds(request.author, *request.sequence):
            self._repeat(sender, signed, message.replicated)
            return
        if not sequencer.leads:
            self._refer(sender, signed.request_id)
            return
        if sequencer.position_of(signed.request_id) is not None:
            self._wait(sender, signed.request_id, message.replicated)
            return
        settled = message.settled if sender == request.author else 0
        author = (request.author, request.sequence.epoch)
        taken = self._taken.get(author, {})
        if request.sequence.number in taken:
            # By another request: only one of them can be delivered.
            self._refuse(sender, signed.request_id, USED_BEFORE)
            return
        before = max(settled, topic.requests.highest(*author), max(taken, default=0))
        if request.sequence.number > before + 1:
            # An earlier request of this author is still on its way.
            room = self.seat.parameters.requests_held_max - len(self._waiting)
            self._early.put(Waiting(sender, signed, message.replicated), room)
        elif acting is not None and self._has_room():
            if self._propose(sender, signed, acting, message.replicated):
                self._propose_next(author, request.sequence.number + 1)
        else:
            # Not now: we lack history, have too much under way, or are about to be replaced.
            self._refer(sender, signed.request_id)

    def _has_room(self) -> bool:
        """Whether we can propose; what came early takes no room from what has its turn."""
        held_max = self.seat.parameters.requests_held_max
        return self.seat.sequencer.may_propose and len(self._waiting) < held_max

    def _wait(self, sender: PeerId, request_id: bytes, replicated: bool) -> None:
        if len(self._waiting) < self.seat.parameters.requests_held_max:
            self._waiting.setdefault(request_id, {})[sender] = replicated

    def _propose(
        self, sender: PeerId, signed: SignedRequest, descriptor: TopicDescriptor, replicated: bool
    ) -> bool:
        """Give a request its place, or refuse it: then its number is not taken."""

        def make(term: int, position: int, parent: Cid | None) -> bytes:
            is_custom = descriptor.event_linking is EventLinking.CUSTOM
            last = () if parent is None else (parent,)
            event = publish_request(
                self.turn.identity,
                signed,
                version=descriptor.cid,
                sequence=Sequence(0, position),
                parents=signed.request.after if is_custom else last,
                position=Position(term, position),
            )
            return event.block

        try:
            self.seat.sequencer.propose(make)
        except LocalError as error:
            # What an event adds to its request can make it too large.
            self._refuse(sender, signed.request_id, error.refusal)
            return False
        self._waiting.setdefault(signed.request_id, {})[sender] = replicated
        epoch, number = signed.request.sequence
        author = (signed.request.author, epoch)
        # It may have been held before its author said that it need not wait.
        self._early.take(self.seat.topic.id, *author, number)
        self._take(self.seat.sequencer.log.last_position, author, number)
        return True

    def _take(self, position: int, author: Author, number: int) -> None:
        self._taken.setdefault(author, {})[number] = None
        self._under_way[position] = (author, number)

    def _settle(self) -> None:
        """What is in our history is known from there: there may be any number of authors."""
        held = self.seat.held()
        while self._under_way and (position := next(iter(self._under_way))) <= held:
            author, number = self._under_way.pop(position)
            taken = self._taken.get(author, {})
            taken.pop(number, None)
            if not taken:
                self._taken.pop(author, None)

    def _propose_next(self, author: Author, number: int) -> None:
        """Whatever waited for the request before this number has its turn, one after another."""
        while (early := self._early.take(self.seat.topic.id, *author, number)) is not None:
            number += 1
            request_id = early.signed.request_id
            acting = self.seat.acting()
            if self.seat.sequencer.position_of(request_id) is not None:
                # It came again meanwhile, and did not have to wait.
                self._wait(early.sender, request_id, early.replicated)
            elif acting is not None and self._has_room():
                refusal = refusal_of(early.signed, acting, self.turn.me, self.turn.wall_us)
                if refusal is not None:
                    # It came when we could not say, or there is a version that forbids it since.
                    self._refuse(early.sender, request_id, refusal)
                    return
                if not self._propose(early.sender, early.signed, acting, early.replicated):
                    return
            else:
                self._refer(early.sender, request_id)
                return

    def turned(self) -> None:
        """Who leads has changed: send those who wait with us to whoever it is now."""
        sequencer = self.seat.sequencer
        waiting = [(sender, each) for each, who in self._waiting.items() for sender in who]
        held = self._early.forget(self.seat.topic.id)
        self._waiting.clear()
        self._taken.clear()
        self._under_way.clear()
        if sequencer.leads:
            for _, entry in sequencer.log:
                if entry.kind is EntryKind.EVENT and self.seat.handed_over(entry) is None:
                    request = self.seat.event_of(entry.body).request
                    author = (request.author, request.sequence.epoch)
                    self._take(entry.position, author, request.sequence.number)
            self._settle()
        for sender, request_id in waiting:
            self._refer(sender, request_id)
        for early in held:
            self._refer(early.sender, early.signed.request_id)

    # Answers.

    def arrived(self, event: EventDescriptor) -> None:
        """An event is certified and in our history."""
        self._settle()
        self._answer_all(event, 0, replicated=False)
        if event.request_id in self._waiting and event.request_id not in self._counting:
            # Others have let it out, or it was counted before somebody wanted to know.
            self.count_replicas(event)

    def count_replicas(self, event: EventDescriptor) -> None:
        """Replicate an event, for whoever waits for that."""
        self._counting[event.request_id] = None
        self.seat.publisher.replicate_again(event, self._replicated)

    def _replicated(self, event: EventDescriptor, replicas: int) -> None:
        """An event's replicas are counted."""
        self._counting.pop(event.request_id, None)
        self._answer_all(event, replicas, replicated=True)

    def _answer_all(self, event: EventDescriptor, replicas: int, *, replicated: bool) -> None:
        waiting = self._waiting.get(event.request_id, {})
        for sender in [who for who, wants in waiting.items() if wants is replicated]:
            del waiting[sender]
            self._answer(sender, event.request_id, event.cid, replicas)
        if not waiting:
            self._waiting.pop(event.request_id, None)

    def _repeat(self, sender: PeerId, signed: SignedRequest, replicated: bool) -> None:
        """It was published before: say again as what."""
        counts = self.seat.counts
        counts["request_repeated"] = counts.get("request_repeated", 0) + 1
        request = signed.request

        def found(answer: Block) -> None:
            if answer.block is None:
                self._refuse(sender, signed.request_id, USED_BEFORE)
                return
            event = decode_event(answer.block)
            if not replicated:
                self._answer(sender, signed.request_id, event.cid, 0)
                return
            self.seat.publisher.replicate_again(
                event,
                lambda event, replicas: self._answer(
                    sender, signed.request_id, event.cid, replicas
                ),
            )

        self.turn.load(LoadRequest(request.topic, request.author, request.nonce), Block, found)

    def _answer(self, to: PeerId, request_id: bytes, event: Cid, replicas: int) -> None:
        self.seat.tell(to, RequestAnswered(self.seat.topic.id, request_id, event, replicas))

    def _refuse(self, to: PeerId, request_id: bytes, refusal: Refusal) -> None:
        self.seat.tell(to, RequestAnswered(self.seat.topic.id, request_id, None, 0, *refusal))

    def _refer(self, to: PeerId, request_id: bytes) -> None:
        sequencer = self.seat.sequencer
        leader = None if sequencer.leads else sequencer.leader
        self.seat.tell(to, RequestReferred(self.seat.topic.id, request_id, leader))
