"""Random plans: the same seed, the same plan; and never more broken than the protocol promises."""

from itertools import pairwise

import msgspec

from pulsarcast.simulation.random_plan import ROOMS_BYTES, make_plan
from pulsarcast.storage.quota import BYTES_MAX

PLANS = [make_plan(seed) for seed in range(1, 201)]


def test_a_seed_has_one_plan() -> None:
    assert make_plan(7) == make_plan(7)
    assert make_plan(7) != make_plan(8)
    # The same in every process, whatever its hash seed.
    assert msgspec.json.encode(make_plan(7)) == msgspec.json.encode(PLANS[6])


def test_worlds_are_small_and_differ() -> None:
    assert {plan.nodes for plan in PLANS} >= {5, 40}
    assert all(5 <= plan.nodes <= 40 for plan in PLANS)
    assert all(0.001 <= plan.latency_s <= 0.8 for plan in PLANS)
    assert {topic.order for plan in PLANS for topic in plan.topics} == {
        "none",
        "per-publisher",
        "causal",
        "total",
    }
    assert any(plan.parameters.barrier_max < 4 for plan in PLANS)
    assert {topic.order for topic in make_plan(5, all_causal=True).topics} == {"causal"}


def test_every_kind_of_step_is_met_and_some_plans_leave_each_out() -> None:
    kinds = ("publish", "subscribe", "unsubscribe", "kill", "wipe", "lose", "pause", "cut", "reset")
    for kind in kinds:
        having = sum(any(step.action == kind for step in plan.steps) for plan in PLANS)
        assert 10 < having <= len(PLANS), kind
        if kind != "publish":
            assert having < len(PLANS), kind


def test_fewer_disks_are_lost_than_there_are_replicas() -> None:
    for plan in PLANS:
        lost = [step.a for step in plan.steps if step.action in ("wipe", "lose")]
        assert len(lost) < plan.parameters.replicas
        assert plan.nodes - len(lost) > plan.parameters.replicas


def test_whoever_alone_may_publish_keeps_its_disk() -> None:
    for plan in PLANS:
        lost = {step.a for step in plan.steps if step.action in ("wipe", "lose")}
        for topic in plan.topics:
            if topic.allowed is not None:
                assert not lost & set(topic.allowed)
            if topic.order == "total":
                assert topic.allowed == (topic.creator,)


def test_only_those_publish_who_may_or_may_ask() -> None:
    for plan in PLANS:
        for topic in plan.topics:
            if topic.allowed is not None and not topic.requests:
                assert set(topic.authors) <= set(topic.allowed)


def test_partitions_do_not_overlap() -> None:
    for plan in PLANS:
        cuts = [step for step in plan.steps if step.action == "cut"]
        for first, second in pairwise(cuts):
            assert first.at_s + first.lasts_s < second.at_s


def test_steps_come_in_the_order_of_time() -> None:
    for plan in PLANS:
        times = [step.at_s for step in plan.steps]
        assert times == sorted(times)


def test_with_cubes_a_seed_says_the_same_but_for_how_events_travel() -> None:
    """Seeds of runs with trees alone stay what they were, and each can be played with cubes."""
    cubes = trees = small = 0
    for plan in PLANS[:60]:
        other = make_plan(plan.seed, dissemination="cube")
        assert other.steps == plan.steps
        for mine, theirs in zip(plan.topics, other.topics, strict=True):
            assert mine.dissemination == "tree"
            assert msgspec.structs.replace(theirs, dissemination="tree") == mine
            cubes += theirs.dissemination == "cube"
            trees += theirs.dissemination == "tree"
        small += other.parameters.cube_view < 20
    assert cubes > trees > 0, "both in one world, too"
    assert 20 < small < 60, "views that a small world fills, and views that it does not"


def test_some_disks_have_little_room_for_the_blocks_of_others() -> None:
    rooms = {plan.strangers_bytes_max for plan in PLANS}
    assert rooms == {*ROOMS_BYTES, BYTES_MAX}
    crowded = sum(plan.strangers_bytes_max < BYTES_MAX for plan in PLANS)
    assert 0.02 < crowded / len(PLANS) < 0.12


def test_some_follow_the_versions_of_a_topic_alone_and_its_author_makes_some() -> None:
    followed = made = late = gone = 0
    for plan in PLANS:
        metas = range(len(plan.topics), 2 * len(plan.topics))
        lost = {step.a for step in plan.steps if step.action in ("wipe", "lose")}
        followed += any(topic.versions_to for topic in plan.topics)
        late += any(step.action == "subscribe" and step.a in metas for step in plan.steps)
        gone += any(step.action == "unsubscribe" and step.a in metas for step in plan.steps)
        for step in plan.steps:
            if step.action == "renew":
                made += 1
                assert plan.topics[step.a].creator == step.b
                assert step.b not in lost, "only the author knows its versions"
    assert min(followed, late, gone) > len(PLANS) / 3
    assert made > len(PLANS)
