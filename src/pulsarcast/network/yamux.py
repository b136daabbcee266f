"""Yamux without IO: many streams in one connection (/yamux/1.0.0, HashiCorp's specification).

Bytes of the connection go in with `feed`, which calls back at once; bytes for it are collected and
come out with `take`. A frame is a header of twelve bytes (version, type, flags, stream, length, all
big-endian) and, in data frames, a body. A body is handed on as it arrives, so nothing but part of
a header is ever held back, and whoever takes the data has consumed it: half a window consumed is
half a window granted again. On a stream that is paced, its owner says what was consumed: at most
one window waits unread, and the sender waits.

Whatever a peer may not do raises RemoteError, and such a connection is to be closed.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from typing import Final

from pulsarcast.model.errors import Rejection, RemoteError

PROTOCOL: Final = "/yamux/1.0.0"

HEADER_BYTES: Final = 12
WINDOW_BYTES: Final = 256 * 1024
"""How much either side of a new stream may send before it is granted more (specification)."""
DATA_BYTES_MAX: Final = 65_519 - HEADER_BYTES
"""A data frame that we send: with its header it fills one Noise message and not part of a second.
Other implementations stop at 64 KiB - 12, too."""
TAKE_BYTES_MAX: Final = 4 * DATA_BYTES_MAX
"""Data that one `take` gives at most: sealing far ahead of the kernel would only cost memory."""
STREAMS_MAX: Final = 32
"""Streams that a peer may have open at once: it needs one, libp2p's services some more, and a
relay's client one for each connection. Further ones are reset."""
CONTROL_BYTES_MAX: Final = 64 * 1024
"""Answers that wait for a peer which asks and does not read: 5,461 frames."""
SEND_WINDOW_MAX: Final = 2**32 - 1

DATA: Final = 0
WINDOW_UPDATE: Final = 1
PING: Final = 2
GO_AWAY: Final = 3

SYN: Final = 1
ACK: Final = 2
FIN: Final = 4
RST: Final = 8
_FLAGS: Final = SYN | ACK | FIN | RST

AWAY_NORMAL: Final = 0
AWAY_PROTOCOL_ERROR: Final = 1

_HEADER: Final = struct.Struct(">BBHII")
_pack = _HEADER.pack
_unpack_from = _HEADER.unpack_from


def _ignore(_: object) -> None:
    """Take what nobody wants any more."""


