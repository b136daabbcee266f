"""Merged files are those of attempts that succeeded; of the others nothing stays."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from pulsarcast.pipeline.merging import Format, Merge, attempt_folder, merge_files

SCHEMA = pa.schema([("number", pa.int64())])
ANOTHER_ATTEMPT = 1_000_000
"""Higher than that of any task of these tests."""


def write(path: Path, *numbers: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"number": numbers}, schema=SCHEMA), path)
    return path


def test_what_failed_attempts_left_is_removed(spark: SparkSession, tmp_path: Path) -> None:
    """A lost executor wrote the same file, half of another, and one that nobody asked for."""
    files = tuple(write(tmp_path / f"{at}.parquet", at, at + 10) for at in range(3))
    staged = tmp_path / "staged"
    lost = staged / attempt_folder(ANOTHER_ATTEMPT)
    write(lost / "a" / "merged.parquet", 99)
    write(lost / "b" / "merged.parquet", 99)
    (lost / "b" / "half.parquet").write_bytes(b"PAR1")
    merges = [Merge(Path("a/merged.parquet"), files, sum(file.stat().st_size for file in files))]
    merge_files(spark, merges, staged, lambda _: Format(SCHEMA))
    there = [path.relative_to(staged) for path in staged.rglob("*") if path.is_file()]
    assert there == [Path("a/merged.parquet")]
    assert not list(staged.glob("task=*"))
    merged = pq.read_table(staged / "a" / "merged.parquet")
    assert merged["number"].to_pylist() == [0, 10, 1, 11, 2, 12]
