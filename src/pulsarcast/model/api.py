"""The JSON of the HTTP API: types that the daemon writes and the client reads.

Peers and content ids are text. A payload is text where it is UTF-8, else base64; `encoding` says
which. Times are microseconds since the Unix epoch.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias, cast

import msgspec

from pulsarcast.model.errors import REFUSALS, InvalidPayload, LocalError
from pulsarcast.model.events import EventDescriptor
from pulsarcast.model.ids import PeerId, cid_text, parse_peer, peer_text
from pulsarcast.model.lineage import Gap, Links
from pulsarcast.model.listings import Listing
from pulsarcast.model.payloads import decode_json, decode_text, encode_json
from pulsarcast.model.publications import Publication
from pulsarcast.model.requests import Attribute
from pulsarcast.model.shown import (
    brief,
    event_shown,
    published_shown,
    short,
    topic_shown,
    walk_shown,
)
from pulsarcast.model.topic_types import (
    AttributeRule,
    DeliveryOrder,
    Dissemination,
    EventLinking,
    Retention,
    TopicDescriptor,
    TopicSettings,
)

Scope: TypeAlias = Literal["read", "publish", "admin"]
Order: TypeAlias = Literal["none", "per-publisher", "causal", "total"]
MayPublish: TypeAlias = Literal["yes", "by request", "no"]
DisseminationName: TypeAlias = Literal["tree", "cube"]
Linking: TypeAlias = Literal["LAST_SEEN", "CUSTOM"]
Encoding: TypeAlias = Literal["utf-8", "base64"]
Ack: TypeAlias = Literal["accepted", "replicated"]
AttributeType: TypeAlias = Literal["int", "float", "str", "bool", "timestamp"]

MissingReason: TypeAlias = Literal["retention", "not_found", "refused", "branches"]

SCOPES: Final[tuple[Scope, ...]] = ("read", "publish", "admin")
BATCH_MAX: Final = 1000
"""Bounds the events of one publish call."""
WALK_MAX: Final = 1000
"""Bounds the events of one page of a walk."""
ESCAPED_MIN: Final = 100_000
"""Bounds the texts that are looked at for characters to escape: larger ones might not fit."""
PORT: Final = 8420
"""The default port of the daemon's HTTP API."""

Code: TypeAlias = Annotated[str, msgspec.Meta(extra_json_schema={"enum": list(REFUSALS)})]
"""The code of a refusal. A client takes one that it does not know: a newer daemon may have more."""


class Opaque(msgspec.Struct, forbid_unknown_fields=True):
    """An attribute that is bytes."""

    base64: str


AttributeView: TypeAlias = bool | int | float | str | Opaque


class Problem(msgspec.Struct, omit_defaults=True):
    """Why not. `code` is for programs and never changes; `error` is for people."""

    error: str
    code: Code
    topic: str = ""
    """The id of the topic that stands in the way, where one does."""
    after_s: float | None = None
    """When to come back, where the node can say that."""


# Topics.


