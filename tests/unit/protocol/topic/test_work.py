"""Topics in which nothing happens have no work: its parts come and go, and nobody notices."""

import pytest

from pulsarcast.model.events import EventDescriptor
from pulsarcast.model.ids import Cid
from pulsarcast.model.topics import DeliveryOrder, Dissemination, Retention, TopicSettings
from pulsarcast.protocol.effects import Send
from pulsarcast.protocol.inputs import LinkFree, LinkFull, Now
from pulsarcast.protocol.messages import (
    CompareFrontiers,
    EventMessage,
    FetchRange,
    FetchStart,
    FrontierPage,
    FrontierPart,
    Range,
)
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.store import MarkState
from pulsarcast.protocol.topic.topic import Topic
from pulsarcast.protocol.topic.work import REST_S
from tests.support.lab import Lab
from tests.support.people import EPOCH, MALLORY, event_of, identity, meta_of, topic_of, unordered
from tests.support.solo import Parent, Solo, below

AUTHOR, MEMBER, OTHER = 0, 1, 2
RESTED_S = 2 * REST_S + 5.0


def at_work(lab: Lab, index: int) -> int:
    return lab.world.node(index).footprint().get("at_work", 0)


@pytest.mark.parametrize("order", list(DeliveryOrder))
@pytest.mark.parametrize("way", list(Dissemination))
def test_parts_go_where_nothing_happens_and_come_with_an_event(
    order: DeliveryOrder, way: Dissemination
) -> None:
    if order is DeliveryOrder.TOTAL:
        settings = TopicSettings(order=order, dissemination=way)
    else:
        settings = TopicSettings(open=True, order=order, dissemination=way)
    lab = Lab(3)
    topic = lab.create(AUTHOR, settings)
    lab.subscribe([MEMBER, OTHER], topic)
    assert at_work(lab, MEMBER), "it has joined just now"
    events: list[Cid] = []
    for number in range(3):
        lab.run(200.0)
        assert [at_work(lab, index) for index in range(3)] == [0, 0, 0]
        events.append(lab.publish(AUTHOR, topic, b"%d" % number))
        assert all(at_work(lab, index) for index in range(3))
    for index in (MEMBER, OTHER):
        assert lab.delivered(index, topic) == events


def test_a_topic_that_started_again_has_no_work_until_something_happens() -> None:
    lab = Lab(3)
    topic = lab.create(AUTHOR)
    lab.subscribe([MEMBER], topic)
    first = lab.publish(AUTHOR, topic, b"first")
    lab.run(60.0)
    lab.world.kill(MEMBER)
    missed = lab.publish(AUTHOR, topic, b"missed")
    lab.world.restart(MEMBER)
    lab.run(60.0)
    assert [event.cid for event in lab.log(MEMBER, topic)] == [first, missed], "it catches up"
    lab.world.kill(MEMBER)
    lab.world.restart(MEMBER)
    lab.run(1.0)
    assert at_work(lab, MEMBER) == 0
    last = lab.publish(AUTHOR, topic, b"last")
    assert lab.delivered(MEMBER, topic)[-1] == last


def test_a_neighbour_that_misses_an_event_of_the_meta_topic_is_shown_it_once_it_can_take_it() -> (
    None
):
    """The topic carries it, and nothing else happens in the topic."""
    lab = Lab(2, parameters=Parameters(stall_s=0.0))
    settings = unordered()
    topic = lab.create(AUTHOR, settings)
    lab.subscribe([MEMBER], topic)
    lab.run(300.0)
    author, member = lab.world.node(AUTHOR), lab.peer(MEMBER)
    author.handle(LinkFull(member), Now(lab.world.now, 0))
    lab.update(AUTHOR, topic, settings)
    lab.run(2 * RESTED_S)
    carrier = author.topics[topic]
    assert carrier.overlay.links[member].behind
    effects = author.handle(LinkFree(member), Now(lab.world.now, 0))
    pages = [each.message for each in effects if isinstance(each, Send)]
    assert carrier.meta is not None
    assert carrier.meta.id in [each.topic for each in pages if isinstance(each, FrontierPage)]


