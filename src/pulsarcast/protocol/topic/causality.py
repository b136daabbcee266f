"""Causal order: holds an event back until all events that its publisher had delivered are here.

docs/spec/pulsarcast.md, Causal order.

An event names its parents by mark (VCube-PS' causal barrier). A parent is behind the node if the
frontier covers its number: delivered, before the start, void and retired are all the same there.
An event also waits for its publisher's event before it, also if that is not among its parents: so
events of one publisher never overtake each other, as the paper asks of its per-source order.

**Bounds on hostile publishers.** A publisher can name parents that never existed, and its event
waits for ever. It waits at its publisher's expense: one publisher takes at most a share of the
room. If all room is taken, the publisher with the most waiting events gives way. If that is the
new event's publisher, a waiting event that follows the new one gives way: it could wait for ever
for an event that had no room. A dropped event is fetched again once a comparison of frontiers shows
it. An honest publisher never links to an event that it has not delivered.
"""

from collections.abc import Iterator

from pulsarcast.model.errors import Rejection, RemoteError
from pulsarcast.model.events import EventDescriptor
from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.model.topics import DeliveryOrder, Mark
from pulsarcast.protocol.topic.frontier import Frontier, Source
from pulsarcast.protocol.topic.ordering import BYTES_MAX, Ordering

PUBLISHER_SHARE = 4
"""One publisher takes at most 1/`PUBLISHER_SHARE` of the events, and of the bytes, that wait."""
KNOWN_MAX = 1024
"""Bounds the events whose marks are remembered, to check links to them."""
EXCUSED_MAX = 1024
"""Bounds the numberings whose missing events are known to be retired, though not skipped."""


