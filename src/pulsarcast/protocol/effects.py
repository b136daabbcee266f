"""Effects: everything a node can ask of its driver, as values (docs/architecture.md)."""

from typing import TypeAlias

from msgspec import Struct

from pulsarcast.model import trace
from pulsarcast.model.errors import Refusal
from pulsarcast.model.events import EventDescriptor
from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.model.lineage import Gap
from pulsarcast.model.listings import Listing
from pulsarcast.model.pointers import Resolution
from pulsarcast.protocol.messages import Contact, Message
from pulsarcast.protocol.store import AnyWrite, Query


class Send(Struct, frozen=True):
    """Put a message into the peer's bounded queue, dialling it first if need be.

    If the dial fails or the connection breaks, the driver answers with `PeerLost`.
    """

    peer: PeerId
    message: Message


class Deliver(Struct, frozen=True):
    """Hand an event to the application; `record` is the trace line that says so."""

    event: EventDescriptor
    record: trace.Delivered


class Ended(Struct, frozen=True):
    """No application wants a topic's events any more: places in its log are void.

    The next log of the topic counts anew.
    """

    topic: Cid


class SetTimer(Struct, frozen=True):
    """Answer with `TimerFired(timer)` after `delay_s`."""

    timer: int
    delay_s: float


class Persist(Struct, frozen=True):
    """AnyWrite all of it or nothing, then answer with `Persisted(token)` once it is synced.

    The disk may leave out what is for strangers (`Keep`), and says what.
    """

    token: int
    writes: tuple[AnyWrite, ...]


class Load(Struct, frozen=True):
    """Read from the disk and answer with `Loaded(token, …)`."""

    token: int
    query: Query


class Know(Struct, frozen=True):
    """A peer's addresses, for the driver to dial; empty: it was looked up and not found."""

    contact: Contact


class DialBack(Struct, frozen=True):
    """Open a new connection to where a peer's connection comes from, and close it again.

    The driver dials no other host: else a peer could have it dial a third one. It answers with
    `DialledBack`.
    """

    peer: PeerId


class DropPeer(Struct, frozen=True):
    """Close the connection to a peer."""

    peer: PeerId
    reason: str


class Trace(Struct, frozen=True):
    """AnyWrite one record into the trace before any other effect of this turn leaves."""

    record: trace.Record


class Reply(Struct, frozen=True):
    """Answer a command: a CID, a block, listings, a name, or why it is refused."""

    call: int
    refusal: Refusal | None = None
    cid: Cid | None = None
    block: bytes | None = None
    replicas: int = 0
    events: tuple[EventDescriptor, ...] = ()
    places: tuple[int, ...] = ()
    """The log index of each event; of a new subscription, the index up to which it is served."""
    gaps: tuple[Gap, ...] = ()
    """What is missing among the events of a walk."""
    cursor: bytes = b""
    """Where a walk goes on; empty: there is nothing before."""
    listings: tuple[Listing, ...] = ()
    cut: bool = False
    """Whether there are, or may be, more listings than these."""
    resolution: Resolution | None = None


class Stopped(Struct, frozen=True):
    """The node has stopped, and handed its children over: the driver may close."""


Effect: TypeAlias = (
    Send
    | Deliver
    | Ended
    | SetTimer
    | Persist
    | Load
    | Know
    | DialBack
    | DropPeer
    | Trace
    | Reply
    | Stopped
)
