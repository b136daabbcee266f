"""Plays the same seeds on two commits, and compares every line of their traces.

    python benchmarks/compare_traces.py main             # a commit, and the working tree
    python benchmarks/compare_traces.py main HEAD --quick

A change that is meant to keep every behaviour must pass. Each commit plays with its own copy of
this script. The traces of the base are kept in a cache, so that it plays a seed only once. The
comparison ends with the first run that differs: both commits play it again, and the lines around
the first difference in simulated time are printed with all that the effects hold.

Beside the records of its trace a node writes a line for each turn that has effects: what it was
given, and its effects in order, each with a digest of its values; names of fields do not count.
Not seen: turns without effects, names of counters in memory, all that simulated runs do not do.
"""

from __future__ import annotations

import argparse
import difflib
import json
import math
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import msgspec
import zstandard

from pulsarcast.model.trace import Unknown
from pulsarcast.protocol.effects import Deliver, Effect, Send, Trace
from pulsarcast.protocol.inputs import Input, MessageReceived, Now
from pulsarcast.simulation import world
from pulsarcast.simulation.options import load
from pulsarcast.simulation.process import Process
from pulsarcast.simulation.scenario import run_scenario
from pulsarcast.simulation.sequencers.group import Peer
from pulsarcast.wire.codec import encode

ROOT = Path(__file__).resolve().parents[1]
CACHE = Path.home() / ".cache/pulsarcast-traces"
THESIS: dict[str, Any] = {"nodes": 20, "faults": "restarts"}
SEEDS = {"sequencers": 300, "sequenced": 4, "thesis": 1, "random-content": 100, "random": 200}
QUICK = {"sequencers": 20, "sequenced": 1, "random-content": 4, "random": 10}
VERDICT = "verdict.json"
"""Written last: a run that has it is whole."""
JUDGED = ("nodes", "faults", "findings", "details", "due", "delivered", "counts", "all_messages")
"""What of a run's result is compared: all of these follow from the seed."""
CONTEXT = 2


class Run(NamedTuple):
    """One seed of one scenario."""

    scenario: str
    seed: int

    @property
    def name(self) -> str:
        """The folder of its traces."""
        return f"{self.scenario}-{self.seed}"


# Playing: each commit does this with its own copy of the script.


def play(run: Run, folder: Path, *, whole: bool = False) -> Path:
    """Play a run and write its traces below `folder`; `whole` spells out what effects hold."""
    there = folder / run.name
    if (there / VERDICT).exists():
        return there
    folder.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(dir=folder, prefix="."))
    changes = THESIS if run.scenario == "thesis" else {}
    options = msgspec.structs.replace(
        load(run.scenario), seed=run.seed, trace=str(new), run_id=run.name, **changes
    )
    with watching(whole=whole):
        result = run_scenario(options)
    (new / "result.json").unlink(missing_ok=True)  # it holds times and the folder's name
    judged = {name: getattr(result, name) for name in JUDGED}
    (new / VERDICT).write_text(json.dumps(judged, indent=0))
    _move(new, there)
    return there


@contextmanager
def watching(*, whole: bool) -> Iterator[None]:
    """Let every turn of a node, and of a sequencer that has none, write its effects down."""

    class Watched(Process):
        __slots__ = ()

        def __init__(self, core: Any, **rest: Any) -> None:
            super().__init__(core, **rest)
            handle = core.handle

            def watched(given: Input, now: Now) -> list[Effect]:
                effects: list[Effect] = handle(given, now)
                if effects:
                    cause = given.message if isinstance(given, MessageReceived) else given
                    self.note(_turn(self._loop.now, type(cause).__name__, effects, whole=whole))
                return effects

            self._handle = watched

    def step(peer: Peer, act: Callable[[], None]) -> None:
        before = peer._turn.effects
        usual_step(peer, act)
        effects = peer._turn.effects
        if effects and effects is not before:
            peer.group.note(peer, _turn(peer.group.loop.now, "step", effects, whole=whole))

    usual_step = Peer.step
    with patch.object(world, "Process", Watched), patch.object(Peer, "step", step):
        yield


def _turn(at_s: float, given: str, effects: list[Effect], *, whole: bool) -> Unknown:
    tell = repr if whole else _digest
    return Unknown("turn", {"at_s": at_s, "given": given, "effects": [*map(tell, effects)]})


