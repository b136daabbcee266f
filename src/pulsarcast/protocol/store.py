"""The store's interface: the writes and queries of a node, and their answers, as values.

The core never touches a disk: it emits `Persist` and `Load` effects made of these. Two stores
execute them: memory (simulation, tests), and SQLite for real nodes. History is only read in pages,
so that no node's memory grows with it. A store may leave out a `Keep`, and no other write.
"""

from typing import Annotated, Final, NamedTuple, TypeAlias

from msgspec import Struct

from pulsarcast.model.events import EventDescriptor
from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.model.keys import Key
from pulsarcast.protocol.fields import Many, Number, Steps, UpTo
from pulsarcast.protocol.limits import BEYOND_MAX


class MarkState(NamedTuple):
    """One mark of a frontier: the numbers held of a numbering, (floor, high] and those beyond."""

    publisher: PeerId
    epoch: Number
    floor: Annotated[int, UpTo("high")]
    high: Number
    cid: Cid | None
    """The CID of event number `high`, if it is known."""
    beyond: Annotated[tuple[Number, ...], Many(BEYOND_MAX), Steps("high")] = ()
    """Numbers above `high` that are held already: only topics without order have them."""
    retired: Annotated[int, UpTo("high")] = 0
    """Up to this number retention or a flush dropped the events: in time, at every node."""


VERSIONS = "topic"
"""The rows of topics' versions, by content id."""


class StateRow(NamedTuple):
    """A small durable record (subscription, counter, outbox, cursor): all are read at the start."""

    table: str
    key: bytes
    value: bytes


RESTORED = StateRow("restored", b"", b"")
"""A row that says that the disk may be older than the node's last event: a backup, or a copy."""


# Writes.


class PutEvent(Struct, frozen=True):
    """Keep an event of a followed topic, at its index in the node's log, and move the frontier."""

    index: int
    """The number of the delivery in this topic, from 1; 0: the event is kept but never delivered.
    """
    event: EventDescriptor
    mark: MarkState
    received_us: int
    asked_for: bool = True
    """Whether it is found by its request: the node is its author, or it answers a request."""
    certificate: bytes = b""
    """The proof of its position, if several sequencers agreed on it."""


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


class OwnTopic(Struct, frozen=True):
    """Count a topic's log as the node's own from now on: it was kept for a stranger before."""

    topic: Cid


class PutBlock(Struct, frozen=True):
    """Keep a block as a replica of the DHT, or for the node itself (`key` None)."""

    cid: Cid
    block: bytes
    key: Key | None
    expires_us: int
    """When a replica expires, by its content; a block for the node itself never does."""


class DropBlock(Struct, frozen=True):
    """Forget a block of the DHT."""

    cid: Cid


class DropExpired(Struct, frozen=True):
    """Drop the replicas that expired by then; blocks for the node itself stay."""

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
    | OwnTopic
    | PutBlock
    | DropBlock
    | DropExpired
    | PutState
    | DropState
)


class Keep(Struct, frozen=True):
    """Make writes for strangers, all of them or none: a disk without room leaves them out."""

    token: int
    """Names them where they were left out."""
    place: str
    """The network prefix of the peer that sent them, to which blocks and events are charged."""
    writes: tuple[Write, ...]

    @property
    def only_frees(self) -> bool:
        """Whether they make room, and so are worth a try where there is little."""
        return all(isinstance(write, FREEING) for write in self.writes)


FREEING: Final = (DropBlock, DropEvents, DropExpired, DropState, DropTopic)

AnyWrite: TypeAlias = Write | Keep


# Queries.


class LoadBlock(Struct, frozen=True):
    """A block by its CID, from DHT replicas and history alike: answered by `Block`."""

    cid: Cid
    versions: bool = False
    """Whether versions of topics that the node needs will do as well."""


class LoadNumbers(Struct, frozen=True):
    """Events of one publisher by number, at most `bytes_max` of them: answered by `Events`."""

    topic: Cid
    publisher: PeerId
    epoch: int
    first: int
    last: int
    bytes_max: int


class LoadLog(Struct, frozen=True):
    """Events of the log of a topic with `index` >= first, at most `limit`: answered by `Events`.

    They end before their bytes exceed `bytes_max`, but there is at least one, if the log has any.
    """

    topic: Cid
    first: int
    limit: int
    bytes_max: int = 4 << 20


class LoadRequest(Struct, frozen=True):
    """The kept event that answers a request or an idempotency key: answered by `Block`."""

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
    """Entries received before this, by the node's own clock, are too old."""
    index_max: int | None = None
    """Entries after this index stay, also beyond the limits."""


Query: TypeAlias = (
    LoadBlock | LoadNumbers | LoadLog | LoadRequest | LoadKeys | DigestKeys | LoadOldest
)


class Block(Struct, frozen=True):
    """One block, or None if there is none."""

    block: bytes | None


class Events(Struct, frozen=True):
    """Events in the order asked for, with their log index (0: not in the log)."""

    events: tuple[tuple[int, EventDescriptor], ...]
    certificates: tuple[bytes, ...] = ()
    """The proof of each one's position, if they were asked for by number and have proofs."""


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
