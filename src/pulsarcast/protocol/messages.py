"""Messages: everything that one peer sends to another, as values.

Thesis, 3.4; docs/spec/pulsarcast.md, Messages.

`wire` turns messages into Protocol Buffers and back. A message about a topic names it by its first
version's CID. A request carries an id of its sender's choice, and its deadline is the sender's own.
"""

import enum
from functools import lru_cache
from typing import Annotated, Final, NamedTuple, TypeAlias

from msgspec import Struct

from pulsarcast.model.errors import (
    Busy,
    Conflict,
    Halted,
    LocalError,
    NotAllowed,
    Refusal,
    RemoteError,
    TooLarge,
)
from pulsarcast.model.events import topic_named_in
from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.model.reach import Reach
from pulsarcast.protocol.content.messages import (
    ContentMessage,
    MatchedEvent,
)
from pulsarcast.protocol.fields import (
    Address,
    Addresses,
    AsMany,
    Block,
    Blocks,
    Bound,
    Certificate,
    Cids,
    Code,
    Count,
    Digest,
    FullKey,
    Hops,
    Inside,
    ListingBlock,
    Many,
    Newer,
    Number,
    Parts,
    Path,
    PointerBlock,
    Reason,
    RequestId,
    Size,
    Total,
    UpTo,
    Whole,
)
from pulsarcast.protocol.limits import (
    BEYOND_MAX,
    BLOCKS_MAX,
    CONTACTS_MAX,
    GROUPS_BYTES_MAX,
    INTEGER_MAX,
    LISTINGS_MAX,
    MARKS_MAX,
    NAME_POINTERS_MAX,
    PART_DIGEST_BYTES,
    PARTS_MAX,
    RANGES_MAX,
    ROW_BYTES,
    SMALL_PARTS_MAX,
    START_PARTS_MAX,
    STEPS_MAX,
)
from pulsarcast.protocol.sequencing.messages import (
    Append,
    Appended,
    RequestVote,
    Summon,
    Vote,
)
from pulsarcast.protocol.store import MarkState


class Contact(NamedTuple):
    """A peer and its addresses (multiaddrs; empty if the driver knows them by itself)."""

    peer: PeerId
    addresses: Addresses = ()


Contacts: TypeAlias = Annotated[tuple[Contact, ...], Many(CONTACTS_MAX)]


# Dissemination.


class EventMessage(Struct, frozen=True):
    """An event on its way through a topic, as the exact bytes its publisher signed."""

    block: Block
    hops: Hops
    """0: its publisher, which is no member, hands it in."""
    certificate: Certificate = b""
    """The proof of its position, if several sequencers agreed on it."""


class Credit(Struct, frozen=True):
    """The sender can take so many more bytes of a topic's events from the receiver."""

    topic: Cid
    size: Count


class RequestToPublish(Struct, frozen=True):
    """An author asks a peer that may publish to publish for it (thesis, 3.3.3)."""

    block: Block
    replicated: bool
    settled: Number
    """The author's requests up to this number are answered: no publisher needs to wait for them."""


ANSWER_CODES: Final = frozenset(
    kind.code for kind in (LocalError, NotAllowed, TooLarge, Conflict, Busy, Halted)
)
"""The codes with which a publisher may refuse a request; any other code means `invalid`."""


class RequestAnswered(Struct, frozen=True):
    """The answer to a request: published as `event`, or refused."""

    topic: Cid
    request_id: RequestId
    event: Cid | None
    replicas: Count
    code: Code = ""
    """Why it is refused, one of `ANSWER_CODES`; empty if it is published."""
    message: Reason = ""
    """The same for people."""

    @property
    def refusal(self) -> Refusal:
        """Why it is refused; a code that is not in `ANSWER_CODES` means `invalid`."""
        code = self.code if self.code in ANSWER_CODES else LocalError.code
        return Refusal(code, self.message)


class RequestReferred(Struct, frozen=True):
    """The sender does not lead: `leader` does, or None if it knows no leader."""

    topic: Cid
    request_id: RequestId
    leader: PeerId | None


# Tree keeping.


class Role(enum.IntEnum):
    """The role in which a peer asks to join a tree."""

    MEMBER = 0
    """It wants to be a child: events flow both ways."""
    VISITOR = 1
    """It only has events to hand in: a publisher that is not subscribed, or a replica."""


