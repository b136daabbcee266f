"""Messages between peers about content-based subscriptions (docs/spec/content.md, Messages).

They come from the seven kinds of the 2d-tree thesis (4.2.1):

- ProbeSubMessage and InsertSubMessage are one, `PlaceSubscription`: a record is small, so the probe
  carries it, and the leaf that it finds keeps it. `Installed` answers.
- TransferSubMessage is `PlaceState`, which also keeps replicas and hands a home over; `PlaceTaken`
  answers it.
- LeafUpdateMessage is `TreeHint`, which is also sent to a peer that guessed wrongly. It names the
  home to ask; `AskShape` asks, and `TreeShape` answers. A peer believes no shape that it did not
  ask for.
- ProbePubMessage and ProbePubMulticastMessage are `ProbeEvent`, with one target or many.
- EventDeliveryMessage is `MatchedEvent`.

`CompareContent` and `ContentCompared` are not in the thesis: they bring events that routing lost.

Messages with `hops` are routed: each hop passes them to a peer closer to their target.
"""

import enum
from typing import Annotated, Final, NamedTuple, TypeAlias

from msgspec import Struct

from pulsarcast.model.fields import NAME_BYTES_MAX
from pulsarcast.model.filters.bounds import FILTER_BYTES_MAX
from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.model.subscriptions import LEASE_S_MAX, SUBSCRIPTION_BYTES_MAX
from pulsarcast.protocol.content.space import CUT_OFFS, DEPTH_MAX
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

COUNTED_MAX: Final = 64
"""Bounds the pieces of one width that a leaf tells of: more than a leaf usually holds in all."""
ID_BYTES: Final = 8
"""Length of the CID's part that names an event here. It is short, since a publisher whose events
collide only hides its own."""
TREE_NODE_MAX: Final = (2 << DEPTH_MAX) - 1

Attribute: TypeAlias = Annotated[str, Size(1, NAME_BYTES_MAX)]
TreeNode: TypeAlias = Annotated[int, Bound(1, TREE_NODE_MAX)]
LineLevel: TypeAlias = Annotated[int, Bound(0, len(CUT_OFFS) - 1)]
PieceCount: TypeAlias = Annotated[int, Bound(0, COUNTED_MAX)]
ShapeBytes: TypeAlias = Annotated[bytes, Size(0, SHAPE_BYTES_MAX)]
Filters: TypeAlias = Annotated[
    tuple[Annotated[str, Size(0, FILTER_BYTES_MAX)], ...], Many(FILTERS_MAX)
]
EventIds: TypeAlias = Annotated[bytes, Size(0, HAVE_BYTES_MAX), Whole(ID_BYTES)]
Marks: TypeAlias = Annotated[
    tuple[MarkState, ...], Many(CONTENT_MARKS_MAX), Total("beyond", BEYOND_MAX)
]


class Stage(enum.IntEnum):
    """How sure it is that the tree has the tree node that a message is for."""

    GUESSED = 0
    """The sender guesses, or heard of it: if it does not exist, the message jumps up."""
    ASSURED = 1
    """Its parent has split: its home may begin it, empty."""
    PASSED = 2
    """A home that holds nothing of it asks the next closest peer, which may be the old home."""
    PASSED_ASSURED = 3
    PASSED_2 = 4
    """That peer holds nothing of it either: several may be new. It asks the next one."""
    PASSED_2_ASSURED = 5
    PASSED_3 = 6
    PASSED_3_ASSURED = 7
    PASSED_4 = 8
    """From here on only peers that have just started pass it on."""
    PASSED_4_ASSURED = 9
    PASSED_5 = 10
    PASSED_5_ASSURED = 11
    PASSED_6 = 12
    PASSED_6_ASSURED = 13
    NOBODY = 14
    """No peer that was asked holds anything of it: begin it."""

    @property
    def is_passed(self) -> bool:
        """Whether a closer peer holds nothing of it."""
        return Stage.PASSED <= self < Stage.NOBODY

    @property
    def is_assured(self) -> bool:
        """Whether the tree node must exist."""
        return self % 2 == 1


class Target(NamedTuple):
    """A tree node whose home an event goes to."""

    attribute: Attribute
    at: TreeNode
    wanted: TreeNode
    """The tree node whose part of the event's target area is searched: below `at` if a guess was
    too deep."""
    stage: Stage = Stage.GUESSED


class Held(NamedTuple):
    """A subscription's piece, as its home keeps it and passes it on."""

    record: Annotated[bytes, Size(1, SUBSCRIPTION_BYTES_MAX)]
    piece: Count
    low: Annotated[float, Bound(0.0, 1.0), UpTo("high")]
    high: Annotated[float, Bound(0.0, 1.0)]
    closed: bool
    left_s: Annotated[int, Bound(0, LEASE_S_MAX)]
    """Seconds that are left of the lease."""


