"""A node's home: the folder with its key and its store, which one process at a time may live in.

    lock          held by the process that lives here; the kernel lets go of it when that dies
    key           the secret seed, and the peer id that it must give
    store.sqlite  everything else that a node must not forget
    incarnation   how often the node was started
    traces/       what it did

A store remembers which file it is. Found in another one it was copied, and may be older than what
its node has published since: it is marked as restored, and the core takes care (decision 0014).
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Final

from pulsarcast.model.errors import Conflict, LocalError
from pulsarcast.model.identity import SEED_BYTES, Identity
from pulsarcast.model.ids import PeerId, peer_text
from pulsarcast.protocol.store import RESTORED, PutState, StateRow, Write
from pulsarcast.storage.logs import ID_BYTES, LogReader
from pulsarcast.storage.sqlite import SqliteStore
from pulsarcast.storage.sqlite_schema import SECRET_MODE, create_secret

LOCK: Final = "lock"
KEY: Final = "key"
STORE: Final = "store.sqlite"
INCARNATION: Final = "incarnation"
TRACES: Final = "traces"
FOLDER_MODE: Final = 0o700
INCARNATIONS_SKIPPED: Final = 1000
"""A copy counts its starts on from the next multiple: its traces are not taken for another's."""

_KEY_TEXT: Final = "pulsarcast key 1\nseed {seed}\npeer {peer}\n"
_KEY_PATTERN: Final = re.compile(
    rf"pulsarcast key 1\nseed ([0-9a-f]{{{2 * SEED_BYTES}}})\npeer (\w+)\n"
)
_TABLE: Final = "home"
_PEER: Final = b"peer"
_FILE: Final = b"file"
_STORE: Final = b"store"


class Home:
    """A home that is lived in: nobody else can open it until it is closed."""

    def __init__(self, path: Path, lock: int, identity: Identity, store: SqliteStore) -> None:
        self.path = path
        self.identity = identity
        self.store = store
        self._lock = lock

    @classmethod
    def open(cls, path: str | Path, *, seed: bytes | None = None) -> Home:
        """Move in; a folder without a key gets one, from `seed` or from chance."""
        path = Path(path)
        with blamed(path):
            path.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
            lock = _take_lock(path)
            try:
                identity = _find_identity(path, seed)
                (path / TRACES).mkdir(mode=FOLDER_MODE, exist_ok=True)
                create_secret(path / STORE)
                store = SqliteStore(path / STORE)
                try:
                    _recognize(path, store, identity.peer_id)
                except BaseException:
                    store.close()
                    raise
            except BaseException:
                os.close(lock)
                raise
        return cls(path, lock, identity, store)

    @property
    def traces(self) -> Path:
        """The folder of the traces."""
        return self.path / TRACES

    def log_reader(self) -> LogReader:
        """Reads whole logs of the store."""
        return self.store.log_reader(_rows(self.store)[_STORE])

    def start(self) -> int:
        """Count this start of the node for good, before it does anything: 1, then 2, and so on."""
        with blamed(self.path):
            number = read_incarnation(self.path) + 1
            write_incarnation(self.path, number)
        return number

    def close(self) -> None:
        """Move out."""
        self.store.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> Home:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


# The lock.


class HomeInUseError(Conflict):
    """Another process runs the node of this home."""


def _take_lock(path: Path) -> int:
    """Hold the lock, or say who does. The file stays: a name that comes and goes locks nobody."""
    lock = os.open(path / LOCK, os.O_RDWR | os.O_CREAT, SECRET_MODE)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(lock, 32, 0).decode("ascii", "replace").strip()
        os.close(lock)
        whose = f"process {holder}" if holder else "another process"
        raise HomeInUseError(f"{path} is the home of a node that runs: {whose} holds it") from None
    except BaseException:
        os.close(lock)
        raise
    # Of one length, so that who reads it meanwhile never sees half of one and half of another.
    os.pwrite(lock, f"{os.getpid():<20}\n".encode(), 0)
    return lock


def check_not_in_use(path: Path) -> None:
    """Raise HomeInUseError if the node of a home runs; what else is wrong, `Home.open` says."""
    with suppress(OSError):
        os.close(_take_lock(path))


# The key.


