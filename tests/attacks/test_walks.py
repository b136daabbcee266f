"""Walks past hostile members and hostile publishers: what is given is what the links name."""

from collections.abc import Callable, Iterable

import pytest

from pulsarcast.model.events import EventDescriptor, Sequence, publish_own
from pulsarcast.model.identity import Identity
from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.model.lineage import Gap, Missing
from pulsarcast.model.topics import EventLinking, TopicSettings
from pulsarcast.protocol.effects import Reply
from pulsarcast.protocol.history import open_events, walk
from pulsarcast.protocol.inputs import Walk
from pulsarcast.protocol.messages import FetchRange, Message, Range, StoreBlocks, WantBlocks
from pulsarcast.protocol.store import PutBlock
from tests.support.lab import Lab

LIAR = 5
STRANGER = 4

Answer = Callable[[PeerId, Message], Iterable[tuple[PeerId, Message]]]


CUSTOM = TopicSettings(linking=EventLinking.CUSTOM, open=True)


def lab_with_liar(count: int, settings: TopicSettings | None = None) -> tuple[Lab, Cid, list[Cid]]:
    """A topic with events, a liar, and a stranger that takes the liar for a member."""
    lab = Lab(6, puppets=[LIAR])
    topic = lab.create(0, settings)
    lab.subscribe([1], topic)
    cids = [
        lab.publish(0, topic, b"%d" % number, replicated=False, settle_s=0.1)
        for number in range(count)
    ]
    lab.run(2.0)
    remember(lab, topic)
    return lab, topic, cids


def remember(lab: Lab, topic: Cid) -> None:
    lab.world.node(STRANGER).walks._remember(topic).members = [lab.peer(LIAR), lab.peer(1)]


def walk_back(lab: Lab, cid: Cid, limit: int = 100) -> Reply:
    reply = lab.ask(STRANGER, lambda call: Walk(call, cid, limit))
    assert reply.refusal is None, reply.refusal
    return reply


def crafted(
    identity: Identity, topic: Cid, number: int, *, parents: tuple[Cid, ...] = (), epoch: int = 1
) -> EventDescriptor:
    """An event that its publisher signed, whatever the others think of it."""
    return publish_own(
        identity,
        topic=topic,
        version=topic,
        payload=b"crafted",
        created=0,
        nonce=bytes(16),
        sequence=Sequence(epoch, number),
        parents=parents,
    )


def keep(lab: Lab, event: EventDescriptor) -> None:
    """Put an event on the stranger's disk, as if it kept a replica."""
    lab.world.store(STRANGER).apply([PutBlock(event.cid, event.block, None, 0)])


def ranges(make: Callable[[FetchRange], Range]) -> Answer:
    def answer(sender: PeerId, message: Message) -> Iterable[tuple[PeerId, Message]]:
        if isinstance(message, FetchRange):
            yield sender, make(message)

    return answer


def silence(lab: Lab, topic: Cid) -> Answer:
    return lambda sender, message: ()


def garbage(lab: Lab, topic: Cid) -> Answer:
    return ranges(lambda asked: Range(asked.request, topic, (b"garbage",), True))


def another_topic(lab: Lab, topic: Cid) -> Answer:
    event = crafted(lab.puppets[LIAR].identity, lab.create(2), 1)
    return ranges(lambda asked: Range(asked.request, topic, (event.block,), True))


def another_numbering(lab: Lab, topic: Cid) -> Answer:
    event = crafted(lab.puppets[LIAR].identity, topic, 1)
    return ranges(lambda asked: Range(asked.request, topic, (event.block,), True))


def nothing_but_more(lab: Lab, topic: Cid) -> Answer:
    return ranges(lambda asked: Range(asked.request, topic, (), True))


def blocks_not_asked_for(lab: Lab, topic: Cid) -> Answer:
    event = crafted(lab.puppets[LIAR].identity, topic, 1)

    def answer(sender: PeerId, message: Message) -> Iterable[tuple[PeerId, Message]]:
        if isinstance(message, FetchRange):
            yield sender, Range(message.request, topic, (), False)
        elif isinstance(message, WantBlocks):
            yield sender, StoreBlocks(message.request, (event.block,))

    return answer


