"""Publishing commands on their own: what the topic lets a caller do, once per idempotency key."""

import pytest

from pulsarcast.model.errors import LocalError, NotAllowed, TooLarge
from pulsarcast.model.identity import Identity
from pulsarcast.model.ids import cid_of
from pulsarcast.model.topics import EventLinking, TopicDescriptor, TopicSettings
from pulsarcast.protocol.commands.publications import PublishCommands
from pulsarcast.protocol.commands.reading import ReadCommands
from pulsarcast.protocol.effects import Load
from pulsarcast.protocol.inputs import Publish
from pulsarcast.protocol.publishing.pacing import Pacing
from pulsarcast.protocol.store import Block, PutEvent
from pulsarcast.protocol.topic.versions import Versions
from tests.support.parts import Core
from tests.support.people import ALICE, BOB, topic_of, unordered

KEY = b"once"


class Desk:
    """The commands of publishers about one topic that the node does not follow."""

    def __init__(self, topic: TopicDescriptor, who: Identity = ALICE) -> None:
        self.core = core = Core(who)
        core.descriptors.keep(Versions(topic))
        core.sync()
        self.commands = PublishCommands(
            core.context,
            core.following,
            core.descriptors,
            ReadCommands(core.context, core.following, core.dht, core.walks, core.names),
            core.fencing,
            core.publisher,
            core.outbox,
            Pacing(core.dht),
        )

    def refused(self) -> str:
        (reply,) = self.core.replies()
        assert reply.refusal is not None
        return reply.refusal.code


def test_two_calls_with_one_idempotency_key_make_one_event() -> None:
    topic = topic_of(ALICE)
    desk = Desk(topic)
    for call in (7, 8):
        desk.commands.handle(Publish(call, topic.cid, b"hello", idempotency_key=KEY))
    desk.core.load(Block(None))
    written = desk.core.sync()
    assert sum(isinstance(each, PutEvent) for each in written) == 1
    first, second = desk.core.replies()
    assert (first.call, second.call) == (7, 8)
    assert first.cid == second.cid is not None


def test_a_key_that_was_used_before_is_answered_with_its_event() -> None:
    topic = topic_of(ALICE)
    desk = Desk(topic)
    desk.commands.handle(Publish(7, topic.cid, b"hello", idempotency_key=KEY))
    desk.core.load(Block(None))
    (event,) = [each.event for each in desk.core.sync() if isinstance(each, PutEvent)]
    desk.core.replies()
    desk.commands.handle(Publish(8, topic.cid, b"hello", idempotency_key=KEY))
    desk.core.load(Block(event.block))
    (reply,) = desk.core.replies()
    assert (reply.call, reply.cid) == (8, event.cid)
    assert desk.core.sync() == []


def test_a_payload_larger_than_the_topic_allows_takes_no_number() -> None:
    topic = topic_of(ALICE, unordered(payload_bytes_max=4))
    desk = Desk(topic)
    desk.commands.handle(Publish(7, topic.cid, b"hello"))
    assert desk.refused() == TooLarge("").refusal.code
    assert desk.core.numberings.last_of(topic.cid) is None


@pytest.mark.parametrize("may_request", [False, True])
def test_a_peer_that_may_not_publish_requests_it_where_it_may(may_request: bool) -> None:
    settings = TopicSettings(publishers=(ALICE.peer_id,), request_to_publish=may_request)
    topic = topic_of(ALICE, settings)
    desk = Desk(topic, BOB)
    desk.commands.handle(Publish(7, topic.cid, b"hello"))
    if may_request:
        assert desk.core.replies() == []
        assert desk.core.outbox.has(topic.cid)
    else:
        assert desk.refused() == NotAllowed("").refusal.code


def test_a_parent_that_does_not_exist_is_refused() -> None:
    topic = topic_of(ALICE, unordered(linking=EventLinking.CUSTOM))
    desk = Desk(topic)
    desk.commands.handle(Publish(7, topic.cid, b"hello", parents=(cid_of(b"parent"),)))
    desk.core.load(Block(None))
    desk.core.network.found(None)
    assert desk.refused() == LocalError("").refusal.code
    assert desk.core.wanted(Load) == []
