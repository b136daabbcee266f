"""Renewal: which announced versions are adopted, and who hears of it."""

from typing import Any, cast

from pulsarcast.model import trace
from pulsarcast.model.topics import META
from pulsarcast.protocol.effects import Persist, Trace
from pulsarcast.protocol.following.renewal import Renewal
from tests.support.parts import Core
from tests.support.people import BOB, event_of, meta_of, topic_of, version_of

TOPIC = topic_of(BOB)
SECOND = version_of(TOPIC, signer=BOB)
THIRD = version_of(SECOND, signer=BOB)


def renewal_of(core: Core) -> Renewal:
    return Renewal(core.context, core.followed, core.descriptors, cast("Any", core.owner))


def test_an_announced_version_is_saved_and_then_told() -> None:
    core = Core()
    topic, meta = core.topic(TOPIC), core.topic(meta_of(BOB))
    assert topic.descriptor.subtopics[META] == meta.id
    core.sync()
    core.turn.effects.clear()
    renewal_of(core).announced(meta, event_of(BOB, meta_of(BOB), payload=SECOND.block))
    assert topic.descriptor.cid == SECOND.cid
    kinds = [type(each) for each in core.turn.effects]
    assert kinds.index(Persist) < kinds.index(Trace)
    assert core.owner.told == ["renewed"]


def test_a_version_is_not_believed_in_another_topics_meta_topic() -> None:
    core = Core()
    topic, other = core.topic(TOPIC), core.topic(meta_of(BOB, "other"))
    renewal_of(core).announced(other, event_of(BOB, meta_of(BOB, "other"), payload=SECOND.block))
    assert topic.descriptor.cid == TOPIC.cid
    assert [type(each.record) for each in core.wanted(Trace)] == [trace.Rejected]
    assert core.owner.told == []


def test_the_version_in_between_is_looked_up_and_both_are_adopted_in_order() -> None:
    core = Core()
    topic, meta = core.topic(TOPIC), core.topic(meta_of(BOB))
    renewal_of(core).announced(meta, event_of(BOB, meta_of(BOB), payload=THIRD.block))
    assert core.network.found(THIRD.block) == THIRD.cid
    assert core.network.found(SECOND.block) == SECOND.cid
    records = [each.record for each in core.wanted(Trace)]
    adopted = [each.version for each in records if isinstance(each, trace.TopicVersion)]
    assert adopted == [SECOND.cid, THIRD.cid]
    assert topic.descriptor.cid == THIRD.cid


def test_a_version_found_after_the_node_left_the_topic_changes_nothing() -> None:
    core = Core()
    topic = core.topic(TOPIC)
    renewal_of(core).find(topic, SECOND.cid, BOB.peer_id)
    del core.followed.members[topic.id]
    core.network.found(SECOND.block)
    assert topic.descriptor.cid == TOPIC.cid
    assert core.owner.told == []
