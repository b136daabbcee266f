"""The stream's reader against a real daemon, without Spark: each call as Spark makes it."""

from __future__ import annotations

import itertools
import json
import logging
import pickle
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from pulsarcast.model.errors import LocalError, PulsarcastError
from pulsarcast.model.ids import cid_of, cid_text
from pulsarcast.pipeline.topics import logs
from pulsarcast.pipeline.topics.batch import TopicReader
from pulsarcast.pipeline.topics.offsets import SourceError
from pulsarcast.pipeline.topics.stream import TopicStreamReader
from tests.pipeline.topic_daemon import TopicDaemon, rows_of, topic_daemon, wait_for

ALL = ReadAllAvailable()


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TopicDaemon]:
    with topic_daemon(tmp_path_factory.mktemp("reader")) as found:
        yield found


@pytest.fixture(autouse=True)
def stopped(daemon: TopicDaemon) -> Iterator[None]:
    yield
    daemon.stop_readers()


@pytest.fixture
def topic(daemon: TopicDaemon) -> str:
    return daemon.create()


def numbers(rows: list[dict[str, Any]]) -> list[int]:
    return [int(row["payload"]) for row in rows]


def step(
    reader: TopicStreamReader, start: dict[str, Any], limit: Any = ALL
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """One micro-batch: its end, and its rows."""
    end = json.loads(json.dumps(reader.latestOffset(start, limit)))
    return end, rows_of(reader, start, end)


# Going on.


def test_a_stream_begins_at_the_latest_event_and_gets_what_comes(
    daemon: TopicDaemon, topic: str
) -> None:
    daemon.fill(topic, 5)
    reader = daemon.reader(topic)
    start = reader.initialOffset()
    assert reader.latestOffset(start, ALL) is start
    assert reader.partitions(start, start) == []
    ids = daemon.fill(topic, 3, first=6)
    end, rows = step(reader, start)
    assert numbers(rows) == [6, 7, 8]
    assert [row["event_id"] for row in rows] == ids
    assert [row["offset"] for row in rows] == [6, 7, 8]
    assert reader.reportLatestOffset() == end
    assert reader.latestOffset(end, ALL) is end
    reader.stop()


def test_a_limit_is_kept_and_everything_comes_once(daemon: TopicDaemon) -> None:
    topics = [daemon.create() for _ in range(3)]
    for topic, count in zip(topics, (1, 20, 200), strict=True):
        daemon.fill(topic, count)
    reader = daemon.reader(",".join(topics), startingOffsets="earliest", maxOffsetsPerTrigger="50")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(50)
    end = reader.initialOffset()
    seen: list[tuple[str, int]] = []
    for batch in itertools.count():
        start = end
        end, rows = step(reader, start, limit)
        if end == start:
            break
        assert len(rows) <= 50
        if batch == 0:
            assert {row["topic"] for row in rows} == set(topics)
        seen += [(row["topic"], row["offset"]) for row in rows]
    assert len(seen) == len(set(seen)) == 221
    assert batch == 5


def test_a_query_for_what_is_there_reads_nothing_that_came_later(
    daemon: TopicDaemon, topic: str
) -> None:
    daemon.fill(topic, 4)
    reader = daemon.reader(topic, startingOffsets="earliest")
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    daemon.fill(topic, 4, first=5)
    end, rows = step(reader, start)
    assert numbers(rows) == [1, 2, 3, 4]
    assert reader.latestOffset(end, ALL) is end


def test_a_batch_is_the_same_though_the_query_names_other_topics_by_then(
    daemon: TopicDaemon,
) -> None:
    """Planned, and then the job was killed and started again with fewer topics."""
    one, other = (daemon.create() for _ in range(2))
    for topic in (one, other):
        daemon.fill(topic, 3)
    reader = daemon.reader(f"{one},{other}", startingOffsets="earliest")
    start = reader.initialOffset()
    end, rows = step(reader, start)
    assert rows_of(daemon.reader(one), start, end) == rows
    daemon.flush(other)
    with pytest.raises(SourceError, match="3 events are gone"):
        rows_of(daemon.reader(one), start, end)
    left = rows_of(daemon.reader(one, failOnDataLoss="false"), start, end)
    assert left == [row for row in rows if row["topic"] == one]


def test_a_batch_is_the_same_whenever_it_is_read(daemon: TopicDaemon, topic: str) -> None:
    daemon.fill(topic, 30)
    reader = daemon.reader(topic, startingOffsets="earliest", maxRecordsPerPartition="7")
    start = reader.initialOffset()
    end, rows = step(reader, start)
    daemon.fill(topic, 5, first=31)
    parts = reader.partitions(start, end)
    assert len(parts) == 5
    other = daemon.reader(topic, startingOffsets="latest", maxRecordsPerPartition="7")
    assert rows_of(other, start, end) == rows
    executor = pickle.loads(pickle.dumps(reader))
    part = pickle.loads(pickle.dumps(parts[2]))
    first, second = (
        [batch.to_pylist() for batch in each.read(part)] for each in (executor, reader)
    )
    assert first == second


def test_headers_and_blocks_come_where_they_are_asked_for(daemon: TopicDaemon, topic: str) -> None:
    daemon.fill(topic, 1)
    reader = daemon.reader(
        topic, startingOffsets="earliest", includeHeaders="true", includeBlocks="true"
    )
    _, (row,) = step(reader, reader.initialOffset())
    assert row["headers"] == [{"key": "n", "value": b"1"}]
    assert len(row["block"]) > 200


# Trees of topics.


def test_a_tree_has_all_topics_below_but_the_meta_topic(daemon: TopicDaemon) -> None:
    leaf, twig = daemon.create(), daemon.create()
    branch = daemon.create(below={"leaf": leaf, "twig": twig})
    # A circle, and one that is reached in two ways.
    top = daemon.create(below={"branch": branch, "leaf": leaf})
    daemon.link(leaf, {"top": top})
    for number, each in enumerate((leaf, twig, branch, top), start=1):
        daemon.fill(each, 1, first=number)
    reader = daemon.reader(f"{top}/*", startingOffsets="earliest")
    start = reader.initialOffset()
    assert set(start["topics"]) == {leaf, twig, branch, top}
    _, rows = step(reader, start)
    assert sorted(numbers(rows)) == [1, 2, 3, 4]
    assert set(daemon.reader(top).initialOffset()["topics"]) == {top}


def test_a_sub_topic_that_is_new_is_read_from_its_start(daemon: TopicDaemon) -> None:
    first, second = daemon.create(), daemon.create()
    top = daemon.create(below={"first": first})
    reader = daemon.reader(f"{top}/*")
    start = reader.initialOffset()
    daemon.fill(second, 3)
    assert reader.latestOffset(start, ALL) is start
    daemon.link(top, {"first": first, "second": second})
    middle, rows = step(reader, start)
    assert numbers(rows) == [1, 2, 3]
    daemon.fill(second, 2, first=4)
    end, rows = step(reader, middle)
    assert numbers(rows) == [4, 5]
    # One that is taken out waits, and goes on when it comes back.
    daemon.link(top, {"first": first})
    daemon.fill(second, 1, first=6)
    assert reader.latestOffset(end, ALL) is end
    daemon.link(top, {"first": first, "second": second})
    _, rows = step(reader, end)
    assert numbers(rows) == [6]


def test_a_sub_topic_that_nobody_has_is_left_out_of_a_stream_but_not_of_a_table(
    daemon: TopicDaemon, caplog: pytest.LogCaptureFixture
) -> None:
    ghost, leaf = cid_text(cid_of(b"ghost")), daemon.create()
    top = daemon.create(below={"ghost": ghost, "leaf": leaf})
    with caplog.at_level(logging.WARNING):
        assert set(daemon.reader(f"{top}/*").initialOffset()["topics"]) == {top, leaf}
    assert f"sub-topic {ghost} is left out" in caplog.text
    with pytest.raises(SourceError, match=rf"sub-topic {ghost}.*name the topics that you need"):
        TopicReader(daemon.options(f"{top}/*")).partitions()


def test_indices_can_be_given_for_each_topic(daemon: TopicDaemon) -> None:
    one, two, three = (daemon.create() for _ in range(3))
    top = daemon.create(below={"two": two, "three": three})
    for each in (one, two, three, top):
        daemon.fill(each, 5)
    daemon.client.set_alias("first-one", one)
    given = json.dumps({"first-one": 4, f"{top}/*": -1, two: -2})
    reader = daemon.reader(f"{one},{top}/*", startingOffsets=given)
    start = reader.initialOffset()
    found = {topic: place["next"] for topic, place in start["topics"].items()}
    assert found == {one: 4, two: 1, three: 6, top: 6}
    lost = daemon.reader(f"{one},{top}/*", startingOffsets=json.dumps({one: 4, "nobody": 1}))
    with pytest.raises(LocalError, match="'nobody', which is none of the topics"):
        lost.initialOffset()
    lost = daemon.reader(f"{one},{two}", startingOffsets=json.dumps({one: 4}))
    with pytest.raises(LocalError, match="leaves out"):
        lost.initialOffset()


# What is lost.


def test_events_that_retention_took_are_an_error_or_left_out(
    daemon: TopicDaemon, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    daemon.fill(topic, 10)
    strict = daemon.reader(topic, startingOffsets="earliest")
    start = strict.initialOffset()
    daemon.flush(topic)
    daemon.fill(topic, 2, first=11)
    with pytest.raises(SourceError, match=r"10 events are gone.*longer retention.*OnDataLoss=fal"):
        strict.latestOffset(start, ALL)
    lenient = daemon.reader(topic, failOnDataLoss="false")
    with caplog.at_level(logging.WARNING):
        end, rows = step(lenient, start)
    assert "10 events are gone" in caplog.text
    assert numbers(rows) == [11, 12]
    assert end["topics"][topic]["from"] == 11
    assert rows_of(lenient, start, end) == rows
    _, rows = step(lenient, end)
    assert rows == []


def test_a_planned_batch_that_retention_took_is_an_error_or_left_out(
    daemon: TopicDaemon, topic: str
) -> None:
    daemon.fill(topic, 10)
    reader = daemon.reader(topic, startingOffsets="earliest")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    (part,) = reader.partitions(start, end)
    daemon.flush(topic)
    with pytest.raises(SourceError, match="retention has dropped"):
        list(reader.read(part))
    with pytest.raises(SourceError, match="10 events are gone"):
        daemon.reader(topic).partitions(start, end)
    lenient = daemon.reader(topic, failOnDataLoss="false")
    assert lenient.partitions(start, end) == []
    assert list(lenient.read(part)) == []


def test_a_topic_that_is_not_followed_is_followed_and_may_begin_anew(
    daemon: TopicDaemon, topic: str, tmp_path: Path
) -> None:
    daemon.fill(topic, 4)
    with topic_daemon(tmp_path, beside=daemon) as other:
        reader = other.reader(topic, startingOffsets="earliest")
        start = reader.initialOffset()
        wait_for(lambda: other.client.log(topic).newest == 4)
        end, rows = step(reader, start)
        assert numbers(rows) == [1, 2, 3, 4]
        (part,) = reader.partitions(start, end)
        # Left, and followed again.
        other.client.unsubscribe(topic)
        other.client.follow(topic)
        daemon.fill(topic, 3, first=5)
        wait_for(lambda: other.client.log(topic).newest == 3)
        with pytest.raises(SourceError, match=r"left and followed again.*new checkpoint"):
            reader.latestOffset(end, ALL)
        with pytest.raises(SourceError, match="another log"):
            list(reader.read(part))
        lenient = other.reader(topic, failOnDataLoss="false")
        assert list(lenient.read(part)) == []
        assert lenient.partitions(start, end) == []
        after, rows = step(lenient, end)
        assert numbers(rows) == [5, 6, 7]
        assert lenient.latestOffset(after, ALL) is after
        # Left while no query looks.
        other.client.unsubscribe(topic)
        lenient.latestOffset(after, ALL)
        assert other.client.log(topic).topic == topic
        # Its indices are not the author's.
        with pytest.raises(SourceError, match="another daemon"):
            daemon.reader(topic).latestOffset(after, ALL)
        other.stop_readers()


def test_offsets_of_another_daemon_are_refused(daemon: TopicDaemon, topic: str) -> None:
    daemon.fill(topic, 4)
    reader = daemon.reader(topic, startingOffsets="earliest")
    foreign = {**reader.initialOffset(), "store": "0123456789abcdef"}
    with pytest.raises(SourceError, match="another daemon, or a store restored from a backup"):
        reader.latestOffset(foreign, ALL)
    lenient = daemon.reader(topic, failOnDataLoss="false")
    end, rows = step(lenient, foreign)
    assert numbers(rows) == [1, 2, 3, 4]
    assert end["store"] == reader.initialOffset()["store"]


def test_offsets_of_a_store_that_went_back_are_refused(daemon: TopicDaemon, topic: str) -> None:
    reader = daemon.reader(topic)
    start = reader.initialOffset()
    start["topics"][topic]["next"] = 99
    with pytest.raises(SourceError, match="went back"):
        reader.latestOffset(start, ALL)


# Daemons that are away, and doors that are shut.


def test_a_reader_waits_for_a_daemon_that_restarts(daemon: TopicDaemon, topic: str) -> None:
    daemon.fill(topic, 10)
    reader = daemon.reader(topic, startingOffsets="earliest")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    (part,) = reader.partitions(start, end)
    daemon.process.kill()
    later = threading.Timer(0.5, daemon.process.start)
    later.start()
    try:
        with ThreadPoolExecutor() as pool:
            looked = pool.submit(reader.latestOffset, end, ALL)
            read = pool.submit(lambda: list(reader.read(part)))
            assert looked.result() is end
            rows = [row for batch in read.result() for row in batch.to_pylist()]
    finally:
        later.join()
    assert numbers(rows) == list(range(1, 11))


def test_a_daemon_that_stays_away_is_an_error(
    daemon: TopicDaemon, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon.fill(topic, 10)
    reader = daemon.reader(topic, startingOffsets="earliest")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    (part,) = reader.partitions(start, end)
    monkeypatch.setattr(logs, "PATIENCE_S", 0.5)
    daemon.process.kill()
    try:
        with pytest.raises(SourceError, match=r"away for 0 s.*Nothing is lost"):
            reader.latestOffset(end, ALL)
        with pytest.raises(SourceError, match="the daemon was away"):
            list(reader.read(part))
        begun_s = time.monotonic()
        with pytest.raises(PulsarcastError, match="no daemon answers"):
            daemon.reader(topic).initialOffset()
        assert time.monotonic() - begun_s < 0.4, "who was never there is not waited for"
    finally:
        daemon.process.start()


@pytest.mark.parametrize("token", ["wrong-token", ""])
def test_a_wrong_token_is_told_without_showing_it(
    daemon: TopicDaemon, topic: str, token: str
) -> None:
    reader = daemon.reader(topic, token=token)
    with pytest.raises(SourceError, match="refuses the token") as caught:
        reader.initialOffset()
    assert "wrong-token" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_a_token_for_another_topic_does_not_open_this_one(daemon: TopicDaemon) -> None:
    mine, other = daemon.create(), daemon.create()
    daemon.fill(mine, 2)
    token = daemon.client.create_token("spark", ["read"], topics=[mine]).token
    assert token is not None
    reader = daemon.reader(mine, token=token, startingOffsets="earliest")
    _, rows = step(reader, reader.initialOffset())
    assert numbers(rows) == [1, 2]
    with pytest.raises(SourceError, match="refuses the token"):
        daemon.reader(other, token=token).initialOffset()


@pytest.mark.parametrize("name", ["nobody", "bafyrei" + "a" * 52, "12D3KooW/x"])
def test_a_topic_that_nobody_knows_is_told_by_name(daemon: TopicDaemon, name: str) -> None:
    with pytest.raises(PulsarcastError, match=name):
        daemon.reader(name).initialOffset()


def test_whoever_names_a_home_means_it(
    daemon: TopicDaemon, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PULSARCAST_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("PULSARCAST_TOKEN", "elsewhere")
    with pytest.raises(LocalError, match="one of the options"):
        daemon.reader(topic, home=str(daemon.process.home), context="work")
    with pytest.raises(LocalError, match=r"no daemon runs in .* say it, too"):
        daemon.reader(topic, home=str(daemon.process.home / "nobody"))
    reader = daemon.reader(topic, home=str(daemon.process.home))
    assert set(reader.initialOffset()["topics"]) == {topic}


def test_a_stream_has_no_end(daemon: TopicDaemon, topic: str) -> None:
    with pytest.raises(LocalError, match="endingOffsets is for batches"):
        daemon.reader(topic, endingOffsets='{"x": 3}')
