"""The command `pipeline workload`, and what it makes played by the simulator."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from pulsarcast.cli import main
from pulsarcast.pipeline.workloads import Counts
from pulsarcast.simulation.options import load
from pulsarcast.simulation.scenario import run_scenario

Find = Callable[[str], Path]


def test_what_the_command_makes_is_what_the_simulator_plays(
    spark: SparkSession, shared_data: Find, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def shared_session(name: str, *, master: str | None) -> Iterator[SparkSession]:
        assert (name, master) == ("workload", "local[2]")
        yield spark

    monkeypatch.setattr("pulsarcast.pipeline.session.session", shared_session)
    files = [str(shared_data(f"reddit/RC_2006-0{month}.bz2")) for month in (2, 3)]
    out = tmp_path / "out"
    words = ["--nodes", "20", "--first", "500", "--master", "local[2]", "--json", "--out", str(out)]
    made = CliRunner().invoke(main, ["pipeline", "workload", "--input", *files, *words])
    assert made.exit_code == 0
    assert made.stdout.count("\n") == 1
    counts = msgspec.json.decode(made.stdout, type=Counts)
    assert counts.taken == 500
    assert counts.events == 500 - counts.deleted

    listing = str(out / "workload.ndjson.zst")
    options = msgspec.structs.replace(load("thesis"), workload=listing, nodes=20)
    result = run_scenario(options)
    assert result.ok
    assert result.due == counts.deliveries_due
    assert result.delivered == counts.deliveries_due


@pytest.mark.slow
def test_the_command_makes_comments_up_and_says_what_it_made(tmp_path: Path) -> None:
    out = tmp_path / "out"
    # A process of its own, as a person would start it.
    entry = [sys.executable, "-c", "from pulsarcast.cli import main; main()"]
    words = ["--synthetic", "1000", "--topics", "5", "--authors", "50", "--out", str(out)]
    command = [*entry, "pipeline", "workload", *words]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    about = json.loads((out / "workload.json").read_bytes())
    assert about["source"] == {"kind": "synthetic", "comments": 1000, "topics": 5, "authors": 50}
    told = dict(line.split(maxsplit=1) for line in printed.splitlines() if " of " in line)
    assert told["events"] == "1,000 of 50 authors on 50 nodes"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "give --input or --synthetic"),
        (["--input", "a", "--synthetic", "5"], "give --input or --synthetic"),
        (["--input", "a"], "no such file: a"),
        (["--input", "a", "--topics", "5"], "--topics and --authors are for --synthetic"),
        (["--synthetic", "5", "--first", "1", "--sample", "1"], "exclude each other"),
    ],
)
def test_what_has_no_meaning_is_refused_before_spark_starts(
    tmp_path: Path, words: list[str], told: str
) -> None:
    out = ["--out", str(tmp_path / "out")]
    result = CliRunner().invoke(main, ["pipeline", "workload", *words, *out])
    assert result.exit_code == 1
    assert told in result.output


def test_a_folder_that_holds_anything_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    words = ["pipeline", "workload", "--synthetic", "5", "--out", str(tmp_path)]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 1
    assert "not empty" in result.output
