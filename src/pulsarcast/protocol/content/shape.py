"""The shape of a tree: the tree nodes that are known to have split.

docs/spec/content.md, The tree.

It is the LeafNodeRoutingTable of the 2d-tree thesis (3.2.2). A tree only grows, so its shape is a
set of splits that can be merged in any order, and is never wrong, only old. A home can lie about
it, so only homes that are asked are believed, from the root downwards (`shape_queries`).

On the wire a shape has one bit for each tree node, level by level (1: split). A subtree of n leaves
takes 2n - 1 bits: the whole tree of 5,000 subscriptions fits into some hundred bytes, so homes send
it to every peer that asks.
"""

from collections.abc import Iterator
from math import inf

from pulsarcast.model.errors import Rejection, RemoteError
from pulsarcast.protocol.content.space import (
    DEPTH_MAX,
    REACH,
    ROOT,
    Line,
    child_towards,
    level,
    touches,
)

SPLITS_MAX = 1 << 14
"""Bounds the splits remembered of one tree."""
SHAPE_BITS_MAX = 8 * 1024
"""Bounds the tree nodes in one message; a split that does not fit is sent as a leaf."""


class Shape:
    """The tree nodes of one attribute's tree that have split."""

    __slots__ = ("_is_told", "_line_asked_s", "_splits", "line", "searches")

    def __init__(self) -> None:
        self._splits: set[int] = set()
        self._is_told = False
        """Whether the root's home has answered. If it named no split, the root is the only leaf."""
        self.line = Line()
        """The cut-off line as the root's home last told it."""
        self._line_asked_s = -inf
        self.searches = 0
        """Events of this node since it last asked about the line."""

    def __len__(self) -> int:
        """How many splits are known."""
        return len(self._splits)

    @property
    def is_known(self) -> bool:
        """Whether leaves can be named, from the root downwards."""
        return self._is_told or ROOT in self._splits

    def line_age_s(self, now: float) -> float:
        """How long ago the root's home was asked for the line; infinity if it never was."""
        return now - self._line_asked_s

    def hear_line(self, line: Line, asked_s: float) -> None:
        """The root's home has told the line, when it was asked at this time."""
        if asked_s >= self._line_asked_s:
            self.line, self._line_asked_s = line, asked_s

    def is_split(self, identifier: int) -> bool:
        """Whether a tree node is known to have split."""
        return identifier in self._splits

    def exists(self, identifier: int) -> bool:
        """Whether all above a tree node are known to have split."""
        return self.leaf_towards(identifier, ROOT) in (None, identifier)

    def split(self, identifier: int) -> None:
        """A tree node has split.

        This shows nothing about those above it, whose own homes have to say so: a peer that makes
        up a tree node would make up its way from the root as well.
        """
        if level(identifier) < DEPTH_MAX and len(self._splits) < SPLITS_MAX:
            self._splits.add(identifier)

    def leaf(self, x: float, y: float, below: int = ROOT) -> int:
        """The leaf that holds a point, as far as is known."""
        identifier = below
        while identifier in self._splits:
            identifier = child_towards(identifier, x, y)
        return identifier

    def leaf_towards(self, wanted: int, above: int) -> int | None:
        """The leaf on the way from a tree node down to another; None if that one has split."""
        for depth in range(level(wanted) - level(above), -1, -1):
            identifier = wanted >> depth
            if identifier not in self._splits:
                return identifier
        return None

    def leaves(self, place: float, below: int = ROOT, reach: float = REACH) -> list[int]:
        """The leaves that an event's target area touches, as far as is known."""
        found: list[int] = []
        waiting = [below]
        for identifier in waiting:
            if not touches(identifier, place, reach):
                continue
            if identifier in self._splits:
                waiting += (2 * identifier, 2 * identifier + 1)
            else:
                found.append(identifier)
        return found

    def all_leaves(self, below: int = ROOT) -> Iterator[int]:
        """Every leaf below a tree node, as far as is known."""
        waiting = [below]
        for identifier in waiting:
            if identifier in self._splits:
                waiting += (2 * identifier, 2 * identifier + 1)
            else:
                yield identifier

    def to_bytes(self, below: int = ROOT) -> bytes:
        """The shape below a tree node, breadth first: a cut leaves out the deepest."""
        bits: list[bool] = []
        waiting = [below]
        for identifier in waiting:
            split = identifier in self._splits and len(waiting) + 2 <= SHAPE_BITS_MAX
            bits.append(split)
            if split:
                waiting += (2 * identifier, 2 * identifier + 1)
        number = 1
        for bit in bits:
            number = number << 1 | bit
        return number.to_bytes((len(bits) + 8) // 8, "big")

    def merge(self, below: int, told: bytes) -> None:
        """Merge the shape that a home knows below a tree node."""
        if len(told) > SHAPE_BITS_MAX // 8 + 1:
            raise RemoteError("a tree's shape that is too large", code=Rejection.OVERSIZE)
        text = f"{int.from_bytes(told, 'big'):b}"[1:]
        waiting = [below]
        at = 0
        for identifier in waiting:
            if at >= len(text):
                raise RemoteError("a tree's shape that does not end")
            if text[at] == "1":
                if level(identifier) >= DEPTH_MAX:
                    raise RemoteError("a tree that is too deep", code=Rejection.TOO_MANY)
                self.split(identifier)
                waiting += (2 * identifier, 2 * identifier + 1)
            at += 1
        if at != len(text):
            raise RemoteError("a tree's shape that goes on after its end")
        self._is_told = self._is_told or below == ROOT
