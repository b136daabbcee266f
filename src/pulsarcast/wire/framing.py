"""Frames on a stream: writes each behind its length, and cuts arriving bytes into frames.

docs/spec/wire.md. All frames that wait for one peer leave in one write: a stream of small writes
carries a twentieth of what coalesced ones do.
"""

from collections.abc import Callable, Iterable
from typing import Final

from pulsarcast.model.errors import LocalError, Rejection, RemoteError
from pulsarcast.protocol.limits import FRAME_BYTES_MAX
from pulsarcast.wire.bounds import HEAD_BYTES, kind_of
from pulsarcast.wire.refusing import refusal

_CONTINUES: Final = 0x80


def write_frames(frames: Iterable[bytes]) -> bytes:
    """Frames as they travel, in one piece."""
    pieces: list[bytes] = []
    for frame in frames:
        pieces.append(frame_length(len(frame)))
        pieces.append(frame)
    return b"".join(pieces)


def frame_length(size: int) -> bytes:
    """A frame's length as a varint."""
    if size < _CONTINUES:
        return bytes((size,))
    if size > FRAME_BYTES_MAX:
        raise LocalError(f"a frame of {size} bytes is larger than {FRAME_BYTES_MAX}")
    octets = bytearray()
    while size >= _CONTINUES:
        octets.append(size & 0x7F | _CONTINUES)
        size >>= 7
    octets.append(size)
    return bytes(octets)


def kind_of_framed(framed: bytes) -> int:
    """The number of the kind of a frame that has its length in front."""
    start = 1
    while framed[start - 1] >= _CONTINUES:
        start += 1
    return kind_of(framed[start : start + HEAD_BYTES])


class FrameReader:
    """Cuts what arrives on one stream into frames.

    A byte is copied at most three times, however a frame was split: bytes are not read again
    before their frame is whole. Of a frame that is not whole the reader asks `bytes_max_of`, with
    its first bytes, how large it may be.
    """

    def __init__(
        self,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        bytes_max_of: Callable[[bytes], int] | None = None,
    ) -> None:
        self.first_bytes_max = frame_bytes_max
        """Bounds the first frame, which may have to be a small one."""
        self._bytes_max_of = bytes_max_of
        self._frame_bytes_max = frame_bytes_max
        self._length_bytes_max = max(1, (frame_bytes_max.bit_length() + 6) // 7)
        self._held = bytearray()
        self._needed = 0
        """How many bytes to hold before looking at them again."""

    def feed(self, data: bytes) -> list[bytes]:
        """Take arriving bytes, return the frames that are whole now.

        Raises RemoteError if a length is too large or is not a varint's one shortest form; such a
        stream has no next frame, and is to be closed.
        """
        held = self._held
        if held:
            held += data
            if len(held) < self._needed:
                return []
            data = bytes(held)
            held.clear()
        frames: list[bytes] = []
        start, end = 0, len(data)
        while start < end:
            body = start + 1
            size = data[start]
            if size >= _CONTINUES:
                body, size = self._read_length(data, start)
            elif size > self._frame_bytes_max:
                raise self._too_large()
            after = body + size
            if body == start or after > end:
                self._hold(data, start, body, size)
                break
            frames.append(data[body:after])
            start = after
        if frames and self.first_bytes_max < self._frame_bytes_max:
            if len(frames[0]) > self.first_bytes_max:
                raise self._too_large(self.first_bytes_max)
            if frames[0][:1] == b"\0":
                raise refusal("a part of a frame where the first one is due")
            self.first_bytes_max = self._frame_bytes_max
        return frames

    def _hold(self, data: bytes, start: int, body: int, size: int) -> None:
        """Keep a frame that is not whole, if it may be as large as it says."""
        self._held += data[start:]
        self._needed = body + size - start
        if size > self.first_bytes_max:
            raise self._too_large(self.first_bytes_max)
        if size > HEAD_BYTES and self._bytes_max_of is not None:
            head = data[body : body + HEAD_BYTES]
            if len(head) < HEAD_BYTES:
                self._needed = body + HEAD_BYTES - start
            elif size > (bytes_max := self._bytes_max_of(head)):
                raise self._too_large(bytes_max)

    @property
    def pending_bytes(self) -> int:
        """How much of a frame that is not whole yet is held; a stream should end at zero."""
        return len(self._held)

    def _read_length(self, data: bytes, start: int) -> tuple[int, int]:
        """The start of a frame's body, and its size; (start, 0) if its length is not whole."""
        size = shift = 0
        for at in range(start, min(len(data), start + self._length_bytes_max)):
            octet = data[at]
            size |= (octet & 0x7F) << shift
            if octet < _CONTINUES:
                if not octet:
                    raise refusal("a frame's length in more bytes than it needs")
                if size > self._frame_bytes_max:
                    raise self._too_large()
                return at + 1, size
            shift += 7
        if len(data) - start >= self._length_bytes_max:
            raise self._too_large()
        return start, 0

    def _too_large(self, bytes_max: int | None = None) -> RemoteError:
        bytes_max = bytes_max or self._frame_bytes_max
        return refusal(f"a frame of more than {bytes_max} bytes", Rejection.OVERSIZE)