class YamuxStream:
    """One stream, both ways; made by Yamux only."""

    __slots__ = (
        "_closing",
        "_consumed",
        "_mux",
        "_paced",
        "_peer_closed",
        "_receive_window",
        "_send_window",
        "_waiting",
        "on_data",
        "on_end",
        "queued_bytes",
        "stream_id",
        "window_bytes",
    )

    def __init__(self, mux: Yamux, stream_id: int) -> None:
        self.stream_id = stream_id
        self.on_data: Callable[[bytes], None] = _ignore
        """Called with data as it arrives, in pieces that mean nothing."""
        self.on_end: Callable[[bool], None] = _ignore
        """Called when the peer sends no more: False where it closed its side, True for a reset."""
        self.queued_bytes = 0
        """What was sent and waits: for the peer's window, or for `take`."""
        self.window_bytes = WINDOW_BYTES
        """What the peer may send ahead, once it sends anything."""
        self._mux = mux
        self._waiting: deque[bytes | memoryview] = deque()
        self._send_window = self._receive_window = WINDOW_BYTES
        self._closing = self._peer_closed = False
        self._paced = False
        self._consumed = 0
        """What was consumed of a paced stream, and not granted again yet."""

    def send(self, data: bytes) -> None:
        """Send data, in order behind what waits already; after `close` or a reset it is dropped."""
        if self._closing or not data:
            return
        self._waiting.append(data)
        self.queued_bytes += len(data)
        if self._send_window:
            self._mux._sending[self] = None

    def pace(self) -> None:
        """Grant the peer only what `consumed` counts from now on."""
        self._paced = True

    def unpace(self) -> None:
        """Grant the peer again whatever arrives; all that arrived is consumed."""
        self._paced = False
        self._consumed = 0
        if self._receive_window <= WINDOW_BYTES // 2:
            self._refill()

    def consumed(self, size: int) -> None:
        """Count data of a paced stream that its owner needs no room for any more."""
        self._consumed += size
        is_open = not self._peer_closed and self.stream_id in self._mux._streams
        if is_open and self._consumed >= WINDOW_BYTES // 2:
            granted, self._consumed = self._consumed, 0
            self._receive_window += granted
            self._mux._answer(_pack(0, WINDOW_UPDATE, 0, self.stream_id, granted))

    def close(self) -> None:
        """Send nothing more once all that waits is sent; the peer may still send."""
        if not self._closing:
            self._closing = True
            self._mux._sending[self] = None

    def reset(self) -> None:
        """End both ways at once; nothing of this stream is called back any more."""
        if self._forget():
            self._mux._control.append(_pack(0, WINDOW_UPDATE, RST, self.stream_id, 0))

    def _forget(self) -> bool:
        """End both ways on our side; False where that was so already."""
        self._closing = True
        self._waiting.clear()
        self.queued_bytes = 0
        self.on_data = self.on_end = _ignore
        return self._mux._remove(self)

    def _cut(self, pieces: list[bytes | memoryview], room: int) -> int:
        """Add the frames that the peer's window and the room allow; return what is left of it."""
        while (queued := self.queued_bytes) and self._send_window and room > 0:
            size = min(queued, self._send_window, DATA_BYTES_MAX)
            pieces.append(_pack(0, DATA, 0, self.stream_id, size))
            if size == queued:
                pieces.extend(self._waiting)
                self._waiting.clear()
            else:
                self._cut_body(pieces, size)
            self.queued_bytes = queued - size
            self._send_window -= size
            room -= size
        if not self.queued_bytes:
            del self._mux._sending[self]
            if self._closing:
                pieces.append(_pack(0, WINDOW_UPDATE, FIN, self.stream_id, 0))
                if self._peer_closed:
                    self._mux._remove(self)
        elif not self._send_window:
            del self._mux._sending[self]
        return room

    def _cut_body(self, pieces: list[bytes | memoryview], size: int) -> None:
        """Move just this much of what waits, without copying it."""
        waiting = self._waiting
        while size:
            piece = waiting[0]
            if len(piece) <= size:
                pieces.append(waiting.popleft())
                size -= len(piece)
            else:
                view = memoryview(piece)
                pieces.append(view[:size])
                waiting[0] = view[size:]
                size = 0

    def _grant_sending(self, more: int) -> None:
        """Take a window update."""
        self._send_window += more
        if self._send_window > SEND_WINDOW_MAX:
            raise RemoteError("a window that grows beyond 32 bits", code=Rejection.BAD_STREAM)
        if self.queued_bytes:
            self._mux._sending[self] = None

    def _charge(self, length: int) -> None:
        """Count data that arrives against our window, and grant what was consumed of it.

        After 128 KiB, however wide the window is: what is granted shows that we are alive.
        """
        if self._peer_closed:
            raise RemoteError("data on a stream that its sender closed", code=Rejection.BAD_STREAM)
        left = self._receive_window - length
        if left < 0:
            raise RemoteError("more data than the window allows", code=Rejection.BAD_STREAM)
        self._receive_window = left
        if self.window_bytes - left >= WINDOW_BYTES // 2 and not self._paced:
            self._refill()

    def _refill(self) -> None:
        """Grant a whole window."""
        granted = self.window_bytes - self._receive_window
        self._receive_window = self.window_bytes
        self._mux._answer(_pack(0, WINDOW_UPDATE, 0, self.stream_id, granted))

    def _end(self, flags: int) -> None:
        """Take a FIN or an RST."""
        if flags & RST:
            on_end = self.on_end
            self._forget()
            on_end(True)
            return
        if self._peer_closed:
            raise RemoteError("a stream that is closed twice", code=Rejection.BAD_STREAM)
        self._peer_closed = True
        if self._closing and self not in self._mux._sending and not self.queued_bytes:
            self._mux._remove(self)
        self.on_end(False)


