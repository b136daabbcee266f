"""`pulsarcast pipeline archive`: a topic's events as Parquet files, kept current and verified."""

from __future__ import annotations

import json
import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pulsarcast.cli.output import FAILED
from pulsarcast.cli.pipeline.ingest import MIB, told_to_stop
from pulsarcast.cli.remote import chosen_target, refusals_told, size, which_daemon

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pulsarcast.client import Target
    from pulsarcast.pipeline.archive import Archived

SETTINGS = {
    # Spark hands rows to Python some thousand at a time; events may be large.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(64 * MIB),
    # What goes wrong is told in a sentence, not in all that Spark has to say about it.
    "spark.log.level": "FATAL",
}


@click.command()
@click.argument("topic", required=False)
@click.option("--out", required=True, type=click.Path(), help="Folder of the archive.")
@click.option("--below", is_flag=True, help="Include all sub-topics.")
@click.option(
    "--available-now/--continuous",
    default=True,
    help="Archive the stored events and exit (default), or go on until SIGTERM or SIGINT.",
)
@click.option(
    "--allow-loss",
    is_flag=True,
    help="Skip events that retention retired before they were archived.",
)
@click.option(
    "--compact/--no-compact",
    "compacting",
    default=None,
    help="Merge small files; without it, only if there are many.",
)
@click.option(
    "--file-mib", type=click.IntRange(min=1), default=128, help="Size of merged files, in MiB."
)
@click.option(
    "--batch-events",
    type=click.IntRange(min=1),
    default=400_000,
    help="Largest number of events in a batch.",
)
@click.option(
    "--interval-s",
    type=click.FloatRange(min=0),
    default=10.0,
    help="Seconds between two batches.",
)
@click.option("--verify", "verifying", is_flag=True, help="Verify every event in the archive.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=100,
    show_default=True,
    help="Largest number of findings to print; all are counted.",
)
@click.option(
    "--master", help="URL of the Spark master; without it $SPARK_MASTER, or this machine."
)
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")
@which_daemon
def command(
    topic: str | None,
    out: str,
    compacting: bool | None,
    file_mib: int,
    verifying: bool,
    limit: int,
    master: str | None,
    as_json: bool,
    home: Path,
    url: str | None,
    token: str | None,
    context: str | None,
    **options: Any,
) -> None:
    """Add the events of TOPIC that the archive lacks; it holds each event once.

    Without TOPIC the command merges or verifies the archive, and needs no daemon. Exits 1 if
    verification finds a problem.
    """
    from pulsarcast.pipeline.archive import compact, verify
    from pulsarcast.pipeline.session import session

    if topic is None and not (verifying or compacting):
        raise click.UsageError("name a TOPIC to archive, or say --verify or --compact")
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    figures: dict[str, Any] = {}
    with refusals_told():
        target = None if topic is None else chosen_target(home, url, token, context)
        if topic is not None and target is not None:
            _check_topic(target, topic)
        settings = _settings(master, is_long=not options["available_now"])
        with session("archive", master=master, settings=settings) as spark:
            if topic is not None and target is not None:
                options |= {"compacting": compacting, "file_bytes": file_mib * MIB}
                figures["archived"] = asdict(_archive(spark, topic, out, target, **options))
            elif compacting:
                figures["compacted"] = asdict(compact(spark, out, file_bytes=file_mib * MIB))
            if verifying:
                figures["verified"] = verify(spark, out, limit=limit).as_dict()
    click.echo(json.dumps(figures) if as_json else _text(out, figures))
    if figures.get("verified", {}).get("problems"):
        sys.exit(FAILED)


def _settings(master: str | None, *, is_long: bool) -> dict[str, str]:
    """How Spark runs: rows are read, written and verified in Python, and its own part is small.

    To compile that well pays off beyond about a million events.
    """
    from pulsarcast.pipeline.session import LITTLE, LOCAL

    is_local = (master or os.environ.get("SPARK_MASTER") or LOCAL).startswith("local")
    return {**SETTINGS, **(LITTLE if is_local and not is_long else {})}


def _archive(
    spark: SparkSession,
    topic: str,
    out: str,
    target: Target,
    *,
    available_now: bool,
    **options: Any,
) -> Archived:
    from pulsarcast.pipeline.archive import Archiving

    with _told(target) as connection:
        archiving = Archiving(spark, topic, out, connection, **options)
        if available_now:
            return archiving.available_now()
        with told_to_stop() as stop:
            return archiving.continuously(stop)


def _check_topic(target: Target, topic: str) -> None:
    """See that the daemon is there and knows the topic: Spark would take long to say it is not."""
    from pulsarcast.client import Client

    with Client(target.url, target.token) as client:
        client.topic(topic)


@contextmanager
def _told(target: Target) -> Iterator[dict[str, str]]:
    """The source's options; the token in a file, since Spark may print what it is told."""
    with tempfile.TemporaryDirectory(prefix="pulsarcast-") as folder:
        connection = {"url": target.url}
        if target.token is not None:
            file = Path(folder) / "token"
            file.touch(mode=0o600)
            file.write_text(target.token)
            connection["tokenFile"] = str(file)
        yield connection


# For people.


def _text(out: str, figures: dict[str, Any]) -> str:
    lines = []
    if archived := figures.get("archived"):
        lines.append(
            f"{out}: {archived['events']:,} new events in {archived['batches']} batches "
            f"({size(archived['bytes'])})"
        )
        if archived["lost"]:
            lines.append(f"  lost          {archived['lost']:,} events were gone before")
        if archived["compactions"]:
            lines.append("  merged        small files")
    if compacted := figures.get("compacted"):
        lines.append(f"{out}: {compacted['files_before']} files are {compacted['files_after']} now")
    if verified := figures.get("verified"):
        lines += _verdict(out, verified)
    return "\n".join(lines)


def _verdict(out: str, verified: dict[str, Any]) -> list[str]:
    problems = verified["problems"]
    outcome = "all is as it was signed" if not problems else f"{problems:,} problems"
    topics = "1 topic" if verified["topics"] == 1 else f"{verified['topics']:,} topics"
    lines = [f"{out}: {verified['events']:,} events of {topics}: {outcome}"]
    for each in verified["findings"]:
        offset = "" if each["offset"] is None else f" offset {each['offset']}"
        event = "" if each["event_id"] is None else f" event {each['event_id']}"
        lines.append(f"  {each['reason']}")
        lines.append(f"    {each['file'] or 'topic ' + each['topic']}{offset}{event}")
    if problems > len(verified["findings"]):
        lines.append(f"  and {problems - len(verified['findings']):,} more")
    lines += [f"  remark: {remark}" for remark in verified["remarks"]]
    lines.append(
        f"  {verified['events_per_s']:,} events/s, {verified['cpu_s']:.1f} s of CPU in tasks"
    )
    return lines
