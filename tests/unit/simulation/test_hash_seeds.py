"""A run does not depend on how this process happens to hash: order never comes from a set."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = "from tests.unit.simulation.test_world import run_chatter; print(run_chatter(3))"


def test_runs_are_the_same_under_any_hash_seed(pytestconfig: pytest.Config) -> None:
    root: Path = pytestconfig.rootpath
    outputs = [
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            cwd=root,
            capture_output=True,
            check=True,
        ).stdout
        for hash_seed in ("0", "12345")
    ]
    assert outputs[0] == outputs[1]
    assert len(outputs[0].splitlines()) > 100
