"""The paper's model: delays and queues by hand, and its two simulations against each other."""

from __future__ import annotations

import random
from statistics import fmean

import pytest

from pulsarcast.simulation.vcube.broadcast import Publication, Tree, broadcast
from pulsarcast.simulation.vcube.delays import Delays, Transmitters
from pulsarcast.simulation.vcube.network import Network
from pulsarcast.simulation.vcube.node import Kind
from pulsarcast.simulation.vcube.partial_views import Knowledge, repair, spread
from pulsarcast.simulation.vcube.single_root import SingleRootNetwork
from pulsarcast.simulation.vcube.trees import broker_table, single_root_table, vcube_table
from pulsarcast.simulation.vcube.views import View

DELAYS = Delays()
TOPIC = 0


def test_a_copy_takes_a_hop_and_waits_for_those_before_it() -> None:
    queues = Transmitters(4, DELAYS)
    assert [queues.send(0, to, now=10) for to in (1, 2, 3)] == [112, 113, 114]
    assert queues.send(0, 1, now=50) == 152, "all have left by then"
    assert queues.queue_mean(0) == (1 + 2 + 3 + 1) / 4
    assert queues.longest[0] == 3


def test_a_queue_for_each_destination_lets_others_pass() -> None:
    queues = Transmitters(4, DELAYS, per_link=True)
    assert [queues.send(0, to, now=0) for to in (1, 2, 1)] == [102, 102, 103]


def test_messages_that_wait_for_one_destination_leave_as_one() -> None:
    queues = Transmitters(4, DELAYS, combine_max=2)
    assert [queues.send(0, to, now=0) for to in (1, 2, 2, 2)] == [102, 103, 103, 104]
    assert queues.copies[0] == 3
    # What is being transmitted already cannot take another one along.
    assert queues.send(0, 1, now=0) == 105


def test_both_simulations_come_to_the_same_where_nobody_comes_or_goes() -> None:
    rng = random.Random(3)
    nodes, members = 64, random.Random(4).sample(range(64), 40)
    plan = [(rng.randrange(200), publisher) for publisher in members]
    measured = broadcast(
        nodes,
        [Tree(vcube_table(nodes, View(nodes, members).entries))],
        [Publication(at, publisher) for at, publisher in plan],
        DELAYS,
    )
    network = Network(nodes, DELAYS)
    network.begin_with(TOPIC, members, shared=True)
    for at, publisher in plan:
        network.publish_at(at, publisher, TOPIC)
    tally = network.run()
    assert tally.receptions == sum(measured.received) == 40 * 39
    assert tally.latency == sum(measured.latency)
    assert network.queues.copies == measured.transmitters.copies
    assert network.queues.waited == measured.transmitters.waited
    assert tally.sent == {Kind.PUB: 40 * 39, Kind.ACK: 40 * 39}


def test_a_node_may_handle_one_message_after_another() -> None:
    """Two messages reach node 0 of a square at once; one waits for t_pc, and its child for it."""
    latency = {}
    for serial in (False, True):
        network = Network(4, DELAYS, serial=serial)
        network.begin_with(TOPIC, range(4), shared=True)
        network.publish_at(0, 1, TOPIC)
        network.publish_at(1, 2, TOPIC)
        latency[serial] = network.run().latency
    assert latency[True] == latency[False] + 2


def test_both_single_root_simulations_come_to_the_same_where_nobody_comes_or_goes() -> None:
    nodes, root = 64, 37
    members = random.Random(5).sample(range(nodes), 20)
    publishers = [*members[:5], root]
    measured = broadcast(
        nodes,
        [Tree(single_root_table(nodes, root, View(nodes, members).entries), root)],
        [Publication(each, each) for each in publishers],
        DELAYS,
    )
    network = SingleRootNetwork(nodes, DELAYS, root, members)
    for each in publishers:
        network.at(each, network.publish)  # its number is its time
    tally = network.run()
    received = sum(measured.received)
    assert tally.receptions + tally.false_positives == received
    assert tally.receptions == sum(measured.received[each] for each in members)
    assert tally.false_positives > 0, "no forwarders in this tree"
    assert network.queues.copies == measured.transmitters.copies


