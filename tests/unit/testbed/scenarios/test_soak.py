import resource
from pathlib import Path

import pytest

from pulsarcast.testbed.options import RunOptions
from pulsarcast.testbed.scenarios.soak import run_soak, slope


def test_the_slope_is_that_of_all_nodes_whatever_their_levels() -> None:
    points = [(node, float(x), 1000.0 * node + 3 * x) for node in range(4) for x in range(10)]
    assert slope(points) == pytest.approx(3.0)
    assert slope([(0, 1.0, 5.0)]) == 0.0


def test_a_soak_with_churn_loses_nothing_and_measures_those_who_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulsarcast.testbed.scenarios.soak.UP_S", (0.5, 1.0))
    monkeypatch.setattr("pulsarcast.testbed.scenarios.soak.DOWN_S", (0.2, 0.5))
    options = RunOptions(
        scenario="soak",
        nodes=4,
        topics=2,
        duration_s=4.0,
        sample_s=0.5,
        churn=True,
        out=tmp_path / "out",
        timeout_s=60,
    )
    outcome = run_soak(options)
    assert outcome.ok, outcome.to_text()
    assert outcome.due == outcome.delivered
    assert outcome.events >= 70
    assert outcome.faults["restart"] == outcome.faults.get("kill", 0) + outcome.faults.get(
        "stop", 0
    )
    assert outcome.died == []
    assert outcome.samples >= 3 * 4  # of the three that stay, after the warm-up
    # A node is forked from this process, and begins with its pages.
    own_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    assert 10 < outcome.rss_mib_warm < own_mib + 200
    assert len((options.out / "memory.csv").read_text().splitlines()) > outcome.samples
