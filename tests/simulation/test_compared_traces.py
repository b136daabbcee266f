"""benchmarks/compare_traces.py: no effect and no draw of chance changes without its notice."""

from __future__ import annotations

import math
from pathlib import Path
from random import Random
from typing import Any

import pytest

from benchmarks.compare_traces import Change, Run, compare, play, show
from pulsarcast.protocol.effects import Effect
from pulsarcast.protocol.inputs import Input, Now
from pulsarcast.protocol.node import Node
from pulsarcast.protocol.sequencing.sequencer import Sequencer
from pulsarcast.simulation import hosts
from pulsarcast.simulation.sequencers import group

NODES = Run("random", 6)
SEQUENCERS = Run("sequencers", 2)
SAME = Change({})
LATE = 20
"""So many turns with two effects or more come before the sabotage."""


class Sabotage:
    """What goes wrong in one turn, once."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.turns = 0

    def strike(self, effects: list[Effect], rng: Random) -> None:
        """Swap two effects that are not the same, or draw once more."""
        if len(effects) < 2 or effects[0] == effects[1]:
            return
        self.turns += 1
        if self.turns == LATE:
            if self.kind == "swap":
                effects[0], effects[1] = effects[1], effects[0]
            else:
                rng.random()


@pytest.fixture
def spoil(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Builds nodes and sequencers that a sabotage strikes."""

    def spoil(kind: str) -> None:
        sabotage = Sabotage(kind)

        class SpoiltNode(Node):
            def __init__(self, identity: Any, rng: Random, *rest: Any, **more: Any) -> None:
                super().__init__(identity, rng, *rest, **more)
                self.chance = rng

            def handle(self, given: Input, now: Now) -> list[Effect]:
                effects = super().handle(given, now)
                sabotage.strike(effects, self.chance)
                return effects

        class SpoiltSequencer(Sequencer):
            def receive(self, sender: Any, message: Any) -> None:
                super().receive(sender, message)
                sabotage.strike(self.turn.effects, self.turn.rng)

        monkeypatch.setattr(hosts, "Node", SpoiltNode)
        monkeypatch.setattr(group, "Sequencer", SpoiltSequencer)

    return spoil


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The traces of runs in which nothing is wrong."""
    folder = tmp_path_factory.mktemp("base")
    for run in (NODES, SEQUENCERS):
        play(run, folder)
    return folder


@pytest.mark.parametrize("run", [NODES, SEQUENCERS], ids=lambda run: run.scenario)
def test_a_seed_writes_the_same_lines_again(run: Run, base: Path, tmp_path: Path) -> None:
    assert compare(base / run.name, play(run, tmp_path), SAME) is None


@pytest.mark.parametrize("run", [NODES, SEQUENCERS], ids=lambda run: run.scenario)
def test_two_swapped_effects_are_found_in_their_turn(
    run: Run, base: Path, tmp_path: Path, spoil: Any
) -> None:
    spoil("swap")
    played = play(run, tmp_path)
    found = compare(base / run.name, played, SAME)
    assert found is not None
    assert 0 < found.at_s < math.inf
    # One effect has moved: the first line that differs holds what it held before.
    told = show(base / run.name, played, found).splitlines()
    removed = [line[1:] for line in told[2:] if line.startswith("-    ")]
    added = [line[1:] for line in told[2:] if line.startswith("+    ")]
    assert removed[0] == added[0]


@pytest.mark.parametrize("run", [NODES, SEQUENCERS], ids=lambda run: run.scenario)
def test_one_more_draw_of_chance_is_found(run: Run, base: Path, tmp_path: Path, spoil: Any) -> None:
    spoil("draw")
    played = play(run, tmp_path)
    found = compare(base / run.name, played, SAME)
    assert found is not None
    assert 0 < found.at_s < math.inf


def test_words_of_the_base_are_read_as_the_new_ones(base: Path) -> None:
    played = base / SEQUENCERS.name
    renamed = {"RequestVote": "VoteRequest"}
    assert compare(played, played, Change(renamed)) is not None
    assert compare(played, played, Change(renamed, (r"(RequestVote|VoteRequest) \w+",))) is None
    assert compare(played, played, Change({"RequestVot": "VoteRequest"})) is None
