"""Walks back from an event, on nodes that do not follow its topic: order, pages, gaps, sources."""

from collections import Counter
from collections.abc import Iterable
from collections.abc import Sequence as Places
from functools import partial
from random import Random

import msgspec
import pytest

from pulsarcast.model.errors import LocalError, NotFound
from pulsarcast.model.events import EventDescriptor, Sequence, publish_own
from pulsarcast.model.identity import Identity
from pulsarcast.model.ids import Cid, PeerId, cid_of
from pulsarcast.model.lineage import Gap, Missing
from pulsarcast.model.topics import DeliveryOrder, EventLinking, Retention, TopicSettings
from pulsarcast.protocol.effects import Reply
from pulsarcast.protocol.inputs import FetchBlock, Publish, Walk
from pulsarcast.protocol.messages import (
    FetchRange,
    FindBlock,
    Message,
    Range,
    StoreBlocks,
    WantBlocks,
)
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.store import PutBlock
from tests.support.lab import Lab

STRANGER = 7
"""A node of the labs here that follows nothing."""


def publish_many(lab: Lab, topic: Cid, count: int, publishers: Places[int] = (0,)) -> list[Cid]:
    """Publish in turn; each publisher has seen what the one before it said."""
    cids = []
    for number in range(count):
        index = publishers[number % len(publishers)]
        cids.append(lab.publish(index, topic, b"%d" % number, replicated=False, settle_s=0.1))
    lab.run(5.0)
    return cids


def page(lab: Lab, index: int, cid: Cid, limit: int = 100, cursor: bytes = b"") -> Reply:
    reply = lab.ask(index, lambda call: Walk(call, cid, limit, cursor))
    assert reply.refusal is None, reply.refusal
    return reply


def walk(lab: Lab, index: int, cid: Cid, limit: int = 100) -> tuple[list[Cid], list[Gap]]:
    """All pages."""
    events: list[Cid] = []
    gaps: list[Gap] = []
    cursor = b""
    while True:
        reply = page(lab, index, cid, limit, cursor)
        assert len(reply.events) <= limit
        events += [event.cid for event in reply.events]
        gaps += reply.gaps
        cursor = reply.cursor
        if not cursor:
            return events, gaps


def followers_first(lab: Lab, cids: list[Cid]) -> bool:
    """Whether every event comes before its parents, and before lower numbers."""
    place = {cid: at for at, cid in enumerate(cids)}
    events = [lab.event(cid) for cid in cids]
    numbers: dict[object, int] = {}
    for event in events:
        if any(place.get(parent, 1 << 60) < place[event.cid] for parent in event.parents):
            return False
        source = (event.numbered_by, event.sequence.epoch)
        if numbers.get(source, 1 << 60) <= event.sequence.number:
            return False
        numbers[source] = event.sequence.number
    return True


def test_a_stranger_walks_back_to_the_first_event() -> None:
    lab = Lab(8)
    topic = lab.create(0)
    lab.subscribe([1, 2], topic)
    cids = publish_many(lab, topic, 40)
    before = len(lab.said)
    assert walk(lab, STRANGER, cids[-1]) == (cids[::-1], [])
    asked = [said.message for said in lab.said[before:] if said.sender == STRANGER]
    assert sum(isinstance(each, FetchRange) for each in asked) == 1
    assert sum(isinstance(each, FindBlock) for each in asked) < 20
    assert topic not in lab.world.node(STRANGER).topics


def test_pages_go_on_where_the_last_one_ended() -> None:
    lab = Lab(8)
    topic = lab.create(0)
    lab.subscribe([1, 2], topic)
    cids = publish_many(lab, topic, 30)
    assert walk(lab, STRANGER, cids[-1], limit=7) == (cids[::-1], [])
    assert walk(lab, STRANGER, cids[12], limit=1) == (cids[12::-1], [])


@pytest.mark.parametrize(
    "order", [DeliveryOrder.NONE, DeliveryOrder.PER_PUBLISHER, DeliveryOrder.CAUSAL]
)
def test_several_publishers_are_walked_with_followers_first(order: DeliveryOrder) -> None:
    lab = Lab(8)
    topic = lab.create(0, TopicSettings(order=order, open=True))
    lab.subscribe([1, 2, 3], topic)
    cids = publish_many(lab, topic, 20, publishers=(0, 1, 2, 1))
    last = lab.publish(3, topic, b"last")
    walked, gaps = walk(lab, STRANGER, last, limit=9)
    assert set(walked) == {*cids, last}
    assert gaps == []
    assert followers_first(lab, walked)


def test_an_event_that_no_parent_names_is_found_by_its_number() -> None:
    """Bob's second event names Alice's, which he saw last, and not his own first one."""
    lab = Lab(8)
    topic = lab.create(0)
    lab.subscribe([1], topic)
    both = [lab.start(index, lambda call: Publish(call, topic, b"at once")) for index in (0, 1)]
    lab.run(5.0)
    at_once = {reply.cid for (reply,) in both}
    last = lab.publish(1, topic, b"later")
    assert len(lab.event(last).parents) == 1
    walked, gaps = walk(lab, STRANGER, last)
    assert set(walked) == {*at_once, last}
    assert gaps == []


