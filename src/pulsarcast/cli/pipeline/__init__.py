"""`pulsarcast pipeline …`: dumps into workloads, traces into tables, verdicts and pictures.

Each command is a module of its own here and is loaded when it is called: Spark takes a while.
"""

from __future__ import annotations

import importlib
from typing import Final

import click

COMMANDS: Final = {
    "workload": "Make a workload from comment dumps, or a synthetic one.",
    "ingest": "Convert traces into tables, once or while a run goes on.",
    "metrics": "Compute the quality of service of runs.",
    "check": "Check traces against every promise.",
    "report": "Draw charts of runs side by side.",
    "archive": "Archive a topic's events as Parquet, and verify them.",
    "query": "Find the events in an archive that match a filter.",
}


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        try:
            module = importlib.import_module(f"pulsarcast.cli.pipeline.{cmd_name}")
        except ModuleNotFoundError as error:
            if error.name and error.name.startswith("pulsarcast"):
                raise
            raise click.ClickException(
                f"{error.name} is missing: pip install 'pulsarcast[pipeline]'"
            ) from error
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=_Commands)
def pipeline() -> None:
    """Make workloads, and check and measure traces, on Spark."""
