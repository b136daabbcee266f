"""Jobs that publish, killed in the middle or run twice at a time: each key is one event."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pulsarcast.client import Client
from tests.pipeline.sink_jobs import (
    Job,
    cluster_of_two_hosts,
    expected,
    kill,
    published,
    speculated,
    wait_for,
    write,
)
from tests.support.daemons import DaemonProcess

pytestmark = pytest.mark.slow
ROWS = 4000


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[DaemonProcess]:
    daemon = DaemonProcess(tmp_path / "home")
    daemon.start()
    try:
        yield daemon
    finally:
        daemon.close()


@pytest.fixture
def client(daemon: DaemonProcess) -> Iterator[Client]:
    with Client(daemon.url, daemon.token) as client:
        yield client


@pytest.fixture
def job(daemon: DaemonProcess, client: Client, tmp_path: Path) -> Job:
    events = tmp_path / "events"
    events.mkdir()
    topic = client.create_topic("jobs").id
    return Job(
        url=daemon.url, token=daemon.token, topic=topic, rows=ROWS, partitions=3, seed=1,
        events=str(events), log=str(tmp_path / "job.log"),
    )  # fmt: skip


def test_a_job_that_was_killed_goes_on(spark: SparkSession, client: Client, job: Job) -> None:
    talkative = dataclasses.replace(job, log_level="INFO")
    process = talkative.start()
    try:
        wait_for(client, job, ROWS // 4, process)
    finally:
        kill(process)
    assert client.log(job.topic).newest < ROWS
    write(spark, dataclasses.replace(job, partitions=5, seed=2))
    assert published(client, job.topic) == expected(ROWS)
    (events,) = Path(job.events).iterdir()
    shown = Path(job.log).read_text() + events.read_text()
    assert "SparkListenerSQLExecutionStart" in shown
    assert job.token not in shown


def test_a_stream_that_was_killed_goes_on(client: Client, job: Job, tmp_path: Path) -> None:
    stream = dataclasses.replace(job, partitions=6, stream=str(tmp_path / "stream"))
    for share in (8, 2):
        process = stream.start()
        try:
            # Two files of six are a batch: the first kill is within one, the second in another.
            wait_for(client, job, ROWS // share, process)
        finally:
            kill(process)
        assert client.log(job.topic).newest < ROWS
    assert stream.start().wait(120) == 0
    assert len(list((tmp_path / "stream" / "checkpoint" / "commits").glob("[0-9]*"))) == 3
    assert published(client, job.topic) == expected(ROWS)


def test_a_second_attempt_beside_the_first_adds_nothing(
    client: Client, job: Job, tmp_path: Path
) -> None:
    folder = tmp_path / "cluster"
    folder.mkdir()
    with cluster_of_two_hosts(folder) as cluster:
        slow = dataclasses.replace(
            job, master=cluster.master, rows=2 * ROWS, partitions=2, slow_s=2.0
        )
        assert slow.start(cluster.environment).wait(300) == 0, Path(job.log).read_text()
    started, killed = speculated(Path(job.events))
    # On a busy machine Spark may take both tasks for slow.
    assert started == killed >= 1
    assert published(client, job.topic) == expected(2 * ROWS)
