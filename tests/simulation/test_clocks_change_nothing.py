"""Safety depends on no clock: wrong ones change no verdict (design 4)."""

from random import Random

import msgspec
import pytest

from pulsarcast.simulation import random_plan
from pulsarcast.simulation.options import load
from pulsarcast.simulation.results import Result
from pulsarcast.simulation.scenario import run_scenario

OFFSET_S = 30.0
DRIFT_PPM = 200.0


def run_with_clocks(monkeypatch: pytest.MonkeyPatch, seed: int, *, wrong: bool) -> Result:
    """One random run whose clocks are all right, or all as wrong as can be."""

    def clock(rng: Random) -> tuple[float, float]:
        sides = rng.choice((-1.0, 1.0)), rng.choice((-1.0, 1.0))
        return (OFFSET_S * sides[0], DRIFT_PPM * sides[1]) if wrong else (0.0, 0.0)

    monkeypatch.setattr(random_plan, "_clock", clock)
    return run_scenario(msgspec.structs.replace(load("random"), seed=seed))


@pytest.mark.parametrize(
    "seed", [1, 2, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 7))]
)
def test_offsets_of_30_s_and_drifts_of_200_ppm_change_no_verdict(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    right = run_with_clocks(monkeypatch, seed, wrong=False)
    wrong = run_with_clocks(monkeypatch, seed, wrong=True)
    assert wrong.faults["clock"] == wrong.nodes
    assert right.findings == wrong.findings == {}
    assert right.due == right.delivered
    assert wrong.due == wrong.delivered
