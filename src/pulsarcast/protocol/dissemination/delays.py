"""Delays: how long an event takes from the root to the node, and would take by other ways.

Every member tells how far it is from the root, and measures how far it is from those that it
compares with. A member leaves its parent for a lazy neighbour through which events would come
clearly sooner (docs/spec/pulsarcast.md, Heartbeats and lazy neighbours).
"""

from collections.abc import Iterator
from typing import Final

from pulsarcast.model.ids import PeerId

GAIN: Final = 0.25
"""The part of its delay that a member must gain by a move: what others gain less is left alone, so
that measurements that waver move nobody to and fro."""
GAIN_S_MIN: Final = 0.01
"""The least gain that is worth a move."""
MOVERS: Final = 4
"""One in so many members that would gain moves after a heartbeat: else all would at once."""
PEERS_MAX: Final = 32
"""Peers whose delays are remembered: bounds memory."""


class Delays:
    """What one member of a tree knows of delays."""

    __slots__ = ("_round_trips_s", "_told_s")

    def __init__(self) -> None:
        self._told_s: dict[PeerId, float] = {}
        """How far each peer says that it is from the root; the latest to say so last."""
        self._round_trips_s: dict[PeerId, float] = {}

    def __iter__(self) -> Iterator[PeerId]:
        """The peers that have said how far they are from the root."""
        return iter(self._told_s)

    def told(self, peer: PeerId, delay_us: int) -> None:
        """A peer says how far it is from the root."""
        self._told_s.pop(peer, None)
        self._told_s[peer] = delay_us / 1e6
        if len(self._told_s) > PEERS_MAX:
            self.forget(next(iter(self._told_s)))

    def measured(self, peer: PeerId, round_trip_s: float) -> None:
        """A peer took so long to answer: a shorter time counts at once, a longer one in part."""
        before_s = self._round_trips_s.get(peer, round_trip_s)
        longer_s = max(0.0, round_trip_s - before_s)
        self._round_trips_s[peer] = min(before_s, round_trip_s) + longer_s / 4

    def through(self, peer: PeerId) -> float | None:
        """How long events from the root take by way of a peer."""
        told_s, round_trip_s = self._told_s.get(peer), self._round_trips_s.get(peer)
        if told_s is None or round_trip_s is None:
            return None
        return told_s + round_trip_s / 2

    def forget(self, peer: PeerId) -> None:
        """A peer is gone."""
        self._told_s.pop(peer, None)
        self._round_trips_s.pop(peer, None)


def is_clearly_less(delay_s: float, than_s: float) -> bool:
    """Whether a move from one delay to another is worth it."""
    return delay_s < min((1 - GAIN) * than_s, than_s - GAIN_S_MIN)
