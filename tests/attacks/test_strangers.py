"""A stranger and a topic whose author said nothing of publishers: its events go nowhere.

Thesis, 4.1.3.1: only the author publishes, and other peers may ask it to. The stranger's own node,
the peers that it hands its events to and the members of the topic all refuse them, whichever way
they come; its requests are answered as the topic says.
"""

from pathlib import Path

import pytest
import trio

from pulsarcast.model.errors import NotAllowed
from pulsarcast.model.ids import Cid
from pulsarcast.model.topics import Dissemination, TopicSettings
from pulsarcast.network.node import Node
from pulsarcast.protocol.inputs import Publish
from pulsarcast.protocol.messages import (
    EventMessage,
    RequestAnswered,
    RequestToPublish,
    StoreBlocks,
)
from pulsarcast.wire.codec import encode
from pulsarcast.wire.framing import write_frames
from tests.support.lab import Lab
from tests.support.people import event_for, event_of, request_of

AUTHOR, MEMBERS, OUTSIDER, STRANGER = 0, (1, 2), 3, 4


def scene(settings: TopicSettings) -> tuple[Lab, Cid]:
    """An author, two members, a peer that does not follow the topic, and a puppet."""
    lab = Lab(5, puppets=[STRANGER])
    topic = lab.create(AUTHOR, settings)
    lab.subscribe([AUTHOR, *MEMBERS], topic)
    return lab, topic


def assert_nothing_came_of_it(lab: Lab, topic: Cid) -> None:
    """No member delivered, kept or forwarded anything: the author's next event is the first."""
    assert not lab.messages(EventMessage)
    real = lab.publish(AUTHOR, topic, b"the author's")
    lab.run(30.0)
    for index in (AUTHOR, *MEMBERS):
        assert lab.delivered(index, topic) == [real]
        assert [event.cid for event in lab.log(index, topic)] == [real]


@pytest.mark.parametrize("travel", Dissemination)
def test_a_strangers_event_is_refused_by_every_member(travel: Dissemination) -> None:
    lab, topic = scene(TopicSettings(dissemination=travel))
    stranger = lab.puppets[STRANGER].identity
    forged = event_of(stranger, lab.topic(topic))
    for index in (AUTHOR, *MEMBERS):
        lab.say(STRANGER, lab.peer(index), EventMessage(forged.block, 1))
        assert lab.reasons(index) == ["not_allowed"]
    assert_nothing_came_of_it(lab, topic)


def test_a_strangers_event_of_a_request_that_the_author_signed_is_refused() -> None:
    """The author's name in an event does not give its publisher the right to publish."""
    lab, topic = scene(TopicSettings())
    stranger = lab.puppets[STRANGER].identity
    author = lab.world.node(AUTHOR).turn.identity
    forged = event_for(stranger, request_of(author, topic), lab.topic(topic))
    lab.say(STRANGER, lab.peer(MEMBERS[0]), EventMessage(forged.block, 1))
    assert lab.reasons(MEMBERS[0]) == ["not_allowed"]
    assert_nothing_came_of_it(lab, topic)


@pytest.mark.parametrize("is_open", [False, True], ids=["default", "open"])
def test_a_strangers_event_that_replicas_were_made_to_keep_is_refused_by_members(
    is_open: bool,
) -> None:
    """A replica hands in what it keeps (docs/spec/pulsarcast.md): members judge that too."""
    lab, topic = scene(TopicSettings(open=is_open))
    stranger = lab.puppets[STRANGER].identity
    forged = event_of(stranger, lab.topic(topic))
    for index in (AUTHOR, *MEMBERS, OUTSIDER):
        lab.say(STRANGER, lab.peer(index), StoreBlocks(2, (forged.block,)))
    lab.run(120.0)
    wanted = [forged.cid] if is_open else []
    for index in (AUTHOR, *MEMBERS):
        assert lab.delivered(index, topic) == wanted
        assert [event.cid for event in lab.log(index, topic)] == wanted


