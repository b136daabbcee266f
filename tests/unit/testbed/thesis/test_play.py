import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import NoReturn

import pytest

from pulsarcast.model import trace_records as trace
from pulsarcast.model.errors import LocalError
from pulsarcast.testbed.contestants.contestants import Messages
from pulsarcast.testbed.ledger import Ledger, messages_since, spread
from pulsarcast.testbed.reading import lines_of
from pulsarcast.testbed.scenarios.compare import no_progress, number_of
from pulsarcast.testbed.thesis.evaluation import Results, evaluate
from pulsarcast.testbed.thesis.play import play_apart
from pulsarcast.testbed.thesis.runs import Scale, plan_runs
from tests.unit.testbed.stub import is_running
from tests.unit.testbed.thesis.fakes import FakeJudge, tiny_plan

SMALLEST = Scale(nodes=5, events_max=20, limit=20, timeout_s=60.0)


def test_messages_of_all_lives_of_a_node_count() -> None:
    ledger = Ledger(nodes=2, events=1)
    assert ledger.messages(0) is None
    first = ledger.teller(0, number_of)
    first.meter(1, 1, 0, 0)
    assert ledger.messages(0) == Messages(0, 0)
    first.meter(1, 1, 10, 20)
    ledger.end_life(0)
    second = ledger.teller(0, number_of)
    assert ledger.messages(0) == Messages(10, 20)
    second.meter(1, 1, 3, 4)
    assert ledger.messages(0) == Messages(13, 24)
    ledger.teller(1, number_of).meter(5, 7)
    assert ledger.messages(1) is None  # it counts bytes only


def test_messages_spread_over_nodes_by_nearest_ranks() -> None:
    found = spread(list(range(1, 101)))
    assert found == {
        "mean": 50.5, "p50": 50, "p95": 95, "p99": 99, "max": 100, "p99_over_mean": 1.96,
    }  # fmt: skip
    assert spread([7]) == {
        "mean": 7, "p50": 7, "p95": 7, "p99": 7, "max": 7, "p99_over_mean": 1.0,
    }  # fmt: skip
    assert spread([]) is None
    before, after = [Messages(1, 2)], [Messages(4, 8)]
    assert messages_since(before, after) == [Messages(3, 6)]
    assert messages_since(None, after) is None


def test_a_run_that_raises_says_why_and_leaves_it_in_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fall(*_: object, **__: object) -> NoReturn:
        raise LocalError("no port is free")

    monkeypatch.setattr("pulsarcast.testbed.thesis.play.play", fall)
    run = tiny_plan(tmp_path)[0]
    with pytest.raises(LocalError, match="LocalError: no port is free"):
        play_apart(run, no_progress, 0)
    assert "Traceback" in (run.folder / "error.txt").read_text()


def test_a_run_that_is_killed_takes_nobody_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fall(*_: object, **__: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr("pulsarcast.testbed.thesis.play.play", fall)
    with pytest.raises(LocalError, match="its process ended by SIGKILL"):
        play_apart(tiny_plan(tmp_path)[0], no_progress, 0)


EVALUATION = """
import sys
from collections import Counter
from pathlib import Path
from tests.unit.testbed.thesis.test_play import evaluate_smallest

evaluate_smallest(Path(sys.argv[1]), at_a_time=2)
"""


def evaluate_smallest(out: Path, at_a_time: int = 1) -> Results:
    plan = plan_runs(out, SMALLEST, None)
    only = [run for run in plan if run.name in ("ours", "floodsub")]
    return evaluate(plan, out, only=only, at_a_time=at_a_time, judging=FakeJudge())


def children_of(pid: int) -> list[int]:
    """All processes below one, as far as they live."""
    direct = [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return direct + [below for each in direct for below in children_of(each)]


@pytest.mark.timeout(300)
def test_two_runs_on_real_nodes_though_the_first_attempt_is_killed(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """The smallest evaluation there is: killed while a run goes, made again, and looked at."""
    nodes = tmp_path / "runs" / "ours" / "nodes"
    with subprocess.Popen(
        [sys.executable, "-c", EVALUATION, str(tmp_path)], cwd=pytestconfig.rootpath
    ) as first:
        deadline_s = time.monotonic() + 30
        while not (nodes / "node-004.log").is_file() and time.monotonic() < deadline_s:
            time.sleep(0.02)
        processes = children_of(first.pid)
        first.kill()
    assert len(processes) > SMALLEST.nodes
    deadline_s = time.monotonic() + 5
    while any(map(is_running, processes)) and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert not any(map(is_running, processes))
    assert not (tmp_path / "runs" / "ours" / "summary.json").exists()

    results = evaluate_smallest(tmp_path)
    assert results.ok, results.failed
    ours, floodsub = results.runs
    assert (ours.name, floodsub.name) == ("ours", "floodsub")
    for run in (ours, floodsub):
        assert (run.summary.nodes, run.summary.events) == (5, 20)
        assert run.summary.delivered == run.summary.due > 0
        assert run.figures.coverage_of_published == 1.0
    received, sent = ours.summary.received_per_node, ours.summary.sent_per_node
    assert received is not None
    assert sent is not None
    # All that is sent is received, but for what is on its way when the meters are read.
    assert 0 < sent["mean"] == pytest.approx(received["mean"], rel=0.1)
    assert sent["mean"] <= sent["max"]
    assert floodsub.summary.sent_per_node is None
    for run in (ours, floodsub):
        folder = tmp_path / "runs" / run.name
        assert (folder / "scenario.toml").is_file()  # with which it can be played again
        kinds = Counter(type(line.record) for line in lines_of(folder / "traces"))
        assert kinds[trace.Delivered] == run.summary.delivered
        assert kinds[trace.Published] == 20
        assert kinds[trace.NodeStarted] == kinds[trace.NodeStopped] == 5
