"""Pages of marks: found where they are, kept for a while, and refused where they are not right."""

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, cast

import pytest

from pulsarcast.model.ids import Cid, cid_key, cid_of
from pulsarcast.model.mark_blocks import decode_marks, mark_place
from pulsarcast.model.topics import Mark
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.dht import mark_pages
from pulsarcast.protocol.dht.expiry import Lifetime, topic_lifetime
from pulsarcast.protocol.dht.mark_pages import MarkPages
from pulsarcast.protocol.effects import Load, Persist, SetTimer
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.store import Block, LoadBlock, PutBlock
from pulsarcast.protocol.turn import Turn
from tests.support.marks import blocks_of, by_place, index_of, invented, page_of
from tests.support.people import ALICE

MARKS = by_place(invented(20))


class Library:
    """Blocks on the disk and in the DHT, and a node that reads them."""

    def __init__(self, *blocks: bytes) -> None:
        self.turn = Turn(ALICE, Random(1))
        context = Context(self.turn, Parameters())
        self.disk: dict[Cid, bytes] = {}
        self.dht = {cid_of(block): block for block in blocks}
        self.asked: list[Cid] = []
        self.stored: list[list[bytes]] = []
        self.pages = MarkPages(context, cast("Any", self), cast("Any", self), self.find_block)

    def find_block(self, cid: Cid, then: Callable[[bytes | None], None]) -> None:
        self.asked.append(cid)
        then(self.dht.get(cid))

    def own_replica(self, cid: Cid, block: bytes, lifetime: Lifetime) -> PutBlock:
        return PutBlock(cid, block, cid_key(cid), lifetime.expires_us)

    def sync(self) -> None:
        """The disk writes what is to be kept."""
        for each in self.turn.effects:
            if isinstance(each, Persist):
                puts = [write for write in each.writes if isinstance(write, PutBlock)]
                self.disk.update({write.cid: write.block for write in puts})
                self.expires_us = {write.expires_us for write in puts}

    def store(
        self, blocks: list[bytes], then: Callable[[list[int]], None], *, keep_local: bool
    ) -> None:
        self.stored.append(blocks)
        then([0] * len(blocks))

    def read(self) -> None:
        """The disk answers until nothing more is asked."""
        while loads := [each for each in self.turn.effects if isinstance(each, Load)]:
            self.turn.effects = []
            for each in loads:
                assert isinstance(each.query, LoadBlock)
                self.turn.loaded(each.token, Block(self.disk.get(each.query.cid)))

    def find(self, mark: Mark, *indexes: Cid) -> bool:
        found: list[bool] = []
        self.pages.find(indexes, mark[:2], found.append)
        self.read()
        (is_found,) = found
        return is_found


def test_a_mark_is_found_by_way_of_the_index_and_one_page() -> None:
    blocks = blocks_of(MARKS)
    library, index = Library(*blocks), cid_of(blocks[0])
    assert library.pages.number(index, MARKS[5][:2]) is None
    assert library.find(MARKS[5], index)
    assert library.pages.number(index, MARKS[5][:2]) == 7
    assert library.asked == [index, cid_of(blocks[2])]
    assert library.pages.number(index, MARKS[6][:2]) == 7, "of the same page"
    assert library.pages.number(index, MARKS[0][:2]) is None, "of another one"


def test_a_numbering_without_a_mark_has_the_number_zero() -> None:
    blocks = blocks_of(MARKS[1:])
    library, index = Library(*blocks), cid_of(blocks[0])
    assert library.find(MARKS[0], index), "before the first page"
    assert library.find(MARKS[2]._replace(epoch=1), index)
    for each in (MARKS[0], MARKS[2]._replace(epoch=1)):
        assert library.pages.number(index, each[:2]) == 0


def test_what_is_on_the_disk_is_not_asked_for() -> None:
    blocks = blocks_of(MARKS)
    library = Library()
    library.pages.keep(blocks)
    library.sync()
    assert library.find(MARKS[5], cid_of(blocks[0]))
    assert library.asked == []
    lifetime = topic_lifetime(decode_marks(blocks[0]), Parameters())
    assert library.expires_us == {lifetime.expires_us}


def test_the_marks_of_all_frontiers_are_there_once_they_are_found() -> None:
    frontiers = [blocks_of([mark._replace(number=n) for mark in MARKS]) for n in range(1, 9)]
    library = Library(*(block for blocks in frontiers for block in blocks))
    indexes = [cid_of(blocks[0]) for blocks in frontiers]
    assert library.find(MARKS[5], *indexes)
    numbers = [library.pages.number(index, MARKS[5][:2]) for index in indexes]
    assert numbers == list(range(1, 9))


