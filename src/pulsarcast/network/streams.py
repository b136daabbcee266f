"""Further streams of a connection: libp2p's own services, beside the frames of Pulsarcast.

A service serves one protocol: it gets a Stream for each that a peer opens, as a task of the link.
Streams that a node opens itself are the same thing the other way round (`Link.open_stream`). They
read and write by awaiting, which frames do not: frames go through `link.py` without a task switch.

What nobody reads is bounded: a stream's peer is granted more only for what was read (one Yamux
window, 256 KiB), all streams of all links share `UNREAD_BYTES_MAX`, and a writer waits while
`WRITE_BYTES_MAX` wait for the peer. Whatever a peer does wrong on such a stream ends that stream.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from pulsarcast.model.errors import Rejection, RemoteError, Verdict
from pulsarcast.network.negotiation import read_message
from pulsarcast.network.yamux import YamuxStream

if TYPE_CHECKING:
    from pulsarcast.network.link import Link

UNREAD_BYTES_MAX: Final = 64 * 1024 * 1024
"""What has arrived on all streams of a host and nobody has read: 256 full windows. A stream that
brings more is reset, unless a circuit that holds more can end instead."""
WRITE_BYTES_MAX: Final = 64 * 1024
"""What may wait in a stream before its writer waits, too."""


class Service(NamedTuple):
    """What a node does with the streams that peers open for one protocol."""

    serve: Callable[[Stream], Awaitable[None]]
    """Runs as a task of the stream's link. A RemoteError resets the stream, and nothing else."""
    streams_max: int
    """Streams of one link that are served at once; further ones are reset."""
    s_max: float
    """How long one stream is served."""


class Services(dict[str, Service]):
    """What a node serves, by protocol; all its links look here."""

    def __init__(self) -> None:
        super().__init__()
        self.unread_bytes = 0
        """What has arrived on their streams and nobody has read."""
        self.make_room: Callable[[], bool] = _no_room
        """Called where that would be too much: ends what holds most, or says that nothing can."""


def _no_room() -> bool:
    return False


class Stream:
    """One stream, both ways; made by Link only.

    Everything that waits raises RemoteError where the peer resets the stream or the connection ends
    (code DISCONNECTED). Whoever waits sets the time for it.
    """

    def __init__(
        self, link: Link, stream: YamuxStream, protocol: str, services: Services, early: bytes = b""
    ) -> None:
        self.link = link
        self.protocol = protocol
        self._stream = stream
        self._services = services
        self._unread = bytearray()
        self._peer_closed = self._over = False
        self._broken = ""
        """Why nothing more comes or goes."""
        self._news: trio.Event | None = None
        self._room: trio.Event | None = None
        stream.on_data = self._take
        stream.on_end = self._end
        self._take(early)

    @property
    def unread_bytes(self) -> int:
        """What has arrived and nobody has read."""
        return len(self._unread)

    async def receive(self, size_max: int) -> bytes:
        """Read what there is, at most this much; b"" once the peer has closed its side."""
        await trio.lowlevel.checkpoint()
        while not self._unread:
            if self._broken:
                raise self._disconnected()
            if self._peer_closed:
                return b""
            self._news = trio.Event()
            await self._news.wait()
        unread = self._unread
        data = bytes(unread[:size_max])
        del unread[: len(data)]
        self._services.unread_bytes -= len(data)
        self._stream.consumed(len(data))
        self.link.flush_answers()
        return data

    async def read(self, size: int) -> bytes:
        """Read exactly this many bytes."""
        data = b""
        while len(data) < size:
            piece = await self.receive(size - len(data))
            if not piece:
                raise RemoteError(
                    "closed a stream in the middle", Verdict.IGNORE, code=Rejection.DISCONNECTED
                )
            data = data + piece if data else piece
        return data

    async def read_message(self, bytes_max: int) -> bytes:
        """Read a message behind its length, as most of libp2p's services frame theirs."""
        return await read_message(self, bytes_max)

    async def write(self, data: bytes) -> None:
        """Write all of it; returns once little of it waits for the peer."""
        await trio.lowlevel.checkpoint()
        for start in range(0, len(data), WRITE_BYTES_MAX):
            if self._broken:
                raise self._disconnected()
            self._stream.send(data[start : start + WRITE_BYTES_MAX])
            self.link.flush()
            while self._stream.queued_bytes >= WRITE_BYTES_MAX and not self._broken:
                self._room = trio.Event()
                self.link.wake_when_room(self)
                await self._room.wait()
        if self._broken:
            raise self._disconnected()

    def close(self) -> None:
        """Send nothing more once all is sent that was written; the peer may still send."""
        self._stream.close()
        self.link.flush()

    def reset(self) -> None:
        """End both ways at once; whoever waits is told."""
        self._stream.reset()
        self.link.flush()
        self.break_off("the stream was reset")

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close it, dropping what still comes; after an error, reset it."""
        if kind is not None:
            self.reset()
        elif not self._over:
            is_closed = self._peer_closed
            self.break_off("the stream is closed")
            self.link.let_end(self._stream, is_closed)

    # For the link.

    def break_off(self, why: str) -> None:
        """Give back what is held; whoever waits gets an error."""
        if self._over:
            return
        self._over = True
        self._broken = why
        self._drop()
        self.link.forget(self)
        self.wake()

    def has_room(self) -> bool:
        """Whether a writer may go on; wakes it if so."""
        if self._stream.queued_bytes >= WRITE_BYTES_MAX:
            return False
        if self._room is not None:
            self._room.set()
        return True

    def wake(self) -> None:
        """Have readers and writers look again."""
        for event in (self._news, self._room):
            if event is not None:
                event.set()

    def _take(self, data: bytes) -> None:
        services = self._services
        while services.unread_bytes + len(data) > UNREAD_BYTES_MAX:
            if not services.make_room():
                self._stream.reset()
                self.break_off("too much waits to be read")
            if self._over:
                return
        services.unread_bytes += len(data)
        self._unread += data
        if self._news is not None:
            self._news.set()

    def _end(self, was_reset: bool) -> None:
        if was_reset:
            # What came before is still there to be read.
            self._broken = "the peer reset the stream"
        self._peer_closed = True
        self.wake()

    def _drop(self) -> None:
        self._services.unread_bytes -= len(self._unread)
        self._unread.clear()

    def _disconnected(self) -> RemoteError:
        return RemoteError(self._broken, Verdict.IGNORE, code=Rejection.DISCONNECTED)
