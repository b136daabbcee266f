"""Log pages: the binary format in which a daemon sends part of a topic's log to a bulk reader.

A page holds the signed bytes of each event as they are on the disk, the node's index of it and the
time of receipt, in columns: a program that makes tables takes the columns as they are.

    4 bytes     PCL1
    4 bytes     n, how many events there are
    n x 8       index of each in the node's log, ascending
    n x 8       when the node got each, in microseconds since the Unix epoch
    (n+1) x 4   offsets at which each one's bytes begin, and at which the last one's end
    the bytes of all events

Numbers are little-endian.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from pulsarcast.model.errors import RemoteError

MEDIA_TYPE: Final = "application/vnd.pulsarcast.log"

_MAGIC: Final = b"PCL1"
_HEAD: Final = 8


class Page:
    """Some events of a log, in the order of their indices."""

    __slots__ = ("data", "indices", "offsets", "received_us")

    def __init__(
        self, indices: array[int], received_us: array[int], offsets: array[int], data: bytes
    ) -> None:
        self.indices: array[int] = indices
        self.received_us: array[int] = received_us
        self.offsets: array[int] = offsets
        """The offsets in `data` at which each event's bytes begin, and the last one's end."""
        self.data: bytes = data

    def __len__(self) -> int:
        return len(self.indices)

    def blocks(self) -> Iterator[bytes]:
        """Each event's bytes."""
        data, offsets = self.data, self.offsets
        for place in range(len(self.indices)):
            yield data[offsets[place] : offsets[place + 1]]


def encode_page(events: Sequence[tuple[int, int, bytes]]) -> bytes:
    """A page of (index, time of receipt, bytes) of each event."""
    indices = array("q", [index for index, _, _ in events])
    received = array("q", [received_us for _, received_us, _ in events])
    offsets = array("i", [0])
    end = 0
    for _, _, block in events:
        end += len(block)
        offsets.append(end)
    columns = [_little(column).tobytes() for column in (indices, received, offsets)]
    blocks = [block for _, _, block in events]
    return b"".join([_MAGIC, len(events).to_bytes(4, "little"), *columns, *blocks])


def decode_page(body: bytes) -> Page:
    """Read a page; other bytes are refused."""
    if len(body) < _HEAD or not body.startswith(_MAGIC):
        raise RemoteError("not a page of a log")
    count = int.from_bytes(body[4:8], "little")
    size = _HEAD + count * 16 + (count + 1) * 4
    if len(body) < size:
        raise RemoteError("a page of a log that is cut off")
    received_at, offsets_at = _HEAD + count * 8, _HEAD + count * 16
    indices = _read("q", body[_HEAD:received_at])
    received = _read("q", body[received_at:offsets_at])
    offsets = _read("i", body[offsets_at:size])
    data = body[size:]
    if offsets[0] != 0 or offsets[-1] != len(data) or not _ascends(offsets, 0):
        raise RemoteError("a page of a log whose events do not fill it")
    if not _ascends(indices, 1):
        raise RemoteError("a page of a log that is out of order")
    return Page(indices, received, offsets, data)


def _ascends(numbers: array[int], step: int) -> bool:
    return all(after - before >= step for before, after in pairwise(numbers))


def _read(kind: str, data: bytes) -> array[int]:
    numbers: array[int] = array(kind)
    numbers.frombytes(data)
    return _little(numbers)


def _little(numbers: array[int]) -> array[int]:
    if sys.byteorder != "little":
        numbers = numbers[:]
        numbers.byteswap()
    return numbers
