"""The tree's shape, as far as we know it (the thesis' LeafNodeRoutingTable, 3.2.2).

A tree only grows, so all there is to know of it is which nodes have split: a set that can be merged
from anywhere, in any order, and is never wrong, only old, unless a home lies: so only homes are
asked, from the root downwards (`asking`). Written down node by node, level by level, a bit each
(1: split), a subtree of n leaves takes 2n - 1 bits: the whole tree of 5,000 subscriptions fits into
some hundred bytes, so homes tell it to whoever asks.
"""

from collections.abc import Iterator

from pulsarcast.model.errors import Rejection, RemoteError
from pulsarcast.protocol.content.space import (
    DEPTH_MAX,
    REACH,
    ROOT,
    child_towards,
    level,
    touches,
)

SPLITS_MAX = 1 << 14
"""Split nodes that we remember of one tree."""
SHAPE_BITS_MAX = 8 * 1024
"""Nodes told in one message; what does not fit is told as leaves."""


class Shape:
    """Which nodes of one attribute's tree have split."""

    __slots__ = ("_is_told", "_splits")

    def __init__(self) -> None:
        self._splits: set[int] = set()
        self._is_told = False
        """Whether the root's home told us of it. Of no split: the root is the only leaf."""

    def __len__(self) -> int:
        """How many splits we know of."""
        return len(self._splits)

    @property
    def is_known(self) -> bool:
        """Whether we can name leaves, from the root downwards."""
        return self._is_told or ROOT in self._splits

    def is_split(self, identifier: int) -> bool:
        """Whether a node is known to have split."""
        return identifier in self._splits

    def exists(self, identifier: int) -> bool:
        """Whether all above a node are known to have split."""
        return self.leaf_towards(identifier, ROOT) in (None, identifier)

    def split(self, identifier: int) -> None:
        """A node has split.

        Nothing follows for those above it, whose own homes have to say so: whoever makes a node up
        would have made up its way from the root as well.
        """
        if level(identifier) < DEPTH_MAX and len(self._splits) < SPLITS_MAX:
            self._splits.add(identifier)

    def leaf(self, x: float, y: float, below: int = ROOT) -> int:
        """The leaf that holds a point, as far as we know."""
        identifier = below
        while identifier in self._splits:
            identifier = child_towards(identifier, x, y)
        return identifier

    def leaf_towards(self, wanted: int, above: int) -> int | None:
        """The leaf on the way from a node down to another one; None where that one has split."""
        for depth in range(level(wanted) - level(above), -1, -1):
            identifier = wanted >> depth
            if identifier not in self._splits:
                return identifier
        return None

    def leaves(self, place: float, below: int = ROOT, reach: float = REACH) -> list[int]:
        """The leaves that an event's target area touches, as far as we know."""
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
        """Every leaf below a node, as far as we know."""
        waiting = [below]
        for identifier in waiting:
            if identifier in self._splits:
                waiting += (2 * identifier, 2 * identifier + 1)
            else:
                yield identifier

    def to_bytes(self, below: int = ROOT) -> bytes:
        """What we know below a node, breadth first: whatever is cut off is the deepest."""
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
        """Take in what somebody else knows below a node."""
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
