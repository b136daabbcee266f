import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pulsarcast.cli.testbed import testbed as command
from pulsarcast.model.errors import LocalError
from pulsarcast.model.ids import cid_of
from pulsarcast.testbed.child import Plan
from pulsarcast.testbed.contestants.contestants import load
from pulsarcast.testbed.fleet import Fleet
from pulsarcast.testbed.ledger import Ledger
from pulsarcast.testbed.scenarios.compare import (
    Load,
    Round,
    compare,
    number_of,
    set_up,
    to_text,
)
from tests.unit.testbed.stub import stub_fleet

KEYS = {
    "due",
    "delivered",
    "cpu_ms_per_delivery",
    "bytes_per_delivery",
    "latency_ms_p50",
    "latency_ms_p99",
    "pss_mib",
    "duplicates",
    "wall_s",
}


def test_the_line_of_json_has_every_contestant_with_plausible_figures() -> None:
    given = ["compare", "--nodes", "5", "--events", "20", "--topics", "2", "--json"]
    given += ["--only", "floodsub", "--only", "bare"]
    outcome = CliRunner().invoke(command, given, catch_exceptions=False)
    assert outcome.exit_code == 0
    line: dict[str, Any] = json.loads(outcome.stdout)
    assert list(line) == ["floodsub", "bare"]
    for figures in line.values():
        assert set(figures) >= KEYS
        assert figures["due"] == figures["delivered"] == 20 * 4
        assert all(figures[name] == 0 for name in ("lost", "duplicates", "refused"))
        assert figures["died"] == []
        assert figures["bytes_per_delivery"] >= 256
        assert 0 < figures["latency_ms_p50"] <= figures["latency_ms_p99"] < 10_000
        assert figures["cpu_ms_per_delivery"] > 0.01
        assert figures["pss_mib"] > 5


def test_a_node_killed_in_the_midst_is_told_of_and_not_waited_for(tmp_path: Path) -> None:
    # Patience is for what the victim had published and not passed on: that may be nowhere.
    given = Load(nodes=5, events=20, topics=1, patience_s=1.5)
    ledger = Ledger(nodes=5, events=20)
    plan = Plan(
        opener=load("floodsub"),
        size=5,
        settings=given.settings,
        ledger=ledger,
        number_of=number_of,
    )
    with Fleet(plan, tmp_path) as fleet:
        fleet.assemble()
        topics = set_up(fleet, 1)
        fleet.wait(0.5)
        played = Round(fleet, ledger, given, topics)
        victim = played.authors[-1]

        def kill_once(done: int) -> None:
            if done >= 5 and fleet.is_up(victim):
                # Not through the fleet, which would know then that it is no surprise.
                os.kill(fleet.pid(victim), signal.SIGKILL)
                fleet.run_until(lambda: not fleet.is_up(victim), s_max=5)

        played.play(kill_once)
        figures = played.figures()
    assert figures.died == [f"node {victim}: SIGKILL"]
    assert figures.due == 80
    assert figures.lost > 0
    assert figures.delivered + figures.lost == figures.due
    assert figures.refused >= 1  # its own last event, at least
    assert figures.wall_s < 15
    others = [number for number, author in enumerate(played.authors) if author != victim]
    living = [node for node in range(5) if node != victim]
    assert not [number for number in others if ledger.missing(number, living)]


def test_the_window_ends_with_the_last_delivery_and_not_with_patience(tmp_path: Path) -> None:
    given = Load(nodes=3, events=3, topics=1, patience_s=1.0)
    ledger = Ledger(nodes=3, events=3)
    with stub_fleet(tmp_path, ledger=ledger) as fleet:
        fleet.assemble()
        began_s = time.monotonic()
        # Its nodes give events to themselves only: all others are lost.
        round_ = Round(fleet, ledger, given, [cid_of(b"topic")])
        round_.play()
        assert time.monotonic() - began_s > 2 * given.patience_s
    assert 0 < round_.figures().wall_s < given.patience_s


def test_the_table_names_everyone_and_their_losses() -> None:
    figures = compare(Load(nodes=2, events=2, topics=1, quiet_s_min=0.2), ["bare"])
    figures["bare"].died.append("node 1: SIGKILL")
    table = to_text(figures)
    assert "2 of 2" in table
    assert "bare: node 1: SIGKILL" in table


def test_an_unknown_contestant_is_refused() -> None:
    with pytest.raises(LocalError, match="no contestant 'carrier pigeon'"):
        compare(Load(), ["carrier pigeon"])


def test_a_payload_must_hold_its_number() -> None:
    with pytest.raises(LocalError, match="at least 8 bytes"):
        Load(payload_bytes=7)
