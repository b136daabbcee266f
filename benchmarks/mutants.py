"""Mutation testing of the core: a seeded sample of mutants over all files of model/ and protocol/.

    pip install --group mutation -c constraints.txt
    python benchmarks/mutants.py --sample 520 --seed 1 --out mutants.json

mutmut makes the mutants. The tests are run once to learn which of them runs which line; then every
mutant of the sample meets those that run its line, quickest first, up to `--budget-s` of them: a
few longer ones that would have killed it may not have had their turn, so the share is a floor. What
no test runs is alive. A mutant is source text that an import finds instead of the file's; nothing
on the disk is changed.

The sample has at least one of each file, the others by how many a file has. `--only` names the
mutants to try again, as the result does.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import importlib.machinery
import importlib.util
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import pytest

SOURCE = Path("src/pulsarcast")
ROOMS = ("model", "protocol")
TESTS = (
    "tests/unit/model",
    "tests/unit/protocol",
    "tests/unit/wire",
    "tests/paper",
    "tests/transcripts",
    "tests/attacks",
    *(f"tests/simulation/test_{each}.py" for each in ("content", "scenarios", "sequencers")),
)
HOW = (
    *("-q", "-x", "-p", "no:xdist", "-p", "no:cacheprovider", "--timeout=0"),
    *("-m", "not slow and not data", "--hypothesis-profile=quick"),
)
SURE_S = 30.0
"""A mutant's tests may take three times as long as they did, and this: then it does not end."""
MEMORY_BYTES = 3 << 30
ALIVE = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)


@dataclass(frozen=True)
class Mutant:
    """One small change to one file."""

    name: str
    """The file, and its number among the file's."""
    path: str
    source: str
    change: str
    lines: tuple[int, int]
    """The first and last that it changes, in the file as it is."""


@dataclass(frozen=True)
class Coverage:
    """Which tests run which lines, and how long they take."""

    tests: dict[str, dict[int, frozenset[str]]]
    took_s: dict[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sample", type=int, default=520)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--budget-s", type=float, default=60.0)
    parser.add_argument("--only", nargs="*", help="names of mutants, instead of a sample")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    counts = {path: len(mutations_of(path)[1]) for path in core_files()}
    if given.only:
        names = given.only
    else:
        names = sample([names_of(*each) for each in counts.items()], given.sample, given.seed)
    chosen = make(names)
    print(f"{len(chosen)} of {sum(counts.values())} mutants", flush=True)
    coverage = cover()
    print(f"{len(coverage.took_s)} tests, {sum(coverage.took_s.values()):.0f} s", flush=True)

    def meet(mutant: Mutant) -> str:
        end = fate(mutant, coverage, given.budget_s)
        print(f"{end:9} {mutant.name}", flush=True)
        return end

    # By chance, so that those tried are a sample too where somebody breaks it off.
    order = Random(given.seed).sample(chosen, len(chosen))
    with ThreadPoolExecutor(given.processes) as pool:
        fates = dict(zip(order, pool.map(meet, order), strict=True))
    result = summary({mutant: fates[mutant] for mutant in chosen}, sum(counts.values()))
    given.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(table(result))


# The mutants.


def core_files() -> list[Path]:
    return sorted(path for room in ROOMS for path in (SOURCE / room).rglob("*.py"))


def mutations_of(path: Path) -> tuple[Any, list[Any]]:
    """A file's syntax tree, and all that mutmut would change in its functions."""
    from mutmut.mutation.file_mutation import create_mutations

    module, mutations, *_ = create_mutations(str(path), path.read_text(encoding="utf-8"))
    return module, [each for each in mutations if each.contained_by_top_level_function is not None]


def names_of(path: Path, count: int) -> list[str]:
    """How a file's mutants are called: by its path, and from 1 on."""
    room = path.relative_to(SOURCE).with_suffix("")
    return [f"{room}:{number}" for number in range(1, count + 1)]


