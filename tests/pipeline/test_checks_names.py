"""Narrow names are looked at before they are trusted."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from pulsarcast.model.errors import LocalError
from pulsarcast.pipeline.checks import deliveries, ledger
from pulsarcast.pipeline.checks.case import open_case
from pulsarcast.pipeline.checks.names import Names, choose_names
from pulsarcast.pipeline.scratch import open_scratch
from tests.pipeline.judging import as_table
from tests.pipeline.mutants import MUTANTS
from tests.pipeline.stories import Line, Story, name_of, tell

NAMES = [name_of(node) for node in range(3)]


def test_a_numbering_is_taken_under_which_no_two_names_share_a_number(spark: SparkSession) -> None:
    table = spark.range(60).selectExpr("cast(id as string) as name")

    def numbered(names: Names) -> list[DataFrame]:
        return [table.select(names.number("name"))]

    chosen = choose_names(numbered, bits=10)
    assert chosen.salt > 0, "60 names in 1,024 numbers: the first way should have failed"
    numbers = [row[0] for row in numbered(chosen)[0].collect()]
    assert len(set(numbers)) == 60
    with pytest.raises(LocalError, match="no way to number"):
        choose_names(numbered, bits=5)


def test_what_is_forged_is_found_even_where_it_shares_a_number(
    spark: SparkSession, tmp_path: Path
) -> None:
    """With so few numbers, what nobody published has the number of what somebody did."""
    lines: list[Line] = []
    expected = {}
    for mutant in MUTANTS:
        if mutant.name in ("forged/unpublished", "forged/number", "not_subscribed/never"):
            story = Story(mutant.name, NAMES, mutant.order)
            mutant.plot(story)
            lines += tell([story], mutant.name)
            expected[mutant.name] = mutant.found
    with open_scratch(tmp_path) as scratch:
        table = as_table(spark, lines, tmp_path)
        case = open_case(table, table.where("false"), scratch, bits=8)
        entered = ledger.enter(case)
        found = deliveries.find_forged(case, entered).unionByName(
            deliveries.find_not_subscribed(entered)
        )
        counts: dict[str, dict[str, int]] = {}
        for row in found.groupBy("run_id", "kind").count().collect():
            counts.setdefault(row["run_id"], {})[row["kind"]] = row["count"]
    assert counts == expected
