"""Requests that have to wait until we have delivered what their authors had seen (design 6).

They are few and wait briefly: an author is ahead of the publisher that it asks by as much as one
event takes to arrive. What its author made up never comes, so the room is bounded, per author too;
whatever has to go is sent again by its author.
"""

from collections.abc import Iterator
from typing import NamedTuple

from pulsarcast.model.events import SignedRequest
from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.protocol.topic.causality import CausalOrdering

COUNT_MAX = 256
BYTES_MAX = 4 << 20
AUTHOR_SHARE = 8
"""One author can take one in so many of them, and of the bytes."""


class Waiting(NamedTuple):
    """A request, who sent it, and whether it is to be answered once it is replicated."""

    sender: PeerId
    signed: SignedRequest
    replicated: bool


class Behind:
    """Requests ahead of us, of all topics."""

    def __init__(self) -> None:
        self._waiting: dict[Cid, dict[bytes, Waiting]] = {}
        self._order: dict[bytes, Cid] = {}
        """All of them, the one that came first first."""

    def __len__(self) -> int:
        return len(self._order)

    def put(self, topic: Cid, waiting: Waiting) -> None:
        """Let a request wait, at the expense of its author's others, or else of the oldest."""
        author = waiting.signed.request.author
        self._pop(waiting.signed.request_id)
        self._order[waiting.signed.request_id] = topic
        self._waiting.setdefault(topic, {})[waiting.signed.request_id] = waiting
        self._trim(self._of(author), COUNT_MAX // AUTHOR_SHARE, BYTES_MAX // AUTHOR_SHARE)
        self._trim(list(self._all()), COUNT_MAX, BYTES_MAX)

    def take_ready(self, topic: Cid, ordering: CausalOrdering) -> Iterator[Waiting]:
        """Those of a topic that need not wait any longer."""
        for request_id, waiting in list(self._waiting.get(topic, {}).items()):
            if ordering.is_behind(waiting.signed.request.marks) and self._pop(request_id):
                yield waiting

    def forget(self, topic: Cid) -> None:
        """Nothing of a topic is ours to publish any more."""
        for request_id in list(self._waiting.get(topic, ())):
            self._pop(request_id)

    def _pop(self, request_id: bytes) -> bool:
        topic = self._order.pop(request_id, None)
        if topic is None:
            return False
        del self._waiting[topic][request_id]
        if not self._waiting[topic]:
            del self._waiting[topic]
        return True

    def _all(self) -> Iterator[Waiting]:
        return (self._waiting[topic][request_id] for request_id, topic in self._order.items())

    def _of(self, author: PeerId) -> list[Waiting]:
        return [each for each in self._all() if each.signed.request.author == author]

    def _trim(self, some: list[Waiting], count_max: int, bytes_max: int) -> None:
        """Drop the oldest of some, as far as they are too many."""
        size = sum(len(each.signed.block) for each in some)
        for at, each in enumerate(some):
            if len(some) - at <= count_max and size <= bytes_max:
                break
            size -= len(each.signed.block)
            self._pop(each.signed.request_id)
