"""Attacks on the DHT: poisoned blocks, poisoned contacts, and disks of others."""

import pytest

from pulsarcast.model.ids import Cid, PeerId, cid_of
from pulsarcast.protocol.inputs import FetchBlock
from pulsarcast.protocol.messages import (
    BlockFound,
    CompareKeys,
    Contact,
    FindBlock,
    FindPeers,
    KeysDiffer,
    Message,
    Peers,
    StoreBlocks,
    Stored,
    WantBlocks,
)
from pulsarcast.protocol.store import Block, LoadBlock
from tests.support.lab import Lab
from tests.support.people import ALICE, MALLORY, event_of, peer, topic_of
from tests.support.solo import Parent, Solo

OPEN = topic_of(ALICE)
LAST_KEY = (1 << 256) - 1


def test_a_poisoned_block_is_not_believed_and_an_honest_one_is_found_behind_it() -> None:
    """A block that does not match its CID: the liar is passed over, the search goes on."""
    wanted = event_of(ALICE, OPEN)
    poison = event_of(MALLORY, OPEN)
    liars = [peer(f"liar {number}") for number in range(4)]
    solo = Solo(contacts=(*liars, ALICE.peer_id))

    def lie(message: Message) -> list[Message]:
        match message:
            case FindBlock(request, _):
                return [BlockFound(request, poison.block, ())]
            case FindPeers(request, _):
                return [Peers(request, ())]
            case _:
                return []

    for liar in liars:
        solo.peers[liar] = lie
    solo.peers[ALICE.peer_id] = Parent("alice", [wanted.block])
    solo.start()
    reply = solo.ask(lambda call: FetchBlock(call, wanted.cid))
    assert reply.block == wanted.block
    assert solo.store.answer(LoadBlock(poison.cid)) == Block(None)


def test_a_topic_is_not_poisoned_either() -> None:
    lab = Lab(8, puppets=[6, 7])
    topic = lab.create(0)
    other = topic_of(lab.puppets[7].identity, name="poison")

    def lie(sender: PeerId, message: Message) -> list[tuple[PeerId, Message]]:
        if isinstance(message, FindBlock):
            return [(sender, BlockFound(message.request, other.block, ()))]
        if isinstance(message, FindPeers):
            return [(sender, Peers(message.request, ()))]
        return []

    for puppet in lab.puppets.values():
        puppet.answer = lie
    lab.subscribe([3, 4, 5], topic)
    event = lab.publish(3, topic)
    assert all(event in lab.delivered(index, topic) for index in (3, 4, 5))


@pytest.mark.parametrize(
    "block",
    [b"\xa0", b"not dag-cbor", event_of(ALICE, OPEN).block[:-1] + b"\x02"],
    ids=["an empty map", "no dag-cbor", "an unsigned event"],
)
def test_a_replica_keeps_nothing_that_is_not_whole_and_signed(block: bytes) -> None:
    solo = Solo().start()
    good = event_of(ALICE, OPEN)
    solo.hear(MALLORY.peer_id, StoreBlocks(2, (block, good.block)))
    assert solo.store.answer(LoadBlock(cid_of(block))) == Block(None)
    (stored,) = solo.sent_to(MALLORY.peer_id, Stored)
    assert stored.cids == (good.cid,), "the good one among them is kept"
    assert solo.reasons()


def test_invented_contacts_do_not_fill_the_routing_table() -> None:
    """Only peers that spoke to us enter; who is only named is asked, and forgotten."""
    strangers = [peer(f"stranger {number}") for number in range(200)]
    solo = Solo(contacts=(MALLORY.peer_id,))
    at = 0

    def lie(message: Message) -> list[Message]:
        nonlocal at
        if isinstance(message, FindPeers):
            at = (at + 20) % 200
            named = tuple(Contact(stranger) for stranger in strangers[at : at + 20])
            return [Peers(message.request, named)]
        return []

    solo.peers[MALLORY.peer_id] = lie
    solo.start()
    solo.advance(3600.0)
    footprint = solo.node.footprint()
    assert footprint["dht_contacts"] <= 1
    assert footprint["dht_failed"] <= 160


def test_a_lookup_among_liars_comes_to_an_end() -> None:
    """Each names ever new peers: a lookup asks only so many."""
    solo = Solo(contacts=(MALLORY.peer_id,))
    made = 0

    def lie(message: Message) -> list[Message]:
        nonlocal made
        if not isinstance(message, FindBlock):
            return [Peers(message.request, ())] if isinstance(message, FindPeers) else []
        named = []
        for _ in range(5):
            made += 1
            stranger = peer(f"invented {made}")
            solo.peers[stranger] = lie
            named.append(Contact(stranger))
        return [BlockFound(message.request, None, tuple(named))]

    solo.peers[MALLORY.peer_id] = lie
    solo.start()
    reply = solo.ask(lambda call: FetchBlock(call, cid_of(b"nowhere")), patience_s=600.0)
    assert reply.refusal is not None
    assert len(solo.said(FindBlock)) <= 64


def test_an_announcement_of_blocks_that_do_not_exist_costs_one_question() -> None:
    """KeysDiffer that nobody asked for: what cannot be had is not asked for again and again."""
    solo = Solo(contacts=(MALLORY.peer_id,)).start()
    cids = tuple(cid_of(b"%d" % number) for number in range(256))
    for _ in range(100):
        solo.hear(MALLORY.peer_id, KeysDiffer(0, 0, LAST_KEY, cids, ()))
    solo.advance(600.0)
    assert len(solo.sent_to(MALLORY.peer_id, WantBlocks)) <= 64 + 4
    assert solo.node.footprint()["dht_pulls"] == 0


def test_blocks_that_were_not_asked_for_are_not_taken_as_an_answer() -> None:
    """An odd number marks an answer; without the question it is nothing."""
    solo = Solo().start()
    event = event_of(MALLORY, OPEN)
    solo.hear(MALLORY.peer_id, StoreBlocks(3, (event.block,)))
    assert solo.store.answer(LoadBlock(event.cid)) == Block(None)


def test_a_range_of_keys_that_is_none_is_refused() -> None:
    solo = Solo().start()
    solo.hear(MALLORY.peer_id, CompareKeys(2, LAST_KEY, 0, 1, 1))
    assert solo.reasons() == ["malformed"]


def test_a_comparison_of_all_keys_is_answered_with_a_bounded_message() -> None:
    solo = Solo().start()
    topic = solo.create()
    for _ in range(400):
        solo.publish(topic)
    solo.hear(MALLORY.peer_id, CompareKeys(2, 0, LAST_KEY, 0, 0))
    (answer,) = solo.sent_to(MALLORY.peer_id, KeysDiffer)
    assert len(answer.cids) <= 256
    assert len(answer.ranges) <= 16


def test_a_stranger_cannot_have_more_than_the_bound_in_one_message() -> None:
    solo = Solo().start()
    event = event_of(MALLORY, OPEN)
    solo.hear(MALLORY.peer_id, StoreBlocks(2, (event.block,) * 257))
    solo.hear(MALLORY.peer_id, WantBlocks(2, (Cid(event.cid),) * 65))
    assert len(solo.reasons()) == 2
    assert solo.store.answer(LoadBlock(event.cid)) == Block(None)
