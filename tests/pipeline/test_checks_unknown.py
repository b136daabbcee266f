"""A trace that is not whole is never called clean."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.pipeline.incomplete_traces import INCOMPLETE
from tests.pipeline.shared_runs import judge_shared_runs


@pytest.mark.parametrize("run", INCOMPLETE)
def test_what_is_missing_is_named(spark: SparkSession, run: str) -> None:
    judged = judge_shared_runs(spark)
    assert judged.reasons.get(run, {}) == INCOMPLETE[run][1]
    assert judged.of(run) == {}
