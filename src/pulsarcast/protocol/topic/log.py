"""The node's log of one topic: from the disk to the application (docs/spec/pulsarcast.md, State).

An event that is kept gets the next index of the log, and is delivered once it is synced. After a
restart, the events that the application did not acknowledge are delivered again from the log, page
by page. Events that arrive meanwhile are delivered from the log after them.
"""

from collections.abc import Callable
from functools import partial
from typing import Protocol

from pulsarcast.model import trace
from pulsarcast.model.events import EventDescriptor
from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.protocol.dissemination.overlay import size_of
from pulsarcast.protocol.effects import Deliver
from pulsarcast.protocol.store import (
    Events,
    LoadLog,
    MarkState,
    PutEvent,
    PutState,
    StateRow,
    Write,
)
from pulsarcast.protocol.topic.writing import Writing, WritingOwner
from pulsarcast.protocol.turn import Turn

PAGE = 128
"""Bounds the events of the log that one query reads."""


class LogOwner(WritingOwner, Protocol):
    """Asked of the topic that the log belongs to."""

    def newest_loaded(self) -> None:
        """After a restart, the newest event of the log is known."""

    def replayed(self) -> None:
        """The application has been given all events of the log."""


class TopicLog:
    """The events of one topic in the order of their acceptance, and how far they were delivered."""

    __slots__ = (
        "_owner",
        "_pending",
        "_replay_until",
        "_replays",
        "_synced",
        "_topic",
        "_turn",
        "delivered",
        "is_newest_loaded",
        "is_replaying",
        "last_seen",
        "newest",
        "subscribed",
        "unsynced",
        "unsynced_bytes",
        "writing",
    )

    def __init__(
        self,
        topic: Cid,
        turn: Turn,
        owner: LogOwner | None,
        *,
        newest: int = 0,
        cursor: int = 0,
        subscribed: bool,
        place: str | None = None,
    ) -> None:
        self.subscribed = subscribed
        """Whether an application wants the events."""
        self.newest = newest
        """The newest index."""
        self.delivered = cursor
        """The index up to which the application has been given all events."""
        self.unsynced = 0
        """Events on their way to the disk."""
        self.unsynced_bytes = 0
        self.last_seen: Cid | None = None
        self.is_newest_loaded = False
        """Whether, after a restart, the newest event of the log is known."""
        self.is_replaying = False
        self._topic = topic
        self._turn = turn
        self._owner = owner
        self.writing = Writing(turn, owner, place)
        self._synced = newest
        self._pending: dict[int, tuple[PeerId, int, int]] = {}
        """By index: the numbers that are on their way to the disk."""
        self._replay_until = newest
        self._replays = 0
        """How many pages were asked for: only the answer to the last query counts."""

    def open(self, *, replay: bool) -> None:
        """After a restart: load the newest event, and go on delivering."""
        if self.newest:
            self._turn.load(LoadLog(self._topic, self.newest, 1), Events, self._take_newest)
        if replay and self.subscribed and self.delivered < self.newest:
            self._replay()

    def _take_newest(self, newest: Events) -> None:
        """The newest event of the log is the last that the node saw."""
        if self.last_seen is None and newest.events:
            self.last_seen = newest.events[-1][1].cid
        self.is_newest_loaded = True
        if self._owner is not None:
            self._owner.newest_loaded()

    def append(
        self,
        event: EventDescriptor,
        mark: MarkState,
        *more: Write,
        asked_for: bool,
        certificate: bytes,
        then: Callable[[int], None],
    ) -> None:
        """Write an event at the next index; `then` gets the index once it is synced."""
        self.newest += 1
        index = self.newest
        self.last_seen = event.cid
        self.unsynced += 1
        size = size_of(event.block)
        self.unsynced_bytes += size
        self._pending[index] = (event.numbered_by, *event.sequence)

        def synced() -> None:
            self.unsynced -= 1
            self.unsynced_bytes -= size
            self._synced = index
            del self._pending[index]
            then(index)

        kept = PutEvent(index, event, mark, self._turn.wall_us, asked_for, certificate)
        is_own = event.publisher == self._turn.me
        self.writing.persist(kept, *more, own=is_own, then=synced)

    @property
    def synced(self) -> int:
        """The index up to which all events are on the disk."""
        return self._synced

    def pending(self) -> dict[tuple[PeerId, int], int]:
        """The first number of each numbering that is not on the disk yet."""
        first: dict[tuple[PeerId, int], int] = {}
        for publisher, epoch, number in self._pending.values():
            known = first.get((publisher, epoch), number)
            first[(publisher, epoch)] = min(known, number)
        return first

    def append_undelivered(
        self, event: EventDescriptor, mark: MarkState, certificate: bytes
    ) -> None:
        """Keep an event that is not delivered: peers that lack its number fetch it from here."""
        self.writing.persist(PutEvent(0, event, mark, self._turn.wall_us, True, certificate))

    def deliver(self, index: int, event: EventDescriptor, hops: int) -> None:
        """An event is synced: give it to the application, unless the replay will deliver it."""
        if not self.subscribed or self.is_replaying or index <= self.delivered:
            return
        self.delivered = index
        self._emit(index, event, hops, redelivery=False)

    def _emit(self, index: int, event: EventDescriptor, hops: int, *, redelivery: bool) -> None:
        publisher, (epoch, number) = event.numbered_by, event.sequence
        record = trace.Delivered(
            self._topic, event.cid, publisher, epoch, number, index, hops, redelivery
        )
        self._turn.effects.append(Deliver(event, record))

    def cursor_for(self, *, from_start: bool) -> int:
        """The cursor of a subscription that begins now."""
        return 0 if from_start else self.newest

    def subscribe(self, cursor: int) -> None:
        """An application subscribes to a topic that the node follows already."""
        self.subscribed = True
        self._replay_until = 0
        self.delivered = cursor
        if cursor < self._synced:
            self._replay()
        elif self.is_replaying:
            # It is the replay of a subscription that has ended.
            self._end_replay()

    def _replay(self) -> None:
        """Deliver from the log, after a restart, what the application did not acknowledge."""
        self.is_replaying = True
        self._replays += 1
        query = LoadLog(self._topic, self.delivered + 1, PAGE)
        take = partial(self._replay_page, self._replays, self._synced)
        self._turn.load(query, Events, take)

    def _replay_page(self, replay: int, synced: int, page: Events) -> None:
        """A page is read; `synced` is the last index that was on the disk when it was asked for."""
        if replay != self._replays:
            return
        if self.subscribed:
            for index, event in page.events:
                self.delivered = index
                self._emit(index, event, 0, redelivery=index <= self._replay_until)
            if not page.events:
                # A flush dropped all events up to then, but none that came later.
                self.delivered = max(self.delivered, synced)
            if self.delivered < self._synced:
                self._replay()
                return
        self._end_replay()

    def _end_replay(self) -> None:
        self._replays += 1
        self.is_replaying = False
        if self._owner is not None:
            self._owner.replayed()

    def acknowledge(self, index: int) -> None:
        """The application is done with all events up to `index` that were delivered.

        After it unsubscribed this is ignored: its next log begins at 1 again.
        """
        if not self.subscribed:
            return
        index = max(0, min(index, self.delivered))
        row = StateRow("cursor", self._topic, index.to_bytes(8, "big"))
        self._turn.persist(PutState(row))
