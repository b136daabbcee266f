"""Experiments: the same seed gives the same figures, and each figure is what its name says."""

from __future__ import annotations

import msgspec
import pytest

from pulsarcast.simulation.vcube.experiments import run, run_written
from pulsarcast.simulation.vcube.settings import Setting

SMALL = [
    Setting(experiment="publish", nodes=64, subscribers=0.25),
    Setting(experiment="publish", nodes=64, subscribers=0.25, system="srpt"),
    Setting(experiment="publish", nodes=64, publishers=1.0, combine_max=8),
    Setting(experiment="publish", nodes=64, system="brokers", brokers=8, messages=4),
    Setting(experiment="order", nodes=16),
    Setting(experiment="order", nodes=16, first_messages=3, answer="uniform"),
    Setting(experiment="topics", nodes=16, topics=8, zipf=0.825, messages=64),
    Setting(experiment="topics", nodes=16, topics=8, messages=64, system="srpt"),
    Setting(experiment="churn", nodes=32, members=24, session_s=10.0, duration_s=5.0),
    Setting(experiment="churn", nodes=32, members=24, session_s=10.0, system="srpt"),
    Setting(experiment="stream", nodes=16, messages=10, waits=False),
    Setting(experiment="views", nodes=64, bucket=2, missing=0.1, dead=0.1, repair="far"),
]


@pytest.mark.parametrize("setting", SMALL, ids=lambda each: f"{each.experiment} {each.system}")
def test_a_setting_and_a_seed_are_all_that_figures_depend_on(setting: Setting) -> None:
    figures = run(setting, 1)
    assert figures["deliveries"] > 0
    assert run_written(msgspec.json.encode(setting).decode(), 1) == figures
    assert run(setting, 2) != figures


def test_one_publisher_reaches_all_subscribers_with_one_message_each() -> None:
    figures = run(SMALL[0], 1)
    assert figures["deliveries"] == figures["messages"] == 15
    assert figures["coverage"] == 1.0
    assert figures["false_positives"] == 0
    assert figures["latency_mean"] >= 102


def test_a_single_root_needs_forwarders() -> None:
    figures = run(SMALL[1], 1)
    assert figures["deliveries"] == 15
    # Who subscribes and is the root gets it without a message of the tree's.
    assert figures["messages"] - figures["false_positives"] in {14, 15, 16}
    assert figures["false_positives"] > 0


def test_combining_saves_transmissions_and_loses_nothing() -> None:
    together = run(SMALL[2], 1)
    apart = run(msgspec.structs.replace(SMALL[2], combine_max=1), 1)
    assert together["deliveries"] == apart["deliveries"] == 64 * 63
    assert together["messages"] < apart["messages"]


def test_a_publisher_that_does_not_wait_is_sooner_done_and_keeps_the_order() -> None:
    fast = Setting(experiment="stream", nodes=16, messages=20, interval=10.0, waits=False)
    figures = run(fast, 1)
    waiting = run(msgspec.structs.replace(fast, waits=True), 1)
    assert figures["overtaken"] == waiting["overtaken"] == 0
    assert figures["finished_at"] * 4 < waiting["finished_at"]
    assert figures["deliveries"] == waiting["deliveries"] == 20 * 15


def test_without_churn_everything_due_arrives_and_nothing_else() -> None:
    for system in ("vcube", "srpt"):
        setting = Setting(experiment="churn", nodes=32, members=24, system=system)
        figures = run(setting, 1)
        assert figures["coverage_percent"] == 100
        assert figures["swaps"] == 0
