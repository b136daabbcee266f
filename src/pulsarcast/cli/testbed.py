"""`pulsarcast testbed`: real nodes on this machine, under a load, measured."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from pulsarcast.cli.progress import Bars
from pulsarcast.cli.telling import telling
from pulsarcast.cli.testbed_control import add_to, said_in
from pulsarcast.model.errors import LocalError

EXIT_LOST = 1

# A node's trace: how much of it, or none.
_TRACE_LEVELS = click.Choice(["none", "delivery", "rpc"])
_TRAVEL = click.Choice(["tree", "cube"])
_SECONDS = click.FloatRange(min=0, min_open=True)


@click.group()
def testbed() -> None:
    """Run many real nodes on this machine, and measure them."""


add_to(testbed)


@testbed.command()
@click.option("--nodes", type=click.IntRange(min=2), default=30, show_default=True)
@click.option("--events", type=click.IntRange(min=1), default=300, show_default=True)
@click.option("--topics", type=click.IntRange(min=1), default=5, show_default=True)
@click.option("--payload", type=int, default=256, show_default=True, help="Bytes of an event.")
@click.option(
    "--concurrency", type=click.IntRange(min=1), default=5, show_default=True, help="In flight."
)
@click.option("--only", multiple=True, help="Run this contestant only; may be given again.")
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--dials", type=int, default=6, show_default=True, help="Per node, in pubsub graphs.")
@click.option("--frame", type=int, default=520, show_default=True, help="Bytes of a bare frame.")
@click.option("--fanout", type=int, default=6, show_default=True, help="Of bare trees.")
@click.option("--patience-s", type=_SECONDS, default=10.0, show_default=True, help="Per event.")
@click.option("--ack", type=click.Choice(["accepted", "replicated"]), default="replicated")
@click.option("--dissemination", type=_TRAVEL, default="tree", show_default=True, help="Of ours.")
@click.option("--trace-level", type=_TRACE_LEVELS, default="none", show_default=True)
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
    """Measure ours, floodsub, gossipsub and bare, one after another.

    A delivery counts where an event reached another node than its author. Bytes are those that
    left sockets, encrypted, without the headers of TCP and IP. Processor time runs from the first
    event until one second after the last delivery.
    """
    with Bars() as bars, telling():
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
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Traces and summary.")
@click.option("--nodes", type=click.IntRange(min=2), help="By default what the scenario takes.")
@click.option(
    "--order", type=click.Choice(["none", "per-publisher", "causal", "total"]), default="none"
)
@click.option("--dissemination", type=_TRAVEL, default="tree", show_default=True)
@click.option("--trace-level", type=_TRACE_LEVELS, default="delivery", show_default=True)
@click.option("--ack", type=click.Choice(["accepted", "replicated"]), default="replicated")
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--contestant", type=str, default="ours", show_default=True)
@click.option("--run-id", type=str, help="What the traces call this run.")
@click.option(
    "--timeout-s", type=_SECONDS, default=7200.0, show_default=True, help="Then it fails."
)
@click.option("--keep-homes", is_flag=True, help="Leave the folders of the nodes in place.")
@click.option("--workload", type=click.Path(path_type=Path), help="workload, quotes: the file.")
@click.option(
    "--limit", "events_max", type=click.IntRange(min=1), help="workload: only the first N events."
)
@click.option(
    "--concurrency",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    help="workload: users at a time.",
)
@click.option(
    "--faults",
    multiple=True,
    help="workload: kills, full-disk, stopped, author or partition; may be given again.",
)
@click.option(
    "--stopped-s", type=_SECONDS, default=60.0, show_default=True, help="faults: how long."
)
@click.option("--full-s", type=_SECONDS, default=20.0, show_default=True, help="faults: how long.")
@click.option("--cut-s", type=_SECONDS, default=20.0, show_default=True, help="faults: how long.")
@click.option(
    "--events", type=click.IntRange(min=1), help="Of a load that is made up; away: missed ones."
)
@click.option("--topics", type=click.IntRange(min=1), help="away, soak, mirror.")
@click.option("--payload", "payload_bytes", type=int, default=256, show_default=True)
@click.option(
    "--rate", "rate_per_s", type=_SECONDS, default=20.0, show_default=True, help="A second."
)
@click.option(
    "--duration-s", type=_SECONDS, default=600.0, show_default=True, help="soak, succession."
)
@click.option("--sample-s", type=_SECONDS, default=5.0, show_default=True, help="soak: of memory.")
@click.option("--churn", is_flag=True, help="soak: a third of the nodes come and go.")
@click.option("--kill", "by_kill", is_flag=True, help="away: by SIGKILL, not in good order.")
@click.option(
    "--filters",
    type=click.IntRange(1, 64),
    default=10,
    show_default=True,
    help="quotes: of each node.",
)
@click.option(
    "--sequencers",
    type=click.IntRange(1, 7),
    default=3,
    show_default=True,
    help="succession: how many agree on the order.",
)
@click.option(
    "--every-s", type=_SECONDS, default=20.0, show_default=True, help="succession: a kill."
)
@click.option(
    "--down-s", type=_SECONDS, default=5.0, show_default=True, help="succession: after it."
)
@click.option("--election-timeout-s", type=_SECONDS, help="Of all nodes; by default theirs.")
@click.option(
    "--latency-ms",
    type=click.FloatRange(min=0),
    default=1.0,
    show_default=True,
    help="mirror: simulated.",
)
@click.option(
    "--latency", metavar="MS~MS", help="What comes in arrives so late: 500ms, or 500ms~300ms."
)
@click.option("--matrix", type=click.Path(path_type=Path), help="Round trips, for --latency.")
@click.option("--memory-mib", type=click.IntRange(min=1), help="A node that takes more is killed.")
@click.option("--without-limits", is_flag=True, help="Go on where memory cannot be limited.")
@click.option("--replace", is_flag=True, help="Overwrite a finished run.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")
@click.pass_context
def run(
    ctx: click.Context, /, scenario: str, out: Path, replace: bool, as_json: bool, **_: Any
) -> None:
    """Play SCENARIO on real nodes; exit 1 where something is lost, twice or refused.

    It is a file (.toml), before which these options go, or one of

    \b
    workload  the thesis' evaluation: a file, or a load of its shape; with --faults if wanted
    away      a subscriber misses many events, comes back, and catches up
    mirror    one small load, simulated and on real nodes: do both send the same?
    soak      a steady rate for long: does memory grow?
    hot       one topic, everyone publishes at once: tree against cube
    succession  total order whose acting sequencer is killed again and again
    quotes    one topic routed by content: quotes are replayed, and filters ask for some
    """
    with Bars() as bars, telling():
        from pulsarcast.testbed.claims import play
        from pulsarcast.testbed.scenario_files import options_for
        from pulsarcast.testbed.small_disk import keep_mounts_to_ourselves, may_mount

        said = said_in(ctx, "scenario", "out", "replace", "as_json")
        options = options_for(scenario, out=out, said=said)
        if "full-disk" in options.faults and may_mount():
            keep_mounts_to_ourselves()
        outcome = play(options, replace=replace, progress=bars.show)
    click.echo(outcome.to_json() if as_json else outcome.to_text())
    if not outcome.ok:
        sys.exit(EXIT_LOST)


@testbed.command()
@click.argument("folders", nargs=-1, required=True, type=click.Path(path_type=Path))
def beside(folders: tuple[Path, ...]) -> None:
    """Print what finished runs in FOLDERS came to as one table, a column for each."""
    with telling():
        from pulsarcast.testbed.beside import beside as put_beside

        text = put_beside(folders)
    click.echo(text, nl=False)


@testbed.command()
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Runs and results.")
@click.option("--workload", type=click.Path(path_type=Path), help="Its file; else one is made up.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=2000,
    show_default=True,
    help="Events of runs that do not play the whole workload.",
)
@click.option("--small", is_flag=True, help="10 nodes, 500 events at most, 2 runs at a time.")
@click.option("--only", multiple=True, metavar="NAME", help="Play this run; may be given again.")
@click.option("--again", is_flag=True, help="Play anew what has been played.")
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
    """Repeat the thesis' evaluation, judge it, and put its table beside ours.

    \b
    ours, ours-total                        the whole workload, unordered and in total order
    floodsub, gossipsub                     its first events
    NAME-latency                            the same four, all that comes in 500 ms late, +-300
    ours-author, ours-kills, ours-partition with a fault
    ours-live                               as many events, its traces streaming into Spark

    What was played is not played again: a call that was killed is simply made again. Exit 1: a
    run failed, or one of ours lost something, or its verdict is not clean.
    """
    with Bars() as bars, telling():
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
@click.option("--out", type=click.Path(path_type=Path), help="Rows; by default sweeps/FILE's name.")
@click.option("--seeds", type=click.IntRange(min=1), help="Of each setting, before what FILE says.")
@click.option("--master", help="Spark's; by default SPARK_MASTER, or all cores of this machine.")
@click.option("--table", "only_table", is_flag=True, help="Run nothing: print what there is.")
def sweep(
    file: Path, out: Path | None, seeds: int | None, master: str | None, only_table: bool
) -> None:
    """Run FILE's settings of the VCube-PS paper's model, each with many seeds, on Spark.

    Prints a table for each figure of the paper, with its number beside ours. What was run is not
    run again: a call that was killed is simply made again. Exit 1: a replicate failed.
    """
    with Bars() as bars, telling():
        try:
            from pulsarcast.testbed.sweep import read_sweep, run_sweep
        except ModuleNotFoundError as error:
            if error.name and error.name.startswith("pulsarcast"):
                raise
            raise LocalError(f"{error.name} is missing: pip install 'pulsarcast[all]'") from error
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
