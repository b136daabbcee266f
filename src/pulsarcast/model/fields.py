"""Readers of single descriptor fields: each checks a received value and returns it typed.

Descriptors of every kind are read with these, so that a name, a time or a list of links is
bounded and refused in the same way wherever it occurs (docs/spec/descriptors.md). A reason never
quotes a received value: reasons are counted, and a peer must not invent new ones without end.
"""

from __future__ import annotations

import re
from typing import Final, TypeAlias

from pulsarcast.model.errors import Rejection, RemoteError, Verdict
from pulsarcast.model.identity import SIGNATURE_BYTES
from pulsarcast.model.ids import Cid, PeerId, check_cid, check_peer_id

Fields: TypeAlias = dict[str, object]

PROTOCOL_VERSION: Final = 1
NAME_BYTES_MAX: Final = 256
NONCE_BYTES: Final = 16
TIME_US_MAX: Final = 253_402_300_799_999_999  # the end of the year 9999: the last that ISO 8601 has
_HIDDEN: Final = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]"
)
"""Controls, line ends, and marks that turn the direction of text: what a terminal would obey."""


def read_map(value: object, keys: frozenset[str], what: str) -> Fields:
    """A map that holds no key but these."""
    if not isinstance(value, dict):
        raise RemoteError(f"{what} is not a map")
    if not value.keys() <= keys:
        if "encryption" in value:
            raise RemoteError("the field encryption is reserved")
        raise RemoteError(f"{what} has an unknown field")
    return value


def check_version(value: object, what: str) -> None:
    """Refuse a descriptor of another major version, before the rest of it is judged."""
    if not isinstance(value, dict):
        raise RemoteError(f"{what} is not a map")
    version = value.get("v")
    if type(version) is not int or version < 1:
        raise RemoteError(f"{what} names no protocol version")
    if version != PROTOCOL_VERSION:
        # Not the sender's fault: it may serve peers of a newer version.
        raise RemoteError(
            f"{what} of an unknown major version", Verdict.IGNORE, code=Rejection.UNKNOWN_VERSION
        )


def read_int(value: object, low: int, high: int, what: str) -> int:
    """An integer within bounds; a bool is none."""
    if type(value) is int and low <= value <= high:
        return value
    raise RemoteError(f"{what} is not an integer from {low} to {high}")


def read_time(value: object, what: str) -> int:
    """Microseconds since the Unix epoch."""
    return read_int(value, 0, TIME_US_MAX, what)


def read_name(value: object, what: str) -> str:
    """A text that is present, hence not empty, and not long."""
    if isinstance(value, str) and value and len(value.encode()) <= NAME_BYTES_MAX:
        return value
    raise RemoteError(f"{what} is not a text of 1 to {NAME_BYTES_MAX} bytes")


def read_line(value: object, bytes_max: int, what: str) -> str:
    """A text that is present, hence not empty, not long, and that a terminal only shows."""
    if not isinstance(value, str) or not 0 < len(value.encode()) <= bytes_max:
        raise RemoteError(f"{what} is not a text of 1 to {bytes_max} bytes")
    if not is_line(value):
        raise RemoteError(f"{what} is not one line without control characters")
    return value


def is_line(text: str) -> bool:
    """Whether a terminal only shows a text, and obeys none of it."""
    return _HIDDEN.search(text) is None


def read_opaque(value: object, size: int, what: str) -> bytes:
    """An opaque byte string of exactly this size."""
    if type(value) is bytes and len(value) == 1 + size and value.startswith(b"\0"):
        return value[1:]
    raise RemoteError(f"{what} is not an opaque string of {size} bytes")


def read_signature(value: object) -> bytes:
    """A signature, not verified yet."""
    return read_opaque(value, SIGNATURE_BYTES, "a signature")


def read_list(value: object, count_max: int, what: str) -> list[object]:
    """A list that is present, hence not empty, and not long."""
    if isinstance(value, list) and 0 < len(value) <= count_max:
        return value
    raise RemoteError(f"{what} is not a list of 1 to {count_max}")


def read_links(value: object, count_max: int, what: str) -> tuple[Cid, ...]:
    """Links to other blocks, each at most once."""
    links = tuple(map(check_cid, read_list(value, count_max, what)))
    if len(links) > 1 and len(set(links)) != len(links):
        raise RemoteError(f"{what} repeats a link")
    return links


def read_peers(value: object, what: str) -> tuple[PeerId, ...]:
    """Peers, each at most once; the list may be empty, and the block's size bounds it."""
    if not isinstance(value, list):
        raise RemoteError(f"{what} is not a list")
    peers = tuple(check_peer_id(peer) for peer in value)
    if len(set(peers)) != len(peers):
        raise RemoteError(f"{what} repeats a peer")
    return peers


def read_extensions(value: object) -> Fields:
    """Fields that a node carries without reading them."""
    if isinstance(value, dict) and value:
        return value
    raise RemoteError("extensions is not a map with something in it")


def read_pair(value: object, what: str) -> tuple[object, object]:
    """A list of exactly two."""
    if isinstance(value, list) and len(value) == 2:
        return value[0], value[1]
    raise RemoteError(f"{what} is not a list of two")
