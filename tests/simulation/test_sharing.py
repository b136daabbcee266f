"""Verifying equal bytes once for all nodes of a simulation changes nothing but its cost."""

import msgspec
import pytest

from pulsarcast.simulation.options import load
from pulsarcast.simulation.results import Result
from pulsarcast.simulation.scenario import run_scenario


def played(scenario: str, seed: int, *, shared: bool) -> Result:
    options = msgspec.structs.replace(load(scenario), seed=seed, share_verification=shared)
    return run_scenario(options)


@pytest.mark.parametrize(
    ("scenario", "seed"),
    [("random", 4), ("random-cube", 4), ("random-content", 2), ("sequenced", 2)],
)
def test_a_run_is_the_same_whether_verification_is_shared_or_not(scenario: str, seed: int) -> None:
    shared, apart = (played(scenario, seed, shared=shared) for shared in (True, False))
    assert shared.shared_verification
    assert not apart.shared_verification
    for result in (shared, apart):
        result.cpu_s = result.wall_s = result.messages_per_s = result.rss_mb = 0.0
        result.shared_verification = False
        result.replay = ""
    assert shared == apart
