"""Comparing, the subscriber's side: asks two members for matching events that routing missed.

docs/spec/content.md, Compare.

The subscriber compares with two members at a time, each by itself. Per member it keeps how far
that member's log was searched, and where the numberings stood then. The frontier is what both
members have confirmed, so that the second finds the events that the first leaves out. When a
member is lost, the next one goes on from its marks.
"""

from collections.abc import Callable
from typing import Protocol

from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.protocol.content.members import id_of
from pulsarcast.protocol.content.messages import MARKS_LEFT_OUT, CompareContent, ContentCompared
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.store import MarkState
from pulsarcast.protocol.topic.frontier import Source

MEMBERS = 2
"""Members that a subscriber compares with: two, so that one finds what the other leaves out
(docs/spec/content.md, Compare)."""
HAVE_MAX = 4096
"""Bounds the events named in one question."""
MARKS_MAX = 4096
"""Bounds the numberings shown to a member that is asked for the first time; if there are more, it
searches its whole log."""
START_MARKS_MAX = 65_536
"""Bounds the numberings remembered of one member, at the start or later: it may make them up."""
LATE_MAX = 16
"""Members in a row whose logs begin too late, after which earlier events are given up."""
SOON_S = 0.1
"""Delay after an event of an ordered topic, before the member whose log decides is asked for its
turn: events that arrive together need one question."""


class ComparingOwner(Protocol):
    """Asked of the topic that is compared."""

    @property
    def id(self) -> Cid: ...
    @property
    def is_ordered(self) -> bool: ...

    def filters(self) -> tuple[str, ...]:
        """The filters that members are asked to match."""

    def find_members(self, then: Callable[[list[PeerId]], None]) -> None:
        """Find some members; `then` gets an empty list if none was found."""

    def start(self, marks: dict[Source, int]) -> None:
        """The first member has said where its numberings stand."""

    def compared(self, sender: PeerId, message: ContentCompared, decides: bool) -> bool:
        """Take a member's findings, and whether its log decides the order; False: not yet."""

    def confirmed(self, marks: dict[Source, int]) -> None:
        """Two members have shown all matching events up to these marks."""


class _Slot:
    """One of the members that the subscriber compares with."""

    __slots__ = ("base", "log", "marks", "member", "moved", "place", "request", "timer")

    def __init__(self) -> None:
        self.member: PeerId | None = None
        self.log = 0
        self.place = 0
        self.base = 0
        self.marks: dict[Source, int] = {}
        """Numbers up to which its log was searched: all matching events before have arrived."""
        self.moved: dict[Source, int] = {}
        """Marks of an answer that is still arriving; they count once all of it is here."""
        self.request = 0
        self.timer: int | None = None


