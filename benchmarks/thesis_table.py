"""The table of the thesis' runs in docs/figures.md, from the runs' own results.

    W=workload-25k.ndjson.zst
    pulsarcast simulate thesis --workload $W --trace RUNS/plain-none --run-id plain-none
    ...
    python benchmarks/thesis_table.py RUNS

Each run's folder below RUNS is named as in `RUNS` here; those that are not there are left out.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import click


class Kind(NamedTuple):
    """One row: what happens, what the thesis measured, and how to run it."""

    about: str
    thesis: str
    options: str


RUNS = {
    "plain-none": Kind("anyone publishes", "99.99 %", ""),
    "plain-total": Kind("order guarantee (total)", "37 %", "--order total"),
    "latency-none": Kind(
        "anyone publishes, 500 ms ± 300 ms", "52 %", "--latency-ms 500 --jitter-ms 300"
    ),
    "latency-total": Kind(
        "order guarantee, 500 ms ± 300 ms",
        "32 %",
        "--order total --latency-ms 500 --jitter-ms 300",
    ),
    "root-lost-none": Kind("busiest author lost for good", "–", "--faults root-lost"),
    "root-restarted-total": Kind(
        "busiest author away for 60 s, total", "–", "--order total --faults root-restarted"
    ),
    "restarts-none": Kind("30 % of nodes killed and restarted", "–", "--faults restarts"),
    "restarts-total": Kind("the same, total", "–", "--order total --faults restarts"),
    "partition-none": Kind("partition 50/50 for 60 s", "–", "--faults partition"),
    "partition-total": Kind("the same, total", "–", "--order total --faults partition"),
    "churn-none": Kind("30 % of subscriptions end and begin anew", "–", "--faults churn"),
}
HEADS = (
    "run (`pulsarcast simulate thesis --workload W …`)",
    "thesis",
    "delivered of due",
    "duplicates, order violations, lost acknowledged",
    "event messages per delivery",
    "hops mean / max",
    "fan-out max",
    "simulated s",
    "CPU s",
)


@click.command()
@click.argument("folder", type=click.Path(exists=True, path_type=Path))
def command(folder: Path) -> None:
    """Print the table of the runs below FOLDER."""
    click.echo(f"| {' | '.join(HEADS)} |")
    click.echo("| --- " * len(HEADS) + "|")
    for name, kind in RUNS.items():
        path = folder / name / "result.json"
        if path.exists():
            click.echo(row(kind, json.loads(path.read_text())))


def row(kind: Kind, result: dict[str, float]) -> str:
    """One run."""
    options = f": `{kind.options}`" if kind.options else ""
    cells = (
        f"{kind.about}{options}",
        kind.thesis,
        f"{result['delivered']:,} of {result['due']:,}",
        f"{result['duplicates']}, {result['order_violations']}, {result['lost_acknowledged']}",
        f"{result['messages_per_delivery']:.3f}",
        f"{result['hops_mean']:.1f} / {result['hops_max']}",
        f"{result['fanout_max']}",
        f"{result['sim_s']:,.0f}",
        f"{result['cpu_s']:,.0f}",
    )
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    command()
