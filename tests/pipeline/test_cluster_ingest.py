"""The jobs of ingest on a real cluster: the same tables, also when an executor is killed."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pulsarcast.simulation.options import load
from pulsarcast.simulation.scenario import run_scenario
from tests.pipeline.cluster import Cluster, running_cluster
from tests.pipeline.trace_files import read_by_duckdb, read_plainly, said

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
JOB = ("-m", "tests.pipeline.cluster_ingest")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The traces of three runs."""
    folder = tmp_path_factory.mktemp("traces")
    for seed in (1, 2, 3):
        options = msgspec.structs.replace(load("random"), seed=seed)
        run_scenario(msgspec.structs.replace(options, trace=str(folder / f"random-{seed}")))
    return folder


def test_executors_have_our_package_from_the_job_only(cluster: Cluster, tmp_path: Path) -> None:
    alone = subprocess.run(
        [cluster.python, "-c", "import pulsarcast"], capture_output=True, text=True, check=False
    )
    assert "No module named 'pulsarcast'" in alone.stderr
    places = json.loads(cluster.run(*JOB, cluster.master, "where", "", "", str(tmp_path)))
    assert {place["interpreter"] for place in places} == {str(cluster.python)}
    assert all("pulsarcast.zip" in place["package"] for place in places)
    # Each executor has a copy of its own.
    assert len(places) == len(cluster.workers)


def test_a_cluster_makes_the_same_tables(cluster: Cluster, traces: Path, tmp_path: Path) -> None:
    tables = tmp_path / "tables"
    output = cluster.run(*JOB, cluster.master, "random-2", str(traces), str(tables), str(tmp_path))
    landed, rebuilt, compacted = json.loads(output)
    assert landed["batches"] > 1
    assert rebuilt["lines"] == read_plainly(traces / "random-2").total()
    assert compacted["files_after"] < compacted["files_before"]
    assert said(read_by_duckdb(tables)) == read_plainly(traces)


def test_an_executor_killed_with_running_tasks_changes_nothing(
    cluster: Cluster, traces: Path, tmp_path: Path
) -> None:
    tables, events = tmp_path / "tables", tmp_path / "events"
    events.mkdir()
    arguments = (cluster.master, "held", str(traces), str(tables), str(events))
    with cluster.start(*JOB, *arguments) as driver:
        while len(list(events.glob("running-*"))) < len(cluster.workers):
            assert driver.poll() is None, driver.communicate()
            time.sleep(0.05)
        victim, *_ = cluster.executors()
        os.kill(victim, signal.SIGKILL)
        (events / "go").touch()
        output, errors = driver.communicate(timeout=900)
    assert driver.returncode == 0, errors
    expected = read_plainly(traces)
    result = json.loads(output)
    assert (result["lines"], result["duplicates"]) == (expected.total(), 0)
    assert said(read_by_duckdb(tables)) == expected

    ends = [event for event in read_events(events) if event["Event"] == "SparkListenerTaskEnd"]
    lost = {
        event["Stage ID"]
        for event in ends
        if event["Task End Reason"]["Reason"] == "ExecutorLostFailure"
    }
    again = {
        event["Stage ID"]
        for event in ends
        if event["Task End Reason"]["Reason"] == "Success"
        and (event["Task Info"]["Attempt"] > 0 or event["Stage Attempt ID"] > 0)
    }
    assert lost
    assert lost <= again


def read_events(folder: Path) -> Iterator[dict[str, Any]]:
    (log,) = (path for path in folder.iterdir() if path.name.startswith("app-"))
    for line in log.read_text().splitlines():
        yield json.loads(line)
