"""Mutation testing of the core: a seeded sample of mutants over all files of model/ and protocol/.

    pip install --group mutation -c constraints.txt
    python benchmarks/mutants.py --sample 520 --seed 1 --out mutants.json

mutmut makes the mutants, and knows which tests touch which function; this draws the sample, each
file's share by its number of mutants and at least one, and says what became of it. What no test
touches counts as alive. Needs some 20 minutes of two cores, and a folder `mutants` of 100 MB.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from random import Random

MUTANTS = Path("mutants/src")
MAKE = """
from pathlib import Path
from mutmut import __main__ as mutmut
mutmut.set_mutant_under_test("mutant_generation")
Path("mutants").mkdir(exist_ok=True)
mutmut.copy_src_dir()
mutmut.copy_also_copy_files()
mutmut.setup_source_paths()
mutmut.create_mutants(2)
"""
TRY = """
from _pytest.nodes import Node
Node._nodeid = property(lambda self: self.nodeid)  # mutmut 3.8 asks for it, pytest 9.2 has none
from mutmut.__main__ import cli
cli()
"""
KILLED = {1, 3, -24, 24, 36, 152, 255, -11, -9, 37}
"""Exit codes of tests that failed, or that a mutant kept from ending (mutmut's own table)."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sample", type=int, default=520)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    subprocess.run([sys.executable, "-c", MAKE], check=True)
    known = read()
    names = sample({file: sorted(codes) for file, codes in known.items()}, given.sample, given.seed)
    tried = [sys.executable, "-c", TRY, "run", "--max-children", "2", *names]
    subprocess.run(tried, check=True)
    result = summary(read(), names)
    given.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(table(result))


def read() -> dict[str, dict[str, int | None]]:
    """By file: every mutant, and the exit code of its tests."""
    return {
        str(path.relative_to(MUTANTS).with_suffix("")): json.loads(path.read_text())[
            "exit_code_by_key"
        ]
        for path in sorted(MUTANTS.rglob("*.py.meta"))
    }


def sample(names: dict[str, list[str]], count: int, seed: int) -> list[str]:
    """Some of them: at least one of each file, the rest by how many it has."""
    rng = Random(seed)
    chosen: list[str] = []
    rest: list[str] = []
    for of_file in names.values():
        if of_file:
            shuffled = rng.sample(of_file, len(of_file))
            chosen.append(shuffled[0])
            rest += shuffled[1:]
    return chosen + rng.sample(rest, max(0, count - len(chosen)))


def summary(known: dict[str, dict[str, int | None]], names: Iterable[str]) -> dict[str, object]:
    """What became of the sample, by file, and who is alive."""
    wanted = set(names)
    files: dict[str, list[int]] = {}
    alive: list[str] = []
    for file, codes in known.items():
        tried = {name: code for name, code in codes.items() if name in wanted}
        if not tried:
            continue
        killed = sum(code in KILLED for code in tried.values())
        files[file] = [killed, len(tried)]
        alive += [name for name, code in tried.items() if code not in KILLED]
    killed = sum(each[0] for each in files.values())
    tried_count = sum(each[1] for each in files.values())
    return {"killed": killed, "tried": tried_count, "files": files, "alive": sorted(alive)}


def table(result: dict[str, object]) -> str:
    """The same, to be read."""
    files = result["files"]
    assert isinstance(files, dict)
    rows = [f"{killed:>4} of {tried:>3}  {file}" for file, (killed, tried) in files.items()]
    return "\n".join([*rows, f"{result['killed']} of {result['tried']} killed"])


if __name__ == "__main__":
    main()
