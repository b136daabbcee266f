"""Subscriptions: an application's place in the events of a topic, which outlives the program.

Every topic that we follow has a log on disk, and a subscription is a place in it. Events that come
while somebody waits for them are handed over from memory; whoever is slow reads on from the log,
so nothing grows with it.

A subscription that takes in sub-topics is one of these per topic (`below`).

A subscription with a filter is handed what matches. Which ones an event matches is looked up in an
index, so those that it does not match cost nothing; their places move on all the same.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import trio

from pulsarcast.model.errors import Closed, LocalError, Refusal
from pulsarcast.model.events import Attribute, EventDescriptor
from pulsarcast.model.filters import Filter, FilterIndex
from pulsarcast.model.ids import Cid, cid_text, peer_text
from pulsarcast.model.payloads import decode_json, decode_text
from pulsarcast.model.shown import event_shown, short
from pulsarcast.model.topic_types import AttributeRule

if TYPE_CHECKING:
    from pulsarcast.network.below import BelowSubscription

CLOSED: Final = Closed("the subscription is closed").refusal
MEMORY_MAX: Final = 256
"""Events kept in memory for a subscriber that is behind."""
MEMORY_BYTES_MAX: Final = 4 << 20
"""And their bytes, but for the last one."""
PAGE: Final = 128
RESERVED: Final = 1024
"""Events that a reader may be given before the disk is told again.

After a crash the disk says up to where a reader may have been given something: what it gets again
is marked, and at most so many too many.
"""


@dataclass(frozen=True, slots=True, repr=False)
class Event:
    """An event as an application gets it."""

    index: int
    """Our own count of this topic's events, in the order in which they were delivered.

    0: the event does not come from the node's log of the topic."""
    descriptor: EventDescriptor
    """Everything that its author and its publisher signed."""
    redelivery: bool = False
    """Whether the same subscriber may have been given it before, and never said it was done."""

    @property
    def topic(self) -> str:
        """The content id of its topic."""
        return cid_text(self.descriptor.topic)

    @property
    def payload(self) -> bytes:
        """What was published."""
        return self.descriptor.request.payload

    def text(self) -> str:
        """The payload as text; raises InvalidPayload if it is not UTF-8."""
        return decode_text(self.payload)

    def json(self) -> Any:
        """The payload as a JSON value; raises InvalidPayload if it is not JSON."""
        return decode_json(self.payload)

    @property
    def attributes(self) -> dict[str, Attribute]:
        """What was said about it, for filters."""
        return dict(self.descriptor.request.attributes)

    @property
    def name(self) -> str:
        """What its author called it."""
        return self.descriptor.request.name

    @property
    def id(self) -> str:
        """Its content id."""
        return cid_text(self.descriptor.cid)

    @property
    def author(self) -> str:
        """Who said it."""
        return peer_text(self.descriptor.author)

    @property
    def publisher(self) -> str:
        """Who gave it its place among the others."""
        return peer_text(self.descriptor.publisher)

    @property
    def parents(self) -> tuple[str, ...]:
        """The events that it is linked to."""
        return tuple(cid_text(parent) for parent in self.descriptor.parents)

    def __repr__(self) -> str:
        return event_shown(self, merge=self.descriptor.is_silent)


Begin: TypeAlias = Literal["now", "beginning"]
"""Where a subscription begins in a topic of which it has no place yet."""
_BELOW: Final[tuple[Begin | None, ...]] = (None, "now", "beginning")
"""How the disk has it."""


class Memory:
    """Events in memory for a subscriber that is behind, and their bytes."""

    __slots__ = ("bytes", "count")

    def __init__(self) -> None:
        self.count = 0
        self.bytes = 0

    @property
    def has_room(self) -> bool:
        """Whether another event may be kept."""
        return self.count < MEMORY_MAX and self.bytes < MEMORY_BYTES_MAX

    def add(self, event: Event) -> None:
        """An event is kept."""
        self.count += 1
        self.bytes += len(event.descriptor.block)

    def remove(self, event: Event) -> None:
        """An event is kept no longer."""
        self.count -= 1
        self.bytes -= len(event.descriptor.block)