def test_more_frontiers_than_pages_in_memory_are_found_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Or an event would be looked for again and again, and never be judged."""
    monkeypatch.setattr(mark_pages, "KEPT_MAX", 2)
    frontiers = [blocks_of([mark._replace(number=n) for mark in MARKS]) for n in range(1, 9)]
    library = Library(*(block for blocks in frontiers for block in blocks))
    indexes = [cid_of(blocks[0]) for blocks in frontiers]
    assert library.find(MARKS[5], *indexes)
    assert None not in [library.pages.number(index, MARKS[5][:2]) for index in indexes]
    assert library.pages.footprint() == {"mark_blocks": 2, "mark_callers": 0}


def test_marks_that_are_found_are_there_for_their_caller_whoever_else_looks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mark_pages, "KEPT_MAX", 1)
    monkeypatch.setattr(mark_pages, "NUMBERS_MAX", 8)
    frontiers = [blocks_of([mark._replace(number=n) for mark in MARKS]) for n in range(1, 9)]
    library = Library(*(block for blocks in frontiers for block in blocks))
    indexes = [cid_of(blocks[0]) for blocks in frontiers]
    seen: list[list[int | None]] = []

    def look(mark: Mark, _: bool) -> None:
        seen.append([library.pages.number(each, mark[:2]) for each in indexes])

    for mark in (MARKS[0], MARKS[9], MARKS[19]):
        library.pages.find(indexes, mark[:2], partial(look, mark))
    library.read()
    assert seen == [list(range(1, 9))] * 3


@pytest.mark.parametrize("missing", [0, 2])
def test_what_nobody_has_is_not_found(missing: int) -> None:
    blocks = blocks_of(MARKS)
    library = Library(*(block for at, block in enumerate(blocks) if at != missing))
    assert not library.find(MARKS[5], cid_of(blocks[0]))
    assert library.pages.footprint()["mark_callers"] == 0
    library.dht[cid_of(blocks[missing])] = blocks[missing]
    assert library.find(MARKS[5], cid_of(blocks[0])), "it is looked for again"


def test_a_page_that_is_not_as_the_index_says_is_not_found() -> None:
    places = [mark_place(*mark[:2]) for mark in MARKS]
    page = page_of(MARKS[:8])
    for wrong in (
        index_of([(places[1], page)]),
        index_of([(places[0], page), (places[7], page_of(MARKS[8:]))]),
        index_of([(places[0], page_of(MARKS[:8][::-1]))]),
        index_of([(places[0], blocks_of(MARKS)[0])]),
    ):
        library = Library(wrong, page, page_of(MARKS[:8][::-1]), *blocks_of(MARKS))
        assert not library.find(MARKS[3], cid_of(wrong))
        assert library.pages.number(cid_of(wrong), MARKS[3][:2]) is None


def test_a_page_is_no_index() -> None:
    page = page_of(MARKS)
    assert not Library(page).find(MARKS[3], cid_of(page))


def test_those_that_wait_for_one_block_ask_once() -> None:
    blocks = blocks_of(MARKS)
    library, index = Library(*blocks), cid_of(blocks[0])
    found: list[bool] = []
    for mark in MARKS[:3]:
        library.pages.find([index], mark[:2], found.append)
    library.read()
    assert found == [True] * 3
    assert library.asked == [index, cid_of(blocks[1])]


def test_a_bounded_number_of_callers_wait() -> None:
    blocks = blocks_of(MARKS)
    library = Library(*blocks)
    found: list[bool] = []
    for _ in range(mark_pages.WAITING_MAX + 1):
        library.pages.find([cid_of(blocks[0])], MARKS[0][:2], found.append)
    assert found == [False]
    library.read()
    assert found == [False] + [True] * mark_pages.WAITING_MAX


def test_a_bounded_number_of_marks_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mark_pages, "NUMBERS_MAX", 3)
    monkeypatch.setattr(mark_pages, "KEPT_MAX", 1)
    blocks = blocks_of(MARKS)
    library, index = Library(*blocks), cid_of(blocks[0])
    for mark in MARKS[:4]:
        assert library.find(mark, index)
    known = [library.pages.number(index, mark[:2]) for mark in MARKS[:4]]
    assert known == [None, 7, 7, 7]


def test_own_blocks_are_placed_a_few_at_a_time() -> None:
    library, done = Library(), list[bool]()
    blocks = blocks_of(invented(60))
    library.pages.place(blocks, lambda: done.append(True))
    while timers := [each for each in library.turn.effects if isinstance(each, SetTimer)]:
        assert not done
        library.turn.effects = []
        for each in timers:
            library.turn.fired(each.timer)
    assert done == [True]
    assert [len(each) for each in library.stored] == [8, 8]
    assert [block for each in library.stored for block in each] == blocks
