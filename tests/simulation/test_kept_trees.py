"""Worlds whose disks have little room for strangers: keepers step out, and no promise is broken."""

import msgspec
import pytest

from pulsarcast.simulation import random_plan
from pulsarcast.simulation.options import load
from pulsarcast.simulation.random_runs import run_random

ROOM_BYTES = 10_000
"""Four events of one place; in the worlds of these seeds all peers are of one."""


@pytest.mark.parametrize("seed", [2, 18, 22, 38])
def test_a_tree_whose_keeper_has_no_room_goes_on(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seeds of random worlds in which a peer that is no member keeps a tree."""
    monkeypatch.setattr(random_plan, "_room", lambda seed: ROOM_BYTES)
    result = run_random(msgspec.structs.replace(load("random"), seed=seed))
    assert result.findings == {}, result.details
    assert result.counts["keeper_without_room"]


@pytest.mark.parametrize("seed", [7, 23])
def test_versions_are_found_where_replicas_have_no_room(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever names a version has it, and gives it to those that did not hear of it."""
    monkeypatch.setattr(random_plan, "_room", lambda seed: ROOM_BYTES)
    result = run_random(msgspec.structs.replace(load("random"), seed=seed))
    assert result.findings == {}, result.details
