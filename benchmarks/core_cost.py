"""What a simulated message costs: calls of functions, which repeat exactly, and CPU seconds.

    python benchmarks/core_cost.py                         # this tree
    python benchmarks/core_cost.py --base PATH --pairs 10  # another checkout beside it

Plays fixed scenarios. Calls are counted by the profiler, in a run of their own; CPU seconds are
measured without it, a process each, base and head in turns, after both are compiled. The interval
is that of the mean of the pairs' ratios (95 %, Student).
"""

from __future__ import annotations

import argparse
import compileall
import json
import math
import os
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RUNS: dict[str, dict[str, object]] = {
    "random": {"seed": 1},
    "tree": {"seed": 1, "nodes": 200, "events": 40},
    "sequenced": {"seed": 1},
}
STUDENT = {4: 2.776, 5: 2.571, 7: 2.365, 9: 2.262, 11: 2.201, 14: 2.145, 19: 2.093, 24: 2.064}
"""Student's t, two-sided 95 %, by degrees of freedom."""
PLAY = """
import cProfile, json, sys, time
import msgspec
from pulsarcast.simulation.options import load
from pulsarcast.simulation.scenario import run_scenario

name, changes, counts = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3] == "calls"
options = msgspec.structs.replace(load(name), **changes)
profile = cProfile.Profile()
began = time.process_time()
if counts:
    profile.enable()
result = run_scenario(options)
profile.disable()
cpu_s = time.process_time() - began
said = json.loads(result.to_json())
calls = sum(entry.callcount for entry in profile.getstats()) if counts else None
print(json.dumps({"cpu_s": cpu_s, "calls": calls, "messages": said["all_messages"],
                  "delivered": said["delivered"]}))
"""


def play(tree: Path, name: str, what: str) -> dict[str, float]:
    """One run on one tree, in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "PYTHONHASHSEED": "0"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    asked = [sys.executable, "-c", PLAY, name, json.dumps(RUNS[name]), what]
    done = subprocess.run(asked, env=environment, capture_output=True, text=True, check=True)
    answer: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return answer


def counted(tree: Path) -> dict[str, dict[str, float]]:
    """Calls per message and per delivery, of each scenario."""
    rows = {}
    for name in RUNS:
        run = play(tree, name, "calls")
        rows[name] = {
            "messages": run["messages"],
            "delivered": run["delivered"],
            "calls_a_message": round(run["calls"] / run["messages"], 2),
            "calls_a_delivery": round(run["calls"] / run["delivered"], 2),
        }
    return rows


def interval(ratios: list[float]) -> tuple[float, float]:
    """The mean, and half of its 95 % interval."""
    freedom = len(ratios) - 1
    student = STUDENT.get(freedom, 2.0)
    return statistics.mean(ratios), student * statistics.stdev(ratios) / math.sqrt(len(ratios))


def main() -> None:
    """Measure, and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", type=Path, help="Another checkout to compare with.")
    parser.add_argument("--pairs", type=int, default=0, help="Pairs of CPU measurements.")
    given = parser.parse_args()
    trees = {"head": ROOT} | ({"base": given.base.resolve()} if given.base else {})
    for tree in trees.values():
        compileall.compile_dir(tree / "src", quiet=2)
    figures: dict[str, object] = {name: counted(tree) for name, tree in trees.items()}
    for name in RUNS if given.base and given.pairs else ():
        ratios = []
        for _ in range(given.pairs):
            cost = {key: play(tree, name, "cpu") for key, tree in trees.items()}
            a_message = {key: run["cpu_s"] / run["messages"] for key, run in cost.items()}
            ratios.append(a_message["head"] / a_message["base"])
        mean, half = interval(ratios)
        figures[f"cpu_{name}"] = {"ratio": round(mean, 3), "half": round(half, 3)}
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
