"""One who follows a topic by content: what it says of that, and what members answer it."""

import pytest

from pulsarcast.model import trace
from pulsarcast.model.ids import Cid, cid_of
from pulsarcast.model.topic_types import AttributeRule, Mark, TopicSettings
from pulsarcast.protocol.content import members as members_module
from pulsarcast.protocol.content.messages import CompareContent, ContentCompared
from pulsarcast.protocol.content.shape import Shape
from pulsarcast.protocol.content.spaces import CONTENT, ROUTING
from pulsarcast.protocol.content.trees import TREES_MAX, Trees
from pulsarcast.protocol.inputs import Publish, SubscribeContent
from tests.support.lab import Lab

AUTHOR, MEMBER, READER = 0, 1, 2
SETTINGS = TopicSettings(
    attributes=(AttributeRule("price", "float", 0.0, 100.0),), extensions={ROUTING: CONTENT}
)


def lab(*, puppets: tuple[int, ...] = ()) -> tuple[Lab, Cid]:
    made = Lab(4, puppets=list(puppets))
    topic = made.create(AUTHOR, SETTINGS)
    made.subscribe([AUTHOR, MEMBER], topic)
    return made, topic


def publish(made: Lab, node: int, topic: Cid, price: float) -> Cid:
    reply = made.ask(node, lambda call: Publish(call, topic, b"", attributes={"price": price}))
    assert reply.cid is not None, reply.error
    made.run(5.0)
    return reply.cid


def read(made: Lab, topic: Cid, where: str = "price < 10", sid: int = 1) -> None:
    reply = made.ask(READER, lambda call: SubscribeContent(call, topic, where, sid))
    assert reply.error is None, reply.error
    made.run(5.0)


def test_its_trace_says_from_where_on_and_by_which_filters() -> None:
    made, topic = lab()
    before = made.event(publish(made, AUTHOR, topic, 5.0))
    read(made, topic)
    read(made, topic, "price > 90", sid=2)
    first, second = made.records(trace.Subscribed, READER)
    start = (Mark(before.publisher, before.sequence.epoch, before.sequence.number),)
    assert (first.topic, first.start, first.filters) == (topic, start, ("price < 10",))
    assert (second.start, second.filters) == (start, ("price < 10", "price > 90"))


def test_an_event_of_a_version_that_it_does_not_know_comes_once_that_was_found() -> None:
    made, topic = lab()
    read(made, topic)
    settings = TopicSettings(
        attributes=SETTINGS.attributes, extensions=SETTINGS.extensions, payload_bytes_max=1000
    )
    made.update(AUTHOR, topic, settings)
    event = publish(made, AUTHOR, topic, 5.0)
    assert made.event(event).version != topic
    made.run(60.0)
    assert made.delivered(READER, topic) == [event]


def test_what_does_not_fit_into_one_answer_is_told_in_several(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(members_module, "MARKS_PAGE", 1)
    made, topic = lab(puppets=(READER,))
    events = [publish(made, node, topic, 5.0) for node in (AUTHOR, MEMBER)]
    question = CompareContent(1, topic, ("price < 10 or price >= 10",), 0, 0, 0, b"", ())
    made.say(READER, made.peer(AUTHOR), question)
    heard = [each for _, each in made.puppets[READER].heard if isinstance(each, ContentCompared)]
    assert [(len(each.marks), each.more) for each in heard] == [(1, True), (1, False)]
    publishers = {mark.publisher for each in heard for mark in each.marks}
    assert publishers == {made.event(event).publisher for event in events}


def test_so_many_trees_are_known_and_the_one_used_longest_ago_goes() -> None:
    trees = Trees()
    topics = [cid_of(b"%d" % number) for number in range(TREES_MAX + 1)]
    shapes: list[Shape] = [trees.shape(topic, "price") for topic in topics[:TREES_MAX]]
    assert trees.shape(topics[0], "price") is shapes[0]
    trees.shape(topics[-1], "price")
    assert len(trees) == TREES_MAX
    assert trees.known(topics[0], "price") is shapes[0]
    assert trees.known(topics[1], "price") is None
