"""A node's view of who is in a topic: the latest operation of each node that it has heard of.

The paper keeps a set of (n, o, rc). Here it is one small number per node, twice the counter plus
one for a subscription, so that a cube of 4096 nodes, each with its own view, fits into memory.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator

from pulsarcast.simulation.vcube.topology import children

_COUNTER_MAX = (1 << 15) - 1


class View:
    """Who is subscribed, as one node knows."""

    __slots__ = ("_children", "entries")

    def __init__(self, nodes: int, members: Iterable[int] = ()) -> None:
        self.entries = array("H", bytes(2 * nodes))
        self._children: dict[tuple[int, int], list[int]] = {}
        for member in members:
            self.entries[member] = 1

    def __contains__(self, node: int) -> bool:
        return bool(self.entries[node] & 1)

    def __iter__(self) -> Iterator[int]:
        return (node for node, entry in enumerate(self.entries) if entry & 1)

    def copy(self) -> View:
        """One of one's own."""
        other = View(0)
        other.entries = self.entries[:]
        return other

    def children(self, node: int, height: int) -> list[int]:
        """CHILDREN(i, t, h), found once for as long as nobody comes or goes."""
        found = self._children.get((node, height))
        if found is None:
            found = self._children[node, height] = children(node, self.entries, height)
        return found

    def counter_of(self, node: int) -> int:
        """The counter of the node's latest operation."""
        return self.entries[node] >> 1

    def update(self, node: int, *, subscribed: bool, counter: int) -> None:
        """UPDATE (lines 75-82): the newer of two operations of one node is kept."""
        assert counter <= _COUNTER_MAX, "too many operations for a view's small numbers"
        known = self.entries[node]
        if not known or counter > known >> 1:
            self.entries[node] = counter << 1 | subscribed
            if subscribed != known & 1:
                self._children.clear()

    def welcome(self, members: Iterable[tuple[int, int]]) -> None:
        """UPDATE with many subscriptions at once, of most of which we know."""
        entries = self.entries
        for member, counter in members:
            known = entries[member]
            if not known or counter > known >> 1:
                self.update(member, subscribed=True, counter=counter)

    def discard(self, node: int) -> None:
        """Forget one."""
        self.entries[node] = 0
        self._children.clear()

    def clear(self) -> None:
        """Forget everybody."""
        self.entries = array("H", bytes(2 * len(self.entries)))
        self._children.clear()