ReadPage = Callable[[Cid, int, int], Awaitable[list[Event]]]


class Reader:
    """The place of one name in a topic, whether somebody listens under it now or not."""

    __slots__ = ("below", "cursor", "given", "is_promised", "reserved", "subscription", "unwritten")

    def __init__(self, cursor: int | None = None, reserved: int = 0) -> None:
        self.cursor: int | None = cursor
        """Up to where it is done; None: it begins with whatever comes first."""
        self.reserved: int = reserved
        """Up to where it may have been given events, as the disk knows it: ahead of the truth."""
        self.given: int = reserved
        """The same, as far as we know."""
        self.subscription: Subscription | None = None
        self.unwritten: bool = False
        """Whether the disk does not know its place yet."""
        self.below: Begin | None = None
        """Where it begins in sub-topics that the node followed before; None: it reads none."""
        self.is_promised: bool = False
        """Whether somebody was told that it has this place: else it goes with the last who asks."""

    @property
    def done(self) -> int | None:
        """Up to where it is done, with what it need not be given."""
        return self.cursor if self.subscription is None else self.subscription.done

    def to_bytes(self) -> bytes:
        """As the disk has it."""
        places = (self.cursor or 0).to_bytes(8, "big") + self.reserved.to_bytes(8, "big")
        return places + bytes([_BELOW.index(self.below)])

    @classmethod
    def from_bytes(cls, data: bytes) -> Reader:
        """From the disk."""
        reader = cls(int.from_bytes(data[:8], "big"), int.from_bytes(data[8:16], "big"))
        reader.below = _BELOW[data[16]]
        reader.is_promised = True
        return reader


class Feed:
    """All readers of one topic, and how far its log goes."""

    __slots__ = (
        "_all",
        "_indexes",
        "_some",
        "_unwritten",
        "has_unplaced",
        "newest",
        "parts",
        "readers",
        "topic",
    )

    def __init__(self, topic: Cid, unwritten: dict[Cid, None]) -> None:
        self.topic: Cid = topic
        self.newest: int = 0
        self.readers: dict[str, Reader] = {}
        self.parts: dict[str, Cid] = {}
        """The readers that read this topic below another one, and that one."""
        self._unwritten = unwritten
        """Where topics stand of whose readers the disk does not know everything."""
        self.has_unplaced = True
        """Whether a reader may be without a place."""
        self._all: dict[str, Subscription] = {}
        """Those who want every event."""
        self._some: dict[str, Subscription] = {}
        """Those who want what matches, and their filters by the schema that these are made for."""
        self._indexes: dict[tuple[AttributeRule, ...], FilterIndex[str]] = {}

    def listen(self, subscription: Subscription) -> None:
        """Somebody listens from now on, in place of whoever did under the same name."""
        self.unlisten(subscription.name)
        wanted = subscription.wanted
        if wanted is None:
            self._all[subscription.name] = subscription
            return
        self._some[subscription.name] = subscription
        index = self._indexes.setdefault(wanted.schema, FilterIndex(wanted.schema))
        index.insert(subscription.name, wanted)

    def unlisten(self, name: str) -> None:
        """Nobody listens any more under a name."""
        self._all.pop(name, None)
        former = self._some.pop(name, None)
        if former is not None and former.wanted is not None:
            index = self._indexes[former.wanted.schema]
            index.remove(name)
            if not len(index):
                del self._indexes[former.wanted.schema]

    def deliver(self, index: int, descriptor: EventDescriptor) -> None:
        """An event has come."""
        if index <= self.newest:
            return  # After a restart, what was not acknowledged comes again; the log has it.
        self.place(index - 1)
        self.newest = index
        self._unwritten[self.topic] = None
        event = Event(index, descriptor)
        for subscription in self._all.values():
            subscription.offer(event)
        if descriptor.is_silent:
            return  # It says nothing, and nobody asked for it.
        for filters in self._indexes.values():
            for name in filters.matching(descriptor.request.attributes):
                self._some[name].offer_match(event)

    def place(self, index: int) -> None:
        """Let those begin behind an index that have no place yet."""
        for reader in self.readers.values() if self.has_unplaced else ():
            if reader.cursor is None:
                subscription = reader.subscription
                self.move(reader, index if subscription is None else subscription.place(index))
        self.has_unplaced = False
        self.newest = max(self.newest, index)

    def move(self, reader: Reader, index: int) -> None:
        """Let a reader stand at an index, and see to it that this is written down."""
        reader.cursor = index
        reader.unwritten = True
        self._unwritten[self.topic] = None

    def reserve(self, reader: Reader, index: int) -> None:
        """Note up to where a reader may be given events before the disk is told again."""
        reader.reserved = index
        reader.unwritten = True
        self._unwritten[self.topic] = None


