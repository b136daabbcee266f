"""Writing: puts one topic's writes on the disk, for the node itself or for a stranger.

A keeper keeps a tree together for strangers. What it writes for them has a quota, and the disk may
leave it out (docs/decisions/0065). From then on the node lacks what its frontier says that it
holds: the topic hears of that, and ends.
"""

from typing import Protocol

from pulsarcast.protocol.store import Write
from pulsarcast.protocol.turn import Then, Turn


class WritingOwner(Protocol):
    """Asked of the topic whose writes these are."""

    def found_no_room(self) -> None:
        """The disk has left out what the topic keeps for a stranger."""


class Writing:
    """Writes of one topic, in their order."""

    __slots__ = ("_is_claimed", "_owner", "_turn", "is_whole", "place")

    def __init__(self, turn: Turn, owner: WritingOwner | None, place: str | None) -> None:
        self._turn = turn
        self._owner = owner
        self.place = place
        """The place of the stranger that the node keeps the topic for; None: it is the node's."""
        self.is_whole = True
        """Whether nothing was left out."""
        self._is_claimed = False

    def persist(self, *writes: Write, own: bool = False, then: Then | None = None) -> None:
        """Write to disk; `then` runs once it is synced. What is `own` is never left out."""
        if own or self._is_claimed or self.place is None:
            self._turn.persist(*writes, then=then)
            return

        def settled(is_kept: bool) -> None:
            if not is_kept:
                assert self._owner is not None, "only a topic is kept for strangers"
                self.is_whole = False
                self._owner.found_no_room()
            elif then is not None:
                then()

        self._turn.keep(*writes, place=self.place, then=settled)

    def claim(self) -> None:
        """The node needs the topic itself: from now on nothing is left out."""
        self._is_claimed = True

    def when_written(self, then: Then) -> None:
        """Do something once it is known whether the disk took all that was written so far."""
        if self.place is None:
            then()
        else:
            self._turn.persist(then=then)
