"""The table of partners says what the tests show."""

from __future__ import annotations

import subprocess

from tests.docs.guides import ROOT
from tests.docs.test_spec import rows
from tests.partners import test_direct, test_holes, test_relays
from tests.partners.partners import program
from tests.partners.table import COLUMNS, PARTNERS, SHOWN

PAGE = (ROOT / "docs/spec/partners.md").read_text(encoding="utf-8")
SUITES = (test_direct, test_holes, test_relays)
"""Imported so that their tests are known."""
TABLES = {"what": COLUMNS, "with relays": tuple(PARTNERS)}


def test_a_cell_says_works_where_a_test_shows_it_and_only_there() -> None:
    assert SUITES
    told = {
        (what, column): cell
        for heading, columns in TABLES.items()
        for what, *cells in rows(PAGE, heading)
        for column, cell in zip(columns, cells, strict=True)
    }
    assert {where for where, cell in told.items() if cell == "works"} == set(SHOWN)
    for where, cell in told.items():
        assert cell in ("works", "–") or cell.startswith("no: "), where


def test_the_columns_are_the_ways_to_each_partner() -> None:
    for heading, columns in TABLES.items():
        assert f"| {heading} | {' | '.join(columns)} |" in PAGE


def test_p2pd_has_no_option_that_starts_dcutr() -> None:
    said = subprocess.run(
        [program("bin/p2pd"), "--help"], check=False, capture_output=True, timeout=30, text=True
    )
    options = said.stdout + said.stderr
    assert "-relayService" in options
    assert "unch" not in options
