"""Links between hosts of ours on loopback, and peers that break the rules."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from pulsarcast.model.identity import Identity
from pulsarcast.network.host import Host
from pulsarcast.network.link import Link
from pulsarcast.network.yamux import Yamux, YamuxStream

LOOPBACK = "/ip4/127.0.0.1/tcp/0"
RANGE = b"\x62"
"""How a frame begins that may be as large as frames get: a Range. Links look no further."""
ANN, BEN, STOCK = (Identity(bytes((octet,)) * 32) for octet in b"abs")


class Inbox:
    """What came in over one link."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.calls = 0
        self._news = trio.Event()

    def receive(self, frames: list[bytes]) -> None:
        self.frames += frames
        self.calls += 1
        self._news.set()

    async def holds(self, count: int) -> None:
        """Wait for this many frames."""
        while len(self.frames) < count:
            self._news = trio.Event()
            await self._news.wait()


@asynccontextmanager
async def linked() -> AsyncIterator[tuple[Link, Link]]:
    """Two ends of one connection, neither of them run yet: who dialled, and who was dialled."""
    ann, ben = Host(ANN), Host(BEN)
    addresses = await ben.listen(LOOPBACK)
    welcomed = trio.Event()
    links: list[Link] = []

    async def accepted(link: Link) -> None:
        links.append(link)
        welcomed.set()
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ben.serve, accepted)
        link = await ann.dial(BEN.peer_id, addresses)
        await welcomed.wait()
        try:
            yield link, links[0]
        finally:
            link.close()
            nursery.cancel_scope.cancel()


class Rogue:
    """A peer that has shaken hands properly and says whatever it likes from then on."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self.mux = Yamux(link.dialled)
        self.opened: list[YamuxStream] = []
        self.heard: dict[int, bytes] = {}
        self.reset: list[int] = []
        self.mux.on_open = self._open

    def _open(self, stream: YamuxStream) -> None:
        self.opened.append(stream)
        self.listen(stream)

    def listen(self, stream: YamuxStream) -> None:
        """Remember what comes on a stream."""
        number = stream.stream_id
        self.heard[number] = b""

        def hear(data: bytes) -> None:
            self.heard[number] += data

        def end(was_reset: bool) -> None:
            if was_reset:
                self.reset.append(number)

        stream.on_data = hear
        stream.on_end = end

    @property
    def connection(self) -> socket.socket:
        return self._link._socket

    async def say(self, *speech: bytes) -> None:
        """Send what the muxer has, and then this."""
        sealed = self._link._noise.seal(self.mux.take() + b"".join(speech))
        while sealed:
            await trio.lowlevel.wait_writable(self.connection.fileno())
            sealed = sealed[self.connection.send(sealed) :]

    async def hear(self) -> bool:
        """Take what comes; False at the end."""
        await trio.lowlevel.wait_readable(self.connection.fileno())
        try:
            data = self.connection.recv(65536)
        except ConnectionResetError:
            return False
        for plaintext in self._link._noise.feed(data):
            self.mux.feed(plaintext)
        return bool(data)
