"""Subscriptions over HTTP: server-sent events and WebSocket, resumed, slow and cut."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
import trio
from trio_websocket import open_websocket_url

from pulsarcast.model.topics import AttributeRule
from pulsarcast.network.node import Node
from tests.support.daemon_in_process import Desk, daemon, play
from tests.support.people import unordered

# httpx leaves it to the collector to close what it reads a stream with; Trio does not like that.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@asynccontextmanager
async def stream(
    client: httpx.AsyncClient, topic: str, last: int | None = None, **query: Any
) -> AsyncIterator[AsyncIterator[Any]]:
    headers = {} if last is None else {"Last-Event-ID": str(last)}
    path = f"/v1/topics/{topic}/subscribe"
    async with client.stream("GET", path, params=query, headers=headers) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")

        async def events() -> AsyncIterator[Any]:
            async for line in answer.aiter_lines():
                if line.startswith("data: "):
                    yield json.loads(line[6:])

        yield events()


async def made(client: httpx.AsyncClient) -> str:
    answer = await client.post("/v1/topics", json={"name": "t", "settings": {"order": "total"}})
    return str(answer.json()["id"])


async def publish(client: httpx.AsyncClient, topic: str, *payloads: str) -> None:
    for payload in payloads:
        answer = await client.post(
            f"/v1/topics/{topic}/events", json={"payload": payload, "ack": "accepted"}
        )
        assert answer.status_code == 201, answer.text


async def take(events: AsyncIterator[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    with trio.fail_after(10):
        return [await anext(events) for _ in range(count)]


def test_whoever_saw_more_than_the_log_has_is_told_that_it_is_another(tmp_path: Path) -> None:
    """As after a store was restored: it would hear nothing until the log is as long again."""

    async def scene() -> None:
        async with daemon(tmp_path) as desk, desk.client() as client:
            topic = await made(client)
            async with stream(client, topic) as warm:
                await publish(client, topic, "1", "2")
                await take(warm, 2)
            path = f"/v1/topics/{topic}/subscribe"
            refused = await client.get(path, headers={"Last-Event-ID": "3"})
            assert (refused.status_code, refused.json()["code"]) == (409, "log_changed")
            async with stream(client, topic, last=2) as events:
                await publish(client, topic, "3")
                assert [each["payload"] for each in await take(events, 1)] == ["3"]

    trio.run(scene)


def test_events_come_from_where_one_asks(tmp_path: Path) -> None:
    async def scene() -> None:
        async with daemon(tmp_path) as desk, desk.client() as client:
            topic = await made(client)
            async with stream(client, topic) as warm:  # so that the node follows it
                await publish(client, topic, "1", "2", "3")
                assert [each["payload"] for each in await take(warm, 3)] == ["1", "2", "3"]
            known = (await client.get(f"/v1/topics/{topic}/events")).json()["events"]
            for place, expected in (
                ("beginning", ["1", "2", "3"]),
                ("2", ["2", "3"]),
                (known[2]["id"], ["3"]),
            ):
                query: dict[str, Any] = {"start": place}
                async with stream(client, topic, **query) as events:
                    found = await take(events, len(expected))
                assert [each["payload"] for each in found] == expected, place
            async with stream(client, topic) as events:
                await publish(client, topic, "4")
                assert [each["payload"] for each in await take(events, 1)] == ["4"]
            async with stream(client, topic, last=2) as events:
                assert [each["index"] for each in await take(events, 2)] == [3, 4]
            # Who has no name leaves nothing behind.
            for _ in range(100):
                (followed,) = (await client.get("/v1/topics")).json()["topics"]
                if not followed["readers"]:
                    break
                await trio.sleep(0.02)
            assert followed["readers"] == []

    play(scene)


def test_a_name_goes_on_behind_what_it_is_done_with_and_the_rest_is_marked(tmp_path: Path) -> None:
    async def scene() -> None:
        async with daemon(tmp_path) as desk, desk.client() as client:
            topic = await made(client)
            async with stream(client, topic, name="bob") as events:
                await publish(client, topic, "1", "2", "3")
                await take(events, 3)
                done = f"/v1/topics/{topic}/readers/bob/done"
                assert (await client.post(done, json={"index": 1})).status_code == 204
            (reader,) = (await client.get(f"/v1/topics/{topic}/readers")).json()["readers"]
            assert (reader["name"], reader["done"], reader["behind"]) == ("bob", 1, 2)
        async with daemon(tmp_path) as desk, desk.client() as client:
            await publish(client, topic, "4")
            async with stream(client, topic, name="bob") as events:
                found = await take(events, 3)
            marks = [(each["index"], each.get("redelivery", False)) for each in found]
            assert marks == [(2, True), (3, True), (4, False)]
            # One that says what it saw last is given nothing again; what is done it says by itself.
            async with stream(client, topic, last=3, name="bob") as events:
                (event,) = await take(events, 1)
            assert (event["index"], event.get("redelivery", False)) == (4, False)
            (reader,) = (await client.get(f"/v1/topics/{topic}/readers")).json()["readers"]
            assert reader["done"] == 1
            assert (await client.delete(f"/v1/topics/{topic}/readers/bob")).status_code == 204
            assert (await client.get(f"/v1/topics/{topic}/readers")).json() == {"readers": []}

    play(scene)


def test_whoever_comes_back_takes_its_name_over(tmp_path: Path) -> None:
    async def scene() -> None:
        async with daemon(tmp_path) as desk, desk.client() as client, desk.client() as other:
            topic = await made(client)
            async with stream(client, topic, name="bob") as first:
                async with stream(other, topic, name="bob") as second:
                    await publish(client, topic, "1")
                    assert [each["payload"] for each in await take(second, 1)] == ["1"]
                    with trio.fail_after(5):
                        rest = [each async for each in first]
                    assert [each["code"] for each in rest] == ["taken_over"]

    play(scene)


def test_a_stopped_reader_is_cut_off_and_slows_nobody(tmp_path: Path) -> None:
    async def scene() -> None:
        async with daemon(tmp_path, http__slow_reader_s=1) as desk, desk.client() as client:
            topic = await made(client)
            port = int(desk.url.rpartition(":")[2])
            plain = trio.socket.socket()
            plain.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_RCVBUF, 4096)
            await plain.connect(("127.0.0.1", port))
            stopped = trio.SocketStream(plain)
            request = (
                f"GET /v1/topics/{topic}/subscribe?name=slow HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
                f"Authorization: Bearer {desk.secret}\r\n\r\n"
            )
            await stopped.send_all(request.encode())
            async with stream(client, topic) as events:
                # More than the kernel holds for one that reads nothing.
                text = "x" * 200_000
                for _ in range(60):
                    await publish(client, topic, text)
                    await take(events, 1)
                for _ in range(100):
                    (reader,) = (await client.get(f"/v1/topics/{topic}/readers")).json()["readers"]
                    if not reader["connected"]:
                        break
                    await trio.sleep(0.1)
                assert not reader["connected"]
                assert "pulsarcast_readers_cut_off_total 1.0" in (await client.get("/metrics")).text
            # Its place is kept.
            async with stream(client, topic, name="slow") as events:
                found = await take(events, 60)
            assert [each["index"] for each in found] == list(range(1, 61))
            await stopped.aclose()

    play(scene)


def test_a_websocket_gives_events_and_takes_words_of_what_is_done(tmp_path: Path) -> None:
    async def scene() -> None:
        async with daemon(tmp_path) as desk, desk.client() as client:
            topic = await made(client)
            async with socket(desk, topic, "name=bob") as events:
                assert json.loads(await events.get_message()) == {"here": True}
                await publish(client, topic, "1", "2")
                found = [json.loads(await events.get_message()) for _ in range(2)]
                assert [each["payload"] for each in found] == ["1", "2"]
                await events.send_message('{"index": 1}')
                for _ in range(100):
                    (reader,) = (await client.get(f"/v1/topics/{topic}/readers")).json()["readers"]
                    if reader["done"] == 1:
                        break
                    await trio.sleep(0.02)
                assert reader["done"] == 1
            async with socket(desk, topic, "name=bob") as events:
                await events.get_message()
                assert json.loads(await events.get_message())["index"] == 2

    play(scene)


@asynccontextmanager
async def socket(desk: Desk, topic: str, query: str) -> AsyncIterator[Any]:
    url = desk.url.replace("http", "ws", 1) + f"/v1/topics/{topic}/subscribe?{query}"
    headers = [(b"Authorization", f"Bearer {desk.secret}".encode())]
    async with open_websocket_url(url, extra_headers=headers) as found:
        yield found


TICKS = [
    {"name": "price", "type": "float", "min": 0, "max": 100},
    {"name": "symbol", "type": "str"},
]


def test_a_filter_is_the_same_in_streams_sockets_and_history(tmp_path: Path) -> None:
    async def scene() -> None:
        async with daemon(tmp_path) as desk, desk.client() as client:
            settings = {"order": "total", "attributes": TICKS}
            answer = await client.post("/v1/topics", json={"name": "t", "settings": settings})
            assert answer.json()["settings"]["attributes"] == TICKS
            topic = str(answer.json()["id"])
            where = "price in 5..<20 and symbol = 'IBM'"
            again: dict[str, Any] = {"where": where, "start": "beginning"}
            query: dict[str, Any]
            async with stream(client, topic, where=where, name="me") as events:
                for price, symbol in ((5, "IBM"), (20, "IBM"), (6, "SBUX"), (7.5, "IBM")):
                    sent = {"price": price, "symbol": symbol}
                    said = {"payload": str(price), "attributes": sent, "ack": "accepted"}
                    answer = await client.post(f"/v1/topics/{topic}/events", json=said)
                    assert answer.status_code == 201, answer.text
                assert [each["payload"] for each in await take(events, 2)] == ["5", "7.5"]
            async with stream(client, topic, None, **again) as events:
                assert [each["index"] for each in await take(events, 2)] == [1, 4]
            async with socket(desk, topic, urlencode(again)) as found:
                with trio.fail_after(10):
                    heard = [json.loads(await found.get_message()) for _ in range(3)]
                assert [each.get("index") for each in heard] == [None, 1, 4]
            page = (await client.get(f"/v1/topics/{topic}/events", params={"where": where})).json()
            assert [each["index"] for each in page["events"]] == [1, 4]
            query = {"where": where, "limit": 1}
            page = (await client.get(f"/v1/topics/{topic}/events", params=query)).json()
            assert ([each["index"] for each in page["events"]], page["next"]) == ([1], 2)
            query = {"where": "symbol = 'none'"}
            page = (await client.get(f"/v1/topics/{topic}/events", params=query)).json()
            assert (page["events"], page["next"]) == ([], None)

    play(scene)


@pytest.mark.parametrize("path", ["events", "subscribe"])
def test_what_is_no_filter_is_refused_with_its_place(tmp_path: Path, path: str) -> None:
    async def scene() -> None:
        async with daemon(tmp_path) as desk, desk.client() as client:
            answer = await client.post(
                "/v1/topics", json={"name": "t", "settings": {"attributes": TICKS}}
            )
            topic = answer.json()["id"]
            for where, place in (
                ("price <", "column 8"),
                ("prise < 5", "column 1"),
                ("", "column 1"),
            ):
                answer = await client.get(f"/v1/topics/{topic}/{path}", params={"where": where})
                assert (answer.status_code, answer.json()["code"]) == (422, "invalid_filter")
                assert place in answer.json()["error"]
                assert answer.json()["error"].endswith("^")
            answer = await client.get(f"/v1/topics/{topic}/{path}", params={"where": "x" * 5000})
            assert answer.status_code == 400

    play(scene)


def test_the_history_of_a_topic_that_is_followed_by_content_has_pages(tmp_path: Path) -> None:
    settings = unordered(
        attributes=(AttributeRule("price", "float", 0, 100),), content_routing=True
    )

    async def scene() -> None:
        async with Node.open(tmp_path / "ann") as ann:
            topic = await ann.create_topic("ticks", settings)
            home = tmp_path / "home"
            async with (
                daemon(home, node__bootstrap=list(ann.addresses)) as desk,
                desk.client() as client,
                stream(client, topic.id, where="price < 10") as events,
            ):
                for price in range(3):
                    await ann.publish(topic, b"%d" % price, attributes={"price": float(price)})
                await take(events, 3)
                path, seen = f"/v1/topics/{topic.id}/events", []
                following: int | None = 1
                while following is not None:
                    query = {"start": following, "limit": 2}
                    page = (await client.get(path, params=query)).json()
                    seen += [each["index"] for each in page["events"]]
                    following = page["next"]
                assert seen == [1, 2, 3]
                (listed,) = (await client.get("/v1/topics")).json()["topics"]
                assert listed["filters"] == ["price < 10"]
                assert "pulsarcast_topic_events_total" in (await client.get("/metrics")).text

    play(scene)
