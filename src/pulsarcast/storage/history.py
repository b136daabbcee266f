"""What a node holds of one topic, in memory: its log, its frontier, and ways to find an event.

A hundred nodes hold 1.7 million events between them in one run of the thesis' workload, so an
event costs little here: a place in a list, a number in a dict. The ways to find it by content
id or by request are made when someone asks, and then kept up lazily: most nodes never ask.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import TypeAlias

from pulsarcast.model.events import EventDescriptor
from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.protocol.store import (
    LoadLog,
    LoadNumbers,
    LoadOldest,
    MarkState,
    Oldest,
    PutEvent,
)

Numbering: TypeAlias = tuple[PeerId, int]
"""A publisher and its epoch: whose numbers they are."""


class TopicHistory:
    """The log of one topic by our own index, and its events by their publishers' numbers."""

    __slots__ = (
        "_by_cid",
        "_by_nonce",
        "_bytes",
        "_certificates",
        "_first",
        "_found_to",
        "_indices",
        "_log",
        "_received_us",
        "_undelivered",
        "marks",
    )

    def __init__(self) -> None:
        self.marks: dict[Numbering, MarkState] = {}
        # The log is a run of indices from `_first` on; None fills a place that was never written.
        self._first = 1
        self._log: list[EventDescriptor | None] = []
        self._received_us = array("q")
        self._bytes = 0
        self._indices: dict[Numbering, dict[int, int]] = {}
        # Events that are kept and not in the log (index 0): few.
        self._undelivered: dict[Numbering, dict[int, EventDescriptor]] = {}
        # By content id: of what is held, and has one.
        self._certificates: dict[Cid, bytes] = {}
        # Lazy: they know the log below `_found_to` and every undelivered event.
        self._by_cid: dict[Cid, EventDescriptor] = {}
        self._by_nonce: dict[bytes, tuple[EventDescriptor, ...]] = {}
        self._found_to = 1

    @property
    def newest(self) -> int:
        """The newest index ever given, whether or not the entry is still held."""
        return self._first + len(self._log) - 1

    def put(self, put: PutEvent) -> None:
        """Keep an event, at its place in the log if it has one, and move the frontier."""
        event = put.event
        number = event.sequence.number
        numbering = put.mark[:2]
        index = put.index
        if index:
            log = self._log
            if index != self._first + len(log):
                self._make_place(index, put.received_us)
            log.append(event)
            self._received_us.append(put.received_us)
            self._bytes += len(event.block)
            indices = self._indices.get(numbering)
            if indices is None:
                indices = self._indices[numbering] = {}
            indices[number] = index
        if not index or self._undelivered:
            self._drop_undelivered(numbering, number)
        if not index:
            self._undelivered.setdefault(numbering, {})[number] = event
            self._index(event)
        self.marks[numbering] = put.mark
        if put.certificate:
            self._certificates[event.cid] = put.certificate

    def move(self, mark: MarkState) -> None:
        """Move the frontier of one numbering."""
        numbering = (mark.publisher, mark.epoch)
        self.marks[numbering] = mark
        # Nobody asks for what is retired; what is in the log goes with `drop`.
        waiting = self._undelivered.get(numbering)
        if waiting is not None:
            for number in [number for number in waiting if number <= mark.retired]:
                self._drop_undelivered(numbering, number)

    def drop(self, index: int) -> list[bytes]:
        """Forget the log up to and with an index; returns the blocks that were there."""
        count = min(index - self._first + 1, len(self._log))
        blocks: list[bytes] = []
        for place, event in enumerate(self._log[: max(count, 0)]):
            if event is None:
                continue
            blocks.append(event.block)
            self._bytes -= len(event.block)
            self._certificates.pop(event.cid, None)
            indices = self._indices[event.numbered_by, event.sequence.epoch]
            # The same number may have been written twice; only the later place counts.
            if indices.get(event.sequence.number) == self._first + place:
                del indices[event.sequence.number]
            if self._first + place < self._found_to:
                self._unindex(event)
        if count > 0:
            del self._log[:count]
            del self._received_us[:count]
            self._first += count
            self._found_to = max(self._found_to, self._first)
        return blocks

    def numbers(self, query: LoadNumbers) -> tuple[tuple[int, EventDescriptor], ...]:
        """Events by number until their bytes exceed the limit, but one at least, to get on."""
        found: list[tuple[int, EventDescriptor]] = []
        size = 0
        for index, event in self._numbered(query):
            size += len(event.block)
            if found and size > query.bytes_max:
                break
            found.append((index, event))
        return tuple(found)

    def certificate_of(self, event: EventDescriptor) -> bytes:
        """What proves an event's place, where it needs that."""
        return self._certificates.get(event.cid, b"")

    def log(self, query: LoadLog) -> tuple[tuple[int, EventDescriptor], ...]:
        """Events of the log from an index on."""
        place = max(query.first - self._first, 0)
        found: list[tuple[int, EventDescriptor]] = []
        size = 0
        while place < len(self._log) and len(found) < query.limit:
            event = self._log[place]
            if event is not None:
                size += len(event.block)
                if found and size > query.bytes_max:
                    break
                found.append((self._first + place, event))
            place += 1
        return tuple(found)

    def oldest(self, query: LoadOldest) -> Oldest:
        """How far the log must be dropped for limits to hold, and whose numbers go with it."""
        count, size = len(self._log), self._bytes
        count_max = count if query.keep_count is None else query.keep_count
        bytes_max = size if query.keep_bytes is None else query.keep_bytes
        before_us = query.received_before_us
        dropped = 0
        floors: dict[Numbering, int] = {}
        for event, received_us in zip(self._log, self._received_us, strict=True):
            too_old = before_us is not None and received_us < before_us
            if not (too_old or count > count_max or size > bytes_max):
                break
            if query.index_max is not None and self._first + dropped > query.index_max:
                break
            dropped += 1
            count -= 1
            if event is not None:
                size -= len(event.block)
                numbering = (event.numbered_by, event.sequence.epoch)
                floors[numbering] = max(floors.get(numbering, 0), event.sequence.number)
        return Oldest(
            self._first + dropped - 1 if dropped else 0,
            tuple((*numbering, floors[numbering]) for numbering in sorted(floors)),
        )

    def find(self, cid: Cid) -> EventDescriptor | None:
        """An event by its content id."""
        self._catch_up()
        return self._by_cid.get(cid)

    def find_request(self, author: PeerId, nonce: bytes) -> EventDescriptor | None:
        """The event that answers an author's request."""
        self._catch_up()
        # Two authors may choose one nonce, by chance or by malice.
        for event in self._by_nonce.get(nonce, ()):
            if event.author == author:
                return event
        return None

    def copy(self) -> TopicHistory:
        """A history that holds the same and then goes its own way."""
        twin = TopicHistory()
        twin.marks = self.marks.copy()
        twin._first = self._first
        twin._log = self._log.copy()
        twin._received_us = self._received_us[:]
        twin._bytes = self._bytes
        twin._certificates = self._certificates.copy()
        twin._indices = {key: indices.copy() for key, indices in self._indices.items()}
        twin._undelivered = {key: events.copy() for key, events in self._undelivered.items()}
        twin._by_cid = self._by_cid.copy()
        twin._by_nonce = self._by_nonce.copy()
        twin._found_to = self._found_to
        return twin

    def _make_place(self, index: int, received_us: int) -> None:
        """Let the log end just before an index that is not its next one."""
        assert index > self.newest, f"place {index} of the log is taken"
        if not self._log:
            # A log that is empty may begin anywhere: nothing is below.
            self._first = self._found_to = index
        while self.newest < index - 1:
            self._log.append(None)
            self._received_us.append(received_us)

    def _numbered(self, query: LoadNumbers) -> Iterator[tuple[int, EventDescriptor]]:
        numbering = (query.publisher, query.epoch)
        indices = self._indices.get(numbering, {})
        waiting = self._undelivered.get(numbering, {})
        held = len(indices) + len(waiting)
        # Numbers are gapless, so walking them is cheap; a question about 2**60 of them is not.
        if query.last - query.first < 4 * held:
            asked: list[int] | range = range(query.first, query.last + 1)
        else:
            both = [*indices, *waiting] if waiting else indices
            asked = sorted(number for number in both if query.first <= number <= query.last)
        for number in asked:
            index = indices.get(number)
            event = waiting.get(number) if index is None else self._log[index - self._first]
            if event is not None:
                yield index or 0, event

    def _drop_undelivered(self, numbering: Numbering, number: int) -> None:
        waiting = self._undelivered.get(numbering)
        if waiting is None or number not in waiting:
            return
        self._unindex(waiting.pop(number))
        if not waiting:
            del self._undelivered[numbering]

    def _catch_up(self) -> None:
        for event in self._log[self._found_to - self._first :]:
            if event is not None:
                self._index(event)
        self._found_to = self._first + len(self._log)

    def _index(self, event: EventDescriptor) -> None:
        nonce = event.request.nonce
        self._by_cid[event.cid] = event
        self._by_nonce[nonce] = (*self._by_nonce.get(nonce, ()), event)

    def _unindex(self, event: EventDescriptor) -> None:
        nonce = event.request.nonce
        known = list(self._by_nonce[nonce])
        # Once: the same event may be in the log twice.
        del known[next(at for at, other in enumerate(known) if other is event)]
        if known:
            self._by_nonce[nonce] = tuple(known)
        else:
            del self._by_nonce[nonce]
        if self._by_cid.get(event.cid) is event and not any(other is event for other in known):
            del self._by_cid[event.cid]
