"""The node: every part of the protocol behind one `handle` (design 4).

No clock, socket, thread or disk is in here: the same inputs and the same seed give the same
effects, in the simulator and on the wire.
"""

from collections.abc import Callable
from random import Random
from typing import assert_never

from pulsarcast.model import trace
from pulsarcast.model.errors import RemoteError
from pulsarcast.model.events import EventDescriptor, decode_event
from pulsarcast.model.identity import Identity
from pulsarcast.model.ids import Cid, PeerId, peer_key
from pulsarcast.model.topics import DeliveryOrder, decode_topic
from pulsarcast.protocol.commands import Commands
from pulsarcast.protocol.content.content import Content
from pulsarcast.protocol.content.messages import (
    AskShape,
    CompareContent,
    ContentCompared,
    Installed,
    MatchedEvent,
    PlaceState,
    PlaceSubscription,
    PlaceTaken,
    ProbeEvent,
    TreeHint,
    TreeShape,
)
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.dht.expiry import Lifetime, event_lifetime, topic_lifetime
from pulsarcast.protocol.dht.kademlia import Kademlia
from pulsarcast.protocol.dissemination.overlay import CubeView, TreeView
from pulsarcast.protocol.effects import Effect, Know, Stopped
from pulsarcast.protocol.following.descriptors import Descriptors
from pulsarcast.protocol.following.following import Following
from pulsarcast.protocol.following.handing_in import HandingIn
from pulsarcast.protocol.following.joiners import Joiners
from pulsarcast.protocol.following.prolonging import Prolonging
from pulsarcast.protocol.following.renewal import Renewal
from pulsarcast.protocol.inputs import (
    FindPeer,
    Halt,
    Input,
    Loaded,
    MessageReceived,
    Now,
    PeerLost,
    PeerUp,
    Persisted,
    PersistFailed,
    Start,
    Stop,
    TimerFired,
)
from pulsarcast.protocol.messages import (
    Contact,
    Credit,
    EventMessage,
    FetchRange,
    FrontierPage,
    HandOver,
    Join,
    JoinAccepted,
    JoinReferred,
    JoinRefused,
    Leave,
    Meet,
    Members,
    Message,
    Range,
    RequestAnswered,
    RequestReferred,
    RequestToPublish,
    Status,
)
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.publishing.doubts import Doubts
from pulsarcast.protocol.publishing.numbering import Numberings
from pulsarcast.protocol.publishing.outbox import Outbox
from pulsarcast.protocol.publishing.outside import OutsidePublishing
from pulsarcast.protocol.publishing.publisher import Publisher
from pulsarcast.protocol.publishing.request_desk import RequestDesk
from pulsarcast.protocol.sequencing.messages import (
    Append,
    Appended,
    AskVote,
    Summon,
    Vote,
)
from pulsarcast.protocol.sequencing.seats import Seats
from pulsarcast.protocol.store import RESTORED, DropState
from pulsarcast.protocol.turn import Turn

RECENT_MAX = 1024


