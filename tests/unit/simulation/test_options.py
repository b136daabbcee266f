"""Options: scenarios by name and by file, and the command that replays a run."""

import shlex
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from pulsarcast.model.errors import LocalError
from pulsarcast.simulation import sabotage
from pulsarcast.simulation.links import Constant, Jittered, Matrix
from pulsarcast.simulation.options import load, names


def test_the_scenarios_of_the_package_can_be_read() -> None:
    assert names() == [
        "content",
        "cube",
        "load",
        "random",
        "random-content",
        "random-cube",
        "random-reach",
        "sequenced",
        "sequencers",
        "thesis",
        "tree",
    ]
    for name in names():
        assert load(name).scenario == name
        assert load(name).about


def test_a_scenario_of_ones_own_is_read_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('kind = "tree"\nnodes = 7\n')
    assert load(str(path)).nodes == 7


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('kind = "forest"', "forest"),
        ('kind = "tree"\nnodse = 7', "nodse"),
        ("kind =", "Invalid value"),
    ],
)
def test_a_mistake_in_a_scenario_is_named(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(LocalError, match=complaint):
        load(str(path))


def test_an_unknown_scenario_is_answered_with_those_there_are() -> None:
    there = (
        "content, cube, load, random, random-content, random-cube, random-reach, sequenced, "
        "sequencers, thesis, tree"
    )
    with pytest.raises(LocalError, match=there):
        load("forest")


def test_the_replay_command_names_what_was_changed_and_nothing_else() -> None:
    changed = msgspec.structs.replace(
        load("thesis"), seed=9, faults="root-lost", workload="a b.zst", share_verification=False
    )
    words = shlex.split(changed.replay_command())
    assert words[:5] == ["pulsarcast", "simulate", "thesis", "--seed", "9"]
    assert sorted(words[5:]) == sorted(
        ["--faults", "root-lost", "--workload", "a b.zst", "--no-share-verification"]
    )
    assert load("random").replay_command() == "pulsarcast simulate random --seed 1"


def test_links_follow_from_the_options(tmp_path: Path) -> None:
    tree = load("tree")
    assert isinstance(tree.links(), Constant)
    assert isinstance(msgspec.structs.replace(tree, jitter_ms=5.0).links(), Jittered)
    with pytest.raises(LocalError, match="no such latency matrix"):
        msgspec.structs.replace(tree, latency_matrix=str(tmp_path / "none.tsv.gz")).links()


def test_a_measured_matrix_can_be_used(shared_data: Callable[[str], Path]) -> None:
    path = shared_data("latency/cities-222-rtt-us.csv.gz")
    options = msgspec.structs.replace(load("tree"), latency_matrix=str(path))
    assert isinstance(options.links(), Matrix)


def test_an_unknown_safeguard_is_answered_with_those_there_are() -> None:
    with pytest.raises(LocalError, match="disk-sync"):
        sabotage.find("luck")
    assert sabotage.find(None).disk is None
    disk = sabotage.find("disk-sync").disk
    assert disk is not None
    assert disk.lies


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(b"kind = '\xff'")
    with pytest.raises(LocalError, match="can't decode"):
        load(str(path))
