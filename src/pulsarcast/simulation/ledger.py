"""The ledger: what was published, and who got it, in as few bytes as will do.

Every event has a place that its publisher signed: topic, publisher, epoch, number. So all that a
node got of one publisher is one byte per number, and nothing in here holds a CID per delivery:
100 nodes, 17,611 events and 1.7 million deliveries take some 10 MB.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias

from pulsarcast.model.events import Position
from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.model.topic_types import DeliveryOrder, Mark

if TYPE_CHECKING:
    from pulsarcast.simulation.checkers.causality import CausalBook

BEFORE = 255
"""In `Stream.got`: the subscription's start frontier covers this number."""
MARKS = 250
"""Incarnations that one byte of `Stream.got` can tell apart."""
LOWEST_ROOM = 16

NO_LEVEL, ACCEPTED, REPLICATED = 0, 1, 2
LEVELS = {"accepted": ACCEPTED, "replicated": REPLICATED}

StreamKey: TypeAlias = tuple[Cid, PeerId, int]


class Stream:
    """One publisher's numbering in one topic: everything by number, from 1."""

    __slots__ = (
        "book",
        "cids",
        "epoch",
        "got",
        "home",
        "is_shared",
        "lasts",
        "levels",
        "places",
        "publisher",
        "redone",
        "sayers",
        "times",
    )

    def __init__(self, book: TopicBook, publisher: PeerId, epoch: int, home: int) -> None:
        self.book = book
        self.publisher = publisher
        self.epoch = epoch
        self.home = home
        """The node that publishes here; where several count together, the first that said so."""
        self.is_shared = False
        """Whether several sequencers count here together: what they say is out is on most disks."""
        self.cids: list[Cid | None] = [None]
        self.sayers: list[int] = [home]
        """Which node said each to be out: what it delivers itself has come no way."""
        self.times: list[float] = [0.0]
        """When each was published, by the simulation's own clock: nobody's node has it."""
        self.levels = bytearray(1)
        """The highest level each was acknowledged at."""
        self.places: list[int] = [-1]
        """Where each belongs in the order: its number, or in total order its position."""
        self.lasts: dict[int, int] | None = book.lasts_of_a_stream()
        """The last place each node has come to; None where no order is promised."""
        self.redone: dict[int, tuple[int, int]] = {}
        """The last place each node has delivered again, and in which incarnation."""
        self.got: dict[int, bytearray] = {}
        """By node and number: 0 not yet, BEFORE, or else a mark of the incarnation that got it."""

    @property
    def high(self) -> int:
        """The highest number published."""
        return len(self.cids) - 1

    def put(
        self, number: int, cid: Cid, sayer: int, time_s: float, position: Position | None
    ) -> None:
        """Enter a published event, leaving holes where lower numbers are not known yet."""
        while len(self.cids) <= number:
            self.cids.append(None)
            self.sayers.append(sayer)
            self.times.append(0.0)
            self.levels.append(NO_LEVEL)
            self.places.append(-1)
        self.cids[number] = cid
        self.sayers[number] = sayer
        self.times[number] = time_s
        self.levels[number] = NO_LEVEL
        self.places[number] = number if position is None else position.number

    def cid_at(self, number: int) -> Cid | None:
        """The event of this number, where there is one."""
        return self.cids[number] if 0 < number < len(self.cids) else None

    def room_for(self, node: int, number: int, start: int) -> bytearray:
        """The node's bytes, long enough for this number."""
        got = self.got.get(node)
        if got is None:
            got = self.got[node] = bytearray(b"\xff") * (start + 1)
        if len(got) <= number:
            # Twice as long each time: growing by one would copy 17,000 bytes 17,000 times.
            got.extend(bytes(max(number + 1, 2 * len(got), LOWEST_ROOM) - len(got)))
        return got

    def got_between(self, node: int, after: int, last: int) -> int:
        """How many of the numbers after+1..last this node has."""
        got = self.got.get(node)
        if got is None or last <= after:
            return 0
        last = min(last, len(got) - 1)
        return max(0, last - after) - got.count(0, after + 1, max(after, last) + 1)

    def published_between(self, after: int, last: int) -> int:
        """How many of the numbers after+1..last are events: a publisher may leave one void."""
        if last <= after:
            return 0
        return last - after - self.cids[after + 1 : last + 1].count(None)

    def lacks(self, node: int, after: int, last: int) -> list[int]:
        """Which of the events after+1..last this node has not."""
        got = self.got.get(node, b"")
        held = len(got)
        cids = self.cids
        return [
            number
            for number in range(after + 1, last + 1)
            if (number >= held or not got[number]) and cids[number] is not None
        ]

    def delivered_elsewhere(self, number: int) -> bool:
        """Whether any node but the publisher's own got this number."""
        return any(node != self.home and self.has(node, number) for node in self.got)

    def has(self, node: int, number: int) -> bool:
        """Whether this node got this number."""
        got = self.got.get(node, b"")
        return number < len(got) and got[number] not in (0, BEFORE)

    def take_back(self, number: int) -> None:
        """An event that never left its publisher is gone: the number is free for another one."""
        got = self.got.get(self.home)
        if got is not None and number < len(got) and got[number] != BEFORE:
            got[number] = 0
        if self.lasts is not None and self.home in self.lasts:
            self.lasts[self.home] = min(self.lasts[self.home], self.places[number] - 1)


