"""The jobs of the pipeline on a real cluster: the same tables, also when an executor is killed."""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pytest
from pyspark.sql import SparkSession

from pulsarcast.pipeline.quality import SORTED
from pulsarcast.pipeline.traces import land
from pulsarcast.simulation.options import load
from pulsarcast.simulation.scenario import run_scenario
from tests.pipeline.cluster import Cluster, running_cluster
from tests.pipeline.cluster_jobs import judged
from tests.pipeline.trace_files import read_by_duckdb, read_plainly, said, spoil

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
JOB = ("-m", "tests.pipeline.cluster_jobs")


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

    ends = task_ends(events)
    lost = lost_stages(ends)
    again = {
        event["Stage ID"]
        for event in ends
        if event["Task End Reason"]["Reason"] == "Success"
        and (event["Task Info"]["Attempt"] > 0 or event["Stage Attempt ID"] > 0)
    }
    assert lost
    assert lost <= again


def test_metrics_and_verdicts_are_those_of_one_machine_though_an_executor_is_killed(
    cluster: Cluster, traces: Path, spark: SparkSession, tmp_path: Path
) -> None:
    tables, spoilt, events = (tmp_path / name for name in ("tables", "spoilt", "events"))
    shutil.copytree(traces, spoilt)
    spoil(next((spoilt / "random-1").glob("*.ndjson.zst")))
    outs = {where: tmp_path / where for where in ("here", "there")}
    for folder in (events, *outs.values()):
        folder.mkdir()
    land(spark, [spoilt], tables)
    here = judged(spark, str(tables), outs["here"])
    killed = 0
    arguments = ("judged", str(tables), str(outs["there"]), str(events))
    with cluster.start(*JOB, cluster.master, *arguments) as driver:
        while driver.poll() is None:
            ends = task_ends(events)
            # Well under way, and again should the first have had nothing to do just then.
            if len(ends) > 40 * (killed + 1) and killed < KILLS_MAX and not lost_stages(ends):
                os.kill(cluster.executors()[0], signal.SIGKILL)
                killed += 1
            time.sleep(1.0)
        there, errors = driver.communicate()
    assert driver.returncode == 0, errors
    assert lost_stages(task_ends(events)), "tasks were lost with the executor"
    assert json.loads(there) == here
    assert json.loads(there), "there was something to find"
    for table in (*SORTED, "findings"):
        assert rows(outs["there"] / table) == rows(outs["here"] / table), table


KILLS_MAX = 4


def rows(folder: Path) -> list[str]:
    """What a table says; means may differ in the last place."""
    table = duckdb.read_parquet(f"{folder}/*.parquet")
    columns = ", ".join(
        f'round("{name}", 9)' if str(of) == "DOUBLE" else f'"{name}"'
        for name, of in zip(table.columns, table.types, strict=True)
    )
    return sorted(map(str, table.project(columns).fetchall()))


def task_ends(folder: Path) -> list[dict[str, Any]]:
    return [event for event in read_events(folder) if event["Event"] == "SparkListenerTaskEnd"]


def lost_stages(ends: list[dict[str, Any]]) -> set[int]:
    """Stages that lost a running task with its executor."""
    return {
        event["Stage ID"]
        for event in ends
        if event["Task End Reason"]["Reason"] == "ExecutorLostFailure"
    }


def read_events(folder: Path) -> Iterator[dict[str, Any]]:
    for log in folder.glob("app-*"):
        # The last one may be half written.
        for line in log.read_text().rpartition("\n")[0].splitlines():
            yield json.loads(line)
