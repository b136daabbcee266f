"""Frames in parts: a large frame travels in pieces, so that others can go in between.

docs/spec/wire.md, Parts. A part is a frame that begins with a zero byte, as no Protocol Buffers
message does. The byte behind it says which frame the part belongs to, and whether it is the last.
"""

from collections.abc import Callable
from typing import Final

from pulsarcast.model.errors import Rejection
from pulsarcast.protocol.limits import FRAME_BYTES_MAX
from pulsarcast.wire.framing import frame_length
from pulsarcast.wire.refusing import refusal

PART_BYTES: Final = 60 * 1024
"""A frame above this travels in parts of this size: 50 ms each at 10 Mbit/s. A part and its headers
fill less than one Noise message."""
NUMBERS: Final = 128
"""Bounds the frames of one direction that are under way in parts."""

_CONTINUES: Final = 0x80
_LAST: Final = 0x80
_HEADER_BYTES: Final = 2


class Cut:
    """A frame that is being sent in parts."""

    __slots__ = ("_body", "left_bytes", "number")

    def __init__(self, framed: bytes, number: int) -> None:
        """`framed`: as `write_frames` writes it."""
        start = 1
        while framed[start - 1] & _CONTINUES:
            start += 1
        self.number = number
        self._body = memoryview(framed)[start:]
        self.left_bytes = len(self._body)
        """What has not left yet."""

    def next_part(self) -> bytes:
        """The next part, as it travels; there has to be one."""
        at = len(self._body) - self.left_bytes
        body = self._body[at : at + PART_BYTES]
        self.left_bytes -= len(body)
        number = self.number | (0 if self.left_bytes else _LAST)
        return b"".join((frame_length(len(body) + _HEADER_BYTES), bytes((0, number)), body))


class Joiner:
    """Puts the parts that arrive on one stream together.

    `bytes_max_of` says how large a frame may be, from its first bytes.
    """

    def __init__(self, bytes_max_of: Callable[[bytearray], int] | None = None) -> None:
        self._bytes_max_of = bytes_max_of
        self._held: dict[int, bytearray] = {}
        self.held_bytes = 0
        """What is held of frames that are not whole yet."""

    def join(self, frames: list[bytes]) -> list[bytes]:
        """Take what arrived, return the frames that are whole now.

        Raises RemoteError for a part of nothing, and for more under way than the largest frame.
        """
        for frame in frames:
            if frame and not frame[0]:
                break
        else:
            return frames
        whole: list[bytes] = []
        for frame in frames:
            if frame and not frame[0]:
                self._take(frame, whole)
            else:
                whole.append(frame)
        return whole

    def _take(self, part: bytes, whole: list[bytes]) -> None:
        size = len(part) - _HEADER_BYTES
        if size <= 0:
            raise refusal("a part without a body")
        number = part[1] & ~_LAST
        held = self._held.get(number)
        if held is None:
            held = self._held[number] = bytearray()
        self.held_bytes += size
        if self.held_bytes > FRAME_BYTES_MAX:
            raise refusal("more in parts than one frame may hold", Rejection.OVERSIZE)
        held += memoryview(part)[_HEADER_BYTES:]
        if self._bytes_max_of is not None and len(held) > self._bytes_max_of(held):
            raise refusal("more in parts than its kind may hold", Rejection.OVERSIZE)
        if part[1] & _LAST:
            del self._held[number]
            self.held_bytes -= len(held)
            whole.append(bytes(held))
