"""The subscriber's side of comparing: routing makes it fast, the frontier makes it complete.

We compare with two members at a time, each by itself: how far its log was looked through, and where
the numberings stood then. Our frontier is what both have confirmed, so that one that leaves events
out is found out by the other. Where a member is lost the next one goes on from its marks.
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
"""Members that a subscriber compares with (docs/spec/content.md, Compare)."""
HAVE_MAX = 4096
"""Events named in one question."""
MARKS_MAX = 4096
"""Numberings shown to a member that is new to us; where there are more it looks through all."""
START_MARKS_MAX = 65_536
"""Numberings that one member can make us remember, at our start or later: it may make them up."""
LATE_MAX = 16
"""So many members in a row that began too late for us, and what lies before is given up."""
SOON_S = 0.1
"""How long after an event of an ordered topic came we ask for its turn."""


class ComparingOwner(Protocol):
    """What comparing asks of the topic that it compares."""

    @property
    def id(self) -> Cid: ...
    @property
    def is_ordered(self) -> bool: ...

    def filters(self) -> tuple[str, ...]:
        """The filters that members are asked to match."""

    def find_members(self, then: Callable[[list[PeerId]], None]) -> None:
        """Find some members; `then` gets an empty list where none was found."""

    def start(self, marks: dict[Source, int]) -> None:
        """The first member has said where its numberings stand."""

    def compared(self, sender: PeerId, message: ContentCompared, decides: bool) -> bool:
        """Take what a member found, and whether its log decides the order; False: not yet."""

    def confirmed(self, marks: dict[Source, int]) -> None:
        """Two members have shown all that matches up to here."""


class _Slot:
    """One of the members that we compare with."""

    __slots__ = ("base", "log", "marks", "member", "moved", "place", "request", "timer")

    def __init__(self) -> None:
        self.member: PeerId | None = None
        self.log = 0
        self.place = 0
        self.base = 0
        self.marks: dict[Source, int] = {}
        """Where its numberings stand: all that matches up to there came to us."""
        self.moved: dict[Source, int] = {}
        """What the answer that is just coming says of them; it counts once all of it is here."""
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
        """Members in a row that began too late for us."""
        self._owed: dict[Source, int] = {}
        """Numberings of which one member said more than the other so far."""

    def __len__(self) -> int:
        """Numberings that members' words make us remember."""
        each = (len(slot.marks) + len(slot.moved) for slot in self._slots)
        return sum(each) + len(self._owed) + len(self._starting)

    def open(self, marks: dict[Source, int] | None) -> None:
        """Begin: with where we stand, or by learning where others stand."""
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
        """Whom we compare with."""
        return [slot.member for slot in self._slots if slot.member is not None]

    def came(self, cid: Cid) -> None:
        """An event came by another way: nobody needs to send it."""
        self._have[id_of(cid)] = self._turn.now
        if len(self._have) > HAVE_MAX:
            del self._have[next(iter(self._have))]

    def ask_soon(self) -> None:
        """Something waits for its turn: ask the member whose log decides it."""
        if self._soon is None:
            self._soon = self._turn.after(SOON_S, self._ask_first)

    def _ask_first(self) -> None:
        self._soon = None
        if self._slots[0].member is not None and not self._slots[0].request:
            self._ask(self._slots[0])

    def _tick(self) -> None:
        """Ask all that we compare with; find members where we have too few."""
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
        """What came in the last two rounds: a member may have got it a little later than we."""
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
        """A version was looked for that an answer named: ask its member again, or another."""
        for slot in self._slots:
            if slot.member == member and not slot.request:
                if is_known:
                    self._ask(slot)
                else:
                    self._drop(slot)

    def _confirm(self, slot: _Slot) -> None:
        """Both members' words together move our frontier; where there is one only, its word."""
        moved, slot.moved = slot.moved, {}
        if not _raise(slot, moved):
            self._too_many(slot)
            return
        self._late = 0
        # One that we have asked and that has not answered yet stands where it stood.
        speaking = [each for each in self._slots if each.member is not None]
        if self._is_ordered and self._slots[0] not in speaking:
            # What waits for the first one's word must not count as had on another's.
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
        """It is no member, or its log begins behind what we have compared: another may help.

        Where member after member began too late, nobody has any more what lies between.
        """
        if slot.log and not late:
            # It may have begun anew: asked for the first time, it is shown where we stand.
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
        """More numberings than anybody can have: whoever made them up, we go on with another."""
        self._counts["content_marks_too_many"] += 1
        self._drop(slot)

    def _drop(self, slot: _Slot) -> None:
        """Go on with another member, from where this one left us."""
        self._done(slot)
        slot.member = None
        slot.moved = {}
        slot.log = slot.place = slot.base = 0
        self._starting.clear()
        first, *others = self._slots
        if self._is_ordered and slot is first:
            # Somebody has to decide: one that we know takes its place, and lists from there.
            for other in others:
                if other.member is not None and first.member is None:
                    first.member = other.member
                    self._done(other)
                    other.member = None
                    other.log = other.place = other.base = 0

    def lost(self, peer: PeerId) -> None:
        """A connection ended: what we asked will not be answered."""
        for slot in self._slots:
            if slot.member == peer and slot.request:
                self._drop(slot)


def _raise(slot: _Slot, marks: dict[Source, int]) -> bool:
    """Move a slot's marks up; False where they became too many.

    Then they are forgotten, the real ones too: the next member looks through all of its log, and
    names them again.
    """
    for source, high in marks.items():
        slot.marks[source] = max(high, slot.marks.get(source, 0))
    if len(slot.marks) <= START_MARKS_MAX:
        return True
    slot.marks = {}
    return False
