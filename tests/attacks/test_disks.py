"""Strangers that store blocks without end: the disk stays the owner's."""

from pulsarcast.model.events import EventDescriptor
from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.protocol.inputs import PeerUp
from pulsarcast.protocol.messages import Contact, KeysDiffer, StoreBlocks, Stored, WantBlocks
from pulsarcast.protocol.store import Block, LoadBlock
from pulsarcast.storage.memory import MemoryStore
from pulsarcast.storage.quota import BESIDE_BYTES
from tests.support.people import CAROL, event_of, identity, topic_of
from tests.support.solo import Solo

TOPIC = topic_of(CAROL)
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
