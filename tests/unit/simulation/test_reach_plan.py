"""What a seed makes of a world with addresses, before anything runs."""

import pytest

from pulsarcast.simulation.random_plan import RandomPlan, make_plan
from pulsarcast.simulation.reach_plan import ANCHOR, make_reach_plan

SEEDS = range(1, 101)


@pytest.fixture(scope="module")
def plans() -> list[RandomPlan]:
    return [make_reach_plan(seed) for seed in SEEDS]


def private_share(plan: RandomPlan) -> float:
    return sum(not place.is_public for place in plan.places) / plan.nodes


def hidden(plan: RandomPlan) -> set[int]:
    moved = {step.a for step in plan.steps if step.place and not step.place.is_public}
    return moved | {node for node, place in enumerate(plan.places) if not place.is_public}


def test_a_seed_has_one_plan() -> None:
    assert make_reach_plan(7) == make_reach_plan(7)
    assert make_reach_plan(7) != make_reach_plan(8)


def test_shares_of_private_nodes_go_from_none_to_nine_in_ten(plans: list[RandomPlan]) -> None:
    shares = [private_share(plan) for plan in plans]
    assert min(shares) == 0.0
    assert max(shares) > 0.8
    assert all(share < 1.0 for share in shares)


def test_every_kind_of_place_and_both_kinds_of_worlds_are_drawn(plans: list[RandomPlan]) -> None:
    places = [place for plan in plans for place in plan.places]
    assert any(place.translated for place in places)
    assert any(not place.is_public and not place.translated for place in places)
    assert any(
        plan.places.count(place) > 1
        for plan in plans
        for place in plan.places
        if place.behind is not None
    )
    assert {plan.relays for plan in plans} == {True, False}
    assert any(topic.creator in hidden(plan) for plan in plans for topic in plan.topics)


def test_nodes_become_private_and_public_and_get_other_addresses(plans: list[RandomPlan]) -> None:
    moves = [(plan, step.a, step.place) for plan in plans for step in plan.steps if step.place]
    assert any(place.is_public and not plan.places[node].is_public for plan, node, place in moves)
    assert any(not place.is_public and plan.places[node].is_public for plan, node, place in moves)
    assert any(place.has_moved(plan.places[node]) for plan, node, place in moves)
    assert any(not place.has_moved(plan.places[node]) for plan, node, place in moves)


def test_one_node_stays_public_and_keeps_its_disk(plans: list[RandomPlan]) -> None:
    for plan in plans:
        assert plan.places[ANCHOR].is_public
        for step in plan.steps:
            if step.action in ("move", "lose", "wipe"):
                assert step.a != ANCHOR


def test_without_relays_every_request_has_a_publisher_that_stays_public(
    plans: list[RandomPlan],
) -> None:
    for plan in plans:
        for step in plan.steps:
            if step.action == "publish":
                topic = plan.topics[step.a]
                assert step.b in topic.authors
                allowed = topic.allowed
                if not plan.relays and allowed is not None and step.b not in allowed:
                    assert set(allowed) - hidden(plan)


def test_all_other_faults_are_those_of_the_seed(plans: list[RandomPlan]) -> None:
    for seed, plan in zip(SEEDS, plans, strict=True):
        usual = [step for step in make_plan(seed).steps if step.action in ("kill", "cut", "pause")]
        assert [step for step in plan.steps if step.action in ("kill", "cut", "pause")] == usual