@pytest.mark.parametrize(
    "lie",
    [silence, garbage, another_topic, another_numbering, nothing_but_more, blocks_not_asked_for],
)
def test_a_member_that_lies_changes_nothing(lie: Callable[[Lab, Cid], Answer]) -> None:
    lab, topic, cids = lab_with_liar(6)
    lab.puppets[LIAR].answer = lie(lab, topic)
    remember(lab, topic)
    reply = walk_back(lab, cids[-1])
    assert [event.cid for event in reply.events] == cids[::-1]
    assert reply.gaps == ()
    assert reply.cursor == b""


def test_a_second_event_with_one_number_does_not_displace_the_one_that_is_linked() -> None:
    lab, topic, cids = lab_with_liar(4)
    real = lab.event(cids[-2])
    publisher = lab.world.node(0).turn.identity
    twin = crafted(publisher, topic, real.sequence.number, epoch=real.sequence.epoch)
    lab.puppets[LIAR].answer = ranges(
        lambda asked: Range(asked.request, topic, (twin.block,), False)
    )
    reply = walk_back(lab, cids[-1])
    assert [event.cid for event in reply.events] == cids[::-1]


def test_parents_without_end_fill_no_more_than_a_page() -> None:
    lab, topic, _ = lab_with_liar(1)
    mallory = lab.puppets[LIAR].identity
    chain: dict[int, EventDescriptor] = {}
    for number in range(1, 60):
        parents = (chain[number - 1].cid,) if chain else ()
        chain[number] = crafted(mallory, topic, number, parents=parents)
    keep(lab, chain[59])
    lab.puppets[LIAR].answer = ranges(
        lambda asked: Range(
            asked.request,
            topic,
            tuple(chain[number].block for number in range(asked.first, asked.last + 1)),
            True,
        )
    )
    reply = walk_back(lab, chain[59].cid, limit=20)
    assert [event.sequence.number for event in reply.events] == list(range(59, 39, -1))
    assert len(reply.cursor) < 200


def test_a_parent_of_another_topic_is_refused() -> None:
    lab, topic, cids = lab_with_liar(1, CUSTOM)
    foreign = crafted(lab.puppets[LIAR].identity, lab.create(2), 1)
    event = crafted(lab.puppets[LIAR].identity, topic, 1, parents=(foreign.cid, cids[0]))
    for each in (foreign, event):
        keep(lab, each)
    reply = walk_back(lab, event.cid)
    assert [each.cid for each in reply.events] == [event.cid, cids[0]]
    assert reply.gaps == (Gap(Missing.REFUSED, event=foreign.cid),)


def test_an_event_of_a_peer_that_may_not_publish_is_refused() -> None:
    lab = Lab(6, puppets=[LIAR])
    topic = lab.create(0, TopicSettings(publishers=(lab.peer(0),)))
    forged = crafted(lab.puppets[LIAR].identity, topic, 1)
    keep(lab, forged)
    reply = walk_back(lab, forged.cid)
    assert reply.events == ()
    assert reply.gaps == (Gap(Missing.REFUSED, event=forged.cid),)


def test_a_publisher_that_contradicts_its_numbers_is_walked_all_the_same() -> None:
    """Number 1 names number 2, which was signed before it, as its parent."""
    lab, topic, _ = lab_with_liar(1)
    mallory = lab.puppets[LIAR].identity
    second = crafted(mallory, topic, 2)
    first = crafted(mallory, topic, 1, parents=(second.cid,))
    last = crafted(mallory, topic, 3, parents=(first.cid,))
    for each in (first, second, last):
        keep(lab, each)
    reply = walk_back(lab, last.cid)
    assert [each.cid for each in reply.events] == [last.cid, first.cid, second.cid]


def test_more_branches_than_a_walk_keeps_are_given_up_and_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(open_events, "OPEN_MAX", 4)
    lab, topic, _ = lab_with_liar(1, CUSTOM)
    mallory = lab.puppets[LIAR].identity
    branches = [crafted(mallory, topic, 2, epoch=epoch) for epoch in range(2, 12)]
    event = crafted(mallory, topic, 1, parents=tuple(each.cid for each in branches))
    for each in (event, *branches):
        keep(lab, each)
    reply = walk_back(lab, event.cid)
    given_up = [gap for gap in reply.gaps if gap.reason is Missing.BRANCHES]
    assert len(given_up) == 6
    assert {event.cid for event in reply.events} <= {event.cid, *(b.cid for b in branches)}


def test_a_page_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "BYTES_MAX", 1000)
    lab, _, cids = lab_with_liar(8)
    reply = walk_back(lab, cids[-1])
    assert 1 < len(reply.events) < 8
    assert sum(len(event.block) for event in reply.events[:-1]) < 1000
    assert reply.cursor
