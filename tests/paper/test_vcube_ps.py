"""VCube-PS (2018), sections 2 to 3: its tables, examples and claims, on the paper's own model.

Where the paper parts from itself, the docstring says so, with the word *finding*.
"""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsarcast.simulation.vcube.delays import Delays
from pulsarcast.simulation.vcube.network import Network
from pulsarcast.simulation.vcube.node import Kind, Message, Sends, VCubeNode
from pulsarcast.simulation.vcube.topology import children, cluster_of, first_in_cluster
from pulsarcast.simulation.vcube.views import View

TOPIC = 0

# 2. VCube.

FIGURE_1 = {
    1: [[1], [0], [3], [2], [5], [4], [7], [6]],
    2: [[2, 3], [3, 2], [0, 1], [1, 0], [6, 7], [7, 6], [4, 5], [5, 4]],
    3: [
        [4, 5, 6, 7], [5, 4, 7, 6], [6, 7, 4, 5], [7, 6, 5, 4],
        [0, 1, 2, 3], [1, 0, 3, 2], [2, 3, 0, 1], [3, 2, 1, 0],
    ],
}  # fmt: skip


def members_of_cluster(node: int, cluster: int) -> list[int]:
    """c(i, s) in its order: whoever is first leaves, until nobody is left."""
    view = [1] * (1 << max(cluster, node.bit_length()))
    found = []
    while (first := first_in_cluster(node, cluster, view)) is not None:
        found.append(first)
        view[first] = 0
    return found


@pytest.mark.parametrize("cluster", sorted(FIGURE_1))
def test_the_clusters_are_those_of_figure_1(cluster: int) -> None:
    """Figure 1: the c(i, s) table for 8 nodes."""
    assert [members_of_cluster(node, cluster) for node in range(8)] == FIGURE_1[cluster]


@given(st.integers(1, 7), st.data())
def test_the_closed_form_is_the_recursive_definition(cluster: int, data: st.DataObject) -> None:
    """2: c(i, s) = i xor 2^(s-1), then c(i xor 2^(s-1), k) for k = 1 to s-1."""

    def defined(node: int, s: int) -> list[int]:
        first = node ^ (1 << (s - 1))
        return [first, *(each for k in range(1, s) for each in defined(first, k))]

    node = data.draw(st.integers(0, 127))
    assert members_of_cluster(node, cluster) == defined(node, cluster)


def test_cluster_and_children_are_as_in_the_examples_of_the_text() -> None:
    """3.3: the values that the text gives for its two auxiliary functions."""
    assert [cluster_of(0, each) for each in range(1, 8)] == [1, 2, 2, 3, 3, 3, 3]
    assert sorted(children(0, None, 3)) == [1, 2, 4]
    assert sorted(children(0, None, 2)) == [1, 2]
    assert sorted(children(4, None, 2)) == [5, 6]
    t1 = View(8, [0, 3, 4]).entries
    assert sorted(children(0, t1, 3)) == [3, 4]
    assert children(4, t1, 2) == []


# 3.3. Propagation.


def edges(publisher: int, members: list[int]) -> list[tuple[int, int]]:
    """All PUB messages of one broadcast, by sender and receiver."""
    found: list[tuple[int, int]] = []
    cube = Cube(8, members)
    cube.say(publisher, lambda sender, to, message: found.append((sender, to)))
    return sorted(found)


def test_the_left_tree_of_figure_3() -> None:
    """Figure 3: all nodes subscribe, p0 publishes."""
    tree = [(0, 1), (0, 2), (0, 4), (2, 3), (4, 5), (4, 6), (6, 7)]
    assert edges(0, list(range(8))) == tree


def test_the_right_tree_of_figure_3() -> None:
    """Figure 3: p0, p2, p3, p5 and p7 subscribe, p2 publishes; nobody else has anything to do."""
    assert edges(2, [0, 2, 3, 5, 7]) == [(2, 0), (2, 3), (2, 7), (7, 5)]


@given(st.integers(1, 7), st.data())
def test_every_tree_reaches_each_subscriber_exactly_once_and_nobody_else(
    dimension: int, data: st.DataObject
) -> None:
    """3.3: a spanning tree of the subscribers, whoever publishes."""
    nodes = 1 << dimension
    members = data.draw(st.lists(st.integers(0, nodes - 1), min_size=1, unique=True))
    publisher = data.draw(st.sampled_from(members))
    got: Counter[int] = Counter()
    Cube(nodes, members).say(publisher, lambda sender, to, message: got.update([to]))
    assert got == dict.fromkeys(set(members) - {publisher}, 1)


