"""What peers say about content-based subscriptions (2d-tree thesis, 4.2.1).

The thesis' seven kinds, as they became here:

- ProbeSubMessage and InsertSubMessage are one, `PlaceSubscription`: a record is small, so the probe
  carries it, and the leaf that it finds keeps it. `Installed` answers.
- TransferSubMessage is `PlaceState`, which also keeps replicas and hands a home over; `PlaceTaken`
  answers it.
- LeafUpdateMessage is `TreeHint`, which is also told to whoever guesses wrong: it says whom to ask,
  `AskShape` asks, and `TreeShape` answers. Nobody believes a shape that it did not ask for.
- ProbePubMessage and ProbePubMulticastMessage are `ProbeEvent`, with one target or many.
- EventDeliveryMessage is `MatchedEvent`.

`CompareContent` and `ContentCompared` are ours: they make complete what routing may lose.

Those with `hops` are routed: each hop passes them to a peer closer to where they go.
"""

import enum
from typing import Annotated, Final, NamedTuple, TypeAlias

from msgspec import Struct

from pulsarcast.model.fields import NAME_BYTES_MAX
from pulsarcast.model.filters.bounds import FILTER_BYTES_MAX
from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.model.subscriptions import LEASE_S_MAX, SUBSCRIPTION_BYTES_MAX
from pulsarcast.protocol.content.space import DEPTH_MAX
from pulsarcast.protocol.fields import (
    Block,
    Blocks,
    Bound,
    Count,
    Hops,
    Many,
    Number,
    Size,
    Total,
    UpTo,
    Whole,
)
from pulsarcast.protocol.limits import (
    BEYOND_MAX,
    CONTENT_MARKS_MAX,
    FILTERS_MAX,
    HAVE_BYTES_MAX,
    HELD_MAX,
    SHAPE_BYTES_MAX,
    TARGETS_MAX,
)
from pulsarcast.protocol.store import MarkState

ID_BYTES: Final = 8
"""As much of a CID as tells events apart here: whose events collide hides its own."""
TREE_NODE_MAX: Final = (2 << DEPTH_MAX) - 1

Attribute: TypeAlias = Annotated[str, Size(1, NAME_BYTES_MAX)]
TreeNode: TypeAlias = Annotated[int, Bound(1, TREE_NODE_MAX)]
ShapeBytes: TypeAlias = Annotated[bytes, Size(0, SHAPE_BYTES_MAX)]
Filters: TypeAlias = Annotated[
    tuple[Annotated[str, Size(0, FILTER_BYTES_MAX)], ...], Many(FILTERS_MAX)
]
EventIds: TypeAlias = Annotated[bytes, Size(0, HAVE_BYTES_MAX), Whole(ID_BYTES)]
Marks: TypeAlias = Annotated[
    tuple[MarkState, ...], Many(CONTENT_MARKS_MAX), Total("beyond", BEYOND_MAX)
]


class Stage(enum.IntEnum):
    """How sure it is that the tree has the node that something is sent to."""

    GUESSED = 0
    """The sender guesses, or heard of it: where it is not, we are too deep, and jump up."""
    ASSURED = 1
    """Its parent has split: whoever is its home may begin it, empty."""
    PASSED = 2
    """A home that holds nothing of it asks the next closest peer: it may not have got it yet."""
    PASSED_ASSURED = 3
    PASSED_2 = 4
    """That one has nothing of it either: several may be new. It asks the next one."""
    PASSED_2_ASSURED = 5
    PASSED_3 = 6
    PASSED_3_ASSURED = 7
    PASSED_4 = 8
    """From here on only those pass it on that have just begun themselves."""
    PASSED_4_ASSURED = 9
    PASSED_5 = 10
    PASSED_5_ASSURED = 11
    PASSED_6 = 12
    PASSED_6_ASSURED = 13
    NOBODY = 14
    """None of them has: begin it."""

    @property
    def is_passed(self) -> bool:
        """Whether somebody closer holds nothing of it."""
        return Stage.PASSED <= self < Stage.NOBODY

    @property
    def is_assured(self) -> bool:
        """Whether the node must exist."""
        return self % 2 == 1


class Target(NamedTuple):
    """A node of the tree whose home an event goes to."""

    attribute: Attribute
    at: TreeNode
    wanted: TreeNode
    """Whose part of the event's target area is searched: below `at` where a guess was too deep."""
    stage: Stage = Stage.GUESSED


class Held(NamedTuple):
    """A subscription's piece, as its home keeps it and passes it on."""

    record: Annotated[bytes, Size(1, SUBSCRIPTION_BYTES_MAX)]
    piece: Count
    low: Annotated[float, Bound(0.0, 1.0), UpTo("high")]
    high: Annotated[float, Bound(0.0, 1.0)]
    closed: bool
    left_s: Annotated[int, Bound(0, LEASE_S_MAX)]
    """What is left of the lease."""


