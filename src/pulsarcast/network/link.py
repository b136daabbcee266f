"""One secured connection to one authenticated peer, carrying frames (docs/spec/wire.md).

Sending and receiving are plain calls: bytes go from the socket through Noise, Yamux and the frame
reader without a task switch or a lock in between, since both cost more than the message itself.
Tasks exist only where there is something to wait for: one waits for the socket to bring
something, one for it to take what it did not take at once, one for negotiations to end.

Each side opens one Yamux stream for its own direction and says its protocol on it
(multistream-select 1.0.0), with its first frames right behind: the peer's answer is checked when it
comes. Those messages are framed as ours are, a varint and that many bytes, so one reader cuts both.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Final

import trio

from pulsarcast.model.errors import Rejection, RemoteError, Verdict
from pulsarcast.model.ids import PeerId
from pulsarcast.network.negotiation import HEADER, LINE_BYTES_MAX, NOT_AVAILABLE, line
from pulsarcast.network.noise import NoiseFraming
from pulsarcast.network.yamux import AWAY_NORMAL, AWAY_PROTOCOL_ERROR, Yamux, YamuxStream
from pulsarcast.wire.framing import FrameReader, write_frames

PROTOCOL: Final = "/pulsarcast/2.0.0"
READ_BYTES_MAX: Final = 64 * 1024
"""What one call takes from the socket."""
NEGOTIATION_S_MAX: Final = 10.0
"""How long a stream may take to say its protocol, or to answer ours."""

_PROTOCOL: Final = line(PROTOCOL)
_GREETING: Final = (HEADER, _PROTOCOL)


class Link:
    """A connection to a peer that has proved who it is; made by Host only."""

    def __init__(
        self,
        connection: socket.socket,
        noise: NoiseFraming,
        peer: PeerId,
        *,
        dialled: bool,
        remote_address: str,
        local_address: str,
        plaintext: bytes = b"",
        bytes_in: int = 0,
        bytes_out: int = 0,
        on_close: Callable[[Link], None] | None = None,
    ) -> None:
        self.peer = peer
        self.dialled = dialled
        """Whether we are the one who dialled."""
        self.remote_address = remote_address
        self.local_address = local_address
        self.reached_at: str | None = None
        """The address that we dialled, as it was told to us."""
        self.bytes_in = bytes_in
        """What came from the socket, handshake included."""
        self.bytes_out = bytes_out
        """What the kernel took, handshake included."""
        self.said_goodbye = False
        """Whether the peer closed it in good order, because nobody used it."""
        self._socket = connection
        self._noise = noise
        self._early = plaintext
        """What the peer sent right behind the handshake."""
        self._on_close = on_close
        self._mux = mux = Yamux(dialled)
        mux.on_open = self._meet
        mux.on_away = self._part
        self._reader = FrameReader()
        self._frames: list[bytes] = []
        self._unsent: memoryview | None = None
        """Sealed bytes that the kernel did not take; until it has, nothing more is sealed."""
        self._unwritable = False
        self._nursery: trio.Nursery | None = None
        self._negotiating: dict[YamuxStream, float] = {}
        """Until when each stream may take, in that order."""
        self._source: YamuxStream | None = None
        """The stream that the peer's frames come on."""
        self._watching = False
        self._over = self._closed = False
        self._failure: RemoteError | None = None
        self._stream = stream = mux.open()
        answers = FrameReader(LINE_BYTES_MAX)
        stream.on_data = partial(self._check_answer, answers, list(_GREETING))
        stream.on_end = self._end_own
        stream.send(write_frames(_GREETING))

    @property
    def queued_bytes(self) -> int:
        """What was sent and the kernel has not taken yet."""
        unsent = self._unsent
        return self._stream.queued_bytes + (0 if unsent is None else len(unsent))

    def send(self, data: bytes) -> None:
        """Add frames (as `write_frames` writes them) to what the next flush sends."""
        self._stream.send(data)

    def flush(self) -> None:
        """Give the kernel all that it takes now; a task of `run` goes on with the rest."""
        if self._unsent is None and not self._unwritable:
            all_taken = self._flush_more()
            if not all_taken and self._nursery is not None:
                self._nursery.start_soon(self._write_rest)

    def _flush_more(self) -> bool:
        """Seal and write, until nothing is left or the kernel takes no more (False)."""
        while chunk := self._mux.take():
            sealed = self._noise.seal(chunk)
            sent = self._write(sealed)
            if sent < len(sealed):
                if not self._unwritable:
                    self._unsent = memoryview(sealed)[sent:]
                return False
        return True

    def close(self, *, goodbye: bool = False) -> None:
        """Close the connection at once, whatever still waits; `run` ends. Twice is as good.

        With `goodbye` the peer is told that it was only idle, and nothing is wrong with us.
        """
        self._close(AWAY_NORMAL if goodbye else None)

    async def run(self, receive: Callable[[list[bytes]], None]) -> None:
        """Read until the connection ends, whoever ends it, and close it.

        `receive` gets the frames of each read from the socket in one call. Raises RemoteError where
        the peer broke a rule; frames from before that are handed over first.
        """
        failure: Exception | None = None
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                try:
                    self._start(nursery)
                    await self._read(receive)
                except trio.ClosedResourceError:
                    pass  # by `close`
                except Exception as error:  # raised below: a nursery would wrap it
                    failure = error
                self._nursery = None
                nursery.cancel_scope.cancel()
        finally:
            self._nursery = None
            at_fault = isinstance(failure or self._failure, RemoteError)
            self._close(AWAY_PROTOCOL_ERROR if at_fault else None)
        if failure is not None:
            raise failure
        if self._failure is not None:
            raise self._failure

    def _start(self, nursery: trio.Nursery) -> None:
        """Send what waits already, and give the peer until a deadline to answer."""
        if self._unsent is not None:
            nursery.start_soon(self._write_rest)
        self._expect(self._stream)
        self.flush()

    async def _read(self, receive: Callable[[list[bytes]], None]) -> None:
        """Take what the socket brings, until it brings no more."""
        connection, descriptor = self._socket, self._socket.fileno()
        early, self._early = self._early, b""
        going_on = self._take((early,), receive)
        while going_on:
            try:
                data = connection.recv(READ_BYTES_MAX)
            except BlockingIOError:
                await trio.lowlevel.wait_readable(descriptor)
                continue
            except OSError:
                return
            if not data:
                return
            self.bytes_in += len(data)
            if not self._take(self._noise.feed(data), receive):
                return
            if len(data) < READ_BYTES_MAX:
                await trio.lowlevel.wait_readable(descriptor)
            else:
                await trio.lowlevel.checkpoint()

    def _take(self, plaintexts: Iterable[bytes], receive: Callable[[list[bytes]], None]) -> bool:
        """Hand over the frames in what arrived, send the answers; False where it was the last."""
        feed = self._mux.feed
        try:
            for plaintext in plaintexts:
                feed(plaintext)
        finally:
            frames = self._frames
            if frames:
                self._frames = []
                receive(frames)
        if self._mux.has_output:
            self.flush()
        return not self._over

    def _write(self, data: bytes | memoryview) -> int:
        """Give the kernel what it takes; once it takes nothing ever again, reading ends, too."""
        try:
            sent = self._socket.send(data)
        except BlockingIOError:
            return 0
        except OSError:
            self._unwritable = True
            self._unsent = None
            self._stream.reset()
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            return 0
        self.bytes_out += sent
        return sent

    async def _write_rest(self) -> None:
        """Wait for the kernel to take what it did not take at once, and flush what came since."""
        while (unsent := self._unsent) is not None:
            try:
                await trio.lowlevel.wait_writable(self._socket.fileno())
            except trio.ClosedResourceError:
                return
            sent = self._write(unsent)
            if sent < len(unsent):
                if not self._unwritable:
                    self._unsent = unsent[sent:]
            else:
                self._unsent = None
                self._flush_more()

    def _close(self, code: int | None) -> None:
        """Say why if nothing stands in line before that, and close the socket."""
        if self._closed:
            return
        self._closed = self._over = True
        if code is not None and not self.queued_bytes:
            self._mux.go_away(code)
            self.flush()
        self._unwritable = True
        self._unsent = None
        self._stream.reset()
        trio.lowlevel.notify_closing(self._socket.fileno())
        self._socket.close()
        if self._on_close is not None:
            self._on_close(self)

    # Streams, and what is said on them first.

    def _part(self, code: int) -> None:
        """Take the peer's farewell."""
        self.said_goodbye = code == AWAY_NORMAL
        self._over = True

    def _meet(self, stream: YamuxStream) -> None:
        """Take a stream that the peer opened, and wait for what it is for."""
        reader, expected = FrameReader(), list(_GREETING)
        stream.on_data = partial(self._negotiate, stream, reader, expected)
        stream.on_end = partial(self._forget, stream)
        self._expect(stream)

    def _negotiate(
        self, stream: YamuxStream, reader: FrameReader, expected: list[bytes], data: bytes
    ) -> None:
        """Answer what the peer says first on a stream of its own."""
        messages = reader.feed(data)
        for at, message in enumerate(messages, 1):
            if message == expected[0]:
                stream.send(write_frames((message,)))
                del expected[0]
                if not expected:
                    self._adopt(stream, reader, messages[at:])
                    return
                continue
            if len(expected) == len(_GREETING):
                stream.reset()
                self._forget(stream, True)
            else:
                stream.send(write_frames((NOT_AVAILABLE,)))
                stream.on_data = _ignore
                stream.close()
            return
        if reader.pending_bytes > LINE_BYTES_MAX:
            raise RemoteError("a protocol with a very long name", code=Rejection.OVERSIZE)

    def _adopt(self, stream: YamuxStream, reader: FrameReader, frames: list[bytes]) -> None:
        """Read the peer's frames from this stream."""
        if self._source is not None:
            raise RemoteError(f"a second stream of {PROTOCOL}", code=Rejection.BAD_STREAM)
        del self._negotiating[stream]
        self._source = stream
        self._reader = reader
        self._frames += frames
        stream.on_data = self._receive
        stream.on_end = self._end_source

    def _receive(self, data: bytes) -> None:
        """Cut the peer's frames."""
        self._frames += self._reader.feed(data)

    def _end_source(self, was_reset: bool) -> None:
        """The peer sends no more frames."""
        if self._reader.pending_bytes and not was_reset:
            raise RemoteError("a stream closed in the middle of a frame", code=Rejection.BAD_STREAM)
        self._over = True

    def _forget(self, stream: YamuxStream, was_reset: bool) -> None:
        """A stream ended before it was for anything."""
        self._negotiating.pop(stream, None)
        if not was_reset:
            stream.close()

    def _check_answer(self, reader: FrameReader, expected: list[bytes], data: bytes) -> None:
        """Look at what the peer answers on our stream: our greeting, word for word."""
        for message in reader.feed(data):
            if not expected:
                raise RemoteError(
                    "data against the direction of a stream", code=Rejection.BAD_STREAM
                )
            if message != expected[0]:
                if message == NOT_AVAILABLE:
                    raise RemoteError(
                        f"does not speak {PROTOCOL}",
                        Verdict.IGNORE,
                        code=Rejection.UNSUPPORTED_PROTOCOL,
                    )
                raise RemoteError(
                    "answers a protocol with another", code=Rejection.UNSUPPORTED_PROTOCOL
                )
            del expected[0]
        if not expected:
            self._negotiating.pop(self._stream, None)
            if reader.pending_bytes:
                raise RemoteError(
                    "data against the direction of a stream", code=Rejection.BAD_STREAM
                )

    def _end_own(self, was_reset: bool) -> None:
        """The peer takes no frames any more, or will not answer again, as it need not."""
        if was_reset:
            self._over = True
        elif self._stream in self._negotiating:
            raise RemoteError(
                f"closed a stream without an answer to {PROTOCOL}",
                Verdict.IGNORE,
                code=Rejection.UNSUPPORTED_PROTOCOL,
            )

    def _expect(self, stream: YamuxStream) -> None:
        """Give a stream until a deadline to be for something."""
        self._negotiating[stream] = trio.current_time() + NEGOTIATION_S_MAX
        if not self._watching and self._nursery is not None:
            self._watching = True
            self._nursery.start_soon(self._watch)

    async def _watch(self) -> None:
        """Drop streams whose negotiation takes too long; without ours, the whole connection."""
        while self._negotiating:
            stream, deadline = next(iter(self._negotiating.items()))
            await trio.sleep_until(deadline)
            if self._negotiating.pop(stream, None) is None:
                continue
            if stream is self._stream:
                self._failure = RemoteError(
                    f"no answer to {PROTOCOL}", Verdict.IGNORE, code=Rejection.UNSUPPORTED_PROTOCOL
                )
                self.close()
                return
            stream.reset()
            self.flush()
        self._watching = False


def _ignore(_: bytes) -> None:
    """Take what is said on a stream that was refused."""