def _digest(effect: Effect) -> str:
    if isinstance(effect, (Trace, Deliver)):
        return type(effect).__name__  # its record has a line of its own
    if isinstance(effect, Send):
        values = effect.peer + encode(effect.message)
        name = f"Send {type(effect.message).__name__}"
    else:
        values = repr(_values(effect)).encode()
        name = type(effect).__name__
    return f"{name} {blake2b(values, digest_size=4).hexdigest()}"


def _values(value: Any) -> Any:
    """All that is in it, without a name that may change."""
    if isinstance(value, msgspec.Struct):
        value = msgspec.structs.astuple(value)
    if isinstance(value, dict):
        value = tuple(value.items())
    return tuple(map(_values, value)) if isinstance(value, tuple) else value


def _play_here(job: tuple[Run, Path, bool]) -> str:
    run, folder, whole = job
    play(run, folder, whole=whole)
    return run.name


def play_all(runs: list[Run], folder: Path, *, whole: bool) -> None:
    """Play runs on all cores, and say the name of each that is done, in order."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with multiprocessing.get_context("spawn").Pool(maxtasksperchild=50) as pool:
        for name in pool.imap(_play_here, [(run, folder, whole) for run in runs]):
            print(name, flush=True)


# Comparing.


class Change(NamedTuple):
    """What may differ: words of the base that the new side says otherwise, and what is left out."""

    words: dict[str, str]
    ignored: tuple[str, ...] = ()

    def base(self, text: str) -> str:
        """A text of the base, in the new words."""
        if self.words:
            longest = sorted(self.words, key=len, reverse=True)
            pattern = rf"(?<!\w)({'|'.join(map(re.escape, longest))})(?!\w)"
            text = re.sub(pattern, lambda found: self.words[found[0]], text)
        return self.new(text)

    def new(self, text: str) -> str:
        """A text without what does not count."""
        for pattern in self.ignored:
            text = re.sub(pattern, "", text)
        return text


class Difference(NamedTuple):
    """Where two runs first differ: a node's life, and the number of the line in it."""

    at_s: float
    stream: str
    line: int


def compare(base: Path, new: Path, change: Change) -> Difference | None:
    """The first difference in simulated time between the traces of two runs."""
    found = []
    ours, theirs = streams(base), streams(new)
    for stream in sorted(ours.keys() | theirs.keys()):
        one, other = ours.get(stream, b""), theirs.get(stream, b"")
        if one == other and not change.words:
            continue
        left = change.base(one.decode()).splitlines()
        right = change.new(other.decode()).splitlines()
        for number, (before, after) in enumerate(zip_longest(left, right)):
            if before != after:
                at_s = min(_at_s(left, number), _at_s(right, number))
                found.append(Difference(at_s, stream, number))
                break
    return min(found, default=None)


def streams(folder: Path) -> dict[str, bytes]:
    """The text of each life of each node, and what the run came to."""
    texts: dict[str, bytes] = {"~verdict": (folder / VERDICT).read_bytes()}
    for path in sorted(folder.glob("*.zst")):
        life = path.name.rpartition("-")[0]
        text = zstandard.ZstdDecompressor().decompress(path.read_bytes())
        texts[life] = texts.get(life, b"") + text
    return texts


def _at_s(lines: list[str], number: int) -> float:
    """When a node wrote a line: at the turn before it, or at its first one; a driver has none."""
    for line in (*reversed(lines[: number + 1]), *lines[number:]):
        if found := re.search(r'"at_s":([0-9.]+)', line):
            return float(found[1])
    return math.inf


def show(base: Path, new: Path, found: Difference) -> str:
    """The lines around a difference, an effect a line."""

    def near(folder: Path) -> list[str]:
        lines = streams(folder).get(found.stream, b"").decode().splitlines()
        some = lines[max(0, found.line - CONTEXT) : found.line + CONTEXT]
        return [part for line in some for part in _parts(line)]

    return "\n".join(difflib.unified_diff(near(base), near(new), "base", "new", lineterm=""))


def _parts(line: str) -> list[str]:
    if '"kind":"turn"' not in line:
        return [line.partition('"kind":')[2] or line]
    turn = json.loads(line)
    return [f"turn at {turn['at_s']} s: {turn['given']}", *(f"    {e}" for e in turn["effects"])]


