"""`pulsarcast pipeline workload`: raw comments, or chance, into a workload.

pulsarcast pipeline workload --input RC_2006-*.bz2 --nodes 100 --out DIR
pulsarcast pipeline workload --synthetic 1000000 --nodes 100 --out DIR
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from pulsarcast.cli.output import errors_shown
from pulsarcast.model.errors import LocalError

if TYPE_CHECKING:
    from pulsarcast.pipeline.workloads import Counts


@click.command(name="workload")
@click.option(
    "--input", "inputs", multiple=True, metavar="FILE...", help="Dump of comments. May be repeated."
)
@click.argument("more", nargs=-1, metavar="[FILE]...")
@click.option(
    "--synthetic", type=click.IntRange(min=1), help="Generate N comments instead.", metavar="N"
)
@click.option("--topics", type=click.IntRange(min=1), help="Number of topics of --synthetic.")
@click.option("--authors", type=click.IntRange(min=1), help="Number of authors of --synthetic.")
@click.option(
    "--nodes", type=click.IntRange(min=1), default=100, show_default=True, help="Number of nodes."
)
@click.option(
    "--first", type=click.IntRange(min=1), help="Only the first N comments, in order.", metavar="N"
)
@click.option(
    "--sample", type=click.IntRange(min=1), help="Only N comments, chosen by hash.", metavar="N"
)
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of all randomness.")
@click.option(
    "--redraw",
    is_flag=True,
    help="Draw a node for each comment of an author without one, as the original did.",
)
@click.option("--bodies", is_flag=True, help="Keep the texts of comments.")
@click.option(
    "--listing/--no-listing", default=True, help="Write the thesis' listing beside the tables."
)
@click.option(
    "--master", help="URL of the Spark master; without it $SPARK_MASTER, or this machine."
)
@click.option("--out", required=True, help="Folder for the workload, empty or new.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")
def command(
    inputs: tuple[str, ...],
    more: tuple[str, ...],
    synthetic: int | None,
    topics: int | None,
    authors: int | None,
    nodes: int,
    first: int | None,
    sample: int | None,
    seed: int,
    redraw: bool,
    bodies: bool,
    listing: bool,
    master: str | None,
    out: str,
    as_json: bool,
) -> None:
    """Make a workload, tables and the thesis' listing, from dumps of comments or synthetically."""
    from pulsarcast.pipeline.session import session
    from pulsarcast.pipeline.workloads import Options, Size, make_from_dumps, make_synthetic
    from pulsarcast.pipeline.workloads.tables import check_out

    # A shell expands `--input *.bz2` to many words, of which an option takes one.
    files = [*inputs, *more]
    with errors_shown():
        if bool(files) == (synthetic is not None):
            raise LocalError("give --input or --synthetic")
        if files and (topics is not None or authors is not None):
            raise LocalError("--topics and --authors are for --synthetic: dumps have their own")
        options = Options(
            nodes=nodes,
            seed=seed,
            first=first,
            sample=sample,
            redraw=redraw,
            bodies=bodies,
            listing=listing,
        )
        check_out(out)
        if synthetic is None:
            from pulsarcast.pipeline.workloads.comments import check_files

            check_files(files)
            with session("workload", master=master) as spark:
                counts = make_from_dumps(spark, files, options, out)
        else:
            given = {"topics": topics, "authors": authors}
            size = Size(
                comments=synthetic, **{name: n for name, n in given.items() if n is not None}
            )
            with session("workload", master=master) as spark:
                counts = make_synthetic(spark, size, options, out)
    click.echo(_to_json(counts) if as_json else _to_text(counts, out))


def _to_json(counts: Counts) -> str:
    import msgspec

    return json.dumps(msgspec.structs.asdict(counts))


def _to_text(counts: Counts, out: str) -> str:
    refused = ", ".join(f"{reason} {count:,}" for reason, count in counts.reasons.items())
    figures = {
        "lines": f"{counts.lines:,}",
        "broken": f"{counts.broken:,}" + (f" ({refused})" if refused else ""),
        "cut off files": f"{counts.broken_files:,}",
        "taken": f"{counts.taken:,} comments",
        "deleted": f"{counts.deleted:,}",
        "repeated": f"{counts.repeated:,}",
        "events": f"{counts.events:,} of {counts.authors:,} authors on {counts.nodes:,} nodes",
        "topics": f"{counts.topics:,}",
        "subscriptions": f"{counts.subscriptions:,}",
        "deliveries due": f"{counts.deliveries_due:,}, a node's own included",
        "written to": out,
    }
    return "\n".join(f"{name:15} {figure}" for name, figure in figures.items())
