"""Quality of service: the pipeline's figures against the simulator's own counters and DuckDB's.

All runs are measured in one job, as they would be by a user with many; the tests only compare.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pulsarcast.pipeline import quality, schema
from pulsarcast.pipeline.quality.coverage import COUNTS
from pulsarcast.simulation import random_plan
from pulsarcast.simulation.results import Result
from tests.pipeline import quality_oracle as oracle
from tests.pipeline.quality_runs import (
    ENOUGH,
    RANDOM,
    SEQUENCED,
    THESIS,
    simulate,
    simulate_thesis,
    tell_all,
)

# One job over all runs; how long it takes on a quiet machine has not been measured.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

Row = dict[str, Any]
WRONG = (6, 51)
"""Random seeds that are also played with clocks that are 30 s off and drift by 200 ppm."""


@dataclass
class Measured:
    """Runs, what their makers counted, and what both engines say."""

    results: dict[str, Result]
    tales: dict[str, dict[str, int]]
    tables: dict[str, list[Row]]
    database: duckdb.DuckDBPyConnection

    def of(self, table: str, **chosen: Any) -> list[Row]:
        """The rows of a table that have these values."""
        return [
            row
            for row in self.tables[table]
            if all(row[name] == value for name, value in chosen.items())
        ]

    def run(self, run_id: str, scope: str = "own") -> Row:
        """What a run came to."""
        (row,) = self.of("runs", run_id=run_id, scope=scope)
        return row


def read(spark: SparkSession, folder: Path) -> DataFrame:
    """All lines below a folder, with what ingest adds."""
    lines = spark.read.schema(schema.LINE).json(str(folder / "*" / "*.ndjson.zst"))
    return lines.select(
        *lines.columns,
        F.lit(None).cast("string").alias("unknown"),
        F.lit(None).cast("string").alias("segment"),
        F.lit(None).cast("bigint").alias("line_number"),
    )


def with_wrong_clocks(lines: DataFrame) -> DataFrame:
    """The same lines by clocks that are up to 30 s off and drift by 200 ppm, as runs of their own.

    Which way a node's clock is wrong hangs on its name.
    """
    side = F.when(F.pmod(F.xxhash64("node_id"), F.lit(2)) == 0, 1).otherwise(-1)
    drifted = F.col("mono_ns") + side * F.floor(F.col("mono_ns") / 5_000)
    return lines.select(
        *(name for name in lines.columns if name not in ("run_id", "wall_ns", "mono_ns")),
        F.concat("run_id", F.lit("/wrong clocks")).alias("run_id"),
        (F.col("wall_ns") + side * F.lit(30_000_000_000) + drifted - F.col("mono_ns")).alias(
            "wall_ns"
        ),
        (drifted + F.lit(60_000_000_000) + side * F.lit(30_000_000_000)).alias("mono_ns"),
    )


def wrong_clock(rng: Random) -> tuple[float, float]:
    """A clock as wrong as can be, for the plan of a random run."""
    return 30.0 * rng.choice((-1.0, 1.0)), 200.0 * rng.choice((-1.0, 1.0))


@pytest.fixture(scope="module")
def measured(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Measured:
    folder = tmp_path_factory.mktemp("traces")
    results = {name: simulate_thesis(folder, name) for name in THESIS}
    results |= {
        f"seed-{seed}": simulate(folder, f"seed-{seed}", "random", seed=seed) for seed in RANDOM
    }
    results |= {
        f"sequenced-{seed}": simulate(folder, f"sequenced-{seed}", "sequenced", seed=seed)
        for seed in SEQUENCED
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(random_plan, "_clock", wrong_clock)
        for seed in WRONG:
            name = f"seed-{seed}-wrong"
            results[name] = simulate(folder, name, "random", seed=seed)
    tales = tell_all(folder)
    right = read(spark, folder).persist()
    shifted = with_wrong_clocks(right.where(F.col("run_id").isin(*THESIS)))
    with quality.computed(right.unionByName(shifted)) as tables:
        rows = {name: [row.asDict() for row in t.collect()] for name, t in tables.items()}
    right.unpersist()
    folders = [path for path in sorted(folder.iterdir()) if path.is_dir()]
    return Measured(results, tales, rows, oracle.open_traces(folders))


def unshifted(rows: list[Row]) -> list[Row]:
    return [row for row in rows if not row["run_id"].endswith("/wrong clocks")]


def in_order(rows: list[Row]) -> list[tuple[Any, ...]]:
    """Rows as tuples that can be sorted, with nothing before something."""
    return sorted(
        tuple((value is not None, value) for _, value in sorted(row.items())) for row in rows
    )


# The runs' own counters.


SIMULATED = (*THESIS, *(f"seed-{seed}" for seed in RANDOM), *(f"seed-{s}-wrong" for s in WRONG))
SHARED = tuple(f"sequenced-{seed}" for seed in SEQUENCED)


@pytest.mark.parametrize("name", [*SIMULATED, *SHARED])
def test_coverage_is_what_the_run_itself_counted(measured: Measured, name: str) -> None:
    result = measured.results[name]
    own, all_ = measured.run(name), measured.run(name, "all")
    same = ("due", "delivered", "undecided", "retired", "unacknowledged_lost", "subscriptions")
    assert {key: own[key] for key in same} == {key: getattr(result, key) for key in same}
    assert own["published"] == result.events
    assert all_["redeliveries"] == result.redeliveries
    assert all_["duplicates"] == result.duplicates
    assert all_["lost"] == result.findings.get("lost", 0)
    assert all_["lost_acknowledged"] == result.lost_acknowledged


def test_something_was_lost_and_something_came_twice(measured: Measured) -> None:
    """Else the test above would prove little."""
    for name in ("lost-1", "lost-2"):
        assert measured.run(name)["lost"] >= ENOUGH, name
    for name in ("twice-1", "twice-2", "lying-disk"):
        assert measured.run(name)["duplicates"] >= ENOUGH, name
    assert measured.run("seed-51")["undecided"] > 0
    assert measured.run("seed-227")["retired"] > 0
    assert measured.run("faults")["redeliveries"] > 0
    assert measured.run("churn")["ended_subscriptions"] > 0


@pytest.mark.parametrize("name", SIMULATED)
def test_hops_are_what_the_run_itself_counted(measured: Measured, name: str) -> None:
    """Not with several sequencers: there a run takes all events for those of the first to lead."""
    result = measured.results[name]
    (row,) = measured.of("distributions", run_id=name, measure="hops", scope="all")
    assert (round(row["mean"], 4), row["max"]) == (result.hops_mean, result.hops_max)


@pytest.mark.parametrize("name", [*SIMULATED, *SHARED])
def test_gaps_are_what_the_run_itself_counted(measured: Measured, name: str) -> None:
    result, row = measured.results[name], measured.run(name, "all")
    assert (row["gaps_found"] or 0, row["gaps_filled"] or 0) == (
        result.gaps_found,
        result.gaps_filled,
    )


@pytest.mark.parametrize("name", ["plain", "faults"])
def test_messages_by_operation_are_what_the_network_carried(measured: Measured, name: str) -> None:
    sent: dict[str, int] = {}
    for row in measured.of("operations", run_id=name):
        sent[row["operation"]] = sent.get(row["operation"], 0) + row["rpc_sent"]
    assert sent == measured.results[name].messages


def test_what_was_promised_is_what_the_driver_heard(measured: Measured) -> None:
    for name in ("plain", "latency", "churn"):
        result, row = measured.results[name], measured.run(name)
        assert row["acknowledged"] == result.acknowledged == row["injected_published"]
        assert row["replicated"] == result.levels["replicated"]


# Tales, counted by the simulator's checkers.


def test_every_tale_counts_as_the_simulator_counts_it(measured: Measured) -> None:
    said = {
        name: {key: measured.run(name)[key] for key in measured.tales[name]}
        for name in measured.tales
    }
    assert said == measured.tales


@pytest.mark.parametrize(
    ("tale", "due", "delivered", "more"),
    [
        ("a-late-subscriber", 3, 3, {"received": 3}),
        ("a-leaver-that-knew-more", 9, 9, {"undecided": 2, "ended_subscriptions": 1}),
        ("a-disk-lost-between-two-subscriptions", 4, 4, {"received": 4, "undecided": 0}),
        ("deliveries-that-come-again", 6, 6, {"redeliveries": 4, "duplicates": 3}),
        ("a-number-taken-back", 4, 4, {"published": 2, "received": 4}),
        ("events-lost-before-anyone-was-told", 3, 0, {"unacknowledged_lost": 4, "lost": 3}),
        ("events-that-no-one-sequencer-can-lose", 4, 1, {"unacknowledged_lost": 0, "lost": 3}),
        ("a-killed-publisher-whose-event-left", 4, 1, {"unacknowledged_lost": 0, "lost": 3}),
        ("an-event-that-retention-let-go", 6, 5, {"retired": 2, "lost_acknowledged": 1}),
        ("an-event-that-a-flush-let-go", 13, 11, {"retired": 2, "lost": 2, "lost_acknowledged": 2}),
        ("twins-of-a-request", 6, 6, {"duplicates": 1, "received": 5}),
        ("a-twin-before-the-start", 1, 1, {"undecided": 1}),
        ("twins-in-two-subscriptions", 3, 3, {"duplicates": 0, "received": 2}),
        ("events-without-requests", 6, 5, {"lost": 1, "duplicates": 0, "received": 5}),
        ("an-event-in-anothers-name", 2, 2, {"published": 1, "received": 2}),
        ("injections", 6, 6, {"injected": 3, "injected_published": 2, "due_of_injected": 9}),
    ],
)
def test_a_tale_comes_to(
    measured: Measured, tale: str, due: int, delivered: int, more: dict[str, int]
) -> None:
    row = measured.run(tale)
    assert (row["due"], row["delivered"]) == (due, delivered)
    assert {key: row[key] for key in more} == more


def test_a_topic_that_nobody_made_is_counted_apart(measured: Measured) -> None:
    own, meta, all_ = (measured.run("injections", scope) for scope in ("own", "meta", "all"))
    assert (own["subscriptions"], meta["subscriptions"], all_["subscriptions"]) == (3, 1, 4)
    assert (own["injected"], meta["injected"], all_["injected"]) == (3, 1, 4)


def test_a_nodes_totals_are_the_sums_of_its_lives(measured: Measured) -> None:
    rows = [row for row in measured.of("nodes", run_id="resources") if row["cpu_us"] is not None]
    used = sorted(
        (r["cpu_us"], r["cpu_milli_max"], r["rss_bytes_max"], r["bytes_in"], r["bytes_out"])
        for r in rows
    )
    # 0.75 s of processor time in one second; of the other node there is one line only.
    assert used == [(0, None, 9_000_000_000, 5, 6), (2_750_000, 750, 3_000, 31, 42)]
    (memory,) = measured.of("distributions", run_id="resources", measure="rss_bytes_max")
    assert (memory["count"], memory["total"], memory["p95"]) == (2, 9_000_003_000, 9_000_000_000)


def test_a_gap_is_repaired_from_when_it_was_found_by_one_clock(measured: Measured) -> None:
    values = [
        (row["value"], row["count"])
        for row in measured.of("histograms", run_id="gaps", measure="gap_repair")
    ]
    assert values == [(1_000, 2), (2_000, 1)]
    row = measured.run("gaps")
    assert (row["gaps_found"], row["gaps_filled"], row["gaps_measured"]) == (6, 4, 3)


def test_fan_out_is_the_number_of_peers_a_node_sent_events_to(measured: Measured) -> None:
    (row,) = measured.of("distributions", run_id="messages", measure="fan_out", scope="own")
    assert (row["count"], row["total"], row["p50"], row["max"]) == (2, 4, 1, 3)
    sent = sorted(row["rpc_sent"] for row in measured.of("nodes", run_id="messages"))
    assert sent == [0, 1, 1, 4]
    (topic,) = measured.of("topics", run_id="messages")
    assert (topic["rpc_sent"], topic["rpc_received"]) == (5, 5)
    assert measured.run("messages", "all")["rpc_sent"] == 6


# DuckDB's answers.


def test_every_count_of_every_topic_is_what_duckdb_says(measured: Measured) -> None:
    ours = [
        {key: row[key] for key in ("run_id", "topic", *COUNTS)}
        for row in unshifted(measured.tables["topics"])
    ]
    theirs = oracle.ask(measured.database, oracle.COVERAGE)
    assert in_order(ours) == in_order(theirs)
    assert len(ours) > 100


@pytest.mark.parametrize(
    ("measure", "question"),
    [("hops", oracle.HOPS), ("gap_repair", oracle.REPAIR), ("fan_out", oracle.FAN_OUT)],
)
def test_every_histogram_is_what_duckdb_says(
    measured: Measured, measure: str, question: str
) -> None:
    ours = [
        {key: row[key] for key in ("run_id", "topic", "value", "count")}
        for row in unshifted(measured.of("histograms", measure=measure))
    ]
    assert in_order(ours) == in_order(oracle.ask(measured.database, question))
    assert ours


def test_every_latency_is_what_duckdb_says(measured: Measured) -> None:
    measures = ("latency_low", "latency_high")
    ours = [
        row for measure in measures for row in unshifted(measured.of("histograms", measure=measure))
    ]
    assert in_order(ours) == in_order(oracle.ask(measured.database, oracle.LATENCY))
    unmeasured = [
        {"run_id": row["run_id"], "topic": row["topic"], "count": row["latency_unmeasured"]}
        for row in unshifted(measured.tables["topics"])
        if row["latency_unmeasured"]
    ]
    assert in_order(unmeasured) == in_order(oracle.ask(measured.database, oracle.UNMEASURED))


def test_every_operation_and_every_node_is_what_duckdb_says(measured: Measured) -> None:
    operations = unshifted(measured.tables["operations"])
    assert in_order(operations) == in_order(oracle.ask(measured.database, oracle.OPERATIONS))
    theirs = oracle.ask(measured.database, oracle.NODES)
    ours = [{key: row[key] for key in theirs[0]} for row in unshifted(measured.tables["nodes"])]
    assert in_order(ours) == in_order(theirs)


def test_every_summary_follows_from_its_histogram(measured: Measured) -> None:
    groups: dict[tuple[str, str, str | None], dict[int, int]] = {}
    for row in measured.tables["histograms"]:
        group = groups.setdefault((row["run_id"], row["measure"], row["topic"]), {})
        group[row["value"]] = group.get(row["value"], 0) + row["count"]
    summaries = [
        row for row in measured.tables["distributions"] if row["scope"] in ("topic", "nodes")
    ]
    assert len(summaries) > 200
    for row in summaries:
        values = groups[row["run_id"], row["measure"], row["topic"]]
        every = sorted(value for value, count in values.items() for _ in range(count))
        number, total = len(every), sum(every)
        variance = number * sum(value * value for value in every) - total * total
        assert (row["count"], row["total"], row["max"]) == (number, total, every[-1])
        assert row["mean"] == total / number
        assert row["deviation"] == math.sqrt(variance) / number
        for percent in (50, 95, 99):
            assert row[f"p{percent}"] == every[-(-percent * number // 100) - 1]


# Clocks.


def test_wrong_clocks_change_nothing_but_what_clocks_measure(measured: Measured) -> None:
    by_clock = {"latency_unmeasured"}
    names = [name for name in quality.FIGURES if name not in by_clock]
    for run in THESIS:
        for table in ("topics", "runs"):
            right = measured.of(table, run_id=run)
            wrong = measured.of(table, run_id=f"{run}/wrong clocks")
            assert right
            assert [[row[name] for name in names] for row in right] == [
                [row[name] for name in names] for row in wrong
            ]
        for measure in ("hops", "fan_out", "rpc_sent"):
            right = measured.of("histograms", run_id=run, measure=measure)
            wrong = measured.of("histograms", run_id=f"{run}/wrong clocks", measure=measure)
            assert [{**row, "run_id": run} for row in wrong] == right


@pytest.mark.parametrize("suffix", ["", "/wrong clocks"])
def test_the_true_latency_lies_within_the_bounds(measured: Measured, suffix: str) -> None:
    """Every delivery of the plain run has bounds; the simulator knows the truth, in 10 ms."""
    result = measured.results["plain"]
    low, high = (
        measured.of("distributions", run_id=f"plain{suffix}", measure=measure, scope="all")[0]
        for measure in ("latency_low", "latency_high")
    )
    assert measured.run(f"plain{suffix}", "all")["latency_unmeasured"] is None
    for share, truth_s in (("p50", result.latency_p50_s), ("p99", result.latency_p99_s)):
        assert low[share] <= 1_000 * truth_s <= high[share] + 10
    assert low["p99"] > 0
    assert high["p50"] - low["p50"] < 1_000


def test_latency_of_sequencers_goes_by_the_clock_of_whoever_said_an_event(
    measured: Measured,
) -> None:
    """Three sequencers whose clocks are far apart; a fourth node only listens, and bounds nothing.

    From 0 to 1 it took 1 s and 4 s, back 1 s; from 0 to 2 it took 2 s and 3 s, back 1 s; between 1
    and 2 it took 2 s both ways. What two of them said is not measured, nor what a node said itself.
    """
    name = "sequencers-with-clocks-of-their-own"
    low, high = (
        [
            (row["value"], row["count"])
            for row in measured.of("histograms", run_id=name, measure=measure)
        ]
        for measure in ("latency_low", "latency_high")
    )
    # To a whole number of seconds, but for the drift.
    assert low == [(0, 6), (971, 1), (2_971, 1)]
    assert high == [(2_026, 2), (3_027, 2), (4_028, 3), (5_028, 1)]
    assert measured.run(name)["latency_unmeasured"] == 4 + 3


def test_rows_come_in_a_fixed_order(measured: Measured) -> None:
    for name, order in quality.SORTED.items():
        keys = [
            tuple((row[column] is not None, row[column]) for column in order)
            for row in measured.tables[name]
        ]
        assert keys == sorted(keys), name
        assert len(set(keys)) == len(keys), name
