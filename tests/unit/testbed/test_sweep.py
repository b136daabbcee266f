"""Sweep files: how they are read, and what their tables say."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pulsarcast.model.errors import LocalError
from pulsarcast.pipeline.replicates import Row
from pulsarcast.testbed.sweep import Sweep, read_sweep
from pulsarcast.testbed.sweep_tables import difference, number, to_markdown

EXAMPLES = Path(__file__).parents[3] / "examples" / "sweeps"

FILE = """
title = "Small"
seeds = 4

[[settings]]
experiment = "publish"
system = ["vcube", "srpt"]
nodes = [8, 16]

[[settings]]
experiment = "publish"
nodes = 32
seeds = 2

[[figures]]
title = "Latency"
grids = [{measure = "latency_mean", down = "nodes", across = ["system"]}]

[[figures.lines]]
what = "ours"
measure = "latency_mean"
of = {system = "vcube", nodes = 8}
paper = 100

[[figures.lines]]
what = "times"
measure = "latency_mean"
of = {system = "srpt", nodes = 8}
over = {system = "vcube", nodes = 8}
as = "ratio"
paper = 2
reason = "Because."

[[figures.lines]]
what = "more, %"
measure = "latency_mean"
of = {system = "srpt", nodes = 8}
over = {system = "vcube", nodes = 8}
as = "change"
"""


def read(tmp_path: Path, text: str = FILE, **options: int) -> Sweep:
    path = tmp_path / "sweep.toml"
    path.write_text(text, encoding="utf-8")
    return read_sweep(path, **options)


def rows_of(sweep: Sweep, values: dict[tuple[str, int], list[float]]) -> list[Row]:
    return [
        Row(point.id, seed, 1.0, {"latency_mean": value}, None)
        for point in sweep.points
        for seed, value in enumerate(
            values.get((point.setting.system, point.setting.nodes), []), start=1
        )
    ]


def test_lists_stand_for_each_of_their_values(tmp_path: Path) -> None:
    points = read(tmp_path).points
    assert [(each.setting.system, each.setting.nodes, each.seeds) for each in points] == [
        ("vcube", 8, 4), ("vcube", 16, 4), ("srpt", 8, 4), ("srpt", 16, 4), ("vcube", 32, 2),
    ]  # fmt: skip
    assert {each.seeds for each in read(tmp_path, seeds=1).points} == {1}


def test_a_setting_keeps_its_id_whatever_else_the_file_says(tmp_path: Path) -> None:
    ids = {each.id for each in read(tmp_path).points}
    again = read(tmp_path, FILE.replace("[8, 16]", "[16, 8]").replace("seeds = 4", "seeds = 9"))
    assert {each.id for each in again.points} == ids
    other = read(tmp_path, FILE.replace("nodes = 32", "nodes = 32\npropagation = 200"))
    assert len({each.id for each in other.points} - ids) == 1


def test_a_table_has_the_papers_figure_beside_ours(tmp_path: Path) -> None:
    sweep = read(tmp_path)
    rows = rows_of(sweep, {("vcube", 8): [90.0, 110.0, 130.0], ("srpt", 8): [180.0, 230.0]})
    lines = to_markdown(sweep, rows).splitlines()
    assert "| ours | 100 | 110 | 20 | 3 | +10.0 % |" in lines
    # By the seeds that both have: 410 / 200, and 2 and 2.09 one by one.
    assert "| times | 2 | 2.05 | 0.0643 | 2 | +2.5 % |" in lines
    assert "| more, % | – | 105.0 | 6.43 | 2 | – |" in lines
    assert "Because." in lines
    assert "| 8 | 110 (3) | 205 (2) |" in lines
    assert "| 16 | – | – |" in lines


def test_a_replicate_that_failed_shows(tmp_path: Path) -> None:
    sweep = read(tmp_path)
    failed = Row(sweep.points[0].id, 3, 0.0, {}, "ValueError: no")
    text = to_markdown(sweep, [failed])
    assert "**1 replicates failed:**" in text
    assert "- seed 3: ValueError: no:" in text
    assert "| ours | 100 | – | – | 0 | – |" in text


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("nodes = 32", "nodez = 32"),
        ('"publish"', '"perish"'),
        ("seeds = 2", "seeds = 0"),
        ("nodes = 8}\npaper", "nodes = 9}\npaper"),
        ("nodes = 8}\npaper", "knots = 8}\npaper"),
        ("seeds = 4", "seeds = "),
    ],
)
def test_a_file_that_is_wrong_is_refused(tmp_path: Path, wrong: str, said: str) -> None:
    with pytest.raises(LocalError):
        read(tmp_path, FILE.replace(wrong, said))


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="No such file"):
        read_sweep(tmp_path / "none.toml")


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.toml")), ids=lambda path: path.stem)
def test_every_example_can_be_read_and_has_tables(path: Path) -> None:
    sweep = read_sweep(path)
    assert sweep.points
    assert sweep.figures
    assert to_markdown(sweep, []).startswith(f"## {sweep.title}")
    for figure in sweep.figures:
        for grid in figure.grids:
            assert any(point.is_one_of(grid.where) for point in sweep.points), grid


def test_there_is_an_example_for_each_section_and_each_thing_beyond() -> None:
    assert sorted(path.stem for path in EXAMPLES.glob("*.toml")) == [
        "brokers", "buckets", "churn", "combining", "faults", "large", "many-publishers",
        "one-publisher", "order", "pipelining", "topics",
    ]  # fmt: skip


def test_numbers_are_short() -> None:
    assert [number(each) for each in (9240, 4613.79, 528.81, 2.484, 0.0)] == [
        "9,240", "4,614", "528.8", "2.48", "0",
    ]  # fmt: skip
    assert difference(110, 100) == "+10.0 %"
    assert difference(-44, -43) == "+2.3 %"
    assert difference(1, None) == difference(1, 0) == "–"


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "sweep.toml"
    path.write_bytes(b"title = '\xff'")
    with pytest.raises(LocalError, match="can't decode"):
        read_sweep(path)
