"""What a node writes to its disk and asks of it, as values.

The core never touches a disk: it emits `Persist` and `Load` effects made of these. Two
stores understand them: memory (simulation, tests), and SQLite for real nodes. History is only
ever read in pages, so that no node's memory grows with it.
"""

from typing import Annotated, NamedTuple, TypeAlias

from msgspec import Struct

from pulsarcast.model.events import EventDescriptor
from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.model.keys import Key
from pulsarcast.protocol.fields import Many, Number, Steps, UpTo
from pulsarcast.protocol.limits import BEYOND_MAX


class MarkState(NamedTuple):
    """What we hold of one publisher's numbering in a topic: (floor, high], and what is beyond."""

    publisher: PeerId
    epoch: Number
    floor: Annotated[int, UpTo("high")]
    high: Number
    cid: Cid | None
    """The CID of event number `high`, where we know it."""
    beyond: Annotated[tuple[Number, ...], Many(BEYOND_MAX), Steps("high")] = ()
    """Numbers above `high` that we hold already: only topics without order have them."""
    retired: Annotated[int, UpTo("high")] = 0
    """Up to here retention or a flush dropped the events: they are gone for everyone in time."""


class StateRow(NamedTuple):
    """A small durable record (subscription, counter, outbox, cursor): all are read at the start."""

    table: str
    key: bytes
    value: bytes


RESTORED = StateRow("restored", b"", b"")
"""Says that a disk may be older than what its node has published: a backup, or another copy."""


# Writes.


class PutEvent(Struct, frozen=True):
    """Keep an event of a topic we follow, at its place in our own log, and move the frontier."""

    index: int
    """Our delivery number in this topic, from 1; 0 where an event is kept but never delivered."""
    event: EventDescriptor
    mark: MarkState
    received_us: int
    asked_for: bool = True
    """Whether it may be looked for by its request: we are its author, or it answers somebody's."""
    certificate: bytes = b""
    """What proves its place, where several sequencers agreed on it."""


class PutMark(Struct, frozen=True):
    """Move a frontier without an event: a start frontier, a retention floor, a void number."""

    topic: Cid
    mark: MarkState


class DropEvents(Struct, frozen=True):
    """Forget a topic's log up to and with `index`."""

    topic: Cid
    index: int


class DropTopic(Struct, frozen=True):
    """Forget a topic's frontier and log."""

    topic: Cid


class PutBlock(Struct, frozen=True):
    """Keep a block for the DHT, or one for ourselves (`key` None: not a replica)."""

    cid: Cid
    block: bytes
    key: Key | None
    expires_us: int
    """When a replica's time is up, by its content; a block for ourselves has no end."""


class DropBlock(Struct, frozen=True):
    """Forget a block of the DHT."""

    cid: Cid


class DropExpired(Struct, frozen=True):
    """Forget the replicas whose time was up by then; what we keep for ourselves stays."""

    before_us: int


class PutState(Struct, frozen=True):
    """Keep a small record."""

    row: StateRow


class DropState(Struct, frozen=True):
    """Forget a small record."""

    table: str
    key: bytes


Write: TypeAlias = (
    PutEvent
    | PutMark
    | DropEvents
    | DropTopic
    | PutBlock
    | DropBlock
    | DropExpired
    | PutState
    | DropState
)


# Queries.


class LoadBlock(Struct, frozen=True):
    """A block by its CID, from DHT replicas, topics and history alike: answered by `Block`."""

    cid: Cid


class LoadNumbers(Struct, frozen=True):
    """Events of one publisher by number, at most `bytes_max` of them: answered by `Events`."""

    topic: Cid
    publisher: PeerId
    epoch: int
    first: int
    last: int
    bytes_max: int


class LoadLog(Struct, frozen=True):
    """Events of our log of a topic with `index` >= first, at most `limit`: answered by `Events`.

    They end where their bytes would exceed a limit, but there is one at least, if there is any.
    """

    topic: Cid
    first: int
    limit: int
    bytes_max: int = 4 << 20


class LoadRequest(Struct, frozen=True):
    """The event of ours that answers a request or an idempotency key: answered by `Block`."""

    topic: Cid
    author: PeerId
    nonce: bytes


class LoadKeys(Struct, frozen=True):
    """CIDs of DHT blocks whose keys are in [first, last], in key order: answered by `Keys`."""

    first: Key
    last: Key
    limit: int


class DigestKeys(Struct, frozen=True):
    """How many DHT blocks have keys in [first, last], and the xor of their keys."""

    first: Key
    last: Key


class LoadOldest(Struct, frozen=True):
    """How far a topic's log may be dropped, so that these limits hold: answered by `Oldest`."""

    topic: Cid
    keep_count: int | None
    keep_bytes: int | None
    received_before_us: int | None
    """Entries received before this, by our own clock, are too old."""
    index_max: int | None = None
    """What is behind this index stays, whatever the limits say."""


Query: TypeAlias = (
    LoadBlock | LoadNumbers | LoadLog | LoadRequest | LoadKeys | DigestKeys | LoadOldest
)


class Block(Struct, frozen=True):
    """One block, or None where we hold none."""

    block: bytes | None


class Events(Struct, frozen=True):
    """Events in the order asked for, with their place in our log (0: not in it)."""

    events: tuple[tuple[int, EventDescriptor], ...]
    certificates: tuple[bytes, ...] = ()
    """What proves the place of each, where they were asked for by number and have any."""


class Keys(Struct, frozen=True):
    """CIDs in key order."""

    cids: tuple[Cid, ...]


class KeyDigest(Struct, frozen=True):
    """A range of the DHT's keys in two numbers."""

    count: int
    digest: int


class Oldest(Struct, frozen=True):
    """The last index that retention drops (0: none), and each publisher's highest number in it."""

    index: int
    floors: tuple[tuple[PeerId, int, int], ...]
    """(publisher, epoch, number)."""


Answer: TypeAlias = Block | Events | Keys | KeyDigest | Oldest
