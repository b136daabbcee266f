"""All small runs that tests of the checks look at, judged once: each test asks about its own."""

from __future__ import annotations

import tempfile
from collections import Counter
from functools import cache
from pathlib import Path
from random import Random

from pyspark.sql import SparkSession

from tests.pipeline.filtered_stories import FILTERED
from tests.pipeline.incomplete_traces import INCOMPLETE
from tests.pipeline.judging import Judged, judge_lines, read_traces, simulate, with_wrong_clocks
from tests.pipeline.mutants import MUTANTS, apply, plant
from tests.pipeline.stories import Line, Story, name_of, tell
from tests.pipeline.true_stories import TRUE_STORIES

NAMES = [name_of(node) for node in range(3)]
WRONG_CLOCKS = "wrong clocks: "
HIDDEN = "all mutants in one run"

SIMULATED: dict[str, tuple[int, str | None]] = {
    "cut and paused": (6, None),
    "killed and lost": (2, None),
    "restarted without a disk": (5, None),
    "without frontier comparison": (2, "frontier-comparison"),
    "without duplicate suppression": (3, "duplicate-suppression"),
    "with a disk that lies": (2, "disk-sync"),
    "in causal order": (9, None),
    "without causal barriers": (9, "causal-barrier"),
    "with heads that are dropped": (9, "merge-events"),
}
"""Random runs by name: the seed, and the safeguard that is switched off."""
SEQUENCED: dict[str, tuple[int, str | None]] = {
    "leaders change": (3, None),
    "without certificates": (173, "certificates"),
}
"""The same of topics with several sequencers."""


@cache
def judge_shared_runs(spark: SparkSession) -> Judged:
    """The verdict over all of them, and over those told by hand again with wrong clocks."""
    lines: list[Line] = []
    runs = {**tell_mutants(), **tell_true_stories(), **tell_filtered()}
    for run_id, told in runs.items():
        lines += told
        lines += with_wrong_clocks(told, WRONG_CLOCKS + run_id, Random(run_id))
    for told in simulated().values():
        lines += told
    lines += tell_hidden_mutants()[0]
    for told, _ in INCOMPLETE.values():
        lines += told
    for told in _sequenced()[0].values():
        lines += told
    Random(1).shuffle(lines)
    return judge_lines(spark, lines, prove=HIDDEN)


def simulated() -> dict[str, list[Line]]:
    """The traces of the simulator's random runs."""
    return _simulated()[0]


def simulators_counts() -> dict[str, dict[str, int]]:
    """What the simulator's own checkers counted in its runs."""
    return _simulated()[1] | _sequenced()[1]


def tell_mutants() -> dict[str, list[Line]]:
    """Every mutant in a run of its own."""
    runs = {}
    for mutant in MUTANTS:
        story = Story(mutant.name, NAMES, mutant.order)
        mutant.plot(story)
        # A run with nothing published at all would be unknown.
        other = Story(f"{mutant.name}, beside", NAMES)
        other.begin(0, 1)
        event = other.publish(0)
        other.deliver(0, event)
        other.deliver(1, event)
        runs[mutant.name] = tell([story, other], mutant.name)
    return runs


def tell_true_stories() -> dict[str, list[Line]]:
    """Everything that looks odd and is right."""
    return {name: told(name) for name, told in TRUE_STORIES.items()}


def tell_filtered() -> dict[str, list[Line]]:
    """Subscriptions with filters."""
    return {name: tell([each.story(name)], name) for name, each in FILTERED.items()}


def tell_hidden_mutants() -> tuple[list[Line], Counter[str]]:
    """All mutants in one run among true stories, in the place of lines that nobody asks about."""
    stories = []
    for at in range(12):
        story = Story(f"true {at}", [name_of(f"{at % 4} {node}") for node in range(3)])
        story.begin(0, 1, 2)
        for _ in range(4):
            event = story.publish(at % 3)
            for node in range(3):
                story.deliver(node, event)
        stories.append(story)
    clean = tell(stories, HIDDEN, fillers=4)
    planted = plant(clean)
    return list(apply(planted, clean)), planted.expected


@cache
def _simulated() -> tuple[dict[str, list[Line]], dict[str, dict[str, int]]]:
    return _simulate_all("random", SIMULATED)


@cache
def _sequenced() -> tuple[dict[str, list[Line]], dict[str, dict[str, int]]]:
    return _simulate_all("sequenced", SEQUENCED)


def _simulate_all(
    scenario: str, runs: dict[str, tuple[int, str | None]]
) -> tuple[dict[str, list[Line]], dict[str, dict[str, int]]]:
    with tempfile.TemporaryDirectory() as folder:
        counted = {
            name: simulate(Path(folder), name, seed=seed, without=without, scenario=scenario)
            for name, (seed, without) in runs.items()
        }
        return {name: list(read_traces(Path(folder) / name)) for name in runs}, counted
