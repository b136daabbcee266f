"""A followed topic: where its parts meet (design 6).

An event that arrives is known by its number, judged by the topic's version, passed on as the same
bytes, held back until its turn, put on the disk, and only then delivered. So whatever was delivered
is on our disk, and a redelivery after a crash can be marked as one.
"""

from collections.abc import Callable, Iterable
from typing import Protocol

from pulsarcast.model import trace
from pulsarcast.model.certificates import check_certificate
from pulsarcast.model.errors import RemoteError, Verdict
from pulsarcast.model.events import EventDescriptor
from pulsarcast.model.ids import Cid, PeerId, cid_text, order_of
from pulsarcast.model.topic_types import Mark
from pulsarcast.model.topics import DeliveryOrder, Dissemination, TopicDescriptor
from pulsarcast.protocol.barrier import CausalBarrier
from pulsarcast.protocol.causality import CausalOrdering
from pulsarcast.protocol.dht.kademlia import Kademlia
from pulsarcast.protocol.dissemination.cube import DisseminationCube
from pulsarcast.protocol.dissemination.cube_heartbeat import CubeHeartbeat
from pulsarcast.protocol.dissemination.overlay import (
    Conversation,
    CubeView,
    Link,
    Overlay,
    TreeView,
)
from pulsarcast.protocol.dissemination.tree import DisseminationTree
from pulsarcast.protocol.effects import Deliver
from pulsarcast.protocol.frontier import BEYOND_MAX, Frontier
from pulsarcast.protocol.heartbeat import Heartbeat
from pulsarcast.protocol.messages import (
    Contact,
    Credit,
    EventMessage,
    FetchRange,
    FrontierPage,
    Range,
)
from pulsarcast.protocol.ordering import Ordering
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.recovery import Recovery
from pulsarcast.protocol.store import (
    Block,
    DropEvents,
    Events,
    LoadBlock,
    LoadLog,
    LoadNumbers,
    LoadOldest,
    MarkState,
    Oldest,
    PutEvent,
    PutMark,
    PutState,
    StateRow,
    Write,
)
from pulsarcast.protocol.turn import Turn
from pulsarcast.protocol.versions import Versions

PARKED_MAX = 64
"""Events that wait for a topic version which we do not know yet."""
HOPS_MAX = 255
"""Hops are counted up to here; they are nobody's proof of anything."""
START_MARKS_MAX = 65_536
"""Publishers of a topic that a new subscriber takes from its parent."""
VISITOR_MARKS_MAX = 64
"""Numberings that a peer which is no neighbour can make us compare at a time."""
LIARS_MAX = 1024
"""Publishers of a topic of whose lies we keep a proof."""
REPLAY_PAGE = 128
COMPARE_INTERVAL_S = 1.0
"""How often at most we show one peer our whole frontier."""
REQUEST_GAPS_MAX = 1024
"""Requests of one author published after one that is missing, before that counts as given up."""
UNSYNCED_MAX = 4096
"""Events on their way to the disk; beyond this we give neighbours no more credit."""


class TopicOwner(Protocol):
    """What a topic asks of the node that it belongs to."""

    def decode(self, block: bytes) -> EventDescriptor: ...

    def started(self, topic: "Topic") -> None:
        """The subscription has its start frontier."""

    def recalled(self, topic: "Topic") -> None:
        """After a restart, we know again which event we saw last."""

    def stopped(self, topic: "Topic") -> None:
        """We are out of its tree or cube."""

    def arrived(self, topic: "Topic", event: EventDescriptor) -> None:
        """An event is on the disk: what it says, or whom it answers, may concern the node."""

    def want_version(self, topic: "Topic", version: Cid, sender: PeerId) -> None:
        """An event names a version that we have not seen."""

    def shown(self, topic: "Topic", sender: PeerId, message: FrontierPage) -> None:
        """A peer shows what it holds."""

    def agreed(self, topic: "Topic", parent: PeerId) -> None:
        """A new parent holds the same numbers as we do."""

    def met_own(self, event: EventDescriptor, sender: PeerId) -> None:
        """An event that our key signed has come, and we did not put it into the topic."""

    def met_own_twice(self, event: EventDescriptor) -> None:
        """An event that our key signed has the number of another one."""

    def rejected(self, sender: PeerId, topic: Cid | None, error: RemoteError) -> None: ...