class RetentionView(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """How much history is kept; a field that is left out sets no bound."""

    age_s: int | None = None
    count: int | None = None
    bytes: int | None = None


class AttributeRuleView(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """An attribute that events may carry, and that filters may ask about."""

    name: str
    type: AttributeType
    min: int | float | str | None = None
    """Smallest value; of a `str`, the first text."""
    max: int | float | str | None = None


class SettingsView(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The settings that a topic's author chooses."""

    order: Order = "per-publisher"
    dissemination: DisseminationName = "tree"
    """How events travel; it never changes."""
    open: bool = False
    """Whether every peer may publish."""
    publishers: list[str] | None = None
    """The peers that may publish; left out: the author alone, unless the topic is open."""
    request_to_publish: bool = True
    requesters: list[str] | None = None
    linking: Linking = "LAST_SEEN"
    sequencers: list[str] | None = None
    """In total order: the 1 to 7 peers that number the events; left out: the author alone."""
    retention: RetentionView = msgspec.field(default_factory=RetentionView)
    payload_bytes_max: int | None = None
    attributes: list[AttributeRuleView] | None = None
    """The attributes that events may carry; left out: unchanged, or in a new topic any."""
    content_routing: bool = False
    """Whether events travel by their attributes to those whose filters they match."""
    recovery_keys: list[str] | None = None
    """The peers that may make versions if the author's key is lost; left out: unchanged, or in a
    new topic none. A version may drop some of them, and adds none."""
    description: str | None = None
    """A line for people. A topic that has one, or a tag, is listed: every peer can find it by its
    words. Left out: unchanged, or in a new topic none; empty: none."""
    tags: list[str] | None = None
    """Up to 8 tags by which the topic is found; left out: unchanged, or in a new topic none."""

    def __repr__(self) -> str:
        return brief(self)


class NewTopic(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A topic to create."""

    name: str
    settings: SettingsView = msgspec.field(default_factory=SettingsView)
    alias: str | None = None
    subtopics: dict[str, str] = {}
    """Topics below it, by the names that they have there."""


class EnsuredTopic(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A topic that shall be there, made where it is not."""

    settings: SettingsView | None = None
    """Left out: any. A field that is null, and an empty retention, are not compared."""
    subtopics: dict[str, str] = {}
    """Topics below it, by the names that they have there; empty: any."""


class MovedName(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The topic that a name shall lead to."""

    topic: str


class TopicUpdate(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A new version of a topic; `flush` forgets all events up to now."""

    settings: SettingsView
    flush: bool = False
    subtopics: dict[str, str] | None = None
    """All topics below it; left out, they stay as they are."""


class TopicView(msgspec.Struct, kw_only=True):
    """A topic in its newest version."""

    id: str
    name: str
    author: str
    version: int
    version_id: str
    created_us: int
    settings: SettingsView
    subtopics: dict[str, str]
    aliases: list[str] = []
    notes: list[str] = []
    """What a person should know of the name by which it was found: that it moved, or that two
    topics claim it."""
    peer_names: dict[str, str] = {}
    """The local names of peers above, by their ids; never another peer's word."""

    def __repr__(self) -> str:
        return topic_shown(self)


class ReaderView(msgspec.Struct, kw_only=True):
    """A name that listens to a topic."""

    name: str
    done: int
    """The index up to which it is done."""
    behind: int
    """Events that it has left to read, with those of sub-topics that it takes in."""
    connected: bool
    below: bool = False
    """Whether it takes in sub-topics."""


class Readers(msgspec.Struct):
    """All named readers that have a position in a topic."""

    readers: list[ReaderView]


class SequencingView(msgspec.Struct, kw_only=True):
    """The state of sequencing, as one of several sequencers knows it."""

    leader: str | None
    """The sequencer that numbers events now; null during an election."""
    term: int
    leads: bool
    """Whether it is this node."""
    has_vote: bool
    """Whether this node votes. With a new store it does not until it is admitted again."""
    held: int
    """The position up to which the node has every event."""


class BelowView(msgspec.Struct, kw_only=True):
    """The sub-topics that a subscription takes in."""

    followed: int
    joining: int
    left_out: dict[str, str]
    """Topics that the node does not follow, and why: not found, too deep, too many, …"""
    left_out_count: int
    """How many these are; `left_out` names the first ones."""


class FollowedView(msgspec.Struct, kw_only=True):
    """A topic that the node follows, and how it does."""

    id: str
    name: str
    author: str
    version: int
    order: str
    dissemination: str
    open: bool
    """Whether every peer may publish."""
    may_publish: MayPublish
    """Whether this node may publish itself, by a request to a peer that may, or not at all."""
    aliases: list[str]
    subscribed: bool
    newest: int
    """The index of the newest event in the node's log."""
    parent: str | None
    children: list[str]
    lazy: list[str]
    is_root: bool
    """Whether the node is the root of the topic's tree. In a cube each node roots its own."""
    starved: bool
    """Whether the node has no neighbour in the topic, and none will come by itself: it has no place
    yet, or it is the root and no peer can dial it. Events of others do not arrive."""
    held_back: int
    missing: int
    """Ranges of numbers that were seen to exist and are being fetched."""
    readers: list[ReaderView]
    sequencing: SequencingView | None = None
    """The state of sequencing, if the node is one of several sequencers of the topic."""
    halted: str | None = None
    """Why the topic is halted; null if it is not."""
    description: str = ""
    tags: list[str] = []
    filters: list[str] = []
    """The filters of a node that is no member and receives matching events only."""
    below: BelowView | None = None
    """The sub-topics that the subscription takes in; null if it takes in none."""
    above: list[str] = []
    """The topics whose subscriptions take this one in as a sub-topic."""
    peer_names: dict[str, str] = {}
    """The local names of peers above, by their ids; never another peer's word."""

    def __repr__(self) -> str:
        return topic_shown(self)


class Topics(msgspec.Struct):
    """All topics that the node follows."""

    topics: list[FollowedView]


class ListingView(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A listed topic, by its author's own words: nobody else has checked them."""

    id: str
    name: str
    author: str
    version: int
    description: str = ""
    tags: list[str] = []
    expires_us: int = 0
    """Until when it is listed, unless its author lists it again."""
    peer_names: dict[str, str] = {}
    """The local names of peers above, by their ids; never another peer's word."""

    def __repr__(self) -> str:
        return topic_shown(self)


class Listings(msgspec.Struct):
    """The listed topics that were found, with their authors in turn."""

    listings: list[ListingView]
    cut: bool
    """Whether there are, or may be, more: search for more words, or for an author."""


class Alias(msgspec.Struct, forbid_unknown_fields=True):
    """The topic that a name of the user's own stands for."""

    topic: str


class Aliases(msgspec.Struct):
    """All of them."""

    aliases: dict[str, str]


class TicketView(msgspec.Struct):
    """A ticket: the way to a topic, for a node on another machine."""

    ticket: str


class Join(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A ticket to follow, and the name that its topic gets here."""

    ticket: str
    alias: str | None = None
    """Left out: the topic's own name, if no other topic has it as an alias here."""


# Events.


class NewEvent(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Something to publish: a payload, or a JSON value in its place."""

    payload: str | msgspec.UnsetType = msgspec.UNSET
    encoding: Encoding = "utf-8"
    json: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    """Any JSON value; it is published in one form, with sorted keys and without white space."""
    name: str = ""
    attributes: dict[str, AttributeView] = {}
    parents: list[str] = []
    ack: Ack = "replicated"


class BatchEvent(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One of many things to publish: a payload, or a JSON value in its place."""

    payload: str | msgspec.UnsetType = msgspec.UNSET
    encoding: Encoding = "utf-8"
    json: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    """Any JSON value; it is published in one form, with sorted keys and without white space."""
    name: str = ""
    attributes: dict[str, AttributeView] = {}
    parents: list[str] = []
    idempotency_key: Annotated[str, msgspec.Meta(min_length=1, max_length=256)] | None = None
    """The same key, also in another call or after a crash, publishes once."""
    created_us: int | None = None
    """When it was said; left out: now, or when the key was first used."""


class NewEvents(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Many things to publish, in this order."""

    events: Annotated[list[BatchEvent], msgspec.Meta(max_length=BATCH_MAX)]
    ack: Ack = "replicated"


class BatchResult(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The result of one of them: its id and the number of replicas, or why it was refused."""

    id: str | None = None
    replicas: int | None = None
    """The number of peers known to keep it; null if it was refused."""
    error: str = ""
    code: Code = ""
    after_s: float | None = None
    """Where it is busy: when to come back."""

    def __repr__(self) -> str:
        return f"<BatchResult {self.code}: {self.error}>" if self.error else published_shown(self)


class BatchResults(msgspec.Struct):
    """The result of each event, in the order of the request."""

    events: list[BatchResult]


class PublishedView(msgspec.Struct):
    """The published event: `replicas` is the number of peers that are known to keep it."""

    id: str
    replicas: int

    def __repr__(self) -> str:
        return published_shown(self)


class EventView(msgspec.Struct, kw_only=True, omit_defaults=True):
    """An event. `index` is the node's own count of the topic's events, in order of delivery."""

    index: int
    """0: the event does not come from the node's log of the topic."""
    id: str
    topic: str
    author: str
    publisher: str
    epoch: str
    """The publisher's epoch: 63 bits, more than a number has in JavaScript."""
    number: int
    _payload: str = msgspec.field(name="payload")
    _encoding: Encoding = msgspec.field(name="encoding", default="utf-8")
    name: str = ""
    attributes: dict[str, AttributeView] = {}
    parents: list[str] = []
    created_us: int = 0
    redelivery: bool = False
    """Whether the same reader may have been given it before."""
    merge: bool = False
    """Whether it is a merge of a causal topic: it has no payload, and only joins its parents."""
    peer_names: dict[str, str] = {}
    """The local names of peers above, by their ids; never another peer's word."""

    @property
    def payload(self) -> bytes:
        """What was published."""
        return to_bytes(self._payload, self._encoding)

    def text(self) -> str:
        """The payload as text; raises InvalidPayload if it is not UTF-8."""
        return decode_text(self.payload)

    def json(self) -> Any:
        """The payload as a JSON value; raises InvalidPayload if it is not JSON."""
        return decode_json(self.payload)

    def __repr__(self) -> str:
        return event_shown(self, merge=self.merge)


class Page(msgspec.Struct, kw_only=True):
    """Some events of a topic's history; `next` is where to go on, None at its present end."""

    events: list[EventView]
    next: int | None
    newest: int


class WalkFrom(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """How to walk from an event: one page of it."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=WALK_MAX)] = 100
    cursor: str = ""
    """Where the page before ended; empty: the page begins with the event."""
    forward: bool = False
    """Whether to walk forward, in the node's own log."""
    topic: str | None = None
    """A topic whose members are asked for the event, if the DHT no longer has it."""


class GapView(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Events that a walk misses: one by its id, or the numbers first..last of a publisher."""

    reason: MissingReason
    id: str = ""
    publisher: str = ""
    epoch: str = ""
    first: int = 0
    last: int = 0
    peer_names: dict[str, str] = {}
    """The local names of peers above, by their ids; never another peer's word."""

    @property
    def count(self) -> int:
        """How many events are missing."""
        return self.last - self.first + 1 if self.last else 1


class WalkView(msgspec.Struct, kw_only=True):
    """Events on a walk, what is missing among them, and where to go on."""

    events: list[EventView]
    gaps: list[GapView]
    cursor: str
    """Where to go on; empty: there is nothing more."""

    def __repr__(self) -> str:
        return walk_shown(self)


class LogView(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The part of a topic's history that the node keeps. An index is valid within one log only."""

    topic: str
    name: str
    author: str
    version: int
    version_id: str
    subtopics: dict[str, str]
    store: str
    """The id of the node's store; one that was copied or restored has another."""
    log: str
    """The id of this log; it is another one in another store, and when the topic was left since."""
    oldest: int
    """The index of the oldest event that is kept; in an empty log, the next index."""
    newest: int
    attributes: list[AttributeRuleView] = []
    """The attributes that its events may carry, for filters."""

    def __repr__(self) -> str:
        return brief(self)


class Follow(msgspec.Struct, forbid_unknown_fields=True):
    """A wish to follow a topic, and the position from which on."""

    start: Literal["now", "beginning"] = "now"
    below: bool = False
    """Whether all its sub-topics are followed, too."""


class Done(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A reader's word that it is done with everything up to an index."""

    index: int = 0
    subtopics: dict[str, int] = {}
    """The same for sub-topics that the reader takes in, by their content ids."""


# The node.


ReachKind: TypeAlias = Literal["unknown", "public", "relayed", "private"]
"""Public: peers can dial it. Relayed: through a relay only. Private: no peer can."""


class PeerView(msgspec.Struct, kw_only=True):
    """A peer that the node is connected to."""

    peer: str
    name: str = ""
    """The peer's local name, if it has one."""
    address: str
    dialled: bool
    """Whether the node dialled it, rather than the peer the node."""
    reach: ReachKind = "unknown"
    """Whether and how peers can dial it, as it says itself."""
    relay: str = ""
    """The relay that carries the connection; empty: it is a direct one."""
    bytes_in: int
    bytes_out: int
    queued_bytes: int

    def __repr__(self) -> str:
        return brief(self)


class MoreBootstrap(msgspec.Struct, forbid_unknown_fields=True):
    """Peers to join the network through."""

    addresses: list[str]
    """Each as /ip4/ADDRESS/tcp/PORT/p2p/PEER."""


class Peers(msgspec.Struct):
    """All of them."""

    peers: list[PeerView]


class BootstrapView(msgspec.Struct, kw_only=True):
    """A bootstrap peer: one that the operator named."""

    peer: str
    addresses: list[str]
    state: Literal["connected", "idle", "trying", "unreachable"]
    """Idle: it answered, and nothing needs a connection to it. Trying: nothing came of it yet."""
    since_us: int | None = None
    """Since when it does not answer, if it is unreachable."""
    reason: str | None = None
    """Why it is unreachable, for each address."""


class ReachReport(msgspec.Struct, kw_only=True):
    """What one peer found out about the reach of the node."""

    peer: str
    reached: bool
    """Whether the peer could dial the node."""
    address: str
    """The address at which the peer dialled the node back; empty: it could not, or did not say."""
    near: bool
    """Whether the peer is on this machine or in its network, so that others may find otherwise."""
    at_us: int


class ReachView(msgspec.Struct, kw_only=True):
    """Whether and how other peers can dial the node."""

    kind: ReachKind
    since_us: int | None = None
    address: str = ""
    """The address at which peers from elsewhere reached the node, if they did."""
    reports: list[ReachReport] = []
    """The newest reports of different places, which decide by majority."""
    relays: list[str] = []
    """The relays that have a reservation for the node."""
    punched: int = 0
    """Relayed connections that became direct ones since the start."""
    not_punched: int = 0
    """Relayed connections that did not, because a NAT lets no direct one through."""
    advice: str = ""
    """What the operator can do about it; empty: there is nothing to do."""


class RelayingView(msgspec.Struct, kw_only=True):
    """What the node does as a relay for others."""

    peers: int = 0
    """Peers that have a reservation at the node."""
    circuits: int = 0
    """Connections between other peers that the node carries."""
    bytes: int = 0
    """Bytes of such connections since the node started."""


class StatusView(msgspec.Struct, kw_only=True):
    """The node's identity, addresses and health."""

    peer: str
    addresses: list[str]
    version: str
    started_us: int
    incarnation: int
    halted: str | None
    ready: bool
    reasons: list[str]
    """Why the node is not ready; empty if it is."""
    state: str = "ready"
    """Why it is not ready, or that it is: perhaps alone, where it knows peers and reaches none."""
    peers: int
    peers_known: int
    bootstrap: list[BootstrapView] = []
    peers_remembered: int = 0
    """Peers that the node tries again after a restart, besides the bootstrap peers."""
    reach: ReachView
    relaying: RelayingView = msgspec.field(default_factory=RelayingView)
    topics: int
    subscriptions: int
    starved: int = 0
    """Topics in which the node has no neighbour, and none will come by itself."""
    messages_in: int
    messages_out: int
    bytes_in: int
    bytes_out: int
    publications: int
    """Events that programs of this node published, by itself or by a request, since its start."""
    deliveries: int
    """Events that were delivered to readers on this node since its start."""
    commits: int
    replicas_held: int
    store_bytes: int
    disk_free_bytes: int
    disk_bytes_max: int
    retention_default: RetentionView
    trace: str | None
    readers_connected: int
    tips: list[str] = []
    peer_names: dict[str, str] = {}
    """The local names of peers above, by their ids; never another peer's word."""

    def __repr__(self) -> str:
        state = "ready" if self.ready else f"not ready: {'; '.join(self.reasons)}"
        return f"<StatusView {short(self.peer)}, {state}, peers: {self.peers}>"


class PeerName(msgspec.Struct, forbid_unknown_fields=True):
    """A name for a peer, on this node alone."""

    name: str


class PeerNames(msgspec.Struct):
    """All of them, by peer id."""

    peer_names: dict[str, str]


class PageUrl(msgspec.Struct):
    """An address that opens the status page, once."""

    url: str


class NewToken(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A token to make."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
    scopes: Annotated[list[Scope], msgspec.Meta(min_length=1)] = msgspec.field(
        default_factory=lambda: ["read"]
    )
    topics: list[str] | None = None
    """The topics that it is valid for; left out: all topics."""


class TokenView(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A token, which is shown only once: when it is made."""

    id: str
    name: str
    scopes: list[Scope]
    topics: list[str] | None = None
    created_us: int = 0
    token: str | None = None

    def __repr__(self) -> str:
        # Never the secret: this ends up in logs.
        return f"<TokenView {self.name!r} {self.id}: {', '.join(self.scopes)}>"


class Tokens(msgspec.Struct):
    """All tokens that have not been revoked."""

    tokens: list[TokenView]


# From and to the model.


def from_bytes(data: bytes) -> tuple[str, Encoding]:
    """Bytes as JSON can say them."""
    try:
        return data.decode(), "utf-8"
    except UnicodeDecodeError:
        return base64.b64encode(data).decode(), "base64"


def to_bytes(text: str, encoding: Encoding) -> bytes:
    """The bytes that JSON said."""
    if encoding == "base64":
        try:
            return base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError) as error:
            raise LocalError(f"the text is not base64: {error}") from error
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise LocalError("the text is not Unicode") from error


def payload_from(given: NewEvent | BatchEvent) -> bytes:
    """The bytes that a program in any language asks to publish."""
    if isinstance(given.json, msgspec.Raw):
        if given.payload is not msgspec.UNSET:
            raise InvalidPayload("give payload or json, not both")
        return encode_json(decode_json(bytes(given.json), "json"))
    if given.payload is msgspec.UNSET:
        raise InvalidPayload("give payload, a text, or json, any JSON value")
    return to_bytes(given.payload, given.encoding)


def batch_event(publication: Publication) -> BatchEvent:
    """An event to publish, as JSON can say it."""
    payload, encoding = from_bytes(publication.data)
    if len(payload) > ESCAPED_MIN and len(msgspec.json.encode(payload)) > 2 * len(payload):
        # Of text that has to be escaped, JSON makes six times as much.
        payload, encoding = base64.b64encode(publication.data).decode(), "base64"
    return BatchEvent(
        payload=payload,
        encoding=encoding,
        name=publication.name,
        attributes={name: attribute_view(each) for name, each in publication.attributes.items()},
        parents=[each if isinstance(each, str) else cid_text(each) for each in publication.parents],
        idempotency_key=publication.idempotency_key,
        created_us=publication.created_us,
    )


def attribute_from(value: AttributeView) -> Attribute:
    """An attribute as the model has it."""
    return to_bytes(value.base64, "base64") if isinstance(value, Opaque) else value


def attribute_view(value: Attribute) -> AttributeView:
    """An attribute as JSON says it."""
    if isinstance(value, bytes):
        return Opaque(base64.b64encode(value).decode())
    return value


def event_view(index: int, event: EventDescriptor, *, redelivery: bool = False) -> EventView:
    """An event for a program in any language."""
    request = event.request
    payload, encoding = from_bytes(request.payload)
    return EventView(
        index=index,
        id=cid_text(event.cid),
        topic=cid_text(request.topic),
        author=peer_text(request.author),
        publisher=peer_text(event.publisher),
        epoch=str(event.sequence.epoch),
        number=event.sequence.number,
        _payload=payload,
        _encoding=encoding,
        name=request.name,
        attributes={name: attribute_view(value) for name, value in request.attributes.items()},
        parents=[cid_text(parent) for parent in event.parents],
        created_us=request.created,
        redelivery=redelivery,
        merge=event.is_silent,
    )


def gap_view(gap: Gap) -> GapView:
    """A gap for a program in any language."""
    return GapView(
        reason=gap.reason.value,
        id="" if gap.event is None else cid_text(gap.event),
        publisher="" if gap.publisher is None else peer_text(gap.publisher),
        epoch="" if gap.publisher is None else str(gap.epoch),
        first=gap.first,
        last=gap.last,
    )


def links_of(event: EventView) -> Links:
    """What an event says about its place among others."""
    parents = [parent.encode() for parent in event.parents]
    numbering = (event.publisher, event.epoch)
    return Links(event.id.encode(), numbering, event.number, parents, event.created_us)


def cursor_text(cursor: bytes) -> str:
    """A walk's cursor as JSON says it."""
    return base64.urlsafe_b64encode(cursor).decode()


def cursor_from(text: str) -> bytes:
    """A walk's cursor as the model has it."""
    try:
        return base64.b64decode(text, altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise LocalError("the cursor is not one that a walk gave") from error


def settings_view(settings: TopicSettings) -> SettingsView:
    """A topic's settings for a program in any language."""
    retention = settings.retention
    return SettingsView(
        order=settings.order.value,
        dissemination=settings.dissemination.value,
        open=settings.open,
        publishers=_peer_texts(settings.publishers) or None,
        request_to_publish=settings.request_to_publish,
        requesters=_peer_texts(settings.requesters),
        linking=settings.linking.value,
        sequencers=_peer_texts(settings.sequencers) or None,
        retention=RetentionView(retention.age_s, retention.count, retention.bytes),
        payload_bytes_max=settings.payload_bytes_max,
        attributes=rules_view(settings.attributes) or None,
        content_routing=settings.content_routing,
        recovery_keys=_peer_texts(settings.recovery_keys) or None,
        description=settings.description or None,
        tags=list(settings.tags) or None,
    )


def settings_from(
    view: SettingsView, base: TopicSettings, peer: Callable[[str], PeerId] = parse_peer
) -> TopicSettings:
    """The settings that a view asks for; settings that a view cannot express stay as in `base`.

    `peer` says which peer a text means.
    """

    def parsed(texts: list[str] | None) -> tuple[PeerId, ...] | None:
        return None if texts is None else tuple(peer(text) for text in texts)

    order = DeliveryOrder(view.order)
    changes: dict[str, Any] = {
        "order": order,
        "dissemination": Dissemination(view.dissemination),
        "open": view.open,
        "publishers": parsed(view.publishers) or (),
        "request_to_publish": view.request_to_publish,
        "requesters": parsed(view.requesters),
        "linking": EventLinking(view.linking),
        "content_routing": view.content_routing,
        "retention": Retention(view.retention.age_s, view.retention.count, view.retention.bytes),
    }
    if view.payload_bytes_max is not None:
        changes["payload_bytes_max"] = view.payload_bytes_max
    if view.attributes is not None:
        changes["attributes"] = rules_from(view.attributes)
    if view.recovery_keys is not None:
        changes["recovery_keys"] = parsed(view.recovery_keys)
    if view.description is not None:
        changes["description"] = view.description
    if view.tags is not None:
        changes["tags"] = tuple(view.tags)
    if order is not DeliveryOrder.TOTAL:
        changes["sequencers"] = ()
    elif view.sequencers is not None:
        changes["sequencers"] = parsed(view.sequencers)
    return msgspec.structs.replace(base, **changes)


def settings_given(view: SettingsView) -> tuple[str, ...]:
    """The settings that a view asks for, by name: not those that it leaves out."""
    left_out = (None, RetentionView())
    return tuple(field for field in view.__struct_fields__ if getattr(view, field) not in left_out)


def rules_view(rules: Iterable[AttributeRule]) -> list[AttributeRuleView]:
    """A topic's schema for a program in any language."""
    return [
        AttributeRuleView(rule.name, cast("AttributeType", rule.type), rule.min, rule.max)
        for rule in rules
    ]


def rules_from(views: Iterable[AttributeRuleView]) -> tuple[AttributeRule, ...]:
    """A topic's schema as the model has it."""
    return tuple(AttributeRule(rule.name, rule.type, rule.min, rule.max) for rule in views)


def topic_view(
    topic: TopicDescriptor, aliases: Mapping[str, str], notes: Iterable[str] = ()
) -> TopicView:
    """A topic for a program in any language."""
    topic_id = cid_text(topic.topic)
    return TopicView(
        id=topic_id,
        name=topic.name,
        author=peer_text(topic.author),
        version=topic.number,
        version_id=cid_text(topic.cid),
        created_us=topic.created,
        settings=settings_view(topic.settings),
        subtopics={name: cid_text(cid) for name, cid in topic.subtopics.items()},
        aliases=[alias for alias, named in aliases.items() if named == topic_id],
        notes=list(notes),
    )


def listing_view(listing: Listing) -> ListingView:
    """A listed topic for a program in any language."""
    return ListingView(
        id=cid_text(listing.topic),
        name=listing.name,
        author=peer_text(listing.author),
        version=listing.number,
        description=listing.description,
        tags=list(listing.tags),
        expires_us=listing.expires_us,
    )


def _peer_texts(peers: tuple[Any, ...] | None) -> list[str] | None:
    return None if peers is None else [peer_text(peer) for peer in peers]