class Node:
    """One peer of the network, without its body."""

    def __init__(
        self,
        identity: Identity,
        rng: Random,
        parameters: Parameters,
        *,
        decode_event: Callable[[bytes], EventDescriptor] = decode_event,
    ) -> None:
        self.turn = Turn(identity, rng)
        self.parameters = parameters
        self.context = context = Context(self.turn, parameters, decode_event)
        self.counts = context.counts
        self._halted: str | None = None
        self._recent: dict[Cid, Cid] = {}
        """The topics of the events that passed through us lately."""
        self.decode = decode_event
        self.dht = Kademlia(context, verify_block=self._verify_block, stored=self._stored)
        self.outside = OutsidePublishing(context, self.dht)
        self.numberings = Numberings(context)
        self.doubts = Doubts(context, self.numberings, self.outside)
        self.publisher = Publisher(context, self.dht, self.numberings, self.outside)
        self.outbox = Outbox(context, ask_self=self._ask_self)
        self.desk = RequestDesk(context, self.publisher)
        self.descriptors = Descriptors(context, self.dht, in_use=self._has_yet_to_say)
        self.content = Content(self)
        self.publisher.published = self.content.publish
        self.publisher.mark_outside = self.content.mark_outside
        self.publisher.barrier_outside = self.content.barrier
        self.outbox.barrier_outside = self.content.barrier
        self.following = Following(self)
        self.renewal = Renewal(self)
        self.prolonging = Prolonging(self)
        self.joiners = Joiners(self)
        self.handing_in = HandingIn(self)
        self.seats = Seats(self)
        self.commands = Commands(self)
        self.topics = self.following.topics

    @property
    def halted(self) -> str | None:
        """Why we have fallen silent until a new start, where we have."""
        return self._halted

    def handle(self, given: Input, now: Now) -> list[Effect]:
        """Take one input, return what the driver has to do, in order."""
        turn = self.turn
        turn.now, turn.wall_us = now.mono_s, now.wall_us
        effects: list[Effect] = []
        turn.effects = effects
        if self._halted is not None:
            self.commands.refuse_all(given, self._halted)
            return effects
        match given:
            case MessageReceived(sender, message):
                self._receive(sender, message)
            case Persisted(token):
                turn.persisted(token)
            case TimerFired(timer):
                turn.fired(timer)
            case Loaded(token, answer):
                turn.loaded(token, answer)
            case PeerUp(contact):
                self.dht.saw(contact)
            case PeerLost(peer):
                self._lost(peer)
            case FindPeer(peer):
                self._find_peer(peer)
            case Start():
                self._start(given)
            case Stop():
                self.following.stop(lambda: turn.effects.append(Stopped()))
            case PersistFailed(token, reason):
                turn.persist_failed(token)
                self._halt(f"the disk refused: {reason}")
            case Halt(reason):
                self._halt(reason)
            case _:
                self.commands.handle(given)
        return effects

    # What peers say.

    def _receive(self, sender: PeerId, message: Message) -> None:
        try:
            self._dispatch(sender, message)
        except RemoteError as error:
            self.context.rejected(sender, None, error)

    def _dispatch(self, sender: PeerId, message: Message) -> None:
        match message:
            case EventMessage(block, hops, certificate):
                event = self.decode(block)
                topic = self.topics.get(event.topic)
                if topic is not None and hops:
                    topic.arrivals.count(sender)
                self._check_parents(event)
                if topic is not None:
                    topic.arrivals.receive_live(event, sender, hops, certificate)
                elif not hops:
                    # Handed in to a topic that we have left.
                    self.turn.send(sender, Leave(event.topic))
            case Credit() | Status() | Leave() | HandOver() | Meet() | Members():
                self._tell_topic(sender, message)
            case FrontierPage():
                topic = self.topics.get(message.topic)
                if topic is not None:
                    topic.receive_page(sender, message)
                else:
                    self.outside.receive_page(sender, message)
            case FetchRange():
                topic = self.topics.get(message.topic)
                if topic is not None:
                    topic.sharing.serve(sender, message)
                else:
                    self.outside.serve(sender, message)
            case Range():
                topic = self.topics.get(message.topic)
                if topic is not None:
                    topic.recovery.receive(sender, message)
            case Join():
                self.joiners.receive_join(sender, message)
            case JoinAccepted() | JoinReferred() | JoinRefused():
                self._answer_joiner(sender, message)
            case RequestToPublish():
                self.commands.receive_request(sender, message)
            case RequestAnswered() | RequestReferred():
                self.outbox.receive(sender, message)
            case AskVote() | Vote() | Append() | Appended():
                self.seats.receive(sender, message)
            case Summon(cid, version):
                self.seats.summoned(cid, version)
            case (
                ProbeEvent()
                | MatchedEvent()
                | PlaceSubscription()
                | Installed()
                | PlaceState()
                | PlaceTaken()
                | TreeHint()
                | AskShape()
                | TreeShape()
                | CompareContent()
                | ContentCompared()
            ):
                self.content.receive(sender, message)
            case _:
                self.dht.receive(sender, message)

    def _check_parents(self, event: EventDescriptor) -> None:
        """An event's parents are of its own topic, as far as we saw them lately."""
        recent = self._recent
        for parent in event.parents:
            if recent.get(parent, event.topic) != event.topic:
                raise RemoteError("a parent of another topic")
        recent[event.cid] = event.topic
        if len(recent) > RECENT_MAX:
            del recent[next(iter(recent))]

    def hear(self, message: RequestAnswered | RequestReferred) -> None:
        """What we say to ourselves: one of our own requests is answered."""
        self.outbox.receive(self.turn.me, message)

    def _tell_topic(
        self, sender: PeerId, message: Credit | Status | Leave | HandOver | Meet | Members
    ) -> None:
        topic = self.topics.get(message.topic)
        if topic is None:
            if isinstance(message, Meet) or (isinstance(message, Status) and message.answer):
                # It takes us for a neighbour of a topic that we have left.
                self.turn.send(sender, Leave(message.topic))
            elif isinstance(message, Leave):
                self.outside.turned_away(sender, message.topic)
            return
        match message:
            case Credit():
                topic.flow.receive(sender, message)
            case Status():
                topic.heartbeat.receive(sender, message)
            case Leave():
                topic.heartbeat.lost(sender)
                topic.overlay.receive(sender, message)
            case HandOver() | Meet() | Members():
                topic.overlay.receive(sender, message)
            case _ as unreachable:
                assert_never(unreachable)

    def _answer_joiner(
        self, sender: PeerId, message: JoinAccepted | JoinReferred | JoinRefused
    ) -> None:
        topic = self.topics.get(message.topic)
        if topic is not None:
            topic.overlay.receive(sender, message)
            return
        match message:
            case JoinAccepted():
                self.outside.accepted(sender, message)
                self.content.accepted(sender, message)
            case JoinReferred():
                self.outside.referred(sender, message)
                self.content.referred(sender, message)
            case JoinRefused():
                pass  # we are no member: the timer of what we hand in, or compare, tries again
            case _ as unreachable:
                assert_never(unreachable)

    def _lost(self, peer: PeerId) -> None:
        self.dht.lost(peer)
        self.outside.lost(peer)
        self.doubts.lost(peer)
        self.outbox.lost(peer)
        self.content.lost(peer)
        for topic in list(self.topics.values()):
            topic.lost(peer)

    def _find_peer(self, wanted: PeerId) -> None:
        def found(contacts: list[Contact]) -> None:
            there = [each for each in contacts if each.peer == wanted and each.addresses]
            self.turn.effects.append(Know(there[0] if there else Contact(wanted)))

        self.dht.lookup(peer_key(wanted), found)

    def _halt(self, reason: str) -> None:
        """We can promise nothing any more: say so, and fall silent until a new start.

        Where the disk refused, what we hold in memory is ahead of it: going on would acknowledge
        what we do not have, or give a number twice.
        """
        self._halted = reason
        self.turn.trace(trace.NodeStopped(reason))

    # Starting.

    def _start(self, given: Start) -> None:
        self.turn.trace(trace.NodeStarted())
        tables: dict[str, dict[bytes, bytes]] = {}
        for row in given.rows:
            tables.setdefault(row.table, {})[row.key] = row.value
        self.doubts.begin()
        for key, value in tables.get("numbering", {}).items():
            self.doubts.restore(Cid(key), value)
        self.dht.start(given.contacts, given.rows)
        self.descriptors.restore(tables.get("topic", {}).values())
        asked = tables.get("asked", {})
        is_restored = RESTORED.table in tables
        if is_restored:
            self.doubts.came_back(self._is_total)
            # The numbers of our requests may be used as well.
            self.turn.persist(*(DropState("asked", key) for key in asked))
        else:
            for key, value in asked.items():
                self.outbox.restore_number(Cid(key), value)
        self.seats.restore(tables, is_restored=is_restored)
        self.following.restore(given, tables)
        self.outbox.resume(list(tables.get("outbox", {}).values()), self.descriptors.current)
        for block in tables.get("offer", {}).values():
            self.handing_in.offer_again(decode_event(block))
        self.descriptors.trim()
        self.prolonging.start()
        if is_restored:
            self.doubts.saw_to_all()

    def _is_total(self, topic: Cid) -> bool:
        descriptor = self.descriptors.current(topic)
        return descriptor is not None and descriptor.delivery_order is DeliveryOrder.TOTAL

    def _ask_self(self, message: RequestToPublish) -> None:
        """A request of ours, where we are a sequencer ourselves."""
        self.commands.receive_request(self.turn.me, message)

    def _has_yet_to_say(self, topic: Cid) -> bool:
        """Whether we have something for a topic that nobody took from us yet."""
        return self.outbox.has(topic) or self.outside.has_own(topic)

    # What the DHT keeps for others.

    def _verify_block(self, block: bytes) -> tuple[Cid, Lifetime]:
        """A replica keeps events and topics that are whole and signed, and nothing else."""
        try:
            event = self.decode(block)
            return event.cid, event_lifetime(event, self.parameters)
        except RemoteError as not_an_event:
            try:
                version = decode_topic(block)
                return version.cid, topic_lifetime(version, self.parameters)
            except RemoteError:
                raise not_an_event from None

    def _stored(self, cid: Cid, block: bytes, sender: PeerId) -> None:
        """We keep a new replica: see to it that its topic gets the event."""
        try:
            event = self.decode(block)
        except RemoteError:
            return
        self.handing_in.hand_in(event, sender)

    # For checkers and operators.

    def trees(self) -> dict[Cid, TreeView]:
        """Our place in every tree."""
        views = {topic.id: topic.view() for topic in self.topics.values()}
        return {cid: view for cid, view in views.items() if isinstance(view, TreeView)}

    def cubes(self) -> dict[Cid, CubeView]:
        """What we know of every cube."""
        views = {topic.id: topic.view() for topic in self.topics.values()}
        return {cid: view for cid, view in views.items() if isinstance(view, CubeView)}

    def footprint(self) -> dict[str, int]:
        """How much is in memory, by kind."""
        total = {
            "topics": len(self.topics),
            "outbox": len(self.outbox),
            "requests": len(self.desk) + len(self.seats),
            "sequencer_entries": self.seats.entries,
            "offers": len(self.outside),
            "numberings": len(self.numberings),
            "descriptors": len(self.descriptors),
            **self.turn.footprint(),
            **self.dht.footprint(),
            **self.content.footprint(),
        }
        for topic in self.topics.values():
            for kind, count in topic.footprint().items():
                total[kind] = total.get(kind, 0) + count
        return total
