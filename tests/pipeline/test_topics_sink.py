"""Spark's sink: what it refuses before anything runs, and what it makes of rows."""

import pickle
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from pulsarcast.client import Client
from pulsarcast.model import api
from pulsarcast.model import publications as model
from pulsarcast.model.errors import LocalError
from pulsarcast.pipeline.topics.publications import BODY_BYTES, Nonces, Publication, publications
from pulsarcast.pipeline.topics.schema import ATTRIBUTE, arrow_schema, spark_schema
from pulsarcast.pipeline.topics.sink import Publisher, make_stream_writer, make_writer
from pulsarcast.pipeline.topics.writable import Columns, find_columns

pytestmark = pytest.mark.usefixtures("spark")  # Who else can read a schema?

OPTIONS = {"url": "http://127.0.0.1:1", "token": "never-shown", "topic": "weather"}
PLAIN = "idempotencyKey string, payload string"


def schema_of(text: str) -> StructType:
    found = StructType.fromDDL(text)
    assert isinstance(found, StructType)
    return found


# Options.


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"topik": "x"}, "there is no option topik: did you mean topic?"),
        ({"SinkNames": "x"}, "did you mean sinkName?"),
        ({"topics": "x"}, "did you mean topic?"),
        ({"path": "x"}, "has no path"),
        ({"checkpointLocation": "x"}, "there is no option checkpoint"),
        ({"sinkName": " "}, "sinkName is empty"),
        ({"ack": "soon"}, "ack is accepted or replicated, not 'soon'"),
        ({"tokenFile": "x"}, "give a token or a tokenFile, not both"),
        ({"context": "home"}, "URL of a daemon or a context, not both"),
        ({"idempotencyKey": "id"}, "there is no column id; there are idempotencyKey, payload"),
        ({"topic": ""}, "say which topic to write to"),
    ],
)
def test_options_that_are_refused(options: dict[str, str], said: str) -> None:
    with pytest.raises(LocalError, match=said):
        make_writer({**OPTIONS, **options}, schema_of(PLAIN), False)


def test_a_topic_is_not_overwritten() -> None:
    for make in (make_writer, make_stream_writer):
        with pytest.raises(LocalError, match=r"cannot be overwritten.*append"):
            make(OPTIONS, schema_of(PLAIN), True)


def test_a_token_is_never_shown(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("never-shown\n")
    by_file = {"url": OPTIONS["url"], "topic": "weather", "TOKENFILE": str(file)}
    for options in (OPTIONS, by_file):
        writer = make_stream_writer({**options, "checkpointLocation": "x"}, schema_of(PLAIN), False)
        there = pickle.loads(pickle.dumps(writer))
        assert there._task.token == "never-shown"
        for each in (writer, there):
            assert "weather" in repr(each)
            assert "never-shown" not in f"{each!r} {vars(each)} {vars(each)['_task']}"


# Columns.


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ("payload string", "a column idempotencyKey is missing.*twice at a time.*add a column"),
        ("idempotencyKey string", "payload .or value. is missing"),
        (f"{PLAIN}, value string", "payload and value are both the payload"),
        (f"{PLAIN}, NAME string, name string", "NAME and name are both the name"),
        (f"{PLAIN}, IdempotencyKEY string", "there are 2 columns idempotencyKey"),
        (f"{PLAIN}, mood string, age int", "columns mood, age cannot be published: choose"),
        (f"{PLAIN}, offset bigint", "column offset.*node that publishes decides.*select"),
        ("idempotencyKey double, payload string", "idempotencyKey is double.*whole number: cast"),
        ("idempotencyKey string, payload int", "payload is int, and has to be binary or string"),
        (f"{PLAIN}, name int", "name is int, and has to be string"),
        (f"{PLAIN}, created string", "created is string, and has to be timestamp"),
        (f"{PLAIN}, created timestamp_ntz", "time zone"),
        (f"{PLAIN}, parents string", "parents is string, and has to be array<string>"),
        (f"{PLAIN}, topic int", "topic is int, and has to be string"),
        (f"{PLAIN}, attributes map<string,int>", "attributes is map<string,int>, and has to be"),
        (f"{PLAIN}, attributes map<string,struct<int:string>>", "attributes is map"),
        (f"{PLAIN}, attributes map<string,struct<other:string>>", "attributes is map"),
    ],
)
def test_tables_that_are_refused(columns: str, said: str) -> None:
    with pytest.raises(LocalError, match=said):
        make_writer(OPTIONS, schema_of(columns), False)


def test_what_the_source_gives_is_not_taken_as_it_is() -> None:
    with pytest.raises(LocalError) as refusal:
        find_columns(spark_schema(), sink="a", topic=None, key_column="event_id")
    given = "topic_name, offset, version, publisher, author, sequence, received"
    assert f"columns {given} cannot be published ({given}: the node" in str(refusal.value)


def test_a_column_may_be_the_key_and_a_part_of_the_event() -> None:
    found = columns_of("name string, value binary", topic="t", key_column="NAME")
    assert (found.key, found.places) == (0, {"name": 0, "payload": 1})


