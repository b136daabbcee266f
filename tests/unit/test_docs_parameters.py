"""The documentation and the code say the same: parameters, bounds, messages, examples."""

import importlib
import re
from pathlib import Path
from typing import get_args

import pytest

from pulsarcast.model.filters import bounds
from pulsarcast.protocol.messages import Message
from pulsarcast.protocol.parameters import Parameters

ROOT = Path(__file__).parents[2]
SPEC = (ROOT / "docs/spec/pulsarcast.md").read_text(encoding="utf-8")
SIMULATING = (ROOT / "docs/guides/simulating.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n((?:(?!```).)*)```\n\n```text\n(.*?)```", SIMULATING, re.DOTALL)


def rows(header: str) -> list[tuple[str, str]]:
    """First and last cell of every row of the table with this header."""
    _, found, rest = SPEC.partition(f"| {header} |")
    assert found, f"no table begins with {header!r}"
    lines = rest.partition("\n\n")[0].splitlines()[2:]
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [(cells[0].strip("`"), cells[-1]) for cells in table]


def number_in(cell: str) -> float:
    """`2,592,000 s (30 days)` is 2592000."""
    match = re.match(r"[\d,]+(\.\d+)?", cell)
    assert match, f"no number in {cell!r}"
    return float(match[0].replace(",", ""))


def test_every_parameter_is_in_the_specification_with_its_default() -> None:
    told = {name: number_in(cell) for name, cell in rows("name")}
    built = {name: float(getattr(Parameters(), name)) for name in Parameters.__struct_fields__}
    assert told == built


def test_a_parameters_unit_is_told_where_its_name_has_one() -> None:
    for name, cell in rows("name"):
        unit = "s" if name.endswith(("_s", "_s_max")) else "B" if "_bytes_" in name else None
        if unit is not None:
            assert re.match(rf"[\d,.]+ {unit}\b", cell), name


@pytest.mark.parametrize(("name", "cell"), rows("bound"))
def test_every_bound_in_the_specification_is_the_codes(name: str, cell: str) -> None:
    module, _, constant = name.rpartition(".")
    built = getattr(importlib.import_module(f"pulsarcast.protocol.{module}"), constant)
    assert number_in(cell) == built


@pytest.mark.parametrize(("subject", "count"), [("relays", 20), ("hole punching", 10)])
def test_every_bound_of_relays_is_in_their_specification(subject: str, count: int) -> None:
    text = (ROOT / "docs/spec/reach.md").read_text(encoding="utf-8")
    table = text.partition(f"| name of {subject} |")[2].partition("\n\n")[0]
    told = {
        name: number_in(value) for name, value in re.findall(r"\| `([\w.]+)` \|.*\| (.*) \|", table)
    }
    assert len(told) == count
    for name, value in told.items():
        module, _, constant = name.rpartition(".")
        built = getattr(importlib.import_module(f"pulsarcast.network.{module}"), constant)
        assert built == value, name


def test_every_bound_of_filters_is_in_their_specification() -> None:
    text = (ROOT / "docs/spec/filters.md").read_text(encoding="utf-8")
    told = {
        name: number_in(value)
        for name, value in re.findall(r"\| `([A-Z_]+)` \|.*\| (\S+) \|", text)
    }
    built = {name: value for name, value in vars(bounds).items() if name.isupper()}
    assert told == built


def test_every_message_is_in_the_specification() -> None:
    assert {name for name, _ in rows("message")} == {kind.__name__ for kind in get_args(Message)}


@pytest.mark.parametrize(("code", "output"), EXAMPLES)
def test_an_example_of_the_guide_prints_what_the_guide_says(
    code: str, output: str, capsys: pytest.CaptureFixture[str]
) -> None:
    exec(compile(code, "simulating.md", "exec"), {"__name__": "guide"})
    assert capsys.readouterr().out == output


def test_no_link_of_the_documentation_leads_nowhere() -> None:
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_test_that_the_documentation_names_exists() -> None:
    known = "\n".join(path.read_text(encoding="utf-8") for path in ROOT.glob("tests/**/*.py"))
    for page in ROOT.glob("docs/**/*.md"):
        for name in re.findall(r"`(test_\w+)`", page.read_text(encoding="utf-8")):
            assert f"def {name}(" in known, f"{page.name} names {name}"


CONTENT = (ROOT / "docs/spec/content.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "cell"), re.findall(r"\| `(content\.[\w.]+)` \|[^|]*\| ([^|]+) \|", CONTENT)
)
def test_every_bound_of_content_subscriptions_is_the_codes(name: str, cell: str) -> None:
    module, _, constant = name.rpartition(".")
    built = getattr(importlib.import_module(f"pulsarcast.protocol.{module}"), constant)
    assert number_in(cell) == built
