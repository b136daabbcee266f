"""Whole nodes whose topic gets other sequencers: who counts, who convinces, and who goes."""

import pytest

from pulsarcast.model.certificates import make_certificate, sign_place
from pulsarcast.model.events import Position, Sequence, publish_request
from pulsarcast.model.ids import Cid
from pulsarcast.model.requests import sign_request
from pulsarcast.model.topics import DeliveryOrder, TopicDescriptor, TopicSettings
from pulsarcast.protocol.inputs import MessageReceived, UpdateTopic
from pulsarcast.protocol.messages import EventMessage
from pulsarcast.protocol.sequencing import registry
from tests.support.lab import Lab

NODES = 8
AUTHOR, READER = 6, 7


def settings_of(lab: Lab, nodes: tuple[int, ...]) -> TopicSettings:
    peers = tuple(lab.peer(index) for index in nodes)
    return TopicSettings(order=DeliveryOrder.TOTAL, sequencers=peers)


def make_lab(*nodes: int) -> tuple[Lab, Cid]:
    """Some nodes, of which those order one topic; author and reader subscribe."""
    lab = Lab(NODES, seed=1, through_wire=True)
    topic = lab.create(AUTHOR, settings_of(lab, nodes))
    lab.subscribe((AUTHOR, READER), topic)
    lab.run(15.0)
    return lab, topic


def change(lab: Lab, topic: Cid, *nodes: int) -> None:
    settings = settings_of(lab, nodes)
    reply = lab.ask(AUTHOR, lambda call: UpdateTopic(call, topic, settings, None))
    assert reply.refusal is None
    lab.run(20.0)


def sequencers_of(lab: Lab, topic: Cid) -> set[int]:
    return {
        index
        for index in range(NODES)
        if topic in lab.world.node(index).sequencer_registry.by_topic
    }


def versions(lab: Lab, index: int, topic: Cid) -> list[TopicDescriptor]:
    return lab.world.node(index).topics[topic].versions.all()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ((0, 1, 2), (3, 4, 5)),
        ((0, 1, 2), (0, 1, 2, 3, 4)),
        ((0, 1, 2), (2,)),
        ((0, 1), (1, 2, 3)),
    ],
)
def test_others_take_over_and_the_order_goes_on(old: tuple[int, ...], new: tuple[int, ...]) -> None:
    lab, topic = make_lab(*old)
    sent = [lab.publish(AUTHOR, topic, b"%d" % number) for number in range(3)]
    change(lab, topic, *new)
    assert sequencers_of(lab, topic) == set(new)
    sent += [lab.publish(READER, topic, b"%d" % number) for number in range(3)]
    lab.run(5.0)
    events = [lab.event(cid) for cid in lab.delivered(READER, topic)]
    assert [event.cid for event in events if not event.is_silent] == sent
    assert [event.sequence.number for event in events] == [1, 2, 3, 4, 5, 6, 7]
    first, second = versions(lab, READER, topic)
    assert events[3].hands_over_to == second.cid
    assert [event.version for event in events] == 4 * [first.cid] + 3 * [second.cid]
    assert {event.publisher for event in events[4:]} <= {lab.peer(index) for index in new}


def test_one_left_alone_gets_successors_again() -> None:
    lab, topic = make_lab(0, 1, 2)
    change(lab, topic, 1)
    lab.publish(AUTHOR, topic, b"alone")
    change(lab, topic, 1, 3, 4)
    lab.publish(AUTHOR, topic, b"not alone")
    assert sequencers_of(lab, topic) == {1, 3, 4}


def test_a_topic_that_began_with_one_sequencer_keeps_one() -> None:
    lab, topic = make_lab(0)
    several = settings_of(lab, (0, 1, 2))
    reply = lab.ask(AUTHOR, lambda call: UpdateTopic(call, topic, several, None))
    assert reply.refusal is not None
    assert "began with one sequencer" in reply.refusal.message


def test_replaced_sequencers_convince_nobody_who_has_the_handover() -> None:
    lab, topic = make_lab(0, 1, 2)
    last = lab.publish(AUTHOR, topic, b"the last of the old ones")
    change(lab, topic, 3, 4, 5)
    handover = lab.delivered(READER, topic)[-1]
    assert lab.event(handover).parents == (last,)
    lie(lab, topic, Position(99, 3), handover)
    lab.run(5.0)
    assert lab.delivered(READER, topic)[-1] == handover
    assert "bad_certificate" in lab.reasons(READER)
    # Nor do they after a restart, and nor do they stop the topic.
    lab.world.kill(READER)
    lab.world.restart(READER)
    lab.run(10.0)
    lie(lab, topic, Position(99, 3), handover)
    sent = lab.publish(AUTHOR, topic, b"the first of the new ones")
    lie(lab, topic, Position(99, 3), handover)
    lab.run(5.0)
    assert lab.delivered(READER, topic)[-1] == sent
    assert lab.world.node(READER).topics[topic].halted is None


def lie(lab: Lab, topic: Cid, place: Position, parent: Cid) -> None:
    """All of the old sequencers sign something, behind their end."""
    old = [lab.world.node(index).turn.identity for index in (0, 1, 2)]
    asked = sign_request(
        old[0],
        topic=topic,
        payload=b"a lie",
        created=1,
        nonce=bytes(16),
        sequence=Sequence(7, 1),
    )
    event = publish_request(
        old[0],
        asked,
        version=topic,
        sequence=Sequence(0, place.number),
        parents=(parent,),
        position=place,
    )
    signatures = {each.peer_id: sign_place(each, topic, place, event.cid) for each in old}
    peers = tuple(each.peer_id for each in old)
    certificate = make_certificate(peers, signatures)
    process = lab.world._hosts[READER].process
    assert process is not None
    process.take(MessageReceived(lab.peer(0), EventMessage(event.block, 1, certificate)))


def test_a_latecomer_holds_old_events_against_the_old_list() -> None:
    lab, topic = make_lab(0, 1, 2)
    sent = [lab.publish(AUTHOR, topic, b"%d" % number) for number in range(3)]
    change(lab, topic, 3, 4, 5)
    sent += [lab.publish(AUTHOR, topic, b"%d" % number) for number in range(3)]
    lab.subscribe([2], topic, from_start=True)
    lab.run(20.0)
    events = [lab.event(cid) for cid in lab.delivered(2, topic)]
    assert [event.cid for event in events if not event.is_silent] == sent


def test_who_is_named_again_has_the_store_that_it_had() -> None:
    """A leader may have counted on it before we knew of the version that names us again."""
    lab, topic = make_lab(0, 1, 2)
    stores = [
        lab.world.node(index).sequencer_registry.by_topic[topic].sequencer.state.store
        for index in (0, 1, 2)
    ]
    change(lab, topic, 3, 4, 5)
    assert sequencers_of(lab, topic) == {3, 4, 5}
    lab.world.kill(1)
    lab.world.restart(1)
    change(lab, topic, 0, 1, 2)
    again = [
        lab.world.node(index).sequencer_registry.by_topic[topic].sequencer.state.store
        for index in (0, 1, 2)
    ]
    assert again == stores


def test_what_replaced_sequencers_keep_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "FORMER_MAX", 0)
    lab, topic = make_lab(0, 1, 2)
    change(lab, topic, 3, 4, 5)
    for index in (0, 1, 2):
        lab.world.kill(index)
        lab.world.restart(index)
        kept = lab.world.node(index).sequencer_registry
        assert (kept._loaded_rows, kept._loaded_entries, kept._former) == ({}, {}, {})