def columns_of(text: str, *, topic: str | None = None, key_column: str | None = None) -> Columns:
    return find_columns(schema_of(text), sink="a", topic=topic, key_column=key_column)


# Rows.


def events_of(columns: str, data: dict[str, Any], topic: str | None = "t") -> list[Publication]:
    return list(publications(columns_of(columns, topic=topic), pa.record_batch(data)))


def test_a_name_and_a_key_cannot_be_mistaken_for_others() -> None:
    pairs = [("a", b"bc"), ("ab", b"c"), ("", b"abc"), ("abc", b""), ("a", b"b"), ("b", b"a")]
    assert len({Nonces(sink).of(key) for sink, key in pairs}) == len(pairs)
    # What was published yesterday must be known tomorrow.
    assert Nonces("spark").of(b"1") == (
        "352fe90daa3798d51daa62bb9f774a1dceb324e53b5f76e800a8ba0569feb10e"
    )


@pytest.mark.parametrize(
    ("kind", "keys", "texts"),
    [
        (pa.string(), ["1", ""], [b"1", b""]),
        (pa.large_string(), ["1"], [b"1"]),
        (pa.int64(), [1, -(2**63)], [b"1", b"-9223372036854775808"]),
        (pa.int8(), [-1], [b"-1"]),
        (pa.binary(), [b"\x00\xff"], [b"00ff"]),
    ],
)
def test_keys_are_texts(kind: pa.DataType, keys: list[Any], texts: list[bytes]) -> None:
    column = pa.array(keys, kind)
    found = events_of(PLAIN, {"idempotencyKey": column, "payload": ["x"] * len(keys)})
    assert [each.key for each in found] == texts
    assert [each.event.idempotency_key for each in found] == [
        Nonces("a").of(text) for text in texts
    ]


def test_payloads_stay_the_bytes_that_they_are() -> None:
    cases = [b"", "grüße".encode(), b"\xff\x00", b"\x01" * 600_000, b"a" * 1_000_000]
    # Spark keeps bytes in a string that are no UTF-8.
    text = pa.array(cases, pa.binary()).view(pa.string())
    for column in (pa.array(cases, pa.binary()), text):
        found = events_of(PLAIN, {"idempotencyKey": pa.array(range(5)), "payload": column})
        assert [each.event.data for each in found] == cases
        # Escaped it would be 3.6 MB, more than a daemon takes.
        assert found[3].size < BODY_BYTES


def test_attributes_keep_their_types() -> None:
    columns = f"{PLAIN}, attributes map<string,{ATTRIBUTE.simpleString()}>"
    values: dict[str, Any] = {"bool": False, "int": 0, "float": 1.0, "text": "", "bytes": b"\xff"}
    given = [[(name, {name: value}) for name, value in values.items()], None, []]
    data = {
        "idempotencyKey": ["1", "2", "3"],
        "payload": ["x"] * 3,
        "attributes": pa.array(given, arrow_schema().field("attributes").type),
    }
    typed, *others = (each.event.attributes for each in events_of(columns, data))
    assert typed == values
    assert [type(value) for value in typed.values()][:4] == [bool, int, float, str]
    assert others == [{}, {}]


def test_other_columns_are_taken_as_they_are() -> None:
    columns = (
        f"{PLAIN}, topic string, name string, created timestamp, parents array<string>, "
        "attributes map<string,string>"
    )
    data = {
        "idempotencyKey": ["1", "2"],
        "payload": ["x", "y"],
        "topic": ["news", None],
        "name": ["n", None],
        "created": pa.array([1_234_567_890_123_456, None], pa.timestamp("us", "Europe/Paris")),
        "parents": pa.array([["p"], None], pa.list_(pa.string())),
        "attributes": pa.array([[("a", "b")], None], pa.map_(pa.string(), pa.string())),
    }
    one, other = events_of(columns, data)
    assert (one.topic, other.topic) == ("news", "t")
    assert one.event == model.Publication(
        payload=b"x", name="n", attributes={"a": "b"}, parents=["p"],
        idempotency_key=Nonces("a").of(b"1"), created_us=1_234_567_890_123_456,
    )  # fmt: skip
    assert other.event == model.Publication(
        payload=b"y", parents=[], idempotency_key=Nonces("a").of(b"2")
    )


