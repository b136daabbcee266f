"""Checks of message fields, as part of their types: `Annotated[int, Bound(0, HOPS_MAX)]`.

The core makes messages that keep to these checks. `wire` reads them from the types and refuses
every frame that breaks one (docs/spec/wire.md), so a check is written once, beside its field.

Three types need no check here: a `Cid`, a `PeerId` and an enum have one form each.
"""

from typing import Annotated, TypeAlias

from msgspec import Struct

from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.model.keys import Key
from pulsarcast.model.listings import LISTING_BYTES_MAX
from pulsarcast.model.pointers import POINTER_BYTES_MAX
from pulsarcast.protocol.limits import (
    ADDRESS_BYTES_MAX,
    ADDRESSES_MAX,
    BLOCKS_MAX,
    CERTIFICATE_BYTES_MAX,
    CIDS_MAX,
    CODE_BYTES_MAX,
    COUNT_MAX,
    DIGEST_BYTES_MAX,
    DIGEST_BYTES_MIN,
    HOPS_MAX,
    INTEGER_MAX,
    KEY_BYTES,
    PATH_MAX,
    REASON_BYTES_MAX,
    REQUEST_ID_BYTES,
    SIGNATURE_BYTES,
    STORE_BYTES,
)

# Checks.


class Bound(Struct, frozen=True):
    """A number from `low` to `high`, both included."""

    low: float
    high: float


class Size(Struct, frozen=True):
    """Bytes, or a text in UTF-8, of `low` to `high` bytes; None: as long as a frame can hold."""

    low: int
    high: int | None


class Whole(Struct, frozen=True):
    """Bytes that are a row of parts of `part` bytes each."""

    part: int


class Many(Struct, frozen=True):
    """A list of `low` to `high` elements."""

    high: int
    low: int = 0


class UpTo(Struct, frozen=True):
    """A number that is not above another field of the same message."""

    other: str


class AsMany(Struct, frozen=True):
    """A list that is empty, or as long as another field of the same message."""

    other: str


class Total(Struct, frozen=True):
    """A list of records whose lists `of` have at most `high` elements in all."""

    of: str
    high: int


# How a field travels, if its type alone does not say it.


class BigEndian(Struct, frozen=True):
    """A number that travels as so many bytes, exactly."""

    size: int


class Steps(Struct, frozen=True):
    """Ascending numbers above field `start` that travel as steps from each to the next."""

    start: str


class Parts(Struct, frozen=True):
    """The names that a plain tuple's elements have in the schema."""

    names: tuple[str, ...]


class Inside(Struct, frozen=True):
    """A field that travels inside a record that only the schema has."""

    record: str


class Flat(Struct, frozen=True):
    """A record whose fields travel among those of the message that holds it."""


class Unsent(Struct, frozen=True):
    """A field of a flat record that does not travel: the receiver takes its default."""


class Newer(Struct, frozen=True):
    """An enum to which later versions may add: an unknown value is no fault of the sender."""


# Fields that several messages have.

Number: TypeAlias = Annotated[int, Bound(0, INTEGER_MAX)]
"""A request's id, an attempt, an epoch, a number of an event, an index of a log."""
Count: TypeAlias = Annotated[int, Bound(0, COUNT_MAX)]
Hops: TypeAlias = Annotated[int, Bound(0, HOPS_MAX)]
FullKey: TypeAlias = Annotated[Key, BigEndian(KEY_BYTES)]
"""A key, or a xor of keys."""
Block: TypeAlias = Annotated[bytes, Size(1, None)]
"""A descriptor's bytes, which the core judges later."""
PointerBlock: TypeAlias = Annotated[bytes, Size(1, POINTER_BYTES_MAX)]
ListingBlock: TypeAlias = Annotated[bytes, Size(1, LISTING_BYTES_MAX)]
Blocks: TypeAlias = Annotated[tuple[Block, ...], Many(BLOCKS_MAX)]
Cids: TypeAlias = Annotated[tuple[Cid, ...], Many(CIDS_MAX)]
Path: TypeAlias = Annotated[tuple[PeerId, ...], Many(PATH_MAX)]
"""The peers from a member, first, to its root, last."""
Address: TypeAlias = Annotated[str, Size(0, ADDRESS_BYTES_MAX)]
Addresses: TypeAlias = Annotated[tuple[Address, ...], Many(ADDRESSES_MAX)]
"""Multiaddrs, whose meaning is the driver's business."""
Digest: TypeAlias = Annotated[bytes, Size(DIGEST_BYTES_MIN, DIGEST_BYTES_MAX)]
"""The hash of a frontier."""
Certificate: TypeAlias = Annotated[bytes, Size(0, CERTIFICATE_BYTES_MAX)]
"""The proof of an event's position, which the core judges later."""
RequestId: TypeAlias = Annotated[bytes, Size(REQUEST_ID_BYTES, REQUEST_ID_BYTES)]
Code: TypeAlias = Annotated[str, Size(0, CODE_BYTES_MAX)]
"""Why something was refused, for programs."""
Reason: TypeAlias = Annotated[str, Size(0, REASON_BYTES_MAX)]
"""Why something was refused, for people."""
StoreId: TypeAlias = Annotated[bytes, Size(STORE_BYTES, STORE_BYTES)]
"""The id of a sequencer's store."""
Signature: TypeAlias = Annotated[bytes, Size(SIGNATURE_BYTES, SIGNATURE_BYTES)]
