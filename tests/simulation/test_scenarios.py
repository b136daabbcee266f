"""Whole scenarios, small: everything due arrives, faults or not, and a seed means one run."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import zstandard

from pulsarcast.model import trace
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.simulation.options import Options, load
from pulsarcast.simulation.results import Result
from pulsarcast.simulation.scenario import run_scenario

SMALL_LOAD = {"nodes": 20, "events": 150, "latency_ms": 20.0}


def run(scenario: str, **changes: object) -> Result:
    options: Options = msgspec.structs.replace(load(scenario), **changes)
    result = run_scenario(options)
    assert result.ok, result.to_text()
    assert result.settled
    return result


@pytest.mark.parametrize("order", ["none", "per-publisher", "total"])
def test_a_workload_reaches_every_subscriber(order: str) -> None:
    result = run("thesis", order=order, **SMALL_LOAD)
    assert result.due == result.delivered == result.expected_due
    assert result.acknowledged == result.events == 150
    assert result.fanout_max <= Parameters().fanout


def test_whoever_leaves_and_comes_back_gets_all_that_is_due() -> None:
    result = run("thesis", order="none", faults="churn", **SMALL_LOAD)
    assert result.ok, result.details
    assert result.due == result.delivered
    assert result.expected_due is not None
    assert result.due < result.expected_due, "somebody was away, or the plan does nothing"


@pytest.mark.parametrize("order", ["none", "per-publisher", "total"])
@pytest.mark.parametrize("faults", ["root-restarted", "restarts", "partition"])
def test_a_workload_survives_what_the_protocol_says_it_survives(faults: str, order: str) -> None:
    result = run("thesis", order=order, faults=faults, **SMALL_LOAD)
    assert result.due == result.delivered
    assert result.lost_acknowledged == result.duplicates == result.order_violations == 0
    assert result.faults


@pytest.mark.parametrize("order", ["none", "per-publisher"])
def test_a_workload_survives_the_loss_of_the_busiest_root(order: str) -> None:
    result = run("thesis", order=order, faults="root-lost", **SMALL_LOAD)
    assert result.due == result.delivered
    assert result.lost_acknowledged == 0


def test_a_tree_costs_about_one_message_a_delivery() -> None:
    result = run("tree", nodes=100, subscribers=40, events=20)
    assert result.due == result.delivered == 800
    assert result.messages_per_delivery < 1.3


def test_a_seed_gives_the_same_trace_in_every_process(tmp_path: Path) -> None:
    folders = []
    for hash_seed in ("1", "2"):
        folder = tmp_path / hash_seed
        words = ["simulate", "random", "--seed", "2", "--trace", str(folder)]
        subprocess.run(
            [sys.executable, "-c", "from pulsarcast.cli import main; main()", *words],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=False,
        )
        segments = sorted(folder.glob("*.ndjson.zst"))
        folders.append({path.name: path.read_bytes() for path in segments})
    assert folders[0]
    assert folders[0] == folders[1]


@pytest.mark.slow
def test_the_thesis_workload_is_delivered_to_the_last_event(
    shared_data: Callable[[str], Path],
) -> None:
    path = shared_data("reddit/workload-25k.ndjson.zst")
    result = run("thesis", workload=str(path))
    assert result.due == result.delivered == result.expected_due == 1_734_851


def test_a_trace_of_level_rpc_has_every_message_and_events_name_their_topic(tmp_path: Path) -> None:
    result = run("thesis", nodes=8, events=20, trace=str(tmp_path), trace_level="rpc")
    read = zstandard.ZstdDecompressor()
    lines = [
        trace.decode_line(line)
        for path in tmp_path.glob("*.ndjson.zst")
        for line in read.decompress(path.read_bytes()).splitlines()
    ]
    sent = [line.record for line in lines if isinstance(line.record, trace.RpcSent)]
    assert len(sent) == result.all_messages
    topics = {line.record.topic for line in lines if isinstance(line.record, trace.TopicCreated)}
    events = [record for record in sent if record.operation == "EventMessage"]
    assert events
    assert {record.topic for record in events} <= topics
