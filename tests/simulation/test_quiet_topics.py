"""Topics in which nothing happens: what they cost, and what is found out in their sleep."""

from random import Random
from typing import Any, cast

from pulsarcast.model.ids import Cid
from pulsarcast.protocol.messages import Alive, CompareTopics, Status
from tests.support.lab import Lab

NODES = 12
OTHERS = 3
MEMBER = NODES - 1
SETTLED_S = 400.0
"""Heartbeats of 20, 40, and 60 s, and some more."""
IDLE_S = 300.0


class Many:
    """A lab whose last node is a member of many topics; others are of some of them."""

    def __init__(self, topics: int) -> None:
        self.lab, rng = Lab(NODES), Random(1)
        self.authors: dict[Cid, int] = {}
        for _ in range(topics):
            author, *others = rng.sample(range(MEMBER), OTHERS)
            topic = self.lab.create(author)
            self.authors[topic] = author
            self.lab.subscribe([*others, MEMBER], topic)
        self.lab.run(SETTLED_S)
        self.lab.said.clear()

    def said_while_idle(self) -> list[type]:
        """The kinds of messages that the node sends while nothing happens."""
        self.lab.run(IDLE_S)
        return [type(said.message) for said in self.lab.said if said.sender == MEMBER]


def test_a_hundred_and_sixty_quiet_topics_cost_hardly_more_than_sixteen() -> None:
    few, many = (Many(topics).said_while_idle() for topics in (16, 160))
    assert many.count(CompareTopics) > 0
    heartbeats = [each.count(Status) + each.count(CompareTopics) for each in (few, many)]
    assert heartbeats[1] < 2 * heartbeats[0]
    assert many.count(Alive) < 2 * few.count(Alive)


def test_an_event_wakes_its_own_topic_and_no_other() -> None:
    many = Many(40)
    topic, author = list(many.authors.items())[7]
    event = many.lab.publish(author, topic)
    assert event in many.lab.delivered(MEMBER, topic)
    assert list(many.lab.world.node(MEMBER).quiet.awake) == [topic]


def test_a_parent_that_forgot_its_child_is_found_out_by_the_heartbeat_of_the_pair() -> None:
    many = Many(40)
    world, member = many.lab.world, many.lab.world.node(MEMBER)
    for topic in list(many.authors)[:5]:
        parent = member.topics[topic].overlay.upstream
        assert parent is not None
        tree = cast(Any, world.node(world.index_of(parent)).topics[topic].overlay)
        del tree.children[member.turn.me], tree.links[member.turn.me]
    many.lab.run(90.0)
    for topic in list(many.authors)[:5]:
        parent = member.topics[topic].overlay.upstream
        assert parent is not None
        children = world.node(world.index_of(parent)).topics[topic].overlay.children
        assert member.turn.me in children
