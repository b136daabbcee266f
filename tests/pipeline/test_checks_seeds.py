"""Traces of random runs come to the same counts as the simulator's checkers, which saw it all."""

from __future__ import annotations

from random import Random

import pytest
from pyspark.sql import SparkSession

from pulsarcast.pipeline.checks import COMMON
from tests.pipeline.judging import judge_lines, with_wrong_clocks
from tests.pipeline.shared_runs import (
    SIMULATED,
    judge_shared_runs,
    simulated,
    simulators_counts,
)


@pytest.mark.parametrize("name", SIMULATED)
def test_the_counts_are_the_simulators(spark: SparkSession, name: str) -> None:
    judged = judge_shared_runs(spark)
    counted = simulators_counts()[name]
    expected = {kind: count for kind, count in counted.items() if kind in COMMON}
    found = judged.of(name)
    assert {kind: count for kind, count in found.items() if kind in COMMON} == expected
    assert name not in judged.reasons
    is_sabotaged = SIMULATED[name][1] is not None
    assert bool(expected) == bool(found) == is_sabotaged


@pytest.mark.slow
def test_the_counts_do_not_depend_on_clocks(spark: SparkSession) -> None:
    right = judge_shared_runs(spark)
    wrong = judge_lines(
        spark,
        [
            line
            for name, told in simulated().items()
            for line in with_wrong_clocks(told, name, Random(name))
        ],
    )
    assert {name: wrong.of(name) for name in SIMULATED} == {
        name: right.of(name) for name in SIMULATED
    }
