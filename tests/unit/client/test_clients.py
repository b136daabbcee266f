"""Both clients against a daemon that is made up: what they send, and what they make of answers."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import anyio
import httpx
import msgspec
import pytest

from pulsarcast import Publication
from pulsarcast.client import (
    AsyncClient,
    Client,
    UnexpectedResponse,
    Unreachable,
    awaiting,
    blocking,
)
from pulsarcast.daemon.answers import STATUS
from pulsarcast.model import api
from pulsarcast.model.errors import (
    REFUSALS,
    Busy,
    Closed,
    Gone,
    InvalidToken,
    LocalError,
    TakenOver,
    TopicNotFound,
    Unavailable,
)
from pulsarcast.model.pages import encode_page
from tests.unit.client.flavours import FLAVOURS, URL, Flavour, ask, listen, stream
from tests.unit.client.streams import sse_event

PUBLISHED = b'{"id":"event","replicas":2}'


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.naps: list[float] = []

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.naps.append(seconds)
        self.now_s += seconds
        assert len(self.naps) < 1000

    async def nap(self, seconds: float) -> None:
        self.sleep(seconds)
        await anyio.lowlevel.checkpoint()


@pytest.fixture(params=FLAVOURS)
def flavour(request: pytest.FixtureRequest) -> Flavour:
    chosen: Flavour = request.param
    return chosen


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(blocking, "time", clock)
    monkeypatch.setattr(awaiting, "time", clock)
    monkeypatch.setattr(anyio, "sleep", clock.nap)
    return clock


class Desk:
    """Answers in turn, and remembers what it was asked."""

    def __init__(self, *answers: httpx.Response | Exception | Callable[[], httpx.Response]) -> None:
        self.answers = iter(answers)
        self.asked: list[httpx.Request] = []
        self.done: list[int] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/done"):
            self.done.append(msgspec.json.decode(request.content, type=api.Done).index)
            return httpx.Response(204)
        self.asked.append(request)
        answer = next(self.answers)
        if isinstance(answer, Exception):
            raise answer
        return answer() if callable(answer) else answer


def refusal(status: int, code: str, error: str = "no") -> httpx.Response:
    return httpx.Response(status, content=msgspec.json.encode(api.Problem(error, code)))


def published() -> httpx.Response:
    return httpx.Response(201, content=PUBLISHED)


# Publishing.


def test_a_payload_is_sent_as_it_is(flavour: Flavour) -> None:
    desk = Desk(published())
    done = ask(
        flavour, desk, lambda c: c.publish("12D3/we ather", "sünny", name="é", ack="accepted")
    )
    assert done == api.PublishedView("event", 2)
    request = desk.asked[0]
    assert request.url.raw_path == (b"/v1/topics/12D3%2Fwe%20ather/events?name=%C3%A9&ack=accepted")
    assert request.content == "sünny".encode()
    assert request.headers["content-type"] == "application/octet-stream"
    assert request.headers["authorization"] == "Bearer secret"


def test_what_is_said_about_it_makes_it_json(flavour: Flavour) -> None:
    desk = Desk(published())
    attributes = {"a": 1, "b": b"\xff", "c": True}
    ask(flavour, desk, lambda c: c.publish("t", b"\xff", attributes=attributes, parents=["p"]))
    event = msgspec.json.decode(desk.asked[0].content, type=api.NewEvent)
    assert event == api.NewEvent(
        payload="/w==",
        encoding="base64",
        attributes={"a": 1, "b": api.Opaque("/w=="), "c": True},
        parents=["p"],
    )


def test_a_broken_connection_publishes_once(flavour: Flavour, clock: Clock) -> None:
    desk = Desk(
        httpx.ReadError("cut"), httpx.ConnectError("gone"), refusal(503, "busy"), published()
    )

    def scene(client: Any) -> Any:
        client._met = True
        return client.publish("t", b"x")

    assert ask(flavour, desk, scene).id == "event"
    keys = [request.headers["idempotency-key"] for request in desk.asked]
    assert len(keys) == 4
    assert len(set(keys)) == 1
    assert clock.naps == [0.1, 0.2, 0.4]


def test_two_calls_are_two_events(flavour: Flavour) -> None:
    desk = Desk(published(), published(), published())
    for _ in range(2):
        ask(flavour, desk, lambda c: c.publish("t", b"x"))
    ask(flavour, desk, lambda c: c.publish("t", b"x", idempotency_key="mine"))
    keys = [request.headers["idempotency-key"] for request in desk.asked]
    assert len(set(keys)) == 3
    assert keys[2] == "mine"


def test_a_batch_with_keys_is_sent_again_and_one_without_is_not(
    flavour: Flavour, clock: Clock
) -> None:
    answer = httpx.Response(
        200, content=b'{"events":[{"id":"a"},{"error":"no","code":"not_allowed"}]}'
    )

    def scene(*keys: str | None) -> Callable[[Any], Any]:
        def call(client: Any) -> Any:
            client._met = True
            return client.publish_many(
                "t", [Publication(payload="x", idempotency_key=key) for key in keys]
            )

        return call

    desk = Desk(httpx.ReadError("cut"), answer)
    done = ask(flavour, desk, scene("k", "l"))
    assert done == [api.BatchResult(id="a"), api.BatchResult(error="no", code="not_allowed")]
    assert desk.asked[0].content == desk.asked[1].content
    assert desk.asked[0].url.path == "/v1/topics/t/batch"
    with pytest.raises(Unreachable):
        ask(flavour, Desk(httpx.ReadError("cut")), scene("k", None))


def test_a_log_is_read_page_by_page_to_its_end(flavour: Flavour) -> None:
    def page(*indices: int) -> httpx.Response:
        return httpx.Response(200, content=encode_page([(index, 0, b"x") for index in indices]))

    desk = Desk(page(3, 4), page(5, 7), page(8))
    found = ask(flavour, desk, lambda c: c.log_pages("t", "id", 3, 9))
    assert [list(each.indices) for each in found] == [[3, 4], [5, 7], [8]]
    assert desk.asked[1].url.raw_path == b"/v1/topics/t/log/events?log=id&start=5&end=9"
    # Where the log ends before that, so do we.
    assert ask(flavour, Desk(page(3), page()), lambda c: c.log_pages("t", "id", 3, 9))
    with pytest.raises(UnexpectedResponse, match="no answer of a daemon"):
        ask(
            flavour,
            Desk(httpx.Response(200, content=b"html")),
            lambda c: c.log_pages("t", "i", 1, 2),
        )
    with pytest.raises(Gone):
        ask(flavour, Desk(refusal(410, "gone")), lambda c: c.log_pages("t", "i", 1, 2))


@pytest.mark.parametrize("key", ["", "x" * 257, "é", "a\nb"])
def test_odd_keys_are_refused(flavour: Flavour, key: str) -> None:
    with pytest.raises(LocalError, match="idempotency key"):
        ask(flavour, Desk(), lambda c: c.publish("t", b"x", idempotency_key=key))


def test_a_daemon_that_was_there_is_waited_for_so_long(flavour: Flavour, clock: Clock) -> None:
    desk = Desk(*itertools.repeat(httpx.ReadError("cut"), 100))
    with pytest.raises(Unreachable, match=r"the connection to http://127\.0\.0\.1:8420 broke"):
        ask(flavour, desk, lambda c: c.publish("t", b"x", patience_s=20))
    assert sum(clock.naps) == pytest.approx(20)
    assert max(clock.naps) == 5.0


def test_a_daemon_that_never_answered_is_not_waited_for(flavour: Flavour, clock: Clock) -> None:
    desk = Desk(httpx.ConnectError("Connection refused"))
    with pytest.raises(Unreachable, match="start one with `pulsarcast daemon"):
        ask(flavour, desk, lambda c: c.publish("t", b"x"))
    assert clock.naps == []


@pytest.mark.parametrize(
    "kind",
    [each for each in REFUSALS.values() if not each.retryable],
    ids=lambda kind: kind.code,
)
def test_what_will_not_change_is_not_tried_again(
    flavour: Flavour, clock: Clock, kind: type[LocalError]
) -> None:
    answer = refusal(STATUS[kind.code], kind.code)
    with pytest.raises(LocalError, match=r"^no$") as refused:
        ask(flavour, Desk(answer), lambda c: c.publish("t", b"x"))
    assert type(refused.value) is kind
    assert clock.naps == []


@pytest.mark.parametrize("kind", [Busy, Unavailable, Closed], ids=lambda kind: kind.code)
def test_what_may_change_is_tried_again(
    flavour: Flavour, clock: Clock, kind: type[LocalError]
) -> None:
    assert kind.retryable
    desk = Desk(refusal(STATUS[kind.code], kind.code), published())
    ask(flavour, desk, lambda c: c.publish("t", b"x"))
    assert len(clock.naps) == 1


@pytest.mark.parametrize(("status", "tries"), [(503, 2), (422, 1)])
def test_of_a_code_of_a_later_version_the_status_decides(
    flavour: Flavour, clock: Clock, status: int, tries: int
) -> None:
    desk = Desk(refusal(status, "new"), published())
    with nullcontext() if tries == 2 else pytest.raises(UnexpectedResponse, match=r"no \(new\)"):
        ask(flavour, desk, lambda c: c.publish("t", b"x"))
    assert len(desk.asked) == tries


def test_what_could_happen_twice_is_not_tried_again(flavour: Flavour, clock: Clock) -> None:
    with pytest.raises(Unreachable):
        ask(flavour, Desk(httpx.ReadError("cut")), lambda c: c.create_token("ci", ["read"]))


# Other calls.


def test_calls_go_where_they_should(flavour: Flavour) -> None:
    for call, method, path, body in (
        (lambda c: c.unsubscribe("t"), "DELETE", "/v1/topics/t/subscription", b""),
        (lambda c: c.drop_alias("a"), "DELETE", "/v1/aliases/a", b""),
        (lambda c: c.drop_peer_name("ben"), "DELETE", "/v1/peer-names/ben", b""),
        (lambda c: c.revoke_token("i"), "DELETE", "/v1/tokens/i", b""),
        (lambda c: c.forget("t", "a/b"), "DELETE", "/v1/topics/t/readers/a%2Fb", b""),
    ):
        desk = Desk(httpx.Response(204))
        assert ask(flavour, desk, call) is None
        request = desk.asked[0]
        assert (request.method, request.url.raw_path.decode()) == (method, path)
        assert request.content == body


def test_lists_come_without_their_wrapping(flavour: Flavour) -> None:
    def one(body: bytes) -> Desk:
        return Desk(httpx.Response(200, content=body))

    assert ask(flavour, one(b'{"aliases":{"a":"b"}}'), lambda c: c.aliases()) == {"a": "b"}
    assert ask(flavour, one(b'{"aliases":{"a":"b"}}'), lambda c: c.set_alias("a", "b")) == {
        "a": "b"
    }
    names = one(b'{"peer_names":{"12D3":"ben"}}')
    assert ask(flavour, names, lambda c: c.peer_names()) == {"12D3": "ben"}
    names = one(b'{"peer_names":{"12D3":"ben"}}')
    assert ask(flavour, names, lambda c: c.set_peer_name("12D3", "ben")) == {"12D3": "ben"}
    assert ask(flavour, one(b'{"peers":[]}'), lambda c: c.peers()) == []
    assert ask(flavour, one(b'{"url":"http://x"}'), lambda c: c.open_page()) == "http://x"
    assert ask(flavour, one(b"# HELP x\n"), lambda c: c.metrics()) == "# HELP x\n"
    reader = b'{"readers":[{"name":"me","done":3,"behind":1,"connected":true}]}'
    assert ask(flavour, one(reader), lambda c: c.readers("t")) == [
        api.ReaderView(name="me", done=3, behind=1, connected=True)
    ]


def test_what_is_not_a_daemon_is_noticed(flavour: Flavour) -> None:
    for answer in (
        httpx.Response(200, content=b"<html>"),
        httpx.Response(200, content=b'{"peer":1}'),
        httpx.Response(404, content=b"<html>"),
        httpx.Response(302, headers={"location": "http://elsewhere.example"}),
    ):
        with pytest.raises(UnexpectedResponse) as refused:
            ask(flavour, Desk(answer), lambda c: c.status())
        assert refused.value.status == answer.status_code


@pytest.mark.parametrize("name", ["", ".", "..", "\ud800"])
def test_a_topic_that_names_nothing_is_refused(flavour: Flavour, name: str) -> None:
    with pytest.raises(LocalError):
        ask(flavour, Desk(), lambda c: c.topic(name))


def _page(first: int, last: int, newest: int) -> httpx.Response:
    decode = msgspec.json.Decoder(api.EventView).decode
    events = [
        decode(sse_event(index).partition(b"data: ")[2].strip()) for index in range(first, last + 1)
    ]
    following = last + 1 if last < newest else None
    page = api.Page(events=events, next=following, newest=newest)
    return httpx.Response(200, content=msgspec.json.encode(page))


def test_history_goes_on_from_page_to_page(flavour: Flavour) -> None:
    desk = Desk(_page(3, 5, 9), _page(6, 9, 9))
    events = ask(flavour, desk, lambda c: c.history("t", start=3))
    assert [event.index for event in events] == [3, 4, 5, 6, 7, 8, 9]
    assert [dict(request.url.params)["start"] for request in desk.asked] == ["3", "6"]


def test_history_ends_where_it_should(flavour: Flavour) -> None:
    desk = Desk(_page(1, 2, 9), _page(3, 4, 9))
    assert len(ask(flavour, desk, lambda c: c.history("t", limit=4))) == 4
    assert [dict(request.url.params)["limit"] for request in desk.asked] == ["4", "2"]
    nothing = api.Page(events=[], next=5, newest=9)
    desk = Desk(httpx.Response(200, content=msgspec.json.encode(nothing)))
    assert ask(flavour, desk, lambda c: c.history("t", start=5)) == []


# Subscribing.


def test_a_cut_stream_goes_on_without_loss_and_without_duplicates(
    flavour: Flavour, clock: Clock
) -> None:
    cut = httpx.ReadError("cut")
    desk = Desk(
        stream(b"id: 4\n\n", cut),
        stream(sse_event(5) + sse_event(6)[:20], cut),
        httpx.ConnectError("gone"),
        refusal(503, "closed"),
        stream(sse_event(6), sse_event(7)[:9], sse_event(7)[9:]),
        stream(sse_event(7) + sse_event(8)),
    )
    assert listen(flavour, desk, 4) == [5, 6, 7, 8]
    seen = [request.headers.get("last-event-id") for request in desk.asked]
    assert seen == [None, "4", "5", "5", "5", "7"]
    assert clock.naps == [0.1, 0.1, 0.2, 0.4, 0.1]


def test_a_first_connection_that_fails_is_told_at_once(flavour: Flavour, clock: Clock) -> None:
    with pytest.raises(Unreachable, match="no daemon answers"):
        listen(flavour, Desk(httpx.ConnectError("gone")), 1)
    with pytest.raises(TopicNotFound, match="no such topic"):
        listen(flavour, Desk(refusal(404, "topic_not_found", "no such topic")), 1)
    with pytest.raises(UnexpectedResponse, match="text/html instead"):
        listen(flavour, Desk(httpx.Response(200, headers={"content-type": "text/html"})), 1)
    assert clock.naps == []


def test_patience_ends(flavour: Flavour, clock: Clock) -> None:
    desk = Desk(stream(sse_event(1)), *itertools.repeat(httpx.ConnectError("gone"), 100))
    with pytest.raises(Unreachable, match="no daemon answers"):
        listen(flavour, desk, 2, patience_s=30)
    assert sum(clock.naps) == pytest.approx(30)


def test_what_is_refused_on_coming_back_is_raised(flavour: Flavour, clock: Clock) -> None:
    desk = Desk(stream(sse_event(1)), refusal(401, "invalid_token"))
    with pytest.raises(InvalidToken):
        listen(flavour, desk, 2)


@pytest.mark.parametrize("code", ["closed", "unavailable"])
def test_it_comes_back_where_the_daemon_sent_it_away_for_now(
    flavour: Flavour, clock: Clock, code: str
) -> None:
    end = f'event: end\ndata: {{"error":"later","code":"{code}"}}\n\n'.encode()
    desk = Desk(stream(sse_event(1) + end), stream(sse_event(2)))
    assert listen(flavour, desk, 2) == [1, 2]


def test_it_does_not_come_back_where_that_would_be_wrong(flavour: Flavour, clock: Clock) -> None:
    end = b'event: end\ndata: {"error":"somebody else","code":"taken_over"}\n\n'
    desk = Desk(stream(sse_event(1) + end))
    with pytest.raises(TakenOver, match="somebody else"):
        listen(flavour, desk, 2, name="me")
    assert len(desk.asked) == 1


def test_being_sent_away_again_and_again_is_no_hot_loop(flavour: Flavour, clock: Clock) -> None:
    end = b'event: end\ndata: {"error":"whatever","code":"closed"}\n\n'
    desk = Desk(*(stream(b": here\n\n" + end) for _ in range(8)), stream(sse_event(1)))
    assert listen(flavour, desk, 1, patience_s=1) == [1]
    assert clock.naps == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0, 1.0]


# What is done.


def test_what_is_done_is_said_at_the_end(flavour: Flavour, clock: Clock) -> None:
    desk = Desk(stream(b"".join(sse_event(index) for index in range(1, 6))))
    assert listen(flavour, desk, 5, name="me") == [1, 2, 3, 4, 5]
    # The first is said at once, the rest not within the same second; the caller left at 5.
    assert desk.done == [1, 4]


def test_what_is_done_is_said_once_a_second(flavour: Flavour, clock: Clock) -> None:
    said_s: list[float] = []

    class Slow(Desk):
        def __call__(self, request: httpx.Request) -> httpx.Response:
            if request.url.path.endswith("/done"):
                said_s.append(clock.now_s)
            return super().__call__(request)

    def tick() -> float:
        clock.now_s += 0.1
        return clock.now_s

    clock.monotonic = tick  # type: ignore[method-assign] # every look takes a tenth
    desk = Slow(stream(b"".join(sse_event(index) for index in range(1, 41))))
    listen(flavour, desk, 40, name="me")
    assert desk.done == sorted(set(desk.done))
    assert desk.done[-1] == 39
    assert 3 <= len(desk.done) <= 10
    assert all(after - before > 0.9 for before, after in itertools.pairwise(said_s[:-1]))


def test_without_a_name_nothing_is_said(flavour: Flavour, clock: Clock) -> None:
    desk = Desk(stream(b"".join(sse_event(index) for index in range(1, 6))))
    listen(flavour, desk, 5, then=lambda events: events.acknowledge())
    assert desk.done == []


def test_the_caller_may_say_that_the_last_event_is_done(flavour: Flavour, clock: Clock) -> None:
    desk = Desk(stream(sse_event(1) + sse_event(2)))
    listen(flavour, desk, 2, name="me", then=lambda events: events.acknowledge())
    assert desk.done == [1, 2]


def test_by_hand_means_by_hand(flavour: Flavour, clock: Clock) -> None:
    desk = Desk(stream(b"".join(sse_event(index) for index in range(1, 6))))
    listen(flavour, desk, 5, name="me", manual=True, then=lambda events: events.acknowledge(3))
    assert desk.done == [3]
    desk = Desk(stream(b"".join(sse_event(index) for index in range(1, 6))))
    listen(flavour, desk, 5, name="me", manual=True)
    assert desk.done == []


def test_a_closed_subscription_ends(flavour: Flavour, clock: Clock) -> None:
    desk = Desk(stream(sse_event(1) + sse_event(2)))
    ends = StopIteration if flavour == "sync" else StopAsyncIteration

    def then(events: Any) -> Any:
        if flavour == "sync":
            events.close()
            with pytest.raises(ends):
                next(events)
            return None

        async def scene() -> None:
            await events.close()
            with pytest.raises(ends):
                await anext(events)

        return scene()

    assert listen(flavour, desk, 1, then=then) == [1]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_whoever_is_cancelled_while_it_says_what_is_done_loses_nothing(backend: str) -> None:
    said: list[bytes] = []

    async def handle(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/done"):
            said.append(request.content)
            if len(said) == 1:
                await anyio.sleep(30)
            return httpx.Response(204)
        return stream(sse_event(1) + sse_event(2))

    async def scene() -> None:
        transport = httpx.MockTransport(handle)
        async with AsyncClient(URL, transport=transport) as client:
            events = await client.subscribe("weather", "me")
            assert (await anext(events)).index == 1
            with anyio.move_on_after(0.05) as bounded:
                await anext(events)
            assert bounded.cancelled_caught
            with anyio.fail_after(5):
                assert (await anext(events)).index == 2
            await events.close()

    anyio.run(scene, backend=backend)
    assert said == [b'{"index":1}', b'{"index":1}']


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_closed_client_says_so_and_is_not_waited_for(flavour: Flavour) -> None:
    def use(client: Any) -> Any:
        if isinstance(client, Client):
            client.close()
            return client.publish("weather", "sunny")

        async def closed() -> Any:
            await client.close()
            return await client.publish("weather", "sunny")

        return closed()

    with pytest.raises(LocalError, match="the client is closed"):
        ask(flavour, lambda request: httpx.Response(200), use)


def test_a_client_that_awaits_belongs_to_one_loop() -> None:
    transport = httpx.MockTransport(lambda request: httpx.Response(200, json={"aliases": {}}))
    client = AsyncClient(URL, "secret", transport=transport)
    asyncio.run(client.aliases())
    with pytest.raises(LocalError, match="another loop"):
        asyncio.run(client.aliases())
