"""The same filter text in a subscription, in Spark's source and over the archive."""

import json
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from pulsarcast import Publication
from pulsarcast.cli import main
from pulsarcast.client import Client, Unreachable
from pulsarcast.model.api import AttributeRuleView, SettingsView, rules_from
from pulsarcast.model.filters import parse
from pulsarcast.model.topic_types import AttributeRule
from pulsarcast.pipeline.archive import Archiving
from pulsarcast.pipeline.archive.querying import query, schema_in, topic_in
from tests.pipeline.topic_daemon import TopicDaemon, topic_daemon

WHERE = "price < 10 and (symbol matches '^I' or price is missing or number > 95)"
SCHEMA = (
    AttributeRule("price", "float", 0, 100),
    AttributeRule("number", "int"),
    AttributeRule("symbol", "str"),
)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TopicDaemon]:
    with topic_daemon(tmp_path_factory.mktemp("daemon")) as made:
        yield made


@pytest.fixture(scope="module")
def topic(daemon: TopicDaemon) -> str:
    rules = [AttributeRuleView("price", "float", 0, 100), AttributeRuleView("number", "int")]
    rules.append(AttributeRuleView("symbol", "str"))
    made = daemon.client.create_topic("ticks", SettingsView(attributes=rules)).id
    attributes: list[dict[str, Any]] = [
        {"price": number % 23, "number": number, "symbol": ("IBM", "SBUX", "INTC")[number % 3]}
        for number in range(100)
    ]
    attributes[7].pop("symbol")
    events = [Publication(payload=str(at), attributes=each) for at, each in enumerate(attributes)]
    daemon.client.publish_many(made, events, ack="accepted")
    daemon.client.follow(made, start="beginning")
    return made


def expected(daemon: TopicDaemon, topic: str) -> list[int]:
    """What the node says."""
    found = [event.index for event in daemon.client.history(topic, where=WHERE)]
    wanted = parse(WHERE, SCHEMA)
    everything = daemon.client.history(topic)
    assert found == [event.index for event in everything if wanted.matches(event.attributes)]
    assert 0 < len(found) < 100
    return found


def test_the_source_reads_what_matches(
    spark: SparkSession, daemon: TopicDaemon, topic: str
) -> None:
    frame = daemon.read(spark, topic, where=WHERE)
    rows = frame.select("offset").orderBy("offset").collect()
    assert [row.offset for row in rows] == expected(daemon, topic)
    with pytest.raises(Exception, match="where, for topic ticks: line 1, column 1"):
        daemon.read(spark, topic, where="prise < 5").count()


def test_the_archive_is_queried_by_the_same_text(
    spark: SparkSession, daemon: TopicDaemon, topic: str, tmp_path: Path
) -> None:
    Archiving(spark, topic, tmp_path, daemon.place).available_now()
    rows = query(spark, tmp_path, topic, parse(WHERE, SCHEMA)).collect()
    assert [row.offset for row in rows] == expected(daemon, topic)
    assert topic_in(tmp_path, "ticks") == topic_in(tmp_path, topic) == topic
    assert topic_in(tmp_path, "tocks") is None


def test_an_archive_knows_its_topics_schema_as_it_grows(
    spark: SparkSession, daemon: TopicDaemon, tmp_path: Path
) -> None:
    client = daemon.client
    rules = [AttributeRuleView("price", "float", 0, 100)]
    grows = client.create_topic("grows", SettingsView(attributes=rules)).id
    client.follow(grows, start="beginning")
    client.publish(grows, "cheap", attributes={"price": 1.0})
    Archiving(spark, grows, tmp_path, daemon.place).available_now()
    assert schema_in(tmp_path, grows) == rules_from(rules)
    assert schema_in(tmp_path, "another") is None

    rules.append(AttributeRuleView("symbol", "str"))
    client.update_topic(grows, SettingsView(attributes=rules))
    client.publish(grows, "IBM's", attributes={"symbol": "IBM"})
    Archiving(spark, grows, tmp_path, daemon.place).available_now()
    assert schema_in(tmp_path, grows) == rules_from(rules)


def test_an_archive_goes_on_where_nobody_tells_it_the_schema(
    spark: SparkSession,
    daemon: TopicDaemon,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = iter([Client.topic])

    def topic_once(client: Client, name: str) -> Any:
        call = next(calls, None)
        if call is None:
            raise Unreachable("it is away")
        return call(client, name)

    monkeypatch.setattr(Client, "topic", topic_once)
    archived = Archiving(spark, topic, tmp_path, daemon.place).available_now()
    assert archived.events == 100
    assert schema_in(tmp_path, topic) is None


def test_the_command_needs_no_daemon_where_the_archive_knows_the_schema(
    spark: SparkSession,
    daemon: TopicDaemon,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    archive = tmp_path / "archive"
    Archiving(spark, topic, archive, daemon.place).available_now()
    monkeypatch.setattr("pulsarcast.pipeline.session.session", lambda *_, **__: nullcontext(spark))
    words = ["pipeline", "query", "ticks", WHERE, "--archive", str(archive), "--json"]
    ran = CliRunner().invoke(main, [*words, "--limit", "100", "--home", str(tmp_path / "nobody")])
    assert ran.exit_code == 0, ran.output
    offsets = [json.loads(line)["offset"] for line in ran.output.splitlines()]
    assert offsets == expected(daemon, topic)


def test_the_command_says_what_is_wrong_before_spark_starts(
    daemon: TopicDaemon, topic: str, tmp_path: Path
) -> None:
    from pulsarcast.pipeline.archive import ArchiveFolder

    ArchiveFolder(tmp_path / "archive").create()
    words = ["pipeline", "query", topic, "prise < 5", "--archive", str(tmp_path / "archive")]
    ran = CliRunner().invoke(main, [*words, "--attribute", "price=float:0:100"])
    assert ran.exit_code != 0
    assert "did you mean price?" in ran.output
