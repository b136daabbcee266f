"""The driver: what several peers send at once shares a commit, and no message waits for it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trio.testing

from pulsarcast.model.ids import PeerId
from pulsarcast.model.keys import Key
from pulsarcast.model.topics import create_meta_topic
from pulsarcast.network import driver as driver_module
from pulsarcast.network.driver import Driver
from pulsarcast.network.node import Node
from pulsarcast.protocol.messages import FindPeers, StoreBlocks
from pulsarcast.wire.codec import encode
from tests.support.people import ALICE, BOB, CAROL


def _block_frame(number: int) -> bytes:
    """A frame that makes the node write: it is asked to keep a topic that was made just now.

    An odd request would be the answer to one of the node's own.
    """
    now_us = time.time_ns() // 1000
    meta = create_meta_topic(ALICE, f"topic {number}", created=now_us, nonce=bytes(16))
    return encode(StoreBlocks(2 * number, (meta.block,)))


class Rig:
    """A node without peers, whose driver is told what peers sent, and how it acts on that."""

    def __init__(self, driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
        self.driver = driver
        self.done: list[str] = []
        self.more_has_arrived = True
        """Whether other peers have sent something that is not read yet."""
        monkeypatch.setattr(driver.host, "has_arrivals", lambda: self.more_has_arrived)
        monkeypatch.setattr(driver.neighbours, "send", lambda *_: self.done.append("send"))
        flush, settle = driver.neighbours.flush, driver.disk.settle

        def flushed() -> None:
            self.done.append("flush")
            flush()

        def settled() -> list[object]:
            self.done.append("commit")
            return settle()  # type: ignore[return-value]

        monkeypatch.setattr(driver.neighbours, "flush", flushed)
        monkeypatch.setattr(driver.disk, "settle", settled)

    def hear(self, peer: PeerId, *frames: bytes) -> None:
        """One read from one peer's connection."""
        self.driver.received(peer, list(frames))
        self.driver.gather()

    @property
    def commits(self) -> int:
        return self.done.count("commit")


@asynccontextmanager
async def _rig(home: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rig]:
    async with Node.open(home) as node:
        await node._running.rest()
        with monkeypatch.context() as patch:
            yield Rig(node._running, patch)


def test_one_commit_serves_what_several_peers_sent_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene() -> None:
        async with _rig(tmp_path / "ann", monkeypatch) as rig:
            for number, peer in enumerate((ALICE, BOB), 1):
                rig.hear(peer.peer_id, _block_frame(number))
            assert rig.commits == 0
            rig.more_has_arrived = False
            rig.hear(CAROL.peer_id, _block_frame(3))
            assert rig.commits == 1, "it does not wait for a fourth"
            assert rig.done.count("send") == 3, "each peer hears that its topic is kept"
            assert rig.done.index("commit") < rig.done.index("send")

    trio.run(scene)


def test_what_has_arrived_and_cannot_be_heard_does_not_hold_up_a_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene() -> None:
        async with _rig(tmp_path / "ann", monkeypatch) as rig:
            rig.hear(ALICE.peer_id, _block_frame(1))
            await rig.driver.rest()
            assert rig.commits == 1

    trio.run(scene)


def test_no_message_waits_for_a_commit_or_for_other_peers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene() -> None:
        async with _rig(tmp_path / "ann", monkeypatch) as rig:
            rig.hear(ALICE.peer_id, _block_frame(1), encode(FindPeers(2, Key(0))))
            assert rig.done[:2] == ["send", "flush"]
            assert rig.commits == 0

    trio.run(scene)


def test_a_peer_that_never_stops_sending_does_not_hold_up_a_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene() -> None:
        async with _rig(tmp_path / "ann", monkeypatch) as rig:
            for number in range(1, 11):
                rig.hear(ALICE.peer_id, _block_frame(number))
                await trio.lowlevel.checkpoint()
            assert rig.commits >= 4, "at most two passes over the connections go before a commit"

    trio.run(scene)


def test_what_a_commit_gathers_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frames = [_block_frame(number) for number in range(1, 7)]
    monkeypatch.setattr(driver_module, "GATHERED_BYTES_MAX", 2 * len(frames[0]))

    async def scene() -> None:
        async with _rig(tmp_path / "ann", monkeypatch) as rig:
            for frame in frames:
                rig.hear(BOB.peer_id, frame)
            assert rig.commits == 3

    trio.run(scene)


def test_what_peers_sent_is_committed_with_what_a_caller_asks_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene() -> None:
        async with _rig(tmp_path / "ann", monkeypatch) as rig:
            rig.hear(BOB.peer_id, _block_frame(1))
            rig.driver.settle()
            assert rig.commits == 1
            await rig.driver.rest()
            await trio.testing.wait_all_tasks_blocked()
            assert rig.commits == 1, "nothing was left for a commit of its own"

    trio.run(scene)
