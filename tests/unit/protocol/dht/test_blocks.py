"""The blocks that a node keeps for the DHT: what it confirms, writes and refuses."""

import pytest

from pulsarcast.model.errors import RemoteError
from pulsarcast.model.ids import cid_of
from pulsarcast.protocol.dht import blocks as blocks_module
from pulsarcast.protocol.dht.blocks import BLOCKS_MAX, FULL_MAX, FULL_S, Blocks
from pulsarcast.protocol.inputs import PeerUp
from pulsarcast.protocol.messages import Contact, StoreBlocks, Stored
from pulsarcast.protocol.store import Keep
from tests.support.people import peer
from tests.unit.protocol.dht.network import BRIEF_S, EPOCH_US
from tests.unit.protocol.dht.parts import Parts

BOB, CAROL = peer("bob"), peer("carol")


def test_a_block_that_the_node_holds_is_confirmed_but_not_written_again() -> None:
    parts = Parts()
    parts.blocks.receive(BOB, StoreBlocks(4, (b"block",)))
    parts.sync()
    parts.effects()
    parts.blocks.receive(BOB, StoreBlocks(6, (b"block",)))
    assert parts.sent() == [(BOB, Stored(6, (cid_of(b"block"),)))]
    assert parts.sync() == []
    assert parts.owner.stored == [b"block"]


def test_one_bad_block_does_not_keep_the_good_one_out() -> None:
    parts = Parts()
    with pytest.raises(RemoteError):
        parts.blocks.receive(BOB, StoreBlocks(4, (b"bad", b"block")))
    parts.sync()
    assert parts.sent() == [(BOB, Stored(4, (cid_of(b"block"),)))]


def test_a_message_with_more_blocks_than_allowed_is_refused_whole() -> None:
    parts = Parts()
    with pytest.raises(RemoteError):
        parts.blocks.receive(BOB, StoreBlocks(4, (b"block",) * (BLOCKS_MAX + 1)))
    assert parts.effects() == []


def test_a_replica_may_not_hand_over_a_block_that_was_not_asked_for() -> None:
    parts = Parts()
    with pytest.raises(RemoteError):
        parts.blocks.take(BOB, [b"block"], {cid_of(b"other")})
    assert parts.effects() == []


def test_an_expired_block_is_neither_held_nor_wanted_again() -> None:
    parts = Parts()
    cid = cid_of(b"brief")
    parts.blocks.receive(BOB, StoreBlocks(4, (b"brief",)))
    parts.sync()
    parts.turn.wall_us = EPOCH_US + (BRIEF_S + 1) * 1_000_000
    parts.blocks.drop_expired()
    assert cid not in parts.blocks
    assert not parts.blocks.wants(cid)


def test_the_blocks_remembered_as_held_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks_module, "HELD_MAX", 2)
    parts = Parts()
    blocks = Blocks(parts.context, parts.table, parts.hot, parts.reachability, parts.owner)
    blocks.receive(BOB, StoreBlocks(4, (b"one", b"two", b"three")))
    parts.sync()
    assert [cid_of(each) in blocks for each in (b"one", b"two", b"three")] == [False, True, True]


def test_a_block_without_room_on_the_disk_is_not_confirmed_nor_believed_to_be_there() -> None:
    parts = Parts()
    first, second = cid_of(b"one"), cid_of(b"two")
    parts.blocks.receive(BOB, StoreBlocks(4, (b"one", b"two")))
    parts.sync(without=[second])
    assert parts.sent() == [(BOB, Stored(4, (first,)))]
    assert (first in parts.blocks, second in parts.blocks) == (True, False)
    assert parts.owner.stored == [b"one"]


def test_a_block_is_charged_to_the_place_of_the_peer_that_sent_it() -> None:
    parts = Parts()
    parts.reachability.up(PeerUp(Contact(BOB), "192.0.2.0/24"))
    parts.blocks.receive(BOB, StoreBlocks(4, (b"sent",)))
    parts.blocks.take(BOB, [b"fetched"], {cid_of(b"fetched")})
    parts.blocks.receive(CAROL, StoreBlocks(4, (b"elsewhere",)))
    writes = [write for _, writes in parts.persists() for write in writes]
    assert [each.place for each in writes if isinstance(each, Keep)] == [
        "192.0.2.0/24",
        "192.0.2.0/24",
        "",
    ]


def test_a_place_without_room_is_left_alone_for_a_while() -> None:
    parts = Parts()
    parts.reachability.up(PeerUp(Contact(BOB), "192.0.2.0/24"))
    parts.blocks.take(BOB, [b"block"], {cid_of(b"block")})
    parts.sync(without=[cid_of(b"block")])
    assert not parts.blocks.has_room_for(BOB)
    assert parts.blocks.has_room_for(CAROL)
    parts.turn.now += FULL_S
    assert parts.blocks.has_room_for(BOB)


def test_the_places_remembered_to_find_no_room_are_bounded() -> None:
    parts = Parts()
    for number in range(FULL_MAX + 1):
        who, block = peer(f"peer {number}"), b"block %d" % number
        parts.reachability.up(PeerUp(Contact(who), f"192.0.{number}.0/24"))
        parts.blocks.receive(who, StoreBlocks(4, (block,)))
        parts.sync(without=[cid_of(block)])
    assert parts.blocks.has_room_for(peer("peer 0"))
    assert not parts.blocks.has_room_for(peer("peer 1"))
