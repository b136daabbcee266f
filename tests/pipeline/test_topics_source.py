"""`format("pulsarcast")` through Spark, in batch and in stream, against a real daemon."""

from __future__ import annotations

import itertools
import json
import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from pulsarcast.pipeline.session import pack_package
from pulsarcast.pipeline.topics.schema import spark_schema
from tests.pipeline.topic_daemon import TopicDaemon, topic_daemon, wait_for

FILTERS = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TopicDaemon]:
    with topic_daemon(tmp_path_factory.mktemp("source")) as found:
        yield found


@pytest.fixture
def topic(daemon: TopicDaemon) -> str:
    return daemon.create()


def numbers(frame: DataFrame) -> list[int]:
    return sorted(int(row[0]) for row in frame.select(F.col("payload").cast("string")).collect())


# Batch.


def test_a_table_has_what_the_daemon_says(
    spark: SparkSession, daemon: TopicDaemon, topic: str
) -> None:
    daemon.client.set_alias("typed", topic)
    values: dict[str, Any] = {"b": True, "i": 7, "f": 2.5, "t": "sunny", "r": b"\x00\xff"}
    daemon.client.publish(topic, b"\xff\x00", name="odd", attributes=values, ack="accepted")
    daemon.client.publish(topic, "plain", ack="accepted")
    frame = daemon.read(spark, "typed", includeHeaders="true", includeBlocks="true")
    assert frame.schema == spark_schema(headers=True, blocks=True)
    rows = frame.orderBy("offset").collect()
    views = list(daemon.client.history(topic))
    log = daemon.client.log(topic)
    assert len(rows) == 2
    for row, view in zip(rows, views, strict=True):
        assert (row.topic, row.topic_name) == (topic, log.name)
        assert (row.offset, row.event_id) == (view.index, view.id)
        assert (row.publisher, row.author) == (view.publisher, view.author)
        assert row.version == topic
        assert tuple(row.sequence) == (int(view.epoch), view.number)
        assert list(row.parents) == view.parents
        assert (row.name, bytes(row.payload)) == (view.name, view.payload)
        assert abs(row.received.timestamp() - time.time()) < 600
    found = {name: value.asDict() for name, value in rows[0].attributes.items()}
    assert {
        name: [(kind, each) for kind, each in value.items() if each is not None]
        for name, value in found.items()
    } == {
        "b": [("bool", True)],
        "i": [("int", 7)],
        "f": [("float", 2.5)],
        "t": [("text", "sunny")],
        "r": [("bytes", b"\x00\xff")],
    }
    assert {each.key: bytes(each.value) for each in rows[0].headers}["i"] == b"7"
    assert rows[1].attributes == {}
    (warm,) = frame.where(F.col("attributes")["f"]["float"] > 2).select("offset").collect()
    assert warm.offset == 1


def test_one_query_reads_several_topics_and_a_tree(
    spark: SparkSession, daemon: TopicDaemon
) -> None:
    leaf, one, two = (daemon.create() for _ in range(3))
    top = daemon.create(below={"leaf": leaf})
    counts = {one: 10, two: 20, top: 30, leaf: 40}
    for topic, count in counts.items():
        daemon.fill(topic, count)
    frame = daemon.read(spark, f"{one}, {two},{top}/*", maxRecordsPerPartition="15")
    found = {row.topic: row["count"] for row in frame.groupBy("topic").count().collect()}
    assert found == counts
    assert frame.rdd.getNumPartitions() == 1 + 2 + 2 + 3


@pytest.mark.parametrize("pushes", ["true", "false"])
def test_queries_of_one_table_do_not_share_their_filters(
    spark: SparkSession, daemon: TopicDaemon, topic: str, pushes: str
) -> None:
    daemon.fill(topic, 20)
    before = spark.conf.get(FILTERS) or "false"
    spark.conf.set(FILTERS, pushes)
    try:
        frame = daemon.read(spark, topic)
        assert frame.where("offset = 7").count() == 1
        assert frame.count() == 20
        assert frame.where(f"offset > 18 or topic <> '{topic}'").count() == 2
    finally:
        spark.conf.set(FILTERS, before)


