from pathlib import Path
from random import Random

import pytest

from pulsarcast.model.workload import parse_workload
from pulsarcast.simulation.synthetic import make_workload
from pulsarcast.simulation.workload_driver import CONCURRENCY
from pulsarcast.testbed.options import RunOptions
from pulsarcast.testbed.scenario_files import options_for
from pulsarcast.testbed.scenarios.mirror import run_mirror, write_workload


def test_a_workload_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    workload = make_workload(Random(1), nodes=5, events=30, topics=3)
    write_workload(workload, tmp_path / "workload")
    assert parse_workload((tmp_path / "workload").read_text().splitlines()) == workload


def test_both_halves_play_all_of_the_load_whatever_a_file_says_of_workloads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "mirror.toml"
    file.write_text('kind = "mirror"\nnodes = 2\n[load]\nevents = 4\nlimit = 1\nconcurrency = 1\n')
    played: list[RunOptions] = []

    class EnoughError(Exception):
        pass

    def play(options: RunOptions, **_: object) -> None:
        played.append(options)
        raise EnoughError

    monkeypatch.setattr("pulsarcast.testbed.scenarios.mirror.run_workload", play)
    with pytest.raises(EnoughError):
        run_mirror(options_for(str(file), out=tmp_path / "out"))
    assert [(own.events_max, own.concurrency) for own in played] == [(None, CONCURRENCY)]


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
