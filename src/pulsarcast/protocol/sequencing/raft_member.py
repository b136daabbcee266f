"""A Raft member: joins the consensus of one topic's sequencers to the topic and its events.

The consensus (`sequencer`) knows terms, logs and votes; the topic knows events. The member lets
certified events out, and tells the consensus what arrived in the node's history.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from pulsarcast.model import trace
from pulsarcast.model.certificates import make_certificate
from pulsarcast.model.errors import RemoteError
from pulsarcast.model.events import EventDescriptor, Position, Sequence, publish_own
from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.publishing.outbox import Outbox
from pulsarcast.protocol.publishing.publisher import Publisher
from pulsarcast.protocol.publishing.request_queue import RequestQueue
from pulsarcast.protocol.sequencing.events import EventsUnderWay
from pulsarcast.protocol.sequencing.log import Entry, EntryKind, Log, Place
from pulsarcast.protocol.sequencing.messages import Summon
from pulsarcast.protocol.sequencing.proposals import Proposals
from pulsarcast.protocol.sequencing.sequencer import Sequencer
from pulsarcast.protocol.sequencing.state import PersistentState, SequencerState
from pulsarcast.protocol.topic.topic import Topic


class RaftMemberOwner(Protocol):
    """What a Raft member asks of the registry that it belongs to."""

    def remove(self, topic: Cid) -> None:
        """A committed change of members has removed the node."""


class RaftMember:
    """The node as a sequencer of one topic."""

    def __init__(
        self,
        context: Context,
        topic: Topic,
        publisher: Publisher,
        outbox: Outbox,
        owner: RaftMemberOwner,
        *,
        saved: PersistentState | None = None,
        log: Log | None = None,
    ) -> None:
        self.owner = owner
        self.topic = topic
        self.context = context
        self.turn = context.turn
        self.publisher = publisher
        self.versions = topic.versions
        self.events = EventsUnderWay(context, topic)
        state = SequencerState(context, topic.id, topic.versions, self.events, saved=saved, log=log)
        self.sequencer = context.part(Sequencer)(context, state, self)
        self.proposals = Proposals(context, self.sequencer)
        self.queue = RequestQueue(context, publisher, outbox, self.proposals)

    def arrived(self, event: EventDescriptor) -> None:
        """An event is in the node's history: drop it from the log, and answer its author."""
        self.events.arrived(event)
        self.sequencer.settle()
        self.proposals.arrived(event)
        self.queue.arrived(event)

    # What the consensus tells.

    def certified(self, entry: Entry, signatures: dict[PeerId, bytes]) -> None:
        """An event is committed and proven: it leaves, and is replicated, at once."""
        event = self.events.event_of(entry.body)
        certificate = self.certificate(entry, signatures)
        self.publisher.trace_published(event, "")
        try:
            self.topic.receive(event, self.turn.me, 0, certificate)
        except RemoteError as error:
            self.context.rejected(self.turn.me, self.topic.id, error)
        self.queue.count_replicas(event)

    def certificate(self, entry: Entry, signatures: dict[PeerId, bytes]) -> bytes:
        """The proof that most sequencers have signed an event's place."""
        return make_certificate(self.events.signers_of(entry), signatures)

    def hand_over(self, place: Place, outgoing: tuple[PeerId, ...], to: Cid) -> bytes | None:
        """The event by which sequencers hand the order over to those of another version."""
        version = self.versions.newest_with(outgoing)
        if version is None:
            return None
        event = publish_own(
            self.turn.identity,
            topic=self.topic.id,
            version=version.cid,
            payload=b"",
            created=self.turn.wall_us,
            nonce=self.publisher.nonce(),
            sequence=Sequence(0, place.position),
            parents=() if place.parent is None else (place.parent,),
            position=Position(place.term, place.position),
            hands_over_to=to,
        )
        return event.block

    def summon(self, peer: PeerId) -> None:
        """Tell a peer that the newest version names it."""
        if peer in self.versions.current.sequencers:
            self.turn.send(peer, Summon(self.topic.id, self.versions.current.cid))

    def removed(self) -> None:
        """A committed change of members has removed the node."""
        self.owner.remove(self.topic.id)

    def leader_changed(self) -> None:
        """There is another leader, or none."""
        state = self.sequencer.state
        self.turn.trace(trace.LeaderChanged(self.topic.id, state.term, state.leader))
        self.proposals.begin(self._unpublished() if state.leads else ())
        self.queue.refer_all(self.topic.id)

    def _unpublished(self) -> Iterator[EventDescriptor]:
        """The events that answer requests, and are in the log alone."""
        held = self.events.held()
        for _, entry in self.sequencer.log:
            if entry.kind is EntryKind.EVENT and entry.position > held:
                event = self.events.event_of(entry.body)
                is_known = self.topic.requests.holds(event.author, *event.request.sequence)
                if event.hands_over_to is None and not is_known:
                    yield event
