"""Strangers that store without end: the disk stays the owner's, and the node goes on."""

from collections.abc import Iterable

import pytest

from pulsarcast.model.events import EventDescriptor
from pulsarcast.model.ids import Cid, PeerId, cid_of
from pulsarcast.model.listings import sign_listing, term_key
from pulsarcast.model.pointers import sign_pointer
from pulsarcast.model.reach import Reach
from pulsarcast.model.topics import TopicSettings
from pulsarcast.protocol.dht.blocks import FULL_S
from pulsarcast.protocol.effects import Persist, Send
from pulsarcast.protocol.following.following import FORGET_AGAIN_S
from pulsarcast.protocol.inputs import (
    Input,
    MessageReceived,
    Now,
    PeerUp,
    Persisted,
    Subscribe,
)
from pulsarcast.protocol.messages import (
    Contact,
    DhtMessage,
    EventMessage,
    FrontierPage,
    Join,
    JoinRefused,
    KeysDiffer,
    Leave,
    Role,
    StoreBlocks,
    Stored,
    StoreListings,
    StorePointer,
    WantBlocks,
)
from pulsarcast.protocol.store import AnyWrite, Block, Keep, LoadBlock, MarkState
from pulsarcast.storage.memory import MemoryStore
from pulsarcast.storage.quota import BESIDE_BYTES
from tests.support.people import (
    ALICE,
    BOB,
    CAROL,
    CREATED_US,
    event_of,
    identity,
    meta_of,
    topic_of,
    unordered,
)
from tests.support.solo import Parent, Solo

TOPIC = topic_of(CAROL)
DAY_US = 86_400_000_000
NOW = Now(5.0, CREATED_US + 5_000_000)
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
        self.would_halt: list[AnyWrite] = []

    def apply(self, writes: Iterable[AnyWrite]) -> tuple[int, ...]:
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


# Trees that strangers have the node keep.

KEPT = topic_of(BOB, unordered(root=identity("victim").peer_id))
"""A topic of a stranger, whose tree the victim is to keep."""
KEEPER_STORES = 12
"""Events of a kept tree for which the victim has room, of one place."""


def kept_event(number: int) -> EventDescriptor:
    return event_of(BOB, KEPT, number, payload=PAYLOAD)


def keeper(disk: MemoryStore | None = None, *, place: str = "198.51.100.0/24") -> Solo:
    """A victim that keeps the tree of a stranger, who is its child."""
    size = len(kept_event(1).block) + BESIDE_BYTES
    store = MemoryStore(2 * KEEPER_STORES * size) if disk is None else disk
    solo = Solo(contacts=(BOB.peer_id,), store=store)
    blocks = [KEPT.block, meta_of(BOB, "news").block]
    solo.peers[BOB.peer_id] = Parent("bob", blocks)
    solo.start()
    solo.give(PeerUp(Contact(BOB.peer_id), place, reach=Reach.PUBLIC))
    solo.hear(BOB.peer_id, Join(KEPT.cid, 1, Role.MEMBER, solo.me, False, True))
    solo.advance(1.0)
    solo.hear(BOB.peer_id, Join(KEPT.cid, 2, Role.MEMBER, solo.me, False, True))
    assert solo.node.following.is_kept(KEPT.cid)
    return solo


def fill(solo: Solo, first: int, last: int) -> None:
    for number in range(first, last + 1):
        solo.hear(BOB.peer_id, EventMessage(kept_event(number).block, 1))


def test_a_kept_tree_ends_at_the_quota_of_strangers() -> None:
    """Today's fault: whoever wrote into a kept tree filled the disk."""
    solo = keeper()
    fill(solo, 1, KEEPER_STORES)
    assert solo.store.logs() == ((KEPT.cid, KEEPER_STORES),)
    assert solo.node.following.is_kept(KEPT.cid)
    fill(solo, KEEPER_STORES + 1, 4 * KEEPER_STORES)
    assert solo.node.halted is None
    assert KEPT.cid not in solo.node.topics
    assert (solo.store.logs(), solo.store.strangers_bytes) == ((), 0), "all of it makes room again"


def test_a_keeper_without_room_tells_its_children_and_takes_none_for_a_while() -> None:
    solo = keeper()
    fill(solo, 1, KEEPER_STORES + 1)
    assert Leave(KEPT.cid) in solo.sent_to(BOB.peer_id, Leave)
    solo.hear(BOB.peer_id, Join(KEPT.cid, 3, Role.MEMBER, solo.me, False, True))
    assert solo.sent_to(BOB.peer_id, JoinRefused)[-1] == JoinRefused(KEPT.cid, 3, "no room")
    solo.advance(FULL_S)
    solo.hear(BOB.peer_id, Join(KEPT.cid, 4, Role.MEMBER, solo.me, False, True))
    solo.advance(1.0)
    assert solo.node.following.is_kept(KEPT.cid)