def test_a_batch_begins_and_ends_where_it_is_told(
    spark: SparkSession, daemon: TopicDaemon, topic: str
) -> None:
    daemon.fill(topic, 20)
    begin, end = json.dumps({topic: 5}), json.dumps({topic: 9})
    assert numbers(daemon.read(spark, topic, startingOffsets=begin, endingOffsets=end)) == [
        5, 6, 7, 8,
    ]  # fmt: skip
    assert numbers(daemon.read(spark, topic, startingOffsets=json.dumps({topic: 19}))) == [19, 20]
    frame = daemon.read(spark, topic, minPartitions="6")
    assert frame.rdd.getNumPartitions() >= 6
    assert numbers(frame) == list(range(1, 21))
    empty = daemon.create()
    assert daemon.read(spark, empty).count() == 0


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"token": "wrong-token"}, "the daemon refuses the token"),
        ({"topics": "nobody-knows-it"}, "nobody-knows-it"),
        ({"topics": ""}, "say which topics to read"),
        ({"startingOfsets": "earliest"}, "did you mean startingOffsets"),
        ({"startingOffsets": "latest"}, "would read nothing"),
        ({"startingOffsets": '{"nobody": 3}'}, "none of the topics that the query reads"),
        ({"url": "http://127.0.0.1:1"}, "no daemon answers at"),
        ({"context": "work"}, "or a context, not both"),
    ],
)
def test_what_is_wrong_is_told_in_a_sentence(
    spark: SparkSession, daemon: TopicDaemon, topic: str, options: dict[str, str], expected: str
) -> None:
    with pytest.raises(PySparkException, match=expected) as caught:
        daemon.read(spark, **{"topics": topic, **options}).collect()
    assert "wrong-token" not in str(caught.value)
    assert daemon.place["token"] not in str(caught.value)


def test_other_columns_cannot_be_asked_for(
    spark: SparkSession, daemon: TopicDaemon, topic: str
) -> None:
    reading = spark.read.format("pulsarcast").options(**daemon.place, topics=topic)
    with pytest.raises(PySparkException, match="columns of its own"):
        reading.schema("offset bigint").load().collect()


def test_executors_get_all_that_they_need_to_read_topics(tmp_path: Path) -> None:
    with zipfile.ZipFile(pack_package(tmp_path / "pulsarcast.zip")) as archive:
        names = set(archive.namelist())
    assert {"pyspark_pulsarcast/__init__.py", "pulsarcast/pipeline/topics/reading.py"} <= names
    assert not any("__pycache__" in name for name in names)


# Stream.