def make(names: Sequence[str]) -> list[Mutant]:
    """The mutants of these names, file by file: a tree with all its mutations is large."""
    from mutmut.mutation.file_mutation import deep_replace

    by_file: dict[str, list[int]] = {}
    for name in names:
        room, _, at = name.partition(":")
        by_file.setdefault(room, []).append(int(at))
    mutants = []
    for room, numbers in sorted(by_file.items()):
        path = Path(SOURCE, room).with_suffix(".py")
        before = path.read_text(encoding="utf-8")
        module, mutations = mutations_of(path)
        for number in sorted(numbers):
            mutation = mutations[number - 1]
            after: Any = deep_replace(module, mutation.original_node, mutation.mutated_node)
            change = difference(before, after.code)
            mutants.append(Mutant(f"{room}:{number}", str(path), after.code, *change))
    return mutants


def difference(before: str, after: str) -> tuple[str, tuple[int, int]]:
    """The lines that differ, and which those are in what was before."""
    old, new = before.splitlines(), after.splitlines()
    codes = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    parts = [code for code in codes if code[0] != "equal"]
    first, last = parts[0][1], max(parts[-1][2], parts[0][1] + 1)
    shown = [f"- {line.strip()}" for line in old[first : parts[-1][2]]]
    shown += [f"+ {line.strip()}" for line in new[parts[0][3] : parts[-1][4]]]
    return "\n".join(shown), (first + 1, last)


def sample(files: Sequence[Sequence[str]], count: int, seed: int) -> list[str]:
    """Some of them: at least one of each file, the rest by how many it has."""
    rng = Random(seed)
    chosen: list[str] = []
    rest: list[str] = []
    for of_file in files:
        if of_file:
            shuffled = rng.sample(of_file, len(of_file))
            chosen.append(shuffled[0])
            rest += shuffled[1:]
    return chosen + rng.sample(rest, max(0, min(len(rest), count - len(chosen))))


# The tests.


def cover() -> Coverage:
    """Run all tests once, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        data, times = Path(folder, "data"), Path(folder, "times.json")
        subprocess.run([sys.executable, __file__, "cover", str(data), str(times)], check=True)
        import coverage

        read = coverage.CoverageData(str(data))
        read.read()
        tests = {
            os.path.relpath(file): {
                line: frozenset(names) - {""}
                for line, names in read.contexts_by_lineno(file).items()
            }
            for file in read.measured_files()
        }
        return Coverage(tests, json.loads(times.read_text()))


def tests_of(mutant: Mutant, coverage: Coverage) -> list[str]:
    """Those that run what it changes, quickest first."""
    lines = coverage.tests.get(mutant.path, {})
    tree = ast.parse(Path(mutant.path).read_text(encoding="utf-8"))
    for first, last in spans(tree, mutant.lines):
        ran = [tests for line, tests in lines.items() if first <= line <= last]
        names = {name for tests in ran for name in tests}
        if names:
            return sorted(names, key=lambda name: coverage.took_s.get(name, 0.0))
        if not ran:
            break
    return []


def spans(tree: ast.AST, lines: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """The statement around these lines, or its head; then the function, which runs it too.

    What runs only while its file is imported, as a class's own lines do, is used by whatever runs
    the rest of the class, or of the file.
    """
    around = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.stmt) and node.lineno <= lines[0] <= (node.end_lineno or 0)
    ]
    around.sort(key=lambda node: (node.end_lineno or 0) - node.lineno)
    for node in around:
        end = node.end_lineno or node.lineno
        if isinstance(node, ast.FunctionDef):
            yield node.body[0].lineno, end
        elif isinstance(node, ast.ClassDef):
            yield node.lineno, end
        else:
            body = getattr(node, "body", None)
            yield node.lineno, max(node.lineno, body[0].lineno - 1, lines[0]) if body else end
    yield 1, sys.maxsize


def fate(mutant: Mutant, coverage: Coverage, budget_s: float) -> str:
    """`failed`, `endless`, `alive`, or `untouched` where no test comes by."""
    names = tests_of(mutant, coverage)
    spent_s, chosen = 0.0, list[str]()
    for name in names:
        spent_s += coverage.took_s.get(name, 0.0)
        if chosen and spent_s > budget_s:
            break
        chosen.append(name)
    if not chosen:
        return "untouched"
    with tempfile.TemporaryDirectory() as folder:
        text, tests = Path(folder, "mutant.py"), Path(folder, "tests")
        text.write_text(mutant.source, encoding="utf-8")
        tests.write_text("\n".join(chosen), encoding="utf-8")
        command = [sys.executable, __file__, "try", mutant.path, str(text), str(tests)]
        try:
            done = subprocess.run(
                command,
                timeout=3 * min(spent_s, budget_s) + SURE_S,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return "endless"
    return "alive" if done.returncode in ALIVE else "failed"


# What the processes of the tests do.


class Watch:
    """Tells coverage which test runs, and keeps how long each took."""

    def __init__(self, coverage: Any) -> None:
        self._coverage = coverage
        self.took_s: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._coverage.switch_context(item.nodeid)
        began_s = time.perf_counter()
        result = yield
        self.took_s[item.nodeid] = time.perf_counter() - began_s
        self._coverage.switch_context("")
        return result


def watch(data: str, times: str) -> int:
    import coverage

    measured = coverage.Coverage(
        data_file=data, config_file=False, source=[str(SOURCE / room) for room in ROOMS]
    )
    plugin = Watch(measured)
    measured.start()
    code = pytest.main([*HOW, *TESTS], plugins=[plugin])
    measured.stop()
    measured.save()
    Path(times).write_text(json.dumps(plugin.took_s), encoding="utf-8")
    return code


class OtherText(importlib.machinery.SourceFileLoader):
    """Loads a module from the text it is given, under the file's name; never from a cache."""

    def __init__(self, name: str, path: str, text: bytes) -> None:
        super().__init__(name, path)
        self._text = text

    def get_data(self, path: str) -> bytes:
        return self._text

    def path_stats(self, path: str) -> Any:
        raise OSError


