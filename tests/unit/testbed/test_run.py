import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from pulsarcast.cli.testbed import testbed as command
from pulsarcast.model import trace
from pulsarcast.model.errors import LocalError
from pulsarcast.testbed.ledger import Ledger
from pulsarcast.testbed.options import RunOptions
from pulsarcast.testbed.reading import lines_of
from pulsarcast.testbed.run import run_scenario
from tests.unit.testbed.small_workload import DUE, EVENTS_EACH, NODES, write_workload


@pytest.mark.parametrize("order", ["none", "total"])
def test_a_workload_is_delivered_whole_and_leaves_its_traces(order: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    given = ["run", "workload", "--nodes", str(NODES), "--workload", str(write_workload(tmp_path))]
    outcome = CliRunner().invoke(
        command, [*given, "--out", str(out), "--order", order, "--json"], catch_exceptions=False
    )
    assert outcome.exit_code == 0, outcome.output
    summary = json.loads(outcome.stdout)
    assert summary == json.loads((out / "summary.json").read_text())
    assert summary["due"] == summary["delivered"] == DUE
    assert summary["duplicates"] == summary["redeliveries"] == summary["dropped"] == 0
    assert summary["died"] == []
    assert summary["bytes_out"] > 0
    assert not (out / "nodes").exists()

    lines = list(lines_of(out / "traces"))
    assert not list((out / "traces").glob(".*")), "a segment is open"
    told = [line.record for line in lines if line.envelope.node_id == "driver"]
    injected = [record.injection for record in told if isinstance(record, trace.Injected)]
    acknowledged = [record.injection for record in told if isinstance(record, trace.Acknowledged)]
    assert sorted(injected) == sorted(str(number) for number in range(NODES * EVENTS_EACH))
    assert sorted(acknowledged, key=str) == sorted(injected)
    nodes = {line.envelope.node_id for line in lines} - {"driver"}
    assert len(nodes) == NODES
    assert sum(isinstance(line.record, trace.Delivered) for line in lines) == DUE


def test_a_run_says_that_something_came_which_nobody_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Ledger, "strays", 3)
    given = ["run", "workload", "--nodes", str(NODES), "--workload", str(write_workload(tmp_path))]
    outcome = CliRunner().invoke(command, [*given, "--out", str(tmp_path / "out")])
    assert outcome.exit_code == 1
    assert "strays                     3\n" in outcome.stdout


def test_a_folder_with_an_earlier_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces" / "x.ndjson").touch()
    with pytest.raises(LocalError, match="is not empty"):
        run_scenario(RunOptions(workload=write_workload(tmp_path), out=tmp_path))


def test_an_unknown_scenario_is_refused(tmp_path: Path) -> None:
    options = RunOptions(scenario="flood", workload=tmp_path, out=tmp_path)
    with pytest.raises(LocalError, match="no scenario 'flood'; there are: workload"):
        run_scenario(options)
