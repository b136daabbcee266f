"""Every kind of broken promise is found, whatever else is in the trace, and nothing else is."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pulsarcast.pipeline.checks import KINDS
from pulsarcast.pipeline.synthetic_traces import make_plan, write_traces
from tests.pipeline.judging import judge_lines, read_traces
from tests.pipeline.mutants import MUTANTS, Mutant, apply, key_of, plant, select
from tests.pipeline.shared_runs import (
    HIDDEN,
    WRONG_CLOCKS,
    judge_shared_runs,
    tell_hidden_mutants,
)
from tests.pipeline.true_stories import TRUE_STORIES


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_is_found_as_what_it_is_and_as_nothing_else(
    spark: SparkSession, mutant: Mutant
) -> None:
    judged = judge_shared_runs(spark)
    assert judged.of(mutant.name) == mutant.found
    assert judged.reasons.get(mutant.name) is None
    assert judged.of(WRONG_CLOCKS + mutant.name) == mutant.found


def test_there_are_three_mutants_of_every_kind() -> None:
    kinds = Counter(mutant.name.split("/")[0] for mutant in MUTANTS)
    assert kinds.keys() == KINDS.keys()
    assert min(kinds.values()) == 3
    assert len(select(3)) == 3 * len(KINDS)


def test_all_mutants_at_once_are_found_among_what_is_right(spark: SparkSession) -> None:
    judged = judge_shared_runs(spark)
    assert judged.of(HIDDEN) == tell_hidden_mutants()[1]
    assert HIDDEN not in judged.reasons


@pytest.mark.parametrize("name", TRUE_STORIES)
def test_what_looks_odd_and_is_right_is_not_objected_to(spark: SparkSession, name: str) -> None:
    judged = judge_shared_runs(spark)
    for run in (name, WRONG_CLOCKS + name):
        assert judged.of(run) == {}
        assert judged.reasons.get(run) is None


def test_every_finding_shows_the_records_that_prove_it(spark: SparkSession) -> None:
    findings = judge_shared_runs(spark).findings
    assert {finding["kind"] for finding in findings} == KINDS.keys()
    for finding in findings:
        assert finding["proof"], finding
        for record in finding["proof"]:
            line = json.loads(record["line"])
            named = (record["node_id"], record["incarnation"], record["seq"])
            assert key_of(line) == (finding["run_id"], *named)
            assert (record["segment"], record["line_number"] > 0) == ("a segment", True)
        shown = " ".join(record["line"] for record in finding["proof"])
        # What a finding is about is in the lines that it shows.
        for name in ("topic", "event", "node_id"):
            if finding[name] is not None:
                assert finding[name] in shown, (finding["kind"], name)


def test_a_disorder_is_proved_by_both_deliveries(spark: SparkSession) -> None:
    findings = [each for each in judge_shared_runs(spark).findings if each["kind"] == "order"]
    assert findings
    for finding in findings:
        late, early = (json.loads(record["line"]) for record in finding["proof"])
        assert (late["kind"], early["kind"]) == ("delivered", "delivered")
        assert late["number"] < early["number"]
        assert late["seq"] > early["seq"]
        assert late["event"] == finding["event"]


@pytest.mark.slow
def test_mutants_are_found_in_a_long_trace_too(spark: SparkSession, tmp_path: Path) -> None:
    plan = make_plan(200_000, seed=3)
    write_traces(plan, tmp_path, workers=1)
    lines = list(read_traces(tmp_path))
    planted = plant(lines)
    judged = judge_lines(spark, apply(planted, lines))
    assert judged.of(plan.run_id) == planted.expected
    assert judged.reasons == {}