class Yamux:
    """One connection's streams."""

    def __init__(self, initiator: bool) -> None:
        self.on_open: Callable[[YamuxStream], None] = YamuxStream.reset
        """Called with every stream that the peer opens; its data comes after this returns."""
        self.on_away: Callable[[int], None] = _ignore
        """Called with the peer's code when it goes away; nothing is called back after that."""
        self._streams: dict[int, YamuxStream] = {}
        self._next_id = 1 if initiator else 2
        self._peer_parity = 0 if initiator else 1
        self._peer_id_last = 0
        self._peer_streams = 0
        self._held = b""
        """Part of a header."""
        self._body_left = 0
        self._body_flags = 0
        self._body_stream: YamuxStream | None = None
        self._away = False
        self._control: list[bytes | memoryview] = []
        self._answer_bytes = 0
        self._sending: dict[YamuxStream, None] = {}
        """Streams that `take` has something of, in order of their turn."""

    @property
    def has_output(self) -> bool:
        """Whether `take` would give anything."""
        return bool(self._control or self._sending)

    def open(self) -> YamuxStream:
        """Open a stream; the peer learns of it with the next `take`."""
        stream = YamuxStream(self, self._next_id)
        self._streams[self._next_id] = stream
        self._next_id += 2
        self._control.append(_pack(0, WINDOW_UPDATE, SYN, stream.stream_id, 0))
        return stream

    def go_away(self, code: int = AWAY_NORMAL) -> None:
        """Tell the peer that the connection ends."""
        self._control.append(_pack(0, GO_AWAY, 0, 0, code))

    def take(self) -> bytes:
        """The bytes that are due now; call again until there are none."""
        pieces = self._control
        sending = self._sending
        if not sending:
            if not pieces:
                return b""
        elif len(sending) == 1:
            next(iter(sending))._cut(pieces, TAKE_BYTES_MAX)
        else:
            self._cut_in_turn(pieces)
        self._control = []
        self._answer_bytes = 0
        return b"".join(pieces)

    def _cut_in_turn(self, pieces: list[bytes | memoryview]) -> None:
        """Add frames of several streams; one that filled the room goes to the end of the line."""
        room = TAKE_BYTES_MAX
        for stream in tuple(self._sending):
            room = stream._cut(pieces, room)
            if room <= 0:
                if stream in self._sending:
                    self._sending[stream] = self._sending.pop(stream)
                return

    def feed(self, plaintext: bytes) -> None:
        """Take what arrived, and call back for what is in it.

        After a RemoteError, this one's or a callback's, the connection is to be closed.
        """
        if self._away:
            return
        at, end = 0, len(plaintext)
        if self._body_left:
            at = self._feed_body(plaintext)
        elif self._held:
            plaintext = self._held + plaintext
            self._held = b""
            end = len(plaintext)
        while end - at >= HEADER_BYTES:
            version, kind, flags, stream_id, length = _unpack_from(plaintext, at)
            at += HEADER_BYTES
            if version or kind > GO_AWAY or flags & ~_FLAGS:
                raise RemoteError("not a Yamux frame of version 0", code=Rejection.BAD_STREAM)
            if kind != DATA:
                if self._feed_control(kind, flags, stream_id, length):
                    continue
                return
            stream = self._streams.get(stream_id)
            if flags & SYN or stream is None:
                stream = self._find(flags, stream_id, length)
            if stream is not None:
                stream._charge(length)
            after = at + length
            if after > end:
                self._body_left = after - end
                self._body_flags = flags
                self._body_stream = stream
                after = end
            if stream is not None:
                if after > at:
                    stream.on_data(plaintext[at:after])
                if flags & (FIN | RST) and not self._body_left:
                    stream._end(flags)
            at = after
        if at < end:
            self._held = plaintext[at:]

    def _feed_body(self, plaintext: bytes) -> int:
        """Hand on more of a data frame whose header came earlier; return where it ends."""
        size = min(self._body_left, len(plaintext))
        self._body_left -= size
        stream = self._body_stream
        if stream is not None and size:
            stream.on_data(plaintext[:size])
        if not self._body_left:
            self._body_stream = None
            if stream is not None and self._body_flags & (FIN | RST):
                stream._end(self._body_flags)
        return size

    def _feed_control(self, kind: int, flags: int, stream_id: int, length: int) -> bool:
        """Take a frame without a body; False where it is the last one."""
        if kind == WINDOW_UPDATE:
            stream = self._find(flags, stream_id, 0)
            if stream is not None:
                if length:
                    stream._grant_sending(length)
                if flags & (FIN | RST):
                    stream._end(flags)
        elif stream_id:
            raise RemoteError("a ping or a farewell on a stream", code=Rejection.BAD_STREAM)
        elif kind == GO_AWAY:
            self._away = True
            self.on_away(length)
            return False
        elif flags & SYN:
            self._answer(_pack(0, PING, ACK, 0, length))
        return True

    def _find(self, flags: int, stream_id: int, length: int) -> YamuxStream | None:
        """The stream of a frame, made now if the frame opens it; None for one that is over."""
        stream = self._accept(stream_id) if flags & SYN else self._streams.get(stream_id)
        if stream is None:
            known = (
                stream_id <= self._peer_id_last
                if stream_id % 2 == self._peer_parity
                else stream_id < self._next_id
            )
            if not known or not stream_id:
                raise RemoteError(
                    "a frame of a stream that nobody opened", code=Rejection.BAD_STREAM
                )
            if length > WINDOW_BYTES:
                raise RemoteError("more data than the window allows", code=Rejection.BAD_STREAM)
        return stream

    def _accept(self, stream_id: int) -> YamuxStream | None:
        """Take a SYN, or refuse it; ids of a peer only ever grow, so none is used twice."""
        if stream_id % 2 != self._peer_parity or stream_id <= self._peer_id_last:
            raise RemoteError(
                "a stream opened under an id that is not its opener's next",
                code=Rejection.BAD_STREAM,
            )
        self._peer_id_last = stream_id
        if self._peer_streams >= STREAMS_MAX:
            self._answer(_pack(0, WINDOW_UPDATE, RST, stream_id, 0))
            return None
        self._peer_streams += 1
        stream = YamuxStream(self, stream_id)
        self._streams[stream_id] = stream
        self._answer(_pack(0, WINDOW_UPDATE, ACK, stream_id, 0))
        self.on_open(stream)
        return stream

    def _answer(self, frame: bytes) -> None:
        """Send what the peer made us send, unless it lets too much of that pile up."""
        self._answer_bytes += HEADER_BYTES
        if self._answer_bytes > CONTROL_BYTES_MAX:
            raise RemoteError(
                "asks for more than it reads the answers of", code=Rejection.BAD_STREAM
            )
        self._control.append(frame)

    def _remove(self, stream: YamuxStream) -> bool:
        """Forget a stream that ended both ways."""
        self._sending.pop(stream, None)
        if self._streams.pop(stream.stream_id, None) is None:
            return False
        if stream.stream_id % 2 == self._peer_parity:
            self._peer_streams -= 1
        return True
