"""Fuzzing: atheris looks for bytes that break a decoder (`tests/fuzzing/targets.py`).

    pip install --group fuzzing -c constraints.txt
    python benchmarks/fuzz.py --seconds 20 --out found

Every target has its own process and so many seconds. It begins from the target's seeds, and goes
where code is reached that was not reached before. What breaks a target is written to
`--out`/TARGET; put it into `tests/fuzzing/found/TARGET` under a name that says what it is, where
every run of the tests plays it. With one `--seed` runs begin alike; how far they come is up to the
machine.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from hashlib import sha256
from pathlib import Path

import atheris

LENGTH_MAX = 4096
"""Bytes of an input: several times the largest seed, so that little time goes into long ones."""
INPUT_S_MAX = 5
MEMORY_MB_MAX = 2000
ROOT = Path(__file__).parents[1]
RUNS = re.compile(r"^stat::number_of_executed_units:\s+(\d+)$", re.MULTILINE)


def main() -> None:
    """Fuzz every target, or some, and say what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=_Plain)
    parser.add_argument("--seconds", type=int, default=20, help="for each target")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("found"))
    parser.add_argument("--only", metavar="TARGET", help="fuzz this one")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    if given.here:
        fuzz(given.only, given.seconds, given.seed, given.out)
        return
    from tests.fuzzing.targets import TARGETS  # Not instrumented: nothing is fuzzed here.

    if given.only is not None and given.only not in TARGETS:
        parser.error(f"the targets are {', '.join(TARGETS)}")
    names = list(TARGETS) if given.only is None else [given.only]
    broken = [name for name in names if not play(name, given)]
    if broken:
        sys.exit(f"broken: {', '.join(broken)}")


class _Plain(argparse.RawDescriptionHelpFormatter):
    """Leaves the description as it is."""


def play(name: str, given: argparse.Namespace) -> bool:
    """Fuzz one target in a process of its own, which ends with what it finds."""
    folder = given.out / name
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, __file__, "--here", "--only", name, "--out", str(folder)]
    command += ["--seconds", str(given.seconds), "--seed", str(given.seed)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    runs = RUNS.search(done.stderr)
    verdict = "nothing found" if done.returncode == 0 else f"broken, see {folder}"
    print(f"{name:12} {int(runs[1]) if runs else 0:>12,} runs, {verdict}", flush=True)
    if done.returncode:
        print(done.stdout[-4000:])
    elif not any(folder.iterdir()):
        folder.rmdir()
    return done.returncode == 0


def fuzz(name: str, seconds: int, seed: int, folder: Path) -> None:
    """Fuzz one target until its time is up or it breaks."""
    with atheris.instrument_imports(include=["pulsarcast"]):
        from tests.fuzzing.targets import TARGETS, try_on
    target = TARGETS[name]

    def one(data: bytes) -> None:
        try:
            try_on(target, data)
        except BaseException:
            # libFuzzer does not keep what breaks while it still reads the seeds.
            (folder / sha256(data).hexdigest()[:16]).write_bytes(data)
            raise

    with tempfile.TemporaryDirectory() as corpus:
        for number, data in enumerate(target.seeds()):
            (Path(corpus) / str(number)).write_bytes(data[:LENGTH_MAX])
        limits = [f"-max_total_time={seconds}", f"-max_len={LENGTH_MAX}", f"-timeout={INPUT_S_MAX}"]
        limits += [f"-rss_limit_mb={MEMORY_MB_MAX}", f"-seed={seed}", "-print_final_stats=1"]
        atheris.Setup([sys.argv[0], *limits, f"-artifact_prefix={folder}/", corpus], one)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
