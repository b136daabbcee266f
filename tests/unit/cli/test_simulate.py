"""The command line of the simulator: what it prints, and what it ends with."""

import json
from pathlib import Path

import pytest
import zstandard
from click.testing import CliRunner, Result

from pulsarcast.cli import main
from pulsarcast.model.trace import Fault, RpcReceived, RpcSent, decode_line
from pulsarcast.simulation.results import Result as SimulationResult
from pulsarcast.simulation.seeds import RUNS_MIN, Summary

FIGURES: dict[str, type | tuple[type, ...]] = {
    "due": int,
    "delivered": int,
    "undecided": int,
    "duplicates": int,
    "order_violations": int,
    "lost_acknowledged": int,
    "messages_per_delivery": float,
    "bytes_per_delivery": float,
    "messages_per_write": float,
    "hops_mean": float,
    "hops_max": int,
    "fanout_max": int,
    "wall_s": float,
    "messages_per_s": (int, float),
    "shared_verification": bool,
}

SMALL_CONTENT = ("--nodes", "12", "--events", "2")
SMALL = ("--nodes", "12", "--subscribers", "6", "--events", "5")


def simulate(*words: str) -> Result:
    return CliRunner().invoke(main, ["simulate", *words])


def test_a_run_prints_its_figures_on_one_line_of_json() -> None:
    result = simulate("tree", *SMALL, "--json")
    assert result.exit_code == 0, result.output
    assert result.output.count("\n") == 1
    figures = json.loads(result.output)
    for name, kind in FIGURES.items():
        assert isinstance(figures[name], kind), name
    assert figures["due"] == figures["delivered"] == 30


def test_a_run_prints_its_figures_for_people() -> None:
    result = simulate("tree", *SMALL)
    assert result.exit_code == 0, result.output
    assert "30 of 30 due (100.0000%)" in result.output


def test_without_a_scenario_there_is_a_list() -> None:
    result = simulate()
    assert result.exit_code == 0
    for word in ("thesis", "tree", "random", "root-lost", "partition", "disk-sync"):
        assert word in result.output


def test_mistakes_of_the_caller_are_told_in_a_sentence() -> None:
    for words, complaint in [
        (("forest",), "no scenario 'forest'"),
        (("thesis", "--faults", "flood"), "no fault plan 'flood'"),
        (("thesis", "--workload", "nowhere.zst"), "no such workload"),
        (("tree", "--without", "luck"), "no safeguard 'luck'"),
        (("sequencers", "--without", "outbox"), "sequencers alone have no outbox to go without"),
        (("tree", "--latency-matrix", __file__), "is no matrix of round-trip times"),
        (("content", *SMALL_CONTENT, "--churn", f"{__file__}:day"), "no Weibull fit 'day'"),
    ]:
        result = simulate(*words)
        assert result.exit_code == 1
        assert complaint in result.output
        assert "Traceback" not in result.output


def test_all_topics_of_a_random_run_may_be_causal() -> None:
    for scenario in ("random", "random-cube"):
        result = simulate(scenario, "--seed", "6", "--order", "causal", "--json")
        assert result.exit_code == 0, result.output
        assert json.loads(result.stdout)["delivered"] > 0


def test_all_else_of_a_random_run_is_said_by_its_seed() -> None:
    for words, named in [
        (("random", "--order", "total"), "--order"),
        (("random", "--order", "causal", "--nodes", "5"), "--nodes"),
        (("sequenced", "--order", "causal"), "--order"),
        (("random-reach", "--nodes", "5"), "--nodes"),
    ]:
        result = simulate(*words)
        assert result.exit_code == 1
        assert result.stderr == f"pulsarcast: a random run takes these from its seed: {named}\n"


def test_what_a_scenario_would_not_look_at_is_refused() -> None:
    for words, complaint in [
        (("tree", "--faults", "restarts"), "tree has no use for --faults"),
        (("thesis", "--subscribers", "5", "--skew", "0.5"), "no use for --skew, --subscribers"),
        (("content", "--trace", "out"), "content has no use for --trace"),
        (("thesis", "--settled"), "thesis has no use for --settled"),
        (("random", "--settled"), "takes these from its seed: --settled"),
        (("sequencers", "--settle-s-max", "9"), "sequencers has no use for --settle-s-max"),
        (
            ("tree", "--latency-matrix", "rtt.tsv.gz", "--jitter-ms", "5"),
            "tree has no use for --jitter-ms",
        ),
    ]:
        result = simulate(*words)
        assert (result.exit_code, complaint in result.stderr) == (1, True), result.output


def test_one_seed_or_many() -> None:
    for words, complaint in [
        (("sequencers", "--seed", "9", "--seeds", "2"), "--seed or --seeds"),
        (("sequencers", "--first-seed", "9"), "--first-seed goes with --seeds"),
        (("tree", "--latency-ms", "-5"), "--latency-ms"),
    ]:
        result = simulate(*words)
        assert (result.exit_code, complaint in result.stderr) == (2, True), result.output


def test_a_workload_that_cannot_be_unpacked_is_told_in_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "workload.zst"
    path.write_bytes(b"not packed")
    result = simulate("thesis", "--workload", str(path))
    assert result.exit_code == 1
    assert result.stderr.startswith(f"pulsarcast: {path} is no workload: ")


def test_events_whose_topic_the_workload_does_not_have_are_objected_to(tmp_path: Path) -> None:
    path = tmp_path / "workload.ndjson"
    event = {"internalId": 1, "topic": "nowhere", "ups": 1}
    user = {"type": "user", "name": "u", "node": "node-1", "subscriptions": {"nowhere": True}}
    path.write_text(json.dumps({**user, "events": [event]}) + "\n")
    result = simulate("thesis", "--nodes", "3", "--workload", str(path), "--json")
    assert result.exit_code == 1, result.output
    assert json.loads(result.stdout)["findings"] == {"dropped": 1}


@pytest.mark.parametrize("kind", ["tree", "workload", "content"])
def test_where_nothing_breaks_no_way_of_recovery_is_too_rare(kind: str) -> None:
    summary = Summary(kind, "cube")
    for seed in range(RUNS_MIN):
        summary.add(SimulationResult(scenario=kind, seed=seed))
    assert summary.rare() == []
    assert len(Summary("random").paths) > len(summary.paths)


def test_a_folder_has_the_traces_of_one_run(tmp_path: Path) -> None:
    words = ("tree", *SMALL, "--trace", str(tmp_path))
    for _ in range(2):  # the same run is the same traces
        assert simulate(*words).exit_code == 0
    another = simulate(*words, "--seed", "2")
    assert another.exit_code == 1
    assert another.stderr.startswith(f"pulsarcast: {tmp_path} holds the traces of another run")
    assert json.loads((tmp_path / "result.json").read_text())["seed"] == 1


@pytest.mark.parametrize("scenario", ["sequencers", "random-content"])
def test_every_message_is_in_a_trace_of_level_rpc(scenario: str, tmp_path: Path) -> None:
    ended = simulate(scenario, "--trace", str(tmp_path), "--trace-level", "rpc", "--json")
    assert ended.exit_code == 0
    lines = [
        decode_line(line).record
        for path in tmp_path.glob("*.zst")
        for line in zstandard.ZstdDecompressor().decompress(path.read_bytes()).splitlines()
    ]
    sent = sum(isinstance(line, RpcSent) for line in lines)
    assert sent == json.loads(ended.stdout)["all_messages"] > 0
    assert any(isinstance(line, RpcReceived) for line in lines)
    assert any(isinstance(line, Fault) for line in lines)
