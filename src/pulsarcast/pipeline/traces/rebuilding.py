"""One run is read anew from its segments and takes its own place (`layout`: generations).

For traces that were repaired, and for rows that an earlier version read wrongly. Readers see the
run as it was or as it is then, and all other runs as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pulsarcast.model.errors import LocalError
from pulsarcast.pipeline.folders import link_tree
from pulsarcast.pipeline.streams import committed_batch, planned_batch
from pulsarcast.pipeline.traces.duplicates import settle, suspicious_lives
from pulsarcast.pipeline.traces.landing import (
    LandResult,
    closed_segments,
    count,
    read_table,
    segment_name,
    stage,
    staged_index,
    trace_folders,
)
from pulsarcast.pipeline.traces.layout import COLUMNS, TABLES, Layout, batch_folder
from pulsarcast.pipeline.traces.writing import lines_folder, write_parquet


def rebuild(
    spark: SparkSession, traces: Sequence[str | Path], out: str | Path, run_id: str
) -> LandResult:
    """Read one run anew from all segments that it came from, and those that gave nothing."""
    layout = Layout(out)
    layout.check()
    folders = trace_folders(traces)
    with layout.writing(), layout.staging() as staged:
        if planned_batch(layout.checkpoint) > committed_batch(layout.checkpoint):
            # The batch would be read again beside the rebuilt run, with what both have in common.
            raise LocalError(
                f"an ingest into {layout.folder} was cut short: ingest once more, then rebuild"
            )
        files = _segments_of(spark, layout, closed_segments(spark, folders), run_id)
        batch = layout.next_own_batch()
        result = stage(spark, files, staged, batch, run_id=run_id)
        index = staged_index(spark, staged)
        nothing = F.lit(False)
        lives = suspicious_lives(index, index.where(nothing))
        if not lives.isEmpty():
            settle(staged, index, read_table(spark, layout, "lines").where(nothing), lives)
            result, _ = count(staged_index(spark, staged), batch)
        _replace(spark, layout, staged, batch, run_id)
    return result


def _segments_of(spark: SparkSession, layout: Layout, files: DataFrame, run_id: str) -> DataFrame:
    """The segments to read: the run's own, and those without any line, which may be its too."""
    index = read_table(spark, layout, "segments")
    own = index.where(F.col("run_id") == run_id).select("segment").distinct()
    if own.isEmpty():
        raise LocalError(f"{layout.folder} has no run {run_id}")
    with_lines = index.where(F.col("run_id").isNotNull()).select("segment")
    empty = index.select("segment").distinct().join(with_lines, on="segment", how="left_anti")
    there = files.select("path", "length", segment_name().alias("segment"))
    missing = own.join(there, on="segment", how="left_anti").first()
    if missing is not None:
        raise LocalError(
            f"run {run_id} also came from {missing.segment}, which is not there: its lines would "
            "be lost; name its folder too"
        )
    return there.join(own.unionAll(empty), on="segment", how="left_semi").select("path", "length")


def _replace(spark: SparkSession, layout: Layout, staged: Path, batch: int, run_id: str) -> None:
    """Show a generation in which the staged batch stands for the run and for its segments."""
    read = staged_index(spark, staged).select("segment").distinct()
    of_run = F.coalesce(F.col("run_id") == run_id, F.lit(True))
    for table in ("quarantine", "segments"):
        columns = f"{COLUMNS[table]}, `batch` string"
        old = spark.read.schema(columns).parquet(str(layout.table(table)))
        kept = old.join(read, on="segment", how="left_anti")
        if table == "segments":
            # What these segments hold of other runs stays where it is.
            others = old.where(~of_run).join(read, on="segment", how="left_semi")
            kept = kept.unionByName(others)
        write_parquet(kept.repartition("batch"), staged / "kept" / table, by="batch")
    run_folder = lines_folder(run_id, "").parent.name
    with layout.next_generation() as new:
        for old_batch in layout.batches():
            name = batch_folder(old_batch)
            for table in ("quarantine", "segments"):
                if (staged / "kept" / table / name).exists():
                    (staged / "kept" / table / name).rename(new / table / name)
            (new / TABLES[-1] / name).mkdir(exist_ok=True)
            for run in (layout.table("lines") / name).glob("run_id=*"):
                if run.name != run_folder:
                    link_tree(run.parent, new / "lines" / name, run.name)
        for table in TABLES:
            if (staged / table).exists():
                (staged / table).rename(new / table / batch_folder(batch))
