"""The commands that judge and draw: what they print, what they leave, and how they end."""

import json
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from pulsarcast.cli import main
from pulsarcast.cli.pipeline.check import _summary
from pulsarcast.pipeline.checks import UNKNOWN, Outcome, Verdict
from pulsarcast.pipeline.quality import SORTED
from pulsarcast.simulation.options import load
from pulsarcast.simulation.scenario import run_scenario
from pulsarcast.testbed.options import RunOptions
from pulsarcast.testbed.scenarios.workload import run_workload
from tests.pipeline.trace_files import pack, spoil, texts_of
from tests.unit.testbed.small_workload import DUE, NODES, write_workload


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of ten nodes, as they wrote it."""
    folder = tmp_path_factory.mktemp("traces") / "run"
    options = msgspec.structs.replace(load("tree"), nodes=10, subscribers=8, trace=str(folder))
    assert run_scenario(msgspec.structs.replace(options, run_id="run")).ok
    return folder


@pytest.fixture(autouse=True)
def _shared(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands make a session of their own and end it; here they get that of all tests."""

    @contextmanager
    def shared_session(
        name: str, *, master: str | None, inputs: Iterable[str | Path]
    ) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr("pulsarcast.pipeline.session.session", shared_session)


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(main, ["pipeline", *map(str, words)])


def test_check_ends_with_0_where_every_promise_was_kept(tmp_path: Path) -> None:
    """By real nodes: each a process of its own, whose traces Spark reads."""
    options = RunOptions(nodes=NODES, workload=write_workload(tmp_path), out=tmp_path / "out")
    played = run_workload(options)
    assert (played.ok, played.delivered) == (True, DUE)
    made = run("check", options.out / "traces", "--json")
    assert made.exit_code == 0, made.output
    report = json.loads(made.stdout)
    assert (report["outcome"], report["runs"]) == ("clean", 1)
    assert set(report["findings"].values()) == {0}


def test_check_ends_with_1_and_shows_the_lines_that_prove_it(traces: Path, tmp_path: Path) -> None:
    spoilt = tmp_path / "spoilt"
    shutil.copytree(traces, spoilt)
    segment = max(spoilt.glob("*.ndjson.zst"), key=lambda path: path.stat().st_size)
    spoil(segment)
    made = run("check", spoilt, "--findings", tmp_path / "findings")
    assert made.exit_code == 1, made.output
    assert "promises were broken" in made.stdout
    assert "duplicate" in made.stdout
    assert made.stdout.count(f"{segment.name}:") >= 2, "both deliveries, with their places"
    assert list((tmp_path / "findings").glob("*.parquet"))


@pytest.mark.slow
def test_check_ends_with_2_where_nobody_can_tell(traces: Path, tmp_path: Path) -> None:
    """A node that simply stops writing may have lost anything."""
    cut = tmp_path / "cut"
    shutil.copytree(traces, cut)
    segment = next(path for path in cut.glob("*.ndjson.zst") if not path.name.startswith("driver"))
    *rest, stopped = texts_of(segment)
    assert json.loads(stopped)["kind"] == "node_stopped"
    pack(segment, "".join(f"{text}\n" for text in rest).encode())
    made = run("check", cut, "--json")
    assert made.exit_code == 2, made.output
    assert sum(json.loads(made.stdout)["unknown"].values()) == 1


def test_what_is_found_outranks_what_is_not_known(spark: SparkSession) -> None:
    lives = spark.createDataFrame([("a", 3), ("b", 4)], "run_id string, lines bigint")
    found = spark.createDataFrame([("b", "lost", 2)], "run_id string, kind string, count bigint")
    unknown = spark.createDataFrame([("a", "seq_gap", "n", 1, 1)], UNKNOWN)
    for findings, reasons, outcome in (
        (found.limit(0), unknown.limit(0), Outcome.CLEAN),
        (found.limit(0), unknown, Outcome.UNKNOWN),
        (found, unknown, Outcome.FINDINGS),
    ):
        report = _summary(Verdict(findings, reasons, lives))
        assert (report["exit"], report["runs"], report["lines"]) == (outcome, 2, 7)


def test_metrics_are_the_run_s_own_counters(traces: Path, tmp_path: Path) -> None:
    made = run("metrics", traces, "--out", tmp_path / "metrics", "--json")
    assert made.exit_code == 0, made.output
    (measured,) = [json.loads(line) for line in made.stdout.splitlines()]
    result = json.loads((traces / "result.json").read_text())
    for name in ("due", "delivered", "undecided", "duplicates"):
        assert measured["own"][name] == result[name]
    assert measured["distributions"]["hops"]["max"] == result["hops_max"]
    assert {path.name for path in (tmp_path / "metrics").iterdir()} == {*SORTED}


@pytest.mark.slow
def test_a_report_is_drawn(traces: Path, tmp_path: Path) -> None:
    made = run("report", traces, "--out", tmp_path / "report")
    assert made.exit_code == 0, made.output
    assert (tmp_path / "report" / "report.html").exists()
    assert len(made.stdout.splitlines()) > 3


def test_a_check_that_cannot_be_made_is_not_a_broken_promise(tmp_path: Path) -> None:
    """Whoever asks by the exit code must be able to tell the two."""
    out = tmp_path / "findings"
    out.mkdir()
    made = run("check", tmp_path, "--findings", out)
    assert made.exit_code == 3
    assert made.stderr == f"pulsarcast: {out} is there already\n"


def test_a_check_that_breaks_down_is_not_a_broken_promise(
    traces: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def judge(*_: object, **__: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("pulsarcast.pipeline.checks.judge", judge)
    made = run("check", traces)
    assert made.exit_code == 3
    assert "no space left on device" in made.stderr


def test_what_is_not_there_is_said_in_a_sentence(tmp_path: Path) -> None:
    made = run("metrics", tmp_path / "nothing", "--out", tmp_path / "metrics")
    assert made.exit_code == 1
    assert made.stderr.startswith("pulsarcast: ")
    assert "Traceback" not in made.output


def test_a_run_that_is_in_two_folders_is_not_drawn_as_one(traces: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    shutil.copytree(traces, again)
    made = run("report", traces, again, "--out", tmp_path / "report")
    assert made.exit_code == 1
    assert f"run run is in {traces} and in {again}" in made.output
    assert not (tmp_path / "report").exists()
