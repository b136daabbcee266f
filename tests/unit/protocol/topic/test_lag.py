"""A parent that brings nothing loses its children, and not the topic its events."""

from collections.abc import Callable
from typing import Any

import pytest

from pulsarcast.model.ids import Cid
from pulsarcast.model.topics import Dissemination, TopicSettings
from pulsarcast.protocol.dissemination.tree import DisseminationTree
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.topic.flow import FlowControl
from pulsarcast.protocol.topic.lag import LAG_S, MISSED_MAX
from pulsarcast.protocol.topic.topic import Topic
from pulsarcast.protocol.turn import Turn
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


def passes_nothing_on(monkeypatch: pytest.MonkeyPatch, hostile: Topic) -> None:
    """It gives no credit either."""

    def but_not(kind: type, method: str, turn_of: Callable[[Any], Turn]) -> None:
        usual = getattr(kind, method)

        def maybe(part: Any, *given: Any, **more: Any) -> None:
            if turn_of(part) is not hostile.turn:
                usual(part, *given, **more)

        monkeypatch.setattr(kind, method, maybe)

    but_not(DisseminationTree, "forward", lambda tree: tree.turn)
    but_not(FlowControl, "took_from", lambda flow: flow._turn)


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
    passes_nothing_on(monkeypatch, hostile)
    for number in range(60):
        lab.publish(AUTHOR, topic, b"%d" % number, replicated=False, settle_s=1.0)
    lab.run(60.0)
    for index in range(1, 14):
        assert len(lab.delivered(index, topic)) == 60
    children = lab.world.node(inner).topics[topic].overlay.children
    assert not set(children) & set(below), "nobody comes back, however near it is"