class Subscription:
    """One node's subscription to one topic, from its start frontier on."""

    __slots__ = ("confirmed", "filtered", "is_whole", "let_off", "node", "start")

    def __init__(
        self,
        node: int,
        start: dict[tuple[PeerId, int], int],
        *,
        filtered: bool = False,
        is_whole: bool = True,
    ) -> None:
        self.node = node
        self.filtered = filtered
        """Whether it wants only what matches: which events that are is in no trace."""
        self.start = start
        self.is_whole = is_whole
        """Whether all of the start frontier is told; until then some numberings may be due or not.
        """
        self.confirmed = False
        """The application was told that it is subscribed: from here on nothing excuses a loss."""
        self.let_off: dict[tuple[PeerId, int], int] = {}
        """Up to which number of a stream the node said that what it lacks is retired."""

    def start_in(self, stream: Stream) -> int:
        """The highest number of a stream that came before this subscription."""
        return self.start.get((stream.publisher, stream.epoch), 0)

    def tells(self, stream: Stream) -> bool:
        """Whether the node has said where it starts in a stream."""
        return self.is_whole or (stream.publisher, stream.epoch) in self.start

    def copy(self) -> Subscription:
        """The subscription as it is now."""
        twin = Subscription(
            self.node, dict(self.start), filtered=self.filtered, is_whole=self.is_whole
        )
        twin.confirmed, twin.let_off = self.confirmed, dict(self.let_off)
        return twin

    def let_off_in(self, stream: Stream) -> int:
        """The highest number of a stream that the node says is retired."""
        return self.let_off.get((stream.publisher, stream.epoch), 0)


class Tally:
    """Coverage in integers: docs/glossary.md says what is due."""

    __slots__ = ("delivered", "due", "retired", "unacknowledged_lost", "undecided")

    def __init__(self) -> None:
        self.due = 0
        self.delivered = 0
        self.undecided = 0
        self.retired = 0
        self.unacknowledged_lost = 0

    def add(self, other: Tally) -> None:
        """Take another tally's figures in."""
        self.due += other.due
        self.delivered += other.delivered
        self.undecided += other.undecided
        self.retired += other.retired
        self.unacknowledged_lost += other.unacknowledged_lost


class TopicBook:
    """One topic: its streams, its subscriptions, and what its author chose."""

    def __init__(
        self, topic: Cid, *, name: str = "", order: DeliveryOrder = DeliveryOrder.NONE
    ) -> None:
        self.topic = topic
        self.name = name
        self.order = order
        self.streams: list[Stream] = []
        self.subscriptions: dict[int, Subscription] = {}
        self.ended = Tally()
        """What the subscriptions that have ended came to."""
        self.lasts: dict[int, int] = {}
        """Total order: the last position each node has come to."""
        self.positions: dict[int, tuple[Stream, int]] = {}
        self.history: list[tuple[Stream, int]] = []
        """Every event in the order of publication."""
        self.retention_count: int | None = None
        self.retention_age_s: float | None = None
        self.flushed: dict[tuple[PeerId, int], int] = {}
        """Up to which number of a numbering some version lets go of everything."""
        self.newest: dict[int, deque[tuple[Stream, int]]] = {}
        """What retention by count leaves a node, which counts in the order of arrival."""
        self.outrun: set[tuple[Stream, int]] = set()
        """Events that retention by count lets some node drop."""
        self.causal: CausalBook | None = None
        """Where the order is causal: who follows whom."""
        self.chained = True
        """Whether parents are the system's to link, so that a total order is one chain."""

    def arrived(self, node: int, stream: Stream, number: int) -> None:
        """A topic with retention by count: one more event in a node's log."""
        assert self.retention_count is not None
        newest = self.newest.setdefault(node, deque())
        newest.append((stream, number))
        if len(newest) > self.retention_count:
            self.outrun.add(newest.popleft())

    def flush(self, marks: Iterable[Mark]) -> None:
        """A version lets go of everything up to some marks."""
        for publisher, epoch, number in marks:
            known = self.flushed.get((publisher, epoch), 0)
            self.flushed[publisher, epoch] = max(known, number)

    def lasts_of_a_stream(self) -> dict[int, int] | None:
        """Where a new stream keeps the last places: a total order has one sequence for all."""
        if self.order is DeliveryOrder.NONE:
            return None
        return self.lasts if self.order is DeliveryOrder.TOTAL else {}

    def promise(self, order: DeliveryOrder) -> None:
        """Learn which order the author chose, perhaps after the first events."""
        if order is not self.order:
            self.order = order
            for stream in self.streams:
                stream.lasts = self.lasts_of_a_stream()

    def end(self, node: int, known: Iterable[Mark] = ()) -> None:
        """A subscription ends: what it knew of and has not got by now is undecided, for good.

        Whether what it did not know of came before it left or after, nobody can say: that was not
        due. (An observer of the whole world could; one who reads traces cannot.)
        """
        subscription = self.subscriptions.pop(node, None)
        if subscription is None:
            return
        end = {(mark.publisher, mark.epoch): mark.number for mark in known}
        for stream in self.streams:
            start, high = subscription.start_in(stream), stream.high
            got = stream.got_between(node, start, high)
            self.ended.due += got
            self.ended.delivered += got
            if subscription.filtered or not subscription.tells(stream):
                continue
            known_of = min(high, end.get((stream.publisher, stream.epoch), 0))
            self.ended.undecided += max(0, stream.published_between(start, known_of) - got)

    def forget(self, node: int) -> None:
        """Begin anew with a node: what it got before belongs to a subscription that is over."""
        self.lasts.pop(node, None)
        self.newest.pop(node, None)
        for stream in self.streams:
            stream.got.pop(node, None)
            stream.redone.pop(node, None)
            if stream.lasts is not None:
                stream.lasts.pop(node, None)
