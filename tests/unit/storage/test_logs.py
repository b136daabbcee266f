"""Logs as whoever reads all of them sees them: which log it is, what is kept, and pages of it."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from pulsarcast.model.errors import LocalError
from pulsarcast.model.events import Sequence, publish_own
from pulsarcast.model.ids import Cid, cid_of
from pulsarcast.protocol.store import DropEvents, DropTopic, MarkState, PutEvent
from pulsarcast.storage.backup import backup, restore
from pulsarcast.storage.home import Home
from tests.support.people import ALICE

TOPIC = cid_of(b"a topic")
OTHER = cid_of(b"another one")


def put(home: Home, index: int, topic: Cid = TOPIC) -> bytes:
    event = publish_own(
        ALICE, topic=topic, version=topic, payload=b"x" * 100, created=index, nonce=bytes(16),
        sequence=Sequence(7, index), parents=[],
    )  # fmt: skip
    mark = MarkState(ALICE.peer_id, 7, 0, index, event.cid)
    home.store.apply([PutEvent(index, event, mark, 1000 + index)])
    return event.block


def test_an_empty_log_begins_with_one(tmp_path: Path) -> None:
    with Home.open(tmp_path / "home") as home:
        logs = home.log_reader()
        state = logs.state(TOPIC)
        assert (state.oldest, state.newest) == (1, 0)
        assert logs.read(TOPIC, 1, 100, 1000) == []
        assert logs.state(TOPIC) == state, "the id is there to stay"


def test_events_come_as_they_are_between_two_indices_and_up_to_some_bytes(tmp_path: Path) -> None:
    with Home.open(tmp_path / "home") as home:
        blocks = [put(home, index) for index in range(1, 8)]
        put(home, 1, OTHER)
        logs = home.log_reader()
        state = logs.state(TOPIC)
        assert (state.oldest, state.newest) == (1, 7)
        expected = [(index, 1000 + index, blocks[index - 1]) for index in range(1, 8)]
        assert logs.read(TOPIC, 1, 8, 1 << 20) == expected
        assert logs.read(TOPIC, 3, 5, 1 << 20) == expected[2:4]
        assert logs.read(TOPIC, 3, 8, 1) == expected[2:3], "one at least, to get on"
        assert logs.read(TOPIC, 8, 9, 1) == []


def test_what_retention_dropped_is_said(tmp_path: Path) -> None:
    with Home.open(tmp_path / "home") as home:
        for index in range(1, 6):
            put(home, index)
        logs = home.log_reader()
        before = logs.state(TOPIC)
        home.store.apply([DropEvents(TOPIC, 3)])
        assert logs.state(TOPIC) == (before.log, 4, 5)
        home.store.apply([DropEvents(TOPIC, 5)])
        assert logs.state(TOPIC) == (before.log, 6, 5), "the next one will be the sixth"


def test_a_log_keeps_its_id_through_restarts(tmp_path: Path) -> None:
    with Home.open(tmp_path / "home") as home:
        put(home, 1)
        store, first = home.log_reader().store, home.log_reader().state(TOPIC)
        assert home.log_reader().state(OTHER).log != first.log
    with Home.open(tmp_path / "home") as home:
        assert home.log_reader().store == store
        assert home.log_reader().state(TOPIC) == first


def test_a_topic_that_was_left_begins_another_log(tmp_path: Path) -> None:
    with Home.open(tmp_path / "home") as home:
        put(home, 1)
        logs = home.log_reader()
        before = logs.state(TOPIC).log
        home.store.apply([DropTopic(TOPIC)])
        put(home, 1)
        assert logs.state(TOPIC).log != before


@pytest.mark.parametrize("way", ["backup", "copied folder"])
def test_a_store_that_went_back_is_another_store(tmp_path: Path, way: str) -> None:
    with Home.open(tmp_path / "home") as home:
        put(home, 1)
        store, log = home.log_reader().store, home.log_reader().state(TOPIC).log
    if way == "backup":
        backup(tmp_path / "home", tmp_path / "backup")
        restore(tmp_path / "backup", tmp_path / "again")
    else:
        shutil.copytree(tmp_path / "home", tmp_path / "again")
    with Home.open(tmp_path / "again") as home:
        assert home.log_reader().store != store
        assert home.log_reader().state(TOPIC).log != log
    with Home.open(tmp_path / "home") as home:
        assert home.log_reader().store == store, "the one that was there all the time"


def test_a_store_from_before_ids_gets_one_and_is_not_taken_for_a_copy(tmp_path: Path) -> None:
    with Home.open(tmp_path / "home") as home:
        put(home, 1)
    with closing(sqlite3.connect(tmp_path / "home" / "store.sqlite")) as database:
        database.execute("DELETE FROM state WHERE name = 'home' AND key = x'73746f7265'")
        database.commit()
    with Home.open(tmp_path / "home") as home:
        assert home.log_reader().store
        assert "restored" not in {row.table for row in home.store.rows()}


def test_a_disk_that_refuses_is_told_as_such(tmp_path: Path) -> None:
    with Home.open(tmp_path / "home") as home:
        logs = home.log_reader()
    with pytest.raises(LocalError, match="the disk refused"):
        logs.state(TOPIC)
