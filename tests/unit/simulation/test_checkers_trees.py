"""Trees and memory: each way to be wrong, planted and found."""

from typing import NamedTuple

from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.simulation.checkers.memory import bounds, check_memory
from pulsarcast.simulation.checkers.trees import check_trees
from pulsarcast.simulation.findings import DETAILS_MAX, Findings
from tests.unit.simulation.planted import TOPIC, peer


class View(NamedTuple):
    parent: PeerId | None = None
    children: tuple[PeerId, ...] = ()
    root: bool = False
    subscribed: bool = True


def found(*views: View, fanout_max: int = 8) -> dict[str, int]:
    findings = Findings()
    trees: dict[PeerId, dict[Cid, View]] = {
        peer(index): {TOPIC: view} for index, view in enumerate(views)
    }
    check_trees(trees, findings, fanout_max=fanout_max)
    return findings.by_kind()


def test_one_tree_passes() -> None:
    assert (
        found(
            View(children=(peer(1), peer(2)), root=True),
            View(parent=peer(0), children=(peer(3),)),
            View(parent=peer(0)),
            View(parent=peer(1)),
        )
        == {}
    )


def test_a_member_that_left_is_no_business_of_the_tree() -> None:
    assert found(View(root=True), View(subscribed=False)) == {}


def test_a_cycle_is_found() -> None:
    kinds = found(
        View(root=True),
        View(parent=peer(2), children=(peer(2),)),
        View(parent=peer(1), children=(peer(1),)),
    )
    assert kinds == {"tree_cycle": 2}


def test_two_roots_are_found() -> None:
    assert found(View(root=True), View(root=True)) == {"tree_split": 1}


def test_a_node_with_neither_parent_nor_office_is_found() -> None:
    assert found(View(root=True), View()) == {"tree_orphan": 1}


def test_a_dead_parent_is_found() -> None:
    assert found(View(root=True), View(parent=peer(9))) == {"tree_link": 1, "tree_orphan": 1}


def test_a_parent_that_does_not_know_its_child_is_found() -> None:
    assert found(View(root=True), View(parent=peer(0))) == {"tree_link": 1}


def test_a_child_that_has_gone_elsewhere_is_found() -> None:
    kinds = found(View(children=(peer(1),), root=True), View(root=True))
    assert kinds == {"tree_link": 1, "tree_split": 1}


def test_too_many_children_are_found() -> None:
    root = View(children=(peer(1), peer(2)), root=True)
    leaf = View(parent=peer(0))
    assert found(root, leaf, leaf, fanout_max=2) == {}
    assert found(root, leaf, leaf, fanout_max=1) == {"tree_fanout": 1}


def test_a_count_above_its_bound_is_found() -> None:
    limits = bounds(Parameters(held_back_max=10), topics=2)
    findings = Findings()
    highest = check_memory({0: {"held_back": 20}, 1: {"held_back": 7}}, findings, limits)
    assert highest == {"held_back": 20}
    assert findings.by_kind() == {}
    check_memory({0: {"held_back": 21}, 1: {"surprise": 30_000}}, findings, limits)
    assert findings.by_kind() == {"memory": 2}


def test_counts_are_exact_where_details_are_cut_short() -> None:
    findings = Findings()
    for number in range(100):
        findings.add("lost", f"number {number}", count=2)
    assert findings.counts["lost"] == 200
    assert len(findings.details) <= DETAILS_MAX
