"""Names from a file: filters ask for prefixes, names and ranges of what events carry."""

import gzip
from collections import Counter
from pathlib import Path
from random import Random

import msgspec
import pytest

from pulsarcast.model.errors import LocalError
from pulsarcast.model.filters import parse
from pulsarcast.simulation.content.names import Names, names_in, read_names
from pulsarcast.simulation.options import load
from pulsarcast.simulation.scenario import run_scenario

LINES = "\n".join(f"({1 + number % 7},{'abc'[number % 3]}{number:03}'s)" for number in range(300))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "names.txt.gz"
    path.write_bytes(gzip.compress(f"no name\n{LINES}\n".encode()))
    return path


def test_names_are_read_with_their_counts_from_a_file_gzipped_or_plain(file: Path) -> None:
    plain = file.with_suffix("")
    plain.write_text(LINES)
    assert names_in(file) == names_in(plain)
    assert names_in(plain)["a000's"] == 1
    assert len(names_in(plain)) == 300


def test_what_has_no_names_is_refused(tmp_path: Path) -> None:
    options = msgspec.structs.replace(load("content"), workload=str(tmp_path / "none"))
    with pytest.raises(LocalError, match="cannot be read"):
        read_names(options, Random(1))
    (tmp_path / "none").write_text("a,b\n")
    with pytest.raises(LocalError, match="COUNT,NAME"):
        read_names(options, Random(1))
    with pytest.raises(LocalError, match="skew"):
        read_names(msgspec.structs.replace(options, skew=0.5), Random(1))


def test_every_filter_matches_some_name_and_names_come_by_their_counts() -> None:
    names = Names(Random(1), {"rare": 1, "often": 99, "o'clock": 20})
    came = Counter(str(names.event()["name"]) for _ in range(2000))
    assert came["often"] > 3 * came["o'clock"] > 3 * came["rare"]
    for _ in range(100):
        wanted = parse(names.subscription(), names.schema)
        assert any(wanted.matches({"name": name}) for name in ("rare", "often", "o'clock"))


def test_filters_on_names_are_routed_and_the_line_falls(file: Path) -> None:
    """Prefixes of names are narrow, so events need not search for wide ranges."""
    options = msgspec.structs.replace(
        load("content"), nodes=30, events=100, subscriptions=3, workload=str(file)
    )
    result = run_scenario(options)
    assert result.ok, result.to_text()
    assert result.delivered == result.due > 0
    assert result.counts.get("content_by_comparison", 0) == 0
    assert dict(each[:2] for each in result.table)["cut-off lines"] != "name 0.2"
