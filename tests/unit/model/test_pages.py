"""Pages of a log: what goes in comes out, and nothing else passes for one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsarcast.model.errors import RemoteError
from pulsarcast.model.pages import decode_page, encode_page

events = st.lists(
    st.tuples(st.integers(1, 1 << 62), st.integers(0, 1 << 62), st.binary(max_size=50)),
    unique_by=lambda event: event[0],
).map(sorted)


@given(events)
def test_what_goes_in_comes_out(given_events: list[tuple[int, int, bytes]]) -> None:
    page = decode_page(encode_page(given_events))
    assert len(page) == len(given_events)
    found = zip(page.indices, page.received_us, page.blocks(), strict=True)
    assert list(found) == given_events


def test_the_layout_is_the_one_that_is_written_down() -> None:
    body = encode_page([(1, 2, b"ab"), (5, 7, b"c")])
    numbers = [2, 1, 0, 5, 0, 2, 0, 7, 0, 0, 2, 3]  # of four bytes each
    assert body == b"PCL1" + b"".join(n.to_bytes(4, "little") for n in numbers) + b"abc"


@given(events, st.data())
def test_a_page_that_is_cut_off_is_refused(
    given_events: list[tuple[int, int, bytes]], data: st.DataObject
) -> None:
    body = encode_page(given_events)
    cut = data.draw(st.integers(0, len(body) - 1))
    with pytest.raises(RemoteError):
        decode_page(body[:cut])


@given(st.binary(max_size=200))
def test_anything_else_is_refused(body: bytes) -> None:
    for attempt in (body, b"PCL1" + body):
        try:
            page = decode_page(attempt)
        except RemoteError:
            continue
        # By chance it was one: then it is written the same way.
        found = zip(page.indices, page.received_us, page.blocks(), strict=True)
        assert encode_page(list(found)) == attempt


@pytest.mark.parametrize("indices", [(2, 1), (1, 1)])
def test_a_page_out_of_order_is_refused(indices: tuple[int, int]) -> None:
    with pytest.raises(RemoteError, match="out of order"):
        decode_page(encode_page([(index, 0, b"") for index in indices]))
