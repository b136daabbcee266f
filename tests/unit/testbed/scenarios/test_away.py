from pathlib import Path

import pytest

from pulsarcast.testbed.options import RunOptions
from pulsarcast.testbed.scenarios.away import run_away


@pytest.mark.parametrize("by_kill", [False, True])
def test_a_subscriber_that_was_away_catches_up(
    by_kill: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulsarcast.testbed.scenarios.away.CALM_S", 0.5)
    options = RunOptions(
        scenario="away", nodes=4, events=60, out=tmp_path / "out", by_kill=by_kill, timeout_s=60
    )
    outcome = run_away(options)
    assert outcome.ok
    assert outcome.missed == outcome.caught_up == 60
    assert outcome.due == outcome.delivered
    assert outcome.duplicates == 0
    assert 0 < outcome.first_event_s <= outcome.catch_up_s
    assert outcome.requests >= 1
    assert outcome.requests == outcome.messages_sent["FetchRange"]
    assert outcome.live_ms_p99_before > 0
    assert outcome.live_ms_p99_meanwhile > 0
    assert (options.out / "summary.json").read_text() == outcome.to_json() + "\n"
