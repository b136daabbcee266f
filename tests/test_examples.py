"""Every example runs as its first lines say, and prints what it promises."""

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "examples"

LAST_LINES = {
    "hello.py": "sunny, 23 degrees, says 12D3KooW",
    "history.py": "3 kept, each linked to the one before: True",
    "ordered.py": "60 events, the same order everywhere: True",
    "request.py": "it rains: by the reporter True, published by the editor True",
    "resume.py": "wednesday: snow",
}


def test_no_example_is_left_out() -> None:
    assert sorted(LAST_LINES) == sorted(path.name for path in FOLDER.glob("*.py"))


@pytest.mark.parametrize("name", sorted(LAST_LINES))
def test_an_example_runs(name: str) -> None:
    done = subprocess.run(
        [sys.executable, str(FOLDER / name)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.splitlines()[-1].startswith(LAST_LINES[name])
