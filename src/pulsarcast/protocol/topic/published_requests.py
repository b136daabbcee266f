"""Published requests: remembers which requests of a topic were published, to deliver each once.

Two publishers may publish the same request. A node that receives both events knows by the author's
request number that the second is a duplicate. The numbers are kept on the disk
(docs/spec/pulsarcast.md, Request to publish).
"""

from pulsarcast.model.events import EventDescriptor
from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.protocol.store import DropState, MarkState, PutState, StateRow, Write
from pulsarcast.protocol.topic.frontier import Frontier

GAPS_MAX = 1024
"""Bounds the requests of one author published after a missing one; beyond it the missing one counts
as given up."""


NONE_PUBLISHED = Frontier()
"""Nothing is ever added to it."""


class PublishedRequests:
    """The published requests of each author, by request number."""

    __slots__ = ("_known", "_topic")

    def __init__(self, topic: Cid) -> None:
        self._topic = topic
        self._known: Frontier | None = None

    @property
    def _numbers(self) -> Frontier:
        """Most topics have no requests, and no frontier of them."""
        return NONE_PUBLISHED if self._known is None else self._known

    def __len__(self) -> int:
        return len(self._numbers)

    def holds(self, author: PeerId, epoch: int, number: int) -> bool:
        """Whether a request was published."""
        return self._numbers.holds(author, epoch, number)

    def high(self, author: PeerId, epoch: int) -> int:
        """The number up to which all requests of an author were published."""
        return self._numbers.high(author, epoch)

    def highest(self, author: PeerId, epoch: int) -> int:
        """The highest number of an author that was published."""
        return self._numbers.highest(author, epoch)

    def is_first(self, event: EventDescriptor) -> bool:
        """Whether an event is the first with its request; if so, remember it."""
        epoch, number = event.request.sequence
        if self.holds(event.author, epoch, number):
            return False
        self.take(event.author, epoch, number)
        return True

    def take(self, author: PeerId, epoch: int, number: int) -> None:
        """Remember that a request was published."""
        numbers = self._begin()
        mark = numbers.add(author, epoch, number, None)
        if len(mark.beyond) > GAPS_MAX:
            # Numbers below were refused or given up: no peer will publish them any more.
            numbers.retire(author, epoch, mark.beyond[0])

    def _begin(self) -> Frontier:
        if self._known is None:
            self._known = Frontier()
        return self._known

    # The disk.

    def row(self, event: EventDescriptor) -> Write:
        """The row that is written with this event."""
        epoch, _ = event.request.sequence
        mark = self._numbers.mark(event.author, epoch)
        assert mark is not None, "a request is taken before its event is kept"
        key = self._key(event.author, epoch)
        value = b"".join(number.to_bytes(8, "big") for number in (mark.high, *mark.beyond))
        return PutState(StateRow("request", key, value))

    def _key(self, author: PeerId, epoch: int) -> bytes:
        return self._topic + author + epoch.to_bytes(8, "big")

    def forget(self) -> list[Write]:
        """Drop all rows: the topic is forgotten."""
        return [
            DropState("request", self._key(mark.publisher, mark.epoch))
            for mark in self._numbers.marks()
        ]

    def restore(self, key: bytes, value: bytes) -> None:
        """Restore an author's published requests from their row."""
        author, epoch = PeerId(key[36:74]), int.from_bytes(key[74:], "big")
        high, *beyond = (
            int.from_bytes(value[at : at + 8], "big") for at in range(0, len(value), 8)
        )
        self._begin().adopt(MarkState(author, epoch, 0, high, None, tuple(beyond)))


def topic_of_request(key: bytes) -> Cid:
    """The topic of a row of the table of requests."""
    return Cid(key[:36])
