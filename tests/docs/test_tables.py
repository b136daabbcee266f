"""What the guides say in tables is what the program has: settings, codes, paths, scopes."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from pulsarcast.cli import output
from pulsarcast.daemon.app import ALL
from pulsarcast.daemon.openapi import _REFUSALS
from pulsarcast.daemon.settings import SETTINGS
from pulsarcast.model.api import SCOPES
from tests.docs.guides import ROOT


def rows(guide: str, heading: str) -> list[list[str]]:
    """The cells of the first table that begins with this heading."""
    return tables(guide, heading)[0]


def tables(guide: str, heading: str) -> list[list[list[str]]]:
    """The cells of every table that begins with this heading."""
    text = (ROOT / f"docs/guides/{guide}.md").read_text(encoding="utf-8")
    _, *found = text.split(f"\n| {heading} |")
    assert found, f"{guide}.md has no table with {heading!r}"
    return [
        [
            [cell.strip() for cell in line.strip("|").split("|")]
            for line in rest.partition("\n\n")[0].splitlines()[2:]
        ]
        for rest in found
    ]


def test_every_setting_is_in_the_guide_with_its_default() -> None:
    told: dict[str, str] = {}
    for names, default, *_ in rows("operating", "setting"):
        found = re.findall(r"`([\w.]+)`", names)
        defaults = default.split(", ") if default.count(", ") == len(found) - 1 else [default]
        told |= dict(zip(found, [*defaults, *[""] * len(found)], strict=False))
    assert list(told) == [setting.name for setting in SETTINGS]
    units = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
    for setting in SETTINGS:
        text = told[setting.name].strip("`")
        if isinstance(setting.default, bool):
            assert text == str(setting.default).lower(), setting.name
        elif isinstance(setting.default, int):
            number, _, unit = text.partition(" ")
            assert int(number) * units.get(unit, 1) == setting.default, setting.name
        elif setting.default:
            wanted = setting.default if isinstance(setting.default, str) else setting.default[0]
            assert text == wanted, setting.name
        else:
            assert text in ("", "off"), setting.name


def test_every_meter_is_in_the_guide() -> None:
    code = (ROOT / "src/pulsarcast/daemon/metrics.py").read_text(encoding="utf-8")
    counters = re.findall(r'_count\(\s*"(\w+)"', code)
    counters += re.findall(r'Counter(?:MetricFamily)?\(\s*"pulsarcast_(\w+)"', code)
    others = re.findall(r'_gauge\(\s*"(\w+)"', code)
    others += re.findall(r'(?:GaugeMetricFamily|Histogram)\(\s*"pulsarcast_(\w+)"', code)
    built = {*(f"{name}_total" for name in counters), *others}
    named = [
        name for cells in rows("operating", "meter") for name in re.findall(r"`(\w+)`", cells[0])
    ]
    assert len(named) == len(set(named))
    assert not built - {*named}, "meters of daemon/metrics.py that docs/guides/operating.md lacks"
    assert not {*named} - built, "meters of docs/guides/operating.md that the daemon lacks"


def test_every_exit_code_is_in_the_guide() -> None:
    told = [int(cells[0]) for cells in rows("troubleshooting", "code")]
    built = [output.FAILED, output.UNREACHABLE, output.FORBIDDEN, output.UNKNOWN]
    assert told == sorted({0, 2, *built, output.INTERRUPTED})
    assert all(one + 1 == two for one, two in pairwise(told[:-1]))


def test_every_refusal_of_the_api_is_in_the_guide() -> None:
    told = {int(cells[1]) for cells in rows("http", "code")}
    assert told == {*_REFUSALS, 500}


def test_every_operation_of_the_api_is_in_the_guide() -> None:
    text = "\n".join(" ".join(cells) for cells in rows("http", "what"))
    for operation in ALL:
        path = operation.path.removeprefix("/v1")
        assert re.search(rf"{re.escape(path)}`", text), f"http.md does not name {path}"
        assert operation.method in text
        assert operation.scope is None or operation.scope in text


def test_every_scope_is_in_the_guide() -> None:
    assert [cells[0].strip("`") for cells in rows("access", "scope")] == list(SCOPES)


def test_the_columns_and_options_of_the_spark_source_and_sink_are_in_the_guide() -> None:
    pytest.importorskip("pyspark")
    from pulsarcast.pipeline.topics.options import CONNECTION, READING
    from pulsarcast.pipeline.topics.schema import spark_schema
    from pulsarcast.pipeline.topics.sink import WRITING
    from pulsarcast.pipeline.topics.writable import KEY

    read, written = tables("spark", "column")
    assert words(read) == spark_schema().fieldNames()
    assert {KEY, "payload", "value", "topic"} <= set(words(written))
    reading, writing = tables("spark", "option")
    assert sorted(words(reading)) == sorted((*CONNECTION, *READING))
    assert sorted(words(writing)) == sorted(WRITING)


def words(table: list[list[str]]) -> list[str]:
    """What the first cells name."""
    return [name for cells in table for name in re.findall(r"`(\w+)`", cells[0])]


def test_every_figure_of_the_pipeline_is_in_the_guide() -> None:
    quality = pytest.importorskip("pulsarcast.pipeline.quality")
    for heading, known in (
        ("table", quality.SORTED),
        ("column", quality.FIGURES),
        ("measure", quality.UNITS),
    ):
        told = [name for row in rows("metrics", heading) for name in re.findall(r"`(\w+)`", row[0])]
        assert sorted(told) == sorted(known), heading