class Finder:
    """Finds one module to have another text."""

    def __init__(self, path: str, text: bytes) -> None:
        parts = Path(path).relative_to("src").with_suffix("").parts
        self._name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        self._path = str(Path(path).resolve())
        self._text = text

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self._name:
            return None
        loader = OtherText(name, self._path, self._text)
        return importlib.util.spec_from_file_location(name, self._path, loader=loader)


def try_it(path: str, text: str, tests: str) -> int:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    sys.meta_path.insert(0, Finder(path, Path(text).read_bytes()))
    return pytest.main([*HOW, f"@{tests}"])


# What it came to.


def summary(fates: dict[Mutant, str], count: int) -> dict[str, Any]:
    """By file, and who is alive, with what it changes."""
    files: dict[str, list[int]] = {}
    for mutant, end in fates.items():
        of_file = files.setdefault(mutant.path, [0, 0])
        of_file[0] += end in ("failed", "endless")
        of_file[1] += 1
    alive = {
        mutant.name: {"fate": end, "line": mutant.lines[0], "change": mutant.change.splitlines()}
        for mutant, end in sorted(fates.items(), key=lambda each: each[0].name)
        if end in ("alive", "untouched")
    }
    return {
        "mutants": count,
        "tried": len(fates),
        "killed": sum(each[0] for each in files.values()),
        "endless": sum(end == "endless" for end in fates.values()),
        "files": dict(sorted(files.items())),
        "alive": alive,
    }


def table(result: dict[str, Any]) -> str:
    """The same, to be read."""
    rows = [
        f"{killed:>4} of {tried:>3}  {file}" for file, (killed, tried) in result["files"].items()
    ]
    return "\n".join([*rows, f"{result['killed']} of {result['tried']} killed"])


if __name__ == "__main__":
    if sys.argv[1:2] == ["cover"]:
        sys.exit(watch(*sys.argv[2:]))
    if sys.argv[1:2] == ["try"]:
        sys.exit(try_it(*sys.argv[2:]))
    main()
