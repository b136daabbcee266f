"""A topic followed by content, on its own: its start, its filters and its order of effects."""

from pulsarcast.model import trace
from pulsarcast.model.filters import parse
from pulsarcast.model.ids import Cid
from pulsarcast.protocol.content.following import ContentTopic
from pulsarcast.protocol.effects import Deliver, Trace
from pulsarcast.protocol.store import PutEvent, PutMark
from pulsarcast.protocol.topic.versions import Versions
from tests.support.people import BOB, EPOCH
from tests.unit.protocol.content.parts import Parts
from tests.unit.protocol.content.stage import SCHEMA, TOPIC, WHERE, event_at

CHEAP, DEAR = event_at(10.0, number=3), event_at(90.0, number=4)


def topic_of(parts: Parts) -> ContentTopic:
    topic = ContentTopic(parts.context, Versions(TOPIC), parts.spaces, parts.core.dht)
    topic.want(1, 1, parse(WHERE, SCHEMA))
    return topic


def stored(parts: Parts) -> list[Cid]:
    """Events that are written to the disk."""
    return [each.event.cid for each in parts.core.sync() if isinstance(each, PutEvent)]


def test_a_subscriber_hears_of_its_start_once_that_is_on_the_disk() -> None:
    parts, heard = Parts(), list[str]()
    topic = topic_of(parts)
    topic.wait(1, lambda: heard.append("began"), lambda: heard.append("failed"))
    topic.receive(CHEAP, 1, routed=True)
    assert stored(parts) == [], "before the start no event is due"
    topic.start({(BOB.peer_id, EPOCH): 2})
    assert heard == []
    assert any(isinstance(each, PutMark) for each in parts.core.sync())
    assert heard == ["began"]
    assert [type(each.record) for each in parts.core.wanted(Trace)] == [trace.Subscribed]


def test_a_matching_event_is_delivered_once_and_from_the_disk() -> None:
    parts = Parts()
    topic = topic_of(parts)
    topic.start({(BOB.peer_id, EPOCH): 2})
    parts.core.sync()
    for _ in range(2):
        topic.receive(CHEAP, 1, routed=True)
    assert parts.core.wanted(Deliver) == []
    assert stored(parts) == [CHEAP.cid]
    assert [each.event.cid for each in parts.core.wanted(Deliver)] == [CHEAP.cid]


def test_an_event_that_no_filter_matches_is_not_kept() -> None:
    parts = Parts()
    topic = topic_of(parts)
    topic.start({(BOB.peer_id, EPOCH): 2})
    parts.core.sync()
    topic.receive(DEAR, 1, routed=True)
    assert stored(parts) == []
