"""`pulsarcast simulate`: run a scenario, or many seeds of one, and judge it.

The exit code is 1 if a checker finds a violation; the output names the command that replays it.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click
from tqdm import tqdm

from pulsarcast.cli.output import Finite, errors_shown
from pulsarcast.cli.progress import Bars
from pulsarcast.model.errors import LocalError

if TYPE_CHECKING:
    from pulsarcast.simulation.options import Options

EXIT_OBJECTED = 1
FROM_THE_SEED = {
    "nodes",
    "order",
    "dissemination",
    "latency_ms",
    "jitter_ms",
    "latency_matrix",
    "faults",
    "workload",
    "subscribers",
    "settled",
    "events",
}
"""The options that a random run derives from its seed."""
_OF_CONTENT = {"subscriptions", "probing", "cut_off", "skew", "follow_load", "churn"}
_HARDWARE = {"costs", "cores", "uplink_mbit"}
WITHOUT_USE = {
    "workload": {"subscribers", "settled", *_OF_CONTENT},
    "tree": {"faults", "workload", *_OF_CONTENT},
    "load": {
        "order",
        "faults",
        "workload",
        "subscribers",
        "settled",
        "events",
        "settle_s_max",
        "trace",
        "trace_level",
        "run_id",
        "without",
        "share_verification",
        "through_wire",
        *_OF_CONTENT,
    },
    "random": _OF_CONTENT,
    "reach": _OF_CONTENT,
    "sequenced": _OF_CONTENT,
    "sequencers": {
        "settle_s_max",
        "share_verification",
        "through_wire",
        *_OF_CONTENT,
        *_HARDWARE,
    },
    "content": {
        "order",
        "dissemination",
        "faults",
        "subscribers",
        "settled",
        "trace",
        "trace_level",
        "run_id",
        *_HARDWARE,
    },
    "random_content": _OF_CONTENT | _HARDWARE,
}
"""The options that scenarios of each kind refuse, since they have no effect there."""


@click.command()
@click.argument("scenario", required=False)
@click.option("--list", "list_", is_flag=True, help="List scenarios, fault plans and safeguards.")
@click.option("--nodes", type=click.IntRange(min=2), help="Number of nodes.")
@click.option("--seed", type=int, help="Seed of all randomness.")
@click.option("--seeds", type=click.IntRange(min=1), metavar="N", help="Run N seeds, on all cores.")
@click.option("--first-seed", type=int, help="First of the --seeds; without it, 1.")
@click.option(
    "--order",
    type=click.Choice(["none", "per-publisher", "causal", "total"]),
    help="Delivery order of all topics.",
)
@click.option(
    "--dissemination", type=click.Choice(["tree", "cube"]), help="Overlay that carries the events."
)
@click.option("--latency-ms", type=Finite(min=0), help="One-way latency between any two nodes.")
@click.option("--jitter-ms", type=Finite(min=0), help="Largest deviation from --latency-ms.")
@click.option("--latency-matrix", type=str, help="File of measured round trips.")
@click.option("--faults", type=str, help="Name of a fault plan (see --list).")
@click.option("--workload", type=str, help="Workload file (Listing 5.1), or, of content, names.")
@click.option("--subscribers", type=click.IntRange(min=1), help="Number of subscribers.")
@click.option(
    "--settled/--no-settled", default=None, help="Tree, cube: begin as if all nodes had joined."
)
@click.option("--events", type=click.IntRange(min=1), help="Only the first N events.", metavar="N")
@click.option("--subscriptions", type=click.IntRange(min=1), help="Content: filters per node.")
@click.option(
    "--probing",
    type=click.Choice(["multicast", "unicast"]),
    help="Content: one probe per next hop, or one per target.",
)
@click.option(
    "--cut-off",
    type=click.Choice(["follows", "fixed", "none"]),
    help="Content: cut-off line that follows the filters, stays, or is absent.",
)
@click.option(
    "--skew",
    type=Finite(0.0001, 1.0),
    help="Content: share of each attribute's range that events use.",
)
@click.option(
    "--follow-load/--no-follow-load",
    default=None,
    help="Content: split leaves with many events too.",
)
@click.option("--churn", type=str, help="Content: sessions of nodes, from FILE:NAME.")
@click.option(
    "--settle-s-max",
    type=Finite(min=0),
    help="Simulated seconds that the network may take to settle.",
)
@click.option("--costs", type=str, help="CPU time per input: a file, or 'measured'.")
@click.option("--cores", type=click.IntRange(min=1), help="Cores that all nodes share.")
@click.option("--uplink-mbit", type=Finite(min=0, min_open=True), help="Uplink of each node.")
@click.option("--trace", type=str, help="Folder for the traces of all nodes.")
@click.option(
    "--trace-level",
    type=click.Choice(["delivery", "rpc"]),
    help="Events only, or every message (rpc).",
)
@click.option("--run-id", type=str, help="Name of the run in the traces.")
@click.option("--without", type=str, help="Name of a safeguard to switch off (see --list).")
@click.option(
    "--share-verification/--no-share-verification",
    default=None,
    help="Verify identical bytes once for all nodes.",
)
@click.option(
    "--through-wire/--no-through-wire",
    default=None,
    help="Encode and decode every message.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")
def simulate(
    scenario: str | None,
    list_: bool,
    seeds: int | None,
    first_seed: int | None,
    as_json: bool,
    **changes: Any,
) -> None:
    """Simulate SCENARIO and check every promise; exit 1 if a check fails."""
    with errors_shown():
        if list_ or scenario is None:
            _list()
            return
        if seeds is not None and changes["seed"] is not None:
            raise click.UsageError("--seed or --seeds: with --first-seed these begin elsewhere")
        if seeds is None and first_seed is not None:
            raise click.UsageError("--first-seed goes with --seeds")
        options = _options(scenario, changes)
        if seeds is not None:
            first = 1 if first_seed is None else first_seed
            ok = _run_seeds(options, range(first, first + seeds), as_json=as_json)
        else:
            ok = _run_one(options, as_json=as_json)
    if not ok:
        sys.exit(EXIT_OBJECTED)


def _options(scenario: str, changes: dict[str, Any]) -> Options:
    import msgspec

    from pulsarcast.simulation.options import load

    given = {name: value for name, value in changes.items() if value is not None}
    options = load(scenario)
    by_seed = options.kind in ("random", "reach", "sequenced", "sequencers", "random_content")
    fixed = sorted(set(given) & FROM_THE_SEED) if by_seed else []
    if options.kind == "random" and given.get("order") == "causal":
        fixed.remove("order")  # of all its topics
    if fixed:
        raise LocalError(f"a random run takes these from its seed: {_flags(fixed)}")
    without_use = set(given) & WITHOUT_USE[options.kind]
    if "latency_matrix" in given:
        # A matrix says how long everything takes.
        without_use |= set(given) & {"latency_ms", "jitter_ms"}
    if without_use:
        raise LocalError(f"{scenario} has no use for {_flags(sorted(without_use))}")
    return msgspec.structs.replace(options, **given)


def _flags(names: list[str]) -> str:
    return ", ".join("--" + name.replace("_", "-") for name in names)


def _list() -> None:
    from pulsarcast.simulation.faults import PLANS
    from pulsarcast.simulation.options import load, names
    from pulsarcast.simulation.sabotage import SAFEGUARDS

    click.echo("scenarios:")
    for name in names():
        click.echo(f"  {name:15} {load(name).about}")
    click.echo("fault plans (--faults), for workloads:")
    for name, plan in PLANS.items():
        click.echo(f"  {name:15} {plan.__doc__}")
    click.echo("safeguards (--without):")
    for name, spoilt in SAFEGUARDS.items():
        click.echo(f"  {name:15} {spoilt.about}")


def _run_one(options: Options, *, as_json: bool) -> bool:
    from pulsarcast.simulation.scenario import run_scenario

    with Bars() as bars:
        result = run_scenario(options, progress=bars.show)
    click.echo(result.to_json() if as_json else result.to_text())
    if as_json and not result.ok:
        click.echo(f"again with: {result.replay}", err=True)
    return result.ok


def _run_seeds(options: Options, seeds: range, *, as_json: bool) -> bool:
    from pulsarcast.simulation.seeds import Summary, run_seeds

    summary = Summary(options.kind, options.dissemination)
    bar = tqdm(run_seeds(options, seeds), total=len(seeds), disable=None, unit="run")
    for result in bar:
        summary.add(result)
        if not result.ok:
            bar.set_postfix(failed=len(summary.failed))
            if not as_json:
                tqdm.write(result.to_text())
    figures = summary.to_dict()
    if as_json:
        click.echo(json.dumps(figures))
    else:
        for name, value in figures.items():
            if name != "replay":
                click.echo(f"{name:15} {value}")
        for command in summary.failed:
            click.echo(f"again with: {command.replay}")
    weak = options.without is None and summary.rare()
    return not summary.failed and not weak
