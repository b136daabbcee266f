"""Blocks of marks: what is written is found again, and nothing else is read."""

from random import Random

import pytest

from pulsarcast.model.cbor import INT_MAX, decode, encode, opaque
from pulsarcast.model.errors import LocalError, Rejection, RemoteError
from pulsarcast.model.ids import PEER_ID_PREFIX, PeerId, cid_of
from pulsarcast.model.mark_blocks import (
    MARKS_BYTES_MAX,
    ROW_BYTES,
    ROWS_MAX,
    MarkIndex,
    MarkPage,
    decode_marks,
    make_mark_blocks,
    mark_place,
)
from pulsarcast.model.topics import Mark
from pulsarcast.protocol.topic.packed_marks import place_of
from tests.support.marks import blocks_of, by_place, index_of, invented, page_of, row_of, signed
from tests.support.people import ALICE, BOB, CREATED_US, EPOCH


def index_at(block: bytes) -> MarkIndex:
    found = decode_marks(block)
    assert isinstance(found, MarkIndex)
    return found


def page_at(block: bytes) -> MarkPage:
    found = decode_marks(block)
    assert isinstance(found, MarkPage)
    return found


def test_every_mark_is_found_in_the_page_of_its_place() -> None:
    rng = Random(1)
    marks = [
        Mark(
            PeerId(PEER_ID_PREFIX + rng.randbytes(32)), rng.randrange(1 << 63), rng.randrange(1, 9)
        )
        for _ in range(1000)
    ]
    blocks = blocks_of(marks, 64)
    index, pages = index_at(blocks[0]), list(map(page_at, blocks[1:]))
    assert len(index) == len(pages) == 16
    assert [index.page(at) for at in range(len(index))] == [each.cid for each in pages]
    for mark in marks:
        at = index.page_at(mark_place(mark.publisher, mark.epoch))
        assert index.names(at, pages[at])
        assert pages[at].number(mark.publisher, mark.epoch) == mark.number
        assert pages[at].number(mark.publisher, mark.epoch ^ 1) == 0
    found = [mark for page in pages for mark in page.marks()]
    assert found == by_place(marks)


def test_a_place_before_the_first_page_has_none() -> None:
    index = index_at(blocks_of(invented(20))[0])
    assert index.page_at(bytes(16)) == -1
    assert index.page_at(b"\xff" * 16) == len(index) - 1


def test_places_are_those_of_a_frontiers_hash_tree() -> None:
    assert bytes.fromhex("".join(f"{step:x}" for step in place_of(BOB.peer_id, EPOCH))) == (
        mark_place(BOB.peer_id, EPOCH)
    )


def test_the_order_in_which_marks_are_given_does_not_matter() -> None:
    marks = invented(30)
    assert blocks_of(marks) == blocks_of(marks[::-1])


def test_a_page_is_only_one_that_the_index_names_with_its_range() -> None:
    marks = by_place(invented(8))
    places = [mark_place(mark.publisher, mark.epoch) for mark in marks]
    low, high = page_of(marks[:4]), page_of(marks[4:])
    index = index_at(index_of([(places[0], low), (places[4], high)]))
    assert index.names(0, page_at(low))
    assert not index.names(1, page_at(low))
    begins_elsewhere = index_at(index_of([(places[1], low), (places[4], high)]))
    assert not begins_elsewhere.names(0, page_at(low))
    reaches_too_far = index_at(index_of([(places[0], low), (places[3], high)]))
    assert not reaches_too_far.names(0, page_at(low))


def test_blocks_of_full_size_are_read_and_one_row_more_is_not_made() -> None:
    """The marks of 29 million numberings have one index."""
    marks = invented(ROWS_MAX)
    index, page = blocks_of(marks, ROWS_MAX)
    assert len(page_at(page)) == ROWS_MAX
    assert len(index_at(index)) == 1
    assert len(page) <= MARKS_BYTES_MAX
    many = blocks_of(marks, 1)
    assert len(index_at(many[0])) == ROWS_MAX
    with pytest.raises(LocalError, match=f"can name {ROWS_MAX} numberings, not {ROWS_MAX + 1}"):
        blocks_of(invented(ROWS_MAX + 1), 1)


@pytest.mark.parametrize(
    "mark",
    [
        Mark(BOB.peer_id, EPOCH, 0),
        Mark(BOB.peer_id, EPOCH, INT_MAX + 1),
        Mark(BOB.peer_id, INT_MAX + 1, 1),
    ],
)
def test_a_mark_out_of_bounds_is_refused(mark: Mark) -> None:
    with pytest.raises(RemoteError, match="out of bounds"):
        decode_marks(page_of([mark]))


def test_marks_and_pages_that_do_not_ascend_are_refused() -> None:
    marks = by_place(invented(3))
    page_at(page_of(marks))
    for wrong in (marks[::-1], [marks[0], marks[0]]):
        with pytest.raises(RemoteError, match="ascending") as refused:
            decode_marks(page_of(wrong))
        assert refused.value.code is Rejection.NOT_CANONICAL
    page = page_of(marks)
    with pytest.raises(RemoteError, match="ascending"):
        decode_marks(index_of([(b"b" * 16, page), (b"a" * 16, page)]))


@pytest.mark.parametrize("rows", [b"", bytes(ROW_BYTES - 1), bytes(ROW_BYTES + 1)])
def test_what_is_not_whole_rows_is_refused(rows: bytes) -> None:
    for key in ("marks", "pages"):
        with pytest.raises(RemoteError, match="rows"):
            decode_marks(signed(ALICE, key, rows))


def test_a_block_that_is_both_or_neither_or_too_large_is_refused() -> None:
    page = decode(page_of(invented(1)), size_max=1000)
    assert isinstance(page, dict)
    both = {**page, "pages": page["marks"]}
    neither = {key: value for key, value in page.items() if key != "marks"}
    for wrong in (both, neither):
        with pytest.raises(RemoteError, match="either marks or pages"):
            decode_marks(encode(wrong))
    with pytest.raises(RemoteError, match="oversize"):
        decode_marks(signed(ALICE, "pages", bytes(MARKS_BYTES_MAX)))


def test_a_block_that_its_signer_did_not_sign_is_refused() -> None:
    page = decode(page_of(invented(1)), size_max=1000)
    assert isinstance(page, dict)
    with pytest.raises(RemoteError, match="signature"):
        decode_marks(encode({**page, "signer": BOB.peer_id}))
    with pytest.raises(RemoteError, match="signature"):
        decode_marks(encode({**page, "marks": opaque(row_of(Mark(BOB.peer_id, 1, 1)))}))


def test_what_is_signed_anew_has_another_cid() -> None:
    marks = invented(3)
    again = make_mark_blocks(ALICE, marks, created=CREATED_US + 1, page_marks=4)
    assert cid_of(again[0]) != cid_of(blocks_of(marks)[0])