class Join(Struct, frozen=True):
    """Ask to become a child, or to hand events in (thesis, algorithm 2)."""

    topic: Cid
    attempt: Number
    role: Annotated[Role, Newer()]
    root: PeerId
    """The peer whose key the tree grows towards: the receiver need not know the topic."""
    handed_down: bool
    """A full parent sent the joiner: the path, not the distance to the root, excludes cycles."""
    fresh: bool
    """The joiner has no start frontier yet: the answer is followed by the receiver's frontier."""


class JoinAccepted(Struct, frozen=True):
    """The receiver is a child of the sender now; with the sender's path and frontier hash."""

    topic: Cid
    attempt: Number
    path: Path
    """From the accepting peer, first, to the root, last."""
    members: Contacts
    """Some other members, to be lazy neighbours."""
    digest: Digest
    private_root: bool = False
    """Whether the root says that no peer can dial it directly."""
    delay_us: Number = 0
    """How long an event takes from the root to the sender."""


class JoinReferred(Struct, frozen=True):
    """The sender does not take the joiner: it should ask `contact`."""

    topic: Cid
    attempt: Number
    contact: Contact
    handed_down: bool


class JoinCode(enum.StrEnum):
    """Why a peer neither takes a joiner nor refers it."""

    LEAVING = "leaving"  # it leaves the topic
    BELOW_YOU = "below_you"  # it is below the joiner in the tree
    WAITING_FOR_YOU = "waiting_for_you"  # it asked the joiner the same
    BUSY = "busy"  # too many wait with it


class JoinRefused(Struct, frozen=True):
    """The sender can neither take the joiner nor name another peer."""

    topic: Cid
    attempt: Number
    code: Code
    """One of `JoinCode`."""


class Leave(Struct, frozen=True):
    """The sender is no longer the receiver's child, or no longer its parent."""

    topic: Cid


class HandOver(Struct, frozen=True):
    """The sender is about to leave: a child attaches to `contact`, then sends `Leave`.

    The parent takes the children in, and hands no joiner down to the sender.
    """

    topic: Cid
    contact: Contact | None


# Cube keeping.


class Meet(Struct, frozen=True):
    """The sender is a member of a cube, and asks for the members closest to a key."""

    topic: Cid
    key: FullKey
    count: Count
    """The number of members that the sender can use."""


class Members(Struct, frozen=True):
    """The answer to `Meet`: the sender is a member too, and names others that it knows."""

    topic: Cid
    members: Contacts


# Recovery.


PartDigest: TypeAlias = Annotated[bytes, Size(PART_DIGEST_BYTES, PART_DIGEST_BYTES)]


class Status(Struct, frozen=True):
    """A neighbour's heartbeat: its path in the tree, and the hash of its frontier."""

    topic: Cid
    digest: Digest
    path: Path
    members: Contacts
    answer: bool
    """Whether the receiver is asked to answer with its own status."""
    private_root: bool = False
    """Whether the root of the path says that no peer can dial it directly."""
    delay_us: Number = 0
    """In a tree: how long an event takes from the root to the sender."""
    regular: bool = False
    """Whether the receiver gets each of the sender's heartbeats."""


class CompareTopics(Struct, frozen=True):
    """One heartbeat for all topics in which the sender and the receiver agree.

    The topics are split into groups; where the hash of a group differs from the receiver's own,
    both compare its topics one by one.
    """

    hashes: Annotated[bytes, Size(PART_DIGEST_BYTES, GROUPS_BYTES_MAX), Whole(PART_DIGEST_BYTES)]
    """One for each group, in a row."""
    answer: bool
    """Whether the receiver is asked to answer with its own hashes."""


PartName: TypeAlias = Annotated[bytes, Size(0, STEPS_MAX)]
"""The name of a part of a frontier: the steps to it, a byte each; empty: all of it."""


Marks: TypeAlias = Annotated[tuple[MarkState, ...], Many(MARKS_MAX), Total("beyond", BEYOND_MAX)]


class FrontierPart(NamedTuple):
    """The hashes of the parts of a part of the sender's frontier."""

    steps: PartName
    digests: Annotated[bytes, Size(ROW_BYTES, ROW_BYTES)]
    """In a row."""


class CompareFrontiers(Struct, frozen=True):
    """Where does the receiver's frontier differ from the sender's?

    The receiver shows its marks of small parts that differ, and compares the parts of others.
    """

    topic: Cid
    parts: Annotated[tuple[FrontierPart, ...], Many(PARTS_MAX)]


