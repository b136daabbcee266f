"""Agreeing on a protocol: multistream-select 1.0.0.

Every message is a line behind its length, framed as ours are. A dialler says which version of this
it speaks and what it wants in one go, instead of waiting for an answer in between. `ask_for` and
`offer` wait for the other side; `cut_line` takes what has arrived, for streams that serve several
protocols (`link.py`).
"""

from __future__ import annotations

from typing import Final, Protocol

from pulsarcast.model.errors import Rejection, RemoteError
from pulsarcast.wire.framing import write_frames

HEADER: Final = b"/multistream/1.0.0\n"
NOT_AVAILABLE: Final = b"na\n"
LINE_BYTES_MAX: Final = 1024
"""Names of protocols are much shorter."""
TRIES_MAX: Final = 16
"""Protocols that a dialler may ask for in vain."""

_LENGTH_BYTES_MAX: Final = 2
"""What the length of the longest line takes."""


class Wire(Protocol):
    """What is negotiated on."""

    async def read(self, size: int) -> bytes:
        """Exactly so many bytes."""

    async def write(self, data: bytes) -> None:
        """All of it."""


def line(protocol: str) -> bytes:
    """A protocol's name, as it is said."""
    return protocol.encode() + b"\n"


async def ask_for(wire: Wire, protocol: str) -> None:
    """As the dialler; RemoteError where the listener does not speak it."""
    await wire.write(write_frames((HEADER, line(protocol))))
    for expected in (HEADER, line(protocol)):
        said = await _read_line(wire)
        if said != expected:
            raise RemoteError(f"does not speak {protocol}", code=Rejection.UNSUPPORTED_PROTOCOL)


async def offer(wire: Wire, protocol: str) -> None:
    """As the listener; RemoteError where the dialler asks for nothing that we speak."""
    await wire.write(write_frames((HEADER,)))
    if await _read_line(wire) != HEADER:
        raise RemoteError("does not negotiate as libp2p does", code=Rejection.UNSUPPORTED_PROTOCOL)
    wanted = line(protocol)
    for _ in range(TRIES_MAX):
        asked = await _read_line(wire)
        await wire.write(write_frames((wanted if asked == wanted else NOT_AVAILABLE,)))
        if asked == wanted:
            return
    raise RemoteError(f"does not ask for {protocol}", code=Rejection.UNSUPPORTED_PROTOCOL)


def cut_line(arrived: bytearray) -> bytes | None:
    """Take the first line away from what has arrived; None where it is not whole yet."""
    size = shift = 0
    for at, octet in enumerate(arrived[:_LENGTH_BYTES_MAX], 1):
        size |= (octet & 0x7F) << shift
        shift += 7
        if size > LINE_BYTES_MAX:
            break
        if octet < 0x80:
            if len(arrived) < at + size:
                return None
            said = bytes(arrived[at : at + size])
            del arrived[: at + size]
            return said
    else:
        if len(arrived) < _LENGTH_BYTES_MAX:
            return None
    raise RemoteError("a line that is too long", code=Rejection.OVERSIZE)


async def read_message(wire: Wire, bytes_max: int) -> bytes:
    """Read a message behind its length as a varint; RemoteError where it is longer than that."""
    size = shift = 0
    shift_max = max(7, bytes_max.bit_length() + 6)
    while True:
        (octet,) = await wire.read(1)
        size |= (octet & 0x7F) << shift
        shift += 7
        if size > bytes_max or shift > shift_max:
            raise RemoteError("a message that is too long", code=Rejection.OVERSIZE)
        if octet < 0x80:
            return await wire.read(size)


async def _read_line(wire: Wire) -> bytes:
    return await read_message(wire, LINE_BYTES_MAX)
