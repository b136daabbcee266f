"""`pulsarcast pipeline report`: runs side by side, as one page and as pictures."""

from __future__ import annotations

from contextlib import ExitStack
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pulsarcast.cli.output import confirm, errors_shown, yes_option
from pulsarcast.model.errors import LocalError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame


@click.command()
@click.argument("tables_or_traces", nargs=-1, required=True, type=click.Path())
@click.option("--out", required=True, type=click.Path(), help="Folder for the page and the charts.")
@click.option(
    "--title",
    default="Pulsarcast: runs side by side",
    show_default=True,
    help="Title of the page.",
)
@click.option(
    "--beside",
    type=click.Path(),
    help="JSON file with tables and bars of other systems, to show beside the runs.",
)
@click.option(
    "--master", help="URL of the Spark master; without it $SPARK_MASTER, or this machine."
)
@yes_option
def command(
    tables_or_traces: tuple[str, ...],
    out: str,
    title: str,
    beside: str | None,
    master: str | None,
    yes: bool,
) -> None:
    """Draw charts of all runs in TABLES_OR_TRACES side by side.

    Each is the output of `pipeline ingest`, or a folder with raw traces below it. The command
    writes report.html, which needs no other file, and each chart as a PNG to --out.
    """
    from pyspark.sql import DataFrame

    from pulsarcast.pipeline.beside import read_beside
    from pulsarcast.pipeline.quality import computed
    from pulsarcast.pipeline.report import boil_down, write_report
    from pulsarcast.pipeline.session import session
    from pulsarcast.pipeline.traces import open_lines

    if (Path(out) / "report.html").exists():
        confirm(f"The report in {out} is overwritten", yes=yes)
    with errors_shown():
        given = None if beside is None else read_beside(Path(beside))
        with (
            session("report", master=master, inputs=tables_or_traces) as spark,
            ExitStack() as stack,
        ):
            each = [stack.enter_context(open_lines(spark, path)) for path in tables_or_traces]
            _check_runs(zip(tables_or_traces, each, strict=True))
            lines = reduce(DataFrame.unionByName, each)
            with computed(lines) as measured:
                frames = boil_down(lines, measured)
        if frames.totals.empty:
            raise LocalError("no run with topics of its own is in there")
        for path in write_report(frames, Path(out), title=title, beside=given):
            click.echo(path)


def _check_runs(given: Iterable[tuple[str, DataFrame]]) -> None:
    """Raise where two folders have a run of one name: it would seem to deliver everything twice."""
    found: dict[str, str] = {}
    for path, lines in given:
        for row in lines.select("run_id").distinct().collect():
            run_id = row["run_id"]
            if run_id in found:
                raise LocalError(
                    f"run {run_id} is in {found[run_id]} and in {path}: name one of them, or give "
                    "runs names of their own (--run-id)"
                )
            found[run_id] = path
