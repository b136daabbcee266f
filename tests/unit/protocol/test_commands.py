"""What an application asks, and what it is answered: topics made, filters nobody can serve."""

import pytest

from pulsarcast.model import trace
from pulsarcast.model.errors import LocalError, Unavailable
from pulsarcast.model.topics import (
    AttributeRule,
    DeliveryOrder,
    Dissemination,
    EventLinking,
    Retention,
    TopicSettings,
)
from pulsarcast.protocol.commands.publications import nonce_of
from pulsarcast.protocol.inputs import SubscribeContent, UpdateTopic
from pulsarcast.protocol.topic import versions
from tests.support.people import ALICE, BOB, meta_of, topic_of, unordered
from tests.support.solo import Parent, Solo, below


def test_a_new_topic_is_traced_with_what_its_author_chose() -> None:
    settings = TopicSettings(
        order=DeliveryOrder.PER_PUBLISHER,
        dissemination=Dissemination.CUBE,
        publishers=(BOB.peer_id,),
        linking=EventLinking.CUSTOM,
        retention=Retention(60, 1000, 1 << 20),
    )
    solo = Solo().start()
    topic = solo.create(settings, name="weather")
    (record,) = (each for each in solo.records if isinstance(each, trace.TopicCreated))
    assert (record.topic, record.version, record.name) == (topic, topic, "weather")
    assert record.author == solo.me
    assert (record.order, record.dissemination) == (
        DeliveryOrder.PER_PUBLISHER,
        Dissemination.CUBE,
    )
    assert record.allowed == (BOB.peer_id,)
    assert record.linking is EventLinking.CUSTOM
    kept = (record.retention_age_s, record.retention_count, record.retention_bytes)
    assert kept == (60, 1000, 1 << 20)


def test_who_asks_for_filters_where_no_member_answers_is_told_so() -> None:
    settings = unordered(
        content_routing=True, attributes=(AttributeRule("price", "float", 0.0, 9.0),)
    )
    topic = topic_of(ALICE, settings)
    solo = below(Parent("alice", [topic.block, meta_of(ALICE).block], takes_in=False))
    reply = solo.ask(lambda call: SubscribeContent(call, topic.cid, "price < 3"), patience_s=600.0)
    assert reply.refusal is not None
    assert reply.refusal.code == Unavailable.code


def test_an_author_that_has_made_all_versions_that_a_topic_may_have_is_told_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(versions, "VERSIONS_MAX", 2)
    solo = Solo().start()
    topic = solo.create()
    less, least = (unordered(payload_bytes_max=size) for size in (5, 4))
    assert solo.ask(lambda call: UpdateTopic(call, topic, less)).refusal is None
    refused = solo.ask(lambda call: UpdateTopic(call, topic, least))
    assert refused.refusal == LocalError("too many versions of a topic").refusal
    assert solo.version(topic).payload_bytes_max == 5


def test_an_idempotency_key_fixes_the_same_nonce_in_every_release() -> None:
    """Who asks again after an upgrade would else publish twice."""
    assert nonce_of(b"order 66").hex() == "225e0bb837ed6b8d1e2382623314479a"
