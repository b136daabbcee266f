"""A place: the state of one tree node, at its home or at a replica next to the home.

A leaf keeps pieces of subscriptions, and finds those that an event matches through an index. A tree
node that has split keeps nothing but that fact (2d-tree thesis, 3.2.2 and 3.6).
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from pulsarcast.model.events import Attribute
from pulsarcast.model.filters import Filter, FilterIndex
from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.model.keys import Key
from pulsarcast.model.subscriptions import SubscriptionRecord
from pulsarcast.model.topic_types import AttributeRule
from pulsarcast.protocol.content.messages import COUNTED_MAX, Held
from pulsarcast.protocol.content.space import (
    SPLIT_DEPTH_MAX,
    Line,
    Piece,
    Widths,
    key_of_node,
    level,
    point_of,
)

SEEN_MAX = 256
"""Bounds the events remembered to have been matched at a leaf: guesses may lead to it twice."""
RENEWED_MIN = 0.1
"""Share of its lease by which a renewal must prolong a piece to count as a change."""
LOAD_WINDOW_S = 10.0
"""Window over which the load of a leaf is measured."""

PlaceId = tuple[Cid, str, int]
"""A tree node: topic, attribute, the tree node's number."""
PieceKey = tuple[PeerId, int, int]
"""A piece: subscriber, sid, number of the piece."""


class Kept(NamedTuple):
    """One piece of a subscription."""

    record: SubscriptionRecord
    wanted: Filter | None
    """None: it is cancelled, and only kept so that an older record does not come back."""
    number: int
    piece: Piece
    point: tuple[float, float]
    expires_s: float

    @property
    def key(self) -> PieceKey:
        """The key of the piece."""
        return (self.record.subscriber, self.record.sid, self.number)

    def held(self, now: float) -> Held:
        """The piece as it is passed on."""
        low, high, closed = self.piece
        left_s = max(1, int(self.expires_s - now))
        return Held(self.record.block, self.number, low, high, closed, left_s)


def salt_of(subscriber: PeerId, sid: int, piece: int) -> bytes:
    """The salt that separates a piece's point from those of equal pieces."""
    return b"%b%d/%d" % (subscriber, sid, piece)


def kept_of(
    held: Held, record: SubscriptionRecord, wanted: Filter | None, expires_s: float
) -> Kept:
    """A piece as another peer passed it on."""
    piece = Piece(held.low, held.high, held.closed)
    point = point_of(piece, salt_of(record.subscriber, record.sid, held.piece))
    return Kept(record, wanted, held.piece, piece, point, expires_s)


