"""A sweep's tables: for each figure the paper's number, ours, and by how much they differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, stdev
from typing import Final, TypeAlias

from pulsarcast.model.errors import LocalError
from pulsarcast.pipeline.replicates import Row
from pulsarcast.testbed.sweep import Figure, Grid, Line, Point, Sweep, only_point

HEADINGS: Final = ("", "paper", "ours", "sd", "seeds", "difference")
MISSING: Final = "–"

_Figures: TypeAlias = Mapping[str, Mapping[int, Mapping[str, float]]]
"""By setting and seed."""


def to_markdown(sweep: Sweep, rows: Sequence[Row]) -> str:
    """All tables, as they can stand in a page."""
    figures: dict[str, dict[int, Mapping[str, float]]] = {}
    for row in rows:
        if row.error is None:
            figures.setdefault(row.setting_id, {})[row.seed] = row.figures
    parts = [f"## {sweep.title}"]
    for figure in sweep.figures:
        parts.append(f"### {figure.title}")
        parts.extend(_tables(sweep, figure, figures))
        if figure.note:
            parts.append(figure.note)
    failed = [row for row in rows if row.error is not None]
    if failed:
        texts = {point.id: point.written for point in sweep.points}
        lines = [f"- seed {row.seed}: {row.error}: `{texts[row.setting_id]}`" for row in failed]
        parts.append("\n".join([f"**{len(failed)} replicates failed:**", *lines]))
    return "\n\n".join(parts) + "\n"


def _tables(sweep: Sweep, figure: Figure, figures: _Figures) -> Iterable[str]:
    if figure.lines:
        yield _table(HEADINGS, [_cells(sweep, line, figures) for line in figure.lines])
        reasons = dict.fromkeys(line.reason for line in figure.lines if line.reason)
        yield from reasons
    for grid in figure.grids:
        yield _of_grid(sweep, grid, figures)


def _cells(sweep: Sweep, line: Line, figures: _Figures) -> list[str]:
    values = _values(line.measure, only_point(sweep, line.of), figures)
    if line.over is not None:
        others = _values(line.over_measure or line.measure, only_point(sweep, line.over), figures)
        seeds = sorted(values.keys() & others.keys())
        ours = [line_value(line, values[seed], others[seed]) for seed in seeds]
        mean = (
            line_value(line, fmean(values[s] for s in seeds), fmean(others[s] for s in seeds))
            if seeds
            else None
        )
    else:
        ours = list(values.values())
        mean = fmean(ours) if ours else None
    paper = MISSING if line.paper is None else number(line.paper)
    if mean is None:
        return [line.what, paper, MISSING, MISSING, "0", MISSING]
    spread = number(stdev(ours)) if len(ours) > 1 else MISSING
    return [line.what, paper, number(mean), spread, str(len(ours)), difference(mean, line.paper)]


def line_value(line: Line, value: float, other: float) -> float:
    """What a line shows of two values."""
    if not other:
        raise LocalError(f"{line.what}: nothing can be compared with 0")
    return value / other if line.as_ == "ratio" else 100 * (value / other - 1)


def difference(ours: float, paper: float | None) -> str:
    """By how many % ours is more than the paper's."""
    return MISSING if not paper else f"{100 * (ours / paper - 1):+.1f} %"


def _values(measure: str, point: Point, figures: _Figures) -> dict[int, float]:
    found = figures.get(point.id, {})
    for seed, its in found.items():
        if measure not in its:
            raise LocalError(f"seed {seed} has no {measure!r}, but {', '.join(sorted(its))}")
    return {seed: its[measure] for seed, its in sorted(found.items())}


def _of_grid(sweep: Sweep, grid: Grid, figures: _Figures) -> str:
    points = [point for point in sweep.points if point.is_one_of(grid.where)]
    columns = list(dict.fromkeys(_names(point, grid.across) for point in points))
    down = list(dict.fromkeys(getattr(point.setting, grid.down) for point in points))
    cells: dict[tuple[object, str], str] = {}
    for point in points:
        values = list(_values(grid.measure, point, figures).values())
        key = getattr(point.setting, grid.down), _names(point, grid.across)
        cells[key] = f"{number(fmean(values))} ({len(values)})" if values else MISSING
    lines = [
        [str(value), *(cells.get((value, column), MISSING) for column in columns)] for value in down
    ]
    return f"`{grid.measure}` (seeds)\n\n" + _table([grid.down, *columns], lines)


def _names(point: Point, fields: Sequence[str]) -> str:
    return ", ".join(
        str(value) if isinstance(value, str) else f"{field} {value}"
        for field in fields
        for value in [getattr(point.setting, field)]
    )


def number(value: float) -> str:
    """Some four digits, and thousands apart."""
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    size = abs(value)
    return f"{value:,.0f}" if size >= 1000 else f"{value:.1f}" if size >= 100 else f"{value:.3g}"


def _table(headings: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    ruled = ["---"] * len(headings)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (headings, ruled, *lines))
