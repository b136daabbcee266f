"""The logical space of one attribute (2d-tree thesis, 3.2 and 3.5).

A range (low, high) of an attribute is a point above the diagonal of the unit square. An event with
value v is matched by the points left of v and above v. The square is halved on x and y in turn; a
node of the resulting 2d-tree is known by the halves taken on the way to it.

An **identifier** is those halves as bits behind a leading 1: the root is 1, the children of n are
2n and 2n + 1. The thesis writes the same bits behind the attribute's name.

The corner of wide ranges would be searched for nearly every event. The **cut-off line** takes it
away: a range wider than it is cut into pieces, half-open so that a value is in one of them. Each
attribute has a line of its own, at one of the levels `CUT_OFFS` (`line`).
"""

from collections.abc import Iterator
from functools import lru_cache
from hashlib import blake2b, sha256
from itertools import zip_longest
from math import copysign, log1p
from random import Random
from typing import Final, NamedTuple

from pulsarcast.model.filters.domains import Domain
from pulsarcast.model.ids import Cid
from pulsarcast.model.keys import Key
from pulsarcast.protocol.content.text_code import place_of

ROOT: Final = 1
DEPTH_MAX: Final = 40
"""Bounds the halvings from the root: a leaf of this level takes all pieces that arrive."""
SPLIT_DEPTH_MAX: Final = DEPTH_MAX - 2
"""Level from which a leaf is not halved any more: its halves' halves still have names."""
CUT_OFF: Final = 0.2
"""Highest c of the line y = x + c, as a share of the domain. The thesis gives no number."""
CUT_OFFS: Final = tuple(CUT_OFF / (1 << level) for level in range(7))
"""The levels of the line, each half as high as the one before. The lowest bounds the pieces that a
range over all of a domain becomes to 640, whatever a root's home says."""
PIECE_MIN: Final = 0.5
"""Shortest piece, as a share of the cut-off; its length h is drawn from there up to all of it."""
WIDENING: Final = 1 / 4096
"""Bounds by how much a range is widened at both ends, so that equal ones differ (3.3).

A larger number than the width of narrow ranges makes events visit leaves in vain; a smaller one
puts equal ranges deep in the tree."""
WIDE: Final = float(1 << 53)
"""A domain wider than this is measured by logarithms: it has no useful middle."""


class Area(NamedTuple):
    """A part of the square: [x_low, x_high) by [y_low, y_high)."""

    x_low: float
    x_high: float
    y_low: float
    y_high: float


class Line(NamedTuple):
    """The cut-off line of an attribute: two levels, which are the same unless it is moving."""

    cut: int = 0
    """Level by which subscribers cut ranges."""
    reach: int = 0
    """Level up to which publishers search: never lower a line than the subscribers'."""


class Widths(NamedTuple):
    """How wide the pieces of leaves are."""

    counts: tuple[int, ...] = ()
    """By level: the pieces that this level of the line leaves whole, and the next does not."""
    parts: int = 0
    """Pieces that are there because a range was cut: all but the last of each range."""

    def with_those(self, other: "Widths") -> "Widths":
        """The pieces of both."""
        pairs = zip_longest(self.counts, other.counts, fillvalue=0)
        return Widths(tuple(one + another for one, another in pairs), self.parts + other.parts)


class Piece(NamedTuple):
    """A part of a range, in the unit interval: half-open unless it is the last one."""

    low: float
    high: float
    closed: bool

    def holds(self, place: float) -> bool:
        """Whether a value is in it."""
        return self.low <= place < self.high or (self.closed and place == self.high)


def unit(domain: Domain, value: float | str | None) -> float:
    """The place of a value in its domain, from 0 to 1; it keeps the order of values.

    None lies behind all texts.
    """
    if value is None or isinstance(value, str):
        return place_of(domain, value)
    low, high = float(domain.low), float(domain.high)
    if high <= low:
        return 0.0
    if high / 2 - low / 2 > WIDE:
        low, high, value = _log(low), _log(high), _log(float(value))
    return min(1.0, max(0.0, (value - low) / (high - low)))


def _log(value: float) -> float:
    return copysign(log1p(abs(value)), value)


# The tree.


def level(identifier: int) -> int:
    """How many halvings lead to a tree node."""
    return identifier.bit_length() - 1


