"""Nodes that cannot be dialled keep every promise (docs/spec/reach.md).

Small worlds with addresses; `simulate random-reach` draws large ones.
"""

import pytest

from pulsarcast.model.ids import Cid
from pulsarcast.model.reach import Reach
from pulsarcast.protocol.inputs import Publish, Subscribe
from pulsarcast.simulation.checkers.starvation import check_starved, reach_counts
from pulsarcast.simulation.findings import Findings
from pulsarcast.simulation.places import Place
from tests.support.lab import Lab

PUBLIC = [Place(f"7.0.{number}") for number in range(20)]


def home(number: int) -> Place:
    """A place behind a NAT of its own."""
    return Place(f"7.1.{number}", number, translated=True)


def deliver_all(lab: Lab, topic: Cid, publishers: list[int], members: list[int]) -> None:
    """Let every publisher publish, and see that every member gets everything."""
    events = [lab.publish(index, topic, b"event %d" % index) for index in publishers]
    lab.run(90.0)
    for index in members:
        missing = [event for event in events if event not in lab.delivered(index, topic)]
        assert not missing, f"node {index} lacks {len(missing)} of {len(events)}"


def starved(lab: Lab, topic: Cid) -> list[int]:
    """The nodes whose status says that they are starved."""
    up = [index for index in range(lab.world.size) if lab.world.is_up(index)]
    nodes = {index: lab.world.node(index) for index in up}
    findings = Findings()
    check_starved(nodes, [topic], findings)
    assert not findings.counts["starved_silently"]
    return [
        index
        for index, node in nodes.items()
        if topic in node.topics and node.is_starved(node.topics[topic])
    ]


def test_nodes_find_out_how_they_are_reached() -> None:
    firewall = Place("7.2.1", 99)
    lab = Lab(5, places=[PUBLIC[0], PUBLIC[1], home(1), firewall, home(1)], settle_s=60.0)
    reach = [lab.world.node(index).reach for index in range(5)]
    assert reach == [Reach.PUBLIC, Reach.PUBLIC, Reach.PRIVATE, Reach.PRIVATE, Reach.PRIVATE]


def test_private_nodes_with_a_relay_say_that_they_are_relayed() -> None:
    lab = Lab(3, places=[PUBLIC[0], PUBLIC[1], home(1)], relays=True, settle_s=60.0)
    assert lab.world.node(2).reach is Reach.RELAYED
    lab.world.kill(0)
    lab.world.kill(1)
    lab.run(60.0)
    assert lab.world.node(2).reach is Reach.PRIVATE


@pytest.mark.parametrize("seed", range(1, 13))
def test_a_private_author_and_a_private_subscriber_meet_at_a_public_member(seed: int) -> None:
    lab = Lab(3, seed=seed, places=[PUBLIC[0], home(1), home(2)], settle_s=30.0)
    topic = lab.create(1)
    lab.subscribe([0, 2], topic)
    deliver_all(lab, topic, [1, 0, 2, 1], [0, 2])
    assert lab.view(1, topic).parent == lab.peer(0)
    assert lab.view(0, topic).root
    assert starved(lab, topic) == []


@pytest.mark.parametrize("seed", range(1, 13))
@pytest.mark.parametrize("relays", [False, True])
def test_a_keeper_subscribes_without_a_pause_for_anybody(seed: int, relays: bool) -> None:
    lab = Lab(
        3, seed=seed, places=[PUBLIC[0], home(1), home(2)], relays=relays, settle_s=30.0 + seed % 7
    )
    topic = lab.create(1)
    lab.subscribe([1], topic)
    begun_s = lab.world.now
    subscribed = [lab.start(index, lambda call: Subscribe(call, topic)) for index in (0, 2)]
    assert lab.world.run_until(lambda: all(subscribed), begun_s + 1.5, check_every_s=0.01)
    event = lab.publish(1, topic, settle_s=0.5)
    for index in (0, 2):
        assert event in lab.delivered(index, topic)


@pytest.mark.parametrize("seed", range(1, 13))
def test_what_an_author_publishes_before_it_has_a_place_is_not_late(seed: int) -> None:
    """The keeper starts behind these events, and says so to those that wait for them."""
    places = [PUBLIC[0], home(1), home(2)]
    lab = Lab(3, seed=seed, places=places, relays=True, settle_s=30.0 + seed % 7)
    topic = lab.create(1)
    lab.start(2, lambda call: Subscribe(call, topic, from_start=True))
    published = [
        lab.start(1, lambda call: Publish(call, topic, b"event", replicated=True)) for _ in range(4)
    ]
    lab.run(4.0)
    events = [reply.cid for replies in published for reply in replies]
    assert lab.delivered(2, topic) == events
    assert len(events) == 4


@pytest.mark.parametrize("seed", range(1, 4))
@pytest.mark.parametrize("relays", [False, True])
def test_twelve_private_nodes_and_three_public_ones_get_everything(seed: int, relays: bool) -> None:
    places = [*PUBLIC[:3], *(home(number) for number in range(1, 13))]
    lab = Lab(15, seed=seed, places=places, relays=relays, settle_s=30.0)
    topic = lab.create(7)
    members = [index for index in range(15) if index != 7]
    lab.subscribe(members, topic)
    deliver_all(lab, topic, [7, 3, 0, 14, 7], members)
    assert starved(lab, topic) == []
    nodes = {index: lab.world.node(index) for index in range(15)}
    assert reach_counts(nodes, [topic]) == {"private_author": 1, "kept_for_private": 1}


def test_a_public_peer_that_is_no_member_keeps_the_tree_of_private_ones() -> None:
    lab = Lab(4, places=[PUBLIC[0], home(1), home(2), home(3)], settle_s=30.0)
    topic = lab.create(1)
    lab.subscribe([2, 3], topic)
    deliver_all(lab, topic, [1, 2], [2, 3])
    assert not lab.view(0, topic).subscribed


def test_an_author_that_becomes_public_is_the_root_and_one_that_hides_is_not() -> None:
    lab = Lab(4, places=[PUBLIC[0], PUBLIC[1], home(1), home(2)], settle_s=30.0)
    topic = lab.create(2)
    lab.subscribe([1, 3], topic)
    lab.world.move(2, PUBLIC[5])
    lab.run(240.0)
    assert lab.world.node(2).reach is Reach.PUBLIC
    assert lab.view(2, topic).root
    deliver_all(lab, topic, [2, 3], [1, 3])
    lab.world.move(2, home(5))
    lab.run(240.0)
    assert lab.world.node(2).reach is Reach.PRIVATE
    assert not lab.view(2, topic).root
    deliver_all(lab, topic, [2, 3], [1, 3])


def test_a_starved_node_says_so_and_recovers() -> None:
    lab = Lab(3, places=[PUBLIC[0], home(1), home(2)], settle_s=30.0)
    topic = lab.create(1)
    lab.subscribe([2], topic)
    assert starved(lab, topic) == []
    lab.world.kill(0)
    lab.run(120.0)
    assert starved(lab, topic) == [1, 2]
    lab.world.restart(0)
    lab.run(180.0)
    assert starved(lab, topic) == []
    deliver_all(lab, topic, [1], [2])
