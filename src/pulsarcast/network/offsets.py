"""Consumer offsets: how far each reader of each topic is, in memory and on the disk.

An offset is worth no commit of its own: it goes to the disk with the next commit, and once a
second. After a crash the events of that second come again, marked as redelivered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import trio

from pulsarcast.model import trace
from pulsarcast.model.errors import Conflict, LocalError, NotFollowed, Refusal, TakenOver
from pulsarcast.model.events import EventDescriptor
from pulsarcast.model.ids import CID_BYTES, Cid, parse_cid
from pulsarcast.network.below import BelowSubscription, is_name, part_name, top_of
from pulsarcast.network.driver import Driver
from pulsarcast.network.subscriptions import Begin, Feed, Reader
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
LEFT: Final = NotFollowed("the node has unsubscribed from the topic").refusal


class Offsets:
    """The offsets of all readers of all topics."""

    def __init__(self, home: Home) -> None:
        self._feeds: dict[Cid, Feed] = {}
        self._unwritten: dict[Cid, None] = {}
        """Topics with offsets that the next commit takes along."""
        self._dropped: list[tuple[Cid, str]] = []
        """Readers that the next commit forgets."""
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
                    feed = self.feed(topic)
                    feed.readers[name] = Reader.from_bytes(row.value)
                    if (top := top_of(name)) is not None:
                        feed.parts[name] = parse_cid(top)
                else:
                    outlived.append(DropState(READER, row.key))
        if outlived:
            # Their topic's log is on its way out, and its next one counts anew.
            home.store.apply(outlived)
        for topic, newest in home.store.logs():
            if topic in self._feeds:
                self._feeds[topic].newest = newest

    # What the driver calls, with `before_commit`.

    def deliver(self, event: EventDescriptor, record: trace.Delivered, tops: Sequence[Cid]) -> None:
        """Hand an event to the readers of its topic, and of the topics above that take it in."""
        feed = self.feed(event.topic)
        if tops or feed.parts:
            self._see_below(feed, tops, record.index)
        feed.deliver(record.index, event)

    def _see_below(self, feed: Feed, tops: Sequence[Cid], index: int) -> None:
        """Give the readers above a place where the topic has its first event for them."""
        for name, top in list(feed.parts.items()):
            if top not in tops:
                # The topic is not below that one any more; the node follows it for another reason.
                self._drop_part(feed, name)
        for top in tops:
            above = self._feeds.get(top)
            for name, reader in above.readers.items() if above is not None else ():
                if reader.below is not None and part_name(name, top) not in feed.parts:
                    behind = 0 if reader.below == "beginning" else index - 1
                    self._add_part(feed, name, top, reader, behind)

    def _add_part(self, feed: Feed, name: str, top: Cid, reader: Reader, behind: int) -> None:
        """Let a reader of a topic above read this one, too, from behind an index."""
        key = part_name(name, top)
        feed.parts[key] = top
        part = feed.readers[key] = Reader()
        part.is_promised = True
        feed.move(part, behind)
        if reader.subscription is not None and reader.subscription.whole is not None:
            reader.subscription.whole.add(feed, key)

    def _drop_part(self, feed: Feed, key: str) -> None:
        del feed.parts[key]
        part = feed.readers.pop(key)
        self._dropped.append((feed.topic, key))
        if part.subscription is not None:
            part.subscription.close(LEFT)

    def ended(self, driver: Driver, topic: Cid) -> None:
        """Forget all places in a topic's log: the next log counts anew."""
        for reader in self.drop_topic(driver, topic):
            if reader.subscription is not None:
                reader.subscription.close(LEFT)

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
        if not is_name(name):
            raise LocalError(f"{name!r} holds a NUL: give the reader another name")
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

    def take_below(
        self, top: Cid, name: str, begin: Begin | None, subtopics: Iterable[Cid]
    ) -> None:
        """Let a reader read sub-topics from now on, or not any more (`begin` is None)."""
        above = self.feed(top)
        reader = above.readers[name]
        if (reader.below is None) == (begin is None):
            return  # A reader that goes on has its places.
        reader.below = begin
        reader.unwritten = True
        self._unwritten[top] = None
        if begin is None:
            self._drop_parts(top, name)
        elif begin == "beginning":
            for topic in subtopics:
                self._add_part(self.feed(topic), name, top, reader, 0)

    def parts(self, top: Cid, name: str) -> list[tuple[Feed, str]]:
        """The places of a reader in the sub-topics of its topic."""
        key = part_name(name, top)
        return [(feed, key) for feed in self._feeds.values() if key in feed.parts]

    def add_parts(self, top: Cid, subscription: BelowSubscription) -> None:
        """Let a subscription read all sub-topics in which its reader has a place."""
        for feed, key in self.parts(top, subscription.name):
            subscription.add(feed, key)

    def _drop_parts(self, top: Cid, name: str) -> None:
        for feed, key in self.parts(top, name):
            self._drop_part(feed, key)

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
        self._drop_parts(topic, name)
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
            if name not in feed.parts:
                self._drop_parts(topic, name)
        return list(feed.readers.values())

    def drop_own(self, driver: Driver, topic: Cid) -> None:
        """Forget a topic's own readers, and end their subscriptions.

        A reader of a topic above keeps its place.
        """
        feed = self._feeds.get(topic)
        for name in [] if feed is None else [each for each in feed.readers if is_name(each)]:
            reader = self.drop(driver, topic, name)
            if reader is not None and reader.subscription is not None:
                reader.subscription.close(LEFT)

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
        dropped, self._dropped = self._dropped, []
        for topic, key in dropped:
            driver.disk.note(DropState(READER, _key(topic, key)))
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
