"""docs/architecture.md says what each file of its rooms is for: none is missing, none is gone."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ROOT / "src/pulsarcast"
TEXT = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
OF_THE_CORE = sorted(path.parent.name for path in ROOMS.glob("protocol/*/__init__.py"))


@pytest.mark.parametrize(
    ("head", "room"),
    [
        ("file", "protocol"),
        *((f"`{room}/`", f"protocol/{room}") for room in OF_THE_CORE),
        ("`network/`", "network"),
        ("`testbed/`", "testbed"),
    ],
)
def test_every_file_of_a_room_is_told_of(head: str, room: str) -> None:
    folder = ROOMS / room
    files = {path.name for path in folder.glob("*.py") if path.name != "__init__.py"}
    rooms = {f"{path.parent.name}/" for path in folder.glob("*/__init__.py")}
    assert _told(head) == (files if room == "protocol" else files | rooms)


def _told(head: str) -> set[str]:
    """What stands in the first column of a table."""
    first = f"| {head} | |\n"
    assert TEXT.count(first) == 1
    table = TEXT.partition(first)[2].partition("\n\n")[0]
    rows = [line.split("|")[1] for line in table.splitlines()[1:]]
    return {name for row in rows for name in re.findall(r"`(\w+(?:\.py|/))`", row)}
