"""What strangers make a node hold, 64 of them at a time: it stays within 64 MB."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from pulsarcast.model.errors import RemoteError
from pulsarcast.model.events import Sequence, publish_own
from pulsarcast.model.identity import Identity
from pulsarcast.model.ids import Cid, cid_of
from pulsarcast.network.link import Link
from pulsarcast.protocol.limits import FRAME_BYTES_MAX
from pulsarcast.protocol.messages import FindBlock, Range, StoreBlocks
from pulsarcast.wire.codec import encode
from pulsarcast.wire.framing import frame_length, write_frames
from pulsarcast.wire.lanes import Lanes
from tests.attacks.victim import Caller, Victim, address, become_child, dial, keep, say, victim

COUNT = 64
ABOVE_BASE_BYTES = 64 * 2**20
PREFIXES = pytest.mark.parametrize("prefixes", [1, COUNT])


def play(scene: Callable[[], Awaitable[None]]) -> None:
    trio.run(scene)


@asynccontextmanager
async def watched(home: Path) -> AsyncIterator[Victim]:
    """A victim whose memory is looked at meanwhile, and that answers an honest peer in the end."""
    async with victim(home) as attacked, trio.open_nursery() as nursery:
        caller = await Caller.begin(attacked)
        nursery.start_soon(caller.run)
        await caller.ask(1)
        most = base = attacked.memory_bytes

        async def watch() -> None:
            nonlocal most
            while True:
                most = max(most, attacked.memory_bytes)
                await trio.sleep(0.02)

        nursery.start_soon(watch)
        yield attacked
        await caller.ask(1)
        nursery.cancel_scope.cancel()
    assert most - base < ABOVE_BASE_BYTES, f"{(most - base) / 2**20:.0f} MB"


async def sent(links: list[Link], s_max: float = 10) -> None:
    """Wait until the victim has taken what was sent, or has closed the connection."""
    with trio.move_on_after(s_max):
        while any(link.queued_bytes for link in links if link.is_open):
            await trio.sleep(0.05)
    await trio.sleep(0.5)


@PREFIXES
@pytest.mark.parametrize("says_hello", [True, False])
def test_frames_that_are_never_whole(tmp_path: Path, prefixes: int, *, says_hello: bool) -> None:
    """4.4 MB of each were held, before Hello as well as after it."""
    whole = write_frames([encode(StoreBlocks(2, (bytes(FRAME_BYTES_MAX - 100),)))])

    async def scene() -> None:
        async with watched(tmp_path / "victim") as attacked, trio.open_nursery() as nursery:
            links: list[Link] = []
            for number in range(COUNT):
                source = address(number % prefixes)
                link = await dial(attacked, source, says_hello=says_hello)
                nursery.start_soon(keep, link)
                links.append(link)
            for link in links:
                link.send(whole[:-1])
                link.flush()
            await sent(links)
            nursery.cancel_scope.cancel()

    play(scene)


@PREFIXES
def test_parts_that_are_never_whole(tmp_path: Path, prefixes: int) -> None:
    frame = encode(Range(2, cid_of(b"t"), (bytes(FRAME_BYTES_MAX - 200),), more=False))

    async def scene() -> None:
        async with watched(tmp_path / "victim") as attacked, trio.open_nursery() as nursery:
            links: list[Link] = []
            for number in range(COUNT):
                link = await dial(attacked, address(number % prefixes))
                nursery.start_soon(keep, link)
                links.append(link)
            for link in links:
                lanes = Lanes()
                lanes.put("lane", write_frames([frame]))
                while lanes.queued_bytes > 100_000:
                    link.send(lanes.take())
                link.flush()
            await sent(links)
            nursery.cancel_scope.cancel()

    play(scene)


@pytest.mark.parametrize(("prefixes", "as_child"), [(1, False), (COUNT, False), (COUNT, True)])
def test_readers_that_take_nothing(tmp_path: Path, prefixes: int, *, as_child: bool) -> None:
    """Each pinned 8.6 MB for 344 bytes; what is a child of the node's could pin 24."""
    come = become_child if as_child else dial

    async def scene() -> None:
        async with watched(tmp_path / "victim") as attacked, trio.open_nursery() as nursery:
            giver = await dial(attacked, address(0))
            nursery.start_soon(keep, giver)
            blocks = [_block(number) for number in range(1)]
            for block in blocks:
                say(giver, StoreBlocks(2, (block,), if_closest=False))
            await sent([giver])
            cids = [cid_of(block) for block in blocks]
            links = [await come(attacked, address(number % prefixes)) for number in range(COUNT)]
            async with trio.open_nursery() as readers:
                for link in links:
                    readers.start_soon(keep, link)
                await trio.sleep(1)  # Both have answered the negotiation: now nobody reads.
                for link in links:
                    link._close = lambda code: None  # type: ignore[method-assign]
                readers.cancel_scope.cancel()
            for link in links:
                _ask_without_reading(link, cids)
            await trio.sleep(4)
            nursery.cancel_scope.cancel()
            for link in links:
                link._socket.close()

    play(scene)


def _ask_without_reading(link: Link, cids: list[Cid]) -> None:
    link._nursery = None
    asked = [FindBlock(2 * number + 2, cids[number % len(cids)]) for number in range(8)]
    say(link, *asked)


def _block(number: int) -> bytes:
    """An event of a megabyte that the victim keeps for others."""
    topic = cid_of(b"topic")
    return publish_own(
        Identity.from_seed(bytes(32)),
        topic=topic,
        version=topic,
        payload=bytes(1_000_000),
        created=time.time_ns() // 1000,
        nonce=bytes(16),
        sequence=Sequence(1, number + 1),
        parents=(),
    ).block


@PREFIXES
def test_bombs(tmp_path: Path, prefixes: int) -> None:
    """A frame of 4 MiB became 209 MB while it was parsed; four peers together took 764."""
    body = b"\x12\0" * ((FRAME_BYTES_MAX - 64) // 2)
    inner = b"\x08\x02" + body
    bomb = b"\x52" + frame_length(len(inner)) + inner
    small = b"\x62" + frame_length(len(inner)) + inner

    async def throw(attacked: Victim, source: str, frame: bytes) -> None:
        link = await dial(attacked, source)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep, link)
            link.send(write_frames([frame]))
            link.flush()
            await sent([link], 20)
            with pytest.raises(RemoteError):
                await link.open_stream("/x")
            nursery.cancel_scope.cancel()

    async def scene() -> None:
        async with watched(tmp_path / "victim") as attacked, trio.open_nursery() as nursery:
            for number in range(COUNT):
                frame = bomb if number % 2 else small
                nursery.start_soon(throw, attacked, address(number % prefixes), frame)

    play(scene)
