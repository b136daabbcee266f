"""Packed marks: what was packed comes out again, and names take no more than they must."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsarcast.model.ids import CID_PREFIX, PEER_ID_PREFIX, Cid, PeerId, cid_of
from pulsarcast.protocol.store import MarkState
from pulsarcast.protocol.topic.packed_marks import (
    find,
    mark_of,
    pack,
    place_of,
    place_of_row,
    row_of,
    unpack,
)
from tests.support.people import peer

numbers = st.integers(0, 2**63 - 1)
names = st.one_of(
    st.binary(min_size=32, max_size=32).map(PEER_ID_PREFIX.__add__), st.binary(max_size=40)
)
cids = st.one_of(
    st.none(), st.binary(min_size=32, max_size=32).map(CID_PREFIX.__add__), st.binary(max_size=40)
)
marks = st.builds(
    MarkState,
    names.map(PeerId),
    numbers,
    numbers,
    numbers,
    cids.map(lambda cid: None if cid is None else Cid(cid)),
    st.lists(numbers, max_size=3).map(tuple),
    numbers,
)


@given(st.lists(marks, max_size=40))
def test_what_was_packed_comes_out_again(given_marks: list[MarkState]) -> None:
    assert list(map(mark_of, unpack(pack(map(row_of, given_marks))))) == given_marks


@given(marks)
def test_a_packed_mark_is_at_the_place_of_its_numbering(mark: MarkState) -> None:
    assert place_of_row(row_of(mark)) == place_of(mark.publisher, mark.epoch)


@pytest.mark.parametrize("publisher", [peer("ann"), PeerId(b"another kind"), PeerId(b"")])
def test_one_of_many_is_found_by_publisher_and_epoch(publisher: PeerId) -> None:
    held = [MarkState(who, 1, 0, 3, None) for who in (peer("ben"), publisher, peer("cleo"))]
    packed = pack(map(row_of, held))
    assert find(packed, publisher, 1) == held[1]
    assert find(packed, publisher, 2) is None
    assert find(packed, peer("dan"), 1) is None


def test_a_packed_mark_takes_no_more_memory_than_its_names_and_a_little() -> None:
    quiet = MarkState(peer("ann"), 2**62, 0, 100, cid_of(b"an event"))
    packed = pack(row_of(quiet) for _ in range(16))
    assert len(packed) < 16 * (32 + 8 + 32 + 14)
    # And nothing beside them: msgspec's own bytes have room for more.
    assert packed.__sizeof__() <= len(packed) + 33
