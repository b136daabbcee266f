"""Reads `docs/papers.md` and the tables of decision 0001: rows, and the names in their cells.

    python -m tests.docs.papers [--tests]

writes the page's summary line anew; `--tests` prints the ids of all tests that rows name instead,
for pytest.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs/papers.md"
DECISION: Final = ROOT / "docs/decisions/0001-where-we-part-from-the-original.md"
STATES: Final = ("built", "not built", "background")

_NUMBERED: Final = re.compile(r"(Algorithm|Program|Listing|Figure|Table)s? (\d.*)")
_REFERENCE: Final = re.compile(r"`([^`]+)`")


class Row(NamedTuple):
    """One item of a paper, and where it is here or why it is not."""

    paper: str
    item: str
    says: str
    state: str
    code: list[str]
    tests: list[str]
    place: str

    @property
    def numbered(self) -> set[str]:
        """The algorithms, listings, figures and tables that it stands for, one by one."""
        found = _NUMBERED.fullmatch(self.item)
        return {f"{found[1]} {number}" for number in _numbers(found[2])} if found else set()


def rows(page: Path = PAGE) -> list[Row]:
    """All rows of the page, in their order."""
    return list(_rows(page.read_text(encoding="utf-8")))


def _rows(text: str) -> Iterator[Row]:
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        paper = section.splitlines()[0]
        for cells in table_rows(section, "item"):
            item, says, state, code, tests, place = cells
            yield Row(
                paper, item, says, state, _REFERENCE.findall(code), _REFERENCE.findall(tests), place
            )


def table_rows(text: str, heading: str) -> Iterator[list[str]]:
    """The cells of every table whose first column has this heading."""
    inside = False
    for line in text.splitlines():
        if not line.startswith("|"):
            inside = False
        elif line.startswith(f"| {heading} |"):
            inside = True
        elif inside and not line.startswith("| ---"):
            yield [cell.strip() for cell in line.strip().strip("|").split(" | ")]


def _numbers(text: str) -> Iterator[str]:
    """`5.4, 5.8 and 5.12` and `2.1 to 2.3`, one by one."""
    for part in re.split(r", | and ", text):
        first, _, last = part.partition(" to ")
        chapter, dot, start = first.rpartition(".")
        end = last.rpartition(".")[2] or start
        yield from (f"{chapter}{dot}{number}" for number in range(int(start), int(end) + 1))


def counts(read: list[Row]) -> Counter[str]:
    """How many rows there are of each state."""
    return Counter(row.state for row in read)


def fault_of_code(reference: str) -> str | None:
    """What is wrong with `file.py:Name.part`: a file below the package, or from the root."""
    name, _, symbol = reference.partition(":")
    path = next((it for it in (ROOT / "src/pulsarcast" / name, ROOT / name) if it.is_file()), None)
    if path is None:
        return f"no file {name}"
    if not symbol:
        return f"which part of {name}?" if path.is_relative_to(ROOT / "src") else None
    return None if symbol in _symbols(path) else f"no {symbol} in {name}"


def fault_of_test(reference: str) -> str | None:
    """What is wrong with `folder/test_file.py::test_name`, below `tests`."""
    name, separator, test = reference.partition("::")
    path = ROOT / "tests" / name
    if not separator or not path.is_file():
        return f"no test file {reference}"
    return None if test in _symbols(path) else f"no {test} in {name}"


@cache
def _symbols(path: Path) -> frozenset[str]:
    """Names that a module defines, and `Class.name`; the words of any other file."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        return frozenset(re.findall(r"[\w-]+", text))
    found: set[str] = set()
    for node in ast.parse(text).body:
        for name in _defined(node):
            found.add(name)
            if isinstance(node, ast.ClassDef):
                found |= {f"{name}.{inner}" for each in node.body for inner in _defined(each)}
    return frozenset(found)


def _defined(node: ast.stmt) -> list[str]:
    match node:
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            return [name]
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
        case ast.Assign(targets=targets):
            return [target.id for target in targets if isinstance(target, ast.Name)]
        case _:
            return []


def slug(heading: str) -> str:
    """The anchor that the site gives a heading."""
    text = re.sub(r"[^\w\s-]", "", heading.replace("`", "")).strip().lower()
    return re.sub(r"[-\s]+", "-", text)


def summary(read: list[Row]) -> str:
    """The page's line that counts its rows."""
    counted = counts(read)
    return f"**{len(read)} rows: " + ", ".join(f"{counted[it]} {it}" for it in STATES) + "**"


def main() -> None:
    read = rows()
    if "--tests" in sys.argv[1:]:
        named = sorted({f"tests/{test}" for row in read for test in row.tests})
        sys.stdout.write("\n".join(named) + "\n")
        return
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(re.sub(r"\*\*\d+ rows: .*\*\*", summary(read), text), encoding="utf-8")


if __name__ == "__main__":
    main()
