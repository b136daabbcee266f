"""Two events with one number: equivocation (docs/spec/pulsarcast.md, Receive).

One proof of each liar is kept, and both events are shown to their publisher: two nodes may have its
key and not know it (0014). Where several sequencers agree on the order, two certificates for one
position halt the topic. Sequencers crash and do not lie; where they did, going on would hide it.
"""

from collections.abc import Iterable
from typing import Protocol

from pulsarcast.model.certificates import check_certificate
from pulsarcast.model.errors import Rejection, RemoteError
from pulsarcast.model.events import EventDescriptor
from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.protocol.dissemination.overlay import Overlay
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

LIARS_MAX = 1024
"""Publishers of a topic of whose lies we keep a proof."""
CLAIMS_INTERVAL_S = 1.0
"""How often at most we look at what a peer claims to have instead of what we have."""


class OwnEvents(Protocol):
    """Asked of those who keep our own numberings."""

    def saw_own_number_twice(self, event: EventDescriptor) -> None:
        """An event that our key signed has the number of another one."""


class Equivocation:
    """Knows one topic's events by their numbers, and proves where two have the same."""

    def __init__(self, state: TopicState, overlay: Overlay, own: OwnEvents) -> None:
        self._state = state
        self._turn = state.context.turn
        self._versions = state.versions
        self._frontier = state.frontier
        self._ordering = state.ordering
        self._overlay = overlay
        self._own = own
        self._liars: dict[PeerId, None] = {}
        self._comparing = False
        self._next_claim_s = 0.0

    def knows(self, event: EventDescriptor, certificate: bytes) -> bool:
        """Whether we had this number before; another event under the same number is a proof."""
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
        """The frontier no longer knows what stood under an older number; our disk may.

        One question at a time: replays would else keep the disk busy.
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
        """One proof of each liar is enough: it could make as many as it has numbers."""
        if self._state.is_sequenced:
            self.halt(event, held, certificate)
        if event.publisher not in self._liars and len(self._liars) < LIARS_MAX:
            self._liars[event.publisher] = None
            self._turn.persist(PutState(StateRow("proof", held, event.block)))
            self._confront(event, held)
        if event.publisher == self._turn.me:
            self._own.saw_own_number_twice(event)
        raise RemoteError("two events with one number", code=Rejection.EQUIVOCATION)

    def _confront(self, event: EventDescriptor, held: Cid) -> None:
        """Show both events to their publisher.

        Neither of two nodes with its key would hear of the other's event by itself: whoever has one
        does not pass on the other.
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
            # Of two lists one was replaced: what it signs beyond its end stops nothing.
            raise RemoteError(
                "certified by sequencers that do not count there", code=Rejection.BAD_CERTIFICATE
            )
        self._state.halted = halted = TwoCertificates(event.sequence.number, held, event.cid)
        self._turn.persist(
            PutState(StateRow("proof", held, event.block)),
            PutState(StateRow("certificate", event.cid, certificate)),
            PutState(StateRow("halted", self._state.id, halted.to_bytes())),
        )
        self._overlay.forward(EventMessage(event.block, 1, certificate), source=None)
        raise RemoteError("two certificates for one position", code=Rejection.TWO_CERTIFICATES)

    def claimed_otherwise(self, marks: Iterable[MarkState]) -> MarkState | None:
        """A peer has another event than we under one number: now and then, see for ourselves.

        Frontiers are alike then, so nothing else would show it.
        """
        if self._turn.now < self._next_claim_s:
            return None
        for mark in marks:
            held = self._frontier.cid_at(mark.publisher, mark.epoch, mark.high)
            claimed = mark.cid is not None and held not in (None, mark.cid)
            if claimed and mark.publisher not in self._liars:
                self._next_claim_s = self._turn.now + CLAIMS_INTERVAL_S
                return mark
        return None