# Trees of commits.


def tree_of(commit: str) -> Path:
    """A commit's files, unpacked and compiled once for all commits with the same code."""
    paths = ("src", f"benchmarks/{Path(__file__).name}")
    code = _git("rev-parse", *(f"{commit}:{path}" for path in paths)).decode().split()
    tree = CACHE / "-".join(each[:12] for each in code) / "tree"
    if not tree.exists():
        tree.parent.mkdir(parents=True, exist_ok=True)
        new = Path(tempfile.mkdtemp(dir=tree.parent, prefix="."))
        subprocess.run(["tar", "-x", "-C", new], input=_git("archive", commit, *paths), check=True)
        subprocess.run([sys.executable, "-m", "compileall", "-q", new / "src"], check=True)
        _move(new, tree)
    return tree


def _move(new: Path, there: Path) -> None:
    try:
        new.rename(there)
    except OSError:  # another comparison was quicker
        shutil.rmtree(new)


def _git(*words: str) -> bytes:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout


def playing(
    tree: Path, runs: list[Run], folder: Path, *, whole: bool = False
) -> Generator[str, None, None]:
    """The names of runs as a tree plays them, in a process of its own."""
    script = tree / "benchmarks" / Path(__file__).name
    command = [sys.executable, str(script), "--play", json.dumps(runs), str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    with subprocess.Popen(
        [*command, *["--whole"] * whole], env=environment, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        try:
            yield from map(str.strip, child.stdout)
        except GeneratorExit:
            child.terminate()
            raise
    if child.returncode:
        sys.exit(f"{tree} could not be played")


def compare_trees(old: Path, new: Path, runs: list[Run], change: Change) -> str | None:
    """Play what the old tree has not played yet, then the new one; the first difference as text."""
    kept = old.with_name("runs")
    missing = [run for run in runs if not (kept / run.name / VERDICT).exists()]
    for number, _ in enumerate(playing(old, missing, kept) if missing else (), 1):
        print(f"\rbase: {number} of {len(missing)} runs", end="", file=sys.stderr, flush=True)
    shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # a run writes many files
    with tempfile.TemporaryDirectory(dir=shared) as scratch:
        names = playing(new, runs, Path(scratch, "new"))
        for number, (run, name) in enumerate(zip(runs, names, strict=True), 1):
            played = Path(scratch, "new", name)
            found = compare(kept / name, played, change)
            if found is not None:
                names.close()
                sides = [Path(scratch, side) for side in ("base-whole", "new-whole")]
                for tree, side in zip((old, new), sides, strict=True):
                    list(playing(tree, [run], side, whole=True))
                lines = show(sides[0] / name, sides[1] / name, found)
                return f"{name} differs at {found.at_s} s in {found.stream}:\n{lines}"
            shutil.rmtree(played)
            print(f"\rnew: {number} of {len(runs)} runs", end="", file=sys.stderr, flush=True)
    return None


def main() -> None:
    """Compare two commits, or play for a comparison."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("base", nargs="?", help="commit whose traces are right")
    parser.add_argument("new", nargs="?", help="commit to compare; default: the working tree")
    parser.add_argument("--quick", action="store_true", help="some of the seeds")
    parser.add_argument("--only", choices=SEEDS, help="one scenario")
    parser.add_argument("--words", type=Path, help="JSON object: the base's words, and the new")
    parser.add_argument("--ignore", action="append", default=[], help="pattern that does not count")
    parser.add_argument("--play", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--whole", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.play:
        runs = [Run(*each) for each in json.loads(given.play[0])]
        play_all(runs, Path(given.play[1]), whole=given.whole)
        return
    if given.base is None:
        parser.error("which commit is the base?")
    seeds = QUICK if given.quick else SEEDS
    runs = [
        Run(scenario, seed)
        for scenario, count in seeds.items()
        for seed in range(1, count + 1)
        if given.only in (None, scenario)
    ]
    words = json.loads(given.words.read_text()) if given.words else {}
    new = ROOT if given.new is None else tree_of(given.new)
    found = compare_trees(tree_of(given.base), new, runs, Change(words, tuple(given.ignore)))
    print("", found or f"{len(runs)} runs are the same", sep="\n")
    sys.exit(found is not None)


if __name__ == "__main__":
    main()
