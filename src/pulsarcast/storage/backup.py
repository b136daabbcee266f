"""Backups: a copy of a home's key and store, taken while its node runs, and the way back.

A copy is older than its node from the next event on. Whoever goes on from it could give a number
a second time, so a restored store says that it is one, until the core has seen to it (0014).
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import quote

from pulsarcast.model.errors import LocalError
from pulsarcast.model.identity import Identity
from pulsarcast.protocol.store import RESTORED, PutState
from pulsarcast.storage.home import (
    STORE,
    Home,
    blamed,
    check_owner,
    read_incarnation,
    read_key,
    sync_folder,
    write_incarnation,
    write_key,
    write_whole,
)
from pulsarcast.storage.sqlite import SqliteStore, StoreError
from pulsarcast.storage.sqlite_schema import copy_to, refuse_others

SETTINGS: Final = ("config.toml", "aliases.json", "peer_names.json", "tokens.json", "token")
"""What a daemon keeps beside its node, where there is one."""
BUSY_S: Final = 30.0
"""How long we wait for a node that keeps its store to itself for a moment."""


def backup(home: Home | str | Path, target: str | Path) -> Identity:
    """Copy a home, whether or not its node runs, into a new folder; returns whose it is."""
    source = home.path if isinstance(home, Home) else Path(home)
    target = Path(target)
    with blamed(source):
        identity = read_key(source)
        if target.exists():
            raise LocalError(f"{target} exists already: a backup goes into a new folder")
        with _whole_or_nothing(target) as folder:
            write_key(folder, identity)
            write_incarnation(folder, read_incarnation(source))
            _copy_settings(source, folder)
            _copy_store(source / STORE, folder / STORE)
            _check(folder / STORE)
    return identity


def restore(source: str | Path, home: str | Path) -> Identity:
    """Make a home of a backup that is whole; returns whose it is."""
    source, home = Path(source), Path(home)
    with blamed(source):
        identity = read_key(source)
        if home.exists() and (not home.is_dir() or any(home.iterdir())):
            raise LocalError(f"{home} exists and is not empty: nothing is restored over it")
        with _whole_or_nothing(home) as folder:
            write_key(folder, identity)
            write_incarnation(folder, read_incarnation(source))
            _copy_settings(source, folder)
            _copy_store(source / STORE, folder / STORE)
            _check(folder / STORE)
            with closing(SqliteStore(folder / STORE)) as store:
                check_owner(source, store, identity.peer_id)
                store.apply([PutState(RESTORED)])
    return identity


@contextmanager
def _whole_or_nothing(target: Path) -> Iterator[Path]:
    """A folder that gets its name once everything is in it."""
    try:
        folder = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.unfinished-"))
    except OSError as error:
        raise LocalError(
            f"{target} cannot be made: {target.parent}: {error.strerror or error}"
        ) from error
    try:
        yield folder
        sync_folder(folder)
        folder.rename(target)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    sync_folder(target.parent)


def _copy_settings(source: Path, target: Path) -> None:
    for name in SETTINGS:
        if (source / name).exists():
            write_whole(target / name, (source / name).read_bytes())


def _copy_store(source: Path, target: Path) -> None:
    """Copy a store as it is at this moment, however busily it is written to."""
    if not source.exists():
        raise LocalError(f"{source} is missing")
    with _blamed_store(source), closing(_connect(source)) as database:
        refuse_others(database, source)
        # Under a snapshot: else every write of another process would begin the copy anew.
        database.execute("BEGIN")
        database.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        copy_to(database, target)


def _check(path: Path) -> None:
    """Read all of a copy, and leave it as one file that can be read from anywhere."""
    with _blamed_store(path), closing(_connect(path)) as database:
        database.execute("PRAGMA journal_mode = DELETE")
        (verdict,) = database.execute("PRAGMA integrity_check(1)").fetchone()
        (schema,) = database.execute("PRAGMA user_version").fetchone()
    if verdict != "ok":
        raise LocalError(f"the store is damaged: {verdict}")
    if schema < 1:
        raise LocalError("the store has no schema: nothing was ever kept in it")


def _connect(path: Path) -> sqlite3.Connection:
    """A connection of our own to a store that exists; nothing is created."""
    address = f"file:{quote(str(path.absolute()))}?mode=rw"
    return sqlite3.connect(address, uri=True, isolation_level=None, timeout=BUSY_S)


@contextmanager
def _blamed_store(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise StoreError(f"{path}: {error}") from error