class Sink:
    """A query into Parquet that is stopped and started, and what came of it."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._rows = folder / "rows"
        self._checkpoint = folder / "checkpoint"

    def start(self, frame: DataFrame, **trigger: Any) -> StreamingQuery:
        writer = frame.select("topic", "offset", "event_id", "payload").writeStream
        return (
            writer.format("parquet")
            .option("path", str(self._rows))
            .option("checkpointLocation", str(self._checkpoint))
            .trigger(**(trigger or {"processingTime": "0 seconds"}))
            .start()
        )

    def finish(self, frame: DataFrame) -> StreamingQuery:
        """Read what is there, and end."""
        query = self.start(frame, availableNow=True)
        assert query.awaitTermination(60)
        return query

    def rows(self) -> DataFrame:
        schema = "topic string, offset bigint, event_id string, payload binary"
        return self._spark.read.schema(schema).parquet(str(self._rows))

    def batches(self) -> int:
        return len(list((self._checkpoint / "offsets").glob("[0-9]*")))


def rows_in(query: StreamingQuery) -> int:
    """How many rows a query has had since it was started."""
    return sum(each.numInputRows for each in query.recentProgress)


@pytest.fixture
def sink(spark: SparkSession, tmp_path: Path) -> Iterator[Sink]:
    yield Sink(spark, tmp_path)
    for query in spark.streams.active:
        query.stop()


def test_a_query_for_what_is_there_reads_it_in_batches_and_goes_on_later(
    spark: SparkSession, daemon: TopicDaemon, topic: str, sink: Sink
) -> None:
    daemon.fill(topic, 25)
    frame = daemon.read_stream(spark, topic, startingOffsets="earliest", maxOffsetsPerTrigger="10")
    query = sink.finish(frame)
    progress = [each for each in query.recentProgress if each.numInputRows]
    assert [each.numInputRows for each in progress] == [10, 10, 5]
    places = [json.loads(each.sources[0].endOffset)["topics"][topic] for each in progress]
    assert [place["next"] for place in places] == [11, 21, 26]
    latest = json.loads(progress[0].sources[0].latestOffset)
    assert latest["topics"][topic]["next"] == 26
    daemon.fill(topic, 5, first=26)
    sink.finish(frame)
    assert numbers(sink.rows()) == list(range(1, 31))


def test_a_stream_without_news_makes_no_batches(
    spark: SparkSession, daemon: TopicDaemon, topic: str, sink: Sink
) -> None:
    query = sink.start(daemon.read_stream(spark, topic))
    # Spark makes one of any start, to write down where that was.
    wait_for(lambda: query.status["message"] == "Waiting for data to arrive")
    assert sink.batches() == 1
    time.sleep(1)
    assert sink.batches() == 1
    daemon.fill(topic, 3)
    wait_for(lambda: rows_in(query) == 3)
    before = sink.batches()
    time.sleep(1)
    assert sink.batches() == before
    query.stop()
    assert numbers(sink.rows()) == [1, 2, 3]


def test_a_stream_says_what_retention_took(
    spark: SparkSession, daemon: TopicDaemon, topic: str, sink: Sink
) -> None:
    daemon.fill(topic, 5)
    frame = daemon.read_stream(spark, topic, startingOffsets="earliest")
    sink.finish(frame)
    daemon.fill(topic, 5, first=6)
    daemon.flush(topic)
    daemon.fill(topic, 5, first=11)
    query = sink.start(frame, availableNow=True)
    with pytest.raises(PySparkException, match="5 events are gone"):
        query.awaitTermination(60)
    assert daemon.place["token"] not in str(query.exception())
    sink.finish(daemon.read_stream(spark, topic, failOnDataLoss="false"))
    assert numbers(sink.rows()) == [*range(1, 6), *range(11, 16)]


@pytest.mark.slow
def test_every_event_comes_once_over_restarts_of_query_and_daemon(
    spark: SparkSession, daemon: TopicDaemon, sink: Sink
) -> None:
    one, first, second = (daemon.create() for _ in range(3))
    top = daemon.create(below={"first": first})
    published = {one: 0, first: 0, second: 0, top: 0}
    daemon.fill(second, 1500)
    published[second] = 1500
    may_publish, done = threading.Event(), threading.Event()
    may_publish.set()

    def publish() -> None:
        for topic in itertools.cycle((one, first, top)):
            may_publish.wait()
            if done.is_set():
                return
            daemon.fill(topic, 40, first=published[topic] + 1)
            published[topic] += 40
            time.sleep(0.1)

    frame = daemon.read_stream(
        spark, f"{one},{top}/*", startingOffsets="earliest", maxOffsetsPerTrigger="400",
        maxRecordsPerPartition="150",
    )  # fmt: skip
    publisher = threading.Thread(target=publish)
    publisher.start()
    try:
        for number in range(4):
            query = sink.start(frame)
            if number == 1:
                daemon.link(top, {"first": first, "second": second})
            if number == 2:
                wait_for(lambda query=query: rows_in(query) > 0, 60)  # type: ignore[misc]
                may_publish.clear()
                time.sleep(0.5)  # What is on its way arrives.
                daemon.process.kill()
                time.sleep(5)
                daemon.process.start()
                may_publish.set()
            before = rows_in(query)
            wait_for(lambda query=query, before=before: rows_in(query) >= before + 200, 60)  # type: ignore[misc]
            assert query.isActive, query.exception()
            query.stop()  # In the middle of whatever it does.
    finally:
        done.set()
        may_publish.set()
        publisher.join(30)
    sink.finish(frame)
    rows = [(row.topic, row.offset) for row in sink.rows().select("topic", "offset").collect()]
    expected = {(topic, index) for topic in published for index in range(1, published[topic] + 1)}
    assert sum(published.values()) > 2000
    assert len(rows) == len(set(rows))
    assert set(rows) == expected
    assert sink.rows().select("event_id").distinct().count() == len(rows)
