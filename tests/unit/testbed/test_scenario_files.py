import gzip
from dataclasses import fields, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner

from pulsarcast.cli.testbed import testbed as command
from pulsarcast.model.errors import LocalError
from pulsarcast.simulation.links import Matrix
from pulsarcast.testbed import claims
from pulsarcast.testbed.claims import claim, play
from pulsarcast.testbed.options import Outcome, RunOptions
from pulsarcast.testbed.proxies import Delay
from pulsarcast.testbed.run import SCENARIOS
from pulsarcast.testbed.scenario_files import (
    _USED_BY,
    options_for,
    read_matrix,
    scenario_text,
)
from tests.unit.testbed.small_workload import DUE, NODES, write_workload

EXAMPLES = Path(__file__).parents[3] / "examples" / "scenarios"
OUT = Path("out")


def written(folder: Path, text: str) -> str:
    path = folder / "given.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def matrix_file(folder: Path, *, hosts: int = 6) -> Path:
    """Round trips of 10 * (a + b) ms, and none at home."""
    rows = [[0 if a == b else 10 * (a + b) for b in range(hosts)] for a in range(hosts)]
    path = folder / "rtt-ms.tsv.gz"
    path.write_bytes(gzip.compress("".join("\t".join(map(str, r)) + "\n" for r in rows).encode()))
    return path


# Reading.


def test_a_file_says_all_of_a_run(tmp_path: Path) -> None:
    source = written(
        tmp_path,
        """
        nodes = 12
        seed = 3
        order = "total"
        trace_level = "none"
        ack = "accepted"
        contestant = "bare"
        timeout_s = 60
        memory_mib = 500
        [load]
        workload = "here.ndjson"
        limit = 7
        [network]
        latency = "500ms~300ms"
        [faults]
        kinds = ["kills", "stopped"]
        stopped_s = 2.5
        """,
    )
    assert options_for(source, out=OUT) == RunOptions(
        out=OUT,
        nodes=12,
        seed=3,
        order="total",
        trace_level=None,
        ack="accepted",
        contestant="bare",
        timeout_s=60,
        memory_mib=500,
        workload=tmp_path / "here.ndjson",
        events_max=7,
        delay=Delay(500, 300),
        faults=["kills", "stopped"],
        stopped_s=2.5,
    )


def test_what_a_command_says_goes_before_the_file(tmp_path: Path) -> None:
    source = written(tmp_path, 'nodes = 12\nseed = 3\n[network]\nlatency = "5ms"\n')
    said = {"nodes": 4, "latency": "7ms", "trace_level": "none", "faults": ("kills",)}
    options = options_for(source, out=OUT, said=said)
    assert (options.nodes, options.seed, options.delay) == (4, 3, Delay(7))
    assert (options.trace_level, options.faults) == (None, ("kills",))


