"""Requests that came before an earlier one of their author, and wait for it.

What an author leaves out on purpose never comes, so the room is bounded, per author too. Of one
author the first to come stay; where there is no room for anybody else, the oldest of all goes.
Whatever has to go is sent again by its author. (In `behind` an author's oldest go: each waits there
for events of others. Here each waits for its author's one before, so the first are needed first.)
"""

from typing import NamedTuple

from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.protocol.publishing.behind import Waiting

BYTES_MAX = 8 << 20
AUTHOR_SHARE = 4
"""One author can take one in so many of them, and of the bytes; one request in any case."""


class _Place(NamedTuple):
    topic: Cid
    author: PeerId
    epoch: int
    number: int


class Early:
    """Requests ahead of their authors' others, of all topics."""

    def __init__(self, count_max: int) -> None:
        self._share = max(1, count_max // AUTHOR_SHARE)
        self._waiting: dict[_Place, Waiting] = {}
        """All of them, the one that came first first."""
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, waiting: Waiting, count_max: int) -> None:
        """Let a request wait, if its author has room left; no more than so many may then be."""
        request, size = waiting.signed.request, len(waiting.signed.block)
        place = _Place(request.topic, request.author, *request.sequence)
        self._pop(place)
        own = [
            len(each.signed.block)
            for (_, author, _, _), each in self._waiting.items()
            if author == request.author
        ]
        if own and (len(own) >= self._share or sum(own) + size > BYTES_MAX // AUTHOR_SHARE):
            return
        while self._waiting and (len(self) >= count_max or self._bytes + size > BYTES_MAX):
            self._pop(next(iter(self._waiting)))
        if count_max > 0:
            self._waiting[place] = waiting
            self._bytes += size

    def take(self, topic: Cid, author: PeerId, epoch: int, number: int) -> Waiting | None:
        """The request that has this number, if it is here: its turn has come."""
        return self._pop(_Place(topic, author, epoch, number))

    def forget(self, topic: Cid) -> list[Waiting]:
        """Nothing of a topic is ours to publish any more; what waited there, in case it matters."""
        gone = {place: each for place, each in self._waiting.items() if place.topic == topic}
        for place in gone:
            self._pop(place)
        return list(gone.values())

    def _pop(self, place: _Place) -> Waiting | None:
        waiting = self._waiting.pop(place, None)
        if waiting is not None:
            self._bytes -= len(waiting.signed.block)
        return waiting
