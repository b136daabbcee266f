from pathlib import Path
from typing import Any

import pytest

from pulsarcast.model.errors import LocalError
from pulsarcast.testbed.contestants.ours import OurNode
from pulsarcast.testbed.options import RunOptions
from pulsarcast.testbed.scenarios.compare import NUMBER_BYTES
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


async def _refuse(*_: object, **__: object) -> None:
    raise LocalError("not today")


def test_a_run_in_which_nodes_refuse_to_publish_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulsarcast.testbed.callers.RETRY_S", 0.01)
    monkeypatch.setattr(OurNode, "publish", _refuse)
    outcome = run_hot(RunOptions(scenario="hot", nodes=2, events=2, out=tmp_path / "out"))
    assert outcome.refused == {"LocalError: not today": 2}
    assert (outcome.due, outcome.lost) == (0, 0)
    assert not outcome.ok


async def _give_more(self: OurNode, subscription: Any) -> None:
    async for event in subscription:
        self._seat.deliver(event.payload)
        self._seat.deliver(bytes([255]) * NUMBER_BYTES)


def test_a_run_in_which_something_comes_that_nobody_published_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OurNode, "_consume", _give_more)
    outcome = run_hot(RunOptions(scenario="hot", nodes=2, events=2, out=tmp_path / "out"))
    assert (outcome.due, outcome.delivered, outcome.duplicates) == (4, 4, 0)
    assert not outcome.ok
