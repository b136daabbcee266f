from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsarcast.client import sse
from pulsarcast.client.sse import Message, SseParser, TooLongError


def parse(*chunks: bytes) -> list[Message]:
    parser = SseParser()
    return [message for chunk in chunks for message in parser.feed(chunk)]


def test_a_message_has_a_kind_data_and_an_id() -> None:
    assert parse(b"id: 7\nevent: end\ndata: one\ndata:two\n\n") == [
        Message(b"end", b"one\ntwo", b"7")
    ]


def test_comments_and_unknown_fields_say_nothing() -> None:
    assert parse(b": here\n\nretry: 5\nwhatever\ndata: x\n\n") == [Message(b"", b"x", b"")]


def test_an_id_stays_until_there_is_another() -> None:
    assert [each.id for each in parse(b"id: 1\ndata: a\n\ndata: b\n\nid\ndata: c\n\n")] == [
        b"1",
        b"1",
        b"",
    ]


def test_an_id_with_a_zero_byte_is_none() -> None:
    assert parse(b"id: 1\0\ndata: a\n\n") == [Message(b"", b"a", b"")]


def test_a_stream_says_where_it_is_without_a_message() -> None:
    parser = SseParser()
    assert parser.feed(b"id: 41\n") == []
    assert parser.last_id == b""
    assert parser.feed(b"\n") == []
    assert parser.last_id == b"41"


def test_only_one_space_belongs_to_the_colon() -> None:
    assert parse(b"data:  x\n\n")[0].data == b" x"


def test_data_may_be_empty() -> None:
    assert parse(b"data\n\n") == [Message(b"", b"", b"")]


def test_a_byte_order_mark_may_come_first_and_only_first() -> None:
    assert parse(b"\xef\xbb", b"\xbfdata: x\n\n") == [Message(b"", b"x", b"")]
    assert parse(b"\n\xef\xbb\xbfdata: x\n\n") == []


def test_what_has_not_ended_is_no_message() -> None:
    assert parse(b"data: x\n") == []
    assert parse(b"data: x") == []


def test_the_kind_does_not_outlive_its_message() -> None:
    assert [each.event for each in parse(b"event: end\n\ndata: x\n\n")] == [b""]


def test_a_message_that_does_not_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "BYTES_MAX", 100)
    parser = SseParser()
    for _ in range(50):
        parser.feed(b"data: as many as you like\n\n")
    parser.feed(b"data: " + 60 * b"x")
    with pytest.raises(TooLongError):
        parser.feed(60 * b"x")


WORDS = st.sampled_from(
    [b"data", b"id", b"event", b"retry", b":", b": ", b" ", b"x", b"\xc3\xa9", b"7", b"\0"]
)
LINES = st.lists(st.lists(WORDS, max_size=4).map(b"".join), max_size=20)
ENDS = st.sampled_from([b"\n", b"\r", b"\r\n"])


@given(lines=LINES, data=st.data())
def test_any_line_ends_and_any_cuts_give_the_same_messages(
    lines: list[bytes], data: st.DataObject
) -> None:
    expected = parse(b"".join(line + b"\n" for line in lines))
    one_end = data.draw(ENDS)
    text = b"".join(line + one_end for line in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=12)))
    bounds = [0, *cuts, len(text)]
    chunks = [text[a:b] for a, b in pairwise(bounds)]
    assert parse(*chunks) == expected
    assert parse(*(text[i : i + 1] for i in range(len(text)))) == expected


@given(lines=st.lists(st.tuples(st.lists(WORDS, max_size=4).map(b"".join), ENDS), max_size=20))
def test_mixed_line_ends_are_cut_anywhere(lines: list[tuple[bytes, bytes]]) -> None:
    text = b"".join(line + end for line, end in lines)
    assert parse(*(text[i : i + 1] for i in range(len(text)))) == parse(text)
