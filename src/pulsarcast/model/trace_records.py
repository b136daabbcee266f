"""What a node can say it did: one class for each kind of trace record (design, 10).

Records hold ids as raw bytes, because the core has them so and most runs make millions of records;
how they become lines of text is told in `trace`.
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from pulsarcast.model.errors import Verdict
from pulsarcast.model.events import Position
from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.model.topic_types import DeliveryOrder, Dissemination, EventLinking, Mark

SCHEMA_VERSION: Final = 6
# 2: `unsubscribed` says where it ended, topics say who may publish and what is kept, a fault which
# life it hit; `retired` is new. 3: `published` says whether the event is a merge of causal order.
# 4: `subscribed` names filters: who does not know of them would take it for a full subscription.
# 5: `topic_version` says what it flushed: without, what a node let go of then looks lost.
# 6: `reason` is a code, not a sentence (docs/spec/trace.md).
# Fields that earlier versions lack have a default here.

# How much is written: each level includes those before it.
LEVELS: Final = ("delivery", "rpc")


class Envelope(msgspec.Struct, frozen=True):
    """What every line carries: which run and node it is from, and when that node wrote it."""

    run_id: str
    node_id: str  # a peer id's text, or the name of a driver that is no peer
    incarnation: int  # one per start of the node
    seq: int  # gapless per incarnation: a missing line shows
    wall_ns: int
    mono_ns: int
    schema_version: int = SCHEMA_VERSION


def _kind_of(class_name: str) -> str:
    """The kind that a record's class stands for: GapFound is gap_found."""
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in class_name).lstrip("_")


class Record(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag=_kind_of):
    """What a node did, without saying when: the driver adds the envelope."""


# A node's life


class NodeStarted(Record, frozen=True):
    """A node is up; its incarnation begins with this line."""


class StopReason(enum.StrEnum):
    """Why a node stopped: the codes in `node_stopped` lines."""

    ASKED = "asked"
    DISK_FAILED = "disk_failed"  # a write failed, and memory is ahead of the disk
    KEY_IN_USE = "key_in_use"  # another node answers with the same key
    RUN_ENDED = "run_ended"  # a simulated run came to its end


class NodeStopped(Record, frozen=True):
    """A node stopped in good order, or halted; after a kill there is no such line."""

    reason: str  # a `StopReason`


class Resources(Record, frozen=True):
    """What a node has used since its start."""

    cpu_s: float
    rss_bytes: int
    bytes_in: int
    bytes_out: int


class Fault(Record, frozen=True):
    """What the testbed did to a node or link on purpose."""

    action: str
    target: str
    detail: str = ""
    target_incarnation: int | None = None  # the life of the node that it hit


# Topics and subscriptions


class TopicCreated(Record, frozen=True):
    """We made a topic."""

    topic: Cid
    name: str
    author: PeerId
    order: DeliveryOrder
    dissemination: Dissemination
    version: Cid
    linking: EventLinking = EventLinking.LAST_SEEN
    allowed: tuple[PeerId, ...] | None = None  # who may publish; None is anyone
    retention_age_s: int | None = None
    retention_count: int | None = None
    retention_bytes: int | None = None


class TopicVersion(Record, frozen=True):
    """We took over a version of a topic."""

    topic: Cid
    version: Cid
    number: int
    allowed: tuple[PeerId, ...] | None = None
    retention_age_s: int | None = None
    retention_count: int | None = None
    retention_bytes: int | None = None
    flushed: tuple[Mark, ...] = ()  # its author lets go of everything up to here


class Subscribed(Record, frozen=True):
    """A subscription began; what lies beyond its start frontier is due to it.

    One by content is due what any of its `filters` matches, and says so again when those change.
    """

    topic: Cid
    start: tuple[Mark, ...]
    filters: tuple[str, ...] | None = None  # None: it wants everything


class Unsubscribed(Record, frozen=True):
    """A subscription ended; a crash does not end one.

    What lies beyond `end` was not known here yet: nobody can say whether it came before we left.
    """

    topic: Cid
    end: tuple[Mark, ...] = ()


# An event's way


class Injected(Record, frozen=True):
    """A caller asked for something to be published; the caller's own name for it is `injection`."""

    topic: Cid
    injection: str
    author: PeerId


class Published(Record, frozen=True):
    """We published an event."""

    topic: Cid
    event: Cid
    version: Cid
    publisher: PeerId
    author: PeerId
    epoch: int
    number: int
    parents: tuple[Cid, ...]
    position: Position | None
    request_id: bytes
    injection: str | None = None
    merge: bool = False


class Acknowledged(Record, frozen=True):
    """A caller was promised that its event is kept: `accepted` or `replicated`."""

    topic: Cid
    event: Cid
    injection: str | None
    level: str
    replicas: int


class Refused(Record, frozen=True):
    """A caller was told that its event will not be published."""

    topic: Cid
    injection: str | None
    reason: str  # the code of a refusal (`errors.REFUSALS`)


class Delivered(Record, frozen=True):
    """The application was handed an event."""

    topic: Cid
    event: Cid
    publisher: PeerId
    epoch: int
    number: int
    index: int  # which one of our deliveries in this topic: the order we gave them in
    hops: int
    redelivery: bool = False


class LeaderChanged(Record, frozen=True):
    """As one of a topic's sequencers we learned who leads from now on; None: nobody we know of."""

    topic: Cid
    term: int
    leader: PeerId | None


class Retired(Record, frozen=True):
    """What we lack up to `number` will not be delivered: retention or a flush let go of it."""

    topic: Cid
    publisher: PeerId
    epoch: int
    number: int


# Between peers


class RpcSent(Record, frozen=True):
    """A message left; written at level `rpc` only."""

    operation: str
    topic: Cid | None
    peer: PeerId
    bytes: int


class RpcReceived(Record, frozen=True):
    """A message came; written at level `rpc` only."""

    operation: str
    topic: Cid | None
    peer: PeerId
    bytes: int


class GapFound(Record, frozen=True):
    """We learned of events that we lack, from `first` to `last`."""

    topic: Cid
    publisher: PeerId
    epoch: int
    first: int
    last: int


class GapFilled(Record, frozen=True):
    """We got an event that we lacked, from the peer `source`."""

    topic: Cid
    publisher: PeerId
    epoch: int
    number: int
    source: PeerId | None


class Rejected(Record, frozen=True):
    """We were sent what we do not take."""

    verdict: Verdict
    reason: str  # a `Rejection`
    peer: PeerId | None = None
    topic: Cid | None = None


class Unknown(Record, frozen=True):
    """A record of a kind that this version does not know: kept and counted, never dropped."""

    unknown_kind: str
    fields: dict[str, object]


RECORDS: Final[tuple[type[Record], ...]] = (
    NodeStarted,
    NodeStopped,
    Resources,
    Fault,
    TopicCreated,
    TopicVersion,
    Subscribed,
    Unsubscribed,
    Injected,
    Published,
    Acknowledged,
    Refused,
    Delivered,
    LeaderChanged,
    Retired,
    RpcSent,
    RpcReceived,
    GapFound,
    GapFilled,
    Rejected,
)


def kind_of(record: Record) -> str:
    """The word under which a record stands in its line."""
    if isinstance(record, Unknown):
        return record.unknown_kind
    return str(type(record).__struct_config__.tag)


def is_written_at(level: str, record: Record) -> bool:
    """Whether a trace of this level holds records like this one."""
    assert level in LEVELS, level
    return level == "rpc" or not isinstance(record, (RpcSent, RpcReceived))
