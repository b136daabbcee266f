from pathlib import Path
from typing import Any

import pytest

from pulsarcast.testbed.thesis.runs import FULL, plan_runs
from pulsarcast.testbed.thesis.table import THESIS, Played, figures_of, make_beside, make_table
from tests.unit.testbed.thesis.fakes import make_summary

COVERAGE, COST, TIMES, MESSAGES = range(4)


def rows(text: str, table: int = COVERAGE) -> list[dict[str, str]]:
    lines = [part for part in text.split("\n\n") if part.startswith("|")][table].splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [dict(zip(cells[0], row, strict=True)) for row in cells[2:]]


def played(name: str, beside: str | None = None, **changed: Any) -> Played:
    return Played(name=name, beside=beside, summary=make_summary(**changed), verdict="clean")


def test_the_thesis_stands_above_what_is_like_it() -> None:
    text = make_table(
        [played("ours", "Pulsarcast, anyone publishes"), played("ours-kills")], failed={}
    )
    assert [row["run"] for row in rows(text)] == [
        "thesis: Pulsarcast, anyone publishes",
        "**ours**",
        "**ours-kills**",
    ]
    theirs, ours = rows(text, COST)[:2]
    assert (theirs["sent, MiB"], theirs["minutes"], theirs["memory, GiB"]) == (
        "2,237.7",
        "85",
        "31.92",
    )
    assert (ours["sent, MiB"], ours["minutes"], ours["memory, GiB"]) == ("3.0", "1.0", "0.50")
    assert ours["CPU"] == "90 s, 1.50 cores on average"
    assert rows(text)[1]["delivered of due"] == "40 of 40"
    times = rows(text, TIMES)[0]
    assert (times["acknowledged p50, ms"], times["delivered p50, ms"]) == ("30", "10")


def test_every_row_says_of_how_many_nodes_and_events_it_is() -> None:
    text = make_table([played("ours", THESIS[1].run, nodes=7, events=1234)], failed={})
    for table in (COVERAGE, COST, MESSAGES):
        theirs, ours = rows(text, table)
        assert (theirs["nodes"], theirs["events"]) == ("100", "about 25,000")
        assert (ours["nodes"], ours["events"]) == ("7", "1,234")


def test_all_but_one_is_not_all() -> None:
    run = played("ours", delivered=999_999, due=1_000_000, expected_due=2_000_000, acknowledged=5)
    (row,) = rows(make_table([run], failed={}))
    assert row["of published"] == "99.99 %"
    assert row["of injected"] == "49.99 %"
    assert row["published"] == "50.00 %"


def test_where_nothing_was_due_there_is_no_share() -> None:
    figures = figures_of(make_summary(due=0, delivered=0, expected_due=0, events=0, wall_s=0.0))
    assert figures.coverage_of_published is None
    assert figures.published is None
    assert figures.cores_mean is None


def test_a_baseline_has_no_messages_and_acknowledges_nothing() -> None:
    baseline = played("floodsub", contestant="floodsub", received_per_node=None, sent_per_node=None)
    text = make_table([played("ours"), baseline], failed={})
    assert [row["run"] for row in rows(text, MESSAGES)] == ["**ours**"]
    assert rows(text, TIMES)[1]["acknowledged p50, ms"] == "–"


def test_messages_by_node_stand_beside_the_thesis() -> None:
    text = make_table([played("ours", THESIS[1].run)], failed={})
    theirs, ours = rows(text, MESSAGES)
    assert theirs["p99"] == "267,124"
    assert theirs["received: mean"] == theirs["sent: mean"] == "17,708"
    assert theirs["sent: p99 / mean (aim: 5)"] == "15.08"
    assert ours["sent: p99 / mean (aim: 5)"] == "3.00"
    assert (ours["received: mean"], ours["max"]) == ("100", "350")


def test_the_page_gets_the_same_tables_and_a_bar_of_each() -> None:
    lossy = played("ours", THESIS[1].run, delivered=39, events=2000)
    shown = make_beside([lossy, played("ours-kills")])
    assert [table.title for table in shown.tables] == [
        "Coverage",
        "Cost",
        "Times",
        "Messages per node",
    ]
    assert shown.tables[0].own == [False, True, True]
    (chart,) = shown.bars
    assert [(bar.group, bar.whose, bar.text) for bar in chart.bars] == [
        ("ours (2,000 events)", "thesis", "99.99 %"),
        ("ours (2,000 events)", "here", "97.50 %"),
    ]
    assert [bar.value for bar in chart.bars] == [99.99, 97.5]


def test_every_run_of_the_thesis_has_one_of_ours_beside_it(tmp_path: Path) -> None:
    beside = [run.beside for run in plan_runs(tmp_path, FULL, None) if run.beside]
    assert sorted(beside) == sorted(seed.run for seed in THESIS)


def test_the_report_and_the_table_tell_the_same_of_the_thesis() -> None:
    page = pytest.importorskip("pulsarcast.pipeline.report.page")
    for told, seed in zip(page.THESIS, THESIS, strict=True):
        assert told.run == seed.run
        assert (told.of_injected, told.of_published) == (seed.of_injected, seed.of_published)
        assert told.published == seed.published.strip("()")
        assert told.sent_mib == f"{seed.sent_mib:,.0f}"
