"""Every decoder on its seeds, and on all that fuzzing ever found (`benchmarks/fuzz.py`)."""

from pathlib import Path

import pytest

from tests.fuzzing.targets import TARGETS, try_on

FOUND = Path(__file__).parent / "found"
"""Inputs that broke a decoder once: `found/TARGET/WHAT`."""
INPUTS = sorted(path for path in FOUND.glob("*/*") if path.is_file())


@pytest.mark.parametrize("name", TARGETS)
def test_a_decoder_takes_or_refuses_its_seeds_whole_cut_and_changed(name: str) -> None:
    target = TARGETS[name]
    seeds = target.seeds()
    assert seeds, "fuzzing would begin from nothing"
    for seed in seeds:
        for data in (seed, seed[: len(seed) // 2], seed + seed[:7], seed[::-1]):
            try_on(target, data)


@pytest.mark.parametrize("path", INPUTS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_what_broke_a_decoder_once_is_taken_or_refused(path: Path) -> None:
    try_on(TARGETS[path.parent.name], path.read_bytes())
