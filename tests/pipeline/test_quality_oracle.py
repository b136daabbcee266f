"""The oracle itself: DuckDB's plain reading of a trace comes to what the simulator counted.

No Spark is needed for this; the pipeline is held against the same oracle in `test_quality`.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from pulsarcast.simulation.results import Result
from tests.pipeline import quality_oracle as oracle
from tests.pipeline.quality_runs import (
    RANDOM,
    SEQUENCED,
    THESIS,
    simulate,
    simulate_thesis,
    tell_all,
)

SIMULATED: dict[str, Callable[[Path, str], Result]] = {
    **dict.fromkeys(THESIS, simulate_thesis),
    **{f"seed-{seed}": partial(simulate, scenario="random", seed=seed) for seed in RANDOM},
    **{
        f"sequenced-{seed}": partial(simulate, scenario="sequenced", seed=seed)
        for seed in SEQUENCED
    },
}


@pytest.mark.parametrize("name", SIMULATED)
def test_duckdb_counts_what_the_run_itself_counted(tmp_path: Path, name: str) -> None:
    result = SIMULATED[name](tmp_path, name)
    database = oracle.open_traces([tmp_path / name])
    rows = oracle.ask(database, oracle.COVERAGE)
    own = {row["topic"] for row in oracle.ask(database, "FROM topic WHERE own")}

    def total(count: str, *, of_own: bool) -> int:
        return sum(row[count] for row in rows if row["topic"] in own or not of_own)

    same = ("due", "delivered", "undecided", "retired", "unacknowledged_lost", "subscriptions")
    assert {count: total(count, of_own=True) for count in same} == {
        count: getattr(result, count) for count in same
    }
    assert total("published", of_own=True) == result.events
    assert total("redeliveries", of_own=False) == result.redeliveries
    assert total("duplicates", of_own=False) == result.duplicates
    assert total("lost", of_own=False) == result.findings.get("lost", 0)


def test_duckdb_counts_every_tale_as_the_simulator_does(tmp_path: Path) -> None:
    counted = tell_all(tmp_path)
    for name, expected in counted.items():
        rows = oracle.ask(oracle.open_traces([tmp_path / name]), oracle.COVERAGE)
        assert {key: sum(row[key] for row in rows) for key in expected} == expected, name
