r"""Goodput and latency over offered load: what ten nodes do that are asked for more than they can.

    python -m benchmarks.overload --out out/overload --real --simulated --picture FILE
    python -m benchmarks.overload --out out/large --real --nodes 3 --payload 1000000 \
        --in-flight 1 5 30

Without `--in-flight`, capacity is measured first, with two events of every publisher in flight;
then loads from half of it to eight times as much are offered. With it, one publisher has so many
in flight. Each point is a file, written once it is measured; what is there is not measured again.
`--picture` draws them beside `overload_before.json`: nodes that counted events and not bytes, and
never slowed a publisher. Needs no extra; the picture needs `pipeline`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pulsarcast.simulation.hardware.costs import MEASURED, read_costs
from pulsarcast.simulation.hardware.machines import Hardware
from pulsarcast.simulation.links import Constant
from pulsarcast.simulation.loads import Load, Outcome
from pulsarcast.simulation.scenario_load import CAPACITY_IN_FLIGHT, IN_FLIGHT_MAX, TIMES, play
from pulsarcast.testbed import loaded

BEFORE = Path(__file__).with_name("overload_before.json")
LATENCY_S = 0.000_1
HEIGHT, WIDTH, SCALE = 220, 300, 2


def main() -> None:
    """Measure what is asked for and not there yet, then draw."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--real", action="store_true")
    parser.add_argument("--simulated", action="store_true")
    parser.add_argument("--nodes", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--payload", type=int, default=256)
    parser.add_argument("--in-flight", type=int, nargs="*", default=[])
    parser.add_argument("--cores", type=int, default=2, help="of the simulated machine")
    parser.add_argument("--costs", default=MEASURED)
    parser.add_argument("--picture", type=Path)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    if given.real:
        measure(given, "real", loaded.play)
    if given.simulated:
        hardware = Hardware(read_costs(given.costs), given.cores)
        links = Constant(LATENCY_S)
        measure(given, "simulated", lambda load: play(load, hardware=hardware, links=links, seed=1))
    if given.picture is not None:
        draw(given.out, given.picture)


def measure(given: argparse.Namespace, kind: str, play: Callable[[Load], Outcome]) -> None:
    """Measure the points of one kind of nodes that are not there yet, and print all."""
    for name, times, load in _points(given, kind):
        path = given.out / f"{name}.json"
        if not path.exists():
            came = play(load)._asdict()
            measured = {"point": name, "times": times, **load._asdict(), **came}
            path.write_text(json.dumps(measured) + "\n")
        sys.stdout.write(path.read_text())
        sys.stdout.flush()


def _points(given: argparse.Namespace, kind: str) -> Iterator[tuple[str, float | None, Load]]:
    """Names, multiples of the capacity, and loads; the capacity comes first and is then read."""
    for dissemination in ("tree", "cube"):
        stem = f"{kind}-{dissemination}"
        closed = Load(
            members=given.nodes,
            publishers=given.nodes,
            dissemination=dissemination,
            payload=given.payload,
            seconds=given.seconds,
            rate=0.0,
            in_flight=CAPACITY_IN_FLIGHT,
        )
        for count in given.in_flight:
            name = f"{stem}-{given.payload}-{count}"
            yield name, None, closed._replace(publishers=1, in_flight=count)
        if given.in_flight:
            continue
        yield f"{stem}-capacity", None, closed
        capacity = json.loads((given.out / f"{stem}-capacity.json").read_text())
        for times in TIMES:
            rate = times * capacity["goodput_per_s"]
            yield f"{stem}-{times:g}", times, closed._replace(rate=rate, in_flight=IN_FLIGHT_MAX)


def draw(folder: Path, path: Path) -> None:
    """Two panels a kind of dissemination: goodput over load, and p99 over load."""
    import altair as alt
    import vl_convert

    measured = {each.stem: json.loads(each.read_text()) for each in sorted(folder.glob("*.json"))}
    rows = [*_rows(json.loads(BEFORE.read_text()), "before"), *_rows(measured, "")]
    panels = []
    for field, title, scale in (
        ("goodput", "goodput / capacity", alt.Scale(type="linear", zero=True)),
        ("p99_s", "p99, s", alt.Scale(type="log")),
    ):
        line = (
            alt.Chart(alt.Data(values=rows))
            .mark_line(point=True)
            .encode(
                x=alt.X("times:Q", scale=alt.Scale(type="log", base=2), title="load / capacity"),
                y=alt.Y(f"{field}:Q", scale=scale, title=title),
                color=alt.Color("nodes:N", title=None),
            )
            .properties(width=WIDTH, height=HEIGHT)
            .facet(column=alt.Column("travel:N", title=None))
        )
        panels.append(line)
    chart = alt.vconcat(*panels)
    path.write_bytes(vl_convert.vegalite_to_png(chart.to_json(), scale=SCALE))


def _rows(points: Mapping[str, Mapping[str, Any]], when: str) -> Iterator[dict[str, Any]]:
    for name, point in points.items():
        kind, travel, _ = name.split("-", 2)
        if point["times"] is not None and f"{kind}-{travel}-capacity" in points:
            capacity = points[f"{kind}-{travel}-capacity"]["goodput_per_s"]
            yield {
                "nodes": f"{kind}, {when}" if when else kind,
                "travel": travel,
                "times": point["times"],
                "goodput": point["goodput_per_s"] / capacity,
                "p99_s": max(point["p99_s"], 0.001),
            }


if __name__ == "__main__":
    main()