@lru_cache(maxsize=1 << 16)
def area(identifier: int) -> Area:
    """The part of the square that a tree node is responsible for."""
    x_low, x_high, y_low, y_high = 0.0, 1.0, 0.0, 1.0
    for depth, bit in enumerate(f"{identifier:b}"[1:]):
        if depth % 2 == 0:
            middle = (x_low + x_high) / 2
            x_low, x_high = (middle, x_high) if bit == "1" else (x_low, middle)
        else:
            middle = (y_low + y_high) / 2
            y_low, y_high = (middle, y_high) if bit == "1" else (y_low, middle)
    return Area(x_low, x_high, y_low, y_high)


def child_towards(identifier: int, x: float, y: float) -> int:
    """The child whose half holds a point."""
    where = area(identifier)
    if level(identifier) % 2 == 0:
        return 2 * identifier + (x >= (where.x_low + where.x_high) / 2)
    return 2 * identifier + (y >= (where.y_low + where.y_high) / 2)


def node_at(x: float, y: float, depth: int) -> int:
    """The tree node of a level that holds a point (program 3.2)."""
    identifier = ROOT
    for _ in range(depth):
        identifier = child_towards(identifier, x, y)
    return identifier


def is_below(identifier: int, ancestor: int) -> bool:
    """Whether a tree node is an ancestor's descendant, or the ancestor itself."""
    depth = level(identifier) - level(ancestor)
    return depth >= 0 and identifier >> depth == ancestor


def reach_of(cut_off: float) -> float:
    """Largest distance above the diagonal of the points of pieces that are no wider than this."""
    return min(1.0, cut_off + 2 * WIDENING)


REACH: Final = reach_of(CUT_OFF)
"""Distance up to which events search where nothing is known of the line."""


def touches(identifier: int, place: float, reach: float = REACH) -> bool:
    """Whether an event's target area (3.4.1), below the cut-off line, meets a tree node's area.

    A tree node's upper and right edges count as its own: a corner more is searched, none is missed.
    """
    where = area(identifier)
    if where.x_low > place or where.y_high < place:
        return False
    return max(where.y_low, place) - min(where.x_high, place) <= reach


def probes(
    place: float, *, first: int, last: int, chance: float, rng: Random, reach: float = REACH
) -> list[int]:
    """Tree nodes that together cover an event's target area, chosen without knowing the tree.

    The thesis' RndRegionProbe (3.4.1): breadth first, a tree node between the two levels is taken
    by chance, so that no level bears all of the load.
    """
    chosen: list[int] = []
    waiting = [ROOT]
    for identifier in waiting:
        if not touches(identifier, place, reach):
            continue
        depth = level(identifier)
        if depth >= last or (depth >= first and rng.random() < chance):
            chosen.append(identifier)
        else:
            waiting += (2 * identifier, 2 * identifier + 1)
    return chosen


# Subscriptions.


def pieces(low: float, high: float, rng: Random, cut_off: float = CUT_OFF) -> Iterator[Piece]:
    """A range as points below the cut-off line (3.5)."""
    if high - low <= cut_off:
        yield Piece(low, high, closed=True)
        return
    length = cut_off * (PIECE_MIN + (1.0 - PIECE_MIN) * rng.random())
    start = low
    while start + length < high:
        yield Piece(start, start + length, closed=False)
        start += length
    yield Piece(start, high, closed=True)


def point_of(piece: Piece, salt: bytes) -> tuple[float, float]:
    """The point of a piece, moved a little by its salt: equal ranges are different points."""
    draw = blake2b(salt, digest_size=8).digest()
    left, right = int.from_bytes(draw[:4]) / (1 << 32), int.from_bytes(draw[4:]) / (1 << 32)
    return max(0.0, piece.low - WIDENING * left), min(1.0, piece.high + WIDENING * right)


# Homes.


@lru_cache(maxsize=1 << 16)
def key_of_node(topic: Cid, attribute: str, identifier: int) -> Key:
    """The key of a tree node: the peer closest to it is the home."""
    name = b"pulsarcast/place/1%b%d/%b" % (topic, identifier, attribute.encode())
    return int.from_bytes(sha256(name).digest(), "big")
