"""The jobs of the pipeline on whatever cluster; run as a script by tests, prints a line of JSON."""

import json
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from unittest import mock

import click
import pyarrow as pa
from pyspark.sql import SparkSession

from pulsarcast.pipeline.checks import judge
from pulsarcast.pipeline.merging import Task
from pulsarcast.pipeline.quality import computed
from pulsarcast.pipeline.scratch import open_scratch
from pulsarcast.pipeline.session import session
from pulsarcast.pipeline.traces import (
    Ingest,
    compact,
    land,
    landing,
    read_lines,
    read_quarantine,
    rebuild,
    writing,
)


def where(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """From where a task has this package."""
    import pulsarcast

    time.sleep(0.5)  # or one executor would do it all
    for _ in batches:
        package = str(Path(pulsarcast.__file__).absolute())
        yield pa.record_batch({"interpreter": [sys.executable], "package": [package]})


def hold_tasks(folder: Path) -> None:
    """Let the tasks that write say that they run, and wait until they may go on."""

    def writing_into(staged: Path, name: str, *, run_id: str | None = None) -> Task:
        task = writing.writing_into(staged, name, run_id=run_id)

        def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            from pyspark import TaskContext

            context = TaskContext.get()
            assert context is not None
            (folder / f"running-{context.taskAttemptId()}").touch()
            end = time.monotonic() + 300
            while not (folder / "go").exists() and time.monotonic() < end:
                time.sleep(0.05)
            return task(batches)

        return write

    mock.patch.object(landing, "writing_into", writing_into).start()


def judged(spark: SparkSession, tables: str, out: Path) -> dict[str, int]:
    """Measure and check what is landed; the metrics are written, the findings counted."""
    lines = read_lines(spark, tables)
    with computed(lines, out) as measured:
        for name, table in measured.items():
            table.write.parquet(str(out / name))
    with open_scratch(out) as scratch:
        verdict = judge(lines, scratch, quarantine=read_quarantine(spark, tables))
        verdict.findings.write.parquet(str(out / "findings"))
        return {row["kind"]: row["count"] for row in verdict.counts().collect()}


def main(master: str, job: str, traces: str, out: str, events: str) -> None:
    settings = {
        "spark.executor.memory": "512m",
        "spark.driver.memory": "512m",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.sql.shuffle.partitions": "4",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.dir": events,
    }
    with session("cluster", master=master, settings=settings) as spark:
        if job == "where":
            rows = spark.range(0, 8, 1, 8).mapInArrow(where, "interpreter string, package string")
            click.echo(json.dumps([row.asDict() for row in rows.distinct().collect()]))
        elif job == "judged":
            click.echo(json.dumps(judged(spark, traces, Path(out))))
        elif job == "held":
            hold_tasks(Path(events))
            click.echo(json.dumps(asdict(land(spark, [traces], out))))
        else:
            landed = Ingest(spark, [traces], out, batch_bytes=200_000).available_now()
            run = rebuild(spark, [traces], out, job)
            click.echo(json.dumps([asdict(landed), asdict(run), asdict(compact(spark, out))]))


if __name__ == "__main__":
    main(*sys.argv[1:])