@given(st.integers(1, 5), st.data())
def test_views_that_differ_reach_nobody_twice(dimension: int, data: st.DataObject) -> None:
    """While members come and go views differ, and still nobody gets a message twice."""
    nodes = 1 << dimension
    sets = st.sets(st.integers(0, nodes - 1))
    cube = Cube(nodes, [])
    for node in cube.nodes:
        node.begin_with(TOPIC, View(nodes, data.draw(sets) | {node.node}))
    publisher = data.draw(st.integers(0, nodes - 1))
    got: Counter[int] = Counter()
    cube.say(publisher, lambda sender, to, message: got.update([to]))
    assert all(count == 1 for count in got.values())
    assert publisher not in got


class Cube:
    """Nodes whose messages the test carries, in the order that it likes."""

    def __init__(self, nodes: int, members: list[int]) -> None:
        dimension = nodes.bit_length() - 1
        self.delivered: dict[int, list[tuple[int, int]]] = {node: [] for node in range(nodes)}
        self.nodes = [VCubeNode(node, dimension, self._deliver) for node in range(nodes)]
        for member in members:
            self.nodes[member].begin_with(TOPIC, View(nodes, members))
        self.under_way: list[tuple[int, int, Message]] = []

    def _deliver(self, node: int, message: Message) -> None:
        self.delivered[node].append((message.source, message.counter))

    def send(self, sender: int, sends: Sends | None) -> None:
        assert sends is not None, "the paper's NOK"
        self.under_way += [(sender, to, message) for to, message in sends]

    def carry(self, sender: int, to: int, message: Message) -> None:
        """Let one message arrive."""
        self.under_way.remove((sender, to, message))
        self.send(to, self.nodes[to].receive(message, sender))

    def settle(self, hold=lambda sender, to, message: False, seen=None) -> None:  # type: ignore[no-untyped-def]
        """Let all arrive that are not held back."""
        while True:
            free = [each for each in self.under_way if not hold(*each)]
            if not free:
                return
            if seen is not None and free[0][2].kind is Kind.PUB:
                seen(*free[0])
            self.carry(*free[0])

    def say(self, publisher: int, seen) -> None:  # type: ignore[no-untyped-def]
        """Publish one message, and let it reach everybody."""
        self.send(publisher, self.nodes[publisher].publish(TOPIC))
        self.settle(seen=seen)


# 3.2.1. Causal order.


def figure_2(*, late: bool = False) -> tuple[Cube, dict[str, Message]]:
    """Figure 2: m(0,1), then m(1,1) by whom has it, m(2,1) beside, then m(1,2) after both.

    With the late joiner, p3 subscribes once m(2,1) has been published, and gets m(0,1) and m(1,1).
    """
    cube = Cube(4, [0, 1, 2] if not late else [0, 1, 2, 3])
    named: dict[str, Message] = {}

    def publish(name: str, publisher: int) -> None:
        cube.send(publisher, cube.nodes[publisher].publish(TOPIC))
        named[name] = next(m for s, _, m in cube.under_way if s == publisher and m.source == s)

    if late:
        # Nobody knows of p3 when p2 publishes, everybody does afterwards.
        for node in cube.nodes[:3]:
            node.topics[TOPIC].view.discard(3)
    publish("m21", 2)
    cube.settle(hold=lambda s, to, m: m is named["m21"])  # under way, for now
    if late:
        for node in cube.nodes[:3]:
            node.topics[TOPIC].view.update(3, subscribed=True, counter=0)
    publish("m01", 0)
    cube.settle(hold=lambda s, to, m: m is named["m21"] or (to == 2 and m is named["m01"]))
    publish("m11", 1)
    cube.settle(hold=lambda s, to, m: m is not named["m11"] and m.kind is Kind.PUB)
    return cube, named


def test_a_message_waits_for_what_its_publisher_had_delivered() -> None:
    """Figure 2: cb(m11) = {m01}, so p2, which got m11 first, delivers m01 first."""
    cube, named = figure_2()
    assert named["m11"].barrier == {(0, 1)}
    assert cube.delivered[2] == [(2, 1)]
    cube.settle(hold=lambda s, to, m: m is named["m21"])
    assert cube.delivered[2] == [(2, 1), (0, 1), (1, 1)]


