"""A store on disk: SQLite, which a node that crashes or loses its power finds again as it was.

The log is written ahead (WAL) and synced at every commit (`synchronous = FULL`), so what `apply`
returns from is on the disk. A commit costs a sync whatever is in it: whoever has many writes hands
them over together. Nothing here grows with history but the file.
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import reduce
from operator import xor
from pathlib import Path
from typing import Any, Final, assert_never

from pulsarcast.model.errors import LocalError
from pulsarcast.model.events import EventDescriptor, read_own_event
from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.model.keys import Key
from pulsarcast.protocol.store import (
    VERSIONS,
    Answer,
    AnyWrite,
    Block,
    DigestKeys,
    DropBlock,
    DropEvents,
    DropExpired,
    DropState,
    DropTopic,
    Events,
    Keep,
    KeyDigest,
    Keys,
    LoadBlock,
    LoadKeys,
    LoadLog,
    LoadNumbers,
    LoadOldest,
    LoadRequest,
    MarkState,
    Oldest,
    OwnTopic,
    PutBlock,
    PutEvent,
    PutMark,
    PutState,
    Query,
    StateRow,
    Write,
)
from pulsarcast.storage.logs import LOG, LOGGED, LogReader
from pulsarcast.storage.quota import BESIDE_BYTES, BYTES_MAX, Quota, charge_of
from pulsarcast.storage.sqlite_schema import prepare, refuse_others

KEY_BYTES: Final = 32
HEAD: Final = slice(4, 12)
"""The first eight bytes of a CID's hash."""
NUMBER_MAX: Final = (1 << 63) - 1
CHARGED: Final = f"ifnull(sum(length(block) + {BESIDE_BYTES}), 0)"
"""What is charged for events, in SQL."""
SETTINGS: Final = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA temp_store = MEMORY",
    "PRAGMA cache_size = -4096",
    "PRAGMA journal_size_limit = 67108864",
)

_PUT_EVENT: Final = (
    "INSERT INTO event (topic, place, numbering, number, cid_head, nonce, received_us, block, "
    "certificate) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_PUT_MARK: Final = (
    "UPDATE numbering SET floor = ?, high = ?, cid = ?, beyond = ?, retired = ? WHERE id = ?"
)


class StoreError(LocalError):
    """The disk did not take something, or gave back what it was not given."""


