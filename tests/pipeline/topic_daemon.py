"""A daemon with topics that tests fill, and the options by which Spark reaches it."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from pulsarcast import Publication
from pulsarcast.client import Client
from pulsarcast.model.api import BATCH_MAX, SettingsView, TopicView
from pulsarcast.pipeline.topics.options import ReadOptions, read_options
from pulsarcast.pipeline.topics.stream import TopicStreamReader
from tests.support.daemons import DaemonProcess

_numbers = itertools.count()


class TopicDaemon:
    """A daemon process, a client of its operator's, and short ways."""

    def __init__(self, home: Path, bootstrap: list[str]) -> None:
        home.mkdir(mode=0o700)
        (home / "config.toml").write_text(f"[node]\nbootstrap = {json.dumps(bootstrap)}\n")
        self.process = DaemonProcess(home)
        self.process.start()
        self.client = Client(self.process.url, self.process.token)
        self._readers: list[TopicStreamReader] = []

    @property
    def place(self) -> dict[str, str]:
        """The options that lead here."""
        return {"url": self.process.url, "token": self.process.token}

    def close(self) -> None:
        self.client.close()
        self.process.close()

    # Topics.

    def create(self, name: str = "", *, below: Mapping[str, str] | None = None) -> str:
        """A new topic of the daemon's own, with others below it."""
        chosen = name or f"topic-{next(_numbers)}"
        return self.client.create_topic(chosen, subtopics=below or {}).id

    def link(self, topic: str, below: Mapping[str, str]) -> TopicView:
        """A new version of a topic that has others below it."""
        return self.client.update_topic(topic, SettingsView(), subtopics=below)

    def fill(self, topic: str, count: int, *, first: int = 1) -> list[str]:
        """Publish so many events, whose payloads are numbers; their ids."""
        ids: list[str] = []
        for begin in range(first, first + count, BATCH_MAX):
            end = min(begin + BATCH_MAX, first + count)
            events = [
                Publication(payload=str(number), attributes={"n": number}, name=f"event {number}")
                for number in range(begin, end)
            ]
            found = self.client.publish_many(topic, events, ack="accepted")
            ids += [str(each.id) for each in found]
        return ids

    def flush(self, topic: str) -> None:
        """Let the node forget all events up to now, as retention would."""
        newest = self.client.log(topic).newest
        self.client.update_topic(topic, SettingsView(), flush=True)
        wait_for(lambda: self.client.log(topic).oldest > newest)

    # Reading.

    def options(self, topics: str, **more: str) -> ReadOptions:
        place = {} if "home" in more else self.place
        return read_options({**place, "topics": topics, **more})

    def reader(self, topics: str, **more: str) -> TopicStreamReader:
        """What Spark talks to, without Spark."""
        reader = TopicStreamReader(self.options(topics, **more))
        self._readers.append(reader)
        return reader

    def stop_readers(self) -> None:
        """As Spark does when queries end."""
        while self._readers:
            self._readers.pop().stop()

    def read(self, spark: SparkSession, topics: str, **more: str) -> DataFrame:
        given = {**self.place, "topics": topics, **more}
        return spark.read.format("pulsarcast").options(**given).load()

    def read_stream(self, spark: SparkSession, topics: str, **more: str) -> DataFrame:
        given = {**self.place, "topics": topics, **more}
        return spark.readStream.format("pulsarcast").options(**given).load()


@contextmanager
def topic_daemon(folder: Path, *, beside: TopicDaemon | None = None) -> Iterator[TopicDaemon]:
    """A daemon of its own, alone or in a network with another."""
    bootstrap = [] if beside is None else beside.client.status().addresses[:1]
    daemon = TopicDaemon(folder / "home", bootstrap)
    try:
        yield daemon
    finally:
        daemon.close()


def rows_of(
    reader: TopicStreamReader, start: dict[str, Any], end: dict[str, Any]
) -> list[dict[str, Any]]:
    """The rows of a batch, read as executors would."""
    return [
        row
        for partition in reader.partitions(start, end)
        for batch in reader.read(partition)
        for row in batch.to_pylist()
    ]


def wait_for(condition: Callable[[], bool], s_max: float = 30.0) -> None:
    deadline_s = time.monotonic() + s_max
    while not condition():
        assert time.monotonic() < deadline_s, "it did not come about"
        time.sleep(0.05)
