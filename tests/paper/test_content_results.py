"""The 2d-tree thesis, chapter 4 and 5.2: its experiment in small, its figures beside ours, churn.

docs/figures-content.md has the thesis' sizes.
"""

import json
from pathlib import Path
from random import Random
from statistics import median

import msgspec
import pytest

from pulsarcast.protocol.content.messages import Target
from pulsarcast.protocol.content.routing import grouped
from pulsarcast.simulation.content.churn import read_sessions
from pulsarcast.simulation.options import load
from pulsarcast.simulation.results import Result
from pulsarcast.simulation.scenario import run_scenario
from tests.support.people import peer

THESIS = {
    "installing takes": "mean 331 ms; 70 % < 600 ms, 90 % < 1 s",  # figure 4.1
    "installing, per node and subscription": "mean 14.32 B; 98 % < 60 B",  # figure 4.2
    "delivering takes": "mean 333 ms; 70 % < 400 ms, nearly all < 1 s; at most 1.6 s",  # 4.3, 4.9
    "publishing, per node and event": "mean 1,320 B; 70 % < 1.6 kB, 90 % < 3 kB",  # figure 4.4
    "of which probing": "mean 1,050 B; max 9.4 kB",  # figures 4.5 to 4.8
}


def small(**changes: object) -> Result:
    usual = {"nodes": 16, "events": 10, "subscriptions": 2}
    return run_scenario(msgspec.structs.replace(load("content"), **{**usual, **changes}))


def mean_of(text: str) -> float:
    return float(text.removeprefix("mean ").split()[0])


def test_figures_4_1_to_4_5_every_measure_stands_beside_the_thesis() -> None:
    result = small()
    told = {name: (mine, theirs) for name, mine, theirs in result.table if name in THESIS}
    assert {name: theirs for name, (_, theirs) in told.items()} == THESIS
    assert result.delivered == result.due > 0
    assert all(mean_of(mine) > 0 for mine, _ in told.values())
    # Plausible for one small world, no more: figures are on the page.
    assert 100 < mean_of(told["delivering takes"][0]) < 1000


def test_program_3_4_targets_with_one_next_hop_travel_as_one_message() -> None:
    """3.4.2: the list of targets is regrouped at each hop, one message to each next hop."""
    one, other = peer("one"), peer("other")
    first, second, third = (Target("price", at, at) for at in (4, 5, 6))
    ways = [(one, first), (other, second), (one, third)]
    assert grouped(ways) == {one: [first, third], other: [second]}


@pytest.fixture
def fits(tmp_path: Path) -> str:
    path = tmp_path / "fits.json"
    path.write_text(json.dumps({"short": {"weibull_shape_scale": [[0.5, 2.0], [1.0, 0.5]]}}))
    return f"{path}:short"


def test_section_5_2_sessions_follow_measured_ones(fits: str) -> None:
    rng, sessions = Random(1), read_sessions(fits, hour_s=10.0)
    up = median(sessions.up_s(rng) for _ in range(5000))
    # Weibull's median: scale (ln 2)^(1/shape).
    assert up == pytest.approx(20.0 * 0.6931**2, rel=0.1)


def test_section_5_2_subscriptions_outlast_churn(fits: str) -> None:
    result = small(churn=fits, events=30)
    assert result.ok, result.to_text()
    assert result.faults["left"] > 0
    assert result.delivered == result.due > 0