class PlaceSubscription(Struct, frozen=True):
    """Keep this piece of a subscription at the leaf that its point falls into."""

    topic: Cid
    attribute: Attribute
    at: TreeNode
    stage: Stage
    held: Held
    token: Number
    """Repeated in the answer: only peers on the message's way know it."""
    hops: Hops = 0


class Installed(Struct, frozen=True):
    """Answer of the leaf that keeps the piece, with its home's shape of the tree."""

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
    """An event that matches a subscription of the receiver, as its publisher signed it."""

    block: Block
    hops: Hops


class Purpose(enum.IntEnum):
    """Why a home sends what it holds."""

    REPLICA = 0
    """Keep a copy: the receiver is next to the home."""
    HAND_OVER = 1
    """The receiver is closer to the key: it becomes the home once it answers."""
    TRANSFER = 2
    """The leaf has split: these pieces are in the receiver's half. Routed to the child's home."""


class PlaceState(Struct, frozen=True):
    """The pieces of one tree node, or those that changed."""

    topic: Cid
    attribute: Attribute
    at: TreeNode
    purpose: Purpose
    is_split: bool
    held: Annotated[tuple[Held, ...], Many(HELD_MAX)]
    shape: ShapeBytes = b""
    """The shape of the tree below, if the tree node has split."""
    token: Number = 0
    """Repeated in the answer; 0: none is wanted."""
    home: PeerId | None = None
    """The peer to answer, if it is not the sender."""
    hops: Hops = 0
    cut: LineLevel = 0
    """Of the root: the levels of the cut-off line, by which subscribers cut"""
    reach: LineLevel = 0
    """and up to which publishers search."""


class PlaceTaken(Struct, frozen=True):
    """Answer: the state that was handed over or transferred is kept here now."""

    topic: Cid
    attribute: Attribute
    at: TreeNode
    token: Number


class TreeHint(Struct, frozen=True):
    """A tree has grown below a tree node: query it. Routed to a home, or sent to one peer."""

    topic: Cid
    attribute: Attribute
    about: TreeNode
    at: Annotated[int, Bound(0, TREE_NODE_MAX)] = 0
    """The tree node whose home it is for; 0: any receiver."""
    hops: Hops = 0


class AskShape(Struct, frozen=True):
    """Query for the shape of the tree below a tree node. Routed to its home."""

    topic: Cid
    attribute: Attribute
    at: TreeNode
    token: Number
    """Repeated in the answer."""
    asker: PeerId | None = None
    """The peer to answer, if it is not the sender."""
    hops: Hops = 0


class TreeShape(Struct, frozen=True):
    """Answer: the shape of the tree below a tree node."""

    topic: Cid
    attribute: Attribute
    below: TreeNode
    shape: ShapeBytes
    token: Number
    cut: LineLevel = 0
    """Of the root: the levels of the cut-off line, by which subscribers cut"""
    reach: LineLevel = 0
    """and up to which publishers search."""
    widths: Annotated[bytes, Size(0, len(CUT_OFFS))] = b""
    """Of a leaf: its pieces by the lowest level of the line that leaves them whole, a byte each,"""
    parts: PieceCount = 0
    """and those that are there because a range was cut."""


MARKS_LEFT_OUT = 1
"""In the place of `place`, to a member that is asked for the first time: the subscriber knows more
numberings than fit."""


class CompareContent(Struct, frozen=True):
    """A content subscriber asks a full member for matching events that it lacks."""

    request: Number
    topic: Cid
    where: Filters
    log: Number
    """The member's log that the places refer to; 0: it is asked for the first time."""
    place: Number
    """Place up to which the member's log was compared; `MARKS_LEFT_OUT` if `log` is 0."""
    base: Number
    """Place up to which marks were sent before."""
    have: EventIds
    """Eight bytes each of the events that arrived lately."""
    marks: Marks = ()
    """The subscriber's marks, if the member is asked for the first time; all of them, or none."""
    fresh: bool = False
    """Whether the subscription begins: its start is where the member stands."""


class ContentCompared(Struct, frozen=True):
    """The matching events among those asked about, and how far the log was searched."""

    request: Number
    topic: Cid
    log: Number
    place: Number
    newest: Number
    order: EventIds
    """Eight bytes each of all events that match, in the order of the member's log."""
    blocks: Blocks
    marks: Marks
    """Marks of the numberings that moved since `base`; only once the log's end is reached.

    If `log` is 0: numberings of which the member's own log begins too late, and where it begins."""
    more: bool
    """Whether the next message goes on with the same answer."""


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
