"""Trace records: one class for each kind of thing that a node reports (docs/spec/trace.md).

Records hold ids as raw bytes, because the core has them so and most runs make millions of records.
`trace` turns them into lines of text.
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from pulsarcast.model.errors import Verdict
from pulsarcast.model.events import Position
from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.model.topic_types import DeliveryOrder, Dissemination, EventLinking, Mark

SCHEMA_VERSION: Final = 7
# 2: `unsubscribed` has its end, topics their publishers and retention, a fault the incarnation that
# it hit; `retired` is new. 3: `published` says whether the event is a merge of causal order.
# 4: `subscribed` names filters: an older reader would take it for a full subscription.
# 5: `topic_version` says what it flushed: without, the events that a node dropped look lost.
# 6: `reason` is a code, not a sentence (docs/spec/trace.md).
# Fields that earlier versions lack have a default here.

# How much is written: each level includes those before it.
LEVELS: Final = ("delivery", "rpc")


class Envelope(msgspec.Struct, frozen=True):
    """The fields of every line: its run and node, and when that node wrote it."""

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
    """Something that a node did, without the time: the driver adds the envelope."""


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
    """The resources that a node has used since its start."""

    cpu_s: float
    rss_bytes: int
    bytes_in: int
    bytes_out: int


class Fault(Record, frozen=True):
    """A fault that the testbed caused at a node or link on purpose."""

    action: str
    target: str
    detail: str = ""
    target_incarnation: int | None = None  # the incarnation that it hit


# Topics and subscriptions


class TopicCreated(Record, frozen=True):
    """The node created a topic."""

    topic: Cid
    name: str
    author: PeerId
    order: DeliveryOrder
    dissemination: Dissemination
    version: Cid
    linking: EventLinking = EventLinking.LAST_SEEN
    allowed: tuple[PeerId, ...] | None = None  # may publish; None: every peer
    retention_age_s: int | None = None
    retention_count: int | None = None
    retention_bytes: int | None = None


class TopicVersion(Record, frozen=True):
    """The node adopted a version of a topic."""

    topic: Cid
    version: Cid
    number: int
    allowed: tuple[PeerId, ...] | None = None
    retention_age_s: int | None = None
    retention_count: int | None = None
    retention_bytes: int | None = None
    flushed: tuple[Mark, ...] = ()  # its author drops all events up to here


class NameChanged(Record, frozen=True):
    """A name led to another topic before, or two topics have it with one number of moves."""

    author: PeerId
    name: str
    topic: Cid
    other: Cid  # led to before, or the topic, or the version, that lost the clash
    moves: int
    clash: bool  # two nodes used the author's key without knowing of each other


class Subscribed(Record, frozen=True):
    """A subscription began; events beyond its start frontier are due to it.

    A subscription by content is due the events that any of its `filters` matches. The record is
    written again when those change.
    """

    topic: Cid
    start: tuple[Mark, ...]
    filters: tuple[str, ...] | None = None  # None: it wants everything
    in_parts: bool = False  # `start_loaded` lines tell the rest of `start`


class StartLoaded(Record, frozen=True):
    """More of a subscription's start frontier is known; `start` names these numberings.

    Until it is `whole`, nobody can say whether the events of a numbering that no line names are
    due.
    """

    topic: Cid
    start: tuple[Mark, ...]
    whole: bool  # all of it is known now


class Unsubscribed(Record, frozen=True):
    """A subscription ended; a crash does not end one.

    Events beyond `end` were not known to the node: they are undecided, neither due nor not.
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
    """The node published an event."""

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
    index: int  # the number of this delivery in the node's log of the topic
    hops: int
    redelivery: bool = False


class LeaderChanged(Record, frozen=True):
    """A sequencer of a topic learned which one leads from now on; None: no leader is known."""

    topic: Cid
    term: int
    leader: PeerId | None


class Retired(Record, frozen=True):
    """Missing events up to `number` will not be delivered: retention or a flush dropped them."""

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
    """The node learned of events that it lacks, from `first` to `last`."""

    topic: Cid
    publisher: PeerId
    epoch: int
    first: int
    last: int


class GapFilled(Record, frozen=True):
    """The node got events that it lacked, up to `number`, from the peer `source`."""

    topic: Cid
    publisher: PeerId
    epoch: int
    number: int
    source: PeerId | None


class Rejected(Record, frozen=True):
    """The node refused something that a peer sent."""

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
    NameChanged,
    Subscribed,
    StartLoaded,
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
