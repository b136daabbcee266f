"""Claims: one run to a folder, which keeps how it came about, so that it can be run again.

OUT/scenario.toml  all that the run is, with the command, the versions and the digests of its files
OUT/run.lock       held by whoever runs there
"""

from __future__ import annotations

import fcntl
import os
import platform
import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from pulsarcast import __version__
from pulsarcast.model.errors import LocalError
from pulsarcast.testbed.options import Outcome, RunOptions
from pulsarcast.testbed.run import run_scenario
from pulsarcast.testbed.scenario_files import FILE, RECORDED, digest_of, scenario_text
from pulsarcast.testbed.scenarios.compare import Progress, no_progress
from pulsarcast.testbed.scenarios.mirror import REAL
from pulsarcast.testbed.sessions import NODES, SUMMARY, TRACES

LOCK: Final = "run.lock"
_LIBRARIES: Final = ("cryptography", "libp2p", "msgspec", "pynacl", "trio")


def play(
    options: RunOptions, *, replace: bool = False, progress: Progress = no_progress
) -> Outcome:
    """Run a scenario in a folder that nobody else uses, and leave there what a replay needs."""
    with claim(options, replace=replace):
        return run_scenario(options, progress=progress)


@contextmanager
def claim(options: RunOptions, *, replace: bool = False) -> Iterator[int]:
    """Have a folder for one run; yields the file that stands for it as long as it is open.

    A finished run stays, unless it is to be replaced. One that was broken off makes place.
    """
    out = options.out
    out.mkdir(parents=True, exist_ok=True)
    lock = os.open(out / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LocalError(f"something runs in {out}") from None
        if (out / SUMMARY).exists() and not replace:
            raise LocalError(f"{out} holds a finished run: choose another folder, or replace it")
        _make_place(out)
        text = scenario_text(options, _circumstances(options))
        (out / FILE).write_text(text, encoding="utf-8")
        yield lock
    finally:
        os.close(lock)


def _make_place(out: Path) -> None:
    """Remove what an earlier run left; what else somebody has in a folder is not ours."""
    kept = out / FILE
    text = kept.read_text(encoding="utf-8") if kept.exists() else None
    if text is not None and f"[{RECORDED}]" not in text:
        raise LocalError(f"{kept} was written by no run, and would be overwritten")
    if text is None and not (out / SUMMARY).exists():
        return
    was_mirror = text is not None and 'kind = "mirror"' in text
    for folder in (TRACES, NODES, *([REAL] if was_mirror else [])):
        shutil.rmtree(out / folder, ignore_errors=True)
    (out / SUMMARY).unlink(missing_ok=True)


def _circumstances(options: RunOptions) -> dict[str, Any]:
    """What else a run depends on."""
    files = [path.resolve() for path in (options.workload, options.matrix) if path is not None]
    return {
        "command": shlex.join(["pulsarcast", *sys.argv[1:]]),
        "pulsarcast": __version__,
        "python": platform.python_version(),
        "linux": platform.release(),
        "cores": os.cpu_count() or 0,
        **{name: version for name in _LIBRARIES if (version := _version_of(name))},
        "files": {str(path): digest_of(path) for path in files if path.is_file()},
    }


def _version_of(library: str) -> str | None:
    """None: it is not there, and whoever needs it says so."""
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return None
