"""Every dependency has a row in docs/dependencies.md and a pin in constraints.txt, and no other."""

from __future__ import annotations

import re
import tomllib
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.docs.guides import ROOT

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PAGE = (ROOT / "docs/dependencies.md").read_text(encoding="utf-8")
PINS = {
    canonicalize_name(name): version
    for name, version in re.findall(
        r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE
    )
}


def declared() -> dict[str, list[str]]:
    """Requirements by the heading under which the page has them; extras without our own."""
    metadata = PROJECT["project"]
    parts = {"Always": metadata["dependencies"]} | {
        f"Extra `{name}`": wanted for name, wanted in metadata["optional-dependencies"].items()
    }
    foreign = {
        title: [each for each in wanted if Requirement(each).name != "pulsarcast"]
        for title, wanted in parts.items()
    }
    return {title: wanted for title, wanted in foreign.items() if wanted}


def names_of(wanted: list[str]) -> list[str]:
    return sorted(canonicalize_name(Requirement(each).name) for each in wanted)


def test_every_dependency_has_a_row_and_no_other() -> None:
    sections = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
    told = {
        title: sorted(re.findall(r"^\| `([\w-]+)` \|", text, re.MULTILINE))
        for title, text in sections.items()
        if "| package |" in text
    }
    assert told == {title: names_of(wanted) for title, wanted in declared().items()}


def test_every_row_has_all_its_cells() -> None:
    for row in re.findall(r"^\| `[\w-]+` \|.*$", PAGE, re.MULTILINE):
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert len(cells) == 7, row
        assert all(cells), row
        float(cells[3])


def test_whatever_is_asked_for_is_pinned_within_its_range() -> None:
    wanted = [each for part in declared().values() for each in part]
    wanted += [each for group in PROJECT["dependency-groups"].values() for each in group]
    wanted += PROJECT["build-system"]["requires"]
    for each in wanted:
        requirement = Requirement(each)
        pin = PINS.get(canonicalize_name(requirement.name))
        assert pin is not None, f"constraints.txt does not pin {requirement.name}"
        assert requirement.specifier.contains(pin, prereleases=True), f"{each}: {pin} is pinned"