class Comparing:
    """Compares one topic's matching events with two of its members."""

    def __init__(self, context: Context, owner: ComparingOwner) -> None:
        self._owner = owner
        self._turn = context.turn
        self._interval_s = context.parameters.content_compare_s
        self._timeout_s = 2 * context.parameters.rpc_timeout_s
        self._is_ordered = owner.is_ordered
        """Whether the first member's log decides the order."""
        self._counts = context.counts
        self._slots = [_Slot() for _ in range(MEMBERS)]
        self._have: dict[bytes, float] = {}
        self.started = False
        self._starting: dict[Source, int] = {}
        self._timer: int | None = None
        self._searching = False
        self._soon: int | None = None
        self._late = 0
        """Members in a row whose logs begin too late."""
        self._owed: dict[Source, int] = {}
        """Numberings of which one member has reported more than the other so far."""

    def __len__(self) -> int:
        """How many numberings of members are remembered."""
        each = (len(slot.marks) + len(slot.moved) for slot in self._slots)
        return sum(each) + len(self._owed) + len(self._starting)

    def open(self, marks: dict[Source, int] | None) -> None:
        """Begin: from the subscriber's own marks, or by learning those of a member."""
        if marks is not None:
            self.started = True
            for slot in self._slots:
                slot.marks = dict(marks)
        self._tick()

    def close(self) -> None:
        """Compare no more."""
        self._turn.cancel(self._timer)
        self._turn.cancel(self._soon)
        for slot in self._slots:
            self._turn.cancel(slot.timer)
            slot.request = 0

    @property
    def members(self) -> list[PeerId]:
        """The members that the subscriber compares with."""
        return [slot.member for slot in self._slots if slot.member is not None]

    def came(self, cid: Cid) -> None:
        """An event came by routing: no member needs to send it."""
        self._have[id_of(cid)] = self._turn.now
        if len(self._have) > HAVE_MAX:
            del self._have[next(iter(self._have))]

    def ask_soon(self) -> None:
        """An event waits for its turn: ask the member whose log decides it."""
        if self._soon is None:
            self._soon = self._turn.after(SOON_S, self._ask_first)

    def _ask_first(self) -> None:
        self._soon = None
        if self._slots[0].member is not None and not self._slots[0].request:
            self._ask(self._slots[0])

    def _tick(self) -> None:
        """Ask all members that the subscriber compares with; find more if there are too few."""
        wait_s = self._interval_s if self.started else min(self._interval_s, 1.0)
        self._timer = self._turn.after(self._turn.jitter(wait_s), self._tick)
        if any(slot.member is None for slot in self._slots) and not self._searching:
            self._searching = True
            self._owner.find_members(self._found)
        for slot in self._slots if self.started else self._slots[:1]:
            if slot.member is not None and not slot.request:
                self._ask(slot)

    def _found(self, members: list[PeerId]) -> None:
        self._searching = False
        others = [peer for peer in members if peer not in self.members]
        self._turn.rng.shuffle(others)
        for slot in self._slots:
            if slot.member is None and others:
                slot.member = others.pop()
                slot.log = slot.place = slot.base = 0
                if self.started or slot is self._slots[0]:
                    self._ask(slot)

    def _ask(self, slot: _Slot) -> None:
        assert slot.member is not None
        slot.request = self._turn.new_id()
        slot.moved = {}
        number = slot.request
        slot.timer = self._turn.after(self._timeout_s, lambda: self._gave_up(slot, number))
        fresh = not self.started
        marks: tuple[MarkState, ...] = ()
        shown_none = slot.log == 0 and not fresh and len(slot.marks) > MARKS_MAX
        if slot.log == 0 and not fresh and not shown_none:
            marks = tuple(
                MarkState(publisher, epoch, 0, high, None)
                for (publisher, epoch), high in slot.marks.items()
            )
        question = CompareContent(
            number,
            self._owner.id,
            self._owner.filters(),
            slot.log,
            MARKS_LEFT_OUT if shown_none else slot.place,
            slot.base,
            self._names(),
            marks,
            fresh,
        )
        self._turn.send(slot.member, question)

    def _names(self) -> bytes:
        """Events of the last two rounds: a member may have got one later than the subscriber."""
        since_s = self._turn.now - 2.5 * self._interval_s
        while self._have:
            oldest = next(iter(self._have))
            if self._have[oldest] >= since_s:
                break
            del self._have[oldest]
        return b"".join(self._have)

    def receive(self, sender: PeerId, message: ContentCompared) -> None:
        """A member answers."""
        slot = next(
            (
                slot
                for slot in self._slots
                if slot.member == sender and slot.request == message.request and slot.request
            ),
            None,
        )
        if slot is None:
            return
        if message.log == 0:
            self._refused(slot, message.marks)
            return
        if not self.started:
            self._learn_start(slot, message)
            return
        for mark in message.marks:
            slot.moved[(mark.publisher, mark.epoch)] = mark.high
        if len(slot.moved) > START_MARKS_MAX:
            self._too_many(slot)
            return
        if message.more:
            return
        self._done(slot)
        if not self._owner.compared(sender, message, slot is self._slots[0]):
            return
        slot.log, slot.place = message.log, message.place
        if message.place >= message.newest:
            slot.base = message.place
            self._confirm(slot)
        else:
            self._ask(slot)

    def again(self, member: PeerId, *, is_known: bool) -> None:
        """A version that an answer named was looked for: ask its member again, or another."""
        for slot in self._slots:
            if slot.member == member and not slot.request:
                if is_known:
                    self._ask(slot)
                else:
                    self._drop(slot)

    def _confirm(self, slot: _Slot) -> None:
        """Move the frontier to what both members say; if there is only one, to what it says."""
        moved, slot.moved = slot.moved, {}
        if not _raise(slot, moved):
            self._too_many(slot)
            return
        self._late = 0
        # A member that was asked and has not answered yet stands where it stood.
        speaking = [each for each in self._slots if each.member is not None]
        if self._is_ordered and self._slots[0] not in speaking:
            # Events that wait for the first member's order must not count as held yet.
            speaking.append(self._slots[0])
        sources = moved | self._owed
        sure = {source: min(each.marks.get(source, 0) for each in speaking) for source in sources}
        self._owed = {
            source: 0
            for source in sources
            if any(sure[source] < each.marks.get(source, 0) for each in speaking)
        }
        self._owner.confirmed(sure)

    def _refused(self, slot: _Slot, late: tuple[MarkState, ...]) -> None:
        """It is no member, or its log begins behind the subscriber's marks: find another.

        If `LATE_MAX` members in a row began too late, no member holds what lies between.
        """
        if slot.log and not late:
            # It may have begun anew: asked for the first time, it is shown the subscriber's marks.
            self._done(slot)
            slot.moved = {}
            slot.log = slot.place = slot.base = 0
            self._ask(slot)
            return
        self._late += bool(late)
        if late and self._late >= LATE_MAX:
            self._late = 0
            self._counts["content_skipped"] += 1
            begins = {(mark.publisher, mark.epoch): mark.high for mark in late}
            for each in self._slots:
                _raise(each, begins)
            self._owner.confirmed(begins)
        self._drop(slot)

    def _learn_start(self, slot: _Slot, message: ContentCompared) -> None:
        for mark in message.marks:
            self._starting[(mark.publisher, mark.epoch)] = mark.high
        if len(self._starting) > START_MARKS_MAX:
            self._starting.clear()
            self._drop(slot)
            return
        if message.more:
            return
        self._done(slot)
        self.started = True
        slot.log, slot.place, slot.base = message.log, message.place, message.place
        for each in self._slots:
            each.marks = dict(self._starting)
        self._owner.start(self._starting)
        self._starting = {}

    def _done(self, slot: _Slot) -> None:
        slot.request = 0
        self._turn.cancel(slot.timer)

    def _gave_up(self, slot: _Slot, number: int) -> None:
        if slot.request == number:
            self._counts["content_member_silent"] += 1
            self._drop(slot)

    def _too_many(self, slot: _Slot) -> None:
        """The member names more numberings than a topic can have: go on with another."""
        self._counts["content_marks_too_many"] += 1
        self._drop(slot)

    def _drop(self, slot: _Slot) -> None:
        """Go on with another member, from this one's marks."""
        self._done(slot)
        slot.member = None
        slot.moved = {}
        slot.log = slot.place = slot.base = 0
        self._starting.clear()
        first, *others = self._slots
        if self._is_ordered and slot is first:
            # One member has to decide the order: a known one takes its place, and lists from there.
            for other in others:
                if other.member is not None and first.member is None:
                    first.member = other.member
                    self._done(other)
                    other.member = None
                    other.log = other.place = other.base = 0

    def lost(self, peer: PeerId) -> None:
        """A connection ended: the peer will not answer."""
        for slot in self._slots:
            if slot.member == peer and slot.request:
                self._drop(slot)


def _raise(slot: _Slot, marks: dict[Source, int]) -> bool:
    """Move a slot's marks up; False if they became too many.

    Then all are forgotten, the real ones too: the next member searches its whole log, and names
    them again.
    """
    for source, high in marks.items():
        slot.marks[source] = max(high, slot.marks.get(source, 0))
    if len(slot.marks) <= START_MARKS_MAX:
        return True
    slot.marks = {}
    return False
