"""Places: how far every reader of every topic is, in memory and on the disk.

A place is worth no commit of its own: it goes to the disk with whatever is written next, and once
a second. A crash brings the events of that time again, marked as such.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import trio

from pulsarcast.model.errors import Conflict, LocalError, Refusal, TakenOver
from pulsarcast.model.ids import CID_BYTES, Cid
from pulsarcast.network.driver import Driver
from pulsarcast.network.subscriptions import Feed, Reader
from pulsarcast.protocol.content.following import TABLE as CONTENT
from pulsarcast.protocol.inputs import Acknowledge
from pulsarcast.protocol.limits import INTEGER_MAX
from pulsarcast.protocol.store import DropState, PutState, StateRow, Write
from pulsarcast.storage.home import Home

PLACES_S: Final = 1.0
"""How often the places of readers are written down; a crash brings that much again."""
READER: Final = "reader"
"""The table of the store that holds them."""
FOLLOWED: Final = ("follow", CONTENT)
"""Those in which the core says what we follow."""


class Places:
    """The readers of all topics."""

    def __init__(self, home: Home) -> None:
        self._feeds: dict[Cid, Feed] = {}
        self._unwritten: dict[Cid, None] = {}
        """Topics with something that is worth no commit of its own."""
        self._written_s = 0.0
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

    @property
    def by_topic(self) -> Mapping[Cid, Feed]:
        """The topics in which somebody has a place."""
        return self._feeds

    def feed(self, topic: Cid) -> Feed:
        """Where a topic's events are handed out."""
        feed = self._feeds.get(topic)
        if feed is None:
            feed = self._feeds[topic] = Feed(topic, self._unwritten)
        return feed

    def reader(self, topic: Cid, name: str) -> Reader | None:
        """Who has a place in a topic under a name, if anybody has."""
        feed = self._feeds.get(topic)
        return None if feed is None else feed.readers.get(name)

    def take(
        self, topic: Cid, name: str, *, from_start: bool, start: int | None, take_over: bool
    ) -> Reader:
        """Give a name its place, free for somebody to listen.

        Raises LocalError for what the disk could not hold: else the next commit would.
        """
        if start is not None and not 1 <= start <= INTEGER_MAX:
            raise LocalError(f"not an index to begin at, which are from 1 on: {start}")
        if not _is_text(name):
            raise LocalError(f"not a name that can be written down: {name!r}")
        feed = self.feed(topic)
        reader = feed.readers.get(name)
        if reader is not None:
            if reader.subscription is not None:
                if not take_over:
                    raise Conflict(f"somebody listens already as {name!r}")
                taken = TakenOver("somebody else listens under this name now")
                reader.subscription.close(taken.refusal)
            return reader
        reader = feed.readers[name] = Reader()
        feed.has_unplaced = True
        if from_start or feed.newest:
            behind = feed.newest if start is None else min(start - 1, feed.newest)
            feed.move(reader, 0 if from_start else behind)
        # Else events may come before the answer: the first of them says where we begin.
        return reader

    def acknowledge(self, topic: Cid, name: str, index: int) -> bool:
        """Say for a name that it is done up to an index; whether it has a place here."""
        feed = self._feeds.get(topic)
        reader = None if feed is None else feed.readers.get(name)
        if feed is None or reader is None:
            return False
        done = min(index, max(reader.given, reader.cursor or 0))
        if reader.cursor is not None and done > reader.cursor:
            feed.move(reader, done)
        return True

    def drop(self, driver: Driver, topic: Cid, name: str) -> Reader | None:
        """Forget a name's place, if it has one."""
        feed = self._feeds.get(topic)
        reader = None if feed is None else feed.readers.pop(name, None)
        if feed is None or reader is None:
            return None
        driver.disk.note(DropState(READER, _key(topic, name)))
        if not feed.readers and not feed.newest:
            # Nothing ever came: there may be no such topic, and whoever asks may ask for many.
            del self._feeds[topic]
        return reader

    def drop_topic(self, driver: Driver, topic: Cid) -> list[Reader]:
        """Forget all places in a topic; whose they were."""
        feed = self._feeds.pop(topic, None)
        if feed is None:
            return []
        for name in feed.readers:
            driver.disk.note(DropState(READER, _key(topic, name)))
        return list(feed.readers.values())

    def close_all(self, refusal: Refusal) -> None:
        """Send everybody away who listens; their places are kept."""
        for feed in self._feeds.values():
            for reader in feed.readers.values():
                if reader.subscription is not None:
                    reader.subscription.close(refusal)
                if reader.given < reader.reserved:
                    # Nobody is given more: what we know is the truth.
                    feed.reserve(reader, reader.given)

    async def keep(self, driver: Driver) -> None:
        """Write places down now and then, whatever else is written."""
        while True:
            await trio.sleep(PLACES_S)
            if self._unwritten:
                self.write(driver)

    def write(self, driver: Driver) -> None:
        """Write down now where readers are."""
        self._written_s = 0.0
        self.before_commit(driver)
        driver.settle()

    def before_commit(self, driver: Driver) -> None:
        """Write down where readers are, if that was not done just now."""
        now_s = trio.current_time()
        if not self._unwritten or now_s - self._written_s < PLACES_S:
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
            # The log has it, and every reader its own place in that: nothing need come again.
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
