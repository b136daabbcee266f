"""Inputs: everything that can happen to a node, as values (docs/architecture.md).

An *event* is a published thing, so the core's state machine takes **inputs**. The two drivers,
`simulation` and `network`, build these; nothing else reaches the core.
"""

from typing import TypeAlias

from msgspec import Struct

from pulsarcast.model.events import Attribute
from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.model.listings import Search
from pulsarcast.model.reach import Reach
from pulsarcast.model.topics import TopicSettings
from pulsarcast.protocol.messages import Contact, Message
from pulsarcast.protocol.store import Answer, MarkState, StateRow


class Now(Struct, frozen=True):
    """The driver's clocks: monotonic for timers, wall for people. Safety needs neither."""

    mono_s: float
    wall_us: int


class Start(Struct, frozen=True):
    """The node starts, with the state from its disk and its first contacts."""

    rows: tuple[StateRow, ...] = ()
    marks: tuple[tuple[Cid, MarkState], ...] = ()
    """The frontier of every followed topic, from the disk."""
    logs: tuple[tuple[Cid, int], ...] = ()
    """The newest index of every topic's log, 0 where it is empty."""
    contacts: tuple[Contact, ...] = ()
    reach: Reach = Reach.UNKNOWN
    """What the driver knows for sure; UNKNOWN: the node finds out."""
    known: tuple[Contact, ...] = ()
    """Live peers that the node knows, and that know it: it has joined already. Simulated networks
    that begin settled have them; a real node finds its place at every start."""


class Stop(Struct, frozen=True):
    """The node is asked to stop: it hands its children over first."""


class Halt(Struct, frozen=True):
    """The driver found out that the node must not go on: another node has its key."""

    reason: str


# Commands of the application. `call` comes back in a `Reply`.


class CreateTopic(Struct, frozen=True):
    """Create a topic together with its meta topic (thesis, algorithm 1)."""

    call: int
    name: str
    settings: TopicSettings
    subtopics: dict[str, Cid] = {}
    ensure: tuple[str, ...] | None = None
    """None: a name in use is refused. Else the topic that has it is the answer, if these of its
    settings are as given."""


class MoveName(Struct, frozen=True):
    """Let a name of the node's own lead to another topic of the node's own."""

    call: int
    name: str
    topic: Cid


class UpdateTopic(Struct, frozen=True):
    """Publish a new version of the node's own topic; `flush` drops all events up to now."""

    call: int
    topic: Cid
    settings: TopicSettings
    subtopics: dict[str, Cid] | None = None
    flush: bool = False


class Subscribe(Struct, frozen=True):
    """Join a topic's dissemination tree; `below` takes in every sub-topic too (thesis, 3.1)."""

    call: int
    topic: Cid
    below: bool = False
    from_start: bool = False


class SubscribeContent(Struct, frozen=True):
    """Subscribe to the events of a topic that match a filter, without becoming a member.

    `sid` is the caller's name for it: the same one again changes the filter.
    """

    call: int
    topic: Cid
    where: str
    sid: int = 0


class UnsubscribeContent(Struct, frozen=True):
    """Cancel a subscription by content."""

    call: int
    topic: Cid
    sid: int = 0


class Unsubscribe(Struct, frozen=True):
    """Leave a topic, handing children over first."""

    call: int
    topic: Cid


class Publish(Struct, frozen=True):
    """Publish, or request to publish, a payload.

    The reply comes once it is on a publisher's disk, or, if `replicated`, once r peers hold it.
    """

    call: int
    topic: Cid
    payload: bytes
    name: str = ""
    attributes: dict[str, Attribute] = {}
    parents: tuple[Cid, ...] = ()
    replicated: bool = False
    idempotency_key: bytes | None = None
    created_us: int | None = None
    """The time of writing, if that is not now: the author may publish older data."""
    injection: str = ""


class AddBootstrap(Struct, frozen=True):
    """Try more bootstrap peers, now and after every restart."""

    call: int
    contacts: tuple[Contact, ...]


class Acknowledge(Struct, frozen=True):
    """The application is done with every delivery of a topic up to `index`."""

    topic: Cid
    index: int