class FrontierPage(Struct, frozen=True):
    """Marks of the sender's frontier; the receiver fetches the events that it lacks."""

    topic: Cid
    marks: Marks
    answer: bool
    """Whether the receiver is asked to answer with its own frontier."""
    parts: Annotated[tuple[PartName, ...], Many(SMALL_PARTS_MAX)] = ()
    """Of which parts the marks are; none: of all, or of some numberings."""


class FetchStart(Struct, frozen=True):
    """Ask for parts of the frontier at which the sender starts.

    Who does not keep that frontier lets the sender start these parts at its own.
    """

    topic: Cid
    root: Annotated[bytes, Size(0, PART_DIGEST_BYTES)]
    """The hash of that frontier; empty: the sender has no start."""
    parts: Annotated[tuple[PartName, ...], Many(START_PARTS_MAX, 1)]


class PartHash(NamedTuple):
    """A part of a frontier that has to be loaded."""

    steps: PartName
    digest: PartDigest


class StartParts(Struct, frozen=True):
    """Parts of the frontier at which the receiver starts, as many as fit.

    Each is given by the hashes of its parts, or by all of its marks.
    """

    topic: Cid
    root: PartDigest
    """The hash of that frontier."""
    starts: Annotated[tuple[PartHash, ...], Many(START_PARTS_MAX)]
    """The parts that the receiver starts at this frontier from now on."""
    parts: Annotated[tuple[FrontierPart, ...], Many(PARTS_MAX)]
    marks: Marks


class FetchRange(Struct, frozen=True):
    """Ask for a publisher's events first..last of a topic."""

    request: Number
    topic: Cid
    publisher: PeerId
    epoch: Number
    first: Annotated[int, Bound(1, INTEGER_MAX), UpTo("last")]
    last: Number


class Range(Struct, frozen=True):
    """Events of a range, in order, as many as fit; none if the sender holds none."""

    request: Number
    topic: Cid
    blocks: Blocks
    more: bool
    """The sender holds further events of the range: ask again for the rest."""
    certificates: Annotated[tuple[Certificate, ...], Many(BLOCKS_MAX), AsMany("blocks")] = ()
    """The proof of each one's position, if several sequencers agreed on it."""


# The DHT.


class FindPeers(Struct, frozen=True):
    """Ask for the peers closest to a key."""

    request: Number
    key: FullKey
    count: Count = 0
    """The number of peers that the sender can use; 0: as many as the receiver names."""


class Peers(Struct, frozen=True):
    """The closest peers that the sender knows."""

    request: Number
    contacts: Contacts


class FindBlock(Struct, frozen=True):
    """Ask for a block, or for peers closer to it."""

    request: Number
    cid: Cid


class BlockFound(Struct, frozen=True):
    """The block asked for, or None with closer peers."""

    request: Number
    block: Block | None
    contacts: Contacts


class StoreBlocks(Struct, frozen=True):
    """Ask a peer to keep blocks; it answers once they are on its disk."""

    request: Number
    blocks: Blocks
    if_closest: bool = False
    """Only those for whose keys the receiver knows no r peers closer than itself."""


class Stored(Struct, frozen=True):
    """Which of the blocks the sender now keeps."""

    request: Number
    cids: Cids


class FindPointer(Struct, frozen=True):
    """Ask for the newest pointer under a key."""

    request: Number
    key: FullKey


class PointerFound(Struct, frozen=True):
    """The pointer that the sender keeps, one that clashes with it, and peers closer to the key."""

    request: Number
    pointers: Annotated[tuple[PointerBlock, ...], Many(NAME_POINTERS_MAX)]
    contacts: Contacts


class StorePointer(Struct, frozen=True):
    """Ask a peer to keep a pointer unless it knows a newer one, and one that clashes with it."""

    request: Number
    pointers: Annotated[tuple[PointerBlock, ...], Many(NAME_POINTERS_MAX, low=1)]


Listings: TypeAlias = Annotated[tuple[ListingBlock, ...], Many(LISTINGS_MAX)]


class FindListings(Struct, frozen=True):
    """Ask for the listings under a key: a word's, a tag's or an author's."""

    request: Number
    key: FullKey


class ListingsFound(Struct, frozen=True):
    """The listings that the sender keeps under the key, authors in turn, and closer peers."""

    request: Number
    listings: Listings
    full: bool
    """Whether the sender keeps as many as it may, so that there may be others."""
    contacts: Contacts


