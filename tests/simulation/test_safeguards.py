"""The seeds are strong: with any one safeguard switched off, one of them finds a violation."""

import msgspec
import pytest

from pulsarcast.simulation.options import load
from pulsarcast.simulation.sabotage import SAFEGUARDS
from pulsarcast.simulation.scenario import run_scenario

OBJECTS = {
    "content-barrier": 29,
    "content-comparison": 3,
    "content-hand-over": 1,
    "cube-comparison": 10,
    "cube-skip": 1,
    "causal-barrier": 3,
    "disk-sync": 1,
    "duplicate-suppression": 1,
    "frontier-comparison": 1,
    "hand-over": 24,
    "lazy-neighbours": 61,
    "merge-events": 9,
    "outbox": 7,
    "path-check": 72,
    "root-rank": 7,
    "start-wait": 13,
}
"""The first seed that misses each safeguard; `--seeds 200 --without SAFEGUARD` finds it."""
SCENARIOS = {
    "content-barrier": "random-content",
    "content-comparison": "random-content",
    "content-hand-over": "random-content",
    "cube-comparison": "random-cube",
    "cube-skip": "random-cube",
    "lazy-neighbours": "random-reach",
    "root-rank": "random-reach",
}
"""Where it takes another scenario than `random`."""

AMONG_SEQUENCERS = {
    "certificates": (1, "fork"),
    "vote-sync": (74, "election"),
}
"""The same of sequencers alone (`simulate sequencers`), and what they find."""


def test_every_safeguard_has_its_seed() -> None:
    assert OBJECTS.keys() | AMONG_SEQUENCERS.keys() == SAFEGUARDS.keys()


@pytest.mark.parametrize(("safeguard", "seed"), sorted(OBJECTS.items()))
def test_without_this_safeguard_its_seed_finds_a_violation(safeguard: str, seed: int) -> None:
    scenario = SCENARIOS.get(safeguard, "random")
    whole = msgspec.structs.replace(load(scenario), seed=seed)
    spoilt = msgspec.structs.replace(whole, without=safeguard, settle_s_max=200.0)
    result = run_scenario(spoilt)
    assert not result.ok
    assert safeguard in result.replay
    # The first 200 random worlds are clean with all safeguards: `.ci/run` plays them by themselves.
    assert seed <= 200
    if scenario != "random":
        assert run_scenario(whole).ok, "the violation must come from the missing safeguard"


@pytest.mark.parametrize("safeguard", sorted(AMONG_SEQUENCERS))
def test_without_this_safeguard_sequencers_break_their_promises(safeguard: str) -> None:
    seed, kind = AMONG_SEQUENCERS[safeguard]
    whole = msgspec.structs.replace(load("sequencers"), seed=seed)
    result = run_scenario(msgspec.structs.replace(whole, without=safeguard))
    assert kind in result.findings
    assert safeguard in result.replay
    assert run_scenario(whole).ok, "the violation must come from the missing safeguard"
