from __future__ import annotations

import pytest

from pulsarcast.client.errors import UnexpectedResponse
from pulsarcast.client.following import Backoff, Following
from pulsarcast.model.errors import (
    Halted,
    InvalidToken,
    LocalError,
    NotFollowed,
    ReaderNotFound,
    Refusal,
    TakenOver,
)
from tests.unit.client.streams import sse_event


def follow(name: str = "", *, manual: bool = False) -> Following:
    following = Following("weather", name, "now", manual=manual)
    following.connected()
    return following


def drain(following: Following) -> list[int]:
    taken: list[int] = []
    for _ in range(100):
        following.go_on()
        event = following.take()
        if event is None:
            break
        taken.append(event.index)
    return taken


def resumes_behind(following: Following) -> str | None:
    return following.connect().headers.get("Last-Event-ID")


def test_it_begins_where_the_caller_said() -> None:
    following = Following("a/b", "me", "beginning", manual=False)
    ask = following.connect()
    assert ask.path == "/v1/topics/a%2Fb/subscribe"
    assert ask.query == {"start": "beginning", "name": "me"}
    assert "Last-Event-ID" not in ask.headers


def test_it_goes_on_behind_what_it_handed_out() -> None:
    following = follow()
    following.receive(sse_event(5) + sse_event(6) + sse_event(7)[:-3])
    assert drain(following) == [5, 6]
    assert resumes_behind(following) == "6"
    following.connected()
    following.receive(sse_event(6) + sse_event(7))
    assert drain(following) == [7]


def test_who_has_no_event_yet_goes_on_where_the_daemon_let_it_begin() -> None:
    following = follow()
    assert resumes_behind(following) is None
    following.receive(b"id: 41\n\n: here\n\n")
    assert resumes_behind(following) == "41"


def test_a_name_says_as_done_only_what_is_done() -> None:
    following = follow("me")
    following.receive(b"id: 41\n\n" + sse_event(42))
    assert resumes_behind(following) is None
    assert following.take() is not None
    assert resumes_behind(following) is None  # The caller is still at it.
    following.go_on()
    assert resumes_behind(following) == "42"


def test_what_is_acknowledged_by_hand_may_be_behind_what_was_handed_out() -> None:
    following = follow("me", manual=True)
    following.receive(b"".join(sse_event(index) for index in range(1, 6)))
    assert drain(following) == [1, 2, 3, 4, 5]
    assert resumes_behind(following) is None
    following.finish(3)
    assert resumes_behind(following) == "3"
    following.connected()
    following.receive(b"".join(sse_event(index) for index in range(4, 8)))
    assert drain(following) == [6, 7]


def test_nothing_is_acknowledged_that_was_not_handed_out() -> None:
    following = follow("me", manual=True)
    assert following.finish(7) is None
    following.receive(sse_event(1))
    following.take()
    ask = following.finish(7)
    assert ask is not None
    assert ask.body == b'{"index":1}'


def test_as_long_as_events_come_again_the_daemon_says_how_far_that_goes() -> None:
    following = follow("me")
    following.receive(sse_event(1, redelivery=True) + sse_event(2, redelivery=True))
    assert drain(following) == [1, 2]
    assert resumes_behind(following) is None
    following.connected()
    following.receive(sse_event(2, redelivery=True) + sse_event(3))
    assert drain(following) == [3]
    assert resumes_behind(following) == "3"


def test_what_is_done_is_said_once_a_second() -> None:
    following = follow("me")
    assert following.due_s(0.0) is None
    following.receive(sse_event(1) + sse_event(2))
    drain(following)
    assert following.due_s(10.0) == 0.0
    assert following.say(10.0).body == b'{"index":2}'
    assert following.due_s(20.0) is None
    following.receive(sse_event(3))
    drain(following)
    assert following.due_s(10.25) == 0.75
    assert following.due_s(11.5) == 0.0


def test_what_the_daemon_did_not_hear_is_said_again() -> None:
    following = follow("me")
    following.receive(sse_event(1))
    drain(following)
    following.say(10.0)
    following.unsaid()
    assert following.due_s(10.5) == 0.5


def test_without_a_name_nothing_is_said() -> None:
    following = follow()
    following.receive(sse_event(1))
    drain(following)
    assert following.due_s(10.0) is None
    assert following.finish(1) is None


def test_events_are_counted_from_one() -> None:
    with pytest.raises(LocalError, match="from 1"):
        Following("weather", "", 0, manual=False)


def sse_end(code: str) -> bytes:
    return b'event: end\ndata: {"error":"so it is","code":"%b"}\n\n' % code.encode()


@pytest.mark.parametrize(
    "kind",
    [InvalidToken, TakenOver, ReaderNotFound, NotFollowed, Halted],
    ids=lambda kind: kind.code,
)
def test_some_ends_are_final(kind: type[LocalError]) -> None:
    following = follow("me")
    following.receive(sse_end(kind.code))
    with pytest.raises(kind, match="so it is"):
        following.check_end()


@pytest.mark.parametrize("code", ["closed", "unavailable", "a code of a later version"])
def test_others_are_not(code: str) -> None:
    following = follow("me")
    following.receive(sse_end(code))
    assert following.ended == Refusal(code, "so it is")
    following.check_end()


@pytest.mark.parametrize("text", [b"data: {}\n\n", b"data: \xff\n\n", b"event: end\ndata: 1\n\n"])
def test_what_no_daemon_says_is_refused(text: bytes) -> None:
    with pytest.raises(UnexpectedResponse, match="no answer of a daemon"):
        follow().receive(text)


def test_messages_of_other_kinds_are_for_others() -> None:
    following = follow()
    following.receive(b"event: weather\ndata: x\n\n")
    assert following.take() is None


def test_delays_double_and_end() -> None:
    backoff = Backoff(None)
    delays = [backoff.failed(0.0) for _ in range(8)]
    assert delays == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    backoff.progressed()
    assert backoff.failed(0.0) == 0.1


def test_patience_ends_and_begins_anew() -> None:
    backoff = Backoff(10.0)
    assert backoff.failed(100.0) == 0.1
    assert backoff.failed(109.9) == pytest.approx(0.1)
    assert backoff.failed(110.0) is None
    backoff.connected()
    assert backoff.failed(111.0) is not None
    assert Backoff(0.0).failed(5.0) is None
