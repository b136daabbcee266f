"""The figures of whole runs in the docs, measured again in one go, on one commit.

    python benchmarks/figures.py --list
    python benchmarks/figures.py --out out/figures [--only NAME …] [--data ../shared/data]

One after another, nothing beside them: they take what `figures.toml` says, 30 hours of one core in
all. A figure that was measured on this commit is not measured again, so a run that was cut off
goes on. What each printed is in its folder, beside its command, commit, exit code and CPU seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shlex
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--list", action="store_true", help="say what there is")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--data", type=Path, default=ROOT / "../shared/data")
    given = parser.parse_args()
    figures = tomllib.loads((HERE / "figures.toml").read_text(encoding="utf-8"))
    unknown = [name for name in given.only if name not in figures]
    if unknown:
        parser.error(f"no such figure: {', '.join(unknown)}")
    chosen = {name: each for name, each in figures.items() if name in (given.only or figures)}
    if given.list or given.out is None:
        for name, figure in chosen.items():
            print(f"{name:28} {figure['cpu_min']:4} CPU min  {figure['page']}")
        return
    failed = [
        name
        for name, figure in chosen.items()
        if not measure(name, figure, given.out.resolve() / name, given.data.resolve())
    ]
    if failed:
        sys.exit(f"not as it should be: {', '.join(failed)}")


def measure(name: str, figure: dict[str, Any], out: Path, data: Path) -> bool:
    """Measure one, unless that was done on this commit; whether it ended as it should."""
    missing = [each for each in figure.get("needs", []) if not (data / each).is_file()]
    if missing:
        print(f"{name}: left out, {missing[0]} is not at hand")
        return True
    commit = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=ROOT, text=True).strip()
    told = out / "figure.json"
    before = json.loads(told.read_text()) if told.is_file() else {}
    if before.get("commit") == commit:
        print(f"{name}: measured before")
        return _is_well(before["exit"], figure)
    out.mkdir(parents=True, exist_ok=True)
    command = figure["command"].format(out=out, data=data)
    path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"
    print(f"{name}: {command}", flush=True)
    began_s, used_s = time.monotonic(), _used_s()
    with (out / "printed.txt").open("wb") as printed:
        code = subprocess.run(
            shlex.split(command),
            cwd=ROOT,
            env={**os.environ, "PATH": path},
            stdout=printed,
            stderr=subprocess.STDOUT,
            check=False,
        ).returncode
    cpu_s, wall_s = _used_s() - used_s, time.monotonic() - began_s
    result = {"commit": commit, "command": command, "exit": code}
    told.write_text(json.dumps({**result, "cpu_s": round(cpu_s), "wall_s": round(wall_s)}) + "\n")
    print(f"{name}: exit {code}, {cpu_s:.0f} CPU s, {wall_s:.0f} s", flush=True)
    return _is_well(code, figure)


def _is_well(code: int, figure: dict[str, Any]) -> bool:
    fails: bool = figure.get("fails", False)
    return (code != 0) == fails


def _used_s() -> float:
    """Of all processes that were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
