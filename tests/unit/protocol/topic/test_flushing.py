"""Long flushes: page by page, each once, and again where the start was not known."""

import pytest

from pulsarcast.model import trace
from pulsarcast.model.ids import Cid, cid_of
from pulsarcast.model.topics import DeliveryOrder, TopicSettings, next_version
from pulsarcast.protocol.dht import mark_pages
from pulsarcast.protocol.effects import Load, SetTimer, Trace
from pulsarcast.protocol.store import Block, DropState, LoadBlock, LoadLog, PutMark, PutState
from pulsarcast.protocol.topic.flow import FlowControl
from pulsarcast.protocol.topic.flushing import TABLE, Flushing
from pulsarcast.protocol.topic.frontier import Frontier
from pulsarcast.protocol.topic.handovers import Handovers
from pulsarcast.protocol.topic.keeping import Keeping
from pulsarcast.protocol.topic.log import PAGE
from pulsarcast.protocol.topic.packed_marks import place_of
from pulsarcast.protocol.topic.retirement import Retirement
from tests.support.marks import blocks_of, by_place, invented
from tests.support.parts import Dht
from tests.support.people import ALICE, CREATED_US, topic_of
from tests.unit.protocol.topic.bench import Bench

MARKS = by_place(invented(12))
BLOCKS = blocks_of(MARKS)
INDEX = cid_of(BLOCKS[0])
FIRST = topic_of(ALICE, TopicSettings(open=True, order=DeliveryOrder.PER_PUBLISHER))
VERSION = next_version(
    ALICE, FIRST, FIRST.settings, created=CREATED_US, valid_until=(), flushed=INDEX
)


class Desk(Bench):
    """A topic whose newest version has a long flush, and a disk with some blocks."""

    def __init__(self, *due: Cid) -> None:
        super().__init__(FIRST)
        self.state.versions.add(VERSION)
        self.disk = {cid_of(block): block for block in BLOCKS}
        self.read: list[Cid] = []
        flow = FlowControl(self.state, self.members.overlay, self)
        handovers = Handovers(self.state)
        keeping = Keeping(self.state, handovers, flow, self.members.timer, self.owner)
        self.dht = Dht(self.context)
        retirement = Retirement(self.state, keeping)
        self.flushing = Flushing(self.state, self.dht.marks, retirement, due)

    def work(self) -> list[object]:
        """The disk answers and no peer does; returns everything else that was wanted."""
        wanted: list[object] = []
        while effects := self.effects():
            for each in effects:
                if isinstance(each, Load) and isinstance(each.query, LoadBlock):
                    self.read.append(each.query.cid)
                    self.turn.loaded(each.token, Block(self.disk.get(each.query.cid)))
                else:
                    wanted.append(each)
            while self.dht.finding:
                self.dht.found(None)
        return wanted

    def retired(self) -> list[int]:
        """Which of the marks are retired."""
        marks = [self.state.frontier.mark(*mark[:2]) for mark in MARKS]
        return [at for at, mark in enumerate(marks) if mark is not None and mark.retired == 7]


def writes(wanted: list[object]) -> list[object]:
    return [write for each in wanted for write in getattr(each, "writes", ())]


def test_pages_are_read_one_after_another_and_what_is_due_is_on_the_disk() -> None:
    desk = Desk()
    desk.flushing.want(VERSION)
    wanted = desk.work()
    assert desk.read == [cid_of(block) for block in BLOCKS]
    assert desk.retired() == list(range(12))
    first, *marks, last = writes(wanted)
    assert isinstance(first, PutState)
    assert first.row.key == FIRST.cid + INDEX
    assert all(isinstance(each, PutMark) for each in marks)
    assert len(marks) == 12
    assert last == DropState(TABLE, FIRST.cid + INDEX)
    assert [each.query for each in wanted if isinstance(each, Load)] == [
        LoadLog(FIRST.cid, 1, PAGE)
    ]
    said = [each.record for each in wanted if isinstance(each, Trace)]
    flushed = [each.flushed for each in said if isinstance(each, trace.TopicVersion)]
    assert flushed == [tuple(MARKS[:4]), tuple(MARKS[4:8]), tuple(MARKS[8:])]


def test_what_is_flushed_already_is_not_said_again() -> None:
    desk = Desk()
    desk.flushing.want(VERSION)
    desk.work()
    desk.flushing.want(VERSION)
    wanted = desk.work()
    assert not [each for each in wanted if isinstance(each, Trace)]
    assert not [each for each in writes(wanted) if isinstance(each, PutMark)]


def test_what_was_due_before_a_restart_is_read_from_its_first_page_on() -> None:
    desk = Desk(INDEX)
    desk.flushing.go_on()
    desk.work()
    assert desk.retired() == list(range(12))
    assert desk.flushing.forget() == []


def test_a_page_that_nobody_has_is_looked_for_again_after_the_others() -> None:
    desk = Desk()
    lost = cid_of(BLOCKS[2])
    block = desk.disk.pop(lost)
    desk.flushing.want(VERSION)
    (timer,) = [each for each in desk.work() if isinstance(each, SetTimer)]
    assert desk.retired() == [0, 1, 2, 3]
    desk.turn.fired(timer.timer)
    (timer,) = [each for each in desk.work() if isinstance(each, SetTimer)]
    assert desk.retired() == [0, 1, 2, 3, 8, 9, 10, 11]
    assert desk.flushing.forget() == [DropState(TABLE, FIRST.cid + INDEX)]
    desk.disk[lost] = block
    desk.turn.fired(timer.timer)
    desk.work()
    assert desk.retired() == list(range(12))


def test_marks_whose_part_of_the_start_is_missing_are_flushed_once_it_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mark_pages, "KEPT_MAX", 1)
    desk = Desk()
    part = place_of(*MARKS[5][:2])[:2]
    within = [at for at, mark in enumerate(MARKS) if place_of(*mark[:2])[:2] == part]
    desk.frontier.miss(part, b"x" * 16)
    desk.frontier.miss(b"\x0f" * 8, b"y" * 16)
    desk.flushing.want(VERSION)
    desk.work()
    assert desk.retired() == [at for at in range(12) if at not in within]
    desk.frontier.miss(part, bytes(16))
    loaded = Frontier()
    loaded.add(*MARKS[5][:2], 1, None)
    desk.read.clear()
    desk.flushing.start_loaded(loaded.marks())
    desk.work()
    assert desk.retired() == list(range(12))
    assert desk.read == [INDEX, cid_of(BLOCKS[2])]


def test_nothing_is_read_once_the_topic_is_left() -> None:
    desk = Desk()
    desk.flushing.want(VERSION)
    desk.state.ended = True
    desk.work()
    assert desk.retired() == []
    assert len(desk.read) == 1
