"""`pulsarcast testbed sweep`: from a file to a table, once, and again without running anything."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from pulsarcast.cli import main
from pulsarcast.testbed import sweep as sweeping

FILE = """
title = "Small"
seeds = 2

[[settings]]
experiment = "publish"
nodes = [8, 16]

[[figures]]
title = "Latency"
lines = [{what = "8 nodes", measure = "latency_mean", of = {nodes = 8}, paper = 155}]
"""


@pytest.fixture(autouse=True)
def _shared(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands use the tests' session, and leave it running."""

    @contextmanager
    def shared_session(*_: object, **__: object) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(sweeping, "session", shared_session)


def run(tmp_path: Path, *words: str, text: str = FILE) -> Result:
    path = tmp_path / "small.toml"
    path.write_text(text, encoding="utf-8")
    out = ["--out", str(tmp_path / "out")]
    return CliRunner().invoke(main, ["testbed", "sweep", str(path), *out, *words])


def test_a_sweep_prints_its_tables_and_is_run_once(tmp_path: Path) -> None:
    empty = run(tmp_path, "--table")
    assert empty.exit_code == 0, empty.output
    assert "| 8 nodes | 155 | – | – | 0 | – |" in empty.output
    first = run(tmp_path)
    assert first.exit_code == 0, first.output
    assert first.output.startswith("## Small\n\n### Latency\n")
    # Everybody subscribes: one message takes the same time whoever publishes it.
    assert "| 8 nodes | 155 | 175.6 | 0 | 2 | +13.3 % |" in first.output
    files = sorted((tmp_path / "out").rglob("*.parquet"))
    assert len(files) == 2
    assert run(tmp_path).output == first.output
    assert sorted((tmp_path / "out").rglob("*.parquet")) == files
    assert "| 2 |" not in run(tmp_path, "--seeds", "1", "--table").output


def test_a_failed_replicate_ends_it_with_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Not of this module's: workers cannot import tests, but take what is made here by value.
    def fail(setting: str, seed: int) -> dict[str, float]:
        return {"never": seed / 0}

    monkeypatch.setattr(sweeping, "run_written", fail)
    result = run(tmp_path)
    assert result.exit_code == 1
    assert "**4 replicates failed:**" in result.output
    assert "ZeroDivisionError" in result.output


def test_a_wrong_file_is_a_sentence(tmp_path: Path) -> None:
    result = run(tmp_path, text=FILE.replace("nodes = [8, 16]", "nodes = [0]"))
    assert result.exit_code == 1
    assert result.output.startswith("pulsarcast: ")
    assert "Traceback" not in result.output
