"""Subscriptions: an application's place in the events of a topic, which outlives the program.

Every topic that we follow has a log on disk, and a subscription is a place in it. Events that come
while somebody waits for them are handed over from memory; whoever is slow reads on from the log,
so nothing grows with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Final

import trio

from pulsarcast.model.errors import LocalError
from pulsarcast.model.events import Attribute, EventDescriptor
from pulsarcast.model.ids import Cid, cid_text, peer_text

MEMORY_MAX: Final = 256
"""Events kept in memory for a subscriber that is behind."""
PAGE: Final = 128


@dataclass(frozen=True, slots=True)
class Event:
    """An event as an application gets it."""

    index: int
    """Our own count of this topic's events, in the order in which they were delivered."""
    descriptor: EventDescriptor
    """Everything that its author and its publisher signed."""

    @property
    def payload(self) -> bytes:
        """What was published."""
        return self.descriptor.request.payload

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


ReadPage = Callable[[Cid, int, int], Awaitable[list[Event]]]


class Feed:
    """All subscriptions of one topic, and how far its log goes."""

    def __init__(self, topic: Cid, to_write: dict[Cid, None]) -> None:
        self.topic = topic
        self._to_write = to_write
        """Where topics stand whose cursors are not all on the disk."""
        self.newest = 0
        self.subscriptions: dict[str, Subscription] = {}
        self.cursors: dict[str, int] = {}
        """Up to where each name is done, also of those that nobody listens to now."""
        self.changed: dict[str, None] = {}
        """Names whose cursor is not on the disk yet."""
        self.unplaced: dict[str, None] = {}
        """Names that begin with whatever comes first."""

    def deliver(self, index: int, event: EventDescriptor) -> None:
        """An event has come."""
        if index <= self.newest:
            return  # After a restart, what was not acknowledged comes again; the log has it.
        self.place(index - 1)
        self.newest = index
        for subscription in self.subscriptions.values():
            subscription.offer(Event(index, event))

    def place(self, index: int) -> None:
        """Let those begin behind an index that have no place yet."""
        for name in self.unplaced:
            self.move(name, index)
            subscription = self.subscriptions.get(name)
            if subscription is not None:
                subscription.begin_at(index + 1)
        self.unplaced.clear()
        self.newest = max(self.newest, index)

    def move(self, name: str, index: int) -> None:
        """Let a name stand at an index, and see to it that this is written down."""
        self.cursors[name] = index
        self.changed[name] = None
        self._to_write[self.topic] = None

    def forget(self, name: str) -> None:
        """A name has no place any more."""
        for table in (self.cursors, self.changed, self.unplaced):
            table.pop(name, None)

    def done(self, name: str, index: int) -> None:
        """A subscriber is done with everything up to an index."""
        if name not in self.unplaced and index > self.cursors.get(name, 0):
            self.move(name, index)


class Subscription:
    """Iterate over it with `async for`; an event counts as done when the next one is asked for."""

    def __init__(self, feed: Feed, name: str, read: ReadPage) -> None:
        self.name = name
        self._feed = feed
        self._read = read
        self._next = feed.cursors.get(name, 0) + 1
        self._ready: deque[Event] = deque()
        self._arrived = trio.Event()
        self._closed: str | None = None

    @property
    def topic(self) -> str:
        """The topic's content id."""
        return cid_text(self._feed.topic)

    def begin_at(self, index: int) -> None:
        """Begin with this index."""
        self._next = index

    def offer(self, event: Event) -> None:
        """Take an event that has just come, if it is the next one and we are not far behind."""
        expected = self._ready[-1].index + 1 if self._ready else self._next
        if event.index == expected and len(self._ready) < MEMORY_MAX:
            self._ready.append(event)
        self._arrived.set()

    def close(self, reason: str = "the subscription is closed") -> None:
        """Listen no more; the place is kept."""
        if self._closed is None:
            self._closed = reason
            if self._feed.subscriptions.get(self.name) is self:
                del self._feed.subscriptions[self.name]
        self._arrived.set()

    def acknowledge(self) -> None:
        """Say that the last event is done, without asking for the next."""
        self._feed.done(self.name, self._next - 1)

    def __aiter__(self) -> AsyncIterator[Event]:
        """Iterate over what comes."""
        return self

    async def __anext__(self) -> Event:
        """The next event, whenever it comes."""
        self.acknowledge()
        while not self._ready:
            if self._closed is not None:
                raise LocalError(self._closed)
            if self._next <= self._feed.newest:
                # Memory was too small for us, or the program has just begun: the log knows.
                page = await self._read(self._feed.topic, self._next, PAGE)
                self._ready.extend(page)
                if not page:
                    # Retention let go of it before we came to it.
                    self._next = self._feed.newest + 1
                continue
            self._arrived = trio.Event()
            await self._arrived.wait()
        event = self._ready.popleft()
        self._next = event.index + 1
        return event

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
