"""Worlds that begin settled, beside worlds of the same seed in which every node joined."""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from random import Random
from typing import NamedTuple

import msgspec
import pytest

from pulsarcast.model.ids import Cid, cid_key, cid_of, peer_key
from pulsarcast.model.keys import KEY_BITS, Key, bucket_of
from pulsarcast.protocol.dht.lookup import Lookup
from pulsarcast.protocol.inputs import FetchBlock
from pulsarcast.protocol.messages import FindPeers
from pulsarcast.protocol.store import LoadKeys
from pulsarcast.simulation import world as world_module
from pulsarcast.simulation.applications import settings_for
from pulsarcast.simulation.links import Constant
from pulsarcast.simulation.options import Options, load
from pulsarcast.simulation.results import Result
from pulsarcast.simulation.run import Run
from pulsarcast.simulation.scenario import run_scenario
from pulsarcast.simulation.scenario_tree import begin_settled
from pulsarcast.simulation.settled import tables
from pulsarcast.simulation.world import World

NODES = 200
SUBSCRIBERS = 80
REPLICAS = 3
FEW, HALF = 100, 50
IDLE_S = 120.0

Tables = Callable[[Sequence[Key], int, Random], list[list[int]]]


def settled_world() -> World:
    world = World(1, links=Constant(0.05))
    world.add_settled(NODES)
    return world


@lru_cache
def joined_world() -> World:
    """The same nodes, which joined one after the other."""
    world = World(1, links=Constant(0.05))
    rng = world.stream("joining")
    for index in range(NODES):
        world.add_node(contacts=rng.sample(range(index), min(3, index)))
        world.run(world.now + 0.02)
    world.run(world.now + 30.0)
    return world


# Routing tables.


class Known(NamedTuple):
    """What the tables of a world are good for."""

    buckets: list[float]
    """The mean number of contacts in the buckets of each distance, the farthest first."""
    missed: int
    """Lookups that did not find the r peers closest to a key."""
    asked: float
    """The mean number of peers that a lookup asks."""


def what_is_known(world: World) -> Known:
    keys = [peer_key(world.peer(index)) for index in range(NODES)]
    known = [
        [other for other in range(NODES) if world.node(index).dht.knows(world.peer(other))]
        for index in range(NODES)
    ]
    sizes = Counter(bucket_of(keys[a], keys[b]) for a in range(NODES) for b in known[a])
    buckets = [sizes[KEY_BITS - 1 - depth] / NODES for depth in range(6)]
    rng, missed, asked = Random(7), 0, 0
    for index in range(NODES):
        key = rng.getrandbits(KEY_BITS)
        found, count = look_up(world, index, key)
        others = [other for other in range(NODES) if other != index]
        closest = sorted(others, key=lambda other: keys[other] ^ key)[:REPLICAS]
        missed += [world.peer(other) for other in closest] != found
        asked += count
    return Known(buckets, missed, asked / NODES)


def look_up(world: World, index: int, key: Key) -> tuple[list[bytes], int]:
    """Look a key up in the tables alone: every peer answers at once."""
    lookup = Lookup(
        world.peer(index), key, FindPeers(0, key), lambda _: None, count=REPLICAS, thorough=True
    )
    lookup.heard_of(world.node(index).dht.closest_known(key, 20))
    asked = 0
    while not lookup.is_done():
        for contact in lookup.to_ask(3):
            asked += 1
            there = world.node(world.index_of(contact.peer)).dht
            lookup.answered(contact.peer)
            lookup.heard_of(there.closest_known(key, 2 * REPLICAS, (world.peer(index),)))
    return [contact.peer for contact in lookup.closest(REPLICAS)], asked


def differences(ours: Known, theirs: Known) -> list[str]:
    """Where the tables of a settled world are not what joining leaves."""
    found = [
        f"bucket {depth}: {here:.2f}, joined {there:.2f}"
        for depth, (here, there) in enumerate(zip(ours.buckets, theirs.buckets, strict=True))
        if not 0.7 <= here / there <= 1.3
    ]
    if ours.missed:
        found.append(f"{ours.missed} lookups missed the closest")
    if not 0.8 <= ours.asked / theirs.asked <= 1.25:
        found.append(f"{ours.asked:.2f} asked a lookup, joined {theirs.asked:.2f}")
    return found


def test_tables_are_as_joining_leaves_them() -> None:
    joined = what_is_known(joined_world())
    assert joined.missed == 0
    assert differences(what_is_known(settled_world()), joined) == []


def without_the_nearest(keys: Sequence[Key], size: int, rng: Random) -> list[list[int]]:
    return [others[:-6] for others in tables(keys, size, rng)]


def without_the_farthest(keys: Sequence[Key], size: int, rng: Random) -> list[list[int]]:
    return [others[5:] for others in tables(keys, size, rng)]


def with_full_buckets(keys: Sequence[Key], size: int, rng: Random) -> list[list[int]]:
    return [list(range(index)) + list(range(index + 1, len(keys))) for index in range(len(keys))]


@pytest.mark.parametrize("spoilt", [without_the_nearest, without_the_farthest, with_full_buckets])
def test_tables_that_joining_would_not_leave_are_noticed(
    spoilt: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world_module, "tables", spoilt)
    assert differences(what_is_known(settled_world()), what_is_known(joined_world()))


# A topic's tree, and what it carries.


def play(*, settled: bool) -> Result:
    changes = {"nodes": NODES, "subscribers": SUBSCRIBERS, "settled": settled}
    options: Options = msgspec.structs.replace(load("tree"), **changes)
    result = run_scenario(options)
    assert result.ok, result.to_text()
    assert result.settled
    return result


