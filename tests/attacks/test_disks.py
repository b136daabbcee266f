"""Strangers that store without end: the disk stays the owner's, and the node goes on."""

from collections.abc import Iterable

import pytest

from pulsarcast.model.events import EventDescriptor
from pulsarcast.model.ids import Cid, PeerId, cid_of
from pulsarcast.model.listings import sign_listing, term_key
from pulsarcast.model.pointers import sign_pointer
from pulsarcast.model.topics import TopicSettings
from pulsarcast.protocol.inputs import PeerUp
from pulsarcast.protocol.messages import (
    Contact,
    DhtMessage,
    KeysDiffer,
    StoreBlocks,
    Stored,
    StoreListings,
    StorePointer,
    WantBlocks,
)
from pulsarcast.protocol.store import Block, Keep, LoadBlock, Write
from pulsarcast.storage.memory import MemoryStore
from pulsarcast.storage.quota import BESIDE_BYTES
from tests.support.people import ALICE, CAROL, CREATED_US, event_of, identity, topic_of
from tests.support.solo import Solo

TOPIC = topic_of(CAROL)
DAY_US = 86_400_000_000
PAYLOAD = bytes(10_000)
ROOM = 40
"""Blocks for which the victim has room."""


def block_of(who: str, number: int) -> EventDescriptor:
    """A whole and signed event of a topic that the victim does not follow."""
    return event_of(identity(who), TOPIC, number, payload=PAYLOAD)


def victim() -> Solo:
    size = len(block_of("stranger", 1).block) + BESIDE_BYTES
    return Solo(store=MemoryStore(ROOM * size)).start()


def meet(solo: Solo, who: str, place: str) -> PeerId:
    peer = identity(who).peer_id
    solo.give(PeerUp(Contact(peer), place))
    return peer


def store(solo: Solo, sender: PeerId, blocks: list[EventDescriptor]) -> list[Cid]:
    """Store blocks one by one; returns those that are confirmed."""
    before = len(solo.sent)
    for number, event in enumerate(blocks):
        solo.hear(sender, StoreBlocks(2 * number + 2, (event.block,)))
    answers = [message for _, message in solo.sent[before:] if isinstance(message, Stored)]
    assert len(answers) == len(blocks), "each is answered"
    return [cid for answer in answers for cid in answer.cids]


class FullDisk(MemoryStore):
    """A disk without a free byte: what may be left out is, and all else would halt the node."""

    __slots__ = ("is_full", "would_halt")

    def __init__(self) -> None:
        super().__init__()
        self.is_full = False
        self.would_halt: list[Write] = []

    def apply(self, writes: Iterable[Write]) -> tuple[int, ...]:
        """Leave out what may be left out, and note the rest."""
        writes = tuple(writes)
        if not self.is_full:
            return super().apply(writes)
        self.would_halt += [each for each in writes if not isinstance(each, Keep)]
        return tuple(each.token for each in writes if isinstance(each, Keep))


def is_kept(solo: Solo, cid: Cid) -> bool:
    return solo.store.answer(LoadBlock(cid)) != Block(None)


def test_blocks_of_strangers_end_at_their_quota_and_leave_the_owner_alone() -> None:
    """Today's fault: a thousand identities of one prefix filled the disk, and the node halted."""
    solo = victim()
    confirmed: list[Cid] = []
    for number in range(4 * ROOM):
        who = f"stranger {number}"
        sender = meet(solo, who, "198.51.100.0/24")
        confirmed += store(solo, sender, [block_of(who, 1)])
    assert len(confirmed) == ROOM // 2
    assert all(is_kept(solo, cid) for cid in confirmed)
    assert solo.node.halted is None
    topic = solo.create()
    own = [solo.publish(topic, PAYLOAD) for _ in range(2 * ROOM)]
    assert all(is_kept(solo, cid) for cid in own)
    assert all(is_kept(solo, cid) for cid in confirmed), "what was confirmed stays"


