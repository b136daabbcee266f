"""Cubes: each way to be wrong, planted and found."""

from typing import NamedTuple

from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.simulation.checkers.cubes import Shape, check_cubes
from pulsarcast.simulation.findings import Findings
from tests.unit.simulation.planted import TOPIC, peer


class View(NamedTuple):
    members: tuple[PeerId, ...] = ()


def found(knowledge: dict[int, set[int]]) -> tuple[dict[str, int], list[Shape]]:
    findings = Findings()
    cubes: dict[PeerId, dict[Cid, View]] = {
        peer(index): {TOPIC: View(tuple(map(peer, sorted(known))))}
        for index, known in knowledge.items()
    }
    shapes = check_cubes(cubes, findings)
    return findings.by_kind(), shapes


def everyone(count: int) -> dict[int, set[int]]:
    return {index: set(range(count)) - {index} for index in range(count)}


def test_a_cube_in_which_everyone_knows_everyone_passes() -> None:
    kinds, (shape,) = found(everyone(20))
    assert kinds == {}
    assert shape.members == 20
    assert 1 < shape.depth_mean < shape.depth_max <= 6
    assert 3 <= shape.fanout_max <= 8


def test_a_member_alone_passes() -> None:
    assert found({0: set()}) == ({}, [Shape(1)])


def test_two_parts_that_do_not_know_each_other_are_found() -> None:
    knowledge = {0: {1}, 1: {0}, 2: {3}, 3: {2}}
    assert found(knowledge)[0] == {"cube_unreached": 4}


def test_a_member_that_nobody_knows_is_found() -> None:
    knowledge = everyone(6)
    for known in knowledge.values():
        known.discard(5)
    assert found(knowledge)[0] == {"cube_unreached": 5}, "all but itself miss it"


def test_a_dead_child_is_found() -> None:
    knowledge = everyone(6)
    del knowledge[5]
    assert found(knowledge)[0].keys() >= {"cube_dead_child"}
