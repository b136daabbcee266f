"""Canonical dag-cbor: encodes values into blocks and decodes them, with libipld.

docs/spec/descriptors.md, Canonical form.

A block is valid only if encoding its value again gives the same bytes, because libipld also
reads non-minimal integers, lengths and short floats; without the rule one event would have many
content ids.

libipld has no type for links in Python: it writes any byte string that parses as a content id as a
link (tag 42), and reads links back as bytes. That is right for links, which are raw `Cid` bytes.
It would corrupt other byte strings: of random strings as long as a signature, one in 1,200 becomes
a link. So every byte string that is no link is prefixed with one zero byte, with which no content
id begins (docs/decisions/0006). Peer ids begin with a zero already.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable

import libipld

from pulsarcast.model.errors import LocalError, Rejection, RemoteError, blamed_on_caller

SHOWN_BITS_MAX = 128
"""Bits of an integer that a refusal shows: a program may have given one of any length."""
DEPTH_MAX = 16
INT_MIN = -(1 << 63)
INT_MAX = (1 << 63) - 1

_HARMLESS = frozenset((bytes, str, bool, type(None)))

# libipld stops at Python's recursion limit, which by default comes long before the end of the C
# stack. Nested lists (20,000 deep) would crash an application that raised the limit, so there the
# depth is checked before libipld reads the block.
_RECURSION_SAFE = 2000

_BYTES, _TEXT, _LIST, _MAP, _TAG = 2, 3, 4, 5, 6  # the major types of CBOR that differ here


def opaque(data: bytes) -> bytes:
    """Guard bytes that are no link against being written as one."""
    return b"\0" + data


def plain(data: object) -> bytes:
    """The bytes that `opaque` guarded."""
    if type(data) is bytes and data.startswith(b"\0"):
        return data[1:]
    raise RemoteError("not an opaque byte string")


def encode(value: object) -> bytes:
    """The one block that holds this value."""
    try:
        _check([value], DEPTH_MAX)
        return libipld.encode_dag_cbor(value)
    except RemoteError as error:
        raise blamed_on_caller(error) from error
    except ValueError as error:
        raise LocalError(f"cannot be encoded as dag-cbor: {error}") from error


def encode_part(value: object) -> bytes:
    """Encode a part of a value that `decode` returned, which needs no second check."""
    return libipld.encode_dag_cbor(value)


def decode(block: bytes, *, size_max: int) -> object:
    """The value that a canonical block holds, or a refusal."""
    if len(block) > size_max:
        raise RemoteError("oversize", code=Rejection.OVERSIZE)
    if sys.getrecursionlimit() > _RECURSION_SAFE:
        _scan_depth(block)
    try:
        value = libipld.decode_dag_cbor(block)
        _check([value], DEPTH_MAX)
        again = libipld.encode_dag_cbor(value)
    except (ValueError, RecursionError, MemoryError) as error:
        raise RemoteError("not dag-cbor") from error
    if again != block:
        raise RemoteError("not canonical dag-cbor", code=Rejection.NOT_CANONICAL)
    return value


def _check(values: Iterable[object], depth_left: int) -> None:
    """Refuse values that libipld accepts: deep nesting, and integers beyond 64 signed bits."""
    for value in values:
        kind = type(value)
        if kind in _HARMLESS:  # most values are, and every event passes through here
            continue
        if isinstance(value, int):
            if not INT_MIN <= value <= INT_MAX:
                bits = value.bit_length()
                shown = value if bits <= SHOWN_BITS_MAX else f"it has {bits}"
                raise RemoteError(f"an integer beyond 64 bits: {shown}")
        elif isinstance(value, (list, dict)):
            if depth_left == 0:
                raise RemoteError(f"nested deeper than {DEPTH_MAX}")
            _check(value if isinstance(value, list) else value.values(), depth_left - 1)
        elif isinstance(value, float):
            if not math.isfinite(value):
                raise RemoteError(f"a float that is no finite number: {value}")
        else:
            raise RemoteError(f"a value of type {kind.__name__}")


def _scan_depth(block: bytes) -> None:
    """Refuse deep nesting without decoding; libipld finds all other errors."""
    open_items: list[int] = []  # how many items each open container still lacks
    at = 0
    while at < len(block):
        major, info = block[at] >> 5, block[at] & 31
        at += 1
        count = info
        if info >= 24:
            width = 1 << (info - 24)
            if width > 8:
                return  # an indefinite length: not dag-cbor
            count = int.from_bytes(block[at : at + width], "big")
            at += width
        if major in (_BYTES, _TEXT):
            at += count
        elif major in (_LIST, _MAP) and count:
            open_items.append(count if major == _LIST else 2 * count)
            if len(open_items) > DEPTH_MAX:
                raise RemoteError(f"nested deeper than {DEPTH_MAX}")
            continue
        elif major == _TAG:
            continue  # a tag and the item that follows count as one
        while open_items:
            open_items[-1] -= 1
            if open_items[-1]:
                break
            open_items.pop()
        if not open_items:
            return
