"""A parent that brings nothing loses its children, and not the topic its events."""

import pytest

from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.model.topics import Dissemination, TopicSettings
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.topic.flow import FlowControl
from pulsarcast.protocol.topic.lag import LAG_S, MISSED_MAX
from pulsarcast.protocol.topic.topic import Topic
from tests.support.lab import Lab
from tests.support.people import BOB, event_of, identity, meta_of, topic_of, unordered
from tests.support.solo import Parent, Solo, below

AUTHOR = 0


def child(settings: TopicSettings | None = None) -> tuple[Solo, Cid, Parent]:
    topic = topic_of(BOB, settings)
    parent = Parent("bob", [topic.block, meta_of(BOB).block])
    solo = below(parent)
    solo.subscribe(topic.cid)
    return solo, topic.cid, parent


def take(solo: Solo, topic: Cid, first: int, count: int) -> None:
    """Let another member bring events."""
    aside = identity("aside").peer_id
    descriptor = solo.topic(topic).descriptor
    for number in range(first, first + count):
        event = event_of(BOB, descriptor, number)
        solo.topic(topic).take_recovered(event.block, aside)


def test_a_parent_that_brings_nothing_for_some_seconds_is_left() -> None:
    solo, topic, parent = child()
    take(solo, topic, 1, MISSED_MAX - 1)
    solo.advance(LAG_S)
    assert solo.topic(topic).overlay.upstream == parent.peer
    take(solo, topic, MISSED_MAX, 1)
    assert solo.topic(topic).overlay.upstream is None
    assert solo.node.counts["lagging_parent"] == 1


def test_a_parent_is_not_left_for_events_that_come_at_once() -> None:
    solo, topic, parent = child()
    take(solo, topic, 1, 3 * MISSED_MAX)
    assert solo.topic(topic).overlay.upstream == parent.peer


def test_a_parent_that_brings_anything_is_kept() -> None:
    solo, topic, parent = child()
    take(solo, topic, 1, MISSED_MAX - 1)
    solo.advance(LAG_S)
    late = event_of(BOB, solo.topic(topic).descriptor, 1)
    solo.topic(topic).receive_live(late, parent.peer, 2, b"")
    take(solo, topic, MISSED_MAX, 1)
    assert solo.topic(topic).overlay.upstream == parent.peer


def test_a_cube_has_no_parent_that_could_lag() -> None:
    solo, topic, parent = child(unordered(dissemination=Dissemination.CUBE))
    take(solo, topic, 1, MISSED_MAX - 1)
    solo.advance(LAG_S)
    take(solo, topic, MISSED_MAX, 1)
    assert solo.topic(topic).overlay.upstream == parent.peer
    assert "lagging_parent" not in solo.node.counts


def gives_no_credit(monkeypatch: pytest.MonkeyPatch, hostile: Topic) -> None:
    took_from = FlowControl.took_from

    def take(flow: FlowControl, sender: PeerId, size: int) -> None:
        if flow._turn is not hostile.turn:
            took_from(flow, sender, size)

    monkeypatch.setattr(FlowControl, "took_from", take)


@pytest.mark.parametrize("seed", [1, 2])
def test_an_inner_node_that_passes_nothing_on_costs_the_topic_nothing(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Lab(14, parameters=Parameters(fanout=3), seed=seed)
    topic = lab.create(AUTHOR)
    lab.subscribe(range(1, 14), topic)
    inner = max(
        range(1, 14), key=lambda each: len(lab.world.node(each).topics[topic].overlay.children)
    )
    hostile = lab.world.node(inner).topics[topic]
    below = list(hostile.overlay.children)
    assert below
    hostile.overlay.forward = lambda *_, **__: None  # type: ignore[method-assign]
    gives_no_credit(monkeypatch, hostile)
    for number in range(60):
        lab.publish(AUTHOR, topic, b"%d" % number, replicated=False, settle_s=1.0)
    lab.run(60.0)
    for index in range(1, 14):
        assert len(lab.delivered(index, topic)) == 60
    children = lab.world.node(inner).topics[topic].overlay.children
    assert not set(children) & set(below), "nobody comes back, however near it is"
