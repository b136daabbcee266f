"""Comparing, the member's side: finds in its log the events that a subscriber lacks.

docs/spec/content.md, Compare.

The places of a member's log have no gaps, so a subscriber only names the place up to which it has
compared before: one small question, however many publishers there are. The answer brings the new
events that match, and where the numberings stand: with these marks the subscriber can go on with
another member.

A member remembers nothing about subscribers. It keeps events of the log's last pages sorted by
attribute, so that a filter meets only the events in its ranges.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import Any

from pulsarcast.model.events import EventDescriptor
from pulsarcast.model.filters import Filter
from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.protocol.content.messages import (
    ID_BYTES,
    MARKS_LEFT_OUT,
    CompareContent,
    ContentCompared,
)
from pulsarcast.protocol.content.spaces import read_filter
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.store import Events, LoadLog, LoadNumbers, MarkState
from pulsarcast.protocol.topic.topic import Topic

PAGE = 128
PAGES_MAX = 64
"""Bounds the pages of logs that are kept in memory."""
SCANNED_MAX = 1024
"""Bounds the places of the log that one question searches."""
MATCHED_MAX = 4096
"""Bounds the events that one question matches with filters: a subscriber with many filters is
answered in smaller steps."""
SOUGHT_MAX = 64
"""Bounds the numberings whose place in the log is looked up for a subscriber's first question."""
MARKS_PAGE = 512


def id_of(cid: Cid) -> bytes:
    """An event's name in questions and answers."""
    return cid[-ID_BYTES:]


class _Page:
    """Some events of a log, sorted by each attribute."""

    __slots__ = ("_columns", "events")

    def __init__(self, events: tuple[tuple[int, EventDescriptor], ...]) -> None:
        self.events = events
        self._columns: dict[tuple[str, bool], tuple[list[Any], list[int]]] = {}

    def matching(self, wanted: Filter, after: int, until: int) -> list[int]:
        """The events between two places that a filter matches, by their place in the page."""
        near: set[int] = set()
        for box in wanted.cover():
            candidates: range | list[int] = range(len(self.events))
            for name, each in box.ranges:
                values, order = self._column(name, of_texts=isinstance(each.low, str))
                first = bisect_left(values, each.low)
                last = len(values) if each.high is None else bisect_right(values, each.high)
                if last - first < len(candidates):
                    candidates = order[first:last]
            near.update(candidates)
        return [at for at in sorted(near) if self._matches(wanted, at, after, until)]

    def _matches(self, wanted: Filter, at: int, after: int, until: int) -> bool:
        place, event = self.events[at]
        return after < place <= until and wanted.matches(event.request.attributes)

    def _column(self, name: str, *, of_texts: bool) -> tuple[list[Any], list[int]]:
        """The events that have an attribute of a type, in its order."""
        column = self._columns.get((name, of_texts))
        if column is None:
            kind = str if of_texts else (int, float)
            pairs: list[tuple[Any, int]] = sorted(
                (value, at)
                for at, (_, event) in enumerate(self.events)
                if isinstance(value := event.request.attributes.get(name), kind)
            )
            column = ([v for v, _ in pairs], [at for _, at in pairs])
            self._columns[name, of_texts] = column
        return column


