"""A subscription to a topic and all topics below it: the events of each, in one stream.

It has a part for each topic that had events, which is a subscription to that topic. Each part has
an offset of its own, so an event of one topic does not wait for another topic. Between topics there
is no order; a part that has events gives one, and is then last in line.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Final

import trio

from pulsarcast.model.errors import LocalError, Refusal
from pulsarcast.model.ids import Cid, cid_text
from pulsarcast.model.shown import short
from pulsarcast.network.subscriptions import (
    CLOSED,
    Event,
    Feed,
    Memory,
    ReadPage,
    Subscription,
)

_BETWEEN: Final = "\0"
"""Between a reader's name and the topic above; no name has it."""


def part_name(name: str, top: Cid) -> str:
    """The reader that stands for a reader of the topic above in a sub-topic of it."""
    return f"{name}{_BETWEEN}{cid_text(top)}"


def top_of(name: str) -> str | None:
    """The topic above that a reader stands for, if it does."""
    _, _, top = name.partition(_BETWEEN)
    return top or None


def is_name(text: str) -> bool:
    """Whether a reader may have this name."""
    return _BETWEEN not in text


class BelowSubscription:
    """Iterate over it with `async for`; an event counts as done when the next one is asked for.

    `topic` of an event says where it was published. With `manual` only `acknowledge` says what is
    done.
    """

    def __init__(
        self,
        feed: Feed,
        name: str,
        read: ReadPage,
        sync: Callable[[], None],
        *,
        manual: bool = False,
    ) -> None:
        self.name = name
        self._read = read
        self._sync = sync
        self._manual = manual
        self._memory = Memory()
        """All parts share it: a slow subscriber costs no more with many topics."""
        self._woken: dict[Subscription, None] = {}
        """Parts that may have events, in line."""
        self._found: Subscription | None = None
        """The part that has the next event."""
        self._arrived = trio.Event()
        self._parts: dict[str, Subscription] = {}
        self._last: Subscription | None = None
        self._top = self.add(feed, name)

    def __repr__(self) -> str:
        return f"<BelowSubscription {self.name!r} of {short(self.topic)}>"

    def add(self, feed: Feed, name: str) -> Subscription:
        """Read a topic, too, as the reader that has its place there."""
        part = Subscription(
            feed, name, self._read, self._sync, manual=True, whole=self, memory=self._memory
        )
        self._parts[part.topic] = part
        self.wake(part)
        return part

    def wake(self, part: Subscription) -> None:
        """A part has an event, or has ended."""
        if part.refusal is None:
            self._woken[part] = None
        elif self._parts.get(part.topic) is part:
            # The node follows it no longer, or the whole is closed.
            del self._parts[part.topic]
            self._woken.pop(part, None)
            if part is self._top:
                self.close(part.refusal)
        self._arrived.set()

    @property
    def topic(self) -> str:
        """The content id of the topic above all others."""
        return self._top.topic

    @property
    def closed(self) -> str | None:
        """Why nothing comes any more, where that is so."""
        return self._top.closed

    def close(self, refusal: Refusal = CLOSED) -> None:
        """Listen no more; the places are kept."""
        self._top.close(refusal)
        for part in list(self._parts.values()):
            part.close(refusal)

    def acknowledge(self, index: int | None = None, subtopic: str | None = None) -> None:
        """Say that every event handed out is done, or those of one topic up to an index."""
        if index is None and subtopic is None:
            for part in self._parts.values():
                part.acknowledge()
            return
        if subtopic is None:
            raise LocalError("each topic counts its own events: give subtopic=event.topic, too")
        chosen = self._parts.get(subtopic)
        if chosen is not None:  # Else it is not below any more.
            chosen.acknowledge(index)

    async def wait(self) -> None:
        """Wait until there is something to be had at once."""
        while self._found is None or not self._found.has_ready:
            if (refusal := self._top.refusal) is not None:
                raise refusal.error()
            part = self._next_in_line()
            if part is None:
                self._arrived = trio.Event()
                await self._arrived.wait()
                continue
            try:
                has_event = await part.look()
            except BaseException:
                self._woken[part] = None  # A caller that was cancelled comes again.
                raise
            self._found = part if has_event else None

    def _next_in_line(self) -> Subscription | None:
        """Take the next part from the line; those in memory first where there is no more room."""
        chosen = next(iter(self._woken), None)
        if not self._memory.has_room:
            chosen = next((part for part in self._woken if part.has_ready), chosen)
        if chosen is not None:
            del self._woken[chosen]
        return chosen

    def ready(self, bytes_max: int) -> int:
        """How many events can be had at once, up to some bytes, but one if there is any."""
        count = size = 0
        found = {} if self._found is None else {self._found: None}
        for part in {**found, **self._woken}:
            for event_bytes in part.sizes():
                size += event_bytes
                if count and size > bytes_max:
                    return count
                count += 1
        return count

    def __aiter__(self) -> AsyncIterator[Event]:
        """Iterate over what comes."""
        return self

    async def __anext__(self) -> Event:
        """The next event, whenever it comes."""
        if not self._manual and self._last is not None:
            self._last.acknowledge()
        await self.wait()
        part, self._found = self._found, None
        assert part is not None, "there is an event"
        self._woken.pop(part, None)
        self._woken[part] = None
        self._last = part
        return part.take()

    async def __aenter__(self) -> BelowSubscription:
        """Be a context: `async with await node.subscribe(…, below=True) as events`."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
