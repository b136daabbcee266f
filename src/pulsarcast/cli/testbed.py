"""`pulsarcast testbed`: real nodes on this machine, under a load, measured."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from pulsarcast.cli.output import Finite, errors_shown, yes_option
from pulsarcast.cli.progress import Bars
from pulsarcast.cli.testbed_control import FOLDER, add_to, is_replaced, said_in

EXIT_LOST = 1

_TRACE_LEVELS = click.Choice(["none", "delivery", "rpc"])
_TRAVEL = click.Choice(["tree", "cube"])
_SECONDS = Finite(min=0, min_open=True)


@click.group()
def testbed() -> None:
    """Run real nodes on this machine, and measure them."""


add_to(testbed)


@testbed.command()
@click.option(
    "--nodes", type=click.IntRange(min=2), default=30, show_default=True, help="Number of nodes."
)
@click.option(
    "--events", type=click.IntRange(min=1), default=300, show_default=True, help="Number of events."
)
@click.option(
    "--topics", type=click.IntRange(min=1), default=5, show_default=True, help="Number of topics."
)
@click.option(
    "--payload", type=int, default=256, show_default=True, help="Payload of an event, in bytes."
)
@click.option(
    "--concurrency",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    help="Events in flight.",
)
@click.option("--only", multiple=True, help="Run this contestant only. May be repeated.")
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of all randomness.")
@click.option(
    "--dials",
    type=int,
    default=6,
    show_default=True,
    help="Dials per node, for floodsub and gossipsub.",
)
@click.option(
    "--frame",
    type=int,
    default=520,
    show_default=True,
    help="Frame of the contestant bare, in bytes.",
)
@click.option(
    "--fanout", type=int, default=6, show_default=True, help="Fan-out of the contestant bare."
)
@click.option(
    "--patience-s",
    type=_SECONDS,
    default=10.0,
    show_default=True,
    help="Seconds to wait for the deliveries of an event.",
)
@click.option(
    "--ack",
    type=click.Choice(["accepted", "replicated"]),
    default="replicated",
    show_default=True,
    help="Acknowledgement that publishers wait for.",
)
@click.option(
    "--dissemination",
    type=_TRAVEL,
    default="tree",
    show_default=True,
    help="Overlay of the contestant ours.",
)
@click.option(
    "--trace-level",
    type=_TRACE_LEVELS,
    default="none",
    show_default=True,
    help="Trace nothing, events only, or every message (rpc).",
)
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")
def compare(
    nodes: int,
    events: int,
    topics: int,
    payload: int,
    concurrency: int,
    only: tuple[str, ...],
    seed: int,
    dials: int,
    frame: int,
    fanout: int,
    patience_s: float,
    ack: str,
    dissemination: str,
    trace_level: str,
    as_json: bool,
) -> None:
    """Measure the contestants ours, floodsub, gossipsub and bare, one after another.

    A delivery is an event that reached a node other than its author. Bytes are those that left
    sockets, encrypted, without TCP and IP headers. Processor time is measured from the first event
    until one second after the last delivery.
    """
    with Bars() as bars, errors_shown():
        from pulsarcast.testbed.contestants.contestants import Settings
        from pulsarcast.testbed.scenarios import compare as comparing

        load = comparing.Load(
            nodes=nodes,
            events=events,
            topics=topics,
            payload_bytes=payload,
            concurrency=concurrency,
            patience_s=patience_s,
            ack=ack,
            dissemination=dissemination,
            settings=Settings(
                seed=seed,
                dials=dials,
                frame_bytes=frame,
                fanout=fanout,
                trace_level=None if trace_level == "none" else trace_level,
            ),
        )
        results = comparing.compare(load, only, progress=bars.show)
    click.echo(comparing.to_json(results) if as_json else comparing.to_text(results))


@testbed.command()
@click.argument("scenario")
@click.option("--out", type=FOLDER, required=True, help="Folder for traces and summary.")
@click.option(
    "--nodes", type=click.IntRange(min=2), help="Number of nodes; the default is the scenario's."
)
@click.option(
    "--order",
    type=click.Choice(["none", "per-publisher", "causal", "total"]),
    default="none",
    show_default=True,
    help="Delivery order.",
)
@click.option(
    "--dissemination",
    type=_TRAVEL,
    default="tree",
    show_default=True,
    help="Overlay that carries the events.",
)
@click.option(
    "--trace-level",
    type=_TRACE_LEVELS,
    default="delivery",
    show_default=True,
    help="Trace nothing, events only, or every message (rpc).",
)
@click.option(
    "--ack",
    type=click.Choice(["accepted", "replicated"]),
    default="replicated",
    show_default=True,
    help="Acknowledgement that publishers wait for.",
)
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of all randomness.")
@click.option(
    "--contestant", type=str, default="ours", show_default=True, help="Implementation of the nodes."
)
@click.option("--run-id", type=str, help="Name of the run in the traces.")
@click.option(
    "--timeout-s",
    type=_SECONDS,
    default=7200.0,
    show_default=True,
    help="Seconds after which the run fails.",
)
@click.option("--keep-homes", is_flag=True, help="Keep the homes of the nodes.")
@click.option("--workload", type=click.Path(path_type=Path), help="workload, quotes: file to play.")
@click.option(
    "--limit", "events_max", type=click.IntRange(min=1), help="workload: only the first N events."
)
@click.option(
    "--concurrency",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    help="workload: users that publish at the same time.",
)
@click.option(
    "--faults",
    multiple=True,
    help="workload: kills, full-disk, stopped, author or partition. May be repeated.",
)
@click.option(
    "--stopped-s",
    type=_SECONDS,
    default=60.0,
    show_default=True,
    help="Fault stopped: seconds that a node is stopped.",
)
@click.option(
    "--full-s",
    type=_SECONDS,
    default=20.0,
    show_default=True,
    help="Fault full-disk: seconds that a disk is full.",
)
@click.option(
    "--cut-s",
    type=_SECONDS,
    default=20.0,
    show_default=True,
    help="Fault partition: seconds that the network is cut.",
)
@click.option(
    "--events",
    type=click.IntRange(min=1),
    help="Number of events of a synthetic load; away: events that the subscriber misses.",
)
@click.option("--topics", type=click.IntRange(min=1), help="away, soak, mirror: number of topics.")
@click.option(
    "--payload",
    "payload_bytes",
    type=int,
    default=256,
    show_default=True,
    help="Payload of an event of a synthetic load, in bytes.",
)
@click.option(
    "--rate",
    "rate_per_s",
    type=_SECONDS,
    default=20.0,
    show_default=True,
    help="Events per second.",
)
@click.option(
    "--duration-s",
    type=_SECONDS,
    default=600.0,
    show_default=True,
    help="soak, succession: seconds that the load lasts.",
)
@click.option(
    "--sample-s",
    type=_SECONDS,
    default=5.0,
    show_default=True,
    help="soak: seconds between two measurements of memory.",
)
@click.option("--churn", is_flag=True, help="soak: a third of the nodes leave and come back.")
@click.option(
    "--kill",
    "by_kill",
    is_flag=True,
    help="away: kill the subscriber (SIGKILL) instead of stopping it.",
)
@click.option(
    "--filters",
    type=click.IntRange(1, 64),
    default=10,
    show_default=True,
    help="quotes: filters of each node.",
)
@click.option(
    "--sequencers",
    type=click.IntRange(1, 7),
    default=3,
    show_default=True,
    help="succession: number of sequencers.",
)
@click.option(
    "--every-s",
    type=_SECONDS,
    default=20.0,
    show_default=True,
    help="succession: seconds between two kills.",
)
@click.option(
    "--down-s",
    type=_SECONDS,
    default=5.0,
    show_default=True,
    help="succession: seconds that a killed sequencer is down.",
)
@click.option(
    "--election-timeout-s",
    type=_SECONDS,
    help="Election timeout of sequencers; the default is the protocol's.",
)
@click.option(
    "--latency-ms",
    type=Finite(min=0),
    default=1.0,
    show_default=True,
    help="mirror: one-way latency of the simulated nodes.",
)
@click.option(
    "--latency",
    metavar="MS~MS",
    help="Delay of incoming traffic, and its deviation: 500ms, or 500ms~300ms.",
)
@click.option(
    "--matrix",
    type=click.Path(path_type=Path),
    help="File of measured round trips, instead of --latency.",
)
@click.option("--memory-mib", type=click.IntRange(min=1), help="Memory limit of a node, in MiB.")
@click.option("--without-limits", is_flag=True, help="Run even if memory cannot be limited.")
@yes_option
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")
@click.pass_context
def run(
    ctx: click.Context, /, scenario: str, out: Path, yes: bool, as_json: bool, **_: Any
) -> None:
    """Play SCENARIO on real nodes; exit 1 if an event is lost, delivered twice or refused.

    SCENARIO is a file (.toml), whose values these options override, or one of

    \b
    workload    the thesis' evaluation: a file, or a synthetic load; with --faults
    away        a subscriber misses many events, comes back, and catches up
    mirror      one small load, simulated and on real nodes, whose messages are compared
    soak        a steady rate for a long time, to see whether memory grows
    hot         one topic, in which all nodes publish at once
    succession  total order, whose leading sequencer is killed again and again
    quotes      a topic routed by content: quotes are replayed, and filters match some
    """
    with Bars() as bars, errors_shown():
        from pulsarcast.testbed.claims import play
        from pulsarcast.testbed.scenario_files import options_for
        from pulsarcast.testbed.small_disk import keep_mounts_to_ourselves, may_mount

        said = said_in(ctx, "scenario", "out", "yes", "as_json")
        options = options_for(scenario, out=out, said=said)
        if "full-disk" in options.faults and may_mount():
            keep_mounts_to_ourselves()
        outcome = play(options, replace=is_replaced(out, yes=yes), progress=bars.show)
    click.echo(outcome.to_json() if as_json else outcome.to_text())
    if not outcome.ok:
        sys.exit(EXIT_LOST)


@testbed.command()
@click.argument("folders", nargs=-1, required=True, type=click.Path(path_type=Path))
def beside(folders: tuple[Path, ...]) -> None:
    """Print the results of finished runs in FOLDERS as one table, a column per run."""
    with errors_shown():
        from pulsarcast.testbed.beside import beside as put_beside

        text = put_beside(folders)
    click.echo(text, nl=False)


@testbed.command()
@click.option("--out", type=FOLDER, required=True, help="Folder for runs and results.")
@click.option(
    "--workload",
    type=click.Path(path_type=Path),
    help="Workload file; without it, a synthetic load.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=2000,
    show_default=True,
    help="Number of events of runs that play a part of the workload.",
)
@click.option("--small", is_flag=True, help="10 nodes, at most 500 events, 2 runs at a time.")
@click.option("--only", multiple=True, metavar="NAME", help="Play this run only. May be repeated.")
@click.option("--again", is_flag=True, help="Play finished runs again.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")
def thesis(
    out: Path,
    workload: Path | None,
    limit: int,
    small: bool,
    only: tuple[str, ...],
    again: bool,
    as_json: bool,
) -> None:
    """Repeat the thesis' evaluation, check it, and print its table beside the thesis'.

    \b
    ours, ours-total                        the whole workload, unordered and in total order
    floodsub, gossipsub                     its first events
    NAME-latency                            the same four, incoming traffic 500 ms late, +-300
    ours-author, ours-kills, ours-partition with a fault
    ours-live                               as many events, its traces streaming into Spark

    Finished runs are not played again: call the command again after a kill. Exit 1: a run failed,
    a run of ours lost an event, or the check of its traces found a violation.
    """
    with Bars() as bars, errors_shown():
        from dataclasses import replace

        from pulsarcast.testbed.thesis.evaluation import evaluate
        from pulsarcast.testbed.thesis.runs import FULL, SMALL, choose, plan_runs

        scale = SMALL if small else FULL
        plan = plan_runs(out, replace(scale, limit=limit), workload)
        results = evaluate(
            plan,
            out,
            only=choose(plan, only),
            again=again,
            at_a_time=scale.at_a_time,
            progress=bars.show,
            tell=lambda line: click.echo(line, err=True),
        )
    click.echo(results.to_json() if as_json else results.to_text())
    if not results.ok:
        sys.exit(EXIT_LOST)


@testbed.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--out",
    type=FOLDER,
    help="Folder for the rows; the default is sweeps/NAME, after FILE.",
)
@click.option("--seeds", type=click.IntRange(min=1), help="Seeds per setting; overrides FILE.")
@click.option(
    "--master", help="URL of the Spark master; without it $SPARK_MASTER, or this machine."
)
@click.option(
    "--table", "only_table", is_flag=True, help="Print the rows that exist, and run nothing."
)
def sweep(
    file: Path, out: Path | None, seeds: int | None, master: str | None, only_table: bool
) -> None:
    """Run the settings in FILE of the VCube-PS paper's model, each with many seeds, on Spark.

    Prints a table for each figure of the paper, with the paper's value beside ours. Finished
    replicates are not run again: call the command again after a kill. Exit 1: a replicate failed.
    """
    with Bars() as bars, errors_shown():
        from pulsarcast.testbed.sweep import read_sweep, run_sweep
        from pulsarcast.testbed.sweep_tables import to_markdown

        plan = read_sweep(file, seeds=seeds)
        rows = run_sweep(
            plan,
            out or Path("sweeps") / file.stem,
            master=master,
            only_read=only_table,
            progress=bars.show,
        )
        text = to_markdown(plan, rows)
    click.echo(text, nl=False)
    if any(row.error is not None for row in rows):
        sys.exit(EXIT_LOST)


@testbed.command()
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    help="File for the costs, in JSON.",
)
@click.option(
    "--seconds",
    type=_SECONDS,
    default=8.0,
    show_default=True,
    help="Seconds of each load of real nodes.",
)
def costs(out: Path, seconds: float) -> None:
    """Measure what a node costs the processor, for `pulsarcast simulate --costs`.

    Needs an otherwise idle machine. Prints the processor time of a delivery on real nodes, and on
    simulated ones that have these costs.
    """
    with Bars() as bars, errors_shown():
        import msgspec

        from pulsarcast.testbed.costs import measure_costs

        measured, compared = measure_costs(seconds, progress=bars.show)
        text = msgspec.json.format(msgspec.json.encode(measured), indent=2)
        out.write_bytes(text + b"\n")
    for each in compared:
        click.echo(f"{each.load}: {each.real} ms a delivery, simulated {each.simulated}")
