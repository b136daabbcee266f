"""Spark's rows are the matcher's: on random filters and events, and on trades and quotes.

`PULSARCAST_FILTER_PAIRS` sets how many pairs of filter and event are tried.
"""

from __future__ import annotations

import csv
import gzip
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pulsarcast.model.filters import Filter, FilterError, FilterIndex, parse, point_of
from pulsarcast.model.topic_types import AttributeRule
from pulsarcast.pipeline.topics.filters import filter_column
from pulsarcast.pipeline.topics.schema import ARROW_ATTRIBUTES
from tests.unit.model.filters.strategies import EVENT_ATTRIBUTES, SCHEMA, WANTED, Wanted

T = TypeVar("T")

PAIRS = int(os.environ.get("PULSARCAST_FILTER_PAIRS", "2000"))
FILTERS = 20  # of one job
FIELDS = {bool: "bool", int: "int", float: "float", str: "text", bytes: "bytes"}


def sampled(strategy: st.SearchStrategy[T], count: int) -> list[T]:
    """Many random values: Spark judges them all in one job, so nothing is shrunk."""
    found: list[T] = []

    @settings(
        max_examples=count,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(value: T) -> None:
        found.append(value)

    collect()
    return found[:count]


def table_of(spark: SparkSession, events: Sequence[Mapping[str, Any]]) -> DataFrame:
    """Events with their attributes as the source has them."""
    maps = [
        [(name, {FIELDS[type(value)]: value}) for name, value in event.items()] for event in events
    ]
    columns = [pa.array(range(len(events)), pa.int64()), pa.array(maps, ARROW_ATTRIBUTES)]
    table = spark.createDataFrame(pa.table(columns, names=["at", "attributes"]))
    return table.coalesce(1) if len(events) < 1000 else table


def in_spark(table: DataFrame, filters: list[Filter]) -> Iterator[list[bool]]:
    """What Spark says of each event, filter by filter."""
    chosen = [filter_column(each).alias(f"f{at}") for at, each in enumerate(filters)]
    found = table.select("at", *chosen).orderBy("at").toArrow()
    for at in range(len(filters)):
        yield found.column(f"f{at}").to_pylist()


@pytest.mark.timeout(3600)
def test_spark_says_what_the_judge_and_the_matcher_say(spark: SparkSession) -> None:
    count = min(500, math.ceil(PAIRS / FILTERS))
    left = PAIRS
    while left > 0:
        events = sampled(EVENT_ATTRIBUTES, count)
        wanted: list[tuple[Wanted, Filter]] = []
        for each in sampled(WANTED, 2 * FILTERS):
            try:
                wanted.append((each, parse(each.text, SCHEMA)))
            except FilterError as error:
                if not error.beyond_bounds:
                    raise
        wanted = wanted[-FILTERS:]  # the first ones that are drawn are simple
        answers = in_spark(table_of(spark, events), [each for _, each in wanted])
        for (asked, own), answer in zip(wanted, answers, strict=True):
            for event, found in zip(events, answer, strict=True):
                assert found is (asked.judge(event) is True), (own.text(), event)
                assert found is own.matches(event), (own.text(), event)
        left -= len(events) * len(wanted)


@pytest.mark.parametrize(
    ("text", "attributes", "expected"),
    [
        ("any = 0", {"any": -0.0}, True),
        ("any < 0 or any >= 0", {"any": float("nan")}, False),
        ("any is missing", {"any": float("inf")}, True),
        ("any = 9007199254740992", {"any": 2**53 + 1}, True),
        ("long = 9007199254740992", {"long": 2**53 + 1}, False),
        ("long = -9223372036854775808", {"long": -(2**63)}, True),
        ("symbol > '\uffff'", {"symbol": "\U0001f600"}, True),
        ("symbol starts with '\U0001f600'", {"symbol": "\U0001f600!"}, True),
        ("symbol = 'a\0b'", {"symbol": "a\0b"}, True),
        ("symbol = '%' or symbol starts with '_'", {"symbol": "a"}, False),
        ("symbol matches r'^\\pL+$'".replace("r'", "'"), {"symbol": "é"}, True),
        ("symbol matches '(?i)IBM' and not hot", {"symbol": "ibm", "hot": False}, True),
        ("not symbol matches 'a'", {}, False),
        ("`odd ``name` = 'x'", {"odd `name": "x"}, True),
        ("number = 5", {"number": 5.0}, False),
    ],
)
def test_what_is_easily_got_wrong_is_the_same_in_spark(
    spark: SparkSession, text: str, attributes: dict[str, Any], expected: bool
) -> None:
    wanted = parse(text, SCHEMA)
    assert wanted.matches(attributes) is expected
    (answer,) = in_spark(table_of(spark, [attributes]), [wanted])
    assert answer == [expected]


# Trades and quotes

TICKS = (
    AttributeRule("PRICE", "float", 0, 1000),
    AttributeRule("SIZE", "int", 0, 1_000_000),
    AttributeRule("BID", "float", 0, 1000),
    AttributeRule("OFR", "float", 0, 1000),
    AttributeRule("BIDSIZ", "int", 0, 10_000),
    AttributeRule("OFRSIZ", "int", 0, 10_000),
    AttributeRule("SYMBOL", "str"),
    AttributeRule("EX", "str"),
    AttributeRule("COND", "str"),
    AttributeRule("DT", "timestamp"),
)
ASKED = (
    "PRICE < 158 and SIZE > 50",
    "PRICE in 157..<158 or BID in 157..<158",
    "BID > 150 and OFR < 160 and BIDSIZ >= 2 and OFRSIZ >= 2",
    "SYMBOL = 'ETF' and SIZE not in (100, 200, 300)",
    "COND matches '^[FT]+I?$' and not (EX = 'P' or EX starts with 'N')",
    "EX in ('P', 'N', 'Q') and PRICE is present",
    "PRICE is missing and OFR - 1 > BID".replace("OFR - 1 > BID", "OFR > 158.85"),
    "not (PRICE < 158.5 and SIZE < 100)",
    "DT >= 2018-01-02T15:00:00Z and DT < 2018-01-02T16:00:00Z",
    "SYMBOL ends with 'X' and (PRICE > 158 or OFR > 158 or SIZE >= 1000)",
)


def ticks(shared_data: Callable[[str], Path]) -> Iterator[dict[str, Any]]:
    """Trades and quotes as events: with the attributes that each has."""
    step = 1 if PAIRS >= 100_000 else 20
    kinds = {rule.name: rule.type for rule in TICKS}
    for name in ("sampleMultiTradeData", "sampleQDataRaw", "sampleTDataRaw"):
        with gzip.open(shared_data(f"ticks/{name}.csv.gz"), "rt", newline="") as file:
            for number, row in enumerate(csv.DictReader(file)):
                if number % step == 0:
                    yield {key: _value(kinds[key], row[key]) for key in kinds if row.get(key)}


def _value(kind: str, text: str) -> Any:
    if kind == "timestamp":
        return round(float(text) * 1e6)
    if kind == "int":
        return int(float(text))
    return float(text) if kind == "float" else text


@pytest.mark.timeout(3600)
def test_trades_and_quotes_match_the_same_filters_everywhere(
    spark: SparkSession, shared_data: Callable[[str], Path]
) -> None:
    events = list(ticks(shared_data))
    filters = [parse(text, TICKS) for text in ASKED]
    index: FilterIndex[int] = FilterIndex(TICKS)
    for key, each in enumerate(filters):
        index.insert(key, each)
    answers = list(in_spark(table_of(spark, events), filters))
    counts = [sum(answer) for answer in answers]
    assert all(0 < count < len(events) for count in counts), counts
    for event, said in zip(events, zip(*answers, strict=True), strict=True):
        expected = {key for key, found in enumerate(said) if found}
        assert {key for key, each in enumerate(filters) if each.matches(event)} == expected
        assert index.matching(event) == expected
        point = point_of(TICKS, event)
        for key in expected:
            assert any(box.contains(point) for box in filters[key].cover())


def test_a_row_without_attributes_matches_nothing_that_is_asked_of_them(
    spark: SparkSession,
) -> None:
    table = table_of(spark, [{}]).withColumn("attributes", F.lit(None).cast(_attributes_type()))
    wanted = [parse("price < 5 or price >= 5", SCHEMA), parse("price is missing", SCHEMA)]
    assert [answer[0] for answer in in_spark(table, wanted)] == [False, True]


def _attributes_type() -> str:
    from pulsarcast.pipeline.topics.schema import spark_schema

    return str(spark_schema()["attributes"].dataType.simpleString())
