"""Versions that name the marks of many publishers, and what their authors and others can do so."""

from collections.abc import Iterable

from pulsarcast.model.errors import Rejection
from pulsarcast.model.events import EventDescriptor
from pulsarcast.model.ids import CID_PREFIX, Cid, cid_of
from pulsarcast.model.keys import Key
from pulsarcast.model.mark_blocks import ROWS_MAX, mark_place
from pulsarcast.model.topics import Mark, NamedMarks, TopicDescriptor, next_version
from pulsarcast.protocol.dht.mark_pages import KEPT_MAX
from pulsarcast.protocol.inputs import UpdateTopic
from pulsarcast.protocol.messages import EventMessage, FindBlock
from pulsarcast.protocol.store import Block, Keys, LoadBlock, LoadKeys, MarkState
from pulsarcast.protocol.topic.arrivals import PARKED_MAX
from pulsarcast.protocol.topic.flushing import RETRY_S
from tests.support.marks import blocks_of, by_place, index_of, invented, page_of, signed
from tests.support.people import (
    ALICE,
    BOB,
    CAROL,
    CREATED_US,
    EPOCH,
    event_of,
    identity,
    meta_of,
    topic_of,
    unordered,
)
from tests.support.solo import Parent, Solo, below

OPEN = topic_of(ALICE)
ONLY_CAROL = unordered(publishers=(ALICE.peer_id, CAROL.peer_id))


def late_member(
    version: TopicDescriptor, blocks: Iterable[bytes], first: bytes = OPEN.block
) -> Solo:
    """A member that begins with the newest version, and holds no event."""
    solo = below(Parent("parent", [first, meta_of(ALICE).block, version.block, *blocks]))
    solo.subscribe(version.topic)
    hear(solo, event_of(CAROL, version))
    assert solo.version(version.topic) == version
    solo.delivered.clear()
    solo.sent.clear()
    return solo


def hear(solo: Solo, *events: EventDescriptor) -> None:
    for event in events:
        solo.hear(CAROL.peer_id, EventMessage(event.block, 1))
    solo.advance(5.0)


def test_an_event_that_all_held_is_not_void_because_many_others_published() -> None:
    """The author forbids 9,000 publishers at once. Bob is one, and had published twice."""
    author = Solo("alice").start()
    cid = author.create()
    first = author.version(cid)
    frontier = author.topic(cid).frontier
    for mark in (*invented(9_000), Mark(BOB.peer_id, EPOCH, 2)):
        frontier.adopt(MarkState(mark.publisher, mark.epoch, 0, mark.number, None))
    reply = author.ask(lambda call: UpdateTopic(call, cid, ONLY_CAROL))
    assert reply.refusal is None, reply.refusal
    kept = author.store.answer(LoadKeys(Key(0), Key((1 << 256) - 1), 1000))
    assert isinstance(kept, Keys)
    answers = [author.store.answer(LoadBlock(each)) for each in kept.cids]
    blocks = [each.block for each in answers if isinstance(each, Block) and each.block]
    solo = late_member(author.version(cid), blocks, first.block)
    events = [event_of(BOB, first, number) for number in (1, 2, 3)]
    hear(solo, *events)
    assert solo.cids() == [each.cid for each in events[:2]]
    assert len(author.version(cid).block) < 1000


def forbidding(until: NamedMarks, flushed: NamedMarks = ()) -> TopicDescriptor:
    """A version under which Bob may publish no longer."""
    return next_version(
        ALICE, OPEN, ONLY_CAROL, created=CREATED_US, valid_until=until, flushed=flushed
    )


def assert_goes_on(solo: Solo, version: TopicDescriptor) -> None:
    """Events of those who may publish are delivered, and nothing waits."""
    after = event_of(CAROL, version, 2)
    hear(solo, after)
    assert solo.cids()[-1] == after.cid
    footprint = solo.node.footprint()
    assert (footprint["parked"], footprint["mark_callers"]) == (0, 0)


