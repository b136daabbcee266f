"""Positions across terms are one order: Spark judges runs with changing leaders as we do."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession

from pulsarcast.pipeline.checks import COMMON
from pulsarcast.pipeline.checks.findings import TRACES_ONLY
from pulsarcast.simulation.options import load
from pulsarcast.simulation.scenario import run_scenario
from tests.pipeline.judging import Judged, judge_lines, read_traces

RUNS: dict[str, tuple[int, str | None]] = {
    "leaders change": (3, None),
    "without certificates": (173, "certificates"),
}
"""By name: the seed, and the safeguard that is switched off."""


@cache
def judged(spark: SparkSession, folder: Path) -> tuple[Judged, dict[str, dict[str, int]]]:
    counted: dict[str, dict[str, int]] = {}
    for name, (seed, without) in RUNS.items():
        options = msgspec.structs.replace(
            load("sequenced"),
            seed=seed,
            without=without,
            share_verification=True,
            trace=str(folder / name),
            run_id=name,
            settle_s_max=200.0,
        )
        counted[name] = run_scenario(options).findings
    return judge_lines(spark, list(read_traces(folder))), counted


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sequenced")


def test_a_run_in_which_leaders_change_is_clean(spark: SparkSession, folder: Path) -> None:
    verdict, counted = judged(spark, folder)
    assert verdict.of("leaders change") == counted["leaders change"] == {}
    assert "leaders change" not in verdict.reasons


def test_without_certificates_both_find_the_fork(spark: SparkSession, folder: Path) -> None:
    """Which of two events stands nobody can say without a clock, nor what is linked to it."""
    verdict, counted = judged(spark, folder)
    found, known = verdict.of("without certificates"), counted["without certificates"]
    arbitrary = {"chain"}
    expected = {kind for kind in known if kind in COMMON} - arbitrary
    compared = found.keys() - arbitrary - {*TRACES_ONLY}
    assert compared == expected >= {"equivocation", "forged", "lost"}
    assert found["equivocation"] == known["equivocation"]
