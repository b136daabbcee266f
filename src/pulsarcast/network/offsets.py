"""Consumer offsets: how far each reader of each topic is, in memory and on the disk.

An offset is worth no commit of its own: it goes to the disk with the next commit, and once a
second. After a crash the events of that second come again, marked as redelivered.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import trio

from pulsarcast.model import trace
from pulsarcast.model.errors import Conflict, LocalError, Refusal, TakenOver
from pulsarcast.model.events import EventDescriptor
from pulsarcast.model.ids import CID_BYTES, Cid
from pulsarcast.network.driver import Driver
from pulsarcast.network.subscriptions import Feed, Reader
from pulsarcast.network.values import Start
from pulsarcast.protocol.content.following import TABLE as CONTENT
from pulsarcast.protocol.inputs import Acknowledge
from pulsarcast.protocol.limits import INTEGER_MAX
from pulsarcast.protocol.store import DropState, PutState, StateRow, Write
from pulsarcast.storage.home import Home

OFFSETS_S: Final = 1.0
"""How often offsets are written; a crash repeats at most the events of that time."""
READER: Final = "reader"
"""The table of the store that holds the offsets."""
FOLLOWED: Final = ("follow", CONTENT)
"""The tables in which the core keeps the topics that the node follows."""


class Offsets:
    """The offsets of all readers of all topics."""

    def __init__(self, home: Home) -> None:
        self._feeds: dict[Cid, Feed] = {}
        self._unwritten: dict[Cid, None] = {}
        """Topics with offsets that the next commit takes along."""
        self._written_s = 0.0
        self.halted: str | None = None
        """Why the node can promise nothing any more, where that is so."""
        rows = home.store.rows()
        followed = {Cid(row.key[:CID_BYTES]): None for row in rows if row.table in FOLLOWED}
        outlived: list[Write] = []
        for row in rows:
            if row.table == READER:
                topic, name = Cid(row.key[:CID_BYTES]), row.key[CID_BYTES:].decode()
                if topic in followed:
                    self.feed(topic).readers[name] = Reader.from_bytes(row.value)
                else:
                    outlived.append(DropState(READER, row.key))
        if outlived:
            # Their topic's log is on its way out, and its next one counts anew.
            home.store.apply(outlived)
        for topic, newest in home.store.logs():
            if topic in self._feeds:
                self._feeds[topic].newest = newest

    # What the driver calls, with `before_commit`.

    def deliver(self, event: EventDescriptor, record: trace.Delivered) -> None:
        """Hand an event to the readers of its topic."""
        self.feed(event.topic).deliver(record.index, event)

    def halted_because(self, refusal: Refusal) -> None:
        """End all subscriptions: the disk refused, or another node has the same key."""
        self.halted = refusal.message
        self.close_all(refusal)

    # Readers.

    @property
    def by_topic(self) -> Mapping[Cid, Feed]:
        """The topics that have readers."""
        return self._feeds

    def feed(self, topic: Cid) -> Feed:
        """Where a topic's events are handed out."""
        feed = self._feeds.get(topic)
        if feed is None:
            feed = self._feeds[topic] = Feed(topic, self._unwritten)
        return feed

    def reader(self, topic: Cid, name: str) -> Reader | None:
        """The reader of a topic with this name, if there is one."""
        feed = self._feeds.get(topic)
        return None if feed is None else feed.readers.get(name)

    def take(self, topic: Cid, name: str, *, start: Start, take_over: bool) -> Reader:
        """The reader with this name, made where it is new, with nobody listening as it.

        Raises LocalError for what the disk could not hold: else the next commit would.
        """
        if isinstance(start, int) and not 1 <= start <= INTEGER_MAX:
            raise LocalError(f"start={start} is not an index: indices count from 1")
        if not _is_text(name):
            raise LocalError(f"{name!r} is not Unicode text: give the reader another name")
        feed = self.feed(topic)
        reader = feed.readers.get(name)
        if reader is not None:
            if reader.subscription is not None:
                if not take_over:
                    raise Conflict(
                        f"reader {name!r} is connected already: give another name, or "
                        "take_over=True to end its subscription"
                    )
                taken = TakenOver("another subscription has taken over this reader")
                reader.subscription.close(taken.refusal)
            return reader
        reader = feed.readers[name] = Reader()
        feed.has_unplaced = True
        if start == "beginning":
            feed.move(reader, 0)
        elif feed.newest:
            behind = min(start - 1, feed.newest) if isinstance(start, int) else feed.newest
            feed.move(reader, behind)
        # Else events may come before the answer: the first of them says where we begin.
        return reader

    def acknowledge(self, topic: Cid, name: str, index: int) -> bool:
        """Move a reader's offset up to an index; whether there is such a reader."""
        feed = self._feeds.get(topic)
        reader = None if feed is None else feed.readers.get(name)
        if feed is None or reader is None:
            return False
        done = min(index, max(reader.given, reader.cursor or 0))
        if reader.cursor is not None and done > reader.cursor:
            feed.move(reader, done)
        return True

    def drop(self, driver: Driver, topic: Cid, name: str) -> Reader | None:
        """Forget a reader, if there is one with this name."""
        feed = self._feeds.get(topic)
        reader = None if feed is None else feed.readers.pop(name, None)
        if feed is None or reader is None:
            return None
        driver.disk.note(DropState(READER, _key(topic, name)))
        if not feed.readers and not feed.newest:
            # Nothing ever came: there may be no such topic, and a caller may ask for many.
            del self._feeds[topic]
        return reader

    def drop_topic(self, driver: Driver, topic: Cid) -> list[Reader]:
        """Forget all readers of a topic, and return them."""
        feed = self._feeds.pop(topic, None)
        if feed is None:
            return []
        for name in feed.readers:
            driver.disk.note(DropState(READER, _key(topic, name)))
        return list(feed.readers.values())

    def close_all(self, refusal: Refusal) -> None:
        """End all subscriptions; the offsets are kept."""
        for feed in self._feeds.values():
            for reader in feed.readers.values():
                if reader.subscription is not None:
                    reader.subscription.close(refusal)
                if reader.given < reader.reserved:
                    # Nobody is given more: what we know is the truth.
                    feed.reserve(reader, reader.given)

    async def keep(self, driver: Driver) -> None:
        """Write offsets now and then, whatever else is written."""
        while True:
            await trio.sleep(OFFSETS_S)
            if self._unwritten:
                self.write(driver)

    def write(self, driver: Driver) -> None:
        """Write the offsets now."""
        self._written_s = 0.0
        self.before_commit(driver)
        driver.settle()

    def before_commit(self, driver: Driver) -> None:
        """Write the offsets, if that was not done just now."""
        now_s = trio.current_time()
        if not self._unwritten or now_s - self._written_s < OFFSETS_S:
            return
        self._written_s = now_s
        moved = [self._feeds[topic] for topic in self._unwritten if topic in self._feeds]
        self._unwritten.clear()
        for feed in moved:
            for name, reader in feed.readers.items():
                if reader.subscription is not None:
                    reader.subscription.settle()
                if reader.unwritten:
                    reader.unwritten = False
                    row = StateRow(READER, _key(feed.topic, name), reader.to_bytes())
                    driver.disk.note(PutState(row))
            # The log has the events, and each reader its offset: the core need not repeat any.
            driver.take(Acknowledge(feed.topic, feed.newest))


def _is_text(name: str) -> bool:
    """Whether it has bytes: half of a surrogate pair has none."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _key(topic: Cid, name: str) -> bytes:
    return topic + name.encode()