class PlaceSubscription(Struct, frozen=True):
    """Keep this piece of a subscription at the leaf that its point falls into."""

    topic: Cid
    attribute: Attribute
    at: TreeNode
    stage: Stage
    held: Held
    token: Number
    """What to say in the answer: only who was on the way of the question can."""
    hops: Hops = 0


class Installed(Struct, frozen=True):
    """The answer: the leaf that keeps it, and what its home knows of the tree."""

    topic: Cid
    sid: Number
    number: Number
    piece: Count
    attribute: Attribute
    leaf: TreeNode
    token: Number
    hops: Hops


class ProbeEvent(Struct, frozen=True):
    """An event on its way to the leaves that may hold subscriptions for it."""

    topic: Cid
    block: Block
    targets: Annotated[tuple[Target, ...], Many(TARGETS_MAX)]
    hops: Hops = 0


class MatchedEvent(Struct, frozen=True):
    """An event that a subscription of the receiver's matches, as its publisher signed it."""

    block: Block
    hops: Hops


class Purpose(enum.IntEnum):
    """Why a home sends what it holds."""

    REPLICA = 0
    """Keep a copy: you are next to me."""
    HAND_OVER = 1
    """You are closer to the key than I am: it is yours once you say so."""
    TRANSFER = 2
    """The leaf has split: these are in your half. Routed to the child's home."""


class PlaceState(Struct, frozen=True):
    """What is held of one node of the tree, or what changed in it."""

    topic: Cid
    attribute: Attribute
    at: TreeNode
    purpose: Purpose
    is_split: bool
    held: Annotated[tuple[Held, ...], Many(HELD_MAX)]
    shape: ShapeBytes = b""
    """What is known of the tree below, where the node has split."""
    token: Number = 0
    """What to say in the answer; 0: none is wanted."""
    home: PeerId | None = None
    """Who is to be answered, where it is not the sender."""
    hops: Hops = 0


class PlaceTaken(Struct, frozen=True):
    """What was handed over or transferred is kept here now."""

    topic: Cid
    attribute: Attribute
    at: TreeNode
    token: Number


class TreeHint(Struct, frozen=True):
    """There is more to know of a tree below a node: ask. Routed to a home, or told to one peer."""

    topic: Cid
    attribute: Attribute
    about: TreeNode
    at: Annotated[int, Bound(0, TREE_NODE_MAX)] = 0
    """The node whose home it is for; 0: the receiver, whoever it is."""
    hops: Hops = 0


class AskShape(Struct, frozen=True):
    """What is known of the tree below a node? Routed to its home."""

    topic: Cid
    attribute: Attribute
    at: TreeNode
    token: Number
    """What to say in the answer."""
    asker: PeerId | None = None
    """Who is to be answered, where it is not the sender."""
    hops: Hops = 0


class TreeShape(Struct, frozen=True):
    """The answer: what is known of the tree below a node."""

    topic: Cid
    attribute: Attribute
    below: TreeNode
    shape: ShapeBytes
    token: Number


MARKS_LEFT_OUT = 1
"""Instead of a place, to a member that is new to us: we know more numberings than fit."""


class CompareContent(Struct, frozen=True):
    """A content subscriber asks a full member for matching events that it lacks."""

    request: Number
    topic: Cid
    where: Filters
    log: Number
    """Which log of the member's the places are of; 0: it is asked for the first time."""
    place: Number
    """Up to where the member's log was compared before; `MARKS_LEFT_OUT` where `log` is 0."""
    base: Number
    """Up to where marks were told before."""
    have: EventIds
    """Eight bytes each of the events that came lately."""
    marks: Marks = ()
    """What we have compared with others, where this member is new to us; all of it, or nothing."""
    fresh: bool = False
    """We hold nothing yet: where the member stands is where we start."""


class ContentCompared(Struct, frozen=True):
    """The matching events among those asked about, and how far they were looked through."""

    request: Number
    topic: Cid
    log: Number
    place: Number
    newest: Number
    order: EventIds
    """Eight bytes each of all that match, in the order of the member's log."""
    blocks: Blocks
    marks: Marks
    """Where the numberings stand that moved since `base`; only once the log's end is reached.

    Where `log` is 0: those of which the member's own log begins too late for us, and where."""
    more: bool
    """The next message goes on with the same answer."""


ContentMessage: TypeAlias = (
    PlaceSubscription
    | Installed
    | ProbeEvent
    | MatchedEvent
    | PlaceState
    | PlaceTaken
    | TreeHint
    | AskShape
    | TreeShape
    | CompareContent
    | ContentCompared
)
