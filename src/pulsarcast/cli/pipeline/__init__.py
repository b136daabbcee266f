"""`pulsarcast pipeline …`: dumps into workloads, traces into tables, verdicts and pictures.

Each command is a module of its own here and is loaded when it is called: Spark takes a while.
"""

from __future__ import annotations

from typing import Final

import click

from pulsarcast.cli.groups import LazyGroup

COMMANDS: Final = {
    "workload": (
        "pipeline.workload:command",
        "Make a workload from comment dumps, or a synthetic one.",
    ),
    "ingest": (
        "pipeline.ingest:command",
        "Convert traces into tables, once or while a run goes on.",
    ),
    "metrics": ("pipeline.metrics:command", "Compute the quality of service of runs."),
    "check": ("pipeline.check:command", "Check traces against every promise."),
    "report": ("pipeline.report:command", "Draw charts of runs side by side."),
    "archive": (
        "pipeline.archive:command",
        "Archive a topic's events as Parquet, and verify them.",
    ),
    "query": ("pipeline.query:command", "Find the events in an archive that match a filter."),
}


@click.group(cls=LazyGroup, lazy=COMMANDS, extra="pipeline")
def pipeline() -> None:
    """Make workloads, and check and measure traces, on Spark."""