class StoreListings(Struct, frozen=True):
    """Ask a peer to keep listings under a key, unless it knows newer ones or they have no room."""

    request: Number
    key: FullKey
    listings: Listings


KeyRange: TypeAlias = Annotated[
    tuple[FullKey, FullKey, Count, FullKey], Parts(("first", "last", "count", "digest"))
]
"""The blocks of a part of the keyspace: first and last key, how many, and the xor of their keys."""


class CompareKeys(Struct, frozen=True):
    """A replica shows another the hash of its blocks in a range of keys.

    docs/spec/pulsarcast.md, The DHT.
    """

    request: Number
    first: Annotated[FullKey, Inside("range")]
    last: Annotated[FullKey, Inside("range")]
    count: Annotated[Count, Inside("range")]
    digest: Annotated[FullKey, Inside("range")]


class KeysDiffer(Struct, frozen=True):
    """The answer if hashes differ: the sender's CIDs, or narrower ranges to compare."""

    request: Number
    first: FullKey
    last: FullKey
    cids: Cids
    ranges: Annotated[tuple[KeyRange, ...], Many(RANGES_MAX)]
    """Parts of the range, if it holds too many CIDs to list."""


class WantBlocks(Struct, frozen=True):
    """Ask a replica for blocks by CID: it answers with `StoreBlocks`."""

    request: Number
    cids: Cids


# Reachability.


class DialMe(Struct, frozen=True):
    """Ask a peer to dial the sender back, where the sender's connection comes from."""

    request: Number


class DialCode(enum.IntEnum):
    """What came of dialling a peer back."""

    REACHED = 0
    NOT_REACHED = 1
    BUSY = 2
    """The peer has not tried: it dials too many back, or has dialled this one lately."""


class DialAnswer(Struct, frozen=True):
    """The answer to `DialMe`, with the address at which the sender reached the receiver."""

    request: Number
    code: Annotated[DialCode, Newer()]
    address: Address = ""


class ReachChanged(Struct, frozen=True):
    """The sender can be dialled in another way from now on, at these addresses."""

    reach: Annotated[Reach, Newer()]
    addresses: Addresses = ()
    """The driver fills them in."""


ReachMessage: TypeAlias = DialMe | DialAnswer | ReachChanged


# Liveness.


class Alive(Struct, frozen=True):
    """The sender lives: said on a connection where nothing else was heard."""

    answer: bool
    """Whether the receiver is asked to say the same."""


DhtMessage: TypeAlias = (
    FindPeers
    | Peers
    | FindBlock
    | BlockFound
    | StoreBlocks
    | Stored
    | FindPointer
    | PointerFound
    | StorePointer
    | FindListings
    | ListingsFound
    | StoreListings
    | CompareKeys
    | KeysDiffer
    | WantBlocks
)

OverlayMessage: TypeAlias = (
    JoinAccepted | JoinReferred | JoinRefused | Leave | HandOver | Meet | Members
)

TopicMessage: TypeAlias = (
    EventMessage
    | Credit
    | Status
    | CompareFrontiers
    | FrontierPage
    | FetchStart
    | StartParts
    | FetchRange
    | Range
    | RequestToPublish
    | RequestAnswered
    | Join
    | JoinAccepted
    | JoinReferred
    | JoinRefused
    | Leave
    | HandOver
    | Meet
    | Members
    | RequestVote
    | Vote
    | Append
    | Appended
    | Summon
    | RequestReferred
)

Message: TypeAlias = (
    TopicMessage | DhtMessage | ContentMessage | ReachMessage | CompareTopics | Alive
)


def topic_of(message: Message) -> Cid | None:
    """The topic that a message is about, if it names one."""
    if isinstance(message, (EventMessage, RequestToPublish, MatchedEvent)):
        named = _topic_in if len(message.block) <= CACHED_BYTES_MAX else _read_topic
        return named(message.block)
    topic: Cid | None = getattr(message, "topic", None)
    return topic


def _read_topic(block: bytes) -> Cid | None:
    try:
        return topic_named_in(block)
    except RemoteError:
        return None


CACHED_BYTES_MAX: Final = 4096
"""Bounds the events that are kept to know their topics."""
_topic_in = lru_cache(maxsize=1 << 12)(_read_topic)
"""Cached: an event passes many peers as the same bytes."""
