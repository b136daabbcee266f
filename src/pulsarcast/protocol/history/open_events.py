"""Open events: the events that a walk has seen named, and has yet to give.

An event is named by its content id, as a parent, or by its number, as the one before a later event
of its numbering. So most of a walk is a span of numbers for each numbering, and the content ids
whose numbers are not known yet. This is all that a walk remembers from one page to the next, and
it travels in the cursor (docs/spec/pulsarcast.md, Walk).
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta, Struct

from pulsarcast.model.errors import LocalError, RemoteError
from pulsarcast.model.events import EventDescriptor
from pulsarcast.model.ids import Cid, PeerId, check_cid, check_peer_id
from pulsarcast.model.lineage import Gap, Missing
from pulsarcast.protocol.limits import INTEGER_MAX
from pulsarcast.protocol.topic.frontier import Source

OPEN_MAX = 4096
"""Bounds the numberings and the content ids, each, that a walk holds open: a cursor of some 300
KB. Those that say they are the oldest are given up first, and the walk says so."""
SPANS_MAX = 16
"""Bounds the open spans of a numbering: more than one only where clocks disagree."""
HOLES_MAX = 16
"""Bounds the gaps of a numbering that are remembered, in case an event in one of them is named."""

_Number = Annotated[int, Meta(ge=0, le=INTEGER_MAX)]


class Span(Struct, array_like=True, forbid_unknown_fields=True):
    """Numbers of one numbering that are yet to be given, from `high` down to above `low`."""

    low: _Number
    high: _Number
    time_us: int
    """No event of the span counts as newer than this."""
    is_stuck: bool = False
    """Whether no peer that was asked has `high` or what is below."""
    reason: Missing = Missing.NOT_FOUND
    """Why it is stuck."""
    pin: bytes = b""
    """The content id of `high`, where an event names it."""


class _Numbering(Struct, array_like=True, forbid_unknown_fields=True):
    publisher: bytes
    epoch: _Number
    top: _Number
    """The highest number that was named: all numbers up to it are given, missing or in a span."""
    spans: Annotated[list[Span], Meta(max_length=SPANS_MAX)]
    holes: Annotated[list[tuple[_Number, _Number]], Meta(max_length=HOLES_MAX)] = []
    """The first and the last number of each gap."""


class _Cursor(Struct, array_like=True, forbid_unknown_fields=True):
    topic: bytes
    numberings: Annotated[list[_Numbering], Meta(max_length=OPEN_MAX)]
    parents: Annotated[dict[bytes, int], Meta(max_length=OPEN_MAX)]


class OpenNumber(NamedTuple):
    """The newest open event is the highest of a span."""

    source: Source
    span: Span


class OpenEvents:
    """Everything that a walk has yet to give, the newest first.

    The time by which open events are compared is the one that an event says, and never later than
    that of an event through which the walk came to it: so a walk cannot be led around by clocks.
    """

    def __init__(self, topic: Cid) -> None:
        self.topic = topic
        self._tops: dict[Source, int] = {}
        self._spans: dict[Source, list[Span]] = {}
        self._holes: dict[Source, list[tuple[int, int]]] = {}
        self._given_up: list[Gap] = []
        self._parents: dict[Cid, int] = {}
        self._heap: list[tuple[int, int, bytes, int, int]] = []
        """Negative time, kind, content id or publisher, epoch, low: the smallest is the newest."""

    # The cursor.

    def to_bytes(self) -> bytes:
        """The cursor; empty when nothing is open any more."""
        if not self._parents and not self._spans:
            return b""
        numberings = [
            _Numbering(*source, top, self._spans.get(source, []), self._holes.get(source, []))
            for source, top in self._tops.items()
        ]
        return msgspec.msgpack.encode(
            _Cursor(
                self.topic, numberings, {bytes(cid): at_us for cid, at_us in self._parents.items()}
            )
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> OpenEvents:
        """Read a cursor; raises LocalError if it is none."""
        try:
            cursor = msgspec.msgpack.decode(data, type=_Cursor)
            events = cls(check_cid(cursor.topic))
            parents = {check_cid(cid): time_us for cid, time_us in cursor.parents.items()}
            for each in cursor.numberings:
                source = (check_peer_id(each.publisher), each.epoch)
                events._tops[source] = each.top
                if each.holes:
                    events._holes[source] = each.holes
                for span in each.spans:
                    if span.pin:
                        check_cid(span.pin)
                    if not span.low < span.high <= each.top:
                        raise RemoteError("a span without numbers")
                    events._open(source, span)
        except (msgspec.DecodeError, UnicodeDecodeError, RemoteError) as error:
            raise LocalError("the cursor is not one that a walk gave") from error
        for cid, time_us in parents.items():
            events._parents[cid] = time_us
            heappush(events._heap, (-time_us, 0, cid, 0, 0))
        return events

    # What is open.

    def newest(self) -> Cid | OpenNumber | None:
        """The open event that counts as the newest; of two alike, one that is named by its id."""
        while self._heap:
            minus_us, kind, name, epoch, low = self._heap[0]
            if kind == 0:
                if self._parents.get(Cid(name)) == -minus_us:
                    return Cid(name)
            else:
                source = (PeerId(name), epoch)
                span = next((each for each in self._spans.get(source, ()) if each.low == low), None)
                if span is not None and not span.is_stuck and span.time_us == -minus_us:
                    return OpenNumber(source, span)
            heappop(self._heap)
        return None

    def parents(self) -> Iterator[Cid]:
        """The open content ids, the newest first."""
        yield from sorted(self._parents, key=lambda cid: (-self._parents[cid], cid))

    def numbers(self) -> list[OpenNumber]:
        """The open spans, the newest first."""
        found = [
            OpenNumber(source, span)
            for source, spans in self._spans.items()
            for span in spans
            if not span.is_stuck
        ]
        found.sort(key=lambda each: -each.span.time_us)
        return found

    @property
    def numbering_count(self) -> int:
        """How many numberings have open events."""
        return len(self._spans)

    def time_of(self, cid: Cid) -> int:
        """How new an open content id counts as."""
        return self._parents[cid]

    # Naming events.

    def name(self, cid: Cid, time_us: int) -> None:
        """An event that counts as of this time names a parent."""
        if self._parents.get(cid, time_us - 1) < time_us:
            self._parents[cid] = time_us
            heappush(self._heap, (-time_us, 0, cid, 0, 0))

    def forget(self, cid: Cid) -> None:
        """A content id is no longer open: its event was found, or will not be."""
        self._parents.pop(cid, None)

    def place(self, event: EventDescriptor, time_us: int) -> Gap | None:
        """An event that was named is here: its number, and all before it, are open now.

        Returns the gap that ends with it, if its numbering was stuck above it.
        """
        source, number = (event.numbered_by, event.sequence.epoch), event.sequence.number
        time_us = min(time_us, event.request.created)
        top = self._tops.get(source, 0)
        if number > top:
            self._tops[source] = number
            self._open(source, Span(top, number, time_us, pin=event.cid))
            return None
        for span in self._spans.get(source, ()):
            if not span.low < number <= span.high:
                continue
            gap = None
            if number < span.high:
                if not span.is_stuck:
                    return None
                gap = _gap(source, span, first=number + 1)
                span.high = number
            span.is_stuck, span.pin, span.time_us = False, event.cid, min(span.time_us, time_us)
            self._push(source, span)
            return gap
        holes = self._holes.get(source, [])
        for first, last in holes:
            if first <= number <= last:
                holes.remove((first, last))
                holes += [
                    each for each in ((first, number - 1), (number + 1, last)) if each[0] <= each[1]
                ]
                self._open(source, Span(number - 1, number, time_us, pin=event.cid))
                break
        return None

    def _open(self, source: Source, span: Span) -> None:
        spans = self._spans.setdefault(source, [])
        spans.append(span)
        if not span.is_stuck:
            self._push(source, span)
        if len(spans) > SPANS_MAX:
            given_up = spans.pop(0)
            self._given_up.append(_gap(source, given_up)._replace(reason=Missing.BRANCHES))

    def _push(self, source: Source, span: Span) -> None:
        heappush(self._heap, (-span.time_us, 1, source[0], source[1], span.low))

    # Giving events.

    def delay(self, number: OpenNumber, time_us: int) -> None:
        """The highest event of a span is older than it counted as."""
        number.span.time_us = time_us
        self._push(number.source, number.span)

    def lower(self, number: OpenNumber, high: int) -> None:
        """A span goes on below, at `high`."""
        source, span = number
        span.high, span.pin = high, b""
        if span.high <= span.low:
            self._spans[source].remove(span)
            if not self._spans[source]:
                del self._spans[source]
        else:
            self._push(source, span)

    def skip(self, number: OpenNumber, below: int) -> None:
        """A span goes on below a gap."""
        source, span = number
        holes = self._holes.setdefault(source, [])
        holes.append((below + 1, span.high))
        del holes[:-HOLES_MAX]
        self.lower(number, below)

    @staticmethod
    def stick(number: OpenNumber, reason: Missing) -> None:
        """No peer that was asked has the highest event of a span, nor any below it.

        It is a gap at the end of the walk, unless another event names one of the span.
        """
        number.span.is_stuck, number.span.reason = True, reason

    def end(self) -> list[Gap]:
        """Nothing but stuck spans is open: these are gaps."""
        gaps = [_gap(source, span) for source, spans in self._spans.items() for span in spans]
        self._spans.clear()
        return gaps

    def trim(self) -> list[Gap]:
        """Give up the oldest branches of too many, and say which were given up."""
        gaps, self._given_up = self._given_up, []
        if len(self._tops) > OPEN_MAX:
            done = [source for source in self._tops if source not in self._spans]
            oldest = sorted(self._spans, key=lambda each: max(s.time_us for s in self._spans[each]))
            for source in [*done, *oldest][: len(self._tops) - OPEN_MAX]:
                del self._tops[source]
                self._holes.pop(source, None)
                left = self._spans.pop(source, ())
                gaps += [_gap(source, span)._replace(reason=Missing.BRANCHES) for span in left]
        if len(self._parents) > OPEN_MAX:
            for cid in list(self.parents())[OPEN_MAX:]:
                del self._parents[cid]
                gaps.append(Gap(Missing.BRANCHES, event=cid))
        if len(self._heap) > 4 * (len(self._parents) + len(self._tops)) + 64:
            self._rebuild_heap()
        return gaps

    def _rebuild_heap(self) -> None:
        """Drop entries of what is no longer open."""
        self._heap = [(-time_us, 0, cid, 0, 0) for cid, time_us in self._parents.items()]
        for source, spans in self._spans.items():
            self._heap += [(-s.time_us, 1, *source, s.low) for s in spans if not s.is_stuck]
        heapify(self._heap)


def _gap(source: Source, span: Span, first: int | None = None) -> Gap:
    publisher, epoch = source
    first = span.low + 1 if first is None else first
    return Gap(span.reason, None, publisher, epoch, first, span.high)