class Topic:
    """One topic that we follow: as a subscriber, for its versions, or to keep its tree together."""

    def __init__(
        self,
        versions: Versions,
        turn: Turn,
        dht: Kademlia,
        parameters: Parameters,
        owner: TopicOwner,
        counts: dict[str, int],
        *,
        subscribed: bool,
        frontier: Frontier | None = None,
        log_index: int = 0,
        cursor: int = 0,
    ) -> None:
        self.versions = versions
        self.id: Cid = versions.first.cid
        self.turn = turn
        self.parameters = parameters
        self.owner = owner
        self.counts = counts
        self.subscribed = subscribed
        self.started = frontier is not None
        self.announced = self.started and log_index == 0
        """Whether our start is on the disk, and so known to whoever asked for the subscription."""
        self.frontier = Frontier() if frontier is None else frontier
        self.is_sequenced = versions.first.is_sequenced
        self.halted: str | None = None
        """Why the topic does not go on, for anyone."""
        self._proofs: dict[Cid, bytes] = {}
        """Certificates of events on their way into our log."""
        self.requests = Frontier()
        """Which authors' requests were published already, by request number."""
        self.last_seen: Cid | None = None
        self.overlay: Overlay
        self.heartbeat: Conversation
        if versions.first.dissemination is Dissemination.CUBE:
            cube = DisseminationCube(
                self.id, versions.first.root_peer, turn, dht, parameters, self, counts
            )
            self.overlay = cube
            self.heartbeat = CubeHeartbeat(self.id, turn, parameters, cube, self, counts)
        else:
            tree = DisseminationTree(
                self.id, versions.first.root_peer, turn, dht, parameters, self, counts
            )
            self.overlay = tree
            self.heartbeat = Heartbeat(self.id, turn, parameters, tree, self, counts)
        self.overlay.fresh = not self.started
        self.overlay.open = self.started
        order = versions.current.delivery_order
        self.causal: CausalOrdering | None = None
        self.barrier: CausalBarrier | None = None
        """What our next event follows; only causal topics have these two."""
        self.ordering = Ordering(order, self.frontier, parameters.held_back_max)
        if order is DeliveryOrder.CAUSAL:
            self.ordering = self.causal = CausalOrdering(self.frontier, parameters.held_back_max)
            self.barrier = CausalBarrier(self.id)
        self.recovery = Recovery(
            self.id,
            turn,
            parameters,
            self.frontier,
            author=versions.first.author,
            publishers_of=self.publishers_of,
            parent=lambda: self.overlay.mainstay,
            lazy=lambda: self.heartbeat.lazy,
            neighbours=self.neighbours,
            take=self._take_recovered,
            find_block=dht.find_block,
            seen=self._seen,
            consult=self._consult,
            retire=self._retire,
            retires=self._retires,
            needed=self._needed,
            excuse=self._excuse,
            counts=counts,
        )
        self.is_meta = versions.first.is_meta
        self._log_index = log_index
        self._synced_index = log_index
        self._delivered_index = cursor
        self._replay_until = log_index
        self._replaying = False
        self._recalled = False
        self._unsynced = 0
        self._stingy = False
        """We hold credit back until our disk has caught up."""
        self._parked: dict[Cid, list[tuple[EventDescriptor, PeerId, int, bytes, bool]]] = {}
        self._parked_count = 0
        self._start_from: PeerId | None = None
        self._urgent: dict[PeerId, None] = {}
        self._shown: dict[PeerId, float] = {}
        self._retention_timer: int | None = None
        self._kept_index = 0
        """What our log held when retention was last looked at: only that may be dropped.

        So every event is kept for a while, and whoever is a little behind can still fetch it.
        """
        self._blank = False
        self._comparing = False
        self._next_claim_s = 0.0
        self._find_block = dht.find_block
        self._liars: dict[PeerId, None] = {}

    @property
    def descriptor(self) -> TopicDescriptor:
        """The newest version."""
        return self.versions.current

    # Coming and going.

    def open(self, *, from_start: bool = False) -> None:
        """Join the tree; a subscription from the start wants all history there is."""
        if from_start and not self.started:
            self._begin()
        self.overlay.join()
        self.heartbeat.start()
        self._retain_later()
        if self._log_index:
            self.turn.load(LoadLog(self.id, self._log_index, 1), Events, self._recall)
        if self.started and self.subscribed and self._delivered_index < self._log_index:
            self._replay()

    def _recall(self, newest: Events) -> None:
        """After a restart: the last event we saw is the newest in our log."""
        if self.last_seen is None and newest.events:
            self.last_seen = newest.events[-1][1].cid
        self._recalled = True
        if not self.is_behind_its_log:
            self.owner.recalled(self)

    @property
    def is_behind_its_log(self) -> bool:
        """Whether causal order has to wait: our log holds what was not handed out yet.

        What we publish follows all that is in our log: the application must have been given it.
        """
        return self._replaying and self.causal is not None

    @property
    def may_publish(self) -> bool:
        """Whether we know what to link to."""
        return self.announced and not self.is_behind_its_log

    def be_blank(self) -> None:
        """Keep a tree together without wanting its history: start where the first child is."""
        self._blank = True

    def close(self) -> None:
        """Leave the tree, handing children over."""
        self.overlay.leave()

    def left(self) -> None:
        """The tree has let us go."""
        self.heartbeat.stop()
        self.recovery.stop()
        self.turn.cancel(self._retention_timer)
        self.owner.stopped(self)

    def attached(self, parent: PeerId | None, digest: bytes | None) -> None:
        """We have a place in the tree: catch up, or learn where we start."""
        if not self.started:
            self._start_from = parent
            if parent is None:
                self._begin()
        elif parent is not None and digest != self.digest():
            self.counts["catch_up"] = self.counts.get("catch_up", 0) + 1
            self._urgent[parent] = None
            self._show(parent, answer=True)
        elif parent is not None:
            self.owner.agreed(self, parent)

    def _begin(self) -> None:
        """Our start frontier is known: from here on every event is due to us."""
        self.started = True
        self._start_from = None
        self.overlay.fresh = False
        self.turn.persist(*(PutMark(self.id, mark) for mark in self.frontier.marks()))
        self.owner.started(self)
        self.overlay.let_in()

    def learn(self, members: tuple[Contact, ...]) -> None:
        """Our parent names other members."""
        self.heartbeat.learn(members)

    def welcome(self, child: PeerId, *, fresh: bool) -> None:
        """A child was taken in: one that holds nothing hears where it starts."""
        if fresh:
            self._show(child, answer=False)

    def path_changed(self) -> None:
        """Our children should hear our new path to the root."""
        self.heartbeat.announce()

    def lost(self, peer: PeerId) -> None:
        """A connection ended."""
        self._urgent.pop(peer, None)
        self._shown.pop(peer, None)
        if peer == self._start_from:
            self._start_from = None
        self.overlay.lost(peer)
        self.heartbeat.lost(peer)
        self.recovery.lost(peer)

    # Events.

    def receive_live(
        self, event: EventDescriptor, sender: PeerId, hops: int, certificate: bytes = b""
    ) -> None:
        """Take an event in that a neighbour passed on."""
        link = self.overlay.links.get(sender)
        if link is not None:
            self._took_from(sender, link)
        else:
            self.overlay.receive_from_stranger(sender)
        self.receive(event, sender, hops, certificate, passed_on=True)

    def receive(
        self,
        event: EventDescriptor,
        sender: PeerId,
        hops: int,
        certificate: bytes = b"",
        *,
        passed_on: bool = False,
    ) -> None:
        """Take an event in, from wherever it comes; `passed_on`: through the overlay."""
        if not self.started or self.halted is not None:
            return
        if self._known(event, certificate):
            return
        source, (epoch, number) = event.numbered_by, event.sequence
        if self.frontier.is_full(source, epoch, number):
            return
        if event.version not in self.versions.by_cid:
            self._park(event, sender, hops, certificate, passed_on)
            return
        if self.is_sequenced and not self._is_proven(event, sender, certificate):
            return
        try:
            self.versions.judge(event)
        except RemoteError as error:
            if error.verdict is Verdict.IGNORE:
                self._void(event)
            raise
        self._check_links(event)
        if source == self.turn.me:
            self.owner.met_own(event, sender)
        missing = self.frontier.gap_before(source, epoch, number)
        in_turn = self.ordering.offer(event, hops)
        if certificate and (in_turn or self.ordering.held_back(source, epoch, number)):
            self._proofs[event.cid] = certificate
        message = EventMessage(event.block, min(hops, HOPS_MAX - 1) + 1, certificate)
        self.overlay.forward(message, source=sender, passed_on=passed_on)
        if in_turn:
            self._accept(event, hops)
            if len(self.ordering):
                self._accept_waiting(source, epoch)
        if missing is not None:
            self.recovery.gap(source, epoch, missing, sender)
        if self.causal is not None and not in_turn:
            for mark, cid in self.causal.lacking(event):
                self.counts["parent_missing"] = self.counts.get("parent_missing", 0) + 1
                self.recovery.parent_missing(mark, cid, event.publisher, sender)

    def _check_links(self, event: EventDescriptor) -> None:
        """An event that calls another what it is not is nobody's to deliver, and takes its number.

        Whether the other is known differs from node to node. Where one delivers the liar and links
        to it, those who know better must not wait for ever.
        """
        if self.causal is None:
            return
        try:
            self.causal.check_links(event)
        except RemoteError:
            self._void(event)
            raise

    # Where several sequencers agree on the order.

    def _is_proven(self, event: EventDescriptor, sender: PeerId, certificate: bytes) -> bool:
        """Nothing is taken in without its certificate, whoever published it (design 7).

        A copy from the DHT has none: whoever holds the event in the topic has it with both.
        """
        if certificate:
            check_certificate(self._sequencers_of(event), event, certificate)
            return True
        self.versions.judge(event)
        number = event.sequence.number
        place = (event.numbered_by, event.sequence.epoch)
        self.recovery.gap(*place, (self.frontier.high(*place) + 1, number), sender)
        return False

    def _sequencers_of(self, event: EventDescriptor) -> tuple[PeerId, ...]:
        version = self.versions.by_cid.get(event.version)
        if version is None:
            raise RemoteError("a version that we do not know", Verdict.IGNORE)
        return version.sequencers

    def _halt(self, event: EventDescriptor, held: Cid, certificate: bytes) -> None:
        """Two certificates for one position: there is no order any more, and both prove it.

        Sequencers crash and do not lie; where they did, going on would hide it.
        """
        check_certificate(self._sequencers_of(event), event, certificate)
        self.halted = (
            f"halted: two events are certified for position {event.sequence.number}: "
            f"{cid_text(held)} and {cid_text(event.cid)}"
        )
        self.turn.persist(
            PutState(StateRow("proof", held, event.block)),
            PutState(StateRow("certificate", event.cid, certificate)),
            PutState(StateRow("halted", self.id, self.halted.encode())),
        )
        self.overlay.forward(EventMessage(event.block, 1, certificate), source=None)
        raise RemoteError("two certificates for one position")

    def held_position(self) -> int:
        """The position up to which every event, with its certificate, is on our disk."""
        return self.frontier.high(order_of(self.id), 0) - self._unsynced

    def publishers_of(self, numbered_by: PeerId) -> tuple[PeerId, ...]:
        """Who can speak for a numbering: its publisher, or all who count in it together."""
        is_shared = self.is_sequenced and numbered_by == order_of(self.id)
        return self.versions.first.sequencers if is_shared else (numbered_by,)

    def holds(self, event: EventDescriptor) -> bool:
        """Whether we have this event, as far as we can tell without asking the disk."""
        place = (event.numbered_by, *event.sequence)
        return self.frontier.holds(*place) and self.frontier.cid_at(*place) in (None, event.cid)

    def _known(self, event: EventDescriptor, certificate: bytes = b"") -> bool:
        """Whether we had this number before; another event under the same number is a proof."""
        publisher, (epoch, number) = event.numbered_by, event.sequence
        if self.frontier.holds(publisher, epoch, number):
            held = self.frontier.cid_at(publisher, epoch, number)
            if held is None:
                self._compare_with_log(event, certificate)
        else:
            held = self.ordering.held_back(publisher, epoch, number)
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
        if self._comparing or number <= self.frontier.floor(publisher, epoch):
            return
        self._comparing = True

        def found(answer: Events) -> None:
            self._comparing = False
            try:
                for _, held in answer.events:
                    if held.cid != event.cid:
                        self._keep_proof(event, held.cid, certificate)
            except RemoteError as error:
                self.owner.rejected(event.publisher, self.id, error)

        self.turn.load(LoadNumbers(self.id, publisher, epoch, number, number, 1), Events, found)

    def _keep_proof(self, event: EventDescriptor, held: Cid, certificate: bytes) -> None:
        """Two events with one number: the publisher lied to somebody (design 5).

        One proof of each liar is enough: it could make as many as it has numbers.
        """
        if self.is_sequenced:
            self._halt(event, held, certificate)
        if event.publisher not in self._liars and len(self._liars) < LIARS_MAX:
            self._liars[event.publisher] = None
            self.turn.persist(PutState(StateRow("proof", held, event.block)))
            self._confront(event, held)
        if event.publisher == self.turn.me:
            self.owner.met_own_twice(event)
        raise RemoteError("two events with one number")

    def _confront(self, event: EventDescriptor, held: Cid) -> None:
        """Show both events to their publisher: two nodes may have its key, and not know it (0014).

        Neither would hear of the other's event by itself: whoever has one does not pass on the
        other.
        """
        publisher = event.publisher

        def found(answer: Block) -> None:
            if answer.block is not None:
                self.turn.send(publisher, EventMessage(answer.block, 1))
                self.turn.send(publisher, EventMessage(event.block, 1))

        if publisher != self.turn.me:
            self.turn.load(LoadBlock(held), Block, found)

    def _accept(self, event: EventDescriptor, hops: int) -> None:
        """Put an event on the disk and deliver it from there."""
        try:
            self._check_links(event)
        except RemoteError as error:
            # It waited for the one about which it lies.
            self.owner.rejected(event.publisher, self.id, error)
            return
        mark = self.frontier.add(event.numbered_by, *event.sequence, event.cid)
        if _is_request(event) and not self._first_time(event):
            self.counts["request_deduplicated"] = self.counts.get("request_deduplicated", 0) + 1
            self._keep_undelivered(event, mark)
            return
        self.keep(event, mark, hops, then=None)

    def _first_time(self, event: EventDescriptor) -> bool:
        """A request that two publishers took is delivered once (design 6)."""
        epoch, number = event.request.sequence
        if self.requests.holds(event.author, epoch, number):
            return False
        self.take_request(event.author, epoch, number)
        return True

    def take_request(self, author: PeerId, epoch: int, number: int) -> None:
        """Remember that a request was published."""
        mark = self.requests.add(author, epoch, number, None)
        if len(mark.beyond) > REQUEST_GAPS_MAX:
            # Numbers below were refused or given up: nobody will publish them any more.
            self.requests.retire(author, epoch, mark.beyond[0])

    def keep(
        self,
        event: EventDescriptor,
        mark: MarkState,
        hops: int,
        then: Callable[[], None] | None,
        *more: Write,
    ) -> None:
        """Write an event into our log; once it is synced, deliver it and do `then`."""
        self._log_index += 1
        index = self._log_index
        self.last_seen = event.cid
        self._unsynced += 1
        is_request = _is_request(event)
        asked_for = is_request or event.author == self.turn.me
        certificate = self._proofs.pop(event.cid, b"")
        kept = PutEvent(index, event, mark, self.turn.wall_us, asked_for, certificate)
        writes: tuple[Write, ...] = (kept, *more)
        if self.barrier is not None:
            writes = (*writes, *self.barrier.take(event))
        if is_request:
            writes = (*writes, self._request_row(event))

        def synced() -> None:
            self._unsynced -= 1
            self._synced_index = index
            if self._stingy and self._unsynced < UNSYNCED_MAX:
                self._give_credit()
            if then is not None:
                then()
            self._deliver(index, event, hops)
            self.owner.arrived(self, event)

        self.turn.persist(*writes, then=synced)
        self.heartbeat.hurry()

    def _request_row(self, event: EventDescriptor) -> Write:
        epoch, _ = event.request.sequence
        mark = self.requests.mark(event.author, epoch)
        assert mark is not None, "a request is taken before its event is kept"
        key = self._request_key(event.author, epoch)
        value = b"".join(number.to_bytes(8, "big") for number in (mark.high, *mark.beyond))
        return PutState(StateRow("request", key, value))

    def _request_key(self, author: PeerId, epoch: int) -> bytes:
        return self.id + author + epoch.to_bytes(8, "big")

    def request_keys(self) -> list[bytes]:
        """Under which keys our disk remembers which requests were published."""
        return [self._request_key(mark.publisher, mark.epoch) for mark in self.requests.marks()]

    def restore_request(self, author: PeerId, epoch: int, value: bytes) -> None:
        """Remember from the disk which of an author's requests were published."""
        high, *beyond = (
            int.from_bytes(value[at : at + 8], "big") for at in range(0, len(value), 8)
        )
        self.requests.adopt(MarkState(author, epoch, 0, high, None, tuple(beyond)))

    def _accept_waiting(self, publisher: PeerId, epoch: int) -> None:
        """Events that waited for the one just accepted have their turn now."""
        while (found := self.ordering.next_of(publisher, epoch)) is not None:
            self._accept(*found)

    def _take_recovered(self, block: bytes, sender: PeerId, certificate: bytes = b"") -> None:
        """A fetched event is taken in, and so passed on, like a new one."""
        try:
            event = self.owner.decode(block)
            if event.topic != self.id:
                raise RemoteError("an answer from another topic")
            self.counts["recovered"] = self.counts.get("recovered", 0) + 1
            self.receive(event, sender, 1, certificate)
        except RemoteError as error:
            self.owner.rejected(sender, self.id, error)

    def _void(self, event: EventDescriptor) -> None:
        """An event that nobody delivers still takes its number, or it would be a gap for ever.

        We do not pass it on: one who joins late may not know yet that its publisher lost the right.
        """
        mark = self.frontier.add(event.numbered_by, *event.sequence, event.cid)
        self.turn.persist(PutMark(self.id, mark))
        if self.causal is not None:
            self._accept_waiting(event.publisher, event.sequence.epoch)

    def _keep_undelivered(self, event: EventDescriptor, mark: MarkState) -> None:
        """Others that lack the number need the event to see for themselves: keep it for them."""
        certificate = self._proofs.pop(event.cid, b"")
        self.turn.persist(PutEvent(0, event, mark, self.turn.wall_us, True, certificate))

    # Versions.

    def _park(
        self,
        event: EventDescriptor,
        sender: PeerId,
        hops: int,
        certificate: bytes,
        passed_on: bool,
    ) -> None:
        """Keep an event aside until the version it names is known."""
        if self._parked_count >= PARKED_MAX:
            return
        self._parked_count += 1
        first = event.version not in self._parked
        parked = (event, sender, hops, certificate, passed_on)
        self._parked.setdefault(event.version, []).append(parked)
        if first:
            self.owner.want_version(self, event.version, sender)

    def unpark(self, version: Cid) -> None:
        """A version became known, or will not: look again at what waited for it."""
        parked = self._parked.pop(version, [])
        self._parked_count -= len(parked)
        if version not in self.versions.by_cid:
            return
        for event, sender, hops, certificate, passed_on in parked:
            try:
                self.receive(event, sender, hops, certificate, passed_on=passed_on)
            except RemoteError as error:
                self.owner.rejected(sender, self.id, error)

    def adopt_version(self, version: TopicDescriptor) -> bool:
        """Take a newer version over; True where it was new to us."""
        if not self.versions.add(version):
            return False
        for mark in version.flushed:
            self._retire(mark.publisher, mark.epoch, mark.number)
        if version.flushed:
            self._drop_retired(1)
        self._retain_later()
        self.unpark(version.cid)
        return True

    def _drop_retired(self, first: int) -> None:
        """Forget the beginning of our log as far as it is retired, page by page."""

        def found(page: Events) -> None:
            last = 0
            for index, event in page.events:
                mark = self.frontier.mark(event.numbered_by, event.sequence.epoch)
                if mark is None or event.sequence.number > mark.retired:
                    break
                last = index
            if last:
                self.turn.persist(DropEvents(self.id, last))
            if page.events and last == page.events[-1][0]:
                self._drop_retired(last + 1)

        self.turn.load(LoadLog(self.id, first, REPLAY_PAGE), Events, found)

    # Delivery.

    def _deliver(self, index: int, event: EventDescriptor, hops: int) -> None:
        if not self.subscribed or self._replaying or index <= self._delivered_index:
            return
        if self.halted is not None:
            return
        self._delivered_index = index
        self._emit(index, event, hops, redelivery=False)

    def _emit(self, index: int, event: EventDescriptor, hops: int, *, redelivery: bool) -> None:
        publisher, (epoch, number) = event.numbered_by, event.sequence
        record = trace.Delivered(
            self.id, event.cid, publisher, epoch, number, index, hops, redelivery
        )
        self.turn.effects.append(Deliver(event, record))

    def must_begin_anew(self, from_start: bool) -> bool:
        """Whether a subscription cannot build on what we hold."""
        if self.subscribed:
            return False
        return self._blank or (from_start and any(mark.floor for mark in self.frontier.marks()))

    def has_gaps(self) -> bool:
        """Whether we hold events beyond others that we lack."""
        return next(self.frontier.gaps(), None) is not None

    def cursor_for(self, *, from_start: bool) -> int:
        """Where in our log a subscription begins that is made now."""
        return 0 if from_start else self._log_index

    @property
    def newest_index(self) -> int:
        """The newest place in our log."""
        return self._log_index

    @property
    def delivered_index(self) -> int:
        """Up to where in our log the application has got everything that it is to get."""
        return self._delivered_index

    def subscribe(self, cursor: int) -> None:
        """An application wants the events of a topic that we follow already."""
        self.subscribed = True
        self._replay_until = 0
        self._delivered_index = cursor
        if cursor < self._synced_index:
            self._replay()

    def _replay(self) -> None:
        """Deliver from the log, after a restart, what the application did not acknowledge."""
        self._replaying = True
        self.turn.load(
            LoadLog(self.id, self._delivered_index + 1, REPLAY_PAGE), Events, self._replayed
        )

    def _replayed(self, page: Events) -> None:
        for index, event in page.events:
            self._delivered_index = index
            self._emit(index, event, 0, redelivery=index <= self._replay_until)
        if page.events and self._delivered_index < self._synced_index:
            self._replay()
        else:
            self._replaying = False
            if self.causal is not None and (self._recalled or self.announced):
                self.owner.recalled(self)

    def acknowledge(self, index: int) -> None:
        """The application is done with everything up to `index`, as far as it was delivered."""
        index = max(0, min(index, self._delivered_index))
        row = StateRow("cursor", self.id, index.to_bytes(8, "big"))
        self.turn.persist(PutState(row))

    # Flow control.

    def _took_from(self, sender: PeerId, link: Link) -> None:
        link.taken += 1
        if link.taken < self.parameters.window // 2:
            return
        if self._unsynced < UNSYNCED_MAX:
            self.turn.send(sender, Credit(self.id, link.taken))
            link.taken = 0
        else:
            self._stingy = True

    def _give_credit(self) -> None:
        """Our disk has caught up: neighbours get the credit that we held back."""
        self._stingy = False
        for peer, link in self.overlay.links.items():
            if link.taken:
                self.turn.send(peer, Credit(self.id, link.taken))
                link.taken = 0

    def receive_credit(self, sender: PeerId, message: Credit) -> None:
        """A neighbour can take more; if it missed events meanwhile, it should compare."""
        link = self.overlay.links.get(sender)
        if link is None:
            return
        link.credit = min(link.credit + message.count, self.parameters.window)
        if link.behind:
            link.behind = False
            self.counts["fell_behind"] = self.counts.get("fell_behind", 0) + 1
            self._show(sender, answer=True)

    # Comparing frontiers.

    def digest(self) -> bytes:
        """What we hold, as a hash."""
        return self.frontier.digest()

    def differs_from(self, peer: PeerId) -> None:
        """A neighbour holds something else than we do: show it what we hold."""
        if not self.started:
            return
        shown = self._shown.get(peer)
        if shown is None or self.turn.now - shown >= COMPARE_INTERVAL_S:
            self._show(peer, answer=True)

    def _show(self, peer: PeerId, *, answer: bool) -> None:
        """Send our frontier, in pages."""
        self._shown.pop(peer, None)
        self._shown[peer] = self.turn.now
        while len(self._shown) > 64:
            del self._shown[next(iter(self._shown))]
        self._send_pages(peer, self.frontier.marks(), answer=answer)

    def _send_pages(self, peer: PeerId, marks: list[MarkState], *, answer: bool) -> None:
        size = self.parameters.frontier_page
        pages = [marks[at : at + size] for at in range(0, len(marks), size)] or [[]]
        for page in pages:
            more = page is not pages[-1]
            shown = tuple(map(_cut, page))
            self.turn.send(peer, FrontierPage(self.id, shown, answer and not more, more))

    def receive_page(self, sender: PeerId, message: FrontierPage) -> None:
        """A peer shows what it holds: start there, or fetch what we lack."""
        if not self.started:
            if sender == self._start_from:
                self._start_at(message)
            return
        self.owner.shown(self, sender, message)
        self._check_claims(sender, message.marks)
        if self._blank and self.overlay.is_neighbour(sender):
            self._adopt_start(message.marks)
            self.turn.persist(*(PutMark(self.id, mark) for mark in self.frontier.marks()))
            self._blank = message.more
        patience_s = 0.0 if sender in self._urgent else 2.0 + 3 * self.heartbeat.round_trip_s
        if not message.more:
            self._urgent.pop(sender, None)
        known = self.overlay.is_neighbour(sender) or sender in self.heartbeat.lazy
        marks = message.marks if known else message.marks[:VISITOR_MARKS_MAX]
        self.recovery.compare(sender, marks, patience_s=patience_s)
        if message.answer:
            known = known or sender in self.heartbeat.members()
            whole = known and not _asks_only(message.marks)
            ours = self.frontier.marks() if whole else self._marks_like(message.marks)
            self._send_pages(sender, ours, answer=False)

    def _check_claims(self, sender: PeerId, marks: Iterable[MarkState]) -> None:
        """A peer has another event than we under one number: now and then, see for ourselves.

        Frontiers are alike then, so nothing else would show it.
        """
        if self.turn.now < self._next_claim_s:
            return
        for mark in marks:
            held = self.frontier.cid_at(mark.publisher, mark.epoch, mark.high)
            claimed = mark.cid is not None and held not in (None, mark.cid)
            if claimed and mark.publisher not in self._liars:
                assert mark.cid is not None
                self._next_claim_s = self.turn.now + COMPARE_INTERVAL_S
                if self.is_sequenced:
                    # Only with its certificate does it prove anything.
                    self.recovery.look_at(sender, mark.publisher, mark.epoch, mark.high)
                else:
                    self._find_block(mark.cid, self._claim_found)
                return

    def _claim_found(self, block: bytes | None) -> None:
        if block is not None:
            self._take_recovered(block, self.turn.me)

    def _marks_like(self, marks: Iterable[MarkState]) -> list[MarkState]:
        """A visitor only needs to hear about the numberings that it asked about."""
        ours = (self.frontier.mark(mark.publisher, mark.epoch) for mark in marks)
        return [mark for mark in ours if mark is not None]

    def _start_at(self, message: FrontierPage) -> None:
        """Our parent's frontier is where our subscription starts."""
        if len(self.frontier) + len(message.marks) > START_MARKS_MAX:
            self.overlay.look_elsewhere()
            raise RemoteError("a start frontier without end")
        self._adopt_start(message.marks)
        if not message.more:
            self._begin()
        # What our parent holds beyond a gap is due to us, like the gap itself.
        self.recovery.compare(self.overlay.mainstay or self.turn.me, message.marks, patience_s=0.0)

    def _adopt_start(self, marks: Iterable[MarkState]) -> None:
        for mark in marks:
            self.frontier.adopt(mark._replace(floor=mark.high, beyond=()))
            self._accept_waiting(mark.publisher, mark.epoch)

    def serve(self, sender: PeerId, message: FetchRange) -> None:
        """A peer lacks events that we may hold: read them from the disk."""
        limit = self.parameters.range_bytes_max
        query = LoadNumbers(
            self.id, message.publisher, message.epoch, message.first, message.last, limit
        )

        def found(answer: Events) -> None:
            blocks = tuple(event.block for _, event in answer.events)
            last = answer.events[-1][1].sequence.number if answer.events else message.last
            held = self.frontier.high(message.publisher, message.epoch)
            more = last < min(message.last, held)
            answered = Range(message.request, self.id, blocks, more, answer.certificates)
            self.turn.send(sender, answered)

        self.turn.load(query, Events, found)

    def _seen(self, publisher: PeerId, epoch: int) -> int:
        """The highest number of a numbering that a signed event shows to exist."""
        return max(self.frontier.highest(publisher, epoch), self.ordering.highest(publisher, epoch))

    def known(self) -> tuple[Mark, ...]:
        """How far we have seen each numbering, delivered or not."""
        return tuple(
            Mark(mark.publisher, mark.epoch, self._seen(mark.publisher, mark.epoch))
            for mark in self.frontier.marks()
        )

    def _consult(self, publisher: PeerId, epoch: int) -> None:
        """Ask the two who may say it alone how far a numbering is retired."""
        mark = self.frontier.mark(publisher, epoch) or MarkState(publisher, epoch, 0, 0, None)
        for peer in dict.fromkeys((*self.publishers_of(publisher), self.versions.first.author)):
            if peer != self.turn.me:
                self._send_pages(peer, [mark], answer=True)

    def ask_about(self, peer: PeerId, publisher: PeerId, epoch: int) -> None:
        """Ask a peer what it holds of a numbering, showing nothing."""
        self._send_pages(peer, [MarkState(publisher, epoch, 0, 0, None)], answer=True)

    def neighbours(self) -> Iterable[PeerId]:
        """Whom we could ask for an event, best first."""
        yield from (peer for peer in self.overlay.path if peer != self.turn.me)
        yield from self.heartbeat.lazy
        yield from self.overlay.children
        yield from self.heartbeat.members()
        if self.overlay.root_peer != self.turn.me:
            yield self.overlay.root_peer

    # Retention.

    def _retires(self) -> bool:
        retention = self.descriptor.retention
        return (retention.age_s, retention.count, retention.bytes) != (None, None, None)

    def _retire(self, publisher: PeerId, epoch: int, number: int) -> None:
        """Events up to a number are gone for good: they count as delivered."""
        self.turn.persist(PutMark(self.id, self._retire_mark(publisher, epoch, number)))
        if self.descriptor.delivery_order is not DeliveryOrder.NONE:
            self._accept_waiting(publisher, epoch)

    def _needed(self, publisher: PeerId, epoch: int) -> int:
        """The highest number of a numbering that events of others wait for."""
        return 0 if self.causal is None else self.causal.needed(publisher, epoch)

    def _excuse(self, publisher: PeerId, epoch: int, number: int) -> None:
        """What others wait for is retired: they wait no longer.

        We do not count it as ours. That it ever existed we know only from those who name it, and
        nobody shall make us skip what its publisher has yet to publish.
        """
        assert self.causal is not None, "only there anything waits for another's event"
        if self.subscribed:
            self.turn.trace(trace.Retired(self.id, publisher, epoch, number))
        self.causal.excuse(publisher, epoch, number)
        self._accept_waiting(publisher, epoch)

    def _retire_mark(self, publisher: PeerId, epoch: int, number: int) -> MarkState:
        if self.subscribed and self.frontier.high(publisher, epoch) < number:
            self.turn.trace(trace.Retired(self.id, publisher, epoch, number))
        return self.frontier.retire(publisher, epoch, number)

    def _retain_later(self) -> None:
        self.turn.cancel(self._retention_timer)
        self._retention_timer = None
        if self._retires():
            delay = self.turn.jitter(self.parameters.retention_interval_s)
            self._retention_timer = self.turn.after(delay, self._retain)

    def _retain(self) -> None:
        """Drop what the topic's retention no longer asks us to keep."""
        retention = self.descriptor.retention
        age_us = (
            None if retention.age_s is None else self.turn.wall_us - retention.age_s * 1_000_000
        )
        # What the application has not seen yet is never dropped under its feet.
        index_max = min(self._kept_index, self._delivered_index if self.subscribed else 1 << 62)
        self._kept_index = self._log_index
        query = LoadOldest(self.id, retention.count, retention.bytes, age_us, index_max)
        self.turn.load(query, Oldest, self._drop_oldest)
        self._retain_later()

    def _drop_oldest(self, oldest: Oldest) -> None:
        if oldest.index < 1:
            return
        self.counts["retention"] = self.counts.get("retention", 0) + 1
        # A number before a gap of ours is not retired because we let go of one behind it.
        marks = [
            self._retire_mark(publisher, epoch, min(number, self.frontier.high(publisher, epoch)))
            for publisher, epoch, number in oldest.floors
        ]
        self.turn.persist(
            DropEvents(self.id, oldest.index), *(PutMark(self.id, mark) for mark in marks)
        )

    # For checkers.

    def view(self) -> TreeView | CubeView:
        """Our place among the members."""
        return self.overlay.view(subscribed=self.subscribed, lazy=tuple(self.heartbeat.lazy))

    def footprint(self) -> dict[str, int]:
        """How much this topic keeps in memory."""
        return {
            "marks": len(self.frontier),
            "request_marks": len(self.requests),
            "held_back": len(self.ordering),
            "heads": 0 if self.barrier is None else len(self.barrier),
            "wants": len(self.recovery),
            "parked": self._parked_count,
            **self.overlay.footprint(),
        }


def _is_request(event: EventDescriptor) -> bool:
    """Whether others may ask what became of it: several sequencers publish requests only."""
    return event.author != event.publisher or event.is_ordered


def _asks_only(marks: tuple[MarkState, ...]) -> bool:
    """Whether a peer shows nothing, and wants to hear of the numberings that it names."""
    return bool(marks) and not any(mark.high or mark.beyond for mark in marks)


def _cut(mark: MarkState) -> MarkState:
    """A mark as it may be shown: a message has room for only so many exceptions.

    What is left out is shown once the gap before it is closed.
    """
    if len(mark.beyond) <= BEYOND_MAX:
        return mark
    return mark._replace(beyond=mark.beyond[:BEYOND_MAX])
