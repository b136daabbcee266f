"""Content subscriptions in the simulator: random seeds, and the thesis' experiment in small."""

import msgspec
import pytest

from pulsarcast.simulation.content.experiment import Experiment
from pulsarcast.simulation.options import load
from pulsarcast.simulation.results import Result
from pulsarcast.simulation.run import no_progress
from pulsarcast.simulation.scenario import run_scenario

SEEDS = (1, 3, 4, 7, 10)
"""Joins alone; cuts and resets; an ordered topic with kills; filters that change."""


def small(**changes: object) -> Result:
    options = load("content")
    return run_scenario(msgspec.structs.replace(options, nodes=40, events=60, **changes))


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_breaks_everything_due_comes_once(seed: int) -> None:
    result = run_scenario(msgspec.structs.replace(load("random-content"), seed=seed))
    assert result.ok, result.to_text()
    assert result.due > 0


def test_the_thesis_experiment_delivers_everything_by_routing_alone() -> None:
    result = small()
    assert result.ok, result.to_text()
    assert result.delivered == result.due > 0
    assert result.counts.get("content_by_comparison", 0) == 0
    assert result.counts["content_routed"] >= result.due


def test_an_event_goes_straight_to_a_root_that_has_not_split() -> None:
    options = msgspec.structs.replace(load("content"), nodes=20, subscriptions=1, events=300)
    result = run_scenario(options)
    assert result.ok, result.to_text()
    assert (dict(each[:2] for each in result.table))["the trees"].startswith("4 leaves")
    (per_event,) = (ours for name, ours, _ in result.table if name == "messages per event")
    # Four attributes, each a way of a hop or two; guessing anew every time takes 43.
    assert float(per_event.split()[0]) < 12
    assert result.counts.get("content_by_comparison", 0) == 0


def test_multicast_takes_fewer_bytes_than_unicast() -> None:
    def probing(result: Result) -> float:
        (ours,) = (ours for name, ours, _ in result.table if name == "of which probing")
        return float(ours.split()[1])

    usual = small()
    assert probing(usual) < probing(small(probing="unicast"))
    assert usual.delivered == usual.due


def test_the_same_seed_gives_the_same_figures() -> None:
    one, two = small(subscriptions=2), small(subscriptions=2)
    assert one.messages == two.messages
    assert one.table[:-1] == two.table[:-1]


@pytest.mark.parametrize("kind", ["unasked", "unpublished"])
def test_what_nobody_asked_for_and_what_was_never_published_is_objected_to(kind: str) -> None:
    options = msgspec.structs.replace(load("content"), nodes=12, events=3, subscriptions=1)
    experiment = Experiment(options, no_progress)
    experiment.play()
    if kind == "unasked":
        experiment.ledger.unasked += 1
    else:
        experiment.ledger.inject(3, "one more", {})
    result = experiment.result()
    assert (result.ok, result.findings) == (False, {kind: 1})


def test_a_disk_that_lies_does_so_in_the_experiment_too() -> None:
    options = msgspec.structs.replace(load("content"), without="disk-sync")
    assert Experiment(options, no_progress).world._disk.lies
