"""Subscriptions with filters: judged by what was delivered, and never called clean."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.pipeline.filtered_stories import FILTERED
from tests.pipeline.shared_runs import WRONG_CLOCKS, judge_shared_runs
from tests.pipeline.test_checks_oracle import hear


@pytest.mark.parametrize("name", FILTERED)
def test_what_does_not_match_is_not_missed_and_what_is_wrong_is_found(
    spark: SparkSession, name: str
) -> None:
    judged = judge_shared_runs(spark)
    for run in (name, WRONG_CLOCKS + name):
        assert judged.of(run) == FILTERED[name].found
        reason = FILTERED[name].reason
        assert judged.reasons.get(run) == (None if reason is None else {reason: 1})


@pytest.mark.parametrize("name", FILTERED)
def test_the_simulators_checkers_find_the_same(name: str) -> None:
    assert hear(FILTERED[name].story(name)) == FILTERED[name].found
