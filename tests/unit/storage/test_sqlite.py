"""What only a store on disk can promise: to be there afterwards, whole, and of a known schema."""

import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from pulsarcast.model.errors import LocalError
from pulsarcast.protocol.store import (
    Block,
    DropEvents,
    Events,
    LoadBlock,
    LoadLog,
    LoadNumbers,
    LoadOldest,
    LoadRequest,
    MarkState,
    PutBlock,
    PutEvent,
    PutMark,
    PutState,
    StateRow,
    Write,
)
from pulsarcast.storage import sqlite_schema
from pulsarcast.storage.sqlite import SqliteStore, StoreError
from tests.support.people import ALICE, EPOCH, event_of, topic_of

TOPIC = topic_of(ALICE)
FIXTURES = Path(__file__).parent / "stores"


def put(index: int) -> PutEvent:
    event = event_of(ALICE, TOPIC, index)
    return PutEvent(index, event, MarkState(ALICE.peer_id, EPOCH, 0, index, event.cid), 1_000)


def some_of_everything() -> list[Write]:
    """What the fixtures hold."""
    return [
        *(put(index) for index in (1, 2, 3)),
        PutMark(TOPIC.cid, MarkState(ALICE.peer_id, EPOCH, 0, 3, None, (5, 7), 1)),
        PutState(StateRow("cursor", TOPIC.cid, b"\x02")),
        PutBlock(TOPIC.cid, TOPIC.block, 1 << 200, 5_000),
    ]


def check_everything(store: SqliteStore) -> None:
    answer = store.answer(LoadLog(TOPIC.cid, 1, 10))
    assert answer == Events(tuple((index, put(index).event) for index in (1, 2, 3)))
    mark = MarkState(ALICE.peer_id, EPOCH, 0, 3, None, (5, 7), 1)
    assert store.marks() == ((TOPIC.cid, mark),)
    assert store.logs() == ((TOPIC.cid, 3),)
    assert store.rows() == (StateRow("cursor", TOPIC.cid, b"\x02"),)
    assert store.answer(LoadBlock(TOPIC.cid)) == Block(TOPIC.block)


