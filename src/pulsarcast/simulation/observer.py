"""The observer: sees every record of every node of a simulated world, and judges as it goes.

It is what no node can be: someone who knows what all of them did. A delivery costs it about a
microsecond, because nearly all of them are what they should be: the next byte of a `Stream`, with
the CID that was published. Whatever is not goes to `checkers.deliveries` to be named.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol, TypeAlias

from pulsarcast.model import trace
from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.model.topic_types import DeliveryOrder, Mark
from pulsarcast.protocol.inputs import Now
from pulsarcast.simulation.checkers.causality import CausalBook
from pulsarcast.simulation.checkers.deliveries import judge
from pulsarcast.simulation.checkers.publications import enter
from pulsarcast.simulation.findings import Findings
from pulsarcast.simulation.ledger import LEVELS, MARKS, Stream, StreamKey, Subscription, TopicBook

LATENCY_UNIT_S = 0.01
CONSUMED_EVERY = 64
"""The application acknowledges every so many deliveries: what a crash may deliver again."""

Consumer: TypeAlias = Callable[[int, Cid, int], None]


class Memory(NamedTuple):
    """What a node had got at some time."""

    subscriptions: dict[Cid, Subscription]
    got: dict[StreamKey, tuple[bytes, int | None]]
    came_late: dict[Cid, frozenset[Cid]]
    """By causal topic: what it had got after something that follows it."""


class Tracer(Protocol):
    """Whoever writes the records down as well."""

    def record(
        self, time_s: float, index: int, incarnation: int, now: Now, record: trace.Record
    ) -> None:
        """Take one record of one node."""


class Observer:
    """Collects what the checkers need from the records of all nodes."""

    def __init__(self, *, tracer: Tracer | None = None) -> None:
        self.findings = Findings()
        self.books: dict[Cid, TopicBook] = {}
        self.streams: dict[StreamKey, Stream] = {}
        self.events: dict[Cid, tuple[Stream, int]] = {}
        """Every published event: where it stands."""
        self.requests: dict[bytes, Cid] = {}
        """Request ids to the event that was published for them first."""
        self.twins: dict[Cid, bytes] = {}
        """Events that share their request id with another one; the id."""
        self.twins_got: dict[tuple[int, bytes], Cid] = {}
        self.injections: dict[str, Cid] = {}
        self.allowed: dict[Cid, frozenset[PeerId] | None] = {}
        """Who may publish under each topic version that was declared to us."""
        self.peers: dict[int, PeerId] = {}
        self.leaders: dict[tuple[Cid, int], int] = {}
        """Who led in each term of a topic with several sequencers."""
        self.disk_lost_s: dict[int, float] = {}
        """When a node last lost its disk, or was lost whole."""
        self.killed_s: dict[int, float] = {}
        self.deliveries = 0
        """Every first delivery, due or not."""
        self.self_deliveries = 0
        """Those of a node's own events: they cost no message."""
        self.redeliveries = 0
        self.hops: dict[int, int] = {}
        """Deliveries of others' events by the number of hops they came over."""
        self.latencies: dict[int, int] = {}
        """The same by simulated time since publication, in units of `LATENCY_UNIT_S`."""
        self.kinds: dict[str, int] = {}
        """How many records of each kind but `delivered` there were."""
        self.rejections: dict[str, int] = {}
        self.consumer: Consumer | None = None
        self._tracer = tracer

    # What nodes report.

    def record(
        self, time_s: float, index: int, incarnation: int, now: Now, record: trace.Record
    ) -> None:
        """Take one record of one node; the driver of the simulation calls this first of all."""
        if self._tracer is not None:
            self._tracer.record(time_s, index, incarnation, now, record)
        if type(record) is trace.Delivered:
            self._delivered(time_s, index, incarnation, record)
        else:
            self._other(time_s, index, incarnation, record)

    def _delivered(
        self, time_s: float, index: int, incarnation: int, record: trace.Delivered
    ) -> None:
        number = record.number
        stream = self.streams.get((record.topic, record.publisher, record.epoch))
        if stream is None:
            judge(self, index, incarnation, record, None)
            return
        got = stream.got.get(index)
        if (
            got is None
            or number >= len(got)
            or number >= len(stream.cids)
            or got[number]
            or stream.cids[number] != record.event
            or self.twins
        ):
            got = judge(self, index, incarnation, record, stream)
            if got is None:
                return
        lasts = stream.lasts
        if lasts is not None:
            place = stream.places[number]
            last = lasts.get(index, -1)
            if place > last:
                lasts[index] = place
            else:
                self.findings.add(
                    "order",
                    f"node {index} delivered place {place} of {self.name(stream)} after {last}",
                )
        got[number] = incarnation % MARKS + 1
        if stream.book.causal is not None:
            stream.book.causal.delivered(self, index, record.event, stream)
        if stream.book.retention_count is not None:
            stream.book.arrived(index, stream, number)
        self.deliveries += 1
        if index == stream.sayers[number]:
            self.self_deliveries += 1
        else:
            hops = record.hops
            if hops:
                # What is delivered from the log after a crash has no hops to tell of.
                self.hops[hops] = self.hops.get(hops, 0) + 1
            unit = int((time_s - stream.times[number]) / LATENCY_UNIT_S)
            self.latencies[unit] = self.latencies.get(unit, 0) + 1
        if not record.index % CONSUMED_EVERY and self.consumer is not None:
            self.consumer(index, record.topic, record.index)

    def _other(self, time_s: float, index: int, incarnation: int, record: trace.Record) -> None:
        kind = type(record).__name__
        self.kinds[kind] = self.kinds.get(kind, 0) + 1
        match record:
            case trace.Published():
                enter(self, time_s, index, incarnation, record)
            case trace.Acknowledged():
                self.acknowledged(record.event, record.level)
            case trace.TopicCreated():
                book = self.book(record.topic)
                book.name = record.name
                self.promise(book, record.order)
            case trace.TopicVersion():
                self.book(record.topic).flush(record.flushed)
            case trace.Subscribed():
                self._subscribed(index, record)
            case trace.StartLoaded():
                self._start_loaded(index, record)
            case trace.Unsubscribed():
                self._end(self.book(record.topic), index, record.end)
            case trace.Retired():
                self._retired(index, record)
            case trace.LeaderChanged():
                self._led(index, record)
            case trace.Rejected():
                self.rejections[record.reason] = self.rejections.get(record.reason, 0) + 1
            case _:
                pass

    def _subscribed(self, index: int, record: trace.Subscribed) -> None:
        book = self.book(record.topic)
        known = book.subscriptions.get(index)
        if known is not None:
            if known.confirmed:
                # A crash does not end a subscription: the start frontier first told stands.
                return
            # It crashed before anyone was told; the application asked again.
            self._forget(book, index)
        start = {(publisher, epoch): number for publisher, epoch, number in record.start}
        filtered = record.filters is not None
        book.subscriptions[index] = Subscription(
            index, start, filtered=filtered, is_whole=not record.in_parts
        )

    def _start_loaded(self, index: int, record: trace.StartLoaded) -> None:
        """A node says more of where a subscription starts: what it said before stands."""
        subscription = self.book(record.topic).subscriptions.get(index)
        if subscription is None:
            self.findings.add("not_subscribed", f"node {index} loads a start without subscription")
            return
        for publisher, epoch, number in record.start:
            known = subscription.start.setdefault((publisher, epoch), number)
            if known != number or subscription.is_whole:
                self.findings.add(
                    "start_changed",
                    f"node {index}, publisher {publisher.hex()[12:20]}: {number} after {known}",
                )
        subscription.is_whole |= record.whole

    def _led(self, index: int, record: trace.LeaderChanged) -> None:
        """A sequencer says who leads: in one term nobody else does (Raft, figure 3)."""
        if record.leader is None or self.peers.get(index) != record.leader:
            return
        known = self.leaders.setdefault((record.topic, record.term), index)
        if known != index:
            self.findings.add(
                "election", f"nodes {known} and {index} lead in term {record.term} of one topic"
            )

    def _retired(self, index: int, record: trace.Retired) -> None:
        subscription = self.book(record.topic).subscriptions.get(index)
        if subscription is not None:
            stream = (record.publisher, record.epoch)
            let_off = subscription.let_off
            let_off[stream] = max(let_off.get(stream, 0), record.number)

    def _end(self, book: TopicBook, index: int, known: Iterable[Mark] = ()) -> None:
        book.end(index, known)
        self._forget(book, index)

    def _forget(self, book: TopicBook, index: int) -> None:
        """What a node got belongs to a subscription that is over, twins of requests included."""
        book.forget(index)
        if book.causal is not None:
            book.causal.forget(index)
        for place, cid in list(self.twins_got.items()):
            if place[0] == index and self.events[cid][0].book is book:
                del self.twins_got[place]

    # What the driver of the load and of the faults reports.

    def acknowledged(self, event: Cid, level: str) -> None:
        """A caller was told that its event is safe at this level."""
        place = self.events.get(event)
        if place is None:
            self.findings.add("acknowledged_unpublished", f"event {event.hex()[8:20]} at {level}")
            return
        stream, number = place
        stream.levels[number] = max(stream.levels[number], LEVELS[level])

    def confirmed(self, index: int, topic: Cid) -> None:
        """A caller was told that its node is subscribed."""
        subscription = self.book(topic).subscriptions.get(index)
        if subscription is None:
            self.findings.add(
                "subscribed_unrecorded", f"node {index}, topic {self.book(topic).name}"
            )
        else:
            subscription.confirmed = True

    def promise(self, book: TopicBook, order: DeliveryOrder) -> None:
        """Learn which order a topic's author chose."""
        book.promise(order)
        if order is DeliveryOrder.CAUSAL and book.causal is None:
            book.causal = CausalBook(book)

    def allow(self, version: Cid, publishers: frozenset[PeerId] | None) -> None:
        """Learn who may publish under a version of a topic; None is anyone."""
        self.allowed[version] = publishers

    def killed(self, index: int, time_s: float) -> None:
        """A node was killed: what it had not synced is gone."""
        self.killed_s[index] = time_s

    def disk_lost(self, index: int, time_s: float) -> None:
        """A node lost its disk, for good or to start anew: its subscriptions ended with it."""
        self.killed_s[index] = time_s
        self.disk_lost_s[index] = time_s
        for book in self.books.values():
            self._end(book, index)

    def memory_of(self, index: int) -> Memory:
        """What a node has got by now, to be compared with after its disk went back to here."""
        return Memory(
            {
                topic: book.subscriptions[index].copy()
                for topic, book in self.books.items()
                if index in book.subscriptions
            },
            {
                key: (bytes(stream.got[index]), (stream.lasts or {}).get(index))
                for key, stream in self.streams.items()
                if index in stream.got
            },
            {
                topic: book.causal.came_late(index)
                for topic, book in self.books.items()
                if book.causal is not None
            },
        )

    def rolled_back(self, index: int, time_s: float, memory: Memory) -> None:
        """A node's disk went back: it may get again what it got since, and not know of it.

        What it published since then and nobody else has is lost with the disk.
        """
        self.killed_s[index] = time_s
        self.disk_lost_s[index] = time_s
        for topic, book in self.books.items():
            self._end(book, index)
            if topic in memory.subscriptions:
                book.subscriptions[index] = memory.subscriptions[topic]
        for key, (got, last) in memory.got.items():
            stream = self.streams[key]
            stream.got[index] = bytearray(got)
            if stream.lasts is not None and last is not None:
                stream.lasts[index] = last
        for topic, book in self.books.items():
            if book.causal is not None:
                book.causal.look_again(self, index, memory.came_late.get(topic, frozenset()))

    # What checkers ask.

    def book(self, topic: Cid) -> TopicBook:
        """The book of a topic, begun if need be."""
        book = self.books.get(topic)
        if book is None:
            book = self.books[topic] = TopicBook(topic)
        return book

    def stream(self, topic: Cid, publisher: PeerId, epoch: int, home: int) -> Stream:
        """The stream of a publisher in a topic, begun if need be."""
        key = (topic, publisher, epoch)
        stream = self.streams.get(key)
        if stream is None:
            book = self.book(topic)
            stream = self.streams[key] = Stream(book, publisher, epoch, home)
            book.streams.append(stream)
        return stream

    def twins_of(self, request_id: bytes) -> list[Cid]:
        """All events that were published for a request, where there is more than one."""
        return [cid for cid, of in self.twins.items() if of == request_id]

    def hops_mean(self) -> float:
        """How many hops an event came over on average, not counting its publisher's own."""
        total = sum(self.hops.values())
        return sum(hops * count for hops, count in self.hops.items()) / total if total else 0.0

    def name(self, stream: Stream) -> str:
        """A stream as people read it."""
        return f"topic {stream.book.name or stream.book.topic.hex()[8:20]}, node {stream.home}"

    def latency_s(self, share: float) -> float:
        """The simulated time within which this share of the deliveries came, rounded up."""
        total = sum(self.latencies.values())
        seen = 0
        for unit in sorted(self.latencies):
            seen += self.latencies[unit]
            if seen >= share * total:
                return (unit + 1) * LATENCY_UNIT_S
        return 0.0
