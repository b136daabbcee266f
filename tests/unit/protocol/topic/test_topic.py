"""A topic on its own: the order of what follows an event, and what it does before its start."""

from typing import Any, cast

import pytest

from pulsarcast.model.errors import RemoteError
from pulsarcast.model.topics import TopicDescriptor, TopicSettings
from pulsarcast.protocol.effects import Deliver, Persist
from pulsarcast.protocol.topic.topic import Topic
from pulsarcast.protocol.topic.versions import Versions
from tests.support.parts import Core
from tests.support.people import ALICE, BOB, MALLORY, event_of, topic_of, version_of

TOPIC = topic_of(ALICE, TopicSettings(publishers=(BOB.peer_id,)))


def topic_of_core(core: Core, first: TopicDescriptor = TOPIC) -> Topic:
    owner = cast("Any", core.owner)
    of_node = (core.context, core.dht, core.quiet, owner, core.fencing, core.at_work)
    return Topic(Versions(first), *of_node, subscribed=True)


def opened(core: Core) -> Topic:
    """A topic whose root is the node itself."""
    topic = topic_of_core(core)
    topic.open(from_start=True)
    core.sync()
    core.turn.effects.clear()
    core.owner.told.clear()
    return topic


def test_an_event_is_on_the_disk_before_it_is_delivered_and_told() -> None:
    core = Core()
    topic = opened(core)
    event = event_of(BOB, TOPIC)
    topic.receive(event, BOB.peer_id, 1)
    assert [type(each) for each in core.turn.effects].count(Persist) == 1
    assert core.wanted(Deliver) == []
    assert core.owner.told == []
    core.sync()
    assert [each.event.cid for each in core.wanted(Deliver)] == [event.cid]
    assert core.owner.told == ["arrived"]
    topic.receive(event, BOB.peer_id, 1)
    assert core.wanted(Persist) == [], "it is here already"


def test_no_event_is_taken_before_the_start_is_known() -> None:
    core = Core()
    topic = topic_of_core(core)
    topic.receive(event_of(BOB, TOPIC), BOB.peer_id, 1)
    assert core.turn.effects == []
    assert not topic.holds(event_of(BOB, TOPIC))


def test_nothing_is_taken_once_the_topic_is_left() -> None:
    """A lookup may bring an event after the disk has forgotten the topic."""
    core = Core()
    topic = opened(core)
    topic.overlay_left()
    topic.take_recovered(event_of(BOB, TOPIC).block, BOB.peer_id)
    assert core.wanted(Persist) == []


def test_an_event_of_a_forbidden_publisher_is_refused_and_leaves_nothing() -> None:
    core = Core()
    topic = opened(core)
    with pytest.raises(RemoteError):
        topic.receive(event_of(MALLORY, TOPIC), MALLORY.peer_id, 1)
    assert core.turn.effects == []


def test_an_event_of_an_unknown_version_waits_until_that_is_adopted() -> None:
    core = Core()
    topic = opened(core)
    second = version_of(TOPIC, signer=ALICE)
    event = event_of(BOB, second, topic_cid=TOPIC.cid)
    topic.receive(event, BOB.peer_id, 1)
    assert core.owner.told == ["want_version"]
    assert core.wanted(Persist) == []
    assert topic.adopt_version(second)
    core.sync()
    assert [each.event.cid for each in core.wanted(Deliver)] == [event.cid]