def test_a_topic_has_parts_while_the_meta_topic_that_it_carries_has() -> None:
    lab = Lab(2)
    topic = lab.create(AUTHOR, unordered())
    lab.subscribe([MEMBER], topic)
    lab.run(200.0)
    lab.update(AUTHOR, topic, unordered())
    for index in (AUTHOR, MEMBER):
        carrier = lab.world.node(index).topics[topic]
        assert carrier.meta is not None
        assert carrier._work is not None
        assert not carrier.rest(), "the meta topic first"
        assert carrier.meta.rest()
        assert carrier.rest()
    lab.run(RESTED_S)
    assert [at_work(lab, index) for index in (AUTHOR, MEMBER)] == [0, 0]


def child(*names: str) -> tuple[Solo, list[Topic], Parent]:
    """A subscriber of some topics in which nothing happens, and its parent in all of them."""
    bob = identity("bob")
    described = [topic_of(bob, unordered(), name=name) for name in names]
    blocks = [each.block for each in described]
    parent = Parent("bob", [*blocks, *(meta_of(bob, name).block for name in names)])
    solo = below(parent)
    for each in described:
        solo.subscribe(each.cid)
    solo.advance(RESTED_S)
    return solo, [solo.topic(each.cid) for each in described], parent


def arrives(solo: Solo, topic: Topic, number: int) -> EventDescriptor:
    bob = identity("bob")
    event = event_of(bob, topic.descriptor, number)
    solo.hear(bob.peer_id, EventMessage(event.block, 1))
    return event


def test_what_was_asked_for_keeps_its_parts_until_it_is_here() -> None:
    solo, (topic,), parent = child("a")
    assert topic.rest()
    second = arrives(solo, topic, 2)
    asked: list[FetchRange] = []
    while not asked:
        assert not topic.rest(), "it waits for the first"
        solo.advance(0.1)
        asked = solo.sent_to(parent.peer, FetchRange)
    assert not topic.rest()
    first = event_of(identity("bob"), topic.descriptor, 1)
    solo.hear(parent.peer, Range(asked[0].request, topic.id, (first.block,), more=False))
    assert solo.cids() == [second.cid, first.cid]
    solo.advance(RESTED_S)
    assert topic.rest()


def test_an_answer_to_an_earlier_life_of_the_parts_is_not_taken_for_another() -> None:
    solo, (topic,), parent = child("a")
    arrives(solo, topic, 2)
    solo.advance(RESTED_S * 4)
    assert topic.rest(), "nobody had it"
    arrives(solo, topic, 4)
    solo.advance(RESTED_S)
    asked = [each.request for each in solo.sent_to(parent.peer, FetchRange)]
    assert len(asked) > 1
    assert len(set(asked)) == len(asked)


def test_a_stranger_that_asks_in_every_topic_makes_none_keep_its_parts() -> None:
    solo, topics, _ = child(*map(str, range(20)))
    for topic in topics:
        solo.hear(
            MALLORY.peer_id,
            FetchStart(topic.id, b"", (b"",)),
            FetchRange(1, topic.id, MALLORY.peer_id, EPOCH, 1, 1),
            FrontierPage(topic.id, (MarkState(MALLORY.peer_id, EPOCH, 0, 0, None),), answer=True),
            CompareFrontiers(topic.id, (FrontierPart(b"", bytes(32)),)),
        )
    assert solo.node.footprint()["at_work"] <= len(topics)
    solo.advance(RESTED_S)
    assert solo.node.footprint()["at_work"] == 0


def test_topics_that_all_wake_at_once_lose_nothing_and_sleep_again() -> None:
    solo, topics, _ = child(*map(str, range(50)))
    assert solo.node.footprint()["at_work"] == 0
    events = [arrives(solo, topic, 1).cid for topic in topics]
    assert solo.node.footprint()["at_work"] == len(topics)
    assert solo.cids() == events
    solo.advance(RESTED_S)
    assert solo.node.footprint()["at_work"] == 0


def test_a_topic_that_drops_old_events_keeps_the_parts_that_do_so() -> None:
    lab = Lab(2)
    topic = lab.create(AUTHOR, unordered(retention=Retention(count=1)))
    lab.subscribe([MEMBER], topic)
    lab.publish(AUTHOR, topic, b"old")
    kept = lab.publish(AUTHOR, topic, b"new")
    lab.run(3 * lab.world.node(MEMBER).parameters.retention_interval_s)
    assert [event.cid for event in lab.log(MEMBER, topic)] == [kept]
