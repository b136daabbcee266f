"""Hide mutants at the very end of a large clean trace: does check find exactly those?

Three mutants of every kind of finding are put into the last segments of the last few nodes, in the
place of lines that no promise is about; then the trace is landed and checked, in the same two cores
and 2 GiB heap as everything else.

    python benchmarks/mutants_at_scale.py --lines 50000000 --work DIR --out FIGURES.json
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click
import measuring
import zstandard
from pipeline_cost import Bench

sys.path.append(str(Path(__file__).parent.parent))  # for the tests' mutants
from tests.pipeline.mutants import Planted, key_of, plant

NODES: Final = 8
"""Nodes that have mutants; each mutant needs three."""
SEGMENTS: Final = 2
"""Segments of each, its last ones."""
TEXT_BYTES_MAX: Final = 1 << 26


@click.command()
@click.option("--lines", type=int, default=50_000_000, show_default=True)
@click.option("--work", type=click.Path(path_type=Path), required=True, help="For traces, tables.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The figures, as JSON.")
@click.option("--each", type=int, default=3, show_default=True, help="Mutants of every kind.")
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--timeout-s", type=float, default=7_200.0, show_default=True, help="Of one job.")
def command(lines: int, work: Path, out: Path, each: int, seed: int, timeout_s: float) -> None:
    """Plant, land, check, and compare what was found with what was planted."""
    measuring.become_subreaper()
    bench = Bench(work, seed, timeout_s)
    traces = bench.work / f"mutated-{lines}-{seed}"
    shutil.rmtree(traces, ignore_errors=True)
    # Links: only the segments that change are written anew.
    shutil.copytree(bench.make_traces(lines), traces, copy_function=_link)
    segments = list(last_segments(traces))
    planted = plant((line for segment in segments for line in read(segment)), each=each)
    changed = sum(rewrite(segment, planted) for segment in segments)
    assert changed == len(planted.edits), (changed, len(planted.edits))
    jobs = {job: bench.measure(job, lines, traces) for job in ("ingest", "check")}
    found = jobs["check"]["said"]
    expected = dict(sorted(planted.expected.items()))
    figures = {
        "lines": lines,
        "seed": seed,
        "mutants": planted.names,
        "changed_lines": changed,
        "in_segments": [segment.name for segment in segments],
        "expected": expected,
        "found": dict(sorted(found["findings"].items())),
        "unknown": found["unknown"],
        "exactly": found == {"findings": expected, "unknown": {}},
        **{
            job: {key: value for key, value in figures.items() if key != "stages"}
            for job, figures in jobs.items()
        },
    }
    out.write_text(json.dumps(figures, indent=1) + "\n")
    click.echo(json.dumps({key: figures[key] for key in ("lines", "expected", "found", "exactly")}))
    shutil.rmtree(traces)
    bench.tidy(lines)
    sys.exit(0 if figures["exactly"] else 1)


def _link(source: str, target: str) -> None:
    Path(target).hardlink_to(source)


def last_segments(traces: Path) -> Iterator[Path]:
    """The last segments of the last nodes that ran to their end, in the sequence of their names."""
    by_node: dict[str, list[Path]] = {}
    for segment in sorted(traces.glob("12D3*.ndjson.zst")):
        by_node.setdefault(segment.name.split("-")[0], []).append(segment)
    chosen = 0
    for name in sorted(by_node, reverse=True):
        last = by_node[name][-1]
        life = last.name.split("-")[1]
        if list(read(last))[-1]["kind"] != "node_stopped":
            continue
        yield from (each for each in by_node[name][-SEGMENTS:] if each.name.split("-")[1] == life)
        chosen += 1
        if chosen == NODES:
            return


def texts(segment: Path) -> list[bytes]:
    """The lines of a segment as they stand there."""
    text = zstandard.decompress(segment.read_bytes(), max_output_size=TEXT_BYTES_MAX)
    return text.splitlines(keepends=True)


def read(segment: Path) -> Iterator[dict[str, Any]]:
    """The lines of a segment, read."""
    return map(json.loads, texts(segment))


def rewrite(segment: Path, planted: Planted) -> int:
    """Put the mutants into a segment; returns how many lines changed."""
    changed = 0
    lines = []
    for text in texts(segment):
        edit = planted.edits.get(key_of(json.loads(text)))
        if edit is not None:
            text = json.dumps(edit, separators=(",", ":")).encode() + b"\n"  # noqa: PLW2901
            changed += 1
        lines.append(text)
    # Another file under the same name: the clean trace keeps its own.
    segment.unlink()
    segment.write_bytes(zstandard.ZstdCompressor(level=1).compress(b"".join(lines)))
    return changed


if __name__ == "__main__":
    command()
