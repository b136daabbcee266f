"""The blocks that a node keeps for the DHT: what it confirms, writes and refuses."""

import pytest

from pulsarcast.model.errors import RemoteError
from pulsarcast.model.ids import cid_of
from pulsarcast.protocol.dht import blocks as blocks_module
from pulsarcast.protocol.dht.blocks import BLOCKS_MAX, Blocks
from pulsarcast.protocol.messages import StoreBlocks, Stored
from tests.support.people import peer
from tests.unit.protocol.dht.network import BRIEF_S, EPOCH_US
from tests.unit.protocol.dht.parts import Parts

BOB = peer("bob")


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
        parts.blocks.take([b"block"], {cid_of(b"other")})
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
    blocks = Blocks(parts.context, parts.table, parts.hot, parts.owner)
    blocks.receive(BOB, StoreBlocks(4, (b"one", b"two", b"three")))
    parts.sync()
    assert [cid_of(each) in blocks for each in (b"one", b"two", b"three")] == [False, True, True]
