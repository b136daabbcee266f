"""The thesis, chapters 1, 3 and 5: promises and results beside its algorithms, claim by claim."""

from collections import Counter

import pytest

from pulsarcast.model.errors import LocalError
from pulsarcast.model.ids import cid_of
from pulsarcast.model.topics import TOPIC_BYTES_MAX, TopicSettings, create_topic, decode_topic
from pulsarcast.protocol.inputs import Publish
from pulsarcast.protocol.messages import EventMessage
from pulsarcast.protocol.parameters import Parameters
from tests.support.lab import Lab
from tests.support.people import ALICE, CREATED_US, nonce

AUTHOR = 0
SIZE = 16
MEMBERS = list(range(1, SIZE))


def producers(lab: Lab, *indices: int) -> TopicSettings:
    """3.3.3, second scenario: a whitelist of producers, and no requests."""
    peers = tuple(lab.peer(index) for index in indices)
    return TopicSettings(publishers=peers, request_to_publish=False)


def test_a_subscriber_is_notified_of_an_event_whose_publisher_is_disconnected() -> None:
    """1.1, decoupling in time: publisher and subscriber need not be there at the same time."""
    lab = Lab(SIZE)
    topic = lab.create(AUTHOR, producers(lab, AUTHOR))
    lab.subscribe([1, 2], topic)
    lab.world.kill(2)
    event = lab.publish(AUTHOR, topic, b"while one is away")
    lab.world.kill(AUTHOR)
    lab.run(30.0)
    lab.world.restart(2)
    lab.run(60.0)
    assert lab.delivered(2, topic) == [event]


def test_a_publisher_needs_to_know_neither_who_its_subscribers_are_nor_how_many() -> None:
    """1.1, decoupling in space: an event names no subscriber; its publisher sends few copies."""
    lab = Lab(SIZE)
    topic = lab.create(AUTHOR, producers(lab, AUTHOR))
    lab.subscribe(MEMBERS, topic)
    event = lab.publish(AUTHOR, topic)
    assert all(lab.delivered(index, topic) == [event] for index in MEMBERS)
    assert not [index for index in MEMBERS if lab.block(event).count(lab.peer(index))]
    assert len(lab.messages(EventMessage, sender=AUTHOR)) <= Parameters().fanout < len(MEMBERS)


def test_producers_that_the_author_adds_later_may_publish() -> None:
    """3.3.3: a list of vouched for producers, which could be expanded later on by the author."""
    lab = Lab(8)
    topic = lab.create(AUTHOR, producers(lab, 1))
    lab.subscribe([1, 2, 3], topic)
    assert lab.ask(2, lambda call: Publish(call, topic, b"too early")).refusal is not None
    lab.update(AUTHOR, topic, producers(lab, 1, 2))
    lab.run(10.0)
    events = {lab.publish(publisher, topic) for publisher in (1, 2)}
    assert set(lab.delivered(3, topic)) == events


def test_a_topic_has_thousands_of_sub_topics_and_an_end() -> None:
    """3.2.2: there is no limit to how many sub-topics a topic can have.

    Deviation: a version is one block of at most 1 MiB, which others keep; that is some 20,000.
    """

    def below(count: int) -> bytes:
        linked = {f"{number:06}": cid_of(b"%d" % number) for number in range(count)}
        made = create_topic(
            ALICE,
            "top",
            TopicSettings(),
            created=CREATED_US,
            nonce=nonce("top"),
            meta=None,
            subtopics=linked,
        )
        assert decode_topic(made.block).subtopics == linked
        return made.block

    assert len(below(20_000)) < TOPIC_BYTES_MAX
    with pytest.raises(LocalError):
        below(25_000)


def messages_for(events: int) -> Counter[type]:
    """All messages that so many events cause, of every kind, in a tree of 16."""
    lab = Lab(SIZE, parameters=Parameters(fanout=2))
    topic = lab.create(AUTHOR, producers(lab, *range(SIZE)))
    lab.subscribe(MEMBERS, topic)
    lab.run(30.0)
    before = len(lab.said)
    for number in range(events):
        lab.publish(1 + number % (SIZE - 1), topic, b"%d" % number, settle_s=0.0)
    lab.run(1.0)
    return Counter(type(said.message) for said in lab.said[before:])


def test_messages_grow_linearly_with_events() -> None:
    """5.5 (figures 5.6, 5.10, 5.18, 5.22): RPC messages grow linearly with the events received."""
    some, more = messages_for(20), messages_for(60)
    assert some[EventMessage] == 20 * (SIZE - 1)
    assert more[EventMessage] == 60 * (SIZE - 1)
    assert more.total() == pytest.approx(3 * some.total(), rel=0.15), "with the DHT and heartbeats"


def test_a_latency_of_half_a_second_loses_nothing() -> None:
    """6.1: Pulsarcast did not underperform under adverse network conditions."""
    lab = Lab(SIZE, latency_s=0.5, settle_s=60.0)
    topic = lab.create(AUTHOR, producers(lab, *range(SIZE)))
    lab.subscribe(MEMBERS, topic)
    events = [lab.publish(1 + number, topic, b"%d" % number) for number in range(10)]
    lab.run(30.0)
    assert all(sorted(lab.delivered(index, topic)) == sorted(events) for index in MEMBERS)