def test_an_index_that_nobody_can_give_leaves_events_undecided_and_the_topic_goes_on() -> None:
    """They are neither void nor delivered: a node that has the index may say otherwise."""
    version = forbidding(cid_of(b"nothing"))
    solo = late_member(version, [])
    hear(solo, *(event_of(BOB, OPEN, number) for number in range(1, 2 * PARKED_MAX)))
    assert solo.cids() == []
    assert Rejection.SUPERSEDED not in solo.reasons()
    assert solo.topic(OPEN.cid).frontier.high(BOB.peer_id, EPOCH) == 0
    assert len(solo.said(FindBlock)) < 2 * PARKED_MAX
    assert_goes_on(solo, version)


def test_a_page_that_is_not_what_its_index_says_decides_nothing() -> None:
    """Not ascending, outside of its range, or no page at all: others would be asked by it."""
    marks = by_place([*invented(20), Mark(BOB.peer_id, EPOCH, 1)])
    place = mark_place(BOB.peer_id, EPOCH)
    descending, right = page_of(marks[::-1]), page_of(marks)
    first = mark_place(*marks[0][:2])
    for blocks in (
        [index_of([(first, descending)]), descending],
        [index_of([(bytes(16), right)]), right],
        [index_of([(first, right), (place, page_of(marks[:1]))]), right, page_of(marks[:1])],
        [index_of([(first, OPEN.block)])],
        [right],
    ):
        version = forbidding(cid_of(blocks[0]))
        solo = late_member(version, blocks)
        hear(solo, event_of(BOB, OPEN, 1), event_of(BOB, OPEN, 2))
        assert solo.cids() == []
        assert Rejection.SUPERSEDED not in solo.reasons()
        assert_goes_on(solo, version)


def test_a_replica_that_gives_another_page_is_not_believed() -> None:
    blocks = blocks_of([*invented(20), Mark(BOB.peer_id, EPOCH, 1)])
    version = forbidding(cid_of(blocks[0]))
    solo = late_member(version, blocks)
    parent = next(each for each in solo.peers.values() if isinstance(each, Parent))
    for cid in map(cid_of, blocks[1:]):
        parent.blocks[cid] = page_of([Mark(BOB.peer_id, EPOCH, 9)])
    hear(solo, event_of(BOB, OPEN, 1))
    assert solo.cids() == []
    assert Rejection.NOT_ASKED_FOR in solo.reasons()
    parent.blocks.update({cid_of(block): block for block in blocks})
    hear(solo, event_of(BOB, OPEN, 1), event_of(BOB, OPEN, 2))
    assert solo.cids() == [event_of(BOB, OPEN, 1).cid]
    assert_goes_on(solo, version)


def endless() -> bytes:
    """An index of as many pages as there can be, none of which exists."""
    rows = (n.to_bytes(16, "big") + cid_of(b"%d" % n)[len(CID_PREFIX) :] for n in range(ROWS_MAX))
    return signed(ALICE, "pages", b"".join(row for row in rows))


def test_an_index_of_pages_without_end_costs_a_lookup_at_a_time() -> None:
    index = endless()
    version = forbidding(cid_of(index), flushed=cid_of(index))
    solo = late_member(version, [index])
    minutes = 10
    solo.advance(60.0 * minutes)
    asked = {message.cid for message in solo.said(FindBlock)}
    assert len(asked) <= 1 + 60.0 * minutes / RETRY_S
    strangers = [identity(f"stranger {number}") for number in range(2 * PARKED_MAX)]
    hear(solo, *(event_of(each, OPEN) for each in strangers))
    assert solo.cids() == []
    assert solo.node.footprint()["mark_blocks"] <= KEPT_MAX
    assert solo.node.footprint()["marks"] <= 2
    assert_goes_on(solo, version)


def test_a_flush_that_names_pages_nobody_has_leaves_its_other_pages_done() -> None:
    marks = by_place([*invented(20), Mark(BOB.peer_id, EPOCH, 1)])
    blocks = blocks_of(marks)
    lost: Cid = cid_of(blocks[1])
    version = forbidding((), flushed=cid_of(blocks[0]))
    solo = late_member(version, [block for block in blocks if cid_of(block) != lost])
    solo.advance(10 * RETRY_S)
    frontier = solo.topic(OPEN.cid).frontier
    retired = [mark for mark in marks if frontier.high(*mark[:2]) == mark.number]
    assert retired == marks[4:]
    assert_goes_on(solo, version)
