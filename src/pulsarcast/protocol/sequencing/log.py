"""The sequencers' replicated log: the entries that they agree on (Raft, 5.3 and 7).

An entry is an event, a change of members, or nothing: the first entry of a term. Only events take
a **position**. Events that are certified and in the topic's history are dropped from the front; a
`Snapshot` keeps of them what later entries need. So the log holds the events under way, and some
more for followers that lag.
"""

from __future__ import annotations

import enum
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Annotated, Final, NamedTuple

from msgspec import Struct

from pulsarcast.model.ids import CID_BYTES, Cid, cid_of
from pulsarcast.protocol.fields import Flat, Number, Size
from pulsarcast.protocol.sequencing.configs import NO_CONFIG, Config, pack_config, unpack_config
from pulsarcast.protocol.store import DropState, PutState, StateRow, Write

INDEX_BYTES: Final = 8
ENTRY: Final = "entry"
SNAPSHOT: Final = "snapshot"
ENTRY_BYTES: Final = 256
"""Memory of an entry beside its body, about: empty entries add up too."""


class EntryKind(enum.IntEnum):
    """The kinds of entries."""

    EVENT = 0
    NOTHING = 1
    """A new leader's first entry, which lets it commit entries of earlier terms (Raft, 5.4.2)."""
    MEMBERS = 2
    """The configuration from here on."""


class Entry(NamedTuple):
    """One entry of the log."""

    term: Number
    position: Number
    """How many events there are up to here, this one included."""
    kind: EntryKind
    body: Annotated[bytes, Size(0, None)]

    @property
    def cid(self) -> Cid:
        """Of an event: its content id."""
        return cid_of(self.body)


class Place(NamedTuple):
    """The place of an event that is about to be made."""

    term: int
    position: int
    parent: Cid | None


class Snapshot(Struct, frozen=True):
    """What later entries and followers need of the entries dropped from the log's front."""

    index: Number
    term: Number
    position: Number
    cid: Cid | None
    """The last event's."""
    config: Annotated[Config, Flat()]


NO_SNAPSHOT: Final = Snapshot(0, 0, 0, None, NO_CONFIG)