class FetchBlock(Struct, frozen=True):
    """Find a descriptor by its CID: locally, in the DHT, then at members of `topic`, if given."""

    call: int
    cid: Cid
    topic: Cid | None = None


class Walk(Struct, frozen=True):
    """Give up to `limit` events before an event, newest first: itself, or those behind a cursor.

    `topic` names the members to ask for the event itself, where the DHT has it no more.
    """

    call: int
    event: Cid
    limit: int
    cursor: bytes = b""
    topic: Cid | None = None


class Resolve(Struct, frozen=True):
    """Find the topic that an author's name leads to."""

    call: int
    author: PeerId
    name: str


class FindTopics(Struct, frozen=True):
    """Find listed topics by words, tags and author: at most `limit`, with the authors in turn."""

    call: int
    search: Search
    limit: int


class ReadHistory(Struct, frozen=True):
    """Read up to `limit` events of the node's log of a topic, from `index` on."""

    call: int
    topic: Cid
    index: int
    limit: int


# Reports of the driver.


class MessageReceived(Struct, frozen=True):
    """A message arrived from an authenticated peer."""

    sender: PeerId
    message: Message


class PeerUp(Struct, frozen=True):
    """A peer is connected."""

    contact: Contact
    place: str = ""
    """The network prefix of the peer's end of the connection; empty: peers need no addresses."""
    reached: bool = False
    """Whether the node dialled the peer, rather than the peer the node."""
    near: bool = False
    """Whether the peer is in a network of this machine's: it says nothing about peers elsewhere."""
    reach: Reach = Reach.UNKNOWN
    """What the peer's Hello says."""
    relayed: bool = False
    """Whether the connection did not come about by a dial alone: a relay carries or helped it."""


class PeerLost(Struct, frozen=True):
    """A connection ended, or a dial failed; messages sent to the peer may be lost."""

    peer: PeerId


class Moving(Struct, frozen=True):
    """Parts of a message arrive from a peer: it is alive, and the message takes its time."""

    peer: PeerId


class LinkFull(Struct, frozen=True):
    """So much waits on a peer's link that more should wait elsewhere."""

    peer: PeerId


class LinkFree(Struct, frozen=True):
    """What waited on a peer's link has left."""

    peer: PeerId


class DialledBack(Struct, frozen=True):
    """The answer to `DialBack`: the address at which the peer proved itself, or empty."""

    peer: PeerId
    address: str = ""


class Relayed(Struct, frozen=True):
    """A relay has a reservation for the node, or the last one that had is lost."""

    held: bool


class AddressesChanged(Struct, frozen=True):
    """The machine has other addresses: what peers found out at the old ones is void."""


class FindPeer(Struct, frozen=True):
    """The driver knows no address of a peer: look it up, and answer with `Know`."""

    peer: PeerId


class TimerFired(Struct, frozen=True):
    """A timer has fired."""

    timer: int


class Loaded(Struct, frozen=True):
    """The disk answers a `Load`."""

    token: int
    answer: Answer


class Persisted(Struct, frozen=True):
    """Everything persisted up to and with `token` is on the disk for good."""

    token: int
    left_out: tuple[int, ...] = ()
    """But for the writes for strangers that these tokens name: they found no room."""


class PersistFailed(Struct, frozen=True):
    """The disk refused; nothing from `token` on may be acknowledged."""

    token: int
    reason: str


TopicCommand: TypeAlias = CreateTopic | UpdateTopic | MoveName
SubscriptionCommand: TypeAlias = Subscribe | Unsubscribe | SubscribeContent | UnsubscribeContent
ReadCommand: TypeAlias = FetchBlock | Walk | Resolve | FindTopics | ReadHistory
Call: TypeAlias = TopicCommand | SubscriptionCommand | Publish | ReadCommand | AddBootstrap
"""A command that is answered, once."""
Command: TypeAlias = Call | Acknowledge

Input: TypeAlias = (
    MessageReceived
    | Persisted
    | TimerFired
    | Loaded
    | PeerUp
    | PeerLost
    | Moving
    | LinkFull
    | LinkFree
    | DialledBack
    | Relayed
    | AddressesChanged
    | FindPeer
    | Start
    | Stop
    | Halt
    | PersistFailed
    | Command
)
