"""Backups: taken from a running node, whole or not there at all, and marked when they come back."""

import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from pulsarcast.model.errors import LocalError
from pulsarcast.protocol.store import RESTORED, Events, LoadLog, PutState, StateRow
from pulsarcast.storage.backup import backup, restore
from pulsarcast.storage.home import Home
from pulsarcast.storage.sqlite_schema import NUMBER
from tests.support.people import ALICE, BOB
from tests.unit.storage.test_sqlite import TOPIC, put

WRITES_ON = (
    "import sys\n"
    "from pulsarcast.storage.home import Home\n"
    "from tests.unit.storage.test_sqlite import put\n"
    "home = Home.open(sys.argv[1])\n"
    "for index in range(1, 1_000_000):\n"
    "    home.store.apply([put(index)])\n"
    "    print(index, flush=True)\n"
)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The home of a node that has done something."""
    with Home.open(tmp_path / "home", seed=ALICE.seed) as home:
        home.start()
        home.store.apply([put(index) for index in (1, 2, 3)])
    return home.path


def log(home: Home) -> Events:
    answer = home.store.answer(LoadLog(TOPIC.cid, 1, 1_000_000))
    assert isinstance(answer, Events)
    return answer


def test_a_restored_home_holds_what_the_backup_held_and_says_that_it_is_one(
    home: Path, tmp_path: Path
) -> None:
    assert backup(home, tmp_path / "backup").peer_id == ALICE.peer_id
    assert restore(tmp_path / "backup", tmp_path / "back").peer_id == ALICE.peer_id
    for _ in range(2):
        with Home.open(tmp_path / "back") as back:
            assert back.identity.peer_id == ALICE.peer_id
            assert log(back) == Events(tuple((index, put(index).event) for index in (1, 2, 3)))
            assert RESTORED in back.store.rows(), "until the core has seen to it"
    with Home.open(home) as original:
        assert RESTORED not in original.store.rows()


def test_the_key_in_a_backup_is_as_secret_as_at_home(home: Path, tmp_path: Path) -> None:
    backup(home, tmp_path / "backup")
    assert (tmp_path / "backup").stat().st_mode & 0o777 == 0o700
    assert sorted(path.name for path in (tmp_path / "backup").iterdir()) == [
        "incarnation",
        "key",
        "store.sqlite",
    ]
    for name in ("key", "store.sqlite"):
        assert (tmp_path / "backup" / name).stat().st_mode & 0o077 == 0
    (tmp_path / "backup" / "key").chmod(0o644)
    with pytest.raises(LocalError, match="can be read by others"):
        restore(tmp_path / "backup", tmp_path / "back")


def test_a_home_that_is_open_is_backed_up_all_the_same(home: Path, tmp_path: Path) -> None:
    with Home.open(home) as lived_in:
        lived_in.store.apply([put(4)])
        backup(lived_in, tmp_path / "backup")
        lived_in.store.apply([put(5)])
    restore(tmp_path / "backup", tmp_path / "back")
    with Home.open(tmp_path / "back") as back:
        assert [index for index, _ in log(back).events] == [1, 2, 3, 4]


def test_a_backup_of_a_node_that_writes_all_the_time_holds_a_prefix(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITES_ON, str(tmp_path / "home")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        said = [int(writer.stdout.readline()) for _ in range(30)]
        backup(tmp_path / "home", tmp_path / "backup")
        writer.send_signal(signal.SIGKILL)
        said += [int(line) for line in writer.stdout.read().split("\n")[:-1]]
    restore(tmp_path / "backup", tmp_path / "back")
    with Home.open(tmp_path / "back") as back:
        found = [index for index, _ in log(back).events]
        assert found == list(range(1, len(found) + 1))
        assert 30 <= len(found) <= said[-1] + 1
        assert [event for _, event in log(back).events] == [put(index).event for index in found]


def test_a_backup_goes_into_no_folder_that_exists(home: Path, tmp_path: Path) -> None:
    (tmp_path / "backup").mkdir()
    with pytest.raises(LocalError, match="exists already"):
        backup(home, tmp_path / "backup")
    assert list((tmp_path / "backup").iterdir()) == []


def test_what_is_no_home_is_not_backed_up(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="missing"):
        backup(tmp_path / "nowhere", tmp_path / "backup")
    (tmp_path / "home").mkdir()
    with pytest.raises(LocalError, match="missing"):
        backup(tmp_path / "home", tmp_path / "backup")
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


def test_a_backup_that_fails_leaves_nothing_behind(home: Path, tmp_path: Path) -> None:
    whole = (home / "store.sqlite").read_bytes()
    (home / "store.sqlite").write_bytes(whole[:5000])
    with pytest.raises(LocalError):
        backup(home, tmp_path / "backup")
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


# Restoring.


def test_nothing_is_restored_over_a_home(home: Path, tmp_path: Path) -> None:
    backup(home, tmp_path / "backup")
    with pytest.raises(LocalError, match="not empty"):
        restore(tmp_path / "backup", home)
    with Home.open(home) as lived_in:
        with pytest.raises(LocalError, match="not empty"):
            restore(tmp_path / "backup", home)
        lived_in.store.apply([put(4)])
    (tmp_path / "empty").mkdir()
    restore(tmp_path / "backup", tmp_path / "empty")
    Home.open(tmp_path / "empty").close()


def damaged(path: Path) -> None:
    content = bytearray(path.read_bytes())
    for at in range(8192, len(content), 16):
        content[at] ^= 0xFF
    path.write_bytes(content)


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-4096])


def of_a_later_schema(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute(f"PRAGMA user_version = {NUMBER + 1}")
    database.close()


def of_someone_else(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA application_id = 7")
    database.close()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def gone(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize(
    "harm", [damaged, cut_short, of_a_later_schema, of_someone_else, empty, gone]
)
def test_a_backup_that_is_not_whole_is_refused(home: Path, tmp_path: Path, harm: object) -> None:
    assert callable(harm)
    backup(home, tmp_path / "backup")
    harm(tmp_path / "backup" / "store.sqlite")
    with pytest.raises(LocalError):
        restore(tmp_path / "backup", tmp_path / "back")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backup", "home"]


def test_a_backup_with_the_key_of_another_node_is_refused(home: Path, tmp_path: Path) -> None:
    backup(home, tmp_path / "backup")
    Home.open(tmp_path / "bob", seed=BOB.seed).close()
    (tmp_path / "backup" / "key").write_bytes((tmp_path / "bob" / "key").read_bytes())
    with pytest.raises(LocalError, match="and the key beside it that of"):
        restore(tmp_path / "backup", tmp_path / "back")


def test_a_backup_can_be_restored_more_than_once_and_is_not_changed(
    home: Path, tmp_path: Path
) -> None:
    backup(home, tmp_path / "backup")
    before = (tmp_path / "backup" / "store.sqlite").read_bytes()
    for name in ("one", "two"):
        restore(tmp_path / "backup", tmp_path / name)
        with Home.open(tmp_path / name) as back:
            back.store.apply([PutState(StateRow("a", b"b", b"c"))])
    assert (tmp_path / "backup" / "store.sqlite").read_bytes() == before


def test_what_a_daemon_keeps_beside_its_node_comes_along(home: Path, tmp_path: Path) -> None:
    (home / "config.toml").write_text("[log]\nlevel = 'debug'\n")
    (home / "token").write_text("secret\n")
    backup(home, tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "back")
    for name in ("config.toml", "token"):
        assert (tmp_path / "back" / name).read_bytes() == (home / name).read_bytes()
        assert (tmp_path / "back" / name).stat().st_mode & 0o077 == 0