def test_a_store_that_is_opened_again_holds_what_it_held(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store")
    store.apply(some_of_everything())
    store.close()
    again = SqliteStore(tmp_path / "store")
    check_everything(again)
    again.apply([put(4)])
    assert again.logs() == ((TOPIC.cid, 4),)
    again.close()


def test_what_was_applied_survives_a_kill(tmp_path: Path) -> None:
    """Promise 1: an acknowledgement never precedes the disk."""
    code = (
        "import sys\n"
        "from tests.unit.storage.test_sqlite import SqliteStore, put\n"
        "store = SqliteStore(sys.argv[1])\n"
        "for index in range(1, 1_000_000):\n"
        "    store.apply([put(index)])\n"
        "    print(index, flush=True)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "store")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        said = [int(writer.stdout.readline()) for _ in range(50)]
        writer.send_signal(signal.SIGKILL)
        said += [int(line) for line in writer.stdout.read().splitlines() if line]
    store = SqliteStore(tmp_path / "store")
    ((_, newest),) = store.logs()
    assert newest - said[-1] in {0, 1}, "and at most the one that it had not told of yet"
    answer = store.answer(LoadLog(TOPIC.cid, 1, newest))
    assert answer == Events(tuple((index, put(index).event) for index in range(1, newest + 1)))
    store.close()


def test_writes_that_are_handed_over_together_are_kept_together(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store")
    store.apply([put(1)])
    with pytest.raises(StoreError):
        store.apply([put(2), PutState(StateRow("a", b"b", b"c")), put(1)])
    assert (store.logs(), store.rows()) == (((TOPIC.cid, 1),), ())
    store.apply([put(2)])
    assert store.logs() == ((TOPIC.cid, 2),)
    store.close()


def test_a_full_disk_is_said_and_what_is_there_stays(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store")
    store.apply(some_of_everything())
    (pages,) = store._database.execute("PRAGMA page_count").fetchone()
    store._database.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreError, match="full"):
        store.apply([put(index) for index in range(4, 200)])
    check_everything(store)
    store._database.execute("PRAGMA max_page_count = 1000000")
    store.apply([put(4)])
    assert store.logs() == ((TOPIC.cid, 4),)
    store.close()


def test_every_commit_is_synced(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store")
    assert store._database.execute("PRAGMA synchronous").fetchone() == (2,)
    assert store._database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    store.close()


def test_a_store_is_copied_while_it_is_in_use(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store")
    store.apply(some_of_everything())
    sqlite_schema.copy_to(store._database, tmp_path / "copy")
    store.apply([put(4)])
    copy = SqliteStore(tmp_path / "copy")
    check_everything(copy)
    copy.close()
    store.close()


def test_only_what_may_be_asked_for_is_in_the_index_of_requests(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store")
    ours, theirs = put(1), msgspec.structs.replace(put(2), asked_for=False)
    store.apply([ours, theirs])
    for kept, found in ((ours, ours.event.block), (theirs, None)):
        query = LoadRequest(TOPIC.cid, ALICE.peer_id, kept.event.request.nonce)
        assert store.answer(query) == Block(found)
    assert store.answer(LoadBlock(theirs.event.cid)) == Block(theirs.event.block)
    store.close()


# Schemas.


@pytest.mark.parametrize("number", sorted(sqlite_schema.STEPS))
def test_a_store_of_every_schema_is_opened(number: int, tmp_path: Path) -> None:
    path = tmp_path / "store"
    shutil.copy(FIXTURES / f"schema-{number}.sqlite", path)
    store = SqliteStore(path)
    check_everything(store)
    store.close()


def test_what_is_put_aside_of_an_older_schema_is_private(tmp_path: Path) -> None:
    path = tmp_path / "store"
    shutil.copy(FIXTURES / "schema-1.sqlite", path)
    SqliteStore(path).close()
    assert (tmp_path / "store.schema-1").stat().st_mode & 0o077 == 0


def test_a_store_of_a_newer_schema_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "store"
    SqliteStore(path).close()
    with sqlite3.connect(path) as database:
        database.execute(f"PRAGMA user_version = {sqlite_schema.NUMBER + 1}")
    database.close()
    before = path.read_bytes()
    with pytest.raises(LocalError, match="newer Pulsarcast"):
        SqliteStore(path)
    assert path.read_bytes() == before


def test_another_programs_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE theirs (a)")
    database.close()
    before = path.read_bytes()
    with pytest.raises(LocalError, match="not a store of ours"):
        SqliteStore(path)
    assert path.read_bytes() == before, "and left alone"


def test_what_is_no_database_at_all_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "store"
    path.write_bytes(b"dear diary" * 1000)
    with pytest.raises(StoreError, match="not a database"):
        SqliteStore(path)


def add_step(monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """A future schema."""
    number = sqlite_schema.NUMBER + 1
    monkeypatch.setattr(sqlite_schema, "STEPS", {**sqlite_schema.STEPS, number: step})
    monkeypatch.setattr(sqlite_schema, "NUMBER", number)


def test_an_older_store_is_copied_aside_and_then_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = SqliteStore(tmp_path / "store")
    old.apply(some_of_everything())
    old.close()
    number = sqlite_schema.NUMBER
    add_step(monkeypatch, "ALTER TABLE topic ADD COLUMN colour TEXT")
    store = SqliteStore(tmp_path / "store")
    check_everything(store)
    assert store._database.execute("SELECT colour FROM topic").fetchall() == [(None,)]
    store.close()
    monkeypatch.undo()
    with pytest.raises(LocalError, match="newer"):
        SqliteStore(tmp_path / "store")
    aside = SqliteStore(tmp_path / f"store.schema-{number}")
    check_everything(aside)
    aside.close()


def test_a_change_that_fails_half_way_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = SqliteStore(tmp_path / "store")
    old.apply(some_of_everything())
    old.close()
    add_step(monkeypatch, "ALTER TABLE topic ADD COLUMN colour TEXT;\nDROP TABLE nothing")
    with pytest.raises(StoreError, match="nothing"):
        SqliteStore(tmp_path / "store")
    monkeypatch.undo()
    store = SqliteStore(tmp_path / "store")
    check_everything(store)
    store.close()


def test_no_question_takes_longer_in_a_longer_log(tmp_path: Path) -> None:
    """SQLite says how many steps it takes; an index that is not used shows there."""
    short, long = (steps_with(tmp_path / f"store-{count}", count) for count in (200, 2000))
    slower = {name: (short[name], long[name]) for name in short if long[name] > short[name] + 200}
    assert not slower


def steps_with(path: Path, count: int) -> dict[str, int]:
    """The steps of every question that a node asks of a log with so many events."""
    store = SqliteStore(path)
    store.apply([put(index) for index in range(1, count + 1)])
    topic, event, reader = TOPIC.cid, put(count).event, store.log_reader(b"")
    numbers = (event.publisher, event.sequence.epoch, count - 9, count, 1 << 20)
    request = LoadRequest(topic, ALICE.peer_id, event.request.nonce)
    asked: dict[str, Callable[[], object]] = {
        "the last page": lambda: store.answer(LoadLog(topic, count - 9, 10)),
        "by number": lambda: store.answer(LoadNumbers(topic, *numbers)),
        "by content id": lambda: store.answer(LoadBlock(event.cid)),
        "by request": lambda: store.answer(request),
        "what is too old": lambda: store.answer(LoadOldest(topic, count - 5, None, None)),
        "the state of the log": lambda: reader.state(topic),
        "the log's end": lambda: reader.read(topic, count - 9, count + 1, 1 << 20),
        "the log's beginning": lambda: reader.read(topic, 1, count, 500),
        "dropping the oldest": lambda: store.apply([DropEvents(topic, 5)]),
    }
    steps: dict[str, int] = {}
    for name, ask in asked.items():
        ask()
        steps[name] = steps_of(store, ask)
    store.close()
    return steps


def steps_of(store: SqliteStore, ask: Callable[[], object]) -> int:
    """Instructions of SQLite's machine."""
    count = 0

    def step() -> None:
        nonlocal count
        count += 1

    store._database.set_progress_handler(step, 1)
    ask()
    store._database.set_progress_handler(None, 1)
    return count
