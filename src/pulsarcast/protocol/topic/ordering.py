"""Delivery orders: decides which events may be delivered now, and holds the others back.

Numbers and links decide, never a clock. Events that wait are kept in memory only, up to a bound;
beyond it they are dropped, and fetched again later (docs/spec/pulsarcast.md, Receive).
"""

from pulsarcast.model.errors import Rejection, RemoteError
from pulsarcast.model.events import EventDescriptor
from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.model.topics import DeliveryOrder, Mark
from pulsarcast.protocol.topic.frontier import Frontier

BYTES_MAX = 8 << 20
"""Bounds the bytes of one topic's events that wait in memory. Events that do not fit are
fetched again later."""


class Ordering:
    """Holds a topic's events back until they are next in the order."""

    __slots__ = (
        "_waiting",
        "_waiting_bytes",
        "_waiting_count",
        "frontier",
        "held_back_max",
        "order",
    )

    def __init__(self, order: DeliveryOrder, frontier: Frontier, held_back_max: int) -> None:
        self.order = order
        self.frontier = frontier
        self.held_back_max = held_back_max
        self._waiting: dict[tuple[PeerId, int], dict[int, tuple[EventDescriptor, int]]] = {}
        self._waiting_count = 0
        self._waiting_bytes = 0

    def __len__(self) -> int:
        return self._waiting_count

    def held_back(self, publisher: PeerId, epoch: int, number: int) -> Cid | None:
        """The event that is held back under this number."""
        waiting = self._waiting.get((publisher, epoch))
        found = None if waiting is None else waiting.get(number)
        return None if found is None else found[0].cid

    def highest(self, publisher: PeerId, epoch: int) -> int:
        """The highest number of a numbering that waits here."""
        return max(self._waiting.get((publisher, epoch), ()), default=0)

    def seen(self, publisher: PeerId, epoch: int) -> int:
        """The highest number of a numbering that a signed event shows to exist."""
        return max(self.frontier.highest(publisher, epoch), self.highest(publisher, epoch))

    def known(self) -> tuple[Mark, ...]:
        """The highest number seen of each numbering, delivered or not."""
        return tuple(
            Mark(mark.publisher, mark.epoch, self.seen(mark.publisher, mark.epoch))
            for mark in self.frontier.marks()
        )

    def offer(self, event: EventDescriptor, hops: int) -> bool:
        """Whether the event may be delivered now; if not it is held back, or dropped if full."""
        if self.order is DeliveryOrder.NONE:
            return True
        epoch, number = event.sequence
        expected = self.frontier.high(event.numbered_by, epoch) + 1
        if number == expected:
            if self.order is DeliveryOrder.TOTAL:
                self._check_chain(event)
            return True
        size = len(event.block)
        room = self._waiting_count < self.held_back_max and self._waiting_bytes + size <= BYTES_MAX
        if room:
            self._waiting_bytes += size
            self._waiting.setdefault((event.numbered_by, epoch), {})[number] = (event, hops)
            self._waiting_count += 1
        return False

    def next_of(self, publisher: PeerId, epoch: int) -> tuple[EventDescriptor, int] | None:
        """The next event of a numbering, if it waits here.

        Raises RemoteError if it is out of place; then it is held back no longer.
        """
        waiting = self._waiting.get((publisher, epoch))
        if waiting is None:
            return None
        high = self.frontier.high(publisher, epoch)
        for number in [number for number in waiting if number <= high]:
            self._waiting_bytes -= len(waiting.pop(number)[0].block)
            self._waiting_count -= 1
        found = waiting.pop(high + 1, None)
        if not waiting:
            del self._waiting[(publisher, epoch)]
        if found is not None:
            self._waiting_count -= 1
            self._waiting_bytes -= len(found[0].block)
            if self.order is DeliveryOrder.TOTAL:
                self._check_chain(found[0])
        return found

    def _check_chain(self, event: EventDescriptor) -> None:
        """Total order is one chain: each event's only parent is the one before it."""
        epoch, number = event.sequence
        assert event.position is not None
        if event.position.number != number:
            raise RemoteError(
                "an event whose position is not its number", code=Rejection.INVALID_EVENT
            )
        before = self.frontier.cid_at(event.numbered_by, epoch, number - 1)
        if number > 1 and before is not None and event.parents != (before,):
            raise RemoteError("an event that forks a total order", code=Rejection.INVALID_EVENT)
        if number == 1 and event.parents:
            raise RemoteError("a first event with a parent", code=Rejection.INVALID_EVENT)
