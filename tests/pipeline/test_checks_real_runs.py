"""Real nodes: Spark and the simulator's checkers judge the same traces alike, clean and tampered.

The one asks no clock and joins tables; the others hear all nodes at once, by the machine's clock.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.sql import SparkSession

from pulsarcast.model.trace import decode_line
from pulsarcast.pipeline.checks import COMMON
from pulsarcast.testbed.hearing import hear
from tests.pipeline.judging import Judged, judge_lines, read_traces
from tests.pipeline.real_runs import play_elsewhere
from tests.pipeline.stories import Line
from tests.pipeline.tampering import CAUSAL, SEQUENCED, Tamper, tampered

CLEAN = "clean"
EXPECTED = {
    "sequenced/left out": {"lost": 1},
    "sequenced/given another": {"forged": 1, "lost": 1},
    "sequenced/acknowledged and unheard of": {"acknowledged_unpublished": 1},
    "sequenced/exchanged": {"order": 1},
    "sequenced/linked to another": {"chain": 1},
    "sequenced/asked once and placed twice": {"published_twice": 1, "duplicate": 5},
    "sequenced/two lead": {"election": 1},
    "causal/given another": {"forged": 1},
}
"""At least these are found, where one can say beforehand what."""


def _unchanged(lines: list[Line]) -> None:
    pass


def tell(folder: Path) -> dict[str, list[Line]]:
    """The lines of the two runs in a folder, and what tampering makes of them."""
    runs: dict[str, list[Line]] = {}
    ways: Mapping[str, Mapping[str, Tamper]] = {"sequenced": SEQUENCED, "causal": CAUSAL}
    for kind, tampers in ways.items():
        lines = sorted(read_traces(folder / kind), key=lambda line: line["mono_ns"])
        for name, tamper in {CLEAN: _unchanged, **tampers}.items():
            runs[f"{kind}/{name}"] = tampered(lines, tamper, f"{kind}/{name}")
    return runs


class Both(NamedTuple):
    """What Spark made of all runs, and what was heard in each."""

    verdict: Judged
    heard: dict[str, dict[str, int]]


@pytest.fixture(scope="module")
def judged(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Both:
    folder = tmp_path_factory.mktemp("real")
    play_elsewhere(folder)
    runs = tell(folder)
    heard = {
        name: hear(decode_line(json.dumps(line)) for line in lines).findings
        for name, lines in runs.items()
    }
    return Both(judge_lines(spark, [line for lines in runs.values() for line in lines]), heard)


@pytest.mark.parametrize("kind", ["sequenced", "causal"])
def test_both_find_nothing_in_a_clean_run(judged: Both, kind: str) -> None:
    verdict, heard = judged
    name = f"{kind}/{CLEAN}"
    assert verdict.of(name) == heard[name] == {}
    assert name not in verdict.reasons


@pytest.mark.parametrize(
    "name", [*(f"sequenced/{each}" for each in SEQUENCED), *(f"causal/{each}" for each in CAUSAL)]
)
def test_both_find_the_same_in_a_run_that_was_tampered_with(judged: Both, name: str) -> None:
    verdict, heard = judged
    found = {kind: count for kind, count in verdict.of(name).items() if kind in COMMON}
    assert found == heard[name] != {}
    assert found.items() >= EXPECTED.get(name, {}).items()
