"""A Raft member: joins the consensus of one topic's sequencers to the topic and its events.

The consensus (`sequencer`) knows terms, logs and votes; the topic knows events. The member signs
and verifies, lets certified events out, and tells the consensus what the node's history holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from pulsarcast.model import trace
from pulsarcast.model.certificates import is_place_signed, make_certificate, sign_place
from pulsarcast.model.errors import Rejection, RemoteError
from pulsarcast.model.events import EventDescriptor, Position, Sequence, publish_own
from pulsarcast.model.ids import Cid, PeerId, cid_of
from pulsarcast.model.topics import check_event
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.publishing.outbox import Outbox
from pulsarcast.protocol.publishing.publisher import Publisher
from pulsarcast.protocol.publishing.request_queue import RequestQueue
from pulsarcast.protocol.sequencing.log import Entry, EntryKind, Log
from pulsarcast.protocol.sequencing.messages import Summon
from pulsarcast.protocol.sequencing.owner import Wanted
from pulsarcast.protocol.sequencing.persistent_state import PersistentState
from pulsarcast.protocol.sequencing.proposals import Proposals
from pulsarcast.protocol.sequencing.sequencer import Sequencer
from pulsarcast.protocol.topic.topic import Topic

KNOWN_MAX = 2048
"""Events in the log that are kept as verified, so that none is verified twice: bounds memory."""


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
        self.parameters = context.parameters
        self.counts = context.counts
        self.publisher = publisher
        self._known: dict[Cid, EventDescriptor] = {}
        self.versions = topic.versions
        self.sequencer = context.part(Sequencer)(
            topic.id,
            topic.versions.first.sequencers,
            context,
            self,
            saved=saved,
            log=log,
        )
        self.proposals = Proposals(context, self.sequencer)
        self.queue = RequestQueue(context, publisher, outbox, self.proposals)

    def arrived(self, event: EventDescriptor) -> None:
        """An event is in the node's history: drop it from the log, and answer its author."""
        self._known.pop(event.cid, None)
        self.sequencer.settle()
        self.proposals.arrived(event)
        self.queue.arrived(event)

    # For the consensus: the methods of `SequencerOwner`.

    def held(self) -> int:
        """The position up to which the node's history has every event."""
        return self.topic.synced_position()

    def sign(self, entry: Entry) -> bytes:
        """The node's signature under an event's place."""
        place = Position(entry.term, entry.position)
        return sign_place(self.turn.identity, self.topic.id, place, entry.cid)

    def is_signed(self, peer: PeerId, entry: Entry, signature: bytes) -> bool:
        """Whether a peer signed an event's place."""
        place = Position(entry.term, entry.position)
        return is_place_signed(peer, self.topic.id, place, entry.cid, signature)

    def request_of(self, block: bytes) -> bytes:
        """The id of the request that an event answers."""
        return self.event_of(block).request_id

    def check(self, block: bytes) -> None:
        """Refuse what is no event of this topic, or not allowed by the version that it names."""
        event = self.event_of(block)
        version = self.versions.by_cid.get(event.version)
        if version is not None:
            check_event(version, event)
        elif event.topic != self.topic.id:
            raise RemoteError("an event of another topic", code=Rejection.WRONG_TOPIC)

    def event_of(self, block: bytes) -> EventDescriptor:
        """An event under way, verified once.

        An event in the log is not checked against versions again: it came before the version that
        may forbid it, and the topic's members judge it when it leaves.
        """
        cid = cid_of(block)
        event = self._known.get(cid)
        if event is None:
            event = self._known[cid] = self.context.decode(block)
            if len(self._known) > KNOWN_MAX:
                del self._known[next(iter(self._known))]
        return event

    def certified(self, entry: Entry, signatures: dict[PeerId, bytes]) -> None:
        """An event is committed and proven: it leaves, and is replicated, at once."""
        event = self.event_of(entry.body)
        certificate = self.certificate(entry, signatures)
        self.publisher.trace_published(event, "")
        try:
            self.topic.receive(event, self.turn.me, 0, certificate)
        except RemoteError as error:
            self.context.rejected(self.turn.me, self.topic.id, error)
        self.queue.count_replicas(event)

    def certificate(self, entry: Entry, signatures: dict[PeerId, bytes]) -> bytes:
        """The proof that most sequencers have signed an event's place."""
        return make_certificate(self.signers_of(entry), signatures)

    def signers_of(self, entry: Entry) -> tuple[PeerId, ...]:
        """The sequencers by the version that an event names."""
        version = self.versions.by_cid.get(self.event_of(entry.body).version)
        return () if version is None else version.sequencers

    def wanted(self) -> Wanted:
        """The sequencers that the newest version names."""
        current = self.versions.current
        return Wanted(current.cid, current.sequencers)

    def named_by(self, version: Cid | None) -> tuple[PeerId, ...] | None:
        """The sequencers that a version names; None if the node does not know the version yet."""
        if version is None:
            return self.versions.first.sequencers
        known = self.versions.by_cid.get(version)
        return None if known is None else known.sequencers

    def is_named(self, peer: PeerId, since: Cid | None) -> bool:
        """Whether a version names a peer, from one on."""
        return peer in self.versions.named_since(since)

    def named(self) -> tuple[PeerId, ...]:
        """All sequencers that any version names."""
        return self.versions.named_since(None)

    def is_later(self, version: Cid, than: Cid | None) -> bool:
        """Whether one version comes after another, as far as the node knows both."""
        one = self.versions.by_cid.get(version)
        other = self.versions.first if than is None else self.versions.by_cid.get(than)
        return one is not None and other is not None and one.number > other.number

    def hand_over(self, term: int, position: int, parent: Cid | None, to: Cid) -> bytes | None:
        """The event by which the sequencers hand the order over to those of another version."""
        sequencers = self.sequencer.changes.sequencers_before_handover()
        version = self.versions.newest_with(sequencers)
        if version is None:
            return None
        event = publish_own(
            self.turn.identity,
            topic=self.topic.id,
            version=version.cid,
            payload=b"",
            created=self.turn.wall_us,
            nonce=self.publisher.nonce(),
            sequence=Sequence(0, position),
            parents=() if parent is None else (parent,),
            position=Position(term, position),
            hands_over_to=to,
        )
        return event.block

    def handed_over(self, entry: Entry) -> Cid | None:
        """The version whose sequencers an event hands the order over to, if it does."""
        return self.event_of(entry.body).hands_over_to

    def summon(self, peer: PeerId) -> None:
        """Tell a peer that the newest version names it."""
        if peer in self.versions.current.sequencers:
            self.turn.send(peer, Summon(self.topic.id, self.versions.current.cid))

    def removed(self) -> None:
        """A committed change of members has removed the node."""
        self.owner.remove(self.topic.id)

    def leader_changed(self) -> None:
        """There is another leader, or none."""
        sequencer = self.sequencer
        self.turn.trace(trace.LeaderChanged(self.topic.id, sequencer.term, sequencer.leader))
        self.proposals.begin(self._unpublished() if sequencer.leads else ())
        self.queue.refer_all(self.topic.id)

    def _unpublished(self) -> Iterator[EventDescriptor]:
        """The events that answer requests, and are in the log alone."""
        held = self.held()
        for _, entry in self.sequencer.log:
            if entry.kind is EntryKind.EVENT and entry.position > held:
                event = self.event_of(entry.body)
                is_known = self.topic.requests.holds(event.author, *event.request.sequence)
                if event.hands_over_to is None and not is_known:
                    yield event
