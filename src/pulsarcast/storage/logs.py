"""A store's logs, for programs that read all of them: what is there, and pages of it as it is.

Indices mean something only within one log of one store. So a log has an id, which is another one
when the topic was left and followed again, and when the store was copied or restored: whoever went
on from an index of the log before would miss events, or read some twice.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from typing import Final, NamedTuple

from pulsarcast.model.errors import Halted
from pulsarcast.model.ids import Cid

ID_BYTES: Final = 8
LOG: Final = "log"
"""The table of small records that tells one log of a topic from the next."""


LOGGED: Final = "place > 0"
"""What is in a log. SQLite takes the index by place only where a question says this in these words,
and goes through that from the first bound it finds: hence it stands behind any other."""


class LogState(NamedTuple):
    """A log, and which of its events are kept."""

    log: str
    oldest: int
    """The first index that is kept, or would be next where none is."""
    newest: int


class LogReader:
    """Reads logs past the core, which has no part in what is on the disk already."""

    def __init__(self, database: sqlite3.Connection, store: bytes) -> None:
        self._database = database
        self._store = store

    @property
    def store(self) -> str:
        """The id of the store."""
        return self._store.hex()

    def state(self, topic: Cid) -> LogState:
        """What there is of a topic."""
        execute = self._database.execute
        with _blamed():
            found = execute("SELECT id, dropped FROM topic WHERE cid = ?", (topic,)).fetchone()
            number, dropped = found or (0, 0)
            # One question for each: only so does the index answer them.
            of_log = f"FROM event WHERE topic = ? AND {LOGGED}"
            (oldest,) = execute(f"SELECT min(place) {of_log}", (number,)).fetchone()
            (newest,) = execute(f"SELECT max(place) {of_log}", (number,)).fetchone()
            newest = max(dropped, newest or 0)
            return LogState(self._id(topic), oldest or newest + 1, newest)

    def read(
        self, topic: Cid, first: int, end: int, bytes_max: int
    ) -> list[tuple[int, int, bytes]]:
        """Events with first <= index < end, until their bytes reach a limit: one at least."""
        found: list[tuple[int, int, bytes]] = []
        size = 0
        with _blamed():
            rows = self._database.execute(
                "SELECT place, received_us, block FROM event WHERE topic = "
                f"(SELECT id FROM topic WHERE cid = ?) AND place >= ? AND place < ? AND {LOGGED} "
                "ORDER BY place",
                (topic, first, end),
            )
            for row in rows:
                found.append(row)
                size += len(row[2])
                if size >= bytes_max:
                    break
            # An open question would keep the log that is written ahead from being taken in.
            rows.close()
        return found

    def _id(self, topic: Cid) -> str:
        own = self._own(topic)
        if own is None:
            chosen = os.urandom(ID_BYTES)
            self._database.execute("INSERT INTO state VALUES (?, ?, ?)", (LOG, topic, chosen))
            own = chosen
        return blake2b(self._store + topic + own, digest_size=ID_BYTES).hexdigest()

    def _own(self, topic: Cid) -> bytes | None:
        row = self._database.execute(
            "SELECT value FROM state WHERE name = ? AND key = ?", (LOG, topic)
        ).fetchone()
        return None if row is None else row[0]


@contextmanager
def _blamed() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise Halted(f"the disk refused: {error}") from error
