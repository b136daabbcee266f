"""`pulsarcast testbed up`, and what can be asked of a testbed in the background until `down`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from pulsarcast.cli.progress import Bars
from pulsarcast.cli.telling import telling

if TYPE_CHECKING:
    from pulsarcast.testbed.control.messages import ExecAction, FaultAction, Reported, Request

EXIT_NOT_OK = 1
EXIT_DOWN = 3
"""There is no testbed to ask."""

_folder = click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
_json = click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")
_for_s = click.option("--for-s", type=click.FloatRange(min=0), help="Then it is undone.")


def add_to(group: click.Group) -> None:
    """Let a group have these commands."""
    for command in (up, execute, load, fault, status, down):
        group.add_command(command)


def said_in(ctx: click.Context, *but: str) -> dict[str, Any]:
    """What a command was told, without its defaults: that goes before a scenario's file."""
    return {
        name: value
        for name, value in ctx.params.items()
        if name not in but and ctx.get_parameter_source(name) is not ParameterSource.DEFAULT
    }


@click.command()
@click.argument("scenario")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The testbed's folder.")
@click.option("--nodes", type=click.IntRange(min=2), help="Instead of what the scenario says.")
@click.option("--seed", type=int, help="Instead of what the scenario says.")
@click.option("--workload", type=click.Path(path_type=Path), help="The file for `load`.")
@click.option(
    "--timeout-s", type=click.FloatRange(min=0, min_open=True), help="Then it goes down by itself."
)
@click.option("--memory-mib", type=click.IntRange(min=1), help="What a node may take.")
@click.option("--without-limits", is_flag=True, help="Go on where memory cannot be limited.")
@click.option("--replace", is_flag=True, help="Overwrite a finished run.")
@_json
@click.pass_context
def up(
    ctx: click.Context, /, scenario: str, out: Path, replace: bool, as_json: bool, **_: Any
) -> None:
    """Start the nodes of SCENARIO in the background, a file; returns when they are up.

    They run until `testbed down`, or until the scenario's timeout_s is over.
    """
    with Bars() as bars, telling():
        from pulsarcast.testbed.control.control import start
        from pulsarcast.testbed.scenario_files import options_for

        said = said_in(ctx, "scenario", "out", "replace", "as_json")
        options = options_for(scenario, out=out, said=said)
        reported = start(options, replace=replace, progress=bars.show)
    if options.faults:
        click.echo("the faults of the scenario are left to you: testbed fault", err=True)
    _show(reported, as_json)


@click.command("exec")
@_folder
@click.argument("nodes")
@click.argument("action", type=click.Choice(["create", "subscribe", "publish", "measure"]))
@click.argument("topic", required=False)
@click.argument("text", required=False, default="")
@_json
def execute(
    folder: Path, nodes: str, action: ExecAction, topic: str | None, text: str, as_json: bool
) -> None:
    """Have NODES (3, or 0,2,5-8, or all) of the testbed in FOLDER do something.

    \b
    create TOPIC        one node creates a topic
    subscribe TOPIC     they subscribe to it
    publish TOPIC TEXT  they publish a text in it
    measure             what they have used and delivered so far
    """
    from pulsarcast.testbed.control.messages import Do

    _ask(folder, Do(action, nodes, topic, text), as_json)


@click.command()
@_folder
@click.option("--limit", type=click.IntRange(min=1), help="Only the first N events.")
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), help="Events a second.")
@click.option("--patience-s", type=float, default=60.0, show_default=True, help="For what is due.")
@_json
def load(
    folder: Path, limit: int | None, rate: float | None, patience_s: float, as_json: bool
) -> None:
    """Play the load of the scenario, and say what was due and what came.

    Without a rate five users publish at a time, each its next event when the last is answered. A
    load may be played again: its events are new ones. Exit 1: something is missing, or a node
    refused though nothing was done to any.
    """
    from pulsarcast.testbed.control.messages import Play

    _ask(folder, Play(limit, rate, patience_s), as_json)


@click.command()
@_folder
@click.argument(
    "action",
    type=click.Choice(["kill", "stop", "start", "pause", "resume", "cut", "heal", "latency"]),
)
@click.argument("nodes", default="all")
@click.option("--latency", metavar="MS~MS", help="latency: 500ms, 500ms~300ms, or 0ms.")
@_for_s
@_json
def fault(
    folder: Path,
    action: FaultAction,
    nodes: str,
    latency: str | None,
    for_s: float | None,
    as_json: bool,
) -> None:
    """Do something to NODES (3, or 0,2,5-8, or all), or to the network between them.

    \b
    kill     SIGKILL; with --for-s they start again after so long, in their old homes
    stop     they end in good order; with --for-s they start again
    start    start again who was killed or stopped
    pause    SIGSTOP, until resume or for so long
    resume   SIGCONT
    cut      cut these nodes off from all others, until heal or for so long
    heal     undo it; what was said meanwhile arrives
    latency  let what comes in at these nodes arrive late
    """
    from pulsarcast.testbed.control.messages import Hit

    _ask(folder, Hit(action, nodes, for_s, latency), as_json)


@click.command()
@_folder
@_json
def status(folder: Path, as_json: bool) -> None:
    """How the testbed in FOLDER is; exit 3 where there is none."""
    from pulsarcast.testbed.control.messages import Status

    _ask(folder, Status(), as_json)


@click.command()
@_folder
@click.option(
    "--settle-s", type=float, default=60.0, show_default=True, help="Wait while something comes."
)
@_json
def down(folder: Path, settle_s: float, as_json: bool) -> None:
    """Stop all nodes in good order, close their traces, and write summary.json.

    Of a testbed that died, close the traces that it left open.
    """
    from pulsarcast.testbed.control.messages import End

    _ask(folder, End(settle_s), as_json, salvage=True)


def _ask(folder: Path, request: Request, as_json: bool, *, salvage: bool = False) -> None:
    with Bars() as bars, telling():
        from pulsarcast.testbed.control.control import DownError, ask, close_traces

        try:
            reported = ask(folder, request, progress=bars.show)
        except DownError as error:
            click.echo(f"Error: {error}", err=True)
            if salvage and (closed := close_traces(folder)):
                click.echo(f"{closed} traces that were left open are closed now", err=True)
            sys.exit(EXIT_DOWN)
    _show(reported, as_json)
    if not reported.ok:
        sys.exit(EXIT_NOT_OK)


def _show(reported: Reported, as_json: bool) -> None:
    import msgspec

    if as_json:
        rows = {"rows": reported.rows} if reported.rows else {}
        click.echo(msgspec.json.encode({**reported.facts, **rows}))
        return
    for name, value in reported.facts.items():
        click.echo(f"{name:16} {_shown(value)}")
    columns = list(dict.fromkeys(key for row in reported.rows for key in row))
    table = [columns, *([_shown(row.get(key)) for key in columns] for row in reported.rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table if columns else ():
        shown = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        click.echo("  ".join(shown).rstrip())


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_shown(inner)}" for key, inner in value.items()) or "none"
    if isinstance(value, list):
        return ", ".join(map(_shown, value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None else str(value)
