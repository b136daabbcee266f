"""Positions across terms are one order: Spark judges runs with changing leaders as we do."""

from __future__ import annotations

from pyspark.sql import SparkSession

from pulsarcast.pipeline.checks import COMMON
from pulsarcast.pipeline.checks.findings import TRACES_ONLY
from tests.pipeline.shared_runs import judge_shared_runs, simulators_counts


def test_a_run_in_which_leaders_change_is_clean(spark: SparkSession) -> None:
    verdict = judge_shared_runs(spark)
    assert verdict.of("leaders change") == simulators_counts()["leaders change"] == {}
    assert "leaders change" not in verdict.reasons


def test_without_certificates_both_find_the_fork(spark: SparkSession) -> None:
    """Which of two events stands nobody can say without a clock, nor what is linked to it."""
    found = judge_shared_runs(spark).of("without certificates")
    known = simulators_counts()["without certificates"]
    arbitrary = {"chain"}
    expected = {kind for kind in known if kind in COMMON} - arbitrary
    compared = found.keys() - arbitrary - {*TRACES_ONLY}
    assert compared == expected >= {"equivocation", "forged", "lost"}
    assert found["equivocation"] == known["equivocation"]
