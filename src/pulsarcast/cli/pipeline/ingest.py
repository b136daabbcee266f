"""`pulsarcast pipeline ingest`: traces into tables, once or while a run goes on."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from pulsarcast.cli.output import errors_shown

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pulsarcast.pipeline.traces import Landed

MIB = 1024 * 1024


@click.command()
@click.argument("traces", nargs=-1, required=True, type=click.Path())
@click.option("--out", required=True, type=click.Path(), help="Folder of the tables.")
@click.option(
    "--available-now/--continuous",
    default=True,
    help="Read the closed segments and exit (default), or go on until SIGTERM or SIGINT.",
)
@click.option(
    "--finish",
    is_flag=True,
    help="All runs have ended: close and read segments that killed writers left open.",
)
@click.option(
    "--rebuild",
    "runs",
    multiple=True,
    metavar="RUN",
    help="Read this run again, and nothing else. May be repeated.",
)
@click.option("--compact", "compacting", is_flag=True, help="Merge small files at the end.")
@click.option(
    "--file-mib", type=click.IntRange(min=1), default=128, help="Size of merged files, in MiB."
)
@click.option(
    "--batch-mib",
    type=click.IntRange(min=1),
    default=256,
    help="Largest compressed size of a batch, in MiB.",
)
@click.option(
    "--interval-s",
    type=click.FloatRange(min=0),
    default=5.0,
    help="Seconds between two batches.",
)
@click.option("--metrics-port", type=int, help="Port on which Prometheus can read metrics.")
@click.option(
    "--metrics-host", default="127.0.0.1", show_default=True, help="Address of --metrics-port."
)
@click.option(
    "--master", help="URL of the Spark master; without it $SPARK_MASTER, or this machine."
)
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")
def command(
    traces: tuple[str, ...],
    out: str,
    runs: tuple[str, ...],
    compacting: bool,
    file_mib: int,
    master: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Read the closed segments below the folders TRACES into the tables of --out."""
    from pulsarcast.pipeline.session import session
    from pulsarcast.pipeline.traces import compact, rebuild

    if runs and not options["available_now"]:
        raise click.UsageError("--rebuild ends by itself: not with --continuous")
    figures: dict[str, Any] = {}
    with errors_shown():
        # Neither what is to come nor what the tables hold is known to be little.
        known = traces if options["available_now"] and not (runs or compacting) else ()
        with session("ingest", master=master, inputs=known) as spark:
            for run in runs:
                result = asdict(rebuild(spark, traces, out, run))
                figures.setdefault("rebuilt", {})[run] = result
            if not runs:
                figures |= asdict(_ingest(spark, traces, out, **options))
            if compacting:
                figures["compacted"] = asdict(compact(spark, out, file_bytes=file_mib * MIB))
    click.echo(json.dumps(figures) if as_json else _text(out, figures))


def _ingest(
    spark: SparkSession,
    traces: tuple[str, ...],
    out: str,
    *,
    available_now: bool,
    finish: bool,
    batch_mib: int,
    interval_s: float,
    metrics_port: int | None,
    metrics_host: str,
) -> Landed:
    from pulsarcast.pipeline.traces import Ingest
    from pulsarcast.pipeline.traces.figures import Backlog, Figures

    ingest = Ingest(spark, traces, out, interval_s=interval_s, batch_bytes=batch_mib * MIB)
    with ExitStack() as stack:
        if metrics_port is not None:
            figures = Figures(Backlog(spark, ingest.layout, ingest.folders))
            ingest.on_batch = figures.add
            port = stack.enter_context(figures.served(metrics_port, metrics_host))
            click.echo(f"figures at http://{metrics_host}:{port}/metrics", err=True)
        if available_now:
            return ingest.available_now(finish=finish)
        return ingest.continuously(stack.enter_context(told_to_stop()), finish=finish)


@contextmanager
def told_to_stop() -> Iterator[threading.Event]:
    """Set when the process is asked to end; asked again, it ends at once."""
    stop = threading.Event()
    before = {}

    def tell(number: int, frame: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        before[number] = signal.signal(number, tell)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _text(out: str, figures: dict[str, Any]) -> str:
    lines = []
    if "batches" in figures:
        lines.append(
            f"{out}: {figures['lines']} lines of {figures['segments']} segments "
            f"in {figures['batches']} batches"
        )
        lines += _details(figures)
        if figures["closed"]:
            lines.append(f"  closed        {figures['closed']} segments that had been left open")
    for run, result in figures.get("rebuilt", {}).items():
        lines.append(f"{out}: run {run}: {result['lines']} lines of {result['segments']} segments")
        lines += _details(result)
    if compacted := figures.get("compacted"):
        lines.append(f"{out}: {compacted['files_before']} files are {compacted['files_after']} now")
    return "\n".join(lines)


def _details(figures: dict[str, Any]) -> list[str]:
    return [
        f"  quarantined   {figures['quarantined']}",
        f"  unknown       {figures['unknown']} (kind or version not known here, kept as text)",
        f"  duplicates    {figures['duplicates']} (dropped)",
    ]
