"""Spark's sink against a real daemon: every row once, whatever is run again."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from pulsarcast.client import Client
from pulsarcast.model import api
from pulsarcast.pipeline.topics.sink import make_writer
from tests.support.daemons import DaemonProcess

NUMBERS = count()


class Place:
    """A daemon, and one topic of its."""

    def __init__(self, daemon: DaemonProcess, client: Client) -> None:
        self.daemon = daemon
        self.client = client
        self.topic = client.create_topic(f"topic {next(NUMBERS)}").id

    @property
    def options(self) -> dict[str, str]:
        return {"url": self.daemon.url, "token": self.daemon.token, "topic": self.topic}

    def write(self, table: DataFrame, **options: str) -> None:
        chosen = {**self.options, **options}
        table.write.format("pulsarcast").options(**chosen).mode("append").save()

    def events(self, topic: str | None = None) -> list[api.EventView]:
        return list(self.client.history(topic or self.topic))

    def said(self, topic: str | None = None) -> list[str]:
        return [event.text() for event in self.events(topic)]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    daemon = DaemonProcess(tmp_path_factory.mktemp("sink") / "home")
    daemon.start()
    try:
        yield daemon
    finally:
        daemon.close()


@pytest.fixture
def place(daemon: DaemonProcess) -> Iterator[Place]:
    with Client(daemon.url, daemon.token) as client:
        yield Place(daemon, client)


def numbered(spark: SparkSession, rows: int) -> DataFrame:
    return spark.range(rows).selectExpr("id AS idempotencyKey", "string(id) AS value")


# Rows into events.


def test_rows_become_events_in_their_order(spark: SparkSession, place: Place) -> None:
    made = datetime(2001, 2, 3, 4, 5, 6, 789, tzinfo=UTC)
    linked = place.client.create_topic("linked", api.SettingsView(linking="CUSTOM"))
    first = place.client.publish(linked, "first")
    rows = [(n, f"{n}".encode(), f"name {n}", {"n": f"{n}"}, made, [first.id]) for n in range(1200)]
    columns = "idempotencyKey long, payload binary, name string, attributes map<string,string>, "
    table = spark.createDataFrame(rows, columns + "created timestamp, parents array<string>")
    place.write(table.coalesce(1), topic=linked.id)
    _, *events = place.events(linked.id)
    assert [event.text() for event in events] == [f"{n}" for n in range(1200)]
    last = events[-1]
    assert (last.name, last.attributes, last.parents) == ("name 1199", {"n": "1199"}, [first.id])
    assert last.created_us == round(made.timestamp() * 1e6)


def test_what_the_source_has_read_can_be_written_again(spark: SparkSession, place: Place) -> None:
    values: dict[str, Any] = {"b": True, "i": 1, "f": 1.0, "t": "", "o": b"\xff"}
    place.client.publish(place.topic, b"\xff", name="n", attributes=values)
    read = {name: value for name, value in place.options.items() if name != "topic"}
    table = spark.read.format("pulsarcast").options(**read, topics=place.topic).load()
    chosen = table.select("event_id", "payload", "name", "attributes", "created")
    other = place.client.create_topic("copy").id
    for _ in range(2):
        place.write(chosen, topic=other, idempotencyKey="event_id")
    (one,), (copy,) = place.events(), place.events(other)
    assert (copy.payload, copy.name, copy.created_us) == (b"\xff", "n", one.created_us)
    assert copy.attributes == one.attributes
    assert [type(value) for value in copy.attributes.values()] == [
        type(value) for value in one.attributes.values()
    ]


@pytest.mark.slow
def test_json_goes_from_columns_into_payloads_and_back(spark: SparkSession, place: Place) -> None:
    rows = spark.createDataFrame([("coast", 23.5), ("hill", 9.0)], "station string, degrees double")
    said = F.to_json(F.struct("degrees", "station"))
    table = rows.select(F.col("station").alias("idempotencyKey"), said.alias("payload"))
    place.write(table.coalesce(1))
    place.client.publish(place.topic, json={"station": "city", "degrees": 15})
    place.client.publish(place.topic, "no JSON")
    assert [event.json()["station"] for event in place.events()[:3]] == ["coast", "hill", "city"]
    assert place.events()[0].payload == b'{"degrees":23.5,"station":"coast"}'
    read = {name: value for name, value in place.options.items() if name != "topic"}
    events = spark.read.format("pulsarcast").options(**read, topics=place.topic).load()
    reading = F.from_json(F.col("payload").cast("string"), "station string, degrees double")
    found = events.orderBy("offset").select(reading.alias("reading")).select("reading.*").collect()
    assert [(row.station, row.degrees) for row in found] == [
        ("coast", 23.5), ("hill", 9.0), ("city", 15.0), (None, None),
    ]  # fmt: skip


def test_every_row_may_name_its_topic(spark: SparkSession, place: Place) -> None:
    other = place.client.create_topic("other").id
    named = F.when(F.col("idempotencyKey") % 2 == 0, F.lit(other))
    place.write(numbered(spark, 10).withColumn("topic", named).coalesce(1))
    assert place.said() == list("13579")
    assert place.said(other) == list("02468")


# Once.


def test_keys_make_events_and_not_what_they_say(spark: SparkSession, place: Place) -> None:
    keys = ["one", "two", "two", "three", "two"]
    table = spark.createDataFrame([(key, "the same") for key in keys], "k string, value string")
    for partitions in (1, 3):
        place.write(table.repartition(partitions), idempotencyKey="k")
        assert place.said() == ["the same"] * 3


def test_a_rerun_adds_what_is_missing(spark: SparkSession, place: Place) -> None:
    place.write(numbered(spark, 3000).where("idempotencyKey % 3 > 0").coalesce(1))
    before = {event.text(): event for event in place.events()}
    assert len(before) == 2000
    place.write(numbered(spark, 3000).repartition(3, F.rand(7)), sinkName="spark")
    after = place.events()
    assert Counter(event.text() for event in after) == Counter(str(n) for n in range(3000))
    assert after[:2000] == list(before.values())
    # Somebody else may use the same keys.
    place.write(numbered(spark, 2), sinkName="another")
    assert place.said()[3000:] in (["0", "1"], ["1", "0"])


def test_an_event_is_as_old_as_its_first_row(spark: SparkSession, place: Place) -> None:
    table = numbered(spark, 1)
    place.write(table)
    (first,) = place.events()
    for created in ("timestamp'2001-02-03 00:00:00'", "timestamp(null)"):
        place.write(table.withColumn("created", F.expr(created)))
        assert place.events() == [first]


def test_tasks_that_run_twice_at_a_time_publish_once(place: Place) -> None:
    schema = StructType.fromDDL("idempotencyKey long, payload string")
    assert isinstance(schema, StructType)
    numbers = pa.array(range(1500))
    batch = pa.record_batch({"idempotencyKey": numbers, "payload": numbers.cast(pa.string())})
    writer = make_writer(place.options, schema, False)
    with ThreadPoolExecutor() as pool:
        attempts = [pool.submit(writer.write, iter([batch])) for _ in range(3)]
    assert [attempt.result() for attempt in attempts] == [attempts[0].result()] * 3
    assert Counter(place.said()) == Counter(str(n) for n in range(1500))


@pytest.mark.slow
def test_a_daemon_may_be_killed_in_the_middle(spark: SparkSession, tmp_path: Path) -> None:
    daemon = DaemonProcess(tmp_path / "home")
    daemon.start()
    seen: list[int] = []

    def power_cut() -> None:
        with Client(daemon.url, daemon.token) as client:
            while (newest := client.log(own.topic).newest) < 500:
                time.sleep(0.02)
        daemon.kill()
        seen.append(newest)
        daemon.start()

    try:
        with Client(daemon.url, daemon.token) as client:
            own = Place(daemon, client)
            cut = threading.Thread(target=power_cut)
            cut.start()
            own.write(numbered(spark, 4000))
            cut.join()
            assert 500 <= seen[0] < 4000
            assert Counter(own.said()) == Counter(str(n) for n in range(4000))
    finally:
        daemon.close()


# Refused.


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        ("string(id) AS payload", {}, "a column idempotencyKey is missing"),
        ("id AS idempotencyKey, string(id) AS payload", {"topic": "nowhere"}, "nowhere"),
        (
            "id AS idempotencyKey, string(id) AS payload",
            {"token": "a-wrong-one"},
            "token is unknown",
        ),
        ("id AS idempotencyKey, string(id) AS payload", {"url": "http://127.0.0.1:1"}, "no daemon"),
    ],
)
def test_what_cannot_work_is_known_before_any_task_runs(
    spark: SparkSession, place: Place, columns: str, options: dict[str, str], said: str
) -> None:
    with pytest.raises(AnalysisException, match=said) as refusal:
        place.write(spark.range(1).selectExpr(*columns.split(", ")), **options)
    assert {**place.options, **options}["token"] not in str(refusal.value)


def test_a_topic_is_not_overwritten(spark: SparkSession, place: Place) -> None:
    writer = numbered(spark, 1).write.format("pulsarcast").options(**place.options)
    with pytest.raises(AnalysisException, match="a topic cannot be overwritten"):
        writer.mode("overwrite").save()
    assert place.events() == []


def test_a_row_that_is_refused_is_named(spark: SparkSession, place: Place) -> None:
    bad = F.when(F.col("idempotencyKey") == 700, F.repeat(F.lit("long"), 100))
    table = numbered(spark, 1000).withColumn("name", bad).coalesce(1)
    with pytest.raises(PythonException, match=r"'700' was not published.*1 to 256 bytes.*stays"):
        place.write(table)
    place.write(table.drop("name"))
    assert Counter(place.said()) == Counter(str(n) for n in range(1000))


def test_a_token_for_another_topic_opens_nothing(spark: SparkSession, place: Place) -> None:
    other = place.client.create_topic("mine").id
    token = place.client.create_token("spark", ["publish"], topics=[other]).token
    assert token is not None
    place.write(numbered(spark, 2), topic=other, token=token)
    assert len(place.events(other)) == 2
    with pytest.raises(AnalysisException, match="the token is for other topics") as early:
        place.write(numbered(spark, 2), token=token)
    named = numbered(spark, 2).withColumn("topic", F.lit(place.topic))
    with pytest.raises(PythonException, match="the token is for other topics") as late:
        place.write(named, topic=other, token=token)
    assert token not in f"{early.value} {late.value}"
    assert place.events() == []


# Streams.


def stream(spark: SparkSession, place: Place, files: Path, checkpoint: Path, **more: str) -> None:
    table = spark.readStream.schema("idempotencyKey long, value string").parquet(str(files))
    query = (
        table.writeStream.format("pulsarcast")
        .options(**{**place.options, "checkpointLocation": str(checkpoint), **more})
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def test_a_stream_goes_on_and_may_begin_again(
    spark: SparkSession, place: Place, tmp_path: Path
) -> None:
    files = tmp_path / "files"
    numbered(spark, 300).write.parquet(str(files))
    stream(spark, place, files, tmp_path / "one")
    numbered(spark, 400).where("idempotencyKey >= 200").write.mode("append").parquet(str(files))
    stream(spark, place, files, tmp_path / "one")
    assert Counter(place.said()) == Counter(str(n) for n in range(400))
    # A checkpoint that is lost makes everything come again.
    stream(spark, place, files, tmp_path / "two")
    assert len(place.events()) == 400
    text = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    assert place.daemon.token.encode() not in text
