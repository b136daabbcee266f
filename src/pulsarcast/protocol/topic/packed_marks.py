"""Packed marks: many marks of a frontier in one value of bytes, and their hashes.

A mark takes some 700 bytes of memory as objects and 85 packed. Most of these are names that nothing
makes shorter: the publisher's key, the epoch, which is random, and the hash in the CID.
"""

from collections.abc import Iterable
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from pulsarcast.model.ids import CID_PREFIX, PEER_ID_PREFIX, Cid, PeerId
from pulsarcast.model.mark_blocks import mark_place
from pulsarcast.protocol.limits import PART_DIGEST_BYTES, PARTS_OF_ONE
from pulsarcast.protocol.store import MarkState


class Row(NamedTuple):
    """A mark with short ids, as it is packed."""

    publisher: bytes
    epoch: int
    floor: int
    high: int
    cid: bytes | None
    beyond: tuple[int, ...]
    retired: int


def row_of(mark: MarkState) -> Row:
    """A mark with short ids."""
    publisher, epoch, floor, high, cid, beyond, retired = mark
    short = None if cid is None else _shorten(cid, CID_PREFIX)
    return Row(_shorten(publisher, PEER_ID_PREFIX), epoch, floor, high, short, beyond, retired)


def mark_of(row: Row) -> MarkState:
    """The mark of a row."""
    short, epoch, floor, high, cid, beyond, retired = row
    publisher = PeerId(_lengthen(short, PEER_ID_PREFIX))
    held = None if cid is None else Cid(_lengthen(cid, CID_PREFIX))
    return MarkState(publisher, epoch, floor, high, held, beyond, retired)


def pack(rows: Iterable[Row]) -> bytes:
    """Rows as bytes."""
    # msgspec leaves room for more, which would be kept: 40 % of the memory.
    return bytes(memoryview(_ENCODER.encode(list(rows))))


def unpack(packed: bytes) -> list[Row]:
    """The rows in bytes."""
    return _DECODER.decode(packed)


def find(packed: bytes, publisher: PeerId, epoch: int) -> MarkState | None:
    """The mark of one numbering."""
    short = _shorten(publisher, PEER_ID_PREFIX)
    if short not in packed:
        return None
    named = (row for row in unpack(packed) if row.publisher == short and row.epoch == epoch)
    row = next(named, None)
    return None if row is None else mark_of(row)


def place_of(publisher: PeerId, epoch: int) -> bytes:
    """The place of a numbering's leaf, in steps of four bits."""
    return mark_place(publisher, epoch).hex().encode().translate(_STEPS)


def place_of_row(row: Row) -> bytes:
    """The place of a packed mark's leaf."""
    return place_of(PeerId(_lengthen(row.publisher, PEER_ID_PREFIX)), row.epoch)


def digest_of(row: Row) -> bytes:
    """The hash of a packed mark: it says what numbers are covered, and neither floor nor CID."""
    numbering = _lengthen(row.publisher, PEER_ID_PREFIX) + row.epoch.to_bytes(8, "big")
    held = f"/{row.high}/{','.join(map(str, row.beyond))}".encode()
    return blake2b(numbering + held, digest_size=PART_DIGEST_BYTES).digest()


def _shorten(name: bytes, prefix: bytes) -> bytes:
    """An id without its prefix but for the last byte, which tells it from ids of another kind."""
    return name[len(prefix) - 1 :] if name.startswith(prefix) else b"\0" + name


def _lengthen(short: bytes, prefix: bytes) -> bytes:
    return prefix[:-1] + short if short[0] == prefix[-1] else short[1:]


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(list[Row])
_STEPS = bytes.maketrans(b"0123456789abcdef", bytes(range(PARTS_OF_ONE)))
