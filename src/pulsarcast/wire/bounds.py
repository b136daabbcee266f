"""Bounds of frames by kind: what a frame may take, known before anything of it is parsed.

Protocol Buffers parses a whole frame before a field can be looked at, and 4 MiB of empty records
become 200 MB. So a frame is measured first (docs/spec/wire.md, Frame): its first bytes say of which
kind it is, and the bounds of that kind's fields say how many bytes and how many fields it may have.
The receiver refuses a larger one as soon as its length has come.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from pulsarcast.model.errors import Rejection
from pulsarcast.model.events import EVENT_BYTES_MAX
from pulsarcast.protocol.fields import Size, Total
from pulsarcast.protocol.limits import FRAME_BYTES_MAX
from pulsarcast.wire.refusing import refusal
from pulsarcast.wire.shapes import FlatRecord, Maybe, Plain, Record, Row, Shape, Summed

UNKNOWN_BYTES_MAX: Final = 64 * 1024
"""Bounds a frame of a kind that this version does not know, and that it passes over: a later
version that has larger ones asks for a feature in Hello first. A part of a frame fits in."""
SMALL_BYTES: Final = 4 * 1024
"""A frame up to this size is parsed without being measured: at worst it becomes 250 KB."""
HEAD_BYTES: Final = 2
"""How much of a frame says of which kind it is."""
LATER_FIELDS: Final = 16
LATER_BYTES: Final = 1024
"""Room that every kind has for fields of later versions, which this one leaves alone."""

_NUMBER_BYTES: Final = 11
"""A tag and the longest varint."""
_LENGTH_BYTES: Final = 6
"""A tag of two bytes and the length of what fits into a frame."""
_MORE: Final = 0x80
_FIXED: Final = {1: 8, 5: 4}
"""The widths of the types of Protocol Buffers that have one."""


class Bounds(NamedTuple):
    """What a frame of one kind may take."""

    bytes_max: int
    fields_max: int
    """Elements of lists count one each; fields inside records do not count."""


def bounds_of(record: Record) -> Bounds:
    """The bounds of a kind, from those of its fields."""
    size = _LENGTH_BYTES + LATER_BYTES + _fields_bytes_max(record)
    return Bounds(min(size, FRAME_BYTES_MAX), LATER_FIELDS + _fields_max(record))


def kind_of(frame: bytes | bytearray) -> int:
    """The number of the kind of a frame, from its first bytes; 0 where they name none."""
    tag = frame[0]
    if tag >= _MORE and len(frame) > 1:
        tag += (frame[1] << 7) - _MORE
    return tag >> 3 if tag & 7 == 2 else 0


def measure(frame: bytes, fields_max: int) -> None:
    """Refuse a frame of several messages, or of one with more fields than its kind has."""
    try:
        _, at = _varint(frame, 0)
        size, at = _varint(frame, at)
        if at + size != len(frame):
            raise refusal("a frame that is not one message")
        _count(frame, at, fields_max)
    except IndexError:
        raise refusal("a frame that is not Protocol Buffers") from None


def _count(frame: bytes, at: int, left: int) -> None:
    """Go through the fields that begin here; a frame that ends inside one is refused by who reads
    it."""
    end = len(frame)
    while at < end:
        left -= 1
        if left < 0:
            raise refusal("more fields than its kind has", Rejection.TOO_MANY)
        tag, at = _varint(frame, at)
        kind = tag & 7
        if kind == 2:
            size, at = _varint(frame, at)
            at += size
        elif kind == 0:
            _, at = _varint(frame, at)
        elif kind in _FIXED:
            at += _FIXED[kind]
        else:
            raise refusal("a frame with a group")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = data[at]
    at += 1
    if number < _MORE:
        return number, at
    number -= _MORE
    shift = 7
    while True:
        octet = data[at]
        at += 1
        number |= (octet & 0x7F) << shift
        if octet < _MORE:
            return number, at
        shift += 7
        if shift > 63:
            raise refusal("a number of more than 64 bits")


# What the bounds of fields come to.


def _fields_bytes_max(record: Record, but: str = "") -> int:
    return sum(_bytes_max(field.shape) for field in record.fields if field.name != but)


def _bytes_max(shape: Shape) -> int:
    """The most that a field within its bounds takes."""
    match shape:
        case Maybe():
            return _bytes_max(shape.inner)
        case Summed():
            total = next(check for check in shape.checks if isinstance(check, Total))
            assert isinstance(shape.element, Record)
            each = _LENGTH_BYTES + _fields_bytes_max(shape.element, but=total.of) + _LENGTH_BYTES
            return shape.bound.high * each + total.high * _NUMBER_BYTES
        case Row():
            return shape.bound.high * _bytes_max(shape.element)
        case FlatRecord():
            return _fields_bytes_max(shape)
        case Record():
            return _LENGTH_BYTES + _fields_bytes_max(shape)
        case Plain() if shape.base in (bytes, str):
            sizes = [check.high for check in shape.checks if isinstance(check, Size)]
            bounds = [high for high in sizes if high is not None]
            return _LENGTH_BYTES + min(bounds, default=EVENT_BYTES_MAX)
        case _:
            return shape.bytes_always or _NUMBER_BYTES


def _fields_max(record: Record) -> int:
    count = 0
    for field in record.fields:
        match field.shape:
            case Row():
                count += field.shape.bound.high
            case FlatRecord():
                count += _fields_max(field.shape)
            case _:
                count += 1
    return count