@pytest.mark.parametrize(
    ("more", "column", "said"),
    [
        ("", {"idempotencyKey": pa.array([None], pa.string())}, "no idempotencyKey.*null"),
        ("", {"payload": pa.array([None], pa.string())}, "key 'k1': its payload is null"),
        (", topic string", {"topic": pa.array([None], pa.string())}, "key 'k1': its topic is null"),
        (
            ", parents array<string>",
            {"parents": pa.array([[None]], pa.list_(pa.string()))},
            "key 'k1': one of its parents is null",
        ),
        (
            ", name string",
            {"name": pa.array([b"\xff"], pa.binary()).view(pa.string())},
            "column name has a text that is not UTF-8",
        ),
        *(
            (
                f", attributes map<string,{ATTRIBUTE.simpleString()}>",
                {"attributes": pa.array([[("a", value)]], arrow_schema().field("attributes").type)},
                f"key 'k1': its attribute 'a' {why}",
            )
            for value, why in (
                (None, "is null"),
                ({}, "is null"),
                ({"int": 1, "text": "1"}, "has 2 values"),
                ({"float": float("nan")}, "is nan"),
                ({"float": float("-inf")}, "is -inf"),
            )
        ),
    ],
)
def test_rows_that_are_refused(more: str, column: dict[str, Any], said: str) -> None:
    data = {"idempotencyKey": ["k1"], "payload": ["x"], **column}
    with pytest.raises(LocalError, match=said):
        events_of(PLAIN + more, data, topic=None if "topic" in column else "t")


# Publishing, through a daemon that has moods.


class Moody:
    """Answers calls as it was told to, and takes events."""

    def __init__(self, *moods: object) -> None:
        self.moods = list(moods)
        self.taken: list[str] = []
        self.calls: list[int] = []

    def client(self) -> Client:
        return Client("http://moody", transport=httpx.MockTransport(self._answer))

    def _answer(self, request: httpx.Request) -> httpx.Response:
        given = msgspec.json.decode(request.content, type=api.NewEvents)
        self.calls.append(len(given.events))
        mood = self.moods.pop(0) if self.moods else None
        if isinstance(mood, Exception):
            raise mood
        if isinstance(mood, tuple):
            status, code = mood
            return httpx.Response(status, json={"error": f"it is {code}", "code": code})
        if any(event.name == "bad" for event in given.events):
            return httpx.Response(422, json={"error": "bad name", "code": "invalid"})
        results: list[dict[str, Any]] = []
        for event in given.events:
            if callable(mood) and (code := mood(event)):
                results.append({"error": f"it is {code}", "code": code})
            else:
                self.taken.append(str(event.payload))
                results.append({"id": event.payload, "replicas": 1})
        return httpx.Response(200, json={"events": results})


def rows(*texts: str) -> list[Publication]:
    return [
        Publication(
            "t",
            b"key of " + text.encode(),
            model.Publication(payload=text, name=text, idempotency_key=text),
            9,
        )
        for text in texts
    ]


def publish(moody: Moody, *texts: str, patience_s: float = 10.0) -> None:
    with moody.client() as client:
        publisher = Publisher(client, "replicated", patience_s)
        publisher.publish("t", rows("first"))
        publisher.publish("t", rows(*texts))


def test_what_passes_is_waited_for() -> None:
    moody = Moody(
        httpx.ConnectError("nobody is there yet"),
        (503, "closed"),
        None,
        httpx.ReadError("it was killed"),
        httpx.ConnectError("nobody is there"),
        (404, "topic_not_found"),
        lambda event: "busy" if event.payload in "bc" else None,
        lambda event: "closed" if event.payload == "c" else None,
    )
    publish(moody, *"abcd")
    assert moody.taken == ["first", *"adbc"]
    assert moody.calls == [1, 1, 1, 4, 4, 4, 4, 2, 1]


@pytest.mark.parametrize(
    ("mood", "said"),
    [
        ((401, "invalid_token"), "'key of a' was not published to t: it is invalid_token"),
        ((403, "not_allowed"), "it is not_allowed"),
        ((503, "halted"), "it is halted"),
        (
            (507, "disk_full"),
            "it is disk_full. What was published before stays published.*same sinkName",
        ),
        (lambda event: "rights" if event.payload == "b" else None, "'key of b' was not"),
    ],
)
def test_what_does_not_pass_fails_at_once(mood: object, said: str) -> None:
    with pytest.raises(LocalError, match=said):
        publish(Moody(None, mood), *"abc")


def test_a_topic_that_was_never_there_is_not_waited_for() -> None:
    with pytest.raises(LocalError, match="'key of first' was not published to t: it is topic"):
        publish(Moody((404, "topic_not_found")), "a")


def test_patience_ends() -> None:
    moody = Moody(None, *[(503, "busy")] * 100)
    with pytest.raises(LocalError, match=r"'key of a'.*gave up after 0 s: it is busy"):
        publish(moody, "a", patience_s=0.3)


def test_a_row_for_which_all_are_refused_is_found() -> None:
    moody = Moody()
    with pytest.raises(LocalError, match="'key of bad' was not published to t: bad name"):
        publish(moody, *"abcde", "bad", *"fgh")
    assert moody.taken == ["first", *"abcde"]


def test_a_daemon_that_takes_less_gets_less() -> None:
    moody = Moody(None, (413, "too_large"), (413, "too_large"))
    publish(moody, *"abcdefgh")
    assert moody.taken == ["first", *"abcdefgh"]
    assert moody.calls == [1, 8, 4, 2, 2, 4]
