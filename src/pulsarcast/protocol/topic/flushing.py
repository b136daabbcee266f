"""Flushing: drops what versions flush up to marks that they name by an index.

docs/spec/pulsarcast.md, Retention and flush.

The pages are read one after another, and each is done with once it is retired. A page is due again
where a part of the start frontier was loaded in its range. What is due is on the disk by its index
alone: after a restart the node begins with the first page.
"""

from collections import deque
from collections.abc import Iterable
from functools import partial

from pulsarcast.model.ids import Cid
from pulsarcast.model.mark_blocks import MarkIndex, MarkPage, mark_place
from pulsarcast.model.topics import TopicDescriptor
from pulsarcast.protocol.dht.mark_pages import MarkPages
from pulsarcast.protocol.store import DropState, MarkState, PutState, StateRow, Write
from pulsarcast.protocol.topic.retirement import Retirement
from pulsarcast.protocol.topic.state import TopicState

TABLE = "flush"
"""Rows of the disk: a topic and an index up to which it is being flushed."""
RETRY_S = 10.0
"""How long the node waits before it looks again for a page that no peer has."""


class Flushing:
    """What one topic has yet to flush."""

    __slots__ = ("_due", "_is_reading", "_marks", "_retirement", "_state", "_turn")

    def __init__(
        self, state: TopicState, marks: MarkPages, retirement: Retirement, due: Iterable[Cid]
    ) -> None:
        self._state = state
        self._turn = state.context.turn
        self._marks = marks
        self._retirement = retirement
        self._due: dict[Cid, list[bytes] | None] = dict.fromkeys(due)
        """By index: the places whose pages are due; None: all."""
        self._is_reading = False

    @property
    def is_idle(self) -> bool:
        """Whether nothing is due."""
        return not (self._due or self._is_reading)

    def go_on(self) -> None:
        """Read the next page that is due."""
        if self._due and not self._is_reading and not self._state.ended:
            self._is_reading = True
            index = next(iter(self._due))
            self._marks.index(index, partial(self._begin, index))

    def start_loaded(self, marks: Iterable[MarkState]) -> None:
        """These marks of the start frontier are loaded: flush them as the known versions say.

        Once all of it is loaded, flush all: members may have flushed what the giver never had.
        """
        places: list[bytes] | None = None
        if self._state.frontier.missing:
            places = [mark_place(mark.publisher, mark.epoch) for mark in marks]
        for version in self._state.versions.all():
            self.want(version, places)

    def want(self, version: TopicDescriptor, places: list[bytes] | None = None) -> None:
        """Flush as a version says, in the pages of these places, or in all."""
        index = version.flushed
        if isinstance(index, tuple) or places == []:
            return
        if index not in self._due:
            self._state.writing.persist(PutState(StateRow(TABLE, self._state.id + index, b"")))
        due = self._due.get(index, [])
        self._due[index] = None if due is None or places is None else due + places
        self.go_on()

    def forget(self) -> list[Write]:
        """The topic is left."""
        return [DropState(TABLE, self._state.id + index) for index in self._due]

    # Reading.

    def _begin(self, cid: Cid, index: MarkIndex | None) -> None:
        if index is None:
            self._try_later(cid, self._due[cid])
            return
        places = self._due[cid]
        if places is None:
            places = [index.place(at) for at in range(len(index))]
        pages = dict.fromkeys(index.page_at(place) for place in places)
        self._due[cid] = []  # What is due from now on is due anew.
        self._next(index, deque(at for at in pages if at >= 0))

    def _next(self, index: MarkIndex, pages: deque[int]) -> None:
        if self._state.ended:
            return
        if pages:
            self._marks.page(index, pages[0], partial(self._read, index, pages))
            return
        self._is_reading = False
        if not self._due[index.cid]:
            del self._due[index.cid]
            self._state.writing.persist(DropState(TABLE, self._state.id + index.cid))
            self._retirement.drop_retired()
        self.go_on()

    def _read(self, index: MarkIndex, pages: deque[int], page: MarkPage | None) -> None:
        if page is None:
            pages.rotate(-1)
            due = self._due[index.cid]
            left = None if due is None else [*map(index.place, pages), *due]
            self._try_later(index.cid, left)
        elif not self._state.ended:
            pages.popleft()
            self._retirement.flush(index.cid, tuple(page.marks()))
            self._next(index, pages)

    def _try_later(self, cid: Cid, places: list[bytes] | None) -> None:
        """Something was not found: go on with something else, and not at once."""
        del self._due[cid]
        self._due[cid] = places
        self._turn.after(RETRY_S, self._retry)

    def _retry(self) -> None:
        self._is_reading = False
        self.go_on()