def test_custom_parents_are_followed() -> None:
    lab = Lab(8)
    topic = lab.create(0, TopicSettings(linking=EventLinking.CUSTOM, open=True))
    lab.subscribe([1, 2], topic)
    first, second = lab.publish(0, topic, b"1"), lab.publish(1, topic, b"2")
    joined = lab.publish(2, topic, b"3", parents=(first, second))
    walked, gaps = walk(lab, STRANGER, joined)
    assert set(walked) == {first, second, joined}
    assert walked[0] == joined
    assert gaps == []


def test_a_member_walks_its_own_log_without_a_message() -> None:
    lab = Lab(8)
    topic = lab.create(0)
    lab.subscribe([1], topic)
    cids = publish_many(lab, topic, 20)
    before = len(lab.said)
    assert walk(lab, 1, cids[-1]) == (cids[::-1], [])
    asked = [said.message for said in lab.said[before:] if said.sender == 1]
    assert not any(isinstance(each, FetchRange | WantBlocks | FindBlock) for each in asked)


def test_a_member_that_joined_late_fetches_what_its_log_lacks() -> None:
    lab = Lab(8)
    topic = lab.create(0)
    lab.subscribe([1], topic)
    cids = publish_many(lab, topic, 10)
    lab.subscribe([2], topic)
    cids += publish_many(lab, topic, 10)
    assert walk(lab, 2, cids[-1]) == (cids[::-1], [])
    assert len(lab.log(2, topic)) < 20


def test_without_any_member_the_dht_gives_one_event_after_the_other() -> None:
    lab = Lab(8)
    topic = lab.create(0)
    cids = publish_many(lab, topic, 10)
    lab.world.kill(0)
    lab.run(1.0)
    assert walk(lab, STRANGER, cids[-1]) == (cids[::-1], [])


def test_what_retention_dropped_is_said_as_such() -> None:
    parameters = Parameters(retention_interval_s=5.0, block_expiry_s=60.0)
    lab = Lab(8, parameters=parameters)
    topic = lab.create(0, TopicSettings(retention=Retention(count=10)))
    lab.subscribe([1, 2], topic)
    cids = publish_many(lab, topic, 30)
    lab.run(120.0)
    last = lab.publish(0, topic, b"last")
    walked, gaps = walk(lab, STRANGER, last)
    kept = len(lab.log(1, topic))
    assert walked == [last, *cids[:-kept:-1]]
    publisher, epoch = lab.peer(0), lab.event(last).sequence.epoch
    missing = len(cids) + 1 - kept
    assert Gap(Missing.RETENTION, None, publisher, epoch, 1, missing) in gaps
    assert {gap.reason for gap in gaps} == {Missing.RETENTION}


def test_what_retention_dropped_and_replicas_keep_is_given() -> None:
    lab = Lab(8, parameters=Parameters(retention_interval_s=5.0))
    topic = lab.create(0, TopicSettings(retention=Retention(count=10)))
    lab.subscribe([1, 2], topic)
    cids = publish_many(lab, topic, 30)
    lab.run(30.0)
    assert len(lab.log(1, topic)) < 15
    assert walk(lab, STRANGER, cids[-1], limit=8) == (cids[::-1], [])


@pytest.mark.parametrize("version_marks", [2048, 1])
def test_what_the_author_flushed_is_said_to_be_gone_by_retention(version_marks: int) -> None:
    """Whether the version names the marks or their index."""
    lab = Lab(8, parameters=Parameters(block_expiry_s=60.0, version_marks=version_marks))
    topic = lab.create(0)
    lab.subscribe([1, 2], topic)
    publish_many(lab, topic, 10, publishers=(0, 1))
    settings = lab.world.node(0).topics[topic].descriptor.settings
    lab.update(0, topic, settings, flush=True)
    lab.run(120.0)
    last = lab.publish(0, topic, b"last")
    walked, gaps = walk(lab, STRANGER, last)
    assert walked == [last]
    assert {gap.reason for gap in gaps} == {Missing.RETENTION}


def test_events_that_no_one_has_are_not_found() -> None:
    """The topic keeps everything, so that nothing explains why they are gone."""
    lab = Lab(8, parameters=Parameters(block_expiry_s=30.0, repair_interval_s=5.0))
    topic = lab.create(0)
    publish_many(lab, topic, 5)
    lab.run(60.0)
    lab.subscribe([1], topic)
    cids = [lab.publish(0, topic, b"%d" % number) for number in range(5)]
    lab.world.kill(0)
    lab.run(60.0)
    walked, gaps = walk(lab, STRANGER, cids[-1])
    assert walked == cids[::-1]
    assert {gap.reason for gap in gaps} == {Missing.NOT_FOUND}


