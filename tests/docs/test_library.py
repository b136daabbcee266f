"""The program of the library's guide for asyncio runs, and asyncio's debug mode is silent."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.docs.guides import ROOT, sections


def test_the_program_for_asyncio_runs(tmp_path: Path) -> None:
    section = sections((ROOT / "docs/guides/library.md").read_text(encoding="utf-8"))["asyncio"]
    program = re.search(r"^```python\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    assert program
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", program[1]],
        cwd=tmp_path,
        env={**os.environ, "PYTHONASYNCIODEBUG": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "1 sunny, 23 degrees\n"), done.stderr
    said = [line for line in done.stderr.splitlines() if not line.endswith(" seconds")]
    assert said == [], "slow callbacks alone may be reported: the machine may be busy"
