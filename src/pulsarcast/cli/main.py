"""The command `pulsarcast`: its sub-commands, each imported when it is called."""

from __future__ import annotations

from typing import Final

import click

from pulsarcast import __version__
from pulsarcast.cli.groups import LazyGroup

# Where each command is, and what it does in a line: `--help` must not import any of them.
COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "init": ("node:init", "Create a node's home: its key, its settings, and your token."),
    "daemon": ("node:daemon", "Run a node in the foreground."),
    "topic": ("topics:topic", "Create, show and change topics."),
    "publish": ("events:publish", "Publish a text, a file, or lines of standard input."),
    "subscribe": ("events:subscribe", "Print the events of a topic as they arrive."),
    "invite": ("machines:invite", "Print a ticket to a topic, for another machine."),
    "join": ("machines:join", "Follow the topic of a ticket from another machine."),
    "unsubscribe": ("topics:unsubscribe", "Unsubscribe from a topic, or delete a reader of it."),
    "history": ("events:history", "Print the stored events of a topic."),
    "fetch": ("events:fetch", "Print an event of any topic by its content id."),
    "walk": ("events:walk", "Print the events before an event, newest first."),
    "rebuild": ("events:rebuild", "Print the history of a topic up to an event."),
    "status": ("operating:status", "Show the state of the node."),
    "peers": ("operating:peers", "List the peers that the node is connected to."),
    "name": ("operating:name", "Set, delete or list the names of peers on this node."),
    "top": ("top:top", "Watch the topics, rates and peers of the node."),
    "open": ("operating:open_page", "Open the node's page in a browser."),
    "doctor": ("doctor:doctor", "Look for problems of the node, and say how to solve them."),
    "id": ("node:show_id", "Print the peer id of the node on this machine."),
    "config": ("node:config", "Show the settings of the node on this machine."),
    "token": ("operating:token", "Manage the tokens for the HTTP API of the node."),
    "context": ("contexts:context", "Manage daemons on other machines by name."),
    "backup": ("home:backup", "Copy the home of a node, which may run."),
    "restore": ("home:restore", "Create a home from a backup."),
    "simulate": ("simulate:simulate", "Simulate a network with faults, and check every promise."),
    "testbed": ("testbed:testbed", "Run real nodes on this machine, and measure them."),
    "pipeline": ("pipeline:pipeline", "Make workloads, and check and measure traces, on Spark."),
    "version": ("main:version", "Print the version of this program."),
}


@click.command(
    cls=LazyGroup,
    lazy=COMMANDS,
    extra="all",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="pulsarcast")
def main() -> None:
    """Publish/subscribe with no broker."""


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def version(as_json: bool) -> None:
    """Print the version of this program."""
    click.echo(f'{{"version":"{__version__}"}}' if as_json else __version__)