class SqliteStore:
    """Applies writes and answers queries, as `protocol.store` defines them."""

    def __init__(self, path: str | Path, strangers_bytes_max: int = BYTES_MAX) -> None:
        self.path: Path = Path(path)
        self._quota = Quota(strangers_bytes_max)
        self._topics: dict[Cid, int] = {}
        self._numberings: dict[tuple[int, PeerId, int], int] = {}
        self._undelivered: set[int] = set()
        """Numberings with events that are kept and not in a log: few."""
        self._bytes: dict[int, int] = {}
        """How large a topic's log is, once somebody asked."""
        self._moved: dict[int, MarkState] = {}
        """Numberings whose marks the events of this commit move: each is written once."""
        with _blamed(self.path):
            # Whoever owns the store decides on which thread it is used, one at a time.
            self._database = sqlite3.connect(
                self.path, isolation_level=None, check_same_thread=False, cached_statements=64
            )
            try:
                # First of all: a setting would change a file that is not ours.
                refuse_others(self._database, self.path)
                for setting in SETTINGS:
                    self._database.execute(setting)
                prepare(self._database, self.path)
                self._remember()
            except BaseException:
                self._database.close()
                raise

    def close(self) -> None:
        """Leave one file behind, with everything in it."""
        self._database.close()

    def log_reader(self, store: bytes) -> LogReader:
        """Reads whole logs; `store` is the id of this very store."""
        return LogReader(self._database, store)

    # Writing.

    def apply(self, writes: Iterable[AnyWrite]) -> tuple[int, ...]:
        """Carry out writes in order, all or none; afterwards they are on the disk.

        But for those for strangers that found no room in the quota: it returns which.
        """
        execute = self._database.execute
        left_out: list[int] = []
        try:  # and not `_blamed`: every event comes this way
            execute("BEGIN IMMEDIATE")
            try:
                for write in writes:
                    if not isinstance(write, Keep):
                        self._apply(write)
                    elif not self._keep(write):
                        left_out.append(write.token)
                self._write_marks()
                execute("COMMIT")
            except BaseException:
                if self._database.in_transaction:
                    execute("ROLLBACK")
                self._moved.clear()
                self._remember()
                raise
        except sqlite3.Error as error:
            raise self._blame(error) from error
        return tuple(left_out)

    def _remember(self) -> None:
        """Read anew what is kept in memory to find things by."""
        execute = self._database.execute
        self._topics = {Cid(cid): topic for cid, topic in execute("SELECT cid, id FROM topic")}
        self._numberings = {
            (topic, PeerId(publisher), epoch): numbering
            for numbering, topic, publisher, epoch in execute(
                "SELECT id, topic, publisher, epoch FROM numbering"
            )
        }
        undelivered = execute("SELECT DISTINCT numbering FROM event WHERE place = 0")
        self._undelivered = {numbering for (numbering,) in undelivered}
        self._bytes = {}
        self._quota = Quota(self._quota.bytes_max)
        for account, charged in execute(
            "SELECT place, sum(charged) FROM block WHERE place IS NOT NULL GROUP BY place"
        ):
            self._quota.add(account, charged)
        for topic, account, charged in execute(
            f"SELECT topic.id, charged_to, {CHARGED} FROM topic LEFT JOIN event "
            f"ON event.topic = topic.id AND {LOGGED} WHERE charged_to IS NOT NULL GROUP BY topic.id"
        ):
            self._quota.charge_log(topic, account, charged)

    def _write_marks(self) -> None:
        """AnyWrite the marks that events moved: at the end, or before another write of a mark."""
        for numbering, mark in self._moved.items():
            self._database.execute(_PUT_MARK, (*_fields(mark), numbering))
        self._moved.clear()

    def _apply(self, write: Write) -> None:
        execute = self._database.execute
        match write:
            case PutEvent():
                self._put_event(write)
            case PutMark(topic=topic, mark=mark):
                self._write_marks()
                numbering = self._put_mark(self._topic(topic), mark)
                if numbering in self._undelivered:
                    # Nobody asks for what is retired; what is in the log goes with `DropEvents`.
                    execute(
                        "DELETE FROM event WHERE numbering = ? AND number <= ? AND place = 0",
                        (numbering, mark.retired),
                    )
            case PutState(row=row):
                execute("REPLACE INTO state VALUES (?, ?, ?)", row)
            case DropState(table=table, key=key):
                execute("DELETE FROM state WHERE name = ? AND key = ?", (table, key))
            case PutBlock():
                self._put_block(write)
            case DropBlock(cid=cid):
                self._delete_blocks("cid = ?", cid)
            case DropExpired(before_us=before_us):
                over = "key IS NOT NULL AND expires_us < ?"
                self._delete_blocks(f"{over} AND NOT own", before_us)
                execute(f"UPDATE block SET key = NULL, expires_us = 0 WHERE {over}", (before_us,))
            case DropEvents(topic=topic, index=index):
                self._drop_events(topic, index)
            case DropTopic(topic=topic):
                self._write_marks()
                self._drop_topic(topic)
            case OwnTopic(topic=topic):
                self._quota.refund_log(self._topics.get(topic, 0))
                execute("UPDATE topic SET charged_to = NULL WHERE cid = ?", (topic,))
            case _ as unreachable:
                assert_never(unreachable)

    def _topic(self, cid: Cid) -> int:
        topic = self._topics.get(cid)
        if topic is None:
            topic = self._inserted("INSERT INTO topic (cid) VALUES (?)", (cid,))
            self._topics[cid] = topic
        return topic

    def _inserted(self, statement: str, values: tuple[Any, ...]) -> int:
        row = self._database.execute(statement, values).lastrowid
        assert row is not None
        return row

    def _put_mark(self, topic: int, mark: MarkState) -> int:
        place = (topic, mark.publisher, mark.epoch)
        fields = _fields(mark)
        numbering = self._numberings.get(place)
        if numbering is None:
            statement = (
                "INSERT INTO numbering (topic, publisher, epoch, floor, high, cid, beyond, retired)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
            )
            numbering = self._numberings[place] = self._inserted(statement, (*place, *fields))
        else:
            self._database.execute(_PUT_MARK, (*fields, numbering))
        return numbering

    def _put_event(self, put: PutEvent) -> None:
        event, place = put.event, put.index
        topic = self._topic(event.request.topic)
        mark = put.mark
        numbering = self._numberings.get((topic, mark.publisher, mark.epoch))
        if numbering is None:
            numbering = self._put_mark(topic, mark)
        else:
            self._moved[numbering] = mark
        number = event.sequence.number
        if numbering in self._undelivered:
            self._database.execute(
                "DELETE FROM event WHERE numbering = ? AND number = ? AND place = 0",
                (numbering, number),
            )
        if not place:
            self._undelivered.add(numbering)
        elif topic in self._bytes:
            self._bytes[topic] += len(event.block)
        head = _head(event.cid)
        nonce = event.request.nonce if put.asked_for else b""
        fields = (topic, place, numbering, number, head, nonce, put.received_us)
        self._database.execute(_PUT_EVENT, (*fields, event.block, put.certificate))

    def _keep(self, keep: Keep) -> bool:
        """Carry out writes for a stranger, if there is room for them in the quota."""
        execute = self._database.execute
        charges = [self._charge_of(write) for write in keep.writes]
        account = self._quota.account(keep.place, sum(charges))
        if account is None:
            return False
        for write, charge in zip(keep.writes, charges, strict=True):
            if type(write) is PutBlock:
                self._put_replica(write, account, charge)
                continue
            self._apply(write)
            if type(write) is PutEvent:
                topic = self._topic(write.event.topic)
                if self._quota.charge_log(topic, account, charge):
                    execute("UPDATE topic SET charged_to = ? WHERE id = ?", (account, topic))
        return True

    def _charge_of(self, write: Write) -> int:
        match write:
            case PutEvent(event=event):
                return charge_of(event.block)
            case PutBlock(cid=cid, block=block):
                found = self._database.execute("SELECT 1 FROM block WHERE cid = ?", (cid,))
                return 0 if found.fetchone() else charge_of(block)
            case _:
                return 0

    def _put_block(self, put: PutBlock) -> None:
        self._refund(put.cid)
        if put.key is None:
            # Where it is a replica already, it stays one: other peers count on that.
            self._database.execute(
                "INSERT INTO block VALUES (?, 1, NULL, 0, ?, NULL, 0) "
                "ON CONFLICT DO UPDATE SET own = 1",
                (put.cid, put.block),
            )
        else:
            self._put_replica(put, None, 0)

    def _put_replica(self, put: PutBlock, account: str | None, charge: int) -> None:
        assert put.key is not None
        if charge:
            assert account is not None
            self._quota.add(account, charge)
        self._database.execute(
            "INSERT INTO block VALUES (?, 0, ?, ?, ?, ?, ?) "
            "ON CONFLICT DO UPDATE SET key = excluded.key, expires_us = excluded.expires_us",
            (put.cid, _key_bytes(put.key), put.expires_us, put.block, account, charge),
        )

    def _delete_blocks(self, which: str, value: bytes | int) -> None:
        """Delete blocks; what was charged for them is given back."""
        deleted = self._database.execute(
            f"DELETE FROM block WHERE {which} RETURNING place, charged", (value,)
        )
        for account, charged in deleted:
            if account is not None:
                self._quota.refund(account, charged)

    def _refund(self, cid: Cid) -> None:
        """A block that a stranger may have sent is the node's own now."""
        row = self._database.execute(
            "SELECT place, charged FROM block WHERE cid = ? AND place IS NOT NULL", (cid,)
        ).fetchone()
        if row is not None:
            self._quota.refund(*row)
            self._database.execute(
                "UPDATE block SET place = NULL, charged = 0 WHERE cid = ?", (cid,)
            )

    def _drop_events(self, cid: Cid, index: int) -> None:
        topic = self._topics.get(cid)
        if topic is None:
            return
        execute = self._database.execute
        execute(
            "UPDATE topic SET dropped = max(dropped, min(?, ifnull("
            "(SELECT max(place) FROM event WHERE topic = ? AND place > 0), 0))) WHERE id = ?",
            (index, topic, topic),
        )
        dropped = f"FROM event WHERE topic = ? AND place <= ? AND {LOGGED}"
        if self._quota.is_charged(topic):
            (charged,) = execute(f"SELECT {CHARGED} {dropped}", (topic, index)).fetchone()
            self._quota.refund_part(topic, charged)
        execute(f"DELETE {dropped}", (topic, index))
        self._bytes.pop(topic, None)

    def _drop_topic(self, cid: Cid) -> None:
        topic = self._topics.pop(cid, None)
        if topic is None:
            return
        execute = self._database.execute
        # By numbering: the index by place knows only what is in the log.
        execute(
            "DELETE FROM event WHERE numbering IN (SELECT id FROM numbering WHERE topic = ?)",
            (topic,),
        )
        execute("DELETE FROM numbering WHERE topic = ?", (topic,))
        execute("DELETE FROM topic WHERE id = ?", (topic,))
        self._quota.refund_log(topic)
        execute("DELETE FROM state WHERE name = ? AND key = ?", (LOG, cid))
        gone = {place: number for place, number in self._numberings.items() if place[0] == topic}
        for place, numbering in gone.items():
            del self._numberings[place]
            self._undelivered.discard(numbering)
        self._bytes.pop(topic, None)

    # Reading.

    def answer(self, query: Query) -> Answer:
        """Answer one query from what was applied."""
        try:
            match query:
                case LoadNumbers():
                    found = tuple(self._numbers(query))
                    certificates = tuple(certificate for _, _, certificate in found)
                    events = tuple((place, event) for place, event, _ in found)
                    return Events(events, certificates if any(certificates) else ())
                case LoadBlock(cid=cid, versions=versions):
                    block = self._find_block(cid)
                    return Block(self._find_version(cid) if versions and block is None else block)
                case LoadLog():
                    return Events(tuple(self._log(query)))
                case LoadRequest():
                    return Block(self._find_request(query))
                case LoadKeys(first=first, last=last, limit=limit):
                    held = self._keys("cid", first, last, max(limit, 0))
                    return Keys(tuple(Cid(cid) for cid in held))
                case DigestKeys(first=first, last=last):
                    keys = [int.from_bytes(key) for key in self._keys("key", first, last, -1)]
                    return KeyDigest(len(keys), reduce(xor, keys, 0))
                case LoadOldest():
                    return self._oldest(query)
                case _ as unreachable:
                    assert_never(unreachable)
        except sqlite3.Error as error:
            raise self._blame(error) from error

    def _blame(self, error: sqlite3.Error) -> StoreError:
        return StoreError(f"{self.path}: {error}")

    @property
    def strangers_bytes(self) -> int:
        """What is charged for what is kept for strangers."""
        return self._quota.bytes_used

    def own_bytes(self) -> int:
        """What the node's own takes on the disk: all but strangers' part and unused pages."""
        pages, unused, page_bytes = (
            int(self._database.execute(f"PRAGMA {each}").fetchone()[0])
            for each in ("page_count", "freelist_count", "page_size")
        )
        return max(0, (pages - unused) * page_bytes - self._quota.bytes_used)

    def rows(self) -> tuple[StateRow, ...]:
        """Every small record, by table and key."""
        with _blamed(self.path):
            rows = self._database.execute("SELECT name, key, value FROM state ORDER BY name, key")
            return tuple(StateRow(*row) for row in rows)

    def marks(self) -> tuple[tuple[Cid, MarkState], ...]:
        """Every topic's frontier, by topic, publisher and epoch."""
        with _blamed(self.path):
            rows = self._database.execute(
                "SELECT topic.cid, publisher, epoch, floor, high, numbering.cid, beyond, retired "
                "FROM numbering JOIN topic ON topic.id = numbering.topic "
                "ORDER BY topic.cid, publisher, epoch"
            )
            return tuple(
                (
                    Cid(topic),
                    MarkState(
                        PeerId(publisher),
                        epoch,
                        floor,
                        high,
                        None if cid is None else Cid(cid),
                        _unpack(beyond),
                        retired,
                    ),
                )
                for topic, publisher, epoch, floor, high, cid, beyond, retired in rows
            )

    def logs(self) -> tuple[tuple[Cid, int], ...]:
        """The newest index ever given in every topic's log, also where it was dropped since."""
        with _blamed(self.path):
            rows = self._database.execute(
                "SELECT cid, max(dropped, ifnull((SELECT max(place) FROM event "
                "WHERE event.topic = topic.id AND place > 0), 0)) FROM topic ORDER BY cid"
            )
            return tuple((Cid(topic), newest) for topic, newest in rows)

    def _numbers(self, query: LoadNumbers) -> Iterator[tuple[int, EventDescriptor, bytes]]:
        """Events by number until their bytes exceed the limit, but one at least, to get on."""
        topic = self._topics.get(query.topic, 0)
        numbering = self._numberings.get((topic, query.publisher, query.epoch))
        if numbering is None:
            return
        rows = self._database.execute(
            "SELECT number, place, block, certificate FROM event WHERE numbering = ? "
            "AND number BETWEEN ? AND ? ORDER BY number, place DESC",
            (numbering, query.first, min(query.last, NUMBER_MAX)),
        )
        size, last = 0, 0
        for number, place, block, certificate in rows:
            # The same number may have been written twice; only the later place counts.
            if number == last:
                continue
            if size and size + len(block) > query.bytes_max:
                break
            size, last = size + len(block), number
            yield place, read_own_event(block), certificate

    def _log(self, query: LoadLog) -> Iterator[tuple[int, EventDescriptor]]:
        rows = self._database.execute(
            f"SELECT place, block FROM event WHERE topic = ? AND place >= ? AND {LOGGED} "
            "ORDER BY place LIMIT ?",
            (self._topics.get(query.topic, 0), query.first, max(query.limit, 0)),
        )
        size = 0
        for place, block in rows:
            if size and size + len(block) > query.bytes_max:
                return
            size += len(block)
            yield place, read_own_event(block)

    def _find_block(self, cid: Cid) -> bytes | None:
        row = self._database.execute("SELECT block FROM block WHERE cid = ?", (cid,)).fetchone()
        if row is not None:
            return bytes(row[0])
        rows = self._database.execute("SELECT block FROM event WHERE cid_head = ?", (_head(cid),))
        for (block,) in rows:
            if read_own_event(block).cid == cid:
                return bytes(block)
        return None

    def _find_version(self, cid: Cid) -> bytes | None:
        row = self._database.execute(
            "SELECT value FROM state WHERE name = ? AND key = ?", (VERSIONS, cid)
        ).fetchone()
        return None if row is None else bytes(row[0])

    def _find_request(self, query: LoadRequest) -> bytes | None:
        rows = self._database.execute(
            "SELECT block FROM event WHERE nonce = ? AND nonce != x'' AND topic = ? ORDER BY rowid",
            (query.nonce, self._topics.get(query.topic, 0)),
        )
        # Two authors may choose one nonce, by chance or by malice.
        for (block,) in rows:
            if read_own_event(block).author == query.author:
                return bytes(block)
        return None

    def _keys(self, column: str, first: Key, last: Key, limit: int) -> list[bytes]:
        rows = self._database.execute(
            f"SELECT {column} FROM block WHERE key BETWEEN ? AND ? ORDER BY key, cid LIMIT ?",
            (_key_bytes(first), _key_bytes(last), limit),
        )
        return [value for (value,) in rows]

    def _oldest(self, query: LoadOldest) -> Oldest:
        """How far the log must be dropped for limits to hold, and whose numbers go with it."""
        topic = self._topics.get(query.topic, 0)
        execute = self._database.execute
        # One question for each end: together they would go through all of the log.
        of_log = f"FROM event WHERE topic = ? AND {LOGGED}"
        (first,) = execute(f"SELECT min(place) {of_log}", (topic,)).fetchone()
        (newest,) = execute(f"SELECT max(place) {of_log}", (topic,)).fetchone()
        if first is None:
            return Oldest(0, ())
        count = newest - first + 1
        size = 0 if query.keep_bytes is None else self._size(topic)
        count_max = count if query.keep_count is None else query.keep_count
        bytes_max = size if query.keep_bytes is None else query.keep_bytes
        before_us = query.received_before_us
        last = 0
        floors: dict[int, int] = {}
        rows = execute(
            "SELECT place, numbering, number, received_us, length(block) FROM event "
            f"WHERE topic = ? AND place <= ? AND {LOGGED} ORDER BY place",
            (topic, newest if query.index_max is None else query.index_max),
        )
        for place, numbering, number, received_us, length in rows:
            count = newest - place + 1
            too_old = before_us is not None and received_us < before_us
            if not (too_old or count > count_max or size > bytes_max):
                break
            last = place
            size -= length
            floors[numbering] = max(floors.get(numbering, 0), number)
        owners = {numbering: place for place, numbering in self._numberings.items()} if last else {}
        return Oldest(
            last,
            tuple(sorted((*owners[numbering][1:], number) for numbering, number in floors.items())),
        )

    def _size(self, topic: int) -> int:
        size = self._bytes.get(topic)
        if size is None:
            statement = "SELECT total(length(block)) FROM event WHERE topic = ? AND place > 0"
            size = self._bytes[topic] = int(
                self._database.execute(statement, (topic,)).fetchone()[0]
            )
        return size


@contextmanager
def _blamed(path: Path) -> Iterator[None]:
    """Say of which store a disk complains."""
    try:
        yield
    except sqlite3.Error as error:
        raise StoreError(f"{path}: {error}") from error


def _head(cid: Cid) -> int:
    return int.from_bytes(cid[HEAD], signed=True)


def _key_bytes(key: Key) -> bytes:
    return key.to_bytes(KEY_BYTES)


def _fields(mark: MarkState) -> tuple[int, int, bytes | None, bytes, int]:
    return mark.floor, mark.high, mark.cid, _pack(mark.beyond), mark.retired


def _pack(numbers: tuple[int, ...]) -> bytes:
    return struct.pack(f"<{len(numbers)}Q", *numbers)


def _unpack(packed: bytes) -> tuple[int, ...]:
    return struct.unpack(f"<{len(packed) // 8}Q", packed)
