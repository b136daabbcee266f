"""The seeds are strong: with any one safeguard switched off, they find a violation."""

import msgspec
import pytest

from pulsarcast.simulation.options import load
from pulsarcast.simulation.sabotage import SAFEGUARDS
from pulsarcast.simulation.scenario import run_scenario

SEEDS = range(1, 61)


@pytest.mark.slow
@pytest.mark.parametrize("safeguard", sorted(SAFEGUARDS))
def test_without_this_safeguard_some_seed_finds_a_violation(safeguard: str) -> None:
    options = msgspec.structs.replace(load("random"), without=safeguard, settle_s_max=200.0)
    for seed in SEEDS:
        result = run_scenario(msgspec.structs.replace(options, seed=seed))
        if not result.ok:
            assert safeguard in result.replay
            whole = run_scenario(msgspec.structs.replace(options, seed=seed, without=None))
            assert whole.ok, "the violation must come from the missing safeguard"
            return
    pytest.fail(f"{len(SEEDS)} seeds did not miss {safeguard}")