class Log:
    """Entries from `snapshot.index + 1` on."""

    def __init__(self, snapshot: Snapshot = NO_SNAPSHOT, entries: Iterable[Entry] = ()) -> None:
        self.snapshot = snapshot
        self._entries: list[Entry] = []
        self._ends = [0]
        """Cumulated bytes up to each entry, the snapshot first: only differences have a meaning."""
        self._changes: list[int] = []
        """The indices of changes of members: there are few, and a log may be long."""
        for entry in entries:
            self._put(entry)
        self._config: Config | None = None

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def last_index(self) -> int:
        """The index of the last entry."""
        return self.snapshot.index + len(self._entries)

    @property
    def last_term(self) -> int:
        """The term of the last entry."""
        return self._entries[-1].term if self._entries else self.snapshot.term

    @property
    def last_position(self) -> int:
        """The position of the last event."""
        return self._entries[-1].position if self._entries else self.snapshot.position

    def last_cid(self) -> Cid | None:
        """The last event's content id."""
        for entry in reversed(self._entries):
            if entry.kind is EntryKind.EVENT:
                return entry.cid
        return self.snapshot.cid

    def next_place(self, term: int) -> Place:
        """The place of the next event."""
        return Place(term, self.last_position + 1, self.last_cid())

    def config(self) -> Config:
        """The configuration by this log, committed or not (Raft, 6); empty before the founding."""
        if self._config is None:
            found = self.last_change()
            body = None if found is None else self.at(found).body
            self._config = self.snapshot.config if body is None else unpack_config(body)
        return self._config

    def last_change(self) -> int | None:
        """The index of the newest change of members that is not in the snapshot."""
        return self._changes[-1] if self._changes else None

    def at(self, index: int) -> Entry:
        """The entry at an index."""
        assert index > self.snapshot.index, "this entry was dropped"
        return self._entries[index - self.snapshot.index - 1]

    def term_at(self, index: int) -> int | None:
        """The term of the entry at an index; None if the log does not have it, or no more."""
        if index == self.snapshot.index:
            return self.snapshot.term
        if not self.snapshot.index < index <= self.last_index:
            return None
        return self.at(index).term

    def position_at(self, index: int) -> int:
        """How many events there are up to an index."""
        return self.snapshot.position if index == self.snapshot.index else self.at(index).position

    def event_at(self, position: int) -> tuple[int, Entry] | None:
        """The index and the entry of an event, by its position."""
        if not self.snapshot.position < position <= self.last_position:
            return None
        low, high = 0, len(self._entries) - 1
        while low < high:
            middle = (low + high) // 2
            if self._entries[middle].position < position:
                low = middle + 1
            else:
                high = middle
        return self.snapshot.index + low + 1, self._entries[low]

    def since(self, index: int, count_max: int, bytes_max: int) -> tuple[Entry, ...]:
        """Entries from an index on, within both bounds but one at least."""
        place = index - self.snapshot.index - 1
        found: list[Entry] = []
        size = 0
        while place < len(self._entries) and len(found) < count_max:
            entry = self._entries[place]
            size += len(entry.body)
            if found and size > bytes_max:
                break
            found.append(entry)
            place += 1
        return tuple(found)

    def bytes_after(self, index: int) -> int:
        """The memory that the entries after an index take; 0 beyond the last one."""
        place = max(0, min(index, self.last_index) - self.snapshot.index)
        return self._ends[-1] - self._ends[place]

    def bytes_after_event(self, position: int) -> int:
        """The same after an event: all of it, if the event was dropped from the log."""
        found = self.event_at(min(position, self.last_position))
        return self.bytes_after(self.snapshot.index if found is None else found[0])

    def last_bytes(self, bytes_max: int) -> int:
        """The lowest index after which there are at most `bytes_max` bytes."""
        return self.snapshot.index + bisect_left(self._ends, self._ends[-1] - bytes_max)

    def __iter__(self) -> Iterator[tuple[int, Entry]]:
        return enumerate(self._entries, self.snapshot.index + 1)

    # Changes. Each returns what has to be written.

    def append(self, topic: Cid, entry: Entry) -> Write:
        """Add an entry."""
        self._put(entry)
        if entry.kind is EntryKind.MEMBERS:
            self._config = None
        return PutState(StateRow(ENTRY, _key(topic, self.last_index), pack_entry(entry)))

    def _put(self, entry: Entry) -> None:
        self._entries.append(entry)
        self._ends.append(self._ends[-1] + ENTRY_BYTES + len(entry.body))
        if entry.kind is EntryKind.MEMBERS:
            self._changes.append(self.last_index)

    def cut_from(self, topic: Cid, index: int) -> list[Write]:
        """Drop the entries from an index on: another leader has others there."""
        gone = range(index, self.last_index + 1)
        del self._entries[index - self.snapshot.index - 1 :]
        del self._ends[index - self.snapshot.index :]
        self._changes = [each for each in self._changes if each < index]
        self._config = None
        return [DropState(ENTRY, _key(topic, each)) for each in gone]

    def drop_to(self, topic: Cid, index: int) -> list[Write]:
        """Drop the entries up to an index, which the history holds, and take a snapshot."""
        snapshot = self.snapshot_at(index)
        gone = range(self.snapshot.index + 1, index + 1)
        del self._entries[: index - self.snapshot.index]
        del self._ends[: index - self.snapshot.index]
        self._changes = [each for each in self._changes if each > index]
        self.snapshot = snapshot
        return [
            *(DropState(ENTRY, _key(topic, each)) for each in gone),
            PutState(StateRow(SNAPSHOT, topic, pack_snapshot(snapshot))),
        ]

    def install(self, topic: Cid, snapshot: Snapshot) -> list[Write]:
        """Replace the whole log by a snapshot of the leader (Raft, 7)."""
        writes = self.cut_from(topic, self.snapshot.index + 1)
        self.snapshot = snapshot
        self._config = None
        return [*writes, PutState(StateRow(SNAPSHOT, topic, pack_snapshot(snapshot)))]

    def snapshot_at(self, index: int) -> Snapshot:
        """The snapshot of all entries up to an index."""
        config, cid = self.snapshot.config, self.snapshot.cid
        entry: Entry | None = None
        for _, entry in zip(range(self.snapshot.index, index), self._entries, strict=False):
            if entry.kind is EntryKind.MEMBERS:
                config = unpack_config(entry.body)
        for each in reversed(self._entries[: index - self.snapshot.index]):
            if each.kind is EntryKind.EVENT:
                cid = each.cid
                break
        if entry is None:
            return self.snapshot
        return Snapshot(index, entry.term, entry.position, cid, config)


def _key(topic: Cid, index: int) -> bytes:
    return topic + index.to_bytes(INDEX_BYTES, "big")


def read_log(rows: dict[int, bytes], snapshot: bytes | None) -> Log:
    """A log from its rows on the disk: entries by index, and the snapshot."""
    log = Log(NO_SNAPSHOT if snapshot is None else unpack_snapshot(snapshot))
    for index in sorted(rows):
        if index == log.last_index + 1:
            log._put(unpack_entry(rows[index]))
    return log


# As bytes, on the disk and in entries.


def pack_entry(entry: Entry) -> bytes:
    """An entry as the disk keeps it."""
    head = entry.term.to_bytes(8, "big") + entry.position.to_bytes(8, "big")
    return head + bytes([entry.kind]) + entry.body


def unpack_entry(value: bytes) -> Entry:
    """An entry from the disk."""
    term, position = int.from_bytes(value[:8], "big"), int.from_bytes(value[8:16], "big")
    return Entry(term, position, EntryKind(value[16]), value[17:])


def pack_snapshot(snapshot: Snapshot) -> bytes:
    """A snapshot as the disk keeps it."""
    numbers = (snapshot.index, snapshot.term, snapshot.position)
    head = b"".join(number.to_bytes(8, "big") for number in numbers)
    cid = bytes(CID_BYTES) if snapshot.cid is None else snapshot.cid
    return head + cid + pack_config(snapshot.config)


def unpack_snapshot(value: bytes) -> Snapshot:
    """A snapshot from the disk."""
    index, term, position = (int.from_bytes(value[at : at + 8], "big") for at in (0, 8, 16))
    cid = value[24 : 24 + CID_BYTES]
    config = unpack_config(value[24 + CID_BYTES :])
    return Snapshot(index, term, position, Cid(cid) if any(cid) else None, config)
