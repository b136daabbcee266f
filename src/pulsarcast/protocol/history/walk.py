"""A walk: one page of the events before an event, newest first (docs/spec/pulsarcast.md, Walk).

The walk gives an event once it has judged it, and then names those right before it: its parents,
and the one before it in its numbering. `fetching` finds them, `open_events` says which is next.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

from pulsarcast.model.errors import RemoteError
from pulsarcast.model.events import EventDescriptor
from pulsarcast.model.ids import Cid
from pulsarcast.model.lineage import Gap, Links, Missing, oldest_first
from pulsarcast.model.topics import TopicDescriptor
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.dht.kademlia import Kademlia
from pulsarcast.protocol.history.fetching import Fetching, MemberSource
from pulsarcast.protocol.history.open_events import OpenEvents, OpenNumber
from pulsarcast.protocol.topic.frontier import Source
from pulsarcast.protocol.topic.versions import Versions

EVENTS_MAX = 1000
"""Bounds the events of a page, and the gaps."""
BYTES_MAX = 4 << 20
"""Bounds the bytes of a page's events, but for the last one."""
PAGE_S = 20.0
"""A page ends after so long, if it has an event or a gap: the caller goes on with the next."""


class Page(NamedTuple):
    """Some of the events before an event, newest first, and what is missing among them."""

    events: tuple[EventDescriptor, ...]
    gaps: tuple[Gap, ...]
    cursor: bytes
    """Where to go on; empty: there is nothing before."""


class WalkOwner(MemberSource, Protocol):
    """Asked of the part that runs the walks."""

    def find_version(
        self, topic: Cid, version: Cid, then: Callable[[list[TopicDescriptor]], None]
    ) -> None:
        """The versions from the first unknown one up to `version`, oldest first."""

    def walked(self, walk: Walk) -> None:
        """The walk has ended."""


