from pathlib import Path
from random import Random

from pulsarcast.model.workload import parse_workload
from pulsarcast.simulation.synthetic import make_workload
from pulsarcast.testbed.options import RunOptions
from pulsarcast.testbed.scenarios.mirror import run_mirror, write_workload


def test_a_workload_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    workload = make_workload(Random(1), nodes=5, events=30, topics=3)
    write_workload(workload, tmp_path / "workload")
    assert parse_workload((tmp_path / "workload").read_text().splitlines()) == workload


def test_the_simulator_and_real_nodes_send_the_same_events(tmp_path: Path) -> None:
    options = RunOptions(scenario="mirror", nodes=5, events=40, topics=2, out=tmp_path / "out")
    outcome = run_mirror(options)
    assert outcome.ok
    assert outcome.lost == outcome.duplicates == 0
    assert outcome.simulated.deliveries == outcome.real.deliveries > 0
    assert outcome.within, outcome.to_text()
    assert outcome.real.messages["EventMessage"] >= outcome.real.deliveries
    assert {path.name for path in (options.out / "traces").iterdir()} == {"simulated", "real"}
    assert "hops_mean" in outcome.to_text()
    assert "are within a tenth" in outcome.to_text()
    outcome.within = False
    assert "are NOT within a tenth" in outcome.to_text()
