"""The node: joins the parts of the protocol, and sends every input to its part.

No clock, socket, thread or disk is in here: the same inputs and the same seed give the same
effects, in the simulator and on the wire.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from random import Random
from typing import assert_never

from pulsarcast.model import trace
from pulsarcast.model.errors import Halted, Refusal, Rejection, RemoteError
from pulsarcast.model.events import EventDescriptor, decode_event
from pulsarcast.model.identity import Identity
from pulsarcast.model.ids import Cid, PeerId, peer_key
from pulsarcast.model.mark_blocks import decode_marks
from pulsarcast.model.pointers import Named
from pulsarcast.model.reach import Reach
from pulsarcast.model.topics import DeliveryOrder, decode_topic
from pulsarcast.protocol.commands.announcing import TABLE as ANNOUNCE
from pulsarcast.protocol.commands.announcing import Announcing
from pulsarcast.protocol.commands.publications import PublishCommands
from pulsarcast.protocol.commands.reading import ReadCommands
from pulsarcast.protocol.commands.subscriptions import SubscriptionCommands
from pulsarcast.protocol.commands.topics import TopicCommands
from pulsarcast.protocol.content.content import Content
from pulsarcast.protocol.content.following import ContentTopic
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
from pulsarcast.protocol.context import NO_PARTS, Context, Parts
from pulsarcast.protocol.dht.expiry import Lifetime, event_lifetime, topic_lifetime
from pulsarcast.protocol.dht.kademlia import Kademlia
from pulsarcast.protocol.dissemination.overlay import CubeView, TreeView, size_of
from pulsarcast.protocol.dissemination.quiet_topics import QuietTopics
from pulsarcast.protocol.effects import Effect, Know, Reply, Stopped
from pulsarcast.protocol.following.descriptors import Descriptors
from pulsarcast.protocol.following.following import Following, OnDisk
from pulsarcast.protocol.following.handing_in import HandingIn
from pulsarcast.protocol.following.joiners import Joiners
from pulsarcast.protocol.following.names import TABLE as NAMES
from pulsarcast.protocol.following.names import Names
from pulsarcast.protocol.following.own_listings import OwnListings
from pulsarcast.protocol.following.renewal import Renewal
from pulsarcast.protocol.following.republishing import OWED, Republishing
from pulsarcast.protocol.history.walks import Walks
from pulsarcast.protocol.inputs import (
    Acknowledge,
    AddBootstrap,
    AddressesChanged,
    CreateTopic,
    DialledBack,
    FetchBlock,
    FindPeer,
    FindTopics,
    Halt,
    Input,
    LinkFree,
    LinkFull,
    Loaded,
    MessageReceived,
    MoveName,
    Moving,
    Now,
    PeerLost,
    PeerUp,
    Persisted,
    PersistFailed,
    Publish,
    ReadHistory,
    Relayed,
    Resolve,
    Start,
    Stop,
    Subscribe,
    SubscribeContent,
    TimerFired,
    Unsubscribe,
    UnsubscribeContent,
    UpdateTopic,
    Walk,
)
from pulsarcast.protocol.liveness import Liveness
from pulsarcast.protocol.messages import (
    Alive,
    CompareFrontiers,
    CompareKeys,
    CompareTopics,
    Contact,
    Credit,
    DialAnswer,
    DialMe,
    EventMessage,
    FetchRange,
    FetchStart,
    FindPeers,
    FrontierPage,
    HandOver,
    Join,
    JoinAccepted,
    JoinReferred,
    JoinRefused,
    KeysDiffer,
    Leave,
    Meet,
    Members,
    Message,
    Peers,
    Range,
    ReachChanged,
    RequestAnswered,
    RequestReferred,
    RequestToPublish,
    StartParts,
    Status,
)
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.publishing.fencing import EpochFencing
from pulsarcast.protocol.publishing.numbering import Numberings
from pulsarcast.protocol.publishing.outbox import Outbox
from pulsarcast.protocol.publishing.outside import OutsidePublishing
from pulsarcast.protocol.publishing.pacing import Pacing
from pulsarcast.protocol.publishing.publisher import Publisher
from pulsarcast.protocol.publishing.request_queue import PublisherRequests, RequestQueue
from pulsarcast.protocol.sequencing.intake import RequestIntake
from pulsarcast.protocol.sequencing.messages import (
    Append,
    Appended,
    RequestVote,
    Summon,
    Vote,
)
from pulsarcast.protocol.sequencing.registry import SequencerRegistry
from pulsarcast.protocol.store import RESTORED, VERSIONS, DropState
from pulsarcast.protocol.topic.followed import FollowedTopics
from pulsarcast.protocol.topic.topic import Topic
from pulsarcast.protocol.topic.work import AtWork
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
        parts: Parts = NO_PARTS,
    ) -> None:
        self.turn = Turn(identity, rng)
        self.parameters = parameters
        self.context = context = Context(self.turn, parameters, decode_event, parts)
        self.counts = context.counts
        self._halted: Refusal | None = None
        self._recent: dict[Cid, Cid] = {}
        """The topics of events that passed lately."""
        self.decode = decode_event
        self.liveness = context.part(Liveness)(self.turn, self)
        self.dht = Kademlia(context, self)
        by_content: dict[Cid, ContentTopic] = {}
        self.quiet = context.part(QuietTopics)(context)
        self.followed = context.part(FollowedTopics)(by_content, self.quiet, AtWork(self.turn))
        self.topics = self.followed.members
        self.outside = OutsidePublishing(context, self.dht)
        self.numberings = Numberings(context)
        self.fencing = EpochFencing(context, self.numberings, self.outside)
        self.publisher = context.part(Publisher)(
            context, self.dht, self.numberings, self.outside, self.followed, self
        )
        self.outbox = context.part(Outbox)(context, self.followed, self)
        self.requests = RequestQueue(
            context, self.publisher, self.outbox, PublisherRequests(self.publisher)
        )
        self.descriptors = Descriptors(context, self.dht, self.outbox, self.outside)
        self.handing_in = HandingIn(
            context, self.followed, self.descriptors, self.outside, self.fencing, self.publisher
        )
        self.renewal = Renewal(context, self.followed, self.descriptors, self)
        self.following = Following(
            context,
            self.dht,
            self.followed,
            self.descriptors,
            self.handing_in,
            self.renewal,
            self,
        )
        self.own_listings = OwnListings(context, self.dht, self.followed)
        self.names = Names(context, self.dht, self.followed, self.renewal)
        self.republishing = Republishing(
            context, self.dht, self.descriptors, self.own_listings, self.names
        )
        self.joiners = Joiners(context, self.dht, self.descriptors, self.following)
        self.content = Content(
            context,
            self.dht,
            by_content,
            self.numberings,
            self.descriptors,
            self.following,
        )
        self.sequencer_registry = SequencerRegistry(
            context, self.descriptors, self.following, self.publisher, self.outbox
        )
        self.intake = RequestIntake(
            context, self.followed, self.fencing, self.requests, self.sequencer_registry
        )
        self.announcing = Announcing(
            context, self.followed, self.dht, self.publisher, self.fencing, self.republishing
        )
        self.topic_commands = TopicCommands(
            context,
            self.following,
            self.dht,
            self.renewal,
            self.announcing,
            self.own_listings,
            self.names,
        )
        self.subscriptions = SubscriptionCommands(
            context, self.following, self.descriptors, self.content
        )
        self.walks = Walks(context, self.dht, self.descriptors, self.followed)
        self.reading = ReadCommands(context, self.following, self.dht, self.walks, self.names)
        self.publications = PublishCommands(
            context,
            self.following,
            self.descriptors,
            self.reading,
            self.fencing,
            self.publisher,
            self.outbox,
            Pacing(self.dht),
        )

    @property
    def reach(self) -> Reach:
        """Whether and how others can dial the node."""
        return self.dht.reachability.reach

    def is_listed(self, peer: PeerId) -> bool:
        """Whether a peer can be dialled directly, as far as the node knows."""
        return self.dht.reachability.is_listed(peer)

    @property
    def halted(self) -> Refusal | None:
        """Why the node does nothing until its next start, if it halted."""
        return self._halted

    def handle(self, given: Input, now: Now) -> list[Effect]:
        """Take one input, return what the driver has to do, in order."""
        turn = self.turn
        turn.now, turn.wall_us = now.mono_s, now.wall_us
        effects: list[Effect] = []
        turn.effects = effects
        if self._halted is not None:
            call = getattr(given, "call", None)
            if call is not None:
                self.reading.refuse(call, self._halted)
            return effects
        # A class that does not fit takes time, and so does taking fields out: the frequent inputs
        # come first, and give theirs by name.
        match given:
            case MessageReceived():
                self.liveness.heard(given.sender)
                self._receive(given.sender, given.message)
            case TimerFired():
                turn.fired(given.timer)
            case Loaded():
                turn.loaded(given.token, given.answer)
            case Persisted():
                turn.persisted(given.token, given.left_out)
            case PeerUp():
                self.liveness.up(given.contact.peer)
                self.dht.up(given)
            case PeerLost(peer):
                self._lost(peer)
            case Moving(peer):
                self.liveness.heard(peer)
            case LinkFull(peer):
                turn.filled(peer)
            case LinkFree(peer):
                self._freed(peer)
            case FindPeer(peer):
                self._find_peer(peer)
            case DialledBack(peer, address):
                self.dht.reachability.dialled_back(peer, address)
            case Relayed(held):
                self.dht.reachability.relayed(held)
            case AddressesChanged():
                self.dht.reachability.addresses_changed()
            case Start():
                self._start(given)
            case Stop():
                self.dht.stop()
                self.following.stop(lambda: turn.effects.append(Stopped()))
            case PersistFailed(token, reason):
                turn.persist_failed(token)
                self._halt(trace.StopReason.DISK_FAILED, f"the disk refused: {reason}")
            case Halt(reason):
                self._halt(trace.StopReason.KEY_IN_USE, reason)
            case Publish():
                self.publications.handle(given)
            case Acknowledge(cid, index):
                topic = self.followed.get(cid)
                if topic is not None:
                    topic.log.acknowledge(index)
            case AddBootstrap(call, contacts):
                self.dht.add_bootstrap(contacts, lambda: turn.effects.append(Reply(call)))
            case Subscribe() | Unsubscribe() | SubscribeContent() | UnsubscribeContent():
                self.subscriptions.handle(given)
            case CreateTopic() | UpdateTopic() | MoveName():
                self.topic_commands.handle(given)
            case FetchBlock() | Walk() | Resolve() | FindTopics() | ReadHistory():
                self.reading.handle(given)
            case _ as unreachable:
                assert_never(unreachable)
        turn.end()
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
                    topic.flow_with(sender).took_from(sender, size_of(block))
                self._check_parents(event)
                if topic is not None:
                    topic.receive_live(event, sender, hops, certificate)
                elif not hops:
                    # Handed in to a topic that the node has left.
                    self.turn.send(sender, Leave(event.topic))
            case FindPeers() | Peers() | CompareKeys() | KeysDiffer():
                # Among the first because they are frequent; the rest of the DHT's come last.
                self.dht.receive(sender, message)
            case Alive():
                self.liveness.receive(sender, message)
            case CompareTopics():
                self.quiet.receive(sender, message)
            case Credit() | Status() | Leave() | HandOver() | Meet() | Members():
                self._tell_topic(sender, message)
            case CompareFrontiers():
                topic = self.topics.get(message.topic)
                if topic is not None:
                    topic.compare_parts(sender, message)
            case FetchStart():
                topic = self.topics.get(message.topic)
                if topic is not None:
                    topic.give_start(sender, message)
            case StartParts():
                topic = self.topics.get(message.topic)
                if topic is not None:
                    topic.receive_start(sender, message)
            case FrontierPage():
                topic = self.topics.get(message.topic)
                if topic is not None:
                    topic.receive_page(sender, message)
                else:
                    self.outside.receive_page(sender, message)
                    self.walks.receive_page(sender, message)
            case FetchRange():
                topic = self.topics.get(message.topic)
                if topic is not None:
                    topic.work.sharing.serve(sender, message)
                else:
                    self.outside.serve(sender, message)
            case Range():
                topic = self.topics.get(message.topic)
                if not self.walks.receive_range(sender, message) and topic is not None:
                    topic.work.recovery.receive(sender, message)
            case Join():
                self.joiners.receive_join(sender, message)
            case JoinAccepted() | JoinReferred() | JoinRefused():
                self._answer_joiner(sender, message)
            case RequestToPublish():
                self.intake.receive(sender, message)
            case RequestAnswered() | RequestReferred():
                self.outbox.receive(sender, message)
            case RequestVote() | Vote() | Append() | Appended():
                self.sequencer_registry.receive(sender, message)
            case Summon(cid, version):
                self.sequencer_registry.summoned(cid, version)
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
            case DialMe() | DialAnswer() | ReachChanged():
                self.dht.reachability.receive(sender, message)
            case _:
                self.dht.receive(sender, message)

    def _check_parents(self, event: EventDescriptor) -> None:
        """Refuse an event with a parent of another topic, as far as parents passed lately."""
        recent = self._recent
        for parent in event.parents:
            if recent.get(parent, event.topic) != event.topic:
                raise RemoteError("a parent of another topic", code=Rejection.FOREIGN_PARENT)
        recent[event.cid] = event.topic
        if len(recent) > RECENT_MAX:
            del recent[next(iter(recent))]

    def _tell_topic(
        self, sender: PeerId, message: Credit | Status | Leave | HandOver | Meet | Members
    ) -> None:
        topic = self.topics.get(message.topic)
        if topic is None:
            if isinstance(message, Meet) or (isinstance(message, Status) and message.answer):
                # The peer takes the node for a neighbour in a topic that the node has left.
                self.turn.send(sender, Leave(message.topic))
            elif isinstance(message, Leave):
                self.outside.turned_away(sender, message.topic)
            return
        match message:
            case Credit():
                topic.work.flow.receive(sender, message)
            case Status():
                topic.heartbeat.receive(sender, message)
            case Leave():
                topic.heartbeat.gone(sender)
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
        self.walks.answer_joiner(sender, message)
        match message:
            case JoinAccepted():
                self.outside.accepted(sender, message)
                self.content.accepted(sender, message)
            case JoinReferred():
                self.outside.referred(sender, message)
                self.content.referred(sender, message)
            case JoinRefused():
                pass  # The node is no member; a timer tries the other searches again.
            case _ as unreachable:
                assert_never(unreachable)

    def _freed(self, peer: PeerId) -> None:
        self.turn.freed(peer)
        for topic in self.followed.at_work:
            topic.freed(peer)

    def _lost(self, peer: PeerId) -> None:
        self.turn.full.pop(peer, None)
        self.liveness.lost(peer)
        self.dht.lost(peer)
        self.outside.lost(peer)
        self.fencing.lost(peer)
        self.outbox.lost(peer)
        self.content.lost(peer)
        self.walks.lost(peer)
        for topic in list(self.topics.values()):
            topic.lost(peer)
        self.quiet.lost(peer)

    # Silent peers.

    def watched(self) -> Iterable[PeerId]:
        """The peers that the node's topics rely on, but for those that sleep."""
        # A list, and not made piece by piece: asked of every node more than once a second.
        watched: list[PeerId] = []
        for cid in self.quiet.awake:
            topic = self.topics[cid]
            watched += topic.overlay.watched()
            watched += topic.heartbeat.watched()
        watched += self.outbox.watched()
        return watched

    def relied_on(self) -> Iterable[PeerId]:
        """The peers that serve the node's topics, but for those that sleep.

        Not its children, which it serves, and not lazy neighbours: any stranger can become one.
        """
        for cid in self.quiet.awake:
            upstream = self.topics[cid].overlay.upstream
            if upstream is not None:
                yield upstream
        yield from self.outbox.watched()

    def neighbours(self) -> Iterable[PeerId]:
        """The neighbours in the node's topics, but for those that sleep."""
        for cid in self.quiet.awake:
            yield from self.topics[cid].overlay.links
            yield from self.topics[cid].heartbeat.lazy

    def watched_asleep(self) -> Iterable[PeerId]:
        """The peers that the node's sleeping topics rely on."""
        return self.quiet.watched()

    def fell_silent(self, peer: PeerId) -> None:
        """A connected peer is suspected: go round it."""
        self.dht.fell_silent(peer)
        self.outside.lost(peer)
        self.outbox.lost(peer)
        self.walks.lost(peer)
        for topic in list(self.topics.values()):
            topic.fell_silent(peer)

    def spoke_again(self, peer: PeerId) -> None:
        """A suspected peer is alive."""
        self.dht.spoke_again(peer)
        for topic in list(self.topics.values()):
            topic.overlay.spoke_again(peer)

    def gave_up(self, peer: PeerId) -> None:
        """The connection to a suspected peer is closed: the driver does not say so."""
        self._lost(peer)

    def _find_peer(self, wanted: PeerId) -> None:
        def found(contacts: list[Contact]) -> None:
            there = [each for each in contacts if each.peer == wanted and each.addresses]
            self.turn.effects.append(Know(there[0] if there else Contact(wanted)))

        self.dht.lookup(peer_key(wanted), found)

    def _halt(self, reason: trace.StopReason, message: str) -> None:
        """Trace why, and do nothing until the next start.

        After a failed write, memory is ahead of the disk: a node that went on would acknowledge
        what it does not have, or give a number twice.
        """
        self._halted = Halted(message).refusal
        self.turn.trace(trace.NodeStopped(reason))

    # Starting.

    def _start(self, given: Start) -> None:
        self.turn.trace(trace.NodeStarted())
        disk = OnDisk.read(given)
        self.fencing.begin()
        for key, value in disk.rows("numbering").items():
            self.fencing.load(Cid(key), value)
        self.dht.start(given.contacts, given.rows, given.reach, given.known)
        self.descriptors.restore(disk.rows(VERSIONS).values())
        self.names.restore(disk.rows(NAMES).values())
        asked = disk.rows("asked")
        disk_was_restored = RESTORED.table in disk.tables
        if disk_was_restored:
            self.fencing.disk_was_restored(self._is_total)
            # The restored numbers of requests may be used already.
            self.turn.persist(*(DropState("asked", key) for key in asked))
        else:
            for key, value in asked.items():
                self.outbox.restore_number(Cid(key), value)
        self.sequencer_registry.load(disk.tables, disk_was_restored=disk_was_restored)
        self.content.restore(disk)
        self.following.restore(disk)
        self.content.resume()
        self.outbox.resume(list(disk.rows("outbox").values()), self.descriptors.current)
        for block in disk.rows("offer").values():
            self.handing_in.offer_again(decode_event(block))
        self.announcing.resume(Cid(key) for key in disk.rows(ANNOUNCE))
        self.descriptors.trim()
        self.liveness.start()
        self.republishing.start(disk.rows(OWED))
        self.own_listings.start()
        if disk_was_restored:
            self.names.renew_soon()
            self.fencing.clear_restored_flag()

    def _is_total(self, topic: Cid) -> bool:
        descriptor = self.descriptors.current(topic)
        return descriptor is not None and descriptor.delivery_order is DeliveryOrder.TOTAL

    # What parts report: who else hears of it.

    def own_reach_changed(self) -> None:
        """The node ranks differently among the peers that may act as root."""
        for topic in list(self.topics.values()):
            topic.overlay.reach_changed(self.turn.me)

    def reach_changed(self, contact: Contact) -> None:
        """A connected peer ranks differently."""
        for topic in list(self.topics.values()):
            topic.overlay.reach_changed(contact.peer)

    def ask_self(self, message: RequestToPublish) -> None:
        """A request of this node is for this node: it is one of the topic's sequencers."""
        self.intake.receive(self.turn.me, message)

    def published(self, event: EventDescriptor) -> None:
        """An own event is on the disk: the topic may route it by content."""
        self.content.publish(event)

    def opened(self, topic: Topic) -> None:
        """The node joins a topic, perhaps as one of its sequencers."""
        self.sequencer_registry.open(topic)

    def closed(self, topic: Cid) -> None:
        """The node is out of a topic, or leaves it because it stops."""
        self.sequencer_registry.close(topic)

    def left(self, topic: Cid) -> None:
        """The node has left a topic for good."""
        self.requests.forget(topic)

    def arrived(self, topic: Topic, event: EventDescriptor) -> None:
        """An event is on the disk: requests may have waited for it."""
        self.requests.advance(topic)
        self.sequencer_registry.arrived(topic.id, event)

    def renewed(self, topic: Topic) -> None:
        """A followed topic has another version, perhaps with other sub-topics or sequencers."""
        self.following.follow_links(topic)
        self.sequencer_registry.renewed(topic)

    # What the DHT keeps for others.

    def shown_own_name(self, named: Named) -> None:
        """A keeper shows pointers with the node's own signature: they may clash."""
        self.names.learn(named)

    def verify_block(self, block: bytes) -> tuple[Cid, Lifetime]:
        """A replica keeps events, topics and their marks, whole and signed, and nothing else."""
        try:
            event = self.decode(block)
            return event.cid, event_lifetime(event, self.parameters)
        except RemoteError as not_an_event:
            for decode in (decode_topic, decode_marks):
                with suppress(RemoteError):
                    found = decode(block)
                    return found.cid, topic_lifetime(found, self.parameters)
            raise not_an_event from None

    def stored_block(self, block: bytes, sender: PeerId) -> None:
        """The node keeps a new replica: hand the event in, in case its topic lacks it."""
        try:
            event = self.decode(block)
        except RemoteError:
            return
        self.handing_in.hand_in(event, sender)

    # For checkers and operators.

    def trees(self) -> dict[Cid, TreeView]:
        """The node's place in every tree."""
        views = {topic.id: topic.view() for topic in self.topics.values()}
        return {cid: view for cid, view in views.items() if isinstance(view, TreeView)}

    def is_starved(self, topic: Topic) -> bool:
        """Whether the node has no neighbour in a topic, and none will come by itself.

        It has no place yet, or it is the root and no peer can dial it. An author that does not know
        its reach yet waits for its first members.
        """
        overlay = topic.overlay
        if overlay.upstream is not None or overlay.children:
            return False
        if not overlay.attached:
            return True
        if topic.versions.first.root_peer == self.turn.me:
            return self.reach in (Reach.PRIVATE, Reach.RELAYED)
        return self.reach is not Reach.PUBLIC

    def cubes(self) -> dict[Cid, CubeView]:
        """What the node knows of every cube."""
        views = {topic.id: topic.view() for topic in self.topics.values()}
        return {cid: view for cid, view in views.items() if isinstance(view, CubeView)}

    def footprint(self) -> dict[str, int]:
        """How much is in memory, by kind."""
        total = {
            "topics": len(self.topics),
            "outbox": len(self.outbox),
            "requests": len(self.requests) + self.sequencer_registry.request_count,
            "sequencer_entries": self.sequencer_registry.entry_count,
            "offers": len(self.outside),
            "numberings": len(self.numberings),
            "descriptors": len(self.descriptors),
            "names": len(self.names),
            "subtopics": len(self.following.below),
            "walks": len(self.walks),
            "joined_by_way": len(self.joiners),
            **self.turn.footprint(),
            **self.liveness.footprint(),
            **self.quiet.footprint(),
            **self.dht.footprint(),
            **self.content.footprint(),
        }
        for topic in self.topics.values():
            for kind, count in topic.footprint().items():
                total[kind] = total.get(kind, 0) + count
        return total