def test_a_greedy_place_leaves_room_for_others() -> None:
    solo = victim()
    greedy = [f"greedy {number}" for number in range(3)]
    for number, who in enumerate(greedy):
        sender = meet(solo, who, f"198.51.{number}.0/24")
        store(solo, sender, [block_of(who, each) for each in range(1, ROOM)])
    honest = meet(solo, "honest", "192.0.2.0/24")
    assert len(store(solo, honest, [block_of("honest", 1), block_of("honest", 2)])) == 2


def test_a_place_without_room_cannot_have_its_blocks_fetched_again_and_again() -> None:
    solo = victim()
    sender = meet(solo, "stranger", "198.51.100.0/24")
    store(solo, sender, [block_of("stranger", each) for each in range(1, ROOM)])
    shown = tuple(block_of("stranger", number).cid for number in range(100, 110))
    before = len(solo.sent)
    for _ in range(5):
        solo.hear(sender, KeysDiffer(0, 0, 1, shown, ()))
        solo.advance(60.0)
    assert not [each for _, each in solo.sent[before:] if isinstance(each, WantBlocks)]
    other = meet(solo, "other", "192.0.2.0/24")
    solo.hear(other, KeysDiffer(0, 0, 1, shown, ()))
    assert [each for _, each in solo.sent[before:] if isinstance(each, WantBlocks)]


def test_a_publisher_is_told_how_many_replicas_had_room() -> None:
    """A count of `replicated` that includes a replica without room would be a lie."""
    solo = victim()
    full = meet(solo, "stranger", "198.51.100.0/24")
    store(solo, full, [block_of("stranger", each) for each in range(1, ROOM)])
    before = len(solo.sent)
    solo.hear(full, StoreBlocks(1000, (event_of(CAROL, TOPIC, payload=PAYLOAD).block,)))
    assert (full, Stored(1000, ())) in solo.sent[before:]


NEWS = topic_of(ALICE, TopicSettings(tags=("weather",)))
POINTER = sign_pointer(ALICE, "news", 1, NEWS.cid, topic=NEWS.cid, moves=0)
LISTING = sign_listing(ALICE, NEWS, CREATED_US + 3 * DAY_US)


def small_records() -> dict[str, tuple[DhtMessage, Cid]]:
    """What is not charged to strangers, since its number is bounded; and what confirms it."""
    return {
        "pointer": (StorePointer(2, (POINTER.block,)), cid_of(POINTER.block)),
        "listing": (
            StoreListings(2, term_key("weather"), (LISTING.block,)),
            cid_of(LISTING.block),
        ),
    }


@pytest.mark.parametrize("kind", sorted(small_records()))
def test_a_small_record_of_a_stranger_does_not_halt_a_node_whose_disk_is_full(kind: str) -> None:
    """Today's fault: the disk refused a pointer, as it would refuse the owner, and all ended."""
    disk = FullDisk()
    solo = Solo(store=disk).start()
    sender = meet(solo, "stranger", "198.51.100.0/24")
    message, cid = small_records()[kind]
    disk.is_full = True
    solo.hear(sender, message)
    assert disk.would_halt == []
    assert solo.said(Stored) == [Stored(2, ())], "and no peer counts on it"
    disk.is_full = False
    solo.hear(sender, message)
    assert solo.said(Stored)[-1] == Stored(2, (cid,))


def test_nothing_that_strangers_cause_is_written_where_a_disk_is_full() -> None:
    """Peers come and go, blocks and listings expire; the node has no topic of its own."""
    disk = FullDisk()
    solo = Solo(store=disk).start()
    sender = meet(solo, "stranger", "198.51.100.0/24")
    for message, _ in small_records().values():
        solo.hear(sender, message)
    store(solo, sender, [block_of("stranger", 1)])
    disk.is_full = True
    for number in range(20):
        meet(solo, f"stranger {number}", f"198.51.{number}.0/24")
        solo.advance(86_400.0 / 5)
    assert disk.would_halt == []
    disk.is_full = False
    solo.advance(86_400.0)
    assert not any(row.table == "listing" for row in disk.rows()), "it is dropped later"