def test_a_content_id_that_no_one_has_is_refused() -> None:
    lab = Lab(8)
    reply = lab.ask(STRANGER, lambda call: Walk(call, cid_of(b"nothing"), 10))
    assert reply.refusal is not None
    assert reply.refusal.code == NotFound.code


def test_a_content_id_of_a_topic_is_no_event() -> None:
    lab = Lab(8)
    topic = lab.create(0)
    reply = lab.ask(STRANGER, lambda call: Walk(call, topic, 10))
    assert reply.refusal is not None
    assert reply.refusal.code == LocalError.code


NO_TOPIC = msgspec.msgpack.encode((b"no topic", [], {}))
NO_PARENT = msgspec.msgpack.encode((cid_of(b"topic"), [], {b"no parent": 1}))
NO_SPAN = msgspec.msgpack.encode((cid_of(b"topic"), [(b"nobody", 1, 1, [(1, 1, 0)])], {}))


@pytest.mark.parametrize("cursor", [b"x", b"\xff" * 40, NO_TOPIC, NO_PARENT, NO_SPAN])
def test_a_cursor_that_no_walk_gave_is_refused(cursor: bytes) -> None:
    lab = Lab(2)
    reply = lab.ask(1, lambda call: Walk(call, cid_of(b"nothing"), 10, cursor))
    assert reply.refusal is not None
    assert reply.refusal.code == LocalError.code


def test_an_old_event_is_fetched_from_members_of_a_topic_that_the_caller_names() -> None:
    parameters = Parameters(block_expiry_s=30.0, repair_interval_s=5.0, replicas=1)
    lab = Lab(16, seed=6, parameters=parameters)
    topic = lab.create(0)
    lab.subscribe([1], topic)
    (cid,) = publish_many(lab, topic, 1)
    lab.run(60.0)
    unknown = lab.ask(STRANGER, lambda call: FetchBlock(call, cid))
    assert unknown.refusal is not None
    assert lab.ask(STRANGER, lambda call: FetchBlock(call, cid, topic)).block == lab.block(cid)
    walked = lab.ask(STRANGER, lambda call: Walk(call, cid, 10, topic=topic))
    assert [event.cid for event in walked.events] == [cid]


def test_many_publishers_are_asked_for_together() -> None:
    """Each of 40 publishers links to the event before, of whoever published it."""
    lab = Lab(4, puppets=[3])
    topic = lab.create(0)
    rng = Random(1)
    people = [Identity.from_seed(rng.randbytes(32)) for _ in range(40)]
    numbers: Counter[int] = Counter()
    events: list[EventDescriptor] = []
    for place in range(200):
        who = rng.randrange(len(people))
        numbers[who] += 1
        event = publish_own(
            people[who],
            topic=topic,
            version=topic,
            payload=b"",
            created=place,
            nonce=bytes(16),
            sequence=Sequence(7, numbers[who]),
            parents=[each.cid for each in events[-1:]],
        )
        events.append(event)
    by_cid = {event.cid: event.block for event in events}
    by_number = {(event.publisher, event.sequence.number): event.block for event in events}

    def answer(sender: PeerId, message: Message) -> Iterable[tuple[PeerId, Message]]:
        if isinstance(message, FetchRange):
            places = ((message.publisher, n) for n in range(message.first, message.last + 1))
            blocks = tuple(by_number[place] for place in places if place in by_number)
            yield sender, Range(message.request, topic, blocks, False)
        elif isinstance(message, WantBlocks):
            blocks = tuple(by_cid[cid] for cid in message.cids)
            yield sender, StoreBlocks(message.request, blocks)

    lab.puppets[3].answer = answer
    lab.world.store(2).apply([PutBlock(events[-1].cid, events[-1].block, None, 0)])
    lab.world.node(2).walks._remember(topic).members = [lab.peer(3)]
    before_s = lab.world.now
    assert walk(lab, 2, events[-1].cid, limit=1000) == ([each.cid for each in events][::-1], [])
    assert lab.world.now - before_s < 1.5, "some 30 round trips"


@pytest.mark.slow
def test_ten_thousand_events_are_walked_with_half_of_the_nodes_gone() -> None:
    lab = Lab(12, parameters=Parameters(stall_s=0.0))
    topic = lab.create(0)
    lab.subscribe([1, 2, 3, 4], topic)
    replies = []
    for number in range(10_000):
        payload = b"%d" % number
        replies.append(lab.start(0, partial(publish_command, topic, payload)))
        if number % 50 == 0:
            lab.run(0.5)
    lab.run(60.0)
    cids = [reply.cid for (reply,) in replies]
    for gone in (0, 1, 3, 5, 6, 8):
        lab.world.kill(gone)
    lab.run(30.0)
    lab.said.clear()
    last = cids[-1]
    assert last is not None
    assert walk(lab, STRANGER, last, limit=1000) == (cids[::-1], [])
    assert len([said for said in lab.said if said.sender == STRANGER]) < 500


def publish_command(topic: Cid, payload: bytes, call: int) -> Publish:
    return Publish(call, topic, payload)
