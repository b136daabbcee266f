import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pulsarcast.testbed.ledger import Ledger
from pulsarcast.testbed.options import RunOptions
from pulsarcast.testbed.scenarios.away import AWAY, _Play, run_away
from pulsarcast.testbed.scenarios.compare import NUMBER_BYTES, number_of


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
    assert outcome.first_event_s is not None
    assert outcome.catch_up_s is not None
    assert 0 < outcome.first_event_s <= outcome.catch_up_s
    assert outcome.requests >= 1
    assert outcome.requests == outcome.messages_sent["FetchRange"]
    assert outcome.live_ms_p99_before > 0
    assert outcome.live_ms_p99_meanwhile > 0
    assert (options.out / "summary.json").read_text() == outcome.to_json() + "\n"


def test_an_event_that_never_comes_is_not_waited_for_while_others_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pulsarcast.testbed.scenarios.away.STALLED_S", 0.3)
    monkeypatch.setattr("pulsarcast.testbed.scenarios.away.LOOK_S", 0.05)
    ledger = Ledger(nodes=2, events=1_000)
    teller = ledger.teller(AWAY, number_of)

    def deliver(number: int) -> None:
        ledger.publish(number, time.monotonic_ns())
        teller.deliver(number.to_bytes(NUMBER_BYTES, "big"), time.monotonic_ns())

    def run_until(done: Callable[[], bool], **_: object) -> None:
        """All missed events but one, and live ones all the time."""
        deliver(0)
        for live in range(2, 1_000):
            if done():
                return
            deliver(live)
            time.sleep(0.005)
        raise AssertionError("it waits for ever")

    play = cast(Any, object.__new__(_Play))
    play._session = SimpleNamespace(ledger=ledger, fleet=SimpleNamespace(run_until=run_until))
    play._progress = lambda *_: None
    assert play._wait_for(range(2)) == 1
    assert len(ledger.arrivals_ns(AWAY, range(2))) == 1  # and no live ones
