"""A home: one process at a time, a key that nobody else reads, starts that are counted for good."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pulsarcast.model.errors import LocalError
from pulsarcast.model.ids import peer_text
from pulsarcast.protocol.store import RESTORED, PutState, StateRow
from pulsarcast.storage.home import Home
from pulsarcast.storage.sqlite import SqliteStore
from tests.support.people import ALICE, BOB
from tests.unit.storage.test_sqlite import some_of_everything

LIVES_THERE = (
    "import sys, time\n"
    "from pulsarcast.storage.home import Home\n"
    "home = Home.open(sys.argv[1])\n"
    "print('in', flush=True)\n"
    "time.sleep(600)\n"
)


@contextmanager
def somebody_in(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that lives in a home."""
    command = [sys.executable, "-c", LIVES_THERE, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "in\n"
        try:
            yield process
        finally:
            process.kill()


def marked(home: Home) -> bool:
    return RESTORED in home.store.rows()


def test_a_new_home_has_all_that_a_node_needs_and_is_private(tmp_path: Path) -> None:
    with Home.open(tmp_path / "deep" / "home") as home:
        assert home.path.stat().st_mode & 0o777 == 0o700
        assert (home.path / "key").stat().st_mode & 0o777 == 0o600
        assert home.traces.is_dir()
        home.store.apply([PutState(StateRow("a", b"b", b"c"))])
        assert not marked(home)
        identity = home.identity
    with Home.open(home.path) as again:
        assert again.identity.seed == identity.seed
        assert StateRow("a", b"b", b"c") in again.store.rows()
        assert not marked(again), "an ordinary start is no restored one"


def test_a_home_in_a_folder_that_others_can_read_is_private_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home").chmod(0o755)
    before = os.umask(0o022)
    try:
        with Home.open(tmp_path / "home") as home:
            home.start()
            home.store.apply(some_of_everything())
            found = {path.name: path.stat().st_mode & 0o077 for path in home.path.iterdir()}
    finally:
        os.umask(before)
    assert {"store.sqlite", "store.sqlite-wal", "store.sqlite-shm"} <= found.keys()
    assert not any(found.values()), found


def test_two_new_homes_are_two_nodes(tmp_path: Path) -> None:
    with Home.open(tmp_path / "one") as one, Home.open(tmp_path / "other") as other:
        assert one.identity.peer_id != other.identity.peer_id


def test_a_home_takes_the_seed_that_it_is_given_once(tmp_path: Path) -> None:
    for _ in range(2):
        with Home.open(tmp_path / "home", seed=ALICE.seed) as home:
            assert home.identity.peer_id == ALICE.peer_id
    with pytest.raises(LocalError, match="it is another one"):
        Home.open(tmp_path / "home", seed=BOB.seed)


# The lock.


def test_a_home_that_another_process_lives_in_is_refused_by_name(tmp_path: Path) -> None:
    with somebody_in(tmp_path / "home") as process:
        with pytest.raises(LocalError) as refused:
            Home.open(tmp_path / "home")
        assert str(process.pid) in str(refused.value)
        assert str(tmp_path / "home") in str(refused.value)


def test_a_home_is_free_again_once_its_process_is_killed(tmp_path: Path) -> None:
    with somebody_in(tmp_path / "home") as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
        with Home.open(tmp_path / "home") as home:
            assert (home.path / "lock").read_text().strip() == str(os.getpid())


def test_a_home_is_opened_once_within_a_process_too(tmp_path: Path) -> None:
    with (
        Home.open(tmp_path / "home"),
        pytest.raises(LocalError, match=f"process {os.getpid()} holds it"),
    ):
        Home.open(tmp_path / "home")
    Home.open(tmp_path / "home").close()


def test_a_home_that_could_not_be_opened_is_not_left_locked(tmp_path: Path) -> None:
    with Home.open(tmp_path / "home") as home:
        key = home.path / "key"
    key.chmod(0o644)
    with pytest.raises(LocalError):
        Home.open(home.path)
    key.chmod(0o600)
    Home.open(home.path).close()


# The key.


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_key_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    with Home.open(tmp_path) as home:
        pass
    (home.path / "key").chmod(mode)
    with pytest.raises(LocalError, match="can be read by others"):
        Home.open(tmp_path)


def test_a_key_file_says_whose_it_is_and_survives_no_damage(tmp_path: Path) -> None:
    with Home.open(tmp_path, seed=ALICE.seed):
        pass
    key = tmp_path / "key"
    whole = key.read_text()
    assert whole == (
        f"pulsarcast key 1\nseed {ALICE.seed.hex()}\npeer {peer_text(ALICE.peer_id)}\n"
    )
    turned = ALICE.seed.hex().translate(str.maketrans("0123456789abcdef", "123456789abcdef0"))
    torn = [whole[:length] for length in range(0, len(whole), 7)]
    other = [
        whole.replace(ALICE.seed.hex(), turned),
        whole.replace(peer_text(ALICE.peer_id), peer_text(BOB.peer_id)),
        whole.replace("key 1", "key 2"),
        "\0" * len(whole),
        whole + "\n",
        "\xff" + whole,
    ]
    for text in [*torn, *other]:
        key.write_text(text, encoding="latin-1")
        with pytest.raises(LocalError, match="is damaged"):
            Home.open(tmp_path)
    key.write_text(whole)
    Home.open(tmp_path).close()


def test_a_store_without_its_key_gets_no_new_one(tmp_path: Path) -> None:
    with Home.open(tmp_path):
        pass
    (tmp_path / "key").unlink()
    with pytest.raises(LocalError, match="the key of its node is missing"):
        Home.open(tmp_path)
    assert not (tmp_path / "key").exists()


def test_a_store_and_the_key_of_another_node_do_not_go_together(tmp_path: Path) -> None:
    for name, who in (("alice", ALICE), ("bob", BOB)):
        Home.open(tmp_path / name, seed=who.seed).close()
    shutil.copy(tmp_path / "bob" / "key", tmp_path / "alice" / "key")
    with pytest.raises(LocalError) as refused:
        Home.open(tmp_path / "alice")
    for who in (ALICE, BOB):
        assert peer_text(who.peer_id) in str(refused.value)


def test_what_a_crash_left_half_written_is_not_taken_for_a_key(tmp_path: Path) -> None:
    (tmp_path / ".key.unfinished").write_text("pulsarcast key 1\nse")
    with Home.open(tmp_path, seed=ALICE.seed) as home:
        assert home.identity.peer_id == ALICE.peer_id
    assert not (tmp_path / ".key.unfinished").exists()


def test_a_folder_that_cannot_be_made_is_the_callers_mistake(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for path in (tmp_path / "file", tmp_path / "file" / "home"):
        with pytest.raises(LocalError, match="file"):
            Home.open(path)


# Starts.


def test_starts_are_counted_for_good(tmp_path: Path) -> None:
    with Home.open(tmp_path) as home:
        assert [home.start(), home.start()] == [1, 2]
    with Home.open(tmp_path) as home:
        assert home.start() == 3
    (tmp_path / "incarnation").write_text("3")
    with Home.open(tmp_path) as home, pytest.raises(LocalError, match="damaged"):
        home.start()


# Copies that nobody told us of.


def test_a_copied_folder_knows_that_it_is_one(tmp_path: Path) -> None:
    """Its original may have gone on: what it would number next may be given already."""
    with Home.open(tmp_path / "home") as home:
        home.start()
    shutil.copytree(tmp_path / "home", tmp_path / "copy")
    with Home.open(tmp_path / "copy") as copy:
        assert marked(copy)
        assert copy.start() > 1000, "its traces are not taken for those of the original"
    with Home.open(tmp_path / "copy") as copy:
        assert marked(copy), "until the core has seen to it"
    with Home.open(tmp_path / "home") as home:
        assert not marked(home)
        assert home.start() == 2


def test_a_folder_that_was_only_moved_is_no_copy(tmp_path: Path) -> None:
    with Home.open(tmp_path / "home"):
        pass
    (tmp_path / "home").rename(tmp_path / "moved")
    with Home.open(tmp_path / "moved") as home:
        assert not marked(home)


def test_a_store_from_before_homes_moves_in_unmarked(tmp_path: Path) -> None:
    with Home.open(tmp_path, seed=ALICE.seed):
        pass
    (tmp_path / "store.sqlite").unlink()
    store = SqliteStore(tmp_path / "store.sqlite")
    store.apply([PutState(StateRow("a", b"b", b"c"))])
    store.close()
    with Home.open(tmp_path) as home:
        assert not marked(home)
        assert StateRow("a", b"b", b"c") in home.store.rows()


# Damage.


@pytest.mark.parametrize("filling", [b"\0", b"\xff", b"\x0d"])
def test_a_damaged_store_opens_or_is_refused_with_its_name(tmp_path: Path, filling: bytes) -> None:
    with Home.open(tmp_path, seed=ALICE.seed) as home:
        home.store.apply(some_of_everything())
    store = tmp_path / "store.sqlite"
    whole, page = store.read_bytes(), 4096
    refused: list[str] = []
    for start in range(0, len(whole), page):
        store.write_bytes(whole[:start] + filling * page + whole[start + page :])
        try:
            with Home.open(tmp_path) as home:
                home.store.rows()
                home.store.marks()
                home.store.logs()
        except LocalError as error:
            refused.append(str(error))
    assert refused
    assert all(str(store) in reason for reason in refused)
