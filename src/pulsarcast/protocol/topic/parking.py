"""Events that name a version of their topic which we do not know yet: they wait for it.

They wait in memory only and are few: what is dropped here comes again by comparing frontiers.
"""

from typing import NamedTuple

from pulsarcast.model.events import EventDescriptor
from pulsarcast.model.ids import Cid, PeerId

PARKED_MAX = 64
"""Events of one topic that wait at a time."""


class Parked(NamedTuple):
    """An event, and how it came to us."""

    event: EventDescriptor
    sender: PeerId
    hops: int
    certificate: bytes
    passed_on: bool


class Parking:
    """Events of one topic that wait for a version."""

    def __init__(self) -> None:
        self._waiting: dict[Cid, list[Parked]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, parked: Parked) -> bool:
        """Keep an event aside, if there is room; True where it is the first to name its version."""
        if self._count >= PARKED_MAX:
            return False
        self._count += 1
        version = parked.event.version
        first = version not in self._waiting
        self._waiting.setdefault(version, []).append(parked)
        return first

    def take(self, version: Cid) -> list[Parked]:
        """All that waited for a version, in the order in which it came."""
        parked = self._waiting.pop(version, [])
        self._count -= len(parked)
        return parked