class Place:
    """The state of one tree node."""

    __slots__ = (
        "_indices",
        "_load",
        "_load_since_s",
        "_seen",
        "at",
        "attribute",
        "changed",
        "copies",
        "handing",
        "is_owner",
        "is_split",
        "kept",
        "key",
        "leaving",
        "line",
        "line_moved_s",
        "needless",
        "sample",
        "sampled_s",
        "tells_up",
        "told_up",
        "topic",
        "used_s",
        "version",
    )

    def __init__(self, topic: Cid, attribute: str, at: int) -> None:
        self.topic = topic
        self.attribute = attribute
        self.at = at
        self.key: Key = key_of_node(topic, attribute, at)
        self.is_owner = False
        """Whether this node serves it: it is the home, or has not handed it over yet."""
        self.is_split = False
        self.kept: dict[PieceKey, Kept] = {}
        self.version = 0
        """Counts the changes, so that no change during a hand-over is lost."""
        self.copies: dict[PeerId, None] = {}
        """Replicas that hold all of it except what has `changed`."""
        self.changed: dict[PieceKey, None] = {}
        self.handing: tuple[PeerId, int, int] | None = None
        """The peer to which it is being handed over, the token, and the version."""
        self.leaving: dict[int, dict[PieceKey, None]] = {}
        """By token: pieces on their way to a child's home, matched here until it has them."""
        self.tells_up = False
        self.told_up = b""
        """The shape below it when the home above last got a report."""
        self.needless = 0
        """For how many rounds of upkeep enough other peers have been closer to the key."""
        self.used_s = 0.0
        """When a message last used it."""
        self.line = Line()
        """Of a root: the cut-off line of its tree, when it moved, and by what it moves next."""
        self.line_moved_s = 0.0
        self.sample = Widths()
        self.sampled_s = 0.0
        self._seen: dict[Cid, None] = {}
        self._indices: dict[Cid, FilterIndex[PieceKey]] = {}
        """By topic version: a filter is read by the schema of its version."""
        self._load = 0
        self._load_since_s = 0.0

    def put(self, kept: Kept, schema: tuple[AttributeRule, ...]) -> bool:
        """Keep a piece, or its newer form, or its longer lease; False if nothing is new."""
        key = kept.key
        known = self.kept.get(key)
        if known is not None:
            if known.record.number > kept.record.number:
                return False
            if known.record == kept.record and known.piece == kept.piece:
                if kept.expires_s <= known.expires_s + RENEWED_MIN * kept.record.lease_s:
                    return False
                # Renewed: the copies at the replicas must not expire before this one.
                self.kept[key] = kept
                self.version += 1
                self.changed[key] = None
                return True
            self._unindex(known)
        self.kept[key] = kept
        self.version += 1
        self.changed[key] = None
        if kept.wanted is not None:
            index = self._indices.get(kept.record.version)
            if index is None:
                index = self._indices[kept.record.version] = FilterIndex(schema)
            index.insert(key, kept.wanted)
        return True

    def drop(self, key: PieceKey) -> None:
        """Forget a piece."""
        kept = self.kept.pop(key, None)
        if kept is not None:
            self._unindex(kept)
            self.changed.pop(key, None)

    def _unindex(self, kept: Kept) -> None:
        index = self._indices.get(kept.record.version)
        if index is not None:
            index.remove(kept.key)

    def expire(self, now: float) -> None:
        """Forget the pieces whose leases have run out."""
        for key in [key for key, kept in self.kept.items() if kept.expires_s <= now]:
            self.drop(key)

    def is_new(self, event: Cid) -> bool:
        """Whether an event is matched here for the first time; from now on it counts as matched."""
        if event in self._seen:
            return False
        self._seen[event] = None
        if len(self._seen) > SEEN_MAX:
            del self._seen[next(iter(self._seen))]
        return True

    def matching(self, attributes: Mapping[str, Attribute], place: float) -> list[PeerId]:
        """The subscribers whose pieces an event falls into and whose filters it matches."""
        found: dict[PeerId, None] = {}
        for index in self._indices.values():
            for key in sorted(index.matching(attributes)):
                if self.kept[key].piece.holds(place):
                    found[key[0]] = None
        return list(found)

    def widths(self, cut_offs: tuple[float, ...]) -> Widths:
        """How wide its pieces are; cancelled ones do not count.

        No count is above `COUNTED_MAX`, so that no leaf outvotes all others.
        """
        counts, parts = [0] * len(cut_offs), 0
        for kept in self.kept.values():
            if kept.wanted is not None:
                width = kept.piece.high - kept.piece.low
                counts[sum(width <= cut_off for cut_off in cut_offs[1:])] += 1
                parts += not kept.piece.closed
        return Widths(tuple(min(COUNTED_MAX, each) for each in counts), min(COUNTED_MAX, parts))

    def all_held(self, now: float) -> Iterator[Held]:
        """All pieces, as they are passed on."""
        return (kept.held(now) for kept in self.kept.values())

    def bear(self, messages: int, now: float) -> float:
        """Count messages sent for an event; returns messages a second, once a window has passed."""
        self._load += messages
        passed_s = now - self._load_since_s
        if passed_s < LOAD_WINDOW_S:
            return 0.0
        rate = self._load / passed_s
        self._load, self._load_since_s = 0, now
        # After a long silence one event says nothing about the load.
        return rate if passed_s < 3 * LOAD_WINDOW_S else 0.0

    def can_split(self) -> bool:
        """Whether halving could ever separate its points."""
        points = {kept.point for kept in self.kept.values()}
        return len(points) > 1 and level(self.at) < SPLIT_DEPTH_MAX
