"""How much of each room the tests run, and which lines of protocol/ and storage/ they do not.

    pip install --group mutation -c constraints.txt
    python benchmarks/rooms_covered.py --out covered.json [TESTS ...]

All tests but the slow ones, if none are named. Branches count too; processes that tests start
(nodes, daemons, commands) are watched as well, Spark's own workers are not.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SOURCE = Path("src/pulsarcast").resolve()
READ = ("protocol", "storage")
"""Rooms of which every line that no test runs is told."""
SETTINGS = """
[run]
branch = true
parallel = true
sigterm = true
concurrency = thread, multiprocessing
patch = subprocess, _exit
source = {source}
data_file = {data}
disable_warnings = no-data-collected

[report]
exclude_also =
    if TYPE_CHECKING:
    @overload
    raise NotImplementedError
    case _ as unreachable:
    assert_never
    \\.\\.\\.$
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("tests", nargs="*", default=["tests"])
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        settings, report = Path(folder, "settings"), Path(folder, "report.json")
        settings.write_text(SETTINGS.format(source=SOURCE, data=Path(folder, "data")))
        run = [
            sys.executable,
            "-m",
            "coverage",
            "run",
            f"--rcfile={settings}",
            "-m",
            "pytest",
            "-q",
        ]
        run += ["-n", str(given.processes), "--dist", "loadfile", "-m", "not slow"]
        run += ["--hypothesis-profile=ci", *given.tests]
        failed = subprocess.run(run, check=False).returncode
        for step in (["combine", "-q"], ["json", "-q", "-o", str(report)]):
            command = [sys.executable, "-m", "coverage", step[0], f"--rcfile={settings}", *step[1:]]
            subprocess.run(command, check=True)
        files = json.loads(report.read_text(encoding="utf-8"))["files"]
    rooms = by_room(files)
    missing = dict(uncovered(files))
    result = {"tests_failed": bool(failed), "rooms": rooms, "uncovered": missing}
    given.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(table(rooms))
    for file, lines in missing.items():
        print(f"\n{file}", *(f"  {number:>4}  {text}" for number, text in lines.items()), sep="\n")
    return failed


def by_room(files: dict[str, Any]) -> dict[str, dict[str, int]]:
    """Lines and branches of each, and how many of them were run."""
    rooms: dict[str, dict[str, int]] = {}
    for path, found in sorted(files.items()):
        parts = Path(path).resolve().relative_to(SOURCE).parts
        room = rooms.setdefault(parts[0] if len(parts) > 1 else "(the package itself)", {})
        for key in ("num_statements", "covered_lines", "num_branches", "covered_branches"):
            room[key] = room.get(key, 0) + found["summary"][key]
    return rooms


def uncovered(files: dict[str, Any]) -> Iterator[tuple[str, dict[int, str]]]:
    """Of the rooms that are read line by line: file, number, text."""
    for path, found in sorted(files.items()):
        at = Path(path).resolve()
        if at.relative_to(SOURCE).parts[0] in READ and found["missing_lines"]:
            text = at.read_text(encoding="utf-8").splitlines()
            lines = {number: text[number - 1].strip() for number in found["missing_lines"]}
            yield str(at.relative_to(SOURCE)), lines


def table(rooms: dict[str, dict[str, int]]) -> str:
    """The rooms, to be put into a page."""
    rows = ["| room | lines | run | branches | taken |", "| --- | --- | --- | --- | --- |"]
    for name, room in rooms.items():
        lines, branches = room["num_statements"], room["num_branches"]
        rows.append(
            f"| {name} | {lines:,} | {share(room['covered_lines'], lines)} "
            f"| {branches:,} | {share(room['covered_branches'], branches)} |"
        )
    return "\n".join(rows)


def share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


if __name__ == "__main__":
    sys.exit(main())
