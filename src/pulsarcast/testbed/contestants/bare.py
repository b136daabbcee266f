"""The bare engine: the same bytes along trees of the same fan-out, and nothing else.

No descriptors, signatures, frontiers, replicas or disk. One long-lived stream per neighbour and
direction, frames behind varint lengths, all that is due in a turn in one write: how little a
delivery can cost with stock libp2p below it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import trio
from libp2p.abc import IHost, INetStream
from libp2p.custom_types import TProtocol

from pulsarcast.model.errors import LocalError
from pulsarcast.model.ids import Cid, PeerId, cid_of
from pulsarcast.testbed.contestants import stock
from pulsarcast.testbed.contestants.contestants import Receipt, Seat, Traffic
from pulsarcast.testbed.contestants.topologies import tree_neighbours
from pulsarcast.wire.framing import FrameReader, write_frames

PROTOCOL: Final = TProtocol("/pulsarcast-bare/1")
_READ_BYTES: Final = 64 * 1024
_TOPIC_BYTES: Final = 8
_SIZE_BYTES: Final = 4
_HEAD_BYTES: Final = _TOPIC_BYTES + _SIZE_BYTES


class _Writer:
    """A neighbour's stream in our direction; what waits for it leaves in one write."""

    def __init__(self, stream: INetStream) -> None:
        self._stream = stream
        self._waiting: list[bytes] = []
        self._woken = trio.Event()

    def put(self, frame: bytes) -> None:
        """Send a frame with the next write."""
        self._waiting.append(frame)
        self._woken.set()

    async def run(self) -> None:
        """Write whatever is due, for ever."""
        while True:
            await self._woken.wait()
            self._woken = trio.Event()
            frames, self._waiting = self._waiting, []
            await self._stream.write(write_frames(frames))


class BareNode:
    """One host and its streams; a topic is a list of neighbours."""

    def __init__(self, seat: Seat, host: IHost, nursery: trio.Nursery) -> None:
        self._seat = seat
        self._host = host
        self._nursery = nursery
        self._everyone: Sequence[str] = ()
        self._indices: dict[bytes, int] = {}
        """Nodes by peer id."""
        self._writers: dict[int, _Writer] = {}
        self._opening = trio.Lock()
        self._topics: dict[bytes, list[int]] = {}
        """Neighbours by the first bytes of a topic's digest."""
        self.halted: str | None = None
        self.peer = PeerId(host.get_id().to_bytes())
        self.addresses: Sequence[str] = stock.addresses_of(host)

    async def join(self, addresses: Sequence[str]) -> None:
        """Remember who is who; connections are made where a tree needs them."""
        self._everyone = addresses
        self._indices = {
            stock.peer_of(address).to_bytes(): index for index, address in enumerate(addresses)
        }

    async def create_topic(
        self,
        name: str,
        order: str,
        dissemination: str = "tree",
        sequencers: Sequence[PeerId] = (),
    ) -> Cid:
        """A topic is no more than a name."""
        return cid_of(name.encode())

    def term_led(self, topic: Cid) -> int | None:
        """Nobody leads here."""
        return None

    async def subscribe(self, topic: Cid) -> None:
        """Take our place in the topic's tree: a stream to the parent, and one to each child."""
        settings = self._seat.settings
        parent, children = tree_neighbours(
            self._seat.index,
            size=self._seat.size,
            fanout=settings.fanout,
            seed=settings.seed,
            topic=topic,
        )
        neighbours = children if parent is None else [parent, *children]
        # Of two nodes the one with the lower index dials, whatever their places: the other has
        # to wait for it, so it dials first.
        async with self._opening:
            for other in neighbours:
                if self._seat.index < other and other not in self._writers:
                    await stock.dial(self._host, self._everyone[other])
            for other in neighbours:
                if other not in self._writers:
                    await self._open_stream(other)
        self._topics[_short(topic)] = neighbours

    async def _open_stream(self, other: int) -> None:
        peer, network = stock.peer_of(self._everyone[other]), self._host.get_network()
        await stock.wait_for(lambda: bool(network.get_connections(peer)), "a connection")
        writer = _Writer(await self._host.new_stream(peer, [PROTOCOL]))
        self._nursery.start_soon(writer.run)
        self._writers[other] = writer

    async def publish(self, topic: Cid, payload: bytes, *, injection: str, ack: str) -> Receipt:
        """Hand a frame to every neighbour, and the payload to ourselves."""
        head = _short(topic) + len(payload).to_bytes(_SIZE_BYTES, "big")
        frame = (head + payload).ljust(self._seat.settings.frame_bytes, b"\0")
        if _short(topic) not in self._topics:
            raise LocalError("a bare node publishes only where it has a place in the tree")
        self._receive(frame, sender=None)
        return Receipt(cid_of(payload), 0)

    def _receive(self, frame: bytes, *, sender: int | None) -> None:
        size = int.from_bytes(frame[_TOPIC_BYTES:_HEAD_BYTES], "big")
        self._seat.deliver(frame[_HEAD_BYTES : _HEAD_BYTES + size])
        for neighbour in self._topics.get(frame[:_TOPIC_BYTES], ()):
            if neighbour != sender:
                self._writers[neighbour].put(frame)

    async def read(self, stream: INetStream) -> None:
        """Read a neighbour's stream to its end."""
        sender = self._indices[stream.muxed_conn.peer_id.to_bytes()]
        reader = FrameReader()
        while data := await stream.read(_READ_BYTES):
            for frame in reader.feed(data):
                self._receive(frame, sender=sender)

    def traffic(self) -> Traffic:
        """Bytes of this process."""
        return stock.traffic()


def _short(topic: Cid) -> bytes:
    return topic[-_TOPIC_BYTES:]


@asynccontextmanager
async def open_bare(seat: Seat) -> AsyncIterator[BareNode]:
    """A host that reads streams and passes frames on."""
    async with stock.open_host(seat.listen) as host, trio.open_nursery() as nursery:
        node = BareNode(seat, host, nursery)
        host.set_stream_handler(PROTOCOL, node.read)
        yield node
        nursery.cancel_scope.cancel()
