"""What is left out of an input, an effect, a message or a row means that there is nothing of it."""

import pytest

from pulsarcast.model.ids import cid_of
from pulsarcast.model.topic_types import TopicSettings
from pulsarcast.protocol.content.messages import CompareContent
from pulsarcast.protocol.effects import Reply
from pulsarcast.protocol.inputs import Publish, UpdateTopic
from pulsarcast.protocol.sequencing.messages import Appended
from pulsarcast.protocol.store import MarkState, PutEvent
from tests.support.people import BOB, EPOCH, event_of, topic_of

TOPIC = cid_of(b"topic")
MARK = MarkState(BOB.peer_id, EPOCH, 0, 1, None)
EVENT = event_of(BOB, topic_of(BOB))


@pytest.mark.parametrize(
    ("made", "meant"),
    [
        (Reply(1), {"refusal": None, "cid": None, "block": None, "replicas": 0, "events": ()}),
        (UpdateTopic(1, TOPIC, TopicSettings()), {"subtopics": None, "flush": False}),
        (Publish(1, TOPIC, b""), {"name": "", "attributes": {}, "parents": (), "injection": ""}),
        (CompareContent(1, TOPIC, (), 0, 0, 0, b""), {"marks": (), "fresh": False}),
        (Appended(TOPIC, 1, b"", True, 0, 0), {"signatures": ()}),
        (MARK, {"beyond": (), "retired": 0}),
        (PutEvent(1, EVENT, MARK, 0), {"asked_for": True, "certificate": b""}),
    ],
    ids=lambda each: None if isinstance(each, dict) else type(each).__name__,
)
def test_what_is_left_out_means(made: object, meant: dict[str, object]) -> None:
    assert {name: getattr(made, name) for name in meant} == meant