def test_a_kind_needs_no_file() -> None:
    options = options_for("soak", out=OUT, said={"churn": True})
    assert options == RunOptions(scenario="soak", out=OUT, churn=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("node = 3", "no key 'node': did you mean nodes"),
        ("[load]\nevent = 3", r"no key 'load.event': did you mean events"),
        ("events = 3", r"no key 'events': it belongs into \[load\]"),
        ("[load]\nnodes = 3", "no key 'load.nodes': it belongs above all tables"),
        ("[network]\nzzzzzz = 3", "no key 'network.zzzzzz': there are: latency, matrix"),
        ("[faultz]\n", "no key 'faultz': did you mean faults"),
        ("nodes = 1", "nodes: expected an integer of at least 2"),
        ('order = "some"', "order: there is no choice 'some'"),
        ("[load]\nchurn = 1", r"load\.churn: expected true or false"),
        ("load = 3", "load: expected an object, got an integer"),
        ("nodes = ", "cannot be read"),
        ('[network]\nlatency = "5 s"', "a latency looks like"),
        ('[network]\nlatency = "5ms"\nmatrix = "m.tsv.gz"', "a latency or a matrix: not both"),
        ('[network]\nmatrix = "m.tsv.gz"', "is no matrix of round-trip times"),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(LocalError, match=message):
        options_for(written(tmp_path, text), out=OUT)


def test_a_file_that_is_not_there_is_refused() -> None:
    with pytest.raises(LocalError, match=r"nowhere\.toml cannot be read"):
        options_for("nowhere.toml", out=OUT)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.toml")), ids=lambda path: path.stem)
def test_the_examples_can_be_run(path: Path) -> None:
    assert options_for(str(path), out=OUT).nodes


def test_a_matrix_is_half_of_the_round_trips_between_the_simulators_hosts(tmp_path: Path) -> None:
    path, rng = matrix_file(tmp_path), Random(1)
    delay = read_matrix(path, 4, seed=9)
    simulated = Matrix.read(path, seed=9)
    assert delay.pairs_ms is not None
    assert len(delay.pairs_ms) == 4
    for a in range(4):
        for b in range(4):
            assert delay.of(a, b, rng) == pytest.approx(simulated.latency_s(a, b, rng))
            if a != b:
                hosts = simulated.host(a) + simulated.host(b)
                assert delay.pairs_ms[a][b] == pytest.approx(5 * hosts)


def test_more_nodes_than_hosts_share_them(tmp_path: Path) -> None:
    delay = read_matrix(matrix_file(tmp_path), 20, seed=9)
    assert delay.pairs_ms is not None
    assert len(delay.pairs_ms) == 6
    assert delay.of(1, 7, Random(1)) < 0.001


# Writing.


def test_what_is_written_is_the_same_run_again(tmp_path: Path) -> None:
    options = RunOptions(
        out=OUT,
        scenario="soak",
        nodes=3,
        seed=-4,
        order="per-publisher",
        trace_level=None,
        run_id='a "strange" näme',
        workload=write_workload(tmp_path),
        events=5,
        faults=("kills",),
        cut_s=1.25,
        churn=True,
        delay=Delay(20, 10),
        memory_mib=64,
    )
    again = options_for(written(tmp_path, scenario_text(options, {"command": "x"})), out=OUT)
    assert again == replace(options, faults=["kills"])
    matrix = replace(
        options, matrix=matrix_file(tmp_path), delay=read_matrix(matrix_file(tmp_path), 3, seed=-4)
    )
    again = options_for(written(tmp_path, scenario_text(matrix, {})), out=OUT)
    assert again == replace(matrix, faults=["kills"])


NOT_WRITTEN = {"out", "without_limits"}
"""What belongs to one run on one machine, and to no scenario."""


def test_no_option_is_forgotten(tmp_path: Path) -> None:
    """Whoever adds an option has to say where it stands in a file."""
    usual = RunOptions(out=OUT)
    for field in fields(RunOptions):
        if field.name in NOT_WRITTEN | {"delay", "matrix", "workload", "faults"}:
            continue  # those have tests of their own
        value = getattr(usual, field.name)
        other: Any = {
            "scenario": "soak",
            "order": "total",
            "dissemination": "cube",
            "trace_level": "rpc",
            "ack": "accepted",
            "contestant": "bare",
            "run_id": "mine",
        }.get(field.name)
        if other is None:
            other = not value if isinstance(value, bool) else 7
        changed = replace(usual, **{field.name: other})
        again = options_for(written(tmp_path, scenario_text(changed, {})), out=OUT)
        assert getattr(again, field.name) == other, field.name


# Claims.


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[RunOptions]:
    """What would have been run."""
    played: list[RunOptions] = []

    def run(options: RunOptions, **_: object) -> Outcome:
        played.append(options)
        (options.out / "traces").mkdir()
        (options.out / "traces" / "x").touch()
        (options.out / "summary.json").touch()
        return Outcome(
            scenario="x", nodes=1, due=0, delivered=0, lost=0, duplicates=0, strays=0, ok=True
        )

    monkeypatch.setattr(claims, "run_scenario", run)
    return played


def test_a_finished_run_is_not_overwritten_unless_told_so(
    tmp_path: Path, runs: list[RunOptions]
) -> None:
    options = RunOptions(out=tmp_path / "out")
    play(options)
    with pytest.raises(LocalError, match="holds a finished run"):
        play(options)
    play(options, replace=True)
    assert len(runs) == 2


def test_a_mirror_that_was_broken_off_makes_place_too(tmp_path: Path) -> None:
    options = RunOptions(scenario="mirror", out=tmp_path / "out")
    with claim(options):
        (options.out / "real" / "traces").mkdir(parents=True)
        (options.out / "real" / "traces" / ".half").touch()
    with claim(options):
        assert not (options.out / "real").exists()


def test_a_run_that_was_broken_off_makes_place(tmp_path: Path, runs: list[RunOptions]) -> None:
    options = RunOptions(out=tmp_path)
    with claim(options):
        (tmp_path / "traces").mkdir()
        (tmp_path / "mine.txt").touch()
    play(options)
    assert len(runs) == 1
    assert (tmp_path / "mine.txt").exists()


def test_a_scenario_that_somebody_wrote_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "scenario.toml").write_text("nodes = 3\n")
    with pytest.raises(LocalError, match="written by no run"), claim(RunOptions(out=tmp_path)):
        pass
    assert (tmp_path / "scenario.toml").read_text() == "nodes = 3\n"