def test_a_single_root_tree_reaches_every_subscriber_once_whoever_its_root_is() -> None:
    nodes = 32
    members = random.Random(6).sample(range(nodes), 8)
    for root in range(nodes):
        table = single_root_table(nodes, root, View(nodes, members).entries)
        measured = broadcast(nodes, [Tree(table, root)], [Publication(0, members[0])], DELAYS)
        assert all(measured.received[each] == 1 for each in members[1:])
        assert max(measured.received) == 1


def test_a_single_root_tree_follows_members_that_come_and_go() -> None:
    nodes, root = 16, 5
    network = SingleRootNetwork(nodes, DELAYS, root, [0, 3])
    network.at(0, lambda _: network.subscribe(9))
    network.at(0, lambda _: network.unsubscribe(3))
    network.at(5000, lambda _: network.publish(0))
    tally = network.run()
    assert tally.receptions == 1, "9, and not 3; 0 published it"
    network.at(10_000, lambda _: network.publish(9))
    assert network.run().receptions == 2


def test_brokers_reach_everybody_once_through_the_root() -> None:
    nodes, brokers, root = 64, 8, 3
    ways_in = [node % brokers for node in range(nodes)]
    tree = Tree(broker_table(nodes, brokers), root, ways_in)
    measured = broadcast(nodes, [tree], [Publication(0, 60), Publication(9000, 2)], DELAYS)
    assert [measured.received[node] for node in (60, 2)] == [1, 1]
    assert all(measured.received[node] == 2 for node in range(nodes) if node not in {60, 2})
    assert measured.entered == 3, "60 by broker 4 to the root, and broker 2 to the root"


def test_publishing_takes_the_same_way_and_time_in_every_process() -> None:
    """Whole numbers, drawn from the seed alone: this run is known by heart."""
    rng = random.Random(1)
    plan = [Publication(rng.randint(0, 1000), each) for each in rng.sample(range(256), 256)]
    measured = broadcast(256, [Tree(vcube_table(256, None))], plan, DELAYS)
    assert (sum(measured.received), sum(measured.latency)) == (65280, 27_017_564)


@pytest.mark.parametrize("bucket", [None, 3])
def test_all_are_reached_over_whatever_is_known_while_nothing_is_missing(
    bucket: int | None,
) -> None:
    rng = random.Random(7)
    members = rng.sample(range(256), 100)
    knowledge = Knowledge(256, members, rng, bucket=bucket, missing=0.0)
    outcome = spread(knowledge, [(0, members[0])], frozenset(), DELAYS, timeout=300)
    assert outcome.reached == [set(members)]
    assert outcome.sent == 99
    if bucket is None:
        tree = Tree(vcube_table(256, View(256, members).entries))
        measured = broadcast(256, [tree], [Publication(0, members[0])], DELAYS)
        assert outcome.latency == sum(measured.latency)


def test_a_child_that_does_not_answer_is_skipped_for_the_next_and_remembered() -> None:
    rng = random.Random(8)
    knowledge = Knowledge(64, range(64), rng, bucket=None, missing=0.0)
    dead = frozenset(rng.sample(range(1, 64), 20))
    outcome = spread(knowledge, [(0, 0), (9000, 0)], dead, DELAYS, timeout=300)
    assert outcome.reached == [set(range(64)) - dead] * 2
    # By then everybody knows who is dead: the second message costs no more than its receptions.
    assert outcome.sent == 2 * 43 + outcome.given_up


def test_what_slips_through_is_closed_by_comparing_but_not_with_the_nearest_alone() -> None:
    """A whole subcube that nobody outside forwards into cannot hear of it from within."""
    rng = random.Random(9)
    knowledge = Knowledge(256, range(256), rng, bucket=2, missing=0.2)
    outcome = spread(knowledge, [(0, 0)], frozenset(), DELAYS, timeout=300)
    assert len(outcome.reached[0]) < 220, "too little slipped through"
    repair(knowledge, outcome, frozenset(), neighbours=4)
    assert set(range(256)) - outcome.reached[0] >= set(range(72, 80))
    rounds, messages = repair(knowledge, outcome, frozenset(), neighbours=4, far=rng)
    assert outcome.reached == [set(range(256))]
    assert rounds > 1
    assert messages > 0


def test_as_many_entries_are_missing_as_were_asked_for() -> None:
    full = Knowledge(256, range(256), random.Random(10), bucket=None, missing=0.1)
    known = fmean(full.entries(node) for node in range(256)) / 255
    assert 0.89 < known < 0.91
    assert [full.entries(9), list(full.of(9, 8))] == [full.entries(9), list(full.of(9, 8))]