def test_a_tree_carries_events_as_one_that_was_joined_does() -> None:
    ours, theirs = play(settled=True), play(settled=False)
    assert ours.due == ours.delivered == theirs.delivered == 20 * SUBSCRIBERS
    assert ours.messages_per_delivery < 1.1
    assert 0.75 < ours.hops_mean / theirs.hops_mean < 1.33
    assert abs(ours.hops_max - theirs.hops_max) <= 4
    assert ours.fanout_max == theirs.fanout_max
    assert 0.7 < ours.latency_p99_s / theirs.latency_p99_s < 1.4
    assert ours.all_messages < theirs.all_messages / 2


@pytest.mark.parametrize("scenario", ["tree", "cube"])
@pytest.mark.parametrize("order", ["causal", "total"])
def test_topics_of_every_kind_can_be_older_than_the_world(scenario: str, order: str) -> None:
    changes = {"nodes": 30, "subscribers": 20, "events": 5, "order": order, "settled": True}
    options: Options = msgspec.structs.replace(load(scenario), through_wire=True, **changes)
    result = run_scenario(options)
    assert result.ok, result.to_text()
    assert result.delivered == result.due == 5 * 20


def play_idle(*, settled: bool) -> dict[str, float]:
    """What a node sends in a second, by kind, once heartbeats have become rare."""
    options: Options = msgspec.structs.replace(load("tree"), nodes=FEW)
    run, joined = Run(options), list[bool]()
    if settled:
        run.join_settled(FEW)
    else:
        run.join(FEW)
    members = run.world.stream("workload").sample(range(FEW), HALF)
    topic = create(run, members[0])
    for index in members:
        run.applications.subscribe(index, topic, joined.append)
        run.world.run(run.world.now + 0.02)
    assert run.world.run_until(lambda: len(joined) == HALF, run.world.now + 60)
    run.world.run(run.world.now + 180.0)
    before = dict(run.world.messages)
    run.world.run(run.world.now + IDLE_S)
    sent = {kind: count - before.get(kind, 0) for kind, count in run.world.messages.items()}
    return {kind: count / IDLE_S / FEW for kind, count in sent.items() if count}


def create(run: Run, author: int) -> Cid:
    made: list[Cid] = []
    settings = settings_for("none", run.world.peer(author))
    run.applications.create(author, "news", settings, lambda cid: made.extend([cid] if cid else []))
    assert run.world.run_until(lambda: bool(made), run.world.now + 60)
    return made[0]


def test_an_idle_node_sends_what_it_sends_where_all_have_joined() -> None:
    ours, theirs = play_idle(settled=True), play_idle(settled=False)
    for kind in ("Alive", "Status", "CompareTopics"):
        assert 0.7 < ours[kind] / theirs[kind] < 1.4, (kind, ours[kind], theirs[kind])
    assert 0.8 < sum(ours.values()) / sum(theirs.values()) < 1.25
    # Nodes that joined together renew their places together, ten minutes later: not in this time.
    assert 0.005 < ours.pop("FindPeers") < 0.05
    assert set(ours) - set(theirs) <= {"Peers"}


def test_no_peer_is_asked_for_a_topic_that_is_older_than_the_world() -> None:
    options: Options = msgspec.structs.replace(load("tree"), nodes=NODES)
    run = Run(options)
    run.fleet.add_down(NODES)
    topic = begin_settled(run, 7, list(range(SUBSCRIBERS)))
    assert topic is not None
    assert run.world.messages.get("FindBlock", 0) == 0
    assert run.world.messages["Join"] < 10 * SUBSCRIBERS
    key = cid_key(topic)
    closest = sorted(range(NODES), key=lambda index: peer_key(run.world.peer(index)) ^ key)
    assert all(run.world.store(index).answer(LoadKeys(key, key, 1)).cids for index in closest[:3])  # type: ignore[union-attr]


def test_messages_take_time_again_after_an_instant() -> None:
    world = settled_world()
    with world.instantly():
        world.command(0, lambda call: FetchBlock(call, cid_of(b"")), None)
        world.run(0.001)
    said = world.messages["FindBlock"]
    assert said == world.messages["BlockFound"] > 0, "questions and answers, in no time"
    world.command(0, lambda call: FetchBlock(call, cid_of(b"")), None)
    world.run(0.04)
    assert world.messages["FindBlock"] > said
    assert world.messages["BlockFound"] == said, "the questions are on their way"
    world.run(5.0)
    assert world.messages["BlockFound"] == world.messages["FindBlock"]


def test_a_settled_world_lives_on() -> None:
    options: Options = msgspec.structs.replace(load("tree"), nodes=NODES)
    run, rng = Run(options), Random(1)
    answered: list[object] = []
    run.fleet.add_down(NODES)
    topic = begin_settled(run, 0, list(range(0, NODES, 3)))
    assert topic is not None
    run.world.run(run.world.now + 10.0)
    for index in rng.sample(range(1, NODES), NODES // 10):
        run.fleet.kill(index, down_s=rng.uniform(5.0, 40.0))
    for _ in range(20):
        contacts = rng.sample(run.fleet.living(), 3)
        newcomer = run.fleet.add(contacts=contacts)
        run.applications.subscribe(newcomer, topic)
        run.world.run(run.world.now + 1.0)
        run.applications.publish(0, topic, b"{}", injection=str(newcomer), then=answered.append)
    assert run.world.run_until(lambda: len(answered) == 20, run.world.now + 300)
    run.settle()
    result = run.result()
    assert result.ok, result.to_text()
    assert result.delivered == result.due > 20 * 60
    assert result.subscriptions == 67 + 20
