"""Fetching: finds the events that a walk names, and keeps them until the walk comes to them.

An event is looked for on the node's disk, then at members of the topic, by ranges of numbers, so
that one message brings hundreds, and by content id. Last it is looked for in the DHT, which knows
content ids only (docs/spec/pulsarcast.md, Walk).

A member cannot make anything up: a content id is the hash of an event, and an event with a number
has its publisher's signature. A member that sends something else, or nothing, is asked no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain, islice
from typing import Protocol

from pulsarcast.model.errors import Rejection, RemoteError
from pulsarcast.model.events import EventDescriptor
from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.model.lineage import Missing
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.dht.kademlia import Kademlia
from pulsarcast.protocol.dht.replication import WANTED_MAX
from pulsarcast.protocol.history.open_events import OpenEvents, Span
from pulsarcast.protocol.messages import FetchRange, FrontierPage, Range
from pulsarcast.protocol.store import Block, Events, LoadBlock, LoadNumbers, MarkState
from pulsarcast.protocol.topic.frontier import Source

FETCHED_BYTES_MAX = 16 << 20
"""Bounds the bytes of events that were fetched and not given yet."""
RANGE_MIN = 16
"""Numbers that a member is asked for at least: the next ones will be needed soon."""
MEMBERS_ASKED = 3
"""Members asked for an event, one after the other, before it is looked for elsewhere."""
LOOKUPS_MAX = 8
"""Lookups in the DHT at a time."""
RANGES_MAX = 8
"""Ranges that a member is asked for at a time: topics with many publishers have many."""
FROM_DHT = MEMBERS_ASKED + 1
"""The number of the last source that is asked for a content id."""


class MemberSource(Protocol):
    """Asked of the part that knows the members of topics."""

    def has_log(self, topic: Cid) -> bool:
        """Whether the node keeps a log of the topic."""

    def find_members(self, topic: Cid, then: Callable[[list[PeerId]], None]) -> None:
        """Find some members of the topic; `then` gets an empty list if there are none."""

    def failed(self, topic: Cid, member: PeerId) -> None:
        """A member did not answer, or not what it was asked."""

    def retired(self, topic: Cid, source: Source) -> int | None:
        """Up to which number a numbering is retired, if the node follows the topic."""


class Fetching:
    """Finds events for one page of a walk; `then` is called when something was found, or not."""

    def __init__(
        self,
        context: Context,
        dht: Kademlia,
        members: MemberSource,
        open_events: OpenEvents,
        wanted: int,
        then: Callable[[], None],
    ) -> None:
        self.topic = open_events.topic
        self.wanted = wanted
        """How many events the page still needs."""
        self.lost: dict[Cid, Missing] = {}
        """Content ids that were not found, or whose event is not allowed."""
        self.retired: dict[Source, int] = {}
        """Up to which number a member calls a numbering retired."""
        self._context = context
        self._turn = context.turn
        self._parameters = context.parameters
        self._dht = dht
        self._member_source = members
        self._open = open_events
        self._then = then
        self._fetched: dict[Cid, EventDescriptor] = {}
        self._fetched_bytes = 0
        self._numbers: dict[Source, dict[int, Cid]] = {}
        """The events among these by number."""
        self._seen_count = self._seen_bytes = 0
        self._members: list[PeerId] | None = None
        self._has_searched_again = False
        self._sources_of: dict[Cid, int] = {}
        """Sources that were asked for a content id: the disk, members, the DHT."""
        self._first_source = 0 if members.has_log(self.topic) else 1
        self._numbers_asked: dict[tuple[Source, int], int] = {}
        """Sources that were asked for a number: the disk, members."""
        self._barren: dict[Source, int] = {}
        """Up to which number the members that were asked have nothing."""
        self._asked: PeerId | None = None
        """The member whose answer the walk waits for."""
        self._ranges: dict[int, tuple[Source, int, int]] = {}
        """The ranges that it was asked for, by request: numbering, first and last number."""
        self._timer: int | None = None
        self._has_ended = False

    def end(self) -> None:
        """The page is complete."""
        self._has_ended = True
        self._stop_waiting()

    # Events that were fetched.

    def get(self, cid: Cid) -> EventDescriptor | None:
        """An event by its content id, if it was fetched."""
        return self._fetched.get(cid)

    def at(self, source: Source, number: int) -> EventDescriptor | None:
        """An event by its number, if it was fetched."""
        cid = self._numbers.get(source, {}).get(number)
        return None if cid is None else self._fetched.get(cid)

    def below(self, source: Source, number: int) -> int:
        """The highest number of a numbering below another that was fetched; 0: none."""
        return max((each for each in self._numbers.get(source, ()) if each < number), default=0)

    def keep(self, event: EventDescriptor) -> None:
        """Keep an event until the walk comes to it."""
        if event.cid in self._fetched:
            return
        self._fetched[event.cid] = event
        self._seen_count += 1
        self._seen_bytes += len(event.block)
        self._fetched_bytes += len(event.block)
        source = (event.numbered_by, event.sequence.epoch)
        self._numbers.setdefault(source, {}).setdefault(event.sequence.number, event.cid)
        while self._fetched_bytes > FETCHED_BYTES_MAX and len(self._fetched) > 1:
            oldest = next(iter(self._fetched.values()))
            self.forget(oldest)
            # It is asked for again when the walk comes to it.
            place = (oldest.numbered_by, oldest.sequence.epoch), oldest.sequence.number
            self._numbers_asked.pop(place, None)
            self._sources_of.pop(oldest.cid, None)

    def forget(self, event: EventDescriptor) -> None:
        """The walk has given an event."""
        if self._fetched.pop(event.cid, None) is None:
            return
        self._fetched_bytes -= len(event.block)
        numbers = self._numbers[(event.numbered_by, event.sequence.epoch)]
        if numbers.get(event.sequence.number) == event.cid:
            del numbers[event.sequence.number]

    # By content id.

    def look_for(self, cid: Cid, follower: tuple[Source, int] | None) -> bool:
        """Ask the next source for a content id, and for others that are open, too.

        `follower` is the place of an event that names it. False: wait for the answer.
        """
        source, number = follower or (None, 0)
        if source is not None and not self._has(source, number - 1) and number > 1:
            # The parent is likely to be the event before, which comes with many others.
            if not self.is_exhausted(source, number - 1):
                self.ask_numbers(source, 0, number - 1)
                return False
            self.note_barren(source, number - 1)
            if number - 1 <= self._barren.get(source, 0) and cid in self._sources_of:
                self._sources_of[cid] = FROM_DHT
        step = self._sources_of.get(cid, 0)
        batch = self._batch(cid, step)
        if step == 0:
            self._load_blocks(batch)
        elif step < FROM_DHT and self._members is None:
            self._find_members()
        elif step < FROM_DHT and step <= len(self._members or ()):
            self._want_blocks(batch, step)
        elif step < FROM_DHT:
            self._sources_of[cid] = FROM_DHT
            return True
        else:
            self._look_up(batch[:LOOKUPS_MAX])
        return False

    def _batch(self, cid: Cid, step: int) -> list[Cid]:
        """A content id, and others to ask the same source for: open ones, and those open soon."""
        soon = (parent for event in self._fetched.values() for parent in event.parents)
        lacking = (
            each
            for each in chain((cid,), self._open.parents(), soon)
            if self._sources_of.get(each, 0) == step
            and each not in self._fetched
            and each not in self.lost
        )
        return list(islice(dict.fromkeys(lacking), WANTED_MAX))

    def _load_blocks(self, batch: list[Cid]) -> None:
        left = len(batch)

        def loaded(cid: Cid, answer: Block) -> None:
            nonlocal left
            left -= 1
            self._sources_of[cid] = 1
            self._take_blocks([answer.block] if answer.block is not None else [], [cid])
            if not left:
                self._then()

        for cid in batch:
            self._turn.load(LoadBlock(cid), Block, partial(loaded, cid))

    def _want_blocks(self, batch: list[Cid], step: int) -> None:
        assert self._members
        member = self._members[step - 1]

        def answered(blocks: tuple[bytes, ...] | None) -> None:
            if self._has_ended:
                return
            if blocks is None:
                self._drop(member)
            elif not self._take_blocks(blocks, batch, member):
                # As long as it sends some, its answer may have been full.
                self._sources_of.update(dict.fromkeys(batch, step + 1))
            self._then()

        self._dht.want_blocks(member, batch, answered)

    def _look_up(self, batch: list[Cid]) -> None:
        left = len(batch)

        def found(cid: Cid, block: bytes | None) -> None:
            nonlocal left
            left -= 1
            if block is not None:
                self._take_blocks([block], [cid])
            if cid not in self._fetched:
                self.lost.setdefault(cid, Missing.NOT_FOUND)
            if not left:
                self._then()

        for cid in batch:
            self._dht.find_block(cid, partial(found, cid))

    def _take_blocks(
        self, blocks: Iterable[bytes], wanted: list[Cid], sender: PeerId | None = None
    ) -> bool:
        """Keep events that were asked for by content id; True if there was one of them."""
        has_some = False
        for block in blocks:
            try:
                event = self._context.decode(block)
                if event.cid not in wanted:
                    raise RemoteError("a block not asked for", code=Rejection.NOT_ASKED_FOR)
            except RemoteError as error:
                if sender is not None:
                    self._lied(sender, error)
                    break
                self.lost.update(dict.fromkeys(wanted, Missing.REFUSED))
                continue
            has_some = has_some or event.cid not in self._fetched
            if event.topic == self.topic:
                self.keep(event)
            else:
                self.lost[event.cid] = Missing.REFUSED
        return has_some

    # By number.

    def note_barren(self, source: Source, number: int) -> None:
        """No member that was asked has a number, nor one of those right below it."""
        if not self.below(source, number):
            self._barren[source] = max(number, self._barren.get(source, 0))

    def _has(self, source: Source, number: int) -> bool:
        return number in self._numbers.get(source, ())

    def _sources_asked(self, source: Source, number: int) -> int:
        return self._numbers_asked.get((source, number), self._first_source)

    def is_exhausted(self, source: Source, number: int) -> bool:
        """Whether there is no further source to ask for a number."""
        asked = self._sources_asked(source, number)
        if asked and number <= self._barren.get(source, 0):
            return True
        if asked and self._members is None:
            return False
        return asked > min(MEMBERS_ASKED, len(self._members or ()))

    def ask_numbers(self, source: Source, low: int, high: int) -> None:
        """Ask the next source for a number and those below it."""
        asked = self._sources_asked(source, high)
        if not asked:
            self._load_numbers(source, max(low + 1, high - self._width() + 1), high)
        elif self._members is None:
            self._find_members()
        else:
            self._wait_for(self._members[asked - 1])
            self._ask_range(source, low, high)
            for other, span in self._open.numbers():
                if len(self._ranges) >= RANGES_MAX:
                    break
                if other != source and self._lacks(other, span, asked):
                    self._ask_range(other, span.low, span.high)

    def _lacks(self, source: Source, span: Span, asked: int) -> bool:
        """Whether the highest number of a span is to be asked for at the same source."""
        return (
            not span.pin
            and not self._has(source, span.high)
            and not self.is_exhausted(source, span.high)
            and self._sources_asked(source, span.high) == asked
        )

    def _load_numbers(self, source: Source, first: int, high: int) -> None:
        def loaded(answer: Events) -> None:
            last = high
            for _, event in answer.events:
                self.keep(event)
                last = event.sequence.number
            if last < high:
                self._load_numbers(source, last + 1, high)  # The answer was full.
                return
            self._numbers_asked[(source, high)] = 1
            self._then()

        size = self._parameters.range_bytes_max
        self._turn.load(LoadNumbers(self.topic, *source, first, high, size), Events, loaded)

    def _width(self) -> int:
        """How many numbers to ask for: a numbering's share of what the page still needs.

        So many also fit into one answer, as far as the events so far tell.
        """
        share = self.wanted // max(1, self._open.numbering_count)
        average = self._seen_bytes // max(1, self._seen_count) + 1
        return max(1, min(max(RANGE_MIN, share), self._parameters.range_bytes_max // average))

    def _ask_range(self, source: Source, low: int, high: int) -> None:
        assert self._asked is not None
        request = self._turn.new_id()
        first = max(low + 1, high - self._width() + 1)
        self._ranges[request] = (source, first, high)
        self._turn.send(self._asked, FetchRange(request, self.topic, *source, first, high))

    def receive_range(self, sender: PeerId, message: Range) -> bool:
        """Take a member's events; False if they are not for this walk."""
        if sender != self._asked or message.request not in self._ranges:
            return False
        source, first, high = self._ranges.pop(message.request)
        last = 0
        try:
            for block in message.blocks:
                event = self._context.decode(block)
                number = event.sequence.number
                is_asked_for = (event.numbered_by, event.sequence.epoch) == source
                if event.topic != self.topic or not is_asked_for or not first <= number <= high:
                    raise RemoteError("an event not asked for", code=Rejection.NOT_ASKED_FOR)
                self.keep(event)
                last = max(last, number)
        except RemoteError as error:
            self._ranges.clear()
            self._lied(sender, error)
        else:
            if message.more and first <= last < high:
                self._ask_range(source, last, high)
            else:
                self._numbers_asked[(source, high)] = 1 + self._sources_asked(source, high)
        if not self._ranges:
            self._stop_waiting()
            self._then()
        return True

    # Retired numberings.

    def must_ask_retired(self, source: Source) -> bool:
        """Whether a member is to be asked up to where a numbering is retired."""
        if source in self.retired:
            return False
        known = self._member_source.retired(self.topic, source)
        if known is not None:
            self.retired[source] = known
        return known is None and bool(self._members)

    def ask_retired(self, source: Source) -> None:
        """Ask a member up to where a numbering is retired."""
        assert self._members
        self.retired[source] = 0
        self._wait_for(self._members[0])
        mark = MarkState(*source, 0, 0, None)
        self._turn.send(self._members[0], FrontierPage(self.topic, (mark,), answer=True))

    def receive_marks(self, sender: PeerId, message: FrontierPage) -> None:
        """A member says how far numberings are retired."""
        if sender != self._asked or self._ranges:
            return
        for mark in message.marks:
            source = (mark.publisher, mark.epoch)
            if source in self.retired:
                self.retired[source] = max(mark.retired, self.retired[source])
        self._stop_waiting()
        self._then()

    # Members.

    def _find_members(self) -> None:
        def found(members: list[PeerId]) -> None:
            self._members = members
            self._then()

        self._member_source.find_members(self.topic, found)

    def _wait_for(self, member: PeerId) -> None:
        self._asked = member
        silent = partial(self.peer_lost, member)
        self._timer = self._turn.after(self._parameters.rpc_timeout_s, silent)

    def _stop_waiting(self) -> None:
        self._asked = None
        self._ranges.clear()
        self._turn.cancel(self._timer)

    def peer_lost(self, peer: PeerId) -> None:
        """A member that was asked does not answer."""
        if peer == self._asked:
            self._stop_waiting()
            self._drop(peer)
            self._then()

    def _lied(self, member: PeerId, error: RemoteError) -> None:
        self._context.rejected(member, self.topic, error)
        self._drop(member)

    def _drop(self, member: PeerId) -> None:
        """Ask a member no more."""
        self._member_source.failed(self.topic, member)
        if self._members and member in self._members:
            self._members.remove(member)
            if not self._members and not self._has_searched_again:
                self._has_searched_again = True
                self._members = None