def _find_identity(path: Path, seed: bytes | None) -> Identity:
    if (path / KEY).exists():
        identity = read_key(path)
        if seed is not None and seed != identity.seed:
            raise LocalError(f"{path} has a key already, and it is another one")
        return identity
    if (path / STORE).exists():
        raise LocalError(f"{path} has a store, but the key of its node is missing")
    identity = Identity(os.urandom(SEED_BYTES) if seed is None else seed)
    write_key(path, identity)
    return identity


def read_key(folder: Path) -> Identity:
    """The identity whose key is in a folder; refused where others can read it, or it is damaged."""
    path = folder / KEY
    try:
        mode = path.stat().st_mode
        if mode & 0o077:
            raise LocalError(f"{path} can be read by others (chmod 600 it, if they have not)")
        text = path.read_bytes().decode("ascii", "replace")
    except FileNotFoundError:
        raise LocalError(f"{path} is missing: {folder} is no node's home, nor a backup") from None
    except OSError as error:
        raise LocalError(f"{path}: {error.strerror or error}") from error
    found = _KEY_PATTERN.fullmatch(text)
    if found is None:
        raise LocalError(f"{path} is damaged: it is not a key as Pulsarcast writes them")
    identity = Identity(bytes.fromhex(found[1]))
    if peer_text(identity.peer_id) != found[2]:
        raise LocalError(f"{path} is damaged: its seed is not that of the peer it names")
    return identity


def write_key(folder: Path, identity: Identity) -> None:
    """Put a key into a folder, whole or not at all."""
    text = _KEY_TEXT.format(seed=identity.seed.hex(), peer=peer_text(identity.peer_id))
    write_whole(folder / KEY, text.encode())


# The incarnation.


def read_incarnation(folder: Path) -> int:
    """How often the node was started."""
    path = folder / INCARNATION
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return 0
    if not re.fullmatch(rb"[0-9]{1,18}\n", text):
        raise LocalError(f"{path} is damaged: it is not a number")
    return int(text)


def write_incarnation(folder: Path, number: int) -> None:
    """Keep how often the node was started, whole or not at all."""
    write_whole(folder / INCARNATION, b"%d\n" % number)


# The store.


def _recognize(path: Path, store: SqliteStore, peer: PeerId) -> None:
    """Refuse the store of another node, and mark one that was copied."""
    check_owner(path, store, peer)
    rows = _rows(store)
    known = rows.get(_FILE)
    # By its number alone: that of the device may be another one after the next boot.
    here = (path / STORE).stat().st_ino.to_bytes(8)
    if known == here and _STORE in rows:
        return
    writes: list[Write] = [PutState(StateRow(_TABLE, _STORE, os.urandom(ID_BYTES)))]
    if known == here:
        # One of an earlier version of ours, which had no id yet.
        store.apply(writes)
        return
    writes += [
        PutState(StateRow(_TABLE, _PEER, peer)),
        PutState(StateRow(_TABLE, _FILE, here)),
    ]
    if known is not None:
        skip_incarnations(path)
        writes.append(PutState(RESTORED))
    store.apply(writes)


def check_owner(path: Path, store: SqliteStore, peer: PeerId) -> None:
    """Refuse a store that another node wrote."""
    owner = _rows(store).get(_PEER, peer)
    if owner != peer:
        raise LocalError(
            f"the store in {path} is that of {peer_text(PeerId(owner))}, "
            f"and the key beside it that of {peer_text(peer)}"
        )


def skip_incarnations(path: Path) -> None:
    """Let a copy count its starts where its original will not get to."""
    number = read_incarnation(path)
    write_incarnation(path, (number // INCARNATIONS_SKIPPED + 1) * INCARNATIONS_SKIPPED)


def _rows(store: SqliteStore) -> dict[bytes, bytes]:
    return {row.key: row.value for row in store.rows() if row.table == _TABLE}


# Files.


@contextmanager
def blamed(path: Path) -> Iterator[None]:
    """Say of which folder the system complains."""
    try:
        yield
    except OSError as error:
        raise LocalError(f"{error.filename or path}: {error.strerror or error}") from error


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write_whole(path: Path, content: bytes) -> None:
    """Replace a file so that a crash leaves the old one or the new one."""
    unfinished = path.with_name(f".{path.name}.unfinished")
    unfinished.unlink(missing_ok=True)
    try:
        # Secret from the first byte on.
        file = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, SECRET_MODE)
        with os.fdopen(file, "wb") as writer:
            writer.write(content)
            writer.flush()
            os.fsync(writer.fileno())
        unfinished.rename(path)
    except BaseException:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)
