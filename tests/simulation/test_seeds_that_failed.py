"""Random runs that once broke a promise, or an answer owed: each was a fault, and stays mended."""

import msgspec
import pytest

from pulsarcast.simulation.options import load
from pulsarcast.simulation.scenario import run_scenario

SEEDS = {
    26: "an application took back a subscription that it had made anew",
    161: "a request that waited its turn was published though another publisher had taken it",
    189: "what was handed in to a member went with its disk, though its publisher followed later",
    287: "a publisher outside could not give again what it had handed in",
    644: "a parent that withholds hid every other member, until retention had passed",
    934: "a publisher outside could not give again what it had handed in",
    945: "a subscription left before it began was never answered",
}


@pytest.mark.parametrize("seed", SEEDS, ids=str)
def test_what_went_wrong_once_goes_right_now(seed: int) -> None:
    result = run_scenario(msgspec.structs.replace(load("random"), seed=seed))
    assert result.ok, (SEEDS[seed], result.details)
