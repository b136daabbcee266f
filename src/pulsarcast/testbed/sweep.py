"""Sweeps: settings times seeds of the paper's model, on Spark, as a file says.

A file holds settings, in which a list stands for each of its values, and the tables to be made of
them, with the paper's figures. What has been run is not run again: a setting is known by everything
that it says, and by the model's version.
"""

from __future__ import annotations

import hashlib
import itertools
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec

from pulsarcast.model.errors import LocalError, in_words
from pulsarcast.pipeline.replicates import Row, Wanted, read_replicates, run_replicates
from pulsarcast.pipeline.session import LITTLE, session
from pulsarcast.simulation.vcube.experiments import run_written
from pulsarcast.simulation.vcube.settings import MODEL, Setting

ROWS: Final = "rows"
SEEDS: Final = 40
"""Executions of each point: as many as the paper's."""

NONE: Final = "none"

_Fields = dict[str, str | int | float | bool]


class Line(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One line of a table: a figure of ours, and the paper's if it has one."""

    what: str
    measure: str
    of: _Fields
    """Which setting: whatever tells it from the others."""
    over: _Fields | None = None
    """Compared with which other setting, by the same seeds."""
    over_measure: str | None = None
    """And with another measure of it."""
    as_: Literal["value", "ratio", "change"] = msgspec.field(default="value", name="as")
    """The measure; it divided by the other one; by how many % it is more."""
    paper: float | None = None
    reason: str = ""
    """Why ours is another figure than the paper's."""


class Grid(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A measure of many settings: one field down, others across."""

    measure: str
    down: str
    across: list[str]
    where: _Fields = {}


class Figure(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One table: a figure of the paper, or something beyond it."""

    title: str
    lines: list[Line] = []
    grids: list[Grid] = []
    note: str = ""


class _File(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    title: str
    seeds: Annotated[int, msgspec.Meta(ge=1)] = SEEDS
    settings: list[dict[str, Any]]
    figures: list[Figure] = []


class Point(msgspec.Struct, kw_only=True, frozen=True):
    """A setting, and how many seeds it gets."""

    setting: Setting
    seeds: int

    @property
    def written(self) -> str:
        """All that it says, defaults too, always in the same words."""
        return msgspec.json.encode(self.setting, order="sorted").decode()

    @property
    def id(self) -> str:
        """The name under which its rows are kept."""
        return hashlib.sha256(f"{MODEL} {self.written}".encode()).hexdigest()[:16]

    def is_one_of(self, fields: _Fields) -> bool:
        """Whether it has these values; `none` is for a field that has none."""
        return all(
            getattr(self.setting, name) == (None if value == NONE else value)
            for name, value in fields.items()
        )


class Sweep(msgspec.Struct, kw_only=True):
    """A file, read."""

    title: str
    points: list[Point]
    figures: list[Figure]


def read_sweep(path: Path, *, seeds: int | None = None) -> Sweep:
    """Read a file; errors say what is wrong with it. `seeds` goes before what it says."""
    try:
        file = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), _File)
    except OSError as error:
        raise LocalError(f"{path}: {error.strerror}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise LocalError(f"{path}: {in_words(error)}") from error
    points: dict[str, Point] = {}
    for given in file.settings:
        count = given.pop("seeds", file.seeds)
        if not isinstance(count, int) or count < 1:
            raise LocalError(f"{path}: seeds is a number from 1")
        for fields in _expand(given):
            try:
                setting = msgspec.convert(fields, Setting)
            except msgspec.ValidationError as error:
                raise LocalError(f"{path}: {in_words(error)} in {fields}") from error
            point = Point(setting=setting, seeds=count if seeds is None else seeds)
            points.setdefault(point.id, point)
    sweep = Sweep(title=file.title, points=list(points.values()), figures=file.figures)
    for figure in sweep.figures:
        for line in figure.lines:
            for fields in filter(None, (line.of, line.over)):
                only_point(sweep, fields)
    return sweep


def _expand(fields: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A list stands for each of its values, and two lists for each pair."""
    lists = {name: value for name, value in fields.items() if isinstance(value, list)}
    for values in itertools.product(*lists.values()):
        yield fields | dict(zip(lists, values, strict=True))


def only_point(sweep: Sweep, fields: _Fields) -> Point:
    """The one setting that has these values."""
    unknown = [name for name in fields if name not in Setting.__struct_fields__]
    if unknown:
        raise LocalError(f"no setting has a field {unknown[0]!r}")
    found = [point for point in sweep.points if point.is_one_of(fields)]
    if len(found) != 1:
        raise LocalError(f"{len(found)} settings of this sweep have {fields}: it must be one")
    return found[0]


def run_sweep(
    sweep: Sweep,
    out: Path,
    *,
    master: str | None = None,
    only_read: bool = False,
    progress: Callable[[str, int, int], None] = lambda *_: None,
) -> list[Row]:
    """Run whatever has not been run yet, and return all rows of this sweep."""
    rows_folder = out / ROWS
    rows_folder.mkdir(parents=True, exist_ok=True)
    with session("sweep", master=master, settings=LITTLE) as spark:
        rows = read_replicates(spark, rows_folder)
        left = [] if only_read else _left(sweep.points, rows)
        for number, wanted in enumerate(left):
            progress("settings", number, len(left))
            run_replicates(spark, wanted, run_written, rows_folder)
        if left:
            progress("settings", len(left), len(left))
            rows = read_replicates(spark, rows_folder)
    seeds = {point.id: point.seeds for point in sweep.points}
    return [row for row in rows if row.seed <= seeds.get(row.setting_id, 0)]


def _left(points: Sequence[Point], rows: Sequence[Row]) -> list[Wanted]:
    """What is still to be done: seeds from 1 on that have no row, or a failed one."""
    done = {(row.setting_id, row.seed) for row in rows if row.error is None}
    left = []
    for point in points:
        seeds = [seed for seed in range(1, point.seeds + 1) if (point.id, seed) not in done]
        if seeds:
            left.append(Wanted(point.id, point.written, seeds))
    return left
