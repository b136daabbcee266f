"""Commands about topics on their own: the order in which a new topic becomes known."""

from typing import cast

from pulsarcast.model.errors import NotAllowed, NotFollowed
from pulsarcast.model.topics import META, decode_topic
from pulsarcast.protocol.commands.announcing import Announcing
from pulsarcast.protocol.commands.topics import TopicCommands
from pulsarcast.protocol.inputs import CreateTopic, UpdateTopic
from tests.support.parts import Core
from tests.support.people import BOB, meta_of, topic_of, unordered


def commands_of(core: Core) -> TopicCommands:
    return TopicCommands(
        core.context,
        core.following,
        core.dht,
        core.renewal,
        cast("Announcing", None),
        core.listings,
        core.names,
    )


def refused(core: Core) -> str:
    (reply,) = core.replies()
    assert reply.refusal is not None
    return reply.refusal.code


def test_a_new_topic_is_stored_then_named_then_joined_then_answered() -> None:
    core = Core()
    commands_of(core).handle(CreateTopic(7, "news", unordered()))
    (looked_up,) = core.network.resolving
    assert core.network.storing == []
    looked_up(None)
    ((blocks, stored),) = core.network.storing
    meta, topic = (decode_topic(block) for block in blocks)
    assert topic.subtopics[META] == meta.cid
    assert core.network.pointing == []
    stored([3, 2])
    ((_, pointed),) = core.network.pointing
    assert core.following.topics == {}
    pointed(3)
    assert topic.cid in core.following.topics
    while not (replies := core.replies()) and (core.sync() or core.fire()):
        for _, then in core.network.lookups:
            then([])
        core.network.lookups.clear()
    (reply,) = replies
    assert (reply.call, reply.cid, reply.replicas) == (7, topic.cid, 2)


def test_a_topic_that_is_not_followed_gets_no_new_version() -> None:
    core = Core()
    commands_of(core).handle(UpdateTopic(7, topic_of(BOB).cid, unordered()))
    assert refused(core) == NotFollowed("").refusal.code


def test_only_the_author_makes_a_new_version() -> None:
    core = Core()
    topic = core.topic(topic_of(BOB))
    core.topic(meta_of(BOB))
    commands_of(core).handle(UpdateTopic(7, topic.id, unordered()))
    assert refused(core) == NotAllowed("").refusal.code
    assert core.network.storing == []
