"""Topics on a real cluster: read, archived and verified by executors that get us with the job."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from tests.pipeline.cluster import Cluster, running_cluster
from tests.pipeline.topic_daemon import TopicDaemon, topic_daemon

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
EVENTS = 20_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TopicDaemon]:
    with topic_daemon(tmp_path_factory.mktemp("daemon")) as daemon:
        yield daemon


def test_an_archive_made_there_has_each_event_once_though_an_executor_is_killed(
    cluster: Cluster, daemon: TopicDaemon, tmp_path: Path
) -> None:
    topic = daemon.create()
    ids = daemon.fill(topic, EVENTS)
    archive = tmp_path / "archive"
    words = ["-m", "pulsarcast", "pipeline", "archive", "--out", str(archive), "--json"]
    words += ["--master", cluster.master]
    place = ["--url", daemon.place["url"], "--token", daemon.place["token"]]
    with cluster.start(*words, topic, *place, "--batch-events", "4000") as driver:
        while not list(archive.glob("events/*/*.parquet")):
            assert driver.poll() is None, driver.communicate()
            time.sleep(0.05)
        os.kill(cluster.executors()[0], signal.SIGKILL)
        output, errors = driver.communicate(timeout=900)
    assert driver.returncode == 0, errors
    assert json.loads(output)["archived"]["events"] == EVENTS
    assert daemon.place["token"] not in output + errors
    question = f"SELECT event_id FROM '{archive}/events/*/*.parquet' ORDER BY \"offset\""
    rows = duckdb.execute(question).fetchall()
    assert [event for (event,) in rows] == ids

    verified = json.loads(cluster.run(*words, "--verify"))["verified"]
    assert (verified["events"], verified["problems"], verified["remarks"]) == (EVENTS, 0, [])