def test_a_disk_that_refuses_the_log_of_a_kept_tree_does_not_halt_the_node() -> None:
    disk = FullDisk()
    solo = keeper(disk)
    fill(solo, 1, 3)
    disk.is_full = True
    fill(solo, 4, 9)
    solo.advance(1000.0)
    assert disk.would_halt == []
    assert solo.node.halted is None
    assert KEPT.cid not in solo.node.topics
    assert disk.logs() == ((KEPT.cid, 3),), "the disk could not even forget it"
    disk.is_full = False
    solo.advance(FORGET_AGAIN_S * 2)
    assert disk.logs() == ()


def test_a_keeper_says_that_it_holds_only_what_its_disk_has_taken() -> None:
    """A visitor that hands an event in is rid of it, once a member shows it."""
    disk = FullDisk()
    solo = keeper(disk)
    fill(solo, 1, 3)
    disk.is_full = True
    before = len(solo.said(FrontierPage))
    mark = MarkState(BOB.peer_id, kept_event(1).sequence.epoch, 0, 0, None)
    page = FrontierPage(KEPT.cid, (mark,), True)
    stranger = meet(solo, "visitor", "192.0.2.0/24")
    turn = solo.node.handle(MessageReceived(BOB.peer_id, EventMessage(kept_event(4).block, 1)), NOW)
    asked = solo.node.handle(MessageReceived(stranger, page), NOW)
    for effect in [*turn, *asked]:
        if isinstance(effect, Persist):
            left_out = disk.apply(effect.writes)
            solo.node.handle(Persisted(effect.token, left_out), NOW)
        assert not (isinstance(effect, Send) and isinstance(effect.message, FrontierPage))
    assert len(solo.said(FrontierPage)) == before


def test_an_application_that_subscribes_to_a_kept_tree_has_a_log_of_its_own() -> None:
    solo = keeper()
    fill(solo, 1, KEEPER_STORES)
    assert solo.store.strangers_bytes > 0
    solo.subscribe(KEPT.cid)
    assert solo.store.strangers_bytes == 0
    fill(solo, KEEPER_STORES + 1, 4 * KEEPER_STORES)
    assert len(solo.delivered) == 3 * KEEPER_STORES
    again = Solo(store=solo.store, contacts=(BOB.peer_id,)).start()
    assert again.topic(KEPT.cid).subscribed, "its versions are on the disk now"


def test_an_application_that_subscribes_as_the_disk_refuses_begins_anew() -> None:
    disk = FullDisk()
    solo = keeper(disk)
    fill(solo, 1, 3)
    disk.is_full = True
    inputs: list[Input] = [
        MessageReceived(BOB.peer_id, EventMessage(kept_event(4).block, 1)),
        Subscribe(1, KEPT.cid),
    ]
    effects = [each for given in inputs for each in solo.node.handle(given, NOW)]
    disk.is_full = False
    for effect in effects:
        if isinstance(effect, Persist):
            is_event = any(isinstance(write, Keep) for write in effect.writes)
            refused = tuple(each.token for each in effect.writes if isinstance(each, Keep))
            left_out = refused if is_event else disk.apply(effect.writes)
            for more in solo.node.handle(Persisted(effect.token, left_out), NOW):
                for given in solo._carry_out(more):
                    solo.give(given)
    solo.advance(60.0)
    assert solo.node.halted is None
    topic = solo.topic(KEPT.cid)
    assert topic.subscribed
    assert topic.log.newest == 0, "a log without a hole"


def test_a_keeper_that_hands_its_children_over_shows_no_hole_meanwhile() -> None:
    disk = FullDisk()
    solo = keeper(disk)
    fill(solo, 1, 3)
    solo.node.following.stop_keeping(solo.topic(KEPT.cid))
    visitor = meet(solo, "visitor", "192.0.2.0/24")
    mark = MarkState(BOB.peer_id, kept_event(1).sequence.epoch, 0, 0, None)
    solo.hear(visitor, FrontierPage(KEPT.cid, (mark,), True))
    (page,) = solo.sent_to(visitor, FrontierPage)
    assert [each.high for each in page.marks] == [3]
    disk.is_full = True
    fill(solo, 4, 4)
    solo.hear(visitor, FrontierPage(KEPT.cid, (mark,), True))
    assert KEPT.cid in solo.node.topics, "it still passes events on"
    assert solo.sent_to(visitor, FrontierPage) == [page]