def test_a_strangers_request_is_published_by_the_author_with_both_names() -> None:
    lab, topic = scene(TopicSettings())
    event = lab.event(lab.publish(OUTSIDER, topic, b"please"))
    assert (event.author, event.publisher) == (lab.peer(OUTSIDER), lab.peer(AUTHOR))
    lab.run(20.0)
    assert all(lab.delivered(index, topic) == [event.cid] for index in MEMBERS)


@pytest.mark.parametrize("requesters", [None, MEMBERS], ids=["no requests", "of members alone"])
def test_a_request_that_the_topic_does_not_take_is_refused(
    requesters: tuple[int, ...] | None,
) -> None:
    """By the stranger's own node; and by the author, if it asks nevertheless."""
    lab = Lab(5, puppets=[STRANGER])
    settings = (
        TopicSettings(request_to_publish=False)
        if requesters is None
        else TopicSettings(requesters=tuple(map(lab.peer, requesters)))
    )
    topic = lab.create(AUTHOR, settings)
    lab.subscribe([AUTHOR, *MEMBERS], topic)
    refusal = lab.ask(OUTSIDER, lambda call: Publish(call, topic, b"please")).refusal
    assert refusal is not None
    assert refusal.code == NotAllowed("").refusal.code
    assert "ask the topic's author" in refusal.message
    assert not lab.messages(RequestToPublish)
    stranger = lab.puppets[STRANGER]
    asked = request_of(stranger.identity, topic)
    lab.say(STRANGER, lab.peer(AUTHOR), RequestToPublish(asked.block, replicated=False, settled=0))
    [answer] = [said for _, said in stranger.heard if isinstance(said, RequestAnswered)]
    assert (answer.event, answer.code) == (None, refusal.code)
    assert_nothing_came_of_it(lab, topic)


def test_a_member_that_a_new_version_no_longer_names_is_a_stranger() -> None:
    """The author opens the topic and closes it again."""
    lab, topic = scene(TopicSettings())
    lab.update(AUTHOR, topic, TopicSettings(open=True))
    lab.run(20.0)
    stranger = lab.puppets[STRANGER].identity
    versions = [lab.world.node(MEMBERS[0]).topics[topic].descriptor]
    lab.update(AUTHOR, topic, TopicSettings())
    lab.run(20.0)
    versions.append(lab.world.node(MEMBERS[0]).topics[topic].descriptor)
    assert [version.allowed_publishers is None for version in versions] == [True, False]
    for number, version in enumerate(versions, start=1):
        forged = event_of(stranger, version, number)
        lab.say(STRANGER, lab.peer(MEMBERS[0]), EventMessage(forged.block, 1))
    lab.run(20.0)
    assert all(lab.delivered(index, topic) == [] for index in (AUTHOR, *MEMBERS))


def test_on_real_nodes_a_strangers_event_is_refused_and_its_request_published(
    tmp_path: Path,
) -> None:
    async def play() -> None:
        async with (
            Node.open(tmp_path / "ann") as ann,
            Node.open(tmp_path / "ben", bootstrap=ann.addresses) as ben,
            Node.open(tmp_path / "eve", bootstrap=ann.addresses) as eve,
        ):
            topic = await ann.create_topic("weather")
            quiet = await ann.create_topic("quiet", TopicSettings(request_to_publish=False))
            events = [await node.subscribe(topic) for node in (ann, ben)]
            with pytest.raises(NotAllowed, match="ask the topic's author"):
                await eve.publish(quiet, b"me too")
            forged = event_of(eve._running.core.turn.identity, topic.descriptor)
            frame = write_frames([encode(EventMessage(forged.block, 0))])
            for node in (ann, ben):
                eve._running.neighbours.send(node.identity, frame)
            eve._running.neighbours.flush()
            published = await eve.publish(topic, b"please", ack="accepted")
            for each in events:
                event = await anext(each)
                assert event.id == published.id, "nothing came before it"
                assert (event.author, event.publisher) == (eve.peer_id, ann.peer_id)
            for node in (ann, ben):
                assert [event.id async for event in node.history(topic)] == [published.id]

    async def bounded() -> None:
        with trio.fail_after(60):
            await play()

    trio.run(bounded)