def is_wanted(wanted: Filter | None, event: EventDescriptor) -> bool:
    """Whether an event is handed out: merges never are, and with a filter only what matches."""
    if event.is_silent:
        return False
    return wanted is None or wanted.matches(event.request.attributes)


class Subscription:
    """Iterate over it with `async for`; an event counts as done when the next one is asked for.

    With `manual` only `acknowledge` says what is done. Merges of causal order say nothing and are
    not handed out, and neither is what a filter does not match: there, indexes are left out.
    """

    __slots__ = (
        "_arrived",
        "_closed",
        "_feed",
        "_given_before",
        "_handed",
        "_is_current",
        "_manual",
        "_memory",
        "_next",
        "_read",
        "_reader",
        "_ready",
        "_start",
        "_sync",
        "_taken",
        "name",
        "wanted",
        "whole",
    )

    def __init__(
        self,
        feed: Feed,
        name: str,
        read: ReadPage,
        sync: Callable[[], None],
        *,
        start: int | None = None,
        manual: bool = False,
        wanted: Filter | None = None,
        whole: BelowSubscription | None = None,
        memory: Memory | None = None,
    ) -> None:
        self.name = name
        self.wanted: Final = wanted
        self.whole: Final = whole
        """The subscription that this one is a part of, if it takes in sub-topics."""
        self._feed = feed
        self._reader = feed.readers[name]
        self._read = read
        self._sync = sync
        self._manual = manual
        self._start = start
        self._next = (self._reader.cursor or 0) + 1 if start is None else start
        # Who says where to begin knows what it has: nothing comes to it again.
        self._given_before = self._reader.given if start is None else 0
        self._ready: list[Event] = []
        """At most `MEMORY_MAX`: an empty deque takes ten times the memory of an empty list."""
        self._memory = Memory() if memory is None else memory
        self._taken = 0
        """The last index in memory; what is not handed out is passed over behind it."""
        self._is_current = False
        """With a filter: whether nothing up to the newest event that matches has been missed."""
        self._handed = (self._reader.cursor or 0) if start is None else start - 1
        """The last index that was handed out."""
        self._arrived: trio.Event | None = None
        """While somebody waits."""
        self._closed: Refusal | None = None
        self._reader.subscription = self
        feed.listen(self)

    def __repr__(self) -> str:
        return f"<Subscription {self.name!r} of {short(self.topic)}>"

    @property
    def topic(self) -> str:
        """The topic's content id."""
        return cid_text(self._feed.topic)

    @property
    def closed(self) -> str | None:
        """Why nothing comes any more, where that is so."""
        return None if self._closed is None else self._closed.message

    def place(self, index: int) -> int:
        """Begin behind an index, unless the caller chose where; returns behind which."""
        if self._start is not None:
            return min(self._start - 1, index)
        self._next = index + 1
        return index

    def offer(self, event: Event) -> None:
        """Take an event that has just come, if it is the next one and we are not far behind."""
        expected = self._taken + 1 if self._ready else self._next
        if event.index == expected and self._memory.has_room:
            self._keep(event)
        self._wake()

    def offer_match(self, event: Event) -> None:
        """Take an event that has just come and matches; what came before and did not is passed."""
        if self._is_current and event.index >= self._next:
            if self._memory.has_room:
                self._keep(event)
            else:
                self._is_current = False  # From here on the log knows.
                self._taken = event.index - 1
        self._wake()

    def _wake(self) -> None:
        if self._arrived is not None:
            self._arrived.set()
        if self.whole is not None:
            self.whole.wake(self)

    @property
    def done(self) -> int | None:
        """Up to where it is done: its place, and what it need not be given behind that."""
        cursor = self._reader.cursor
        if self.wanted is None or self._ready or cursor is None or cursor < self._handed:
            return cursor
        return max(cursor, self._feed.newest if self._is_current else self._next - 1)

    def settle(self, slack: int = RESERVED) -> None:
        """Move the place over what did not match, unless that is hardly worth writing down."""
        done, cursor = self.done, self._reader.cursor
        if done is not None and cursor is not None and done > cursor + slack:
            self._feed.move(self._reader, done)

    def _keep(self, event: Event) -> None:
        self._taken = event.index
        if not is_wanted(self.wanted, event.descriptor):
            if not self._ready:
                self._next = event.index + 1
            return
        self._ready.append(event)
        self._memory.add(event)

    def close(self, refusal: Refusal = CLOSED) -> None:
        """Listen no more; the place is kept."""
        if self._closed is None:
            self._closed = refusal
            if self._reader.subscription is self:
                self.settle(0)
                self._reader.subscription = None
                self._feed.unlisten(self.name)
            for event in self._ready:
                self._memory.remove(event)
            self._ready.clear()
        self._wake()

    def acknowledge(self, index: int | None = None, subtopic: str | None = None) -> None:
        """Say that everything up to the last event, or up to an index, is done."""
        if subtopic is not None and subtopic != self.topic:
            raise LocalError("the subscription takes in no sub-topics: give below=True")
        given = self._next - 1
        done = given if index is None else min(index, given)
        reader = self._reader
        if reader.cursor is not None and done > reader.cursor:
            self._feed.move(reader, done)

    async def wait(self) -> None:
        """Wait until there is something to be had at once."""
        while not await self.look():
            if self._closed is not None:
                raise self._closed.error()
            self._is_current = self.wanted is not None
            self._arrived = trio.Event()
            await self._arrived.wait()

    async def look(self) -> bool:
        """Whether there is something to be had at once, in memory or in the log."""
        while not self._ready and self._closed is None:
            if self._next > self._feed.newest or self._is_current:
                return False
            # Memory was too small for us, or the program has just begun: the log knows.
            await self._read_on()
        return bool(self._ready)

    @property
    def has_ready(self) -> bool:
        """Whether there is something to be had from memory."""
        return bool(self._ready)

    @property
    def refusal(self) -> Refusal | None:
        """Why nothing comes any more, for programs."""
        return self._closed

    def ready(self, bytes_max: int) -> int:
        """How many events can be had at once, up to some bytes, but one if there is any."""
        count = size = 0
        for event_bytes in self.sizes():
            size += event_bytes
            if count and size > bytes_max:
                break
            count += 1
        return count

    def sizes(self) -> Iterator[int]:
        """The bytes of each event that can be had at once."""
        return (len(event.descriptor.block) for event in self._ready)

    def __aiter__(self) -> AsyncIterator[Event]:
        """Iterate over what comes."""
        return self

    async def __anext__(self) -> Event:
        """The next event, whenever it comes."""
        if not self._manual:
            self.acknowledge()
        await self.wait()
        return self.take()

    def take(self) -> Event:
        """The next event, which is there."""
        event = self._ready.pop(0)
        self._memory.remove(event)
        reader = self._reader
        if event.index > reader.reserved:
            self._feed.reserve(reader, event.index + RESERVED)
            self._sync()
        reader.given = max(reader.given, event.index)
        self._handed = event.index
        self._next = event.index + 1 if self._ready else self._taken + 1
        return event

    async def _read_on(self) -> None:
        first, newest = self._next, self._feed.newest
        page = await self._read(self._feed.topic, first, PAGE)
        if self._ready or self._next != first:
            return  # What we looked for came meanwhile.
        for event in page:
            again = event.index <= self._given_before
            self._keep(replace(event, redelivery=True) if again else event)
        if not page:
            # Retention let go of it before we came to it; what has come meanwhile is in the log.
            self._next = newest + 1

    async def __aenter__(self) -> Subscription:
        """Be a context: `async with node.subscribe(…) as events`."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
