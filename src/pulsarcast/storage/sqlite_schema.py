"""The tables of a store on disk, and how an older store becomes one of today.

The number of the schema is in the file. A store of an older number is copied aside and then changed
in one transaction; one of a newer number is left alone, since nobody here knows what it means.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from pulsarcast.model.errors import LocalError

APPLICATION: Final = int.from_bytes(b"PLSR")
"""Tells our files from any other database."""
SECRET_MODE: Final = 0o600

TABLES: Final = """
-- A topic that we hold something of. Its log had places up to `dropped`, and has them no more.
CREATE TABLE topic (
    id INTEGER PRIMARY KEY,
    cid BLOB NOT NULL UNIQUE,
    dropped INTEGER NOT NULL DEFAULT 0
) STRICT;

-- The frontier: a publisher's numbering in a topic. `beyond` is 8 bytes a number, little end first.
CREATE TABLE numbering (
    id INTEGER PRIMARY KEY,
    topic INTEGER NOT NULL,
    publisher BLOB NOT NULL,
    epoch INTEGER NOT NULL,
    floor INTEGER NOT NULL,
    high INTEGER NOT NULL,
    cid BLOB,
    beyond BLOB NOT NULL,
    retired INTEGER NOT NULL,
    UNIQUE (topic, publisher, epoch)
) STRICT;

-- History. `place` is the place in our own log, 0 for what is kept and not in it. `cid_head` is the
-- first eight bytes of the CID's hash: enough to find it, and an eighth of it to keep in order.
CREATE TABLE event (
    topic INTEGER NOT NULL,
    place INTEGER NOT NULL,
    numbering INTEGER NOT NULL,
    number INTEGER NOT NULL,
    cid_head INTEGER NOT NULL,
    nonce BLOB NOT NULL,
    received_us INTEGER NOT NULL,
    block BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX event_by_place ON event (topic, place) WHERE place > 0;
CREATE INDEX event_by_number ON event (numbering, number);
CREATE INDEX event_by_cid ON event (cid_head);
CREATE INDEX event_by_nonce ON event (nonce);

-- Blocks of the DHT (with a key), and blocks that we keep for ourselves (own), or both.
CREATE TABLE block (
    cid BLOB NOT NULL UNIQUE,
    own INTEGER NOT NULL,
    key BLOB,
    expires_us INTEGER NOT NULL,
    block BLOB NOT NULL
) STRICT;
CREATE INDEX block_by_key ON block (key) WHERE key IS NOT NULL;
CREATE INDEX block_by_expiry ON block (expires_us) WHERE key IS NOT NULL;

-- Small records: subscriptions, outbox, cursors, numberings, topics' descriptors.
CREATE TABLE state (
    name TEXT NOT NULL,
    key BLOB NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (name, key)
) STRICT, WITHOUT ROWID;
"""

BY_NONCE: Final = """
-- Most events are never looked for by their request; those have no nonce here, and cost no index.
DROP INDEX event_by_nonce;
CREATE INDEX event_by_nonce ON event (nonce) WHERE nonce != x'';
"""

CERTIFICATES: Final = """
-- What proves an event's place, where several sequencers agreed on it.
ALTER TABLE event ADD COLUMN certificate BLOB NOT NULL DEFAULT x'';
"""

HALTS: Final = """
-- In `state`, a row `halted` holds a code and its details; before it held a sentence.
"""

STRANGERS: Final = """
-- A block that a stranger sent, and a log that is kept for a stranger, are charged to a place, the
-- network prefix of that stranger.
ALTER TABLE topic ADD COLUMN charged_to TEXT;
ALTER TABLE block ADD COLUMN place TEXT;
ALTER TABLE block ADD COLUMN charged INTEGER NOT NULL DEFAULT 0;
CREATE INDEX block_by_place ON block (place, charged) WHERE place IS NOT NULL;
"""

STEPS: Final[Mapping[int, str]] = {
    1: TABLES,
    2: BY_NONCE,
    3: CERTIFICATES,
    4: HALTS,
    5: STRANGERS,
}
"""What makes a store of each number from one of the number before."""
NUMBER: Final = max(STEPS)


def refuse_others(database: sqlite3.Connection, path: Path) -> None:
    """Refuse what is not a store of ours, or is one of a later schema; nothing is changed."""
    (number,) = database.execute("PRAGMA user_version").fetchone()
    (application,) = database.execute("PRAGMA application_id").fetchone()
    if _has_tables(database) and application != APPLICATION:
        raise LocalError(f"{path} is not a store of ours")
    if number > NUMBER:
        raise LocalError(
            f"{path} was written by a newer Pulsarcast: its schema has number {number}, and this "
            f"one knows {NUMBER} at most"
        )


def _has_tables(database: sqlite3.Connection) -> bool:
    return database.execute("SELECT 1 FROM sqlite_schema").fetchone() is not None


def prepare(database: sqlite3.Connection, path: Path) -> None:
    """Make a database one of today: it is new, or of today, or is changed after it was copied."""
    (number,) = database.execute("PRAGMA user_version").fetchone()
    if number == NUMBER:
        return
    if _has_tables(database):
        _put_aside(database, path.with_name(f"{path.name}.schema-{number}"))
    database.execute("BEGIN IMMEDIATE")
    try:
        for step in range(number + 1, NUMBER + 1):
            for statement in STEPS[step].split(";\n"):
                database.execute(statement)
        database.execute(f"PRAGMA application_id = {APPLICATION}")
        database.execute(f"PRAGMA user_version = {NUMBER}")
        database.execute("COMMIT")
    except BaseException:
        database.execute("ROLLBACK")
        raise


def _put_aside(database: sqlite3.Connection, path: Path) -> None:
    """A copy as it is, before anything is changed; an older copy of the same number stays."""
    if not path.exists():
        copy_to(database, path)


def copy_to(database: sqlite3.Connection, path: Path) -> None:
    """Copy a database that may be in use; the copy has its name only once it is whole."""
    unfinished = path.with_name(f".{path.name}.unfinished")
    unfinished.unlink(missing_ok=True)
    create_secret(unfinished)
    with_all = sqlite3.connect(unfinished)
    try:
        database.backup(with_all, pages=256)
    finally:
        with_all.close()
    unfinished.rename(path)


def create_secret(path: Path) -> None:
    """An empty file, if there is none, that SQLite opens to nobody else: what it adds is alike."""
    # One that exists is not opened: to close it would take the locks of who else uses it here.
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, SECRET_MODE))