class CausalOrdering(Ordering):
    """Holds the events of a causal topic back until all their parents are behind the frontier."""

    __slots__ = (
        "_blocked",
        "_bytes",
        "_counts",
        "_excused",
        "_handed_out",
        "_known",
        "_to_look_at",
        "_waiting_bytes",
        "_waiting_count",
        "_waits",
    )

    def __init__(self, frontier: Frontier, held_back_max: int) -> None:
        super().__init__(DeliveryOrder.CAUSAL, frontier, held_back_max)
        self._blocked: dict[Source, dict[Source, None]] = {}
        """Numberings whose next event is here and waits, by the numbering that it waits for."""
        self._waits: dict[Source, Source] = {}
        """The inverse: the numbering that each of them waits for."""
        self._to_look_at: dict[Source, None] = {}
        self._handed_out: Source | None = None
        self._counts: dict[PeerId, int] = {}
        self._bytes: dict[PeerId, int] = {}
        self._known: dict[Cid, Mark] = {}
        self._excused: dict[Source, int] = {}

    # Asking.

    def check_links(self, event: EventDescriptor) -> None:
        """Refuse an event that names a parent with a false mark, if the parent is remembered."""
        named = zip(event.parents, event.marks, strict=True)
        after = zip(event.request.after, event.request.marks, strict=True)
        for cid, mark in (*named, *after):
            if self._known.get(cid, mark) != mark:
                raise RemoteError(
                    "a parent that is not what the event says", code=Rejection.FOREIGN_PARENT
                )

    def lacking(self, event: EventDescriptor) -> Iterator[tuple[Mark, Cid]]:
        """An event's parents that the node neither has nor holds back: marks and content ids."""
        named = zip(event.marks, event.parents, strict=True)
        after = zip(event.request.marks, event.request.after, strict=True)
        for mark, cid in (*named, *after):
            if not self._is_behind(mark) and self.held_back(*mark) is None:
                yield mark, cid

    def is_behind(self, marks: tuple[Mark, ...]) -> bool:
        """Whether all these events were delivered, came before the start, or are retired."""
        return all(map(self._is_behind, marks))

    def _is_behind(self, mark: Mark) -> bool:
        publisher, epoch, number = mark
        return (
            self.frontier.high(publisher, epoch) >= number
            or self._excused.get((publisher, epoch), 0) >= number
        )

    def waits_for(self, event: EventDescriptor) -> Source | None:
        """The first numbering that has to move on before this event may be delivered."""
        for mark in (*event.marks, *event.request.marks):
            if not self._is_behind(mark):
                return mark.publisher, mark.epoch
        return None

    # Taking in.

    def offer(self, event: EventDescriptor, hops: int) -> bool:
        """Whether the event may be delivered now; if not it is held back, or dropped if full."""
        epoch, number = event.sequence
        self._remember(event)
        source = (event.publisher, epoch)
        is_next = number == self.frontier.high(*source) + 1
        waits_for = self.waits_for(event)
        if is_next and waits_for is None:
            return True
        if self._make_room(event):
            self._waiting.setdefault(source, {})[number] = (event, hops)
            self._count(event, 1)
            if is_next and waits_for is not None:
                self._block(source, waits_for)
        return False

    def _remember(self, event: EventDescriptor) -> None:
        self._known[event.cid] = Mark(event.publisher, *event.sequence)
        if len(self._known) > KNOWN_MAX:
            del self._known[next(iter(self._known))]

    def excuse(self, publisher: PeerId, epoch: int, number: int) -> None:
        """A numbering is retired at every node up to a number: no event waits for that any more."""
        self._excused[publisher, epoch] = number
        if len(self._excused) > EXCUSED_MAX:
            del self._excused[next(iter(self._excused))]

    def _block(self, source: Source, waits_for: Source) -> None:
        self._unblock(source)
        self._blocked.setdefault(waits_for, {})[source] = None
        self._waits[source] = waits_for

    def _unblock(self, source: Source) -> None:
        waits_for = self._waits.pop(source, None)
        if waits_for is not None:
            others = self._blocked[waits_for]
            del others[source]
            if not others:
                del self._blocked[waits_for]

    def needed(self, publisher: PeerId, epoch: int) -> int:
        """The highest number of a numbering that the next event of another one waits for."""
        source = (publisher, epoch)
        return max((self._names(each, source) for each in self._blocked.get(source, ())), default=0)

    def _names(self, blocked: Source, source: Source) -> int:
        """The highest number of a numbering that the next event of a blocked one follows."""
        event, _ = self._waiting[blocked][self.frontier.high(*blocked) + 1]
        marks = (*event.marks, *event.request.marks)
        return max((mark.number for mark in marks if mark[:2] == source), default=0)

    # Giving out.

    def next_of(self, publisher: PeerId, epoch: int) -> tuple[EventDescriptor, int] | None:
        """An event that is next since a numbering moved on; ask until there is none."""
        self._moved((publisher, epoch))
        if self._handed_out is not None:
            self._moved(self._handed_out)
            self._handed_out = None
        while self._to_look_at:
            source = next(iter(self._to_look_at))
            del self._to_look_at[source]
            found = self._next_ready(source)
            if found is not None:
                self._handed_out = source
                return found
        return None

    def _moved(self, source: Source) -> None:
        self._to_look_at[source] = None
        for waiting in self._blocked.pop(source, {}):
            del self._waits[waiting]
            self._to_look_at[waiting] = None

    def _next_ready(self, source: Source) -> tuple[EventDescriptor, int] | None:
        waiting = self._waiting.get(source)
        if waiting is None:
            return None
        high = self.frontier.high(*source)
        for number in [number for number in waiting if number <= high]:
            self._remove(source, number)
        found = waiting.get(high + 1)
        if found is None:
            return None
        waits_for = self.waits_for(found[0])
        if waits_for is not None:
            self._block(source, waits_for)
            return None
        self._remove(source, high + 1)
        return found

    # Room.

    def _count(self, event: EventDescriptor, change: int) -> None:
        publisher, size = event.publisher, len(event.block)
        self._waiting_count += change
        self._waiting_bytes += change * size
        self._counts[publisher] = self._counts.get(publisher, 0) + change
        self._bytes[publisher] = self._bytes.get(publisher, 0) + change * size
        if not self._counts[publisher]:
            del self._counts[publisher], self._bytes[publisher]

    def _remove(self, source: Source, number: int) -> None:
        waiting = self._waiting[source]
        self._count(waiting.pop(number)[0], -1)
        if not waiting or number <= self.frontier.high(*source) + 1:
            self._unblock(source)
        if not waiting:
            del self._waiting[source]

    def _make_room(self, event: EventDescriptor) -> bool:
        """Whether an event may wait here; others may be dropped for it."""
        publisher, size = event.publisher, len(event.block)
        share = max(1, self.held_back_max // PUBLISHER_SHARE)
        while (
            self._counts.get(publisher, 0) >= share
            or self._bytes.get(publisher, 0) + size > BYTES_MAX // PUBLISHER_SHARE
        ):
            follower = self._follower_of(event)
            if follower is None or follower[0][0] != publisher:
                return False
            self._remove(*follower)
        while self._waiting_count >= self.held_back_max or self._waiting_bytes + size > BYTES_MAX:
            short_of_bytes = self._waiting_count < self.held_back_max
            taken, needed = (self._bytes, size) if short_of_bytes else (self._counts, 1)
            greediest = max(taken, key=lambda each: taken[each], default=publisher)
            if taken.get(greediest, 0) > taken.get(publisher, 0) + needed:
                gives_way = self._last_of(greediest)
            else:
                gives_way = self._follower_of(event)
            if gives_way is None:
                return False
            self._remove(*gives_way)
        return True

    def _follower_of(self, event: EventDescriptor) -> tuple[Source, int] | None:
        """A waiting event that follows another: of its own numbering, or blocked by it."""
        source = (event.publisher, event.sequence.epoch)
        last = max(self._waiting.get(source, ()), default=0)
        if last > event.sequence.number:
            return source, last
        for blocked in self._blocked.get(source, ()):
            if self._names(blocked, source) >= event.sequence.number:
                return blocked, self.frontier.high(*blocked) + 1
        return None

    def _last_of(self, publisher: PeerId) -> tuple[Source, int] | None:
        """The highest number that waits of a publisher, in the numbering with the most."""
        sources = [source for source in self._waiting if source[0] == publisher]
        if not sources:
            return None
        source = max(sources, key=lambda each: len(self._waiting[each]))
        return source, max(self._waiting[source])
