"""Real runs: a process of its own for those who have a JVM beside them, and threads with it.

`python -m tests.pipeline.real_runs FOLDER` leaves two small runs there, `sequenced` and `causal`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

from pulsarcast.testbed.hot import run_hot
from pulsarcast.testbed.options import RunOptions
from pulsarcast.testbed.succession import run_succession

PLAY_S_MAX: Final = 600.0


def play_elsewhere(folder: Path) -> None:
    """Have both runs played, and wait for it."""
    command = [sys.executable, "-m", "tests.pipeline.real_runs", str(folder)]
    subprocess.run(command, check=True, timeout=PLAY_S_MAX)


def play(folder: Path) -> None:
    """Sequencers of which two are killed, and a causal talk over a cube."""
    succession = RunOptions(
        scenario="succession",
        nodes=5,
        rate_per_s=8.0,
        duration_s=20.0,
        every_s=7.0,
        down_s=1.5,
        election_timeout_s=1.0,
        out=folder / "sequenced",
        timeout_s=300,
    )
    hot = RunOptions(
        scenario="hot",
        nodes=4,
        events=24,
        order="causal",
        dissemination="cube",
        out=folder / "causal",
        timeout_s=200,
    )
    for outcome in (run_succession(succession), run_hot(hot)):
        assert outcome.ok, outcome.to_text()


if __name__ == "__main__":
    play(Path(sys.argv[1]))
