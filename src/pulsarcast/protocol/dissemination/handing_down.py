"""Handing down: the child to which a full parent sends a joiner (docs/spec/reach.md).

Children take turns, so that the tree grows evenly. Only those are named that a joiner can dial, as
far as the parent knows. A joiner that no peer can dial, and that has asked again after each child,
can be served by the parent alone.
"""

from collections.abc import Iterable

from pulsarcast.model.ids import PeerId
from pulsarcast.protocol.dht.reachability import Reachability

CHILDREN_MAX = 64
"""Children of a node that can hand joiners down to none of them: no peer can dial those. Beyond
it joiners are handed down all the same, to children that only relays lead to, or in vain."""
HANDED_MAX = 64
"""Joiners remembered that were handed down: bounds memory."""


class HandingDown:
    """The turns of one node's children in one tree."""

    __slots__ = ("_handed", "_reachability", "_turn")

    def __init__(self, reachability: Reachability) -> None:
        self._reachability = reachability
        self._turn = 0
        self._handed: dict[PeerId, tuple[int, int]] = {}
        """Joiners handed down lately: the attempt, and how often each was handed down in it."""

    def child_for(self, children: Iterable[PeerId], joiner: PeerId, attempt: int) -> PeerId | None:
        """The child whose turn it is; None: the joiner can dial none, so the node takes it in."""
        everyone = list(children)
        dialable = [child for child in everyone if self._reachability.is_dialable(child)]
        tried = 0 if self._reachability.is_listed(joiner) else self._times(joiner, attempt)
        if tried > len(dialable) or not dialable:
            if len(everyone) < CHILDREN_MAX:
                return None
            dialable = everyone
        self._turn += 1
        return dialable[self._turn % len(dialable)]

    def _times(self, joiner: PeerId, attempt: int) -> int:
        """How often a joiner has asked in this attempt."""
        before, times = self._handed.pop(joiner, (attempt, 0))
        times = times + 1 if before == attempt else 1
        self._handed[joiner] = (attempt, times)
        if len(self._handed) > HANDED_MAX:
            del self._handed[next(iter(self._handed))]
        return times