def test_two_cannot_run_in_one_folder(tmp_path: Path) -> None:
    options = RunOptions(out=tmp_path)
    with claim(options), pytest.raises(LocalError, match="something runs in"), claim(options):
        pass


def test_a_replay_from_files_that_changed_is_refused(tmp_path: Path) -> None:
    workload = write_workload(tmp_path)
    options = RunOptions(out=tmp_path / "out", workload=workload)
    with claim(options):
        pass
    source = str(options.out / "scenario.toml")
    assert options_for(source, out=OUT).workload == workload
    workload.write_text(workload.read_text() + "\n")
    with pytest.raises(LocalError, match="is not what it was when"):
        options_for(source, out=OUT)


def test_a_run_can_be_run_again_from_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulsarcast.testbed.scenarios.workload.QUIET_S_MIN", 0.1)
    source = written(tmp_path, f'nodes = {NODES}\n[load]\nworkload = "workload.ndjson"\n')
    write_workload(tmp_path)
    given = options_for(source, out=tmp_path / "first", said={"events_max": 8})
    outcome = play(given)
    assert outcome.ok
    assert 0 < outcome.due < DUE
    kept = given.out / "scenario.toml"
    assert 'command = "pulsarcast' in kept.read_text()
    again = options_for(str(kept), out=tmp_path / "again")
    assert again == replace(given, out=again.out, faults=[])
    with claim(again):
        text = (again.out / "scenario.toml").read_text()
    assert text == kept.read_text()


def test_runs_that_may_lie_beside_each_other_have_names_of_their_own(tmp_path: Path) -> None:
    differing = [{}, {"dissemination": "cube"}, {"sequencers": 5}, {"seed": 2}, {"order": "total"}]
    names = [RunOptions(out=tmp_path, **each).name_of_run() for each in differing]  # type: ignore[arg-type]
    assert len(set(names)) == len(differing), names


@pytest.mark.parametrize(
    ("kind", "said", "complaint"),
    [
        ("away", {"faults": ["kills"], "nodes": 4}, "away has no use for --faults$"),
        ("hot", {"rate_per_s": 5.0, "by_kill": True}, "hot has no use for --rate, --kill$"),
        ("mirror", {"events_max": 5}, "mirror has no use for --limit$"),
        ("quotes", {"dissemination": "cube"}, "quotes has no use for --dissemination$"),
        ("workload", {"workload": Path("w"), "events": 5}, "--limit plays a file's first ones$"),
    ],
)
def test_what_a_scenario_would_not_look_at_is_refused(
    tmp_path: Path, kind: str, said: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(LocalError, match=complaint):
        options_for(kind, out=tmp_path, said=said)


def test_every_option_of_every_scenario_is_one_that_a_run_has() -> None:
    assert set(_USED_BY) <= {field.name for field in fields(RunOptions)}
    assert {kind for kinds in _USED_BY.values() for kind in kinds} == set(SCENARIOS)


@pytest.mark.parametrize("flag", ["--rate", "--sample-s", "--duration-s", "--timeout-s"])
def test_times_and_rates_are_above_0(flag: str, tmp_path: Path) -> None:
    words = ["run", "soak", "--out", str(tmp_path / "out"), flag, "0"]
    outcome = CliRunner().invoke(command, words)
    assert (outcome.exit_code, flag in outcome.stderr) == (2, True), outcome.output
