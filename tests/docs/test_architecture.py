"""docs/architecture.md says what each file of the core is for: none is missing, none is gone."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROTOCOL = ROOT / "src/pulsarcast/protocol"
TEXT = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
ROOMS = sorted(path.parent.name for path in PROTOCOL.glob("*/__init__.py"))


@pytest.mark.parametrize("room", ["", *ROOMS])
def test_every_file_of_a_room_is_told_of(room: str) -> None:
    assert _told(room) == {
        path.name for path in (PROTOCOL / room).glob("*.py") if path.name != "__init__.py"
    }


def _told(room: str) -> set[str]:
    """The files in the first column of a room's table."""
    head = f"| `{room}/` | |\n" if room else "| file | |\n"
    assert TEXT.count(head) == 1
    table = TEXT.partition(head)[2].partition("\n\n")[0]
    rows = [line.split("|")[1] for line in table.splitlines()[1:]]
    return {name for row in rows for name in re.findall(r"`(\w+\.py)`", row)}
