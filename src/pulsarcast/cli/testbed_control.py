"""`pulsarcast testbed up`, `down`, and the commands for a testbed that runs in between."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from pulsarcast.cli.output import Finite, confirm, errors_shown, fail, yes_option
from pulsarcast.cli.progress import Bars

if TYPE_CHECKING:
    from pulsarcast.testbed.control.messages import ExecAction, FaultAction, Reported, Request

EXIT_NOT_OK = 1
EXIT_DOWN = 3
"""There is no testbed to ask."""

FOLDER = click.Path(path_type=Path, file_okay=False)
_folder = click.argument("folder", type=FOLDER)
_json = click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")
_for_s = click.option("--for-s", type=Finite(min=0), help="Seconds after which the fault ends.")


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


def is_replaced(out: Path, *, yes: bool) -> bool:
    """Whether a finished run is in a folder and makes place; asks before."""
    from pulsarcast.testbed.sessions import SUMMARY

    if not (out / SUMMARY).exists():
        return False
    confirm(f"The finished run in {out} is overwritten", yes=yes)
    return True


@click.command()
@click.argument("scenario")
@click.option("--out", type=FOLDER, required=True, help="Folder of the testbed.")
@click.option(
    "--nodes", type=click.IntRange(min=2), help="Number of nodes; overrides the scenario."
)
@click.option("--seed", type=int, help="Seed; overrides the scenario.")
@click.option("--workload", type=click.Path(path_type=Path), help="Workload file for `load`.")
@click.option(
    "--timeout-s",
    type=Finite(min=0, min_open=True),
    help="Seconds after which the testbed stops.",
)
@click.option("--memory-mib", type=click.IntRange(min=1), help="Memory limit of a node, in MiB.")
@click.option("--without-limits", is_flag=True, help="Run even if memory cannot be limited.")
@yes_option
@_json
@click.pass_context
def up(ctx: click.Context, /, scenario: str, out: Path, yes: bool, as_json: bool, **_: Any) -> None:
    """Start the nodes of SCENARIO, a file, in the background; return when they are up.

    They run until `testbed down`, or until the scenario's timeout_s is over.
    """
    with Bars() as bars, errors_shown():
        from pulsarcast.testbed.control.control import start
        from pulsarcast.testbed.scenario_files import options_for

        said = said_in(ctx, "scenario", "out", "yes", "as_json")
        options = options_for(scenario, out=out, said=said)
        reported = start(options, replace=is_replaced(out, yes=yes), progress=bars.show)
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
    """Run ACTION on NODES (3, or 0,2,5-8, or all) of the testbed in FOLDER.

    \b
    create TOPIC        one node creates a topic
    subscribe TOPIC     the nodes subscribe to it
    publish TOPIC TEXT  each node publishes a text in it
    measure             print the resources and deliveries of each node so far
    """
    from pulsarcast.testbed.control.messages import Do

    _ask(folder, Do(action, nodes, topic, text), as_json)


@click.command()
@_folder
@click.option("--limit", type=click.IntRange(min=1), help="Only the first N events.", metavar="N")
@click.option("--rate", type=Finite(min=0, min_open=True), help="Events per second.")
@click.option(
    "--patience-s",
    type=Finite(min=0),
    default=60.0,
    show_default=True,
    help="Seconds without a new delivery after which the load ends.",
)
@_json
def load(
    folder: Path, limit: int | None, rate: float | None, patience_s: float, as_json: bool
) -> None:
    """Play the load of the scenario, and print how many deliveries were due and arrived.

    Without --rate five users publish at a time, each its next event after the acknowledgement of
    the last. A load that is played again publishes new events. Exit 1: a delivery is missing, or a
    node refused an event without a fault.
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
@click.option(
    "--latency", metavar="MS~MS", help="latency: delay and deviation, 500ms, 500ms~300ms, or 0ms."
)
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
    """Inject a fault into NODES (3, or 0,2,5-8, or all), or into the network between them.

    \b
    kill     SIGKILL; with --for-s the nodes restart after that time, in their old homes
    stop     shut the nodes down; with --for-s they restart after that time
    start    restart nodes that were killed or stopped
    pause    SIGSTOP, until resume or for --for-s
    resume   SIGCONT
    cut      cut the nodes off from all others, until heal or for --for-s
    heal     end a cut; messages sent meanwhile arrive
    latency  delay the incoming traffic of the nodes
    """
    from pulsarcast.testbed.control.messages import Hit

    _ask(folder, Hit(action, nodes, for_s, latency), as_json)


@click.command()
@_folder
@_json
def status(folder: Path, as_json: bool) -> None:
    """Show the state of the testbed in FOLDER; exit 3 if none runs."""
    from pulsarcast.testbed.control.messages import Status

    _ask(folder, Status(), as_json)


@click.command()
@_folder
@click.option(
    "--settle-s",
    type=Finite(min=0),
    default=60.0,
    show_default=True,
    help="Seconds without a new delivery after which the nodes stop.",
)
@_json
def down(folder: Path, settle_s: float, as_json: bool) -> None:
    """Stop all nodes, close their traces, and write summary.json.

    If the testbed died, close the traces that it left open.
    """
    from pulsarcast.testbed.control.messages import End

    _ask(folder, End(settle_s), as_json, salvage=True)


def _ask(folder: Path, request: Request, as_json: bool, *, salvage: bool = False) -> None:
    with Bars() as bars, errors_shown():
        from pulsarcast.testbed.control.control import DownError, ask, close_traces

        try:
            reported = ask(folder, request, progress=bars.show)
        except DownError as error:
            if salvage and (closed := close_traces(folder)):
                click.echo(f"{closed} traces that were left open are closed now", err=True)
            fail(error, EXIT_DOWN)
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
