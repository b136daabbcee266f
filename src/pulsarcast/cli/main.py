"""The command `pulsarcast`: its sub-commands, each imported when it is called."""

from __future__ import annotations

from importlib import import_module
from typing import Final

import click

from pulsarcast import __version__

# Where each command is, and what it does in a line: `--help` must not import any of them.
COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "init": ("node:init", "Make a home for a node: its key, its settings, and your token."),
    "daemon": ("node:daemon", "Run a node in the foreground."),
    "topic": ("topics:topic", "Create topics, look at them, change them."),
    "publish": ("events:publish", "Publish a text, a file, or lines of the input."),
    "subscribe": ("events:subscribe", "Print events as they come."),
    "unsubscribe": ("topics:unsubscribe", "Leave a topic, or forget a reader of it."),
    "history": ("events:history", "Print what the node keeps of a topic."),
    "status": ("operating:status", "What the node is and does."),
    "peers": ("operating:peers", "Whom the node is connected to."),
    "top": ("top:top", "Look at a node while it works."),
    "open": ("operating:open_page", "Open the node's page in a browser."),
    "doctor": ("doctor:doctor", "Look for what is wrong, and say what to do."),
    "id": ("node:show_id", "The peer id of the node on this machine."),
    "config": ("node:config", "Settings of the node on this machine."),
    "token": ("operating:token", "Who may use the node over HTTP."),
    "context": ("contexts:context", "Daemons elsewhere, by name."),
    "backup": ("home:backup", "Copy a node's home, while it runs."),
    "restore": ("home:restore", "Make a home out of a backup."),
    "simulate": ("simulate:simulate", "Run the protocol on one machine, with faults."),
    "testbed": ("testbed:testbed", "Run real nodes on this machine, and measure them."),
    "pipeline": ("pipeline:pipeline", "Workloads, traces and their checks, on Spark."),
    "version": ("main:version", "The version of this program."),
}


class Commands(click.Group):
    """Sub-commands that are imported when they are needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order in which somebody meets them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one."""
        found = COMMANDS.get(cmd_name)
        if found is None:
            return None
        module, _, name = found[0].partition(":")
        command: click.Command = getattr(import_module(f"pulsarcast.cli.{module}"), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List them without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="pulsarcast")
def main() -> None:
    """Publish/subscribe with no broker."""


@click.command()
@click.option("--json", "as_json", is_flag=True, help="JSON for programs.")
def version(as_json: bool) -> None:
    """The version of this program."""
    click.echo(f'{{"version":"{__version__}"}}' if as_json else __version__)
