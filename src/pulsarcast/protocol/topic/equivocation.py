"""Equivocation: detects two events of one publisher with one number, and keeps the proof.

One proof per publisher is kept, and both events are shown to the publisher: two nodes may have its
key and not know it (docs/decisions/0014). If several sequencers agree on the order, two
certificates for one position halt the topic: correct sequencers never sign both, and going on
would hide the fault (docs/spec/pulsarcast.md, Receive; docs/spec/threats.md, Equivocation).
"""

from collections.abc import Iterable
from typing import Protocol

from pulsarcast.model.certificates import check_certificate
from pulsarcast.model.errors import Rejection, RemoteError
from pulsarcast.model.events import EventDescriptor
from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.protocol.dissemination.overlay import Forwarding
from pulsarcast.protocol.messages import EventMessage
from pulsarcast.protocol.store import (
    Block,
    Events,
    LoadBlock,
    LoadNumbers,
    MarkState,
    PutState,
    StateRow,
)
from pulsarcast.protocol.topic.halts import TwoCertificates
from pulsarcast.protocol.topic.state import TopicState

EQUIVOCATORS_MAX = 1024
"""Bounds the publishers of a topic whose equivocation is kept as a proof on the disk."""
CLAIMS_INTERVAL_S = 1.0
"""The least time between two lookups of an event that a peer claims under a number held here."""


class OwnEvents(Protocol):
    """Asked of the part that keeps the node's own numberings."""

    def saw_own_number_twice(self, event: EventDescriptor) -> None:
        """Two events that the node's key signed have one number."""


class Equivocation:
    """Knows one topic's events by their numbers, and proves that two have the same."""

    __slots__ = (
        "_comparing",
        "_equivocators",
        "_frontier",
        "_next_claim_s",
        "_ordering",
        "_overlay",
        "_own",
        "_state",
        "_turn",
        "_versions",
    )

    def __init__(self, state: TopicState, overlay: Forwarding, own: OwnEvents) -> None:
        self._state = state
        self._turn = state.context.turn
        self._versions = state.versions
        self._frontier = state.frontier
        self._ordering = state.ordering
        self._overlay = overlay
        self._own = own
        self._equivocators: dict[PeerId, None] = {}
        self._comparing = False
        self._next_claim_s = 0.0

    @property
    def is_idle(self) -> bool:
        """Whether no proof is known, or looked for."""
        return not (self._equivocators or self._comparing or self._turn.now < self._next_claim_s)

    def knows(self, event: EventDescriptor, certificate: bytes) -> bool:
        """Whether the node has this number; another event under the same number is a proof."""
        publisher, (epoch, number) = event.numbered_by, event.sequence
        if self._frontier.holds(publisher, epoch, number):
            held = self._frontier.cid_at(publisher, epoch, number)
            if held is None:
                self._compare_with_log(event, certificate)
        else:
            held = self._ordering.held_back(publisher, epoch, number)
            if held is None:
                return False
        if held is not None and held != event.cid:
            self._keep_proof(event, held, certificate)
        return True

    def _compare_with_log(self, event: EventDescriptor, certificate: bytes) -> None:
        """The frontier forgets the CIDs of older numbers: ask the disk.

        One query at a time, or replayed events would keep the disk busy.
        """
        publisher, (epoch, number) = event.numbered_by, event.sequence
        if self._comparing or number <= self._frontier.floor(publisher, epoch):
            return
        self._comparing = True

        def found(answer: Events) -> None:
            self._comparing = False
            try:
                for _, held in answer.events:
                    if held.cid != event.cid:
                        self._keep_proof(event, held.cid, certificate)
            except RemoteError as error:
                self._state.context.rejected(event.publisher, self._state.id, error)

        query = LoadNumbers(self._state.id, publisher, epoch, number, number, 1)
        self._turn.load(query, Events, found)

    def _keep_proof(self, event: EventDescriptor, held: Cid, certificate: bytes) -> None:
        """Keep one proof per publisher: it could make as many as it has numbers."""
        if self._state.is_sequenced:
            self.halt(event, held, certificate)
        if event.publisher not in self._equivocators and len(self._equivocators) < EQUIVOCATORS_MAX:
            self._equivocators[event.publisher] = None
            self._state.writing.persist(PutState(StateRow("proof", held, event.block)))
            self._confront(event, held)
        if event.publisher == self._turn.me:
            self._own.saw_own_number_twice(event)
        raise RemoteError("two events with one number", code=Rejection.EQUIVOCATION)

    def _confront(self, event: EventDescriptor, held: Cid) -> None:
        """Show both events to their publisher.

        Of two nodes with its key, neither would receive the other's event otherwise: a node that
        has one of the two does not forward the other.
        """
        publisher = event.publisher

        def found(answer: Block) -> None:
            if answer.block is not None:
                self._turn.send(publisher, EventMessage(answer.block, 1))
                self._turn.send(publisher, EventMessage(event.block, 1))

        if publisher != self._turn.me:
            self._turn.load(LoadBlock(held), Block, found)

    def halt(self, event: EventDescriptor, held: Cid, certificate: bytes) -> None:
        """Two certificates for one position: there is no order any more, and both prove it."""
        check_certificate(self._versions.sequencers_of(event), event, certificate)
        in_force = self._versions.by_cid.get(self._versions.in_force_at(event.sequence.number))
        if in_force is None or in_force.sequencers != self._versions.sequencers_of(event):
            # The signing sequencers were replaced: certificates beyond their end prove nothing.
            raise RemoteError(
                "certified by sequencers that do not count there", code=Rejection.BAD_CERTIFICATE
            )
        self._state.halted = halted = TwoCertificates(event.sequence.number, held, event.cid)
        self._state.writing.persist(
            PutState(StateRow("proof", held, event.block)),
            PutState(StateRow("certificate", event.cid, certificate)),
            PutState(StateRow("halted", self._state.id, halted.to_bytes())),
        )
        self._overlay.forward(EventMessage(event.block, 1, certificate), source=None)
        raise RemoteError("two certificates for one position", code=Rejection.TWO_CERTIFICATES)

    def claimed_otherwise(self, marks: Iterable[MarkState]) -> MarkState | None:
        """A mark whose CID differs from the node's under the same number; at most one a second.

        The numbers of both frontiers are equal then, so nothing else would show the difference.
        """
        if self._turn.now < self._next_claim_s:
            return None
        for mark in marks:
            held = self._frontier.cid_at(mark.publisher, mark.epoch, mark.high)
            claimed = mark.cid is not None and held not in (None, mark.cid)
            if claimed and mark.publisher not in self._equivocators:
                self._next_claim_s = self._turn.now + CLAIMS_INTERVAL_S
                return mark
        return None
