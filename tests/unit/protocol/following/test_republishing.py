"""Republishing: a topic is found for as long as somebody follows it, however old it is."""

import pytest

from pulsarcast.model.ids import Cid
from pulsarcast.protocol.dht.expiry import TOPIC_FACTOR
from pulsarcast.protocol.following import republishing
from pulsarcast.protocol.following.republishing import Republishing
from pulsarcast.protocol.inputs import Subscribe, Walk
from pulsarcast.protocol.messages import StoreBlocks
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.topic.versions import Versions
from tests.support.lab import Lab
from tests.support.parts import Core
from tests.support.people import ALICE, CREATED_US, topic_of, unordered

EXPIRY_S = 60.0
LIFE_S = TOPIC_FACTOR * EXPIRY_S
AUTHOR, MEMBER, PUBLISHER, STRANGER = range(4)


def old_topic() -> tuple[Lab, Cid]:
    """A topic with a newer version, whose time is over long since; its author is gone."""
    lab = Lab(8, seed=5, parameters=Parameters(block_expiry_s=EXPIRY_S))
    topic = lab.create(AUTHOR)
    lab.subscribe([MEMBER], topic)
    lab.update(AUTHOR, topic, unordered(publishers=(lab.peer(PUBLISHER),)))
    lab.run(LIFE_S / 2)
    lab.world.lose(AUTHOR)
    lab.run(LIFE_S / 2 + 5 * EXPIRY_S)
    return lab, topic


def test_who_follows_a_topic_keeps_it_findable_in_all_its_versions() -> None:
    lab, topic = old_topic()
    lab.subscribe([STRANGER], topic, from_start=True)
    event = lab.publish(PUBLISHER, topic)
    assert lab.delivered(STRANGER, topic) == [event], "which the first version does not allow"


def test_it_is_kept_over_the_last_members_restart() -> None:
    lab, topic = old_topic()
    lab.world.kill(MEMBER)
    lab.run(EXPIRY_S / 2)
    lab.world.restart(MEMBER)
    lab.run(EXPIRY_S)
    lab.subscribe([STRANGER], topic)


def test_the_marks_that_a_version_names_are_kept_as_long_as_the_version() -> None:
    lab = Lab(8, seed=5, parameters=Parameters(block_expiry_s=EXPIRY_S, version_marks=1))
    topic = lab.create(AUTHOR)
    lab.subscribe([MEMBER, PUBLISHER], topic)
    before = [lab.publish(index, topic) for index in (MEMBER, PUBLISHER)]
    lab.update(AUTHOR, topic, unordered(publishers=(lab.peer(AUTHOR),)))
    lab.run(LIFE_S + 5 * EXPIRY_S)
    after = lab.publish(AUTHOR, topic)
    walked = lab.ask(STRANGER, lambda call: Walk(call, after, 1))
    assert walked.refusal is None
    lab.subscribe([STRANGER], topic, from_start=True)
    lab.run(2 * EXPIRY_S)
    assert lab.world.node(STRANGER).footprint()["mark_blocks"]
    assert set(lab.delivered(STRANGER, topic)) == {*before, after}


def test_what_nobody_follows_any_more_is_forgotten() -> None:
    lab, topic = old_topic()
    lab.unsubscribe(MEMBER, topic)
    lab.run(3 * EXPIRY_S)
    reply = lab.ask(STRANGER, lambda call: Subscribe(call, topic))
    assert reply.refusal is not None


def test_nobody_asks_before_the_time_is_nearly_up() -> None:
    lab = Lab(8, parameters=Parameters(block_expiry_s=EXPIRY_S))
    topic = lab.create(AUTHOR)
    lab.subscribe([MEMBER], topic)
    lab.said.clear()
    lab.run(LIFE_S - EXPIRY_S - 2 * lab.world.now)
    assert not lab.messages(StoreBlocks, sender=MEMBER)
    lab.run(2 * EXPIRY_S)
    assert lab.messages(StoreBlocks, sender=MEMBER)


def test_many_topics_are_asked_for_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(republishing, "BATCH", 2)
    lab = Lab(8, parameters=Parameters(block_expiry_s=EXPIRY_S))
    topics = [lab.create(AUTHOR, name=f"topic {number}") for number in range(6)]
    lab.run(LIFE_S + 2 * EXPIRY_S)
    lab.said.clear()
    lab.run(EXPIRY_S)
    asked = lab.messages(StoreBlocks, sender=AUTHOR)
    assert {len(message.blocks) for message in asked} <= {1, 2}
    assert len({block for message in asked for block in message.blocks}) == 2 * len(topics)
    lab.subscribe([STRANGER], topics[-1])


def test_versions_that_end_soon_are_asked_for_batch_by_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(republishing, "BATCH", 2)
    core = Core(parameters=Parameters(block_expiry_s=EXPIRY_S))
    topics = [topic_of(ALICE, name=name) for name in ("one", "two", "three")]
    for each in topics:
        core.descriptors.follow(Versions(each))
    core.descriptors.keep(Versions(topic_of(ALICE, name="not followed")))
    core.turn.wall_us = CREATED_US + int((LIFE_S - EXPIRY_S + 1) * 1_000_000)
    Republishing(core.context, core.dht, core.descriptors, core.listings, core.names).start({})
    core.fire()
    ((blocks, then),) = core.network.storing
    assert blocks == [each.block for each in topics[:2]]
    core.network.storing.clear()
    then([3, 3])
    assert core.network.storing == [], "the node pauses between two batches"
    core.fire()
    assert [blocks for blocks, _ in core.network.storing] == [[topics[2].block]]