class Members:
    """Answers content subscribers from the logs of topics that the node is a member of."""

    def __init__(self, context: Context) -> None:
        self._turn = context.turn
        self._bytes_max = context.parameters.range_bytes_max
        self._counts = context.counts
        self._logs: dict[Cid, tuple[object, int]] = {}
        """By topic: the log that a question's places refer to, and its token."""
        self._pages: dict[tuple[Cid, int], _Page] = {}

    def answer(self, sender: PeerId, message: CompareContent, topic: Topic | None) -> None:
        """A content subscriber asks for the events that it lacks."""
        if topic is None or not topic.knows_start:
            self._turn.send(sender, _no_member(message))
            return
        token = self._token(topic)
        if message.fresh:
            self._send_marks(sender, message, topic, token, _marks(topic, None))
            return
        if message.log not in (0, token):
            # The member has begun anew since: the subscriber has to show its marks.
            self._turn.send(sender, _no_member(message))
            return
        late = [] if message.log else _too_late(message, topic)
        if late:
            self._turn.send(sender, _no_member(message, tuple(late[:MARKS_PAGE])))
            return
        wanted = [read_filter(topic.versions, text)[1] for text in message.where]
        if message.log == token:
            self._scan(sender, message, topic, token, message.place, wanted)
        else:
            self._find_start(
                message,
                topic,
                lambda start: self._scan(sender, message, topic, token, start, wanted),
            )

    def _token(self, topic: Topic) -> int:
        known = self._logs.get(topic.id)
        if known is None or known[0] is not topic.log:
            known = self._logs[topic.id] = (topic.log, 1 + self._turn.rng.getrandbits(62))
            for key in [key for key in self._pages if key[0] == topic.id]:
                del self._pages[key]
            if len(self._logs) > 1024:
                del self._logs[next(iter(self._logs))]
        return known[1]

    def _find_start(
        self, message: CompareContent, topic: Topic, then: Callable[[int], None]
    ) -> None:
        """Find the place before the first event that a subscriber's marks do not cover."""
        theirs = {(mark.publisher, mark.epoch): mark.high for mark in message.marks}
        ahead = sorted(
            (mark, theirs.get((mark.publisher, mark.epoch), 0))
            for mark in topic.frontier
            if mark.high > theirs.get((mark.publisher, mark.epoch), 0) or mark.beyond
        )
        if len(ahead) > SOUGHT_MAX:
            then(0)
            return
        start = topic.log.synced
        waiting = list(ahead)
        sought: dict[tuple[PeerId, int, int], None] = {}
        """The last numbers asked for: one that is not in the answer shows that there are more."""

        def step() -> None:
            if not waiting or start == 0:
                then(start)
                return
            mark, high = waiting.pop()
            last = max(mark.high, *mark.beyond) if mark.beyond else mark.high
            sought.clear()
            if last - high > 1:
                sought[(mark.publisher, mark.epoch, last)] = None
            query = LoadNumbers(topic.id, mark.publisher, mark.epoch, high + 1, last, 1 << 16)
            self._turn.load(query, Events, found)

        def found(answer: Events) -> None:
            nonlocal start
            for place, event in answer.events:
                if place:
                    start = min(start, place - 1)
                sought.pop((event.numbered_by, *event.sequence), None)
            if sought:
                # More than one read brings, and an earlier place may hold a later number.
                start = 0
            step()

        step()

    # Searching the log.

    def _scan(
        self,
        sender: PeerId,
        message: CompareContent,
        topic: Topic,
        token: int,
        start: int,
        wanted: list[Filter],
    ) -> None:
        scanned = min(SCANNED_MAX, MATCHED_MAX // max(1, len(wanted)))
        end = min(topic.log.synced, start + scanned)
        have = {message.have[at : at + ID_BYTES] for at in range(0, len(message.have), ID_BYTES)}
        order: list[bytes] = []
        blocks: list[bytes] = []
        moved: dict[tuple[PeerId, int], None] = {}
        room = self._bytes_max

        def step(number: int) -> None:
            if number * PAGE >= end:
                done(end)
                return
            self._load(topic, number, lambda page: look(number, page))

        def look(number: int, page: _Page) -> None:
            nonlocal room
            found = {at for each in wanted for at in page.matching(each, start, end)}
            for at, (place, event) in enumerate(page.events):
                if place <= start:
                    continue
                if place > end:
                    break
                if at in found:
                    name = id_of(event.cid)
                    if name not in have:
                        if len(event.block) > room and blocks:
                            done(place - 1)
                            return
                        room -= len(event.block)
                        blocks.append(event.block)
                    order.append(name)
                moved[(event.numbered_by, event.sequence.epoch)] = None
            step(number + 1)

        def done(place: int) -> None:
            self._counts["content_compared"] += 1
            marks: list[MarkState] = []
            if place >= topic.log.synced:
                known = moved if message.log == token and message.base == start else None
                marks = _marks(topic, known)
            self._send_marks(
                sender, message, topic, token, marks, place, b"".join(order), tuple(blocks)
            )

        step(start // PAGE)

    def _load(self, topic: Topic, number: int, then: Callable[[_Page], None]) -> None:
        """A page of a topic's log: places from number * PAGE + 1 on."""
        first, last = number * PAGE + 1, (number + 1) * PAGE
        key = (topic.id, number)
        page = self._pages.get(key)
        newest = min(last, topic.log.synced)
        if page is not None and page.events and page.events[-1][0] >= newest:
            then(page)
            return

        def found(answer: Events) -> None:
            events = tuple(each for each in answer.events if each[0] <= last)
            page = _Page(events)
            self._pages.pop(key, None)
            self._pages[key] = page
            if len(self._pages) > PAGES_MAX:
                del self._pages[next(iter(self._pages))]
            then(page)

        self._turn.load(LoadLog(topic.id, first, PAGE), Events, found)

    def _send_marks(
        self,
        sender: PeerId,
        message: CompareContent,
        topic: Topic,
        token: int,
        marks: list[MarkState],
        place: int | None = None,
        order: bytes = b"",
        blocks: tuple[bytes, ...] = (),
    ) -> None:
        newest = topic.log.synced
        pages = [marks[at : at + MARKS_PAGE] for at in range(0, len(marks), MARKS_PAGE)] or [[]]
        for page in pages:
            more = page is not pages[-1]
            self._turn.send(
                sender,
                ContentCompared(
                    message.request,
                    message.topic,
                    token,
                    newest if place is None else place,
                    newest,
                    b"" if more else order,
                    () if more else blocks,
                    tuple(page),
                    more,
                ),
            )


def _no_member(message: CompareContent, late: tuple[MarkState, ...] = ()) -> ContentCompared:
    return ContentCompared(message.request, message.topic, 0, 0, 0, b"", (), late, False)


def _too_late(message: CompareContent, topic: Topic) -> list[MarkState]:
    """The first numbers of the member's log, for numberings of which the subscriber has less.

    The member knows nothing of what lies between: it was no member yet. Events that retention
    dropped do not count: no member holds them.
    """
    if message.place == MARKS_LEFT_OUT:
        return []
    theirs = {(mark.publisher, mark.epoch): mark.high for mark in message.marks}
    return sorted(
        MarkState(mark.publisher, mark.epoch, 0, mark.floor, None)
        for mark in topic.frontier
        if mark.floor > max(mark.retired, theirs.get((mark.publisher, mark.epoch), 0))
    )


def _marks(topic: Topic, moved: dict[tuple[PeerId, int], None] | None) -> list[MarkState]:
    """The marks of numberings: everything up to there is on the disk."""
    pending = topic.log.pending()
    if moved is None:
        known = topic.frontier.marks()
    else:
        # In the order of all marks, without making those that were not asked for.
        found = (topic.frontier.mark(*source) for source in sorted(moved))
        known = [mark for mark in found if mark is not None]
    marks = []
    for mark in known:
        high = min(mark.high, pending.get((mark.publisher, mark.epoch), mark.high + 1) - 1)
        marks.append(MarkState(mark.publisher, mark.epoch, 0, high, None))
    return marks
