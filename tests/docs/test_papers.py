"""`docs/papers.md` names what there is, leaves no item of a paper out, and counts its own rows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pulsarcast.protocol.parameters import Parameters
from tests.docs import papers
from tests.docs.papers import DECISION, PAGE, ROOT, Row

ROWS = papers.rows()


def numbered(kind: str, *spans: str) -> set[str]:
    row = Row("", f"{kind}s {', '.join(spans)}", "", "", [], [], "")
    return row.numbered


ITEMS = {
    "The thesis": numbered("Algorithm", "1 to 4")
    | numbered("Listing", "3.1 to 3.5", "4.1 to 4.11", "5.1")
    | numbered("Figure", "2.1 to 2.10", "3.1 to 3.8", "4.1 to 4.4", "5.1 to 5.26")
    | numbered("Table", "2.1", "5.1 to 5.8"),
    "The short paper": numbered("Algorithm", "1 to 4")
    | numbered("Listing", "1 to 2")
    | numbered("Figure", "1 to 2"),
    "The longer paper": numbered("Algorithm", "1 to 4")
    | numbered("Listing", "1 to 3")
    | numbered("Figure", "1 to 18"),
    "VCube-PS": numbered("Algorithm", "1 to 2") | numbered("Figure", "1 to 9") | {"Table 1"},
    "The 2d-tree thesis": numbered("Program", "3.1 to 3.4")
    | numbered("Figure", "2.1 to 2.3", "3.1 to 3.4", "4.1 to 4.10")
    | numbered("Table", "3.1", "4.1 to 4.5"),
}
"""What each of the five documents numbers."""


def test_every_numbered_item_of_every_paper_has_a_row_and_no_other_has() -> None:
    for paper, items in ITEMS.items():
        told = set().union(*(row.numbered for row in ROWS if row.paper == paper))
        assert told == items, paper
    assert {row.paper for row in ROWS} == set(ITEMS)


@pytest.mark.parametrize("paper", ITEMS)
def test_a_row_names_code_and_tests_that_exist_or_says_why_there_are_none(paper: str) -> None:
    wrong: list[str] = []
    for row in ROWS:
        if row.paper == paper:
            wrong += [f"{row.item}: {fault}" for fault in faults(row)]
    assert wrong == []


def faults(row: Row) -> list[str]:
    found = [it for it in map(papers.fault_of_code, row.code) if it]
    found += [it for it in map(papers.fault_of_test, row.tests) if it]
    if row.state not in papers.STATES:
        found.append(f"no state {row.state}")
    if row.state == "built" and not (row.code and row.tests):
        found.append("built, but without code or test")
    if row.state == "built" and "](" not in row.place:
        found.append("built, but no page tells of it")
    if row.state != "built" and (row.code or row.tests):
        found.append("code or test, though nothing is built")
    if row.state != "built" and len(row.place.split()) < 3:
        found.append("no reason")
    return found


def test_a_fault_is_seen() -> None:
    row = Row("", "", "", "built", ["wire/codec.py:decode"], [], "")
    assert faults(row) == ["built, but without code or test", "built, but no page tells of it"]
    row = row._replace(tests=["docs/test_papers.py::test_no"], place="[wire](spec/wire.md)")
    assert faults(row) == ["no test_no in docs/test_papers.py"]
    row = row._replace(code=["wire/codec.py:nothing", "wire/codec.py"], tests=["docs/none.py"])
    assert faults(row) == [
        "no nothing in wire/codec.py",
        "which part of wire/codec.py?",
        "no test file docs/none.py",
    ]
    row = row._replace(state="not built", code=[], tests=[], place="why")
    assert faults(row) == ["no reason"]


def test_the_summary_counts_the_rows() -> None:
    told = papers.summary(ROWS)
    assert told in PAGE.read_text(encoding="utf-8"), f"{told}: run python -m tests.docs.papers"


@pytest.mark.parametrize("path", [PAGE, DECISION], ids=["page", "decision"])
def test_links_lead_to_headings_that_there_are(path: Path) -> None:
    links = re.findall(r"\]\(([\w./-]+\.md)?#([^)]+)\)", path.read_text(encoding="utf-8"))
    for name, anchor in links:
        target = (path.parent / (name or path.name)).read_text(encoding="utf-8")
        headings = {papers.slug(it) for it in re.findall(r"^#+ (.+)$", target, re.MULTILINE)}
        assert anchor in headings, f"{name}#{anchor}"


# Decision 0001.


def test_every_place_where_we_part_names_code_that_exists() -> None:
    parted = list(papers.table_rows(DECISION.read_text(encoding="utf-8"), "the paper"))
    assert len(parted) > 30
    wrong: list[str] = []
    for says, here, why, code in parted:
        named = re.findall(r"`([^`]+)`", code)
        wrong += [f"{says}: {it}" for it in map(papers.fault_of_code, named) if it]
        if not (named and here and why):
            wrong.append(f"{says}: a cell is empty")
    assert wrong == []


def test_every_parameter_in_decision_0001_has_the_codes_value() -> None:
    text = DECISION.read_text(encoding="utf-8")
    told = dict(re.findall(r"`(\w+)` = ([\d.]+)", text))
    assert {"fanout", "replicas", "cube_view", "cube_bucket", "barrier_max"} <= set(told)
    usual = Parameters()
    assert {name: float(value) for name, value in told.items()} == {
        name: float(getattr(usual, name)) for name in told
    }


def test_every_defect_of_the_original_has_its_test() -> None:
    text = DECISION.read_text(encoding="utf-8")
    told = [cells[0] for cells in papers.table_rows(text, "#")]
    tests = (ROOT / "tests/paper/test_original_defects.py").read_text(encoding="utf-8")
    numbers = sorted({int(it) for it in re.findall(r"^def test_(\d\d)_", tests, re.MULTILINE)})
    assert told == [str(number) for number in numbers] == [str(it) for it in range(1, 20)]
