"""Requests to publish that wait: a reorder buffer, or a causal wait (docs/spec/pulsarcast.md).

In the reorder buffer a request waits for earlier ones of its author, in the causal wait for events
that its author had seen. A dishonest author can name what never comes, so both are bounded in count
and bytes, per author too. The author of a request that is dropped sends it again.
"""

from collections.abc import Iterator
from typing import NamedTuple

from pulsarcast.model.events import SignedRequest
from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.protocol.topic.causality import CausalOrdering

REORDER_BYTES_MAX = 8 << 20
REORDER_AUTHOR_SHARE = 4
"""One author takes at most 1/`REORDER_AUTHOR_SHARE` of a reorder buffer, or one request."""
CAUSAL_COUNT_MAX = 256
"""Requests in a causal wait: an author is ahead of the publisher by an event's way at most."""
CAUSAL_BYTES_MAX = 4 << 20
CAUSAL_AUTHOR_SHARE = 8
"""One author takes at most 1/`CAUSAL_AUTHOR_SHARE` of a causal wait, or one request."""


class Waiting(NamedTuple):
    """A request, its sender, and whether it is to be answered once it is replicated."""

    sender: PeerId
    signed: SignedRequest
    replicated: bool


class RequestPlace(NamedTuple):
    """The place of a request in its author's numbering."""

    topic: Cid
    author: PeerId
    epoch: int
    number: int


def place_of(signed: SignedRequest) -> RequestPlace:
    """The place of a request in its author's numbering."""
    request = signed.request
    return RequestPlace(request.topic, request.author, *request.sequence)


class WaitingRequests:
    """Requests of all topics that cannot be published yet, the oldest first.

    An author that has used up its share either keeps its first requests, as a reorder buffer needs
    them first, or its last ones (`keeps_last`), as each in a causal wait waits on its own.
    """

    def __init__(self, count_max: int, bytes_max: int, share: int, *, keeps_last: bool) -> None:
        self._bytes_max = bytes_max
        self._own_count_max = max(1, count_max // share)
        self._own_bytes_max = bytes_max // share
        self._keeps_last = keeps_last
        self._waiting: dict[RequestPlace, Waiting] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, waiting: Waiting, count_max: int) -> None:
        """Let a request wait, if its author's share allows; at most `count_max` wait then."""
        place, size = place_of(waiting.signed), len(waiting.signed.block)
        self.take(place)
        own = [each for each in self._waiting.items() if each[0].author == place.author]
        own_bytes = size + sum(len(each.signed.block) for _, each in own)
        while own and (len(own) >= self._own_count_max or own_bytes > self._own_bytes_max):
            if not self._keeps_last:
                return
            oldest, dropped = own.pop(0)
            self.take(oldest)
            own_bytes -= len(dropped.signed.block)
        while self._waiting and (len(self) >= count_max or self._bytes + size > self._bytes_max):
            self.take(next(iter(self._waiting)))
        if count_max > 0:
            self._waiting[place] = waiting
            self._bytes += size

    def take(self, place: RequestPlace) -> Waiting | None:
        """Remove the request at a place, if it waits here."""
        waiting = self._waiting.pop(place, None)
        if waiting is not None:
            self._bytes -= len(waiting.signed.block)
        return waiting

    def take_ready(self, topic: Cid, ordering: CausalOrdering) -> Iterator[Waiting]:
        """Remove the requests of a topic whose marks are delivered, one by one."""
        for place, waiting in list(self._waiting.items()):
            is_ready = place.topic == topic and ordering.is_behind(waiting.signed.request.marks)
            if is_ready and self.take(place) is not None:
                yield waiting

    def forget(self, topic: Cid) -> list[Waiting]:
        """Remove all requests of a topic."""
        places = [place for place in self._waiting if place.topic == topic]
        return [waiting for place in places if (waiting := self.take(place)) is not None]


def reorder_buffer(count_max: int) -> WaitingRequests:
    """Where requests wait for earlier ones of their authors."""
    return WaitingRequests(count_max, REORDER_BYTES_MAX, REORDER_AUTHOR_SHARE, keeps_last=False)


def causal_wait() -> WaitingRequests:
    """Where requests wait for events that their authors had seen."""
    return WaitingRequests(CAUSAL_COUNT_MAX, CAUSAL_BYTES_MAX, CAUSAL_AUTHOR_SHARE, keeps_last=True)
