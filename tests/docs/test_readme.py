"""The README is short, and its programs do what it says, also when they are run again."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.docs.guides import ROOT

TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
LINES_MAX = 149
"""More than a stranger reads before the first event is too much."""
TRIO, ASYNCIO = re.findall(r"^```python\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)


def printed(code: str, folder: Path) -> str:
    """What a program prints, in a folder that it finds again."""
    (folder / "program.py").write_text(code, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "program.py"],
        cwd=folder, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_is_short() -> None:
    assert len(TEXT.splitlines()) <= LINES_MAX


def test_the_program_goes_on_where_it_stopped_when_it_is_run_again(tmp_path: Path) -> None:
    """The same topic, the next event: neither a second topic nor the first event again."""
    first, second = printed(TRIO, tmp_path), printed(TRIO, tmp_path)
    assert re.fullmatch(r"1: .+, says 12D3KooW\w+\n", first)
    assert second == f"2{first[1:]}"


def test_the_program_for_asyncio_goes_on_as_well(tmp_path: Path) -> None:
    assert printed(ASYNCIO, tmp_path) == "1: {'text': 'hello'}\n"
    assert printed(ASYNCIO, tmp_path) == "2: {'text': 'hello'}\n"


def test_the_programs_have_folders_of_their_own() -> None:
    """A reader of the guides, whose nodes run in `ann` and `ben`, runs these in the same place."""
    folders = re.findall(r"(?:Node\.open|asyncio_node)\(\"([^\"]+)\"", TRIO + ASYNCIO)
    assert len(folders) == 3
    guides = "".join(each.read_text(encoding="utf-8") for each in ROOT.glob("docs/guides/*.md"))
    assert [each for each in folders if f"--home {each}" in guides] == []
