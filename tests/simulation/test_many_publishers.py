"""A topic of many publishers: members find out what they lack without showing all they hold."""

import pytest

from pulsarcast.protocol.messages import CompareFrontiers, FrontierPage
from tests.support.lab import Lab

NODES = 60


@pytest.mark.parametrize("seed", [1, 2])
def test_a_member_that_was_away_gets_what_it_lacks_by_the_parts_that_differ(seed: int) -> None:
    lab = Lab(NODES, seed=seed)
    topic = lab.create(0)
    lab.subscribe(range(1, NODES), topic)
    for index in range(NODES):
        lab.publish(index, topic, replicated=False, settle_s=0.1)
    lab.run(90.0)
    away = NODES - 1
    held = len(lab.world.node(away).topics[topic].frontier)
    assert held == NODES
    lab.world.pause(away)
    lab.run(30.0)
    missed = [lab.publish(index, topic, replicated=False) for index in (3, 14)]
    lab.said.clear()
    lab.world.resume(away)
    lab.run(120.0)
    assert set(missed) <= set(lab.delivered(away, topic))
    assert lab.messages(CompareFrontiers)
    pages = [each for each in lab.messages(FrontierPage) if each.topic == topic]
    assert pages
    assert max(len(each.marks) for each in pages) < NODES // 2
    digests = {lab.world.node(index).topics[topic].digest() for index in range(NODES)}
    assert len(digests) == 1