class Walk:
    """Gathers one page."""

    def __init__(
        self,
        context: Context,
        dht: Kademlia,
        owner: WalkOwner,
        versions: Versions,
        open_events: OpenEvents,
        limit: int,
        then: Callable[[Page], None],
    ) -> None:
        self.topic = versions.first.cid
        limit = min(limit, EVENTS_MAX)
        self.fetching = Fetching(context, dht, owner, open_events, limit, self._advance)
        self._context = context
        self._marks = dht.marks
        self._turn = context.turn
        self._owner = owner
        self._versions = versions
        self._open = open_events
        self._limit = limit
        self._then = then
        self._given: dict[Cid, EventDescriptor] = {}
        self._given_bytes = 0
        self._gaps: list[Gap] = []
        self._followers: dict[Cid, tuple[Source, int]] = {}
        """The place of an event that names an open parent."""
        self._unknown: dict[Cid, None] = {}
        """Versions of the topic that were not found, and events whose marks were not."""
        self._flushes: dict[Source, bool] = {}
        """Whether a numbering's marks in long flushes are looked for, or were."""
        self._until_s = context.turn.now + PAGE_S
        self._is_advancing = self._is_ready = self._has_ended = False

    # The page.

    def begin(self, first: EventDescriptor | None) -> None:
        """Gather the page; `first` is the event from which a walk starts."""
        if first is not None:
            self.fetching.keep(first)
            self._open.name(first.cid, first.request.created)
        self._advance()

    def _advance(self) -> None:
        """Go on: something that the walk waited for is here, or will not be."""
        self._is_ready = True
        if self._is_advancing:
            return  # An answer came while it was asked for.
        self._is_advancing = True
        while self._is_ready and not self._has_ended:
            self._is_ready = False
            if self._step():
                self._is_ready = True
        self._is_advancing = False

    def _step(self) -> bool:
        """Give the newest open event, or ask for it; False: the walk waits for an answer."""
        newest = None if self._is_full() else self._open.newest()
        if newest is None:
            self._end()
            return False
        if isinstance(newest, OpenNumber):
            return self._take_number(newest)
        return self._take_parent(newest)

    def _is_full(self) -> bool:
        found = len(self._given) + len(self._gaps)
        return (
            len(self._given) >= self._limit
            or self._given_bytes >= BYTES_MAX
            or len(self._gaps) >= EVENTS_MAX
            or (found > 0 and self._turn.now >= self._until_s)
        )

    def _end(self) -> None:
        self._has_ended = True
        self.fetching.end()
        if self._open.newest() is None:
            self._gaps += self._open.end()
        ordered = oldest_first(list(self._given.values()), links_of)
        ordered.reverse()
        page = Page(tuple(ordered), tuple(self._gaps), self._open.to_bytes())
        self._owner.walked(self)
        self._then(page)

    # Open parents.

    def _take_parent(self, cid: Cid) -> bool:
        fetching = self.fetching
        event = fetching.get(cid)
        if event is None and cid not in fetching.lost:
            return fetching.look_for(cid, self._followers.get(cid))
        if event is not None and cid not in fetching.lost and self._judge(event) is None:
            return False
        if cid in fetching.lost:
            return self._miss_parent(cid)
        assert event is not None
        time_us = self._open.time_of(cid)
        self._open.forget(cid)
        gap = self._open.place(event, time_us)
        if gap is not None:
            self._gaps.append(gap)
        return True

    def _miss_parent(self, cid: Cid) -> bool:
        source, number = self._followers.get(cid, (None, 1))
        if source is not None and self._must_ask_why(source):
            return False
        reason = self.fetching.lost[cid]
        if reason is Missing.NOT_FOUND:
            reason = self._explain(source, number - 1)
        self._open.forget(cid)
        self._gaps.append(Gap(reason, event=cid))
        return True

    # Open numbers.

    def _take_number(self, number: OpenNumber) -> bool:
        source, span = number
        pin = Cid(span.pin) if span.pin else None
        fetching = self.fetching
        event = fetching.at(source, span.high) if pin is None else fetching.get(pin)
        if event is None:
            if pin is not None and pin not in fetching.lost:
                self._open.name(pin, span.time_us)
                return True
            return self._look_for_number(number)
        time_us = min(event.request.created, span.time_us)
        if time_us < span.time_us:
            self._open.delay(number, time_us)
            return True
        is_allowed = self._judge(event)
        if is_allowed is None:
            return False
        if is_allowed:
            self._give(event, time_us)
        else:
            reason = fetching.lost[event.cid]
            self._gaps.append(Gap(reason, event.cid, *source, span.high, span.high))
        self._open.lower(number, span.high - 1)
        return True

    def _give(self, event: EventDescriptor, time_us: int) -> None:
        self._given[event.cid] = event
        self._given_bytes += len(event.block)
        self.fetching.wanted -= 1
        place = ((event.numbered_by, event.sequence.epoch), event.sequence.number)
        for parent in event.parents:
            if parent not in self._given:
                self._followers[parent] = place
                self._open.name(parent, time_us)
        self._gaps += self._open.trim()
        self.fetching.forget(event)

    def _look_for_number(self, number: OpenNumber) -> bool:
        """Ask for the highest number of a span; without it go on below, or get stuck."""
        source, span = number
        fetching = self.fetching
        if not fetching.is_exhausted(source, span.high):
            fetching.ask_numbers(source, span.low, span.high)
            return False
        if self._must_ask_why(source):
            return False
        reason = self._explain(source, span.high)
        below = fetching.below(source, span.high)
        if below > span.low:
            self._gaps.append(Gap(reason, None, *source, below + 1, span.high))
            self._open.skip(number, below)
        else:
            fetching.note_barren(source, span.high)
            self._open.stick(number, reason)
        return True

    # Why events are missing.

    def _must_ask_why(self, source: Source) -> bool:
        """Whether it was asked now up to where a numbering is flushed, or retired at a member."""
        flushed = [version.flushed for version in self._versions.all()]
        indexes = [each for each in flushed if not isinstance(each, tuple)]
        if indexes and source not in self._flushes:
            self._flushes[source] = False
            self._marks.find(indexes, source, partial(self._flushes_found, source))
        if not self._flushes.get(source, True):
            return True
        has_retention = self._versions.current.retention.is_limited
        if not has_retention or not self.fetching.must_ask_retired(source):
            return False
        self.fetching.ask_retired(source)
        return True

    def _explain(self, source: Source | None, number: int) -> Missing:
        """Why a number is missing, or a content id whose follower comes right after the number."""
        if source is not None and any(
            number <= self._flushed(version, source) for version in self._versions.all()
        ):
            return Missing.RETENTION
        known = (
            self.fetching.retired.values()
            if source is None
            else (self.fetching.retired.get(source, 0),)
        )
        is_retired = number <= max(known, default=0)
        if is_retired and self._versions.current.retention.is_limited:
            return Missing.RETENTION
        return Missing.NOT_FOUND

    def _flushes_found(self, source: Source, _: bool) -> None:
        self._flushes[source] = True
        self._advance()

    def _flushed(self, version: TopicDescriptor, source: Source) -> int:
        """Up to which number a version flushes a numbering, as far as that is found."""
        if not isinstance(version.flushed, tuple):
            return self._marks.number(version.flushed, source) or 0
        marks = (mark for mark in version.flushed if (mark.publisher, mark.epoch) == source)
        return max((mark.number for mark in marks), default=0)

    # Judging.

    def _judge(self, event: EventDescriptor) -> bool | None:
        """Whether the topic allows an event; None: a version or marks are looked for."""
        if event.version not in self._versions.by_cid:
            if event.version not in self._unknown:
                self._find_version(event.version)
                return None
            self.fetching.lost[event.cid] = Missing.NOT_FOUND
            return False
        try:
            unread = self._versions.judge(event, self._marks)
        except RemoteError:
            self.fetching.lost[event.cid] = Missing.REFUSED
            return False
        if not unread:
            return True
        if event.cid not in self._unknown:
            self._find_marks(event, unread)
            return None
        self.fetching.lost[event.cid] = Missing.NOT_FOUND
        return False

    def _find_marks(self, event: EventDescriptor, indexes: list[Cid]) -> None:
        def found(are_all: bool) -> None:
            if not are_all:
                self._unknown[event.cid] = None
            self._advance()

        self._marks.find(indexes, (event.publisher, event.sequence.epoch), found)

    def _find_version(self, version: Cid) -> None:
        def found(versions: list[TopicDescriptor]) -> None:
            try:
                for each in versions:
                    self._versions.add(each)
            except RemoteError as error:
                self._context.rejected(self._turn.me, self.topic, error)
            if version not in self._versions.by_cid:
                self._unknown[version] = None
            self._advance()

        self._owner.find_version(self.topic, version, found)


def links_of(event: EventDescriptor) -> Links:
    """What an event says about its place."""
    numbering = (event.numbered_by, event.sequence.epoch)
    return Links(event.cid, numbering, event.sequence.number, event.parents, event.request.created)