def test_a_barrier_names_direct_dependencies_only() -> None:
    """Figure 2: cb(m12) = {m21, m11}; m01 is before m11 and is left out."""
    cube, _ = figure_2()
    cube.settle()
    cube.send(1, cube.nodes[1].publish(TOPIC))
    message = next(m for s, _, m in cube.under_way if s == 1 and m.kind is Kind.PUB)
    assert message.barrier == {(2, 1), (1, 1)}


def test_a_late_joiner_delivers_what_depends_on_a_message_from_before_its_time() -> None:
    """3.2.1: p3 never gets m21, and may deliver m12 once m11 is delivered.

    Finding: by lines 92-93 it may once it has received a later message of p2. Until then it cannot
    tell "never" from "not yet", and m12 waits; the text of 3.2.1 says that it need not.
    """
    cube, _ = figure_2(late=True)
    cube.settle()
    assert cube.delivered[3] == [(0, 1), (1, 1)]
    cube.send(1, cube.nodes[1].publish(TOPIC))
    cube.settle()
    assert cube.delivered[3] == [(0, 1), (1, 1)], "held, for want of anything from p2"
    cube.send(2, cube.nodes[2].publish(TOPIC))
    cube.settle()
    assert cube.delivered[3] == [(0, 1), (1, 1), (1, 2), (2, 2)]


# 3.2.2. Per-source FIFO.


def test_a_publisher_waits_for_all_acknowledgements_of_its_previous_message() -> None:
    """Line 31: the second message leaves with the last acknowledgement of the first."""
    cube = Cube(8, list(range(8)))
    cube.send(0, cube.nodes[0].publish(TOPIC))
    cube.send(0, cube.nodes[0].publish(TOPIC))
    last = (6, 4, Kind.ACK)
    cube.settle(hold=lambda s, to, m: (s, to, m.kind) == last)
    assert not any(m.counter == 2 for _, _, m in cube.under_way)
    assert all(cube.delivered[node] == [(0, 1)] for node in range(1, 8))
    cube.settle()
    assert all(cube.delivered[node] == [(0, 1), (0, 2)] for node in range(8))


# 3.3. Membership.


def test_a_new_subscriber_learns_all_members_and_is_known_to_all() -> None:
    """SUB goes to all nodes; its acknowledgements bring the membership back (lines 95-98)."""
    members = [1, 2, 5, 6]
    cube = Cube(8, members)
    cube.send(4, cube.nodes[4].subscribe(TOPIC))
    cube.settle()
    assert sorted(cube.nodes[4].topics[TOPIC].view) == sorted([*members, 4])
    assert all(4 in cube.nodes[each].topics[TOPIC].view for each in members)


def test_a_subscription_goes_to_all_nodes_and_the_rest_to_subscribers_alone() -> None:
    """3.3: trees of SUB are composed of all nodes, those of UNS and PUB of the topic's subscribers.

    And nothing else is ever sent: neither building nor maintaining a tree costs a message (1).
    """
    cube = Cube(8, [0, 3, 5])
    got: dict[Kind, list[int]] = {kind: [] for kind in Kind}

    def settle() -> None:
        while cube.under_way:
            sender, to, message = cube.under_way[0]
            got[message.kind].append(to)
            cube.carry(sender, to, message)

    cube.send(6, cube.nodes[6].subscribe(TOPIC))
    settle()
    assert sorted(got[Kind.SUB]) == [0, 1, 2, 3, 4, 5, 7]
    cube.send(3, cube.nodes[3].publish(TOPIC))
    settle()
    assert sorted(got[Kind.PUB]) == [0, 5, 6]
    cube.send(0, cube.nodes[0].unsubscribe(TOPIC))
    settle()
    assert sorted(got[Kind.UNS]) == [3, 5, 6]
    assert len(got[Kind.ACK]) == 7 + 3 + 3


def test_only_subscribers_publish_and_nobody_subscribes_twice() -> None:
    """Algorithm 1: NOK."""
    cube = Cube(4, [0, 1])
    assert cube.nodes[2].publish(TOPIC) is None
    assert cube.nodes[2].unsubscribe(TOPIC) is None
    assert cube.nodes[0].subscribe(TOPIC) is None


