"""VCube-PS, section 3.2: causal barriers, on real core nodes.

Deviation, said aloud: the paper's barrier holds (source, counter) pairs; ours holds the content id
of each as well, so that it also proves what it names.
"""

from collections.abc import Callable

from pulsarcast.model import trace
from pulsarcast.model.ids import Cid
from pulsarcast.model.topics import DeliveryOrder, Mark, TopicSettings
from pulsarcast.protocol.inputs import Publish
from pulsarcast.protocol.messages import EventMessage
from tests.support.lab import Lab
from tests.support.people import ALICE, BOB, CAROL, event_of, following, topic_of
from tests.support.solo import Parent, below

CAUSAL = TopicSettings(open=True, order=DeliveryOrder.CAUSAL)
TOPIC = topic_of(ALICE, CAUSAL)


class Figure2:
    """Three subscribers p0, p1, p2, and p3, which may come later."""

    def __init__(self) -> None:
        self.lab = Lab(4, through_wire=True)
        self.topic = self.lab.create(0, CAUSAL)
        self.lab.subscribe([0, 1, 2], self.topic)
        self.lab.run(5.0)

    def barrier(self, event: Cid) -> set[Cid]:
        return set(self.lab.event(event).parents)

    def play(self) -> tuple[Cid, Cid, Cid, Cid]:
        """The messages of the figure: m0,1 then m1,1; m2,1 at the same time; then m1,2."""
        lab, topic = self.lab, self.topic
        m01 = lab.publish(0, topic, b"m0,1")
        # p2 has not heard of p1's message when it publishes its own, nor p1 of p2's.
        first = lab.start(1, _publish(topic, b"m1,1"))
        second = lab.start(2, _publish(topic, b"m2,1"))
        lab.run(2.0)
        m11, m21 = first[0].cid, second[0].cid
        assert m11 is not None
        assert m21 is not None
        m12 = lab.publish(1, topic, b"m1,2")
        return m01, m11, m21, m12


def _publish(topic: Cid, payload: bytes) -> Callable[[int], Publish]:
    return lambda call: Publish(call, topic, payload)


def test_figure_2_the_barrier_holds_immediate_predecessors_only() -> None:
    figure = Figure2()
    m01, m11, m21, m12 = figure.play()
    assert figure.barrier(m01) == set()
    assert figure.barrier(m11) == {m01}
    # m0,1 precedes m1,1, which precedes m1,2: an indirect dependency is not in the barrier.
    assert figure.barrier(m12) == {m21, m11}
    marks = {mark.publisher: mark.number for mark in figure.lab.event(m12).marks}
    assert marks == {figure.lab.peer(2): 1, figure.lab.peer(1): 1}


def test_figure_2_a_message_is_delivered_after_its_barrier() -> None:
    figure = Figure2()
    m01, m11, m21, m12 = figure.play()
    figure.lab.run(20.0)
    for index in range(3):
        got = figure.lab.delivered(index, figure.topic)
        assert sorted(got) == sorted([m01, m11, m21, m12])
        assert got.index(m01) < got.index(m11) < got.index(m12)
        assert got.index(m21) < got.index(m12)


def test_figure_2_a_late_joiner_does_not_wait_for_what_it_will_never_get() -> None:
    """p3 subscribes after m2,1 was published: having delivered m1,1, it can deliver m1,2."""
    figure = Figure2()
    lab, topic = figure.lab, figure.topic
    m01 = lab.publish(0, topic, b"m0,1")
    m21 = lab.publish(2, topic, b"m2,1")
    lab.subscribe([3], topic)
    (start,) = (seen.start for seen in lab.records(trace.Subscribed, 3) if seen.topic == topic)
    assert Mark(lab.peer(2), lab.event(m21).sequence.epoch, 1) in start
    m11 = lab.publish(1, topic, b"m1,1")
    m12 = lab.publish(1, topic, b"m1,2")
    lab.run(5.0)
    assert m21 in figure.barrier(m11) or m21 in figure.barrier(m12)
    assert lab.delivered(3, topic) == [m11, m12]
    assert m01 not in lab.delivered(3, topic)


def test_what_is_received_before_its_barrier_is_delivered_after_it() -> None:
    """Section 3.2.1: to receive is not to deliver."""
    m01, m21 = event_of(ALICE, TOPIC), event_of(CAROL, TOPIC)
    m11 = event_of(BOB, TOPIC, 1, **following(m01))
    m12 = event_of(BOB, TOPIC, 2, **following(m11, m21))
    upstream = Parent("upstream", [TOPIC.block])
    node = below(upstream)
    node.subscribe(TOPIC.topic)
    for event in (m12, m11, m21, m01):
        assert not node.delivered or event is not m12
        node.hear(upstream.peer, EventMessage(event.block, 1))
    got = node.cids()
    assert sorted(got) == sorted(event.cid for event in (m01, m11, m21, m12))
    assert got.index(m01.cid) < got.index(m11.cid) < got.index(m12.cid)
    assert got.index(m21.cid) < got.index(m12.cid)
