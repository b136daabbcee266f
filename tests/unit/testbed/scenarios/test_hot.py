from pathlib import Path

import pytest

from pulsarcast.testbed.options import RunOptions
from pulsarcast.testbed.scenarios.hot import run_hot


@pytest.mark.parametrize("dissemination", ["tree", "cube"])
def test_everyone_publishes_at_once_and_everyone_gets_everything(
    dissemination: str, tmp_path: Path
) -> None:
    options = RunOptions(
        scenario="hot",
        nodes=6,
        events=30,
        dissemination=dissemination,
        order="causal",
        out=tmp_path / "out",
        timeout_s=100,
    )
    outcome = run_hot(options)
    assert outcome.ok, outcome.to_text()
    assert outcome.due == outcome.delivered == 30 * 6
    assert outcome.events == 30
    assert outcome.dissemination == dissemination
    assert outcome.died == []
    assert outcome.received_per_node is not None
    assert outcome.busiest_over_mean is not None
    assert outcome.busiest_over_mean >= 1
    assert outcome.deliveries_per_s > 0
    assert outcome.findings == {}
    assert '"dissemination":"' + dissemination in (options.out / "summary.json").read_text()