def test_who_has_left_forwards_for_those_who_do_not_know_yet() -> None:
    """3.3: a temporary forwarder passes a message on and delivers nothing; later it gets none."""
    cube = Cube(8, list(range(8)))
    cube.send(4, cube.nodes[4].unsubscribe(TOPIC))
    # p0 does not know yet: UNS messages are under way. Its message to p5, p6 and p7 goes by p4.
    cube.send(0, cube.nodes[0].publish(TOPIC))
    cube.settle(hold=lambda s, to, m: m.kind is Kind.UNS)
    assert cube.delivered[4] == []
    assert all(cube.delivered[each] == [(0, 1)] for each in (5, 6, 7))
    cube.settle()
    receivers: list[int] = []
    cube.say(0, lambda sender, to, message: receivers.append(to))
    assert sorted(receivers) == [1, 2, 3, 5, 6, 7]


def test_an_older_operation_of_a_member_does_not_undo_a_newer_one() -> None:
    """UPDATE (lines 75-82): SUB and UNS of one node may arrive the other way round."""
    view = View(4)
    view.update(2, subscribed=False, counter=5)
    view.update(2, subscribed=True, counter=3)
    assert 2 not in view
    view.update(2, subscribed=True, counter=6)
    assert 2 in view


# The whole, in random runs.


class Judge:
    """Holds every delivery against what its publisher had delivered before."""

    def __init__(self, nodes: int) -> None:
        self.delivered: list[dict[tuple[int, int], None]] = [{} for _ in range(nodes)]
        self.past: dict[tuple[int, int], set[tuple[int, int]]] = {}
        self.violations = 0

    def take(self, node: int, message: Message) -> None:
        key = (message.source, message.counter)
        if node == message.source:
            self.past[key] = set(self.delivered[node])
        # Everybody is a member from the start, so all of the past is due here.
        self.violations += not self.past[key] <= self.delivered[node].keys()
        self.delivered[node][key] = None


def random_run(seed: int, *, checks: bool) -> tuple[Judge, Network]:
    """Everybody answers at once whatever comes, over links that are slow by chance."""
    rng = random.Random(seed)
    nodes = 32
    judge = Judge(nodes)
    # One transmission takes long, so queues are long, and messages overtake one another.
    network = Network(
        nodes, Delays(1, 7, 20), acks_queue=True, checks=checks, on_deliver=judge.take
    )
    network.begin_with(TOPIC, range(nodes), shared=True)
    for _ in range(60):
        network.publish_at(rng.randrange(600), rng.randrange(nodes), TOPIC)
    network.run()
    return judge, network


@pytest.mark.parametrize("seed", range(10))
def test_causal_order_holds_in_random_runs(seed: int) -> None:
    judge, network = random_run(seed, checks=True)
    assert judge.violations == 0
    assert network.held() == 0
    assert all(len(delivered) == 60 for delivered in judge.delivered)


def test_without_the_barrier_check_it_does_not() -> None:
    """The same runs notice that the check is missing: what they look for can be found."""
    assert sum(random_run(seed, checks=False)[0].violations for seed in range(10)) > 100


def test_messages_of_a_source_arrive_in_order_also_while_members_come_and_go() -> None:
    """3.2.2: reception, not only delivery, in the order of publishing, thanks to line 31."""
    newest: dict[tuple[int, int], int] = {}

    def on_receive(node: int, message: Message) -> None:
        assert newest.get((node, message.source), -1) < message.counter
        newest[node, message.source] = message.counter

    rng = random.Random(1)
    network = Network(32, Delays(1, 5, 20), on_receive=on_receive)
    network.begin_with(TOPIC, range(24))

    def act(_: int) -> None:
        node = rng.randrange(32)
        if rng.random() < 0.8:
            network.publish(node, TOPIC)
        elif network.nodes[node].is_subscribed(TOPIC):
            network.unsubscribe(node, TOPIC)
        else:
            network.subscribe(node, TOPIC)

    for _ in range(400):
        network.at(rng.randrange(20_000), act)
    tally = network.run()
    assert tally.receptions > 2000
    assert tally.false_positives > 0, "nobody ever forwarded after leaving"
    assert not any(node.acks for node in network.nodes), "every acknowledgement came"
