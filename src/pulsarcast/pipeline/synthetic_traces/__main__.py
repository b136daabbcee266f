"""`python -m pulsarcast.pipeline.synthetic_traces`: write a clean trace of any size."""

from __future__ import annotations

import json
from pathlib import Path

import click

from pulsarcast.pipeline.synthetic_traces.planning import NODES, make_plan
from pulsarcast.pipeline.synthetic_traces.writing import write_traces


@click.command()
@click.option("--lines", type=int, required=True, help="How many lines, exactly.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="An empty folder.")
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--nodes", type=int, default=NODES, show_default=True)
@click.option("--run-id", default="", help="By default made of the lines and the seed.")
@click.option("--workers", type=int, default=None, help="Processes; by default one per core.")
def command(lines: int, out: Path, seed: int, nodes: int, run_id: str, workers: int | None) -> None:
    """Write a trace that keeps every promise, and print the figures it comes to."""
    plan = make_plan(lines, seed=seed, nodes=nodes, run_id=run_id)
    click.echo(json.dumps(write_traces(plan, out, workers=workers)))


if __name__ == "__main__":
    command()
