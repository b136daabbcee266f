"""A node's disk: what it answers, and whose writes are left out where there is no room."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from pulsarcast.model.ids import Cid, cid_key, cid_of
from pulsarcast.network import disk as disk_module
from pulsarcast.network.disk import WARY_S, Disk
from pulsarcast.protocol.effects import Load, Persist
from pulsarcast.protocol.inputs import Loaded, Persisted, PersistFailed
from pulsarcast.protocol.store import (
    AnyWrite,
    Block,
    DropExpired,
    Keep,
    LoadBlock,
    PutBlock,
    PutState,
    StateRow,
    Write,
)
from pulsarcast.storage.sqlite import SqliteStore, StoreError

OURS = PutState(StateRow("test", b"ours", b""))
BLOCK = bytes(200_000)
CID = cid_of(BLOCK)
PLACE = "192.0.2.0/24"
REPLICA = PutBlock(CID, BLOCK, cid_key(CID), 1)


def strangers(token: int) -> Persist:
    return Persist(token, (Keep(token, PLACE, (REPLICA,)),))


class CountingStore(SqliteStore):
    """Counts the commits that were tried."""

    tries = 0

    def apply(self, writes: Iterable[AnyWrite]) -> tuple[int, ...]:
        self.tries += 1
        return super().apply(writes)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[CountingStore]:
    store = CountingStore(tmp_path / "store")
    yield store
    store.close()


def fill(store: SqliteStore) -> None:
    """From now on SQLite says that the disk is full, but for a few pages."""
    (pages,) = store._database.execute("PRAGMA page_count").fetchone()
    store._database.execute(f"PRAGMA max_page_count = {pages + 4}")


def has(store: SqliteStore, cid: Cid) -> bool:
    return store.answer(LoadBlock(cid)) != Block(None)


def test_a_strangers_block_is_written_with_the_nodes_own_writes(store: CountingStore) -> None:
    disk = Disk(store)
    disk.persist(Persist(1, (OURS,)))
    disk.persist(strangers(2))
    assert disk.settle() == [Persisted(2)]
    assert (store.tries, has(store, CID)) == (1, True)


def test_a_disk_that_refuses_a_strangers_block_keeps_the_nodes_own_writes(
    store: CountingStore,
) -> None:
    fill(store)
    disk = Disk(store)
    disk.persist(strangers(1))
    disk.persist(Persist(2, (OURS,)))
    assert disk.settle() == [Persisted(2, (1,))]
    assert not has(store, CID)
    assert store.rows() == (OURS.row,)


def test_a_disk_that_refuses_nothing_but_a_strangers_block_has_not_failed(
    store: CountingStore,
) -> None:
    fill(store)
    disk = Disk(store)
    disk.persist(strangers(1))
    assert disk.settle() == [Persisted(1, (1,))]
    disk.persist(Persist(2, (OURS,)))
    assert disk.settle() == [Persisted(2)]


def test_strangers_do_not_make_a_disk_that_refused_try_again_at_once(
    store: CountingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now_s)
    fill(store)
    disk = Disk(store)
    for token in range(1, 10):
        disk.persist(strangers(token))
        assert disk.settle() == [Persisted(token, (token,))]
    assert store.tries == 1
    now_s += WARY_S
    disk.persist(strangers(10))
    disk.settle()
    assert store.tries == 2


def test_strangers_leave_the_owner_a_reserve(
    store: CountingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_module, "RESERVE_BYTES", 1 << 62)
    disk = Disk(store)
    disk.persist(Persist(1, (OURS,)))
    disk.persist(strangers(2))
    assert disk.settle() == [Persisted(2, (2,))]
    assert store.rows() == (OURS.row,)


SMALL: dict[str, tuple[Write, ...]] = {
    "pointer": (PutState(StateRow("pointer", b"key", bytes(200_000))),),
    "listing": (PutState(StateRow("listing", b"key", bytes(200_000))),),
    "expired": (DropExpired(1),),
}


@pytest.mark.parametrize("kind", sorted(SMALL))
def test_a_disk_that_refuses_a_small_record_of_a_stranger_has_not_failed(
    store: CountingStore, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store)
    if kind == "expired":
        refuse_keeps(store, monkeypatch)
    disk = Disk(store)
    disk.persist(Persist(1, (Keep(1, PLACE, SMALL[kind]),)))
    disk.persist(Persist(2, (OURS,)))
    assert disk.settle() == [Persisted(2, (1,))]
    assert store.rows() == (OURS.row,)


def refuse_keeps(store: CountingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk refuses all that is for strangers, however little it is."""

    def refuse(writes: Iterable[AnyWrite]) -> tuple[int, ...]:
        if any(isinstance(write, Keep) for write in writes):
            raise StoreError("no space left on device")
        return SqliteStore.apply(store, writes)

    monkeypatch.setattr(store, "apply", refuse)


def test_what_makes_room_is_written_where_there_is_little(
    store: CountingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a disk that is nearly full would keep what has expired for ever."""
    disk = Disk(store)
    disk.persist(strangers(1))
    disk.settle()
    monkeypatch.setattr(disk_module, "RESERVE_BYTES", 1 << 62)
    disk.persist(Persist(2, (Keep(2, "", (DropExpired(2),)),)))
    disk.persist(strangers(3))
    assert disk.settle() == [Persisted(3, (3,))]
    assert not has(store, CID)
    assert store.strangers_bytes == 0


def test_a_disk_that_refuses_the_nodes_own_write_has_failed_for_good(store: CountingStore) -> None:
    fill(store)
    disk = Disk(store)
    disk.persist(Persist(1, (PutBlock(CID, BLOCK, None, 0),)))
    disk.load(Load(2, LoadBlock(CID)))
    failed, loaded = disk.settle()
    assert isinstance(failed, PersistFailed)
    assert (failed.token, loaded) == (1, Loaded(2, Block(None)))
    disk.persist(Persist(3, (OURS,)))
    assert disk.settle() == []
