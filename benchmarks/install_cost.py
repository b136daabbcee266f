"""What an installation costs: seconds, megabytes, and how long a program waits for an import.

    python benchmarks/install_cost.py dist/*.whl [--extra network …] [--packages FILE] [--keep DIR]

For the core alone and for each extra of pyproject.toml: a new virtual environment, the wheel and
what it needs installed into it (versions of constraints.txt), something small done with it, then
imports and `pulsarcast --help` timed, each in a process of its own: medians of milliseconds on the
wall, and on a core, which a busy machine hardly changes. Prints a table for docs/releasing.md;
`--packages` writes every package of all environments with its version, megabytes and licence, for
docs/dependencies.md. Needs nothing but the standard library.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
CORE: Final = ""
TIMES: Final = 15
"""Processes for each import: the median of so many does not mind a busy moment."""

# What must work with each extra, and what programs import with it.
SMALL: Final = {
    CORE: "import pulsarcast.wire.codec, pulsarcast.storage.home, pulsarcast.simulation.run",
    "network": "from pulsarcast import Node, Subscription",
    "baselines": "import pulsarcast.testbed.contestants.pubsub",
    "client": "from pulsarcast.client import AsyncClient, Client",
    "daemon": "import pulsarcast.daemon.daemon",
    "pipeline": "import pulsarcast.pipeline.session, pyspark_pulsarcast",
    "all": "import pulsarcast.daemon.daemon, pulsarcast.pipeline.session, pulsarcast.testbed.run",
}
SIMULATE: Final = ("simulate", "thesis", "--nodes", "5", "--events", "5", "--seed", "1")

# Run inside an environment: what is installed there, as JSON.
LOOK: Final = """
import json
from importlib.metadata import distributions
found = []
for it in distributions():
    data = it.metadata
    licence = data.get("License-Expression") or data.get("License") or ""
    if not licence or len(licence) > 60 or licence.lower().startswith("dual"):
        words = [text.split(" :: ")[-1] for text in data.get_all("Classifier") or []
                 if text.startswith("License ::")]
        licence = ", ".join(words) or (licence or "not said").splitlines()[0]
    size = sum(path.stat().st_size for path in map(it.locate_file, it.files or ())
               if path.is_file())
    found.append({"name": data["Name"], "version": it.version, "licence": licence, "bytes": size})
print(json.dumps(found))
"""
TOOLS: Final = {"pip", "setuptools", "wheel"}
"""What a new environment has before anything is installed."""


class Took(NamedTuple):
    """Medians of one process' time, on the wall and on a core."""

    wall_ms: float
    cpu_ms: float

    def __str__(self) -> str:
        return f"{self.wall_ms:.0f} / {self.cpu_ms:.0f}"


class Cost(NamedTuple):
    """What one extra costs."""

    extra: str
    packages: int
    mb: float
    wall_s: float
    cpu_s: float
    bare: Took
    imported: Took
    used: Took
    helped: Took


def main() -> None:
    """Install, use, time, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--extra", action="append", help="only this one; may be given again")
    parser.add_argument("--packages", type=Path)
    parser.add_argument("--keep", type=Path, help="leave the environments here")
    given = parser.parse_args()
    with (ROOT / "pyproject.toml").open("rb") as file:
        extras = [CORE, *tomllib.load(file)["project"]["optional-dependencies"]]
    if unknown := set(extras) ^ set(SMALL):
        sys.exit(f"pyproject.toml and this script do not have the same extras: {unknown}")
    seen: dict[str, dict[str, object]] = {}
    print(
        "| extra | packages | MB | install s | CPU s | bare Python | `import pulsarcast` ", end=""
    )
    print("| its own | `pulsarcast --help` |\n|" + " --- |" * 9)
    with tempfile.TemporaryDirectory() as scratch:
        for extra in given.extra or extras:
            folder = (given.keep or Path(scratch)).resolve() / (extra or "core")
            cost = try_extra(given.wheel.resolve(), extra, folder, seen)
            print(
                f"| {extra or 'none'} | {cost.packages} | {cost.mb:,.0f} | {cost.wall_s:.0f} | "
                f"{cost.cpu_s:.0f} | {cost.bare} | {cost.imported} | {cost.used} | {cost.helped} |",
                flush=True,
            )
    if given.packages:
        rows = sorted(seen.values(), key=lambda row: str(row["name"]).lower())
        given.packages.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def try_extra(wheel: Path, extra: str, folder: Path, seen: dict[str, dict[str, object]]) -> Cost:
    """Install one extra into a new environment, use it, and time it."""
    run(sys.executable, "-m", "venv", "--clear", str(folder))
    python = str(folder / "bin/python")
    wanted = f"{wheel}[{extra}]" if extra else str(wheel)
    before_s, began_s = children_cpu_s(), time.monotonic()
    run(
        python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet",
        "--constraint", str(ROOT / "constraints.txt"), wanted,
    )  # fmt: skip
    wall_s, cpu_s = time.monotonic() - began_s, children_cpu_s() - before_s
    run(python, "-m", "pip", "check")
    command = str(folder / "bin/pulsarcast")
    run(command, *SIMULATE)
    here = [row for row in json.loads(run(python, "-c", LOOK)) if row["name"] not in TOOLS]
    seen.update((row["name"], row) for row in here)
    mb = sum(row["bytes"] for row in here) / 1e6
    return Cost(
        extra,
        len(here),
        mb,
        wall_s,
        cpu_s,
        time_process(python, "-c", "pass"),
        time_process(python, "-c", "import pulsarcast"),
        time_process(python, "-c", SMALL[extra]),
        time_process(command, "--help"),
    )


def time_process(*command: str) -> Took:
    """The medians of many runs; the first, which writes bytecode, is not among them."""
    run(*command)
    walls: list[float] = []
    cores: list[float] = []
    for _ in range(TIMES):
        began_s, before_s = time.perf_counter(), children_cpu_s()
        run(*command)
        walls.append((time.perf_counter() - began_s) * 1e3)
        cores.append((children_cpu_s() - before_s) * 1e3)
    return Took(statistics.median(walls), statistics.median(cores))


def children_cpu_s() -> float:
    """What all processes that have ended took of the cores."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(*command: str) -> str:
    """Run to its end, outside of the clone and of whatever environment we are in ourselves."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        command, cwd=tempfile.gettempdir(), env=kept, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
