"""Sub-topics over HTTP: as server-sent events and as a WebSocket."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import urlencode

import httpx
import pytest
import trio
from trio_websocket import open_websocket_url

from pulsarcast.daemon import streams
from pulsarcast.protocol.following import below as core_below
from tests.support.daemon_in_process import daemon, play

# httpx leaves it to the collector to close what it reads a stream with; Trio does not like that.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(autouse=True)
def _walk_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core_below, "WALK_S", 0.02)


async def made(client: httpx.AsyncClient) -> tuple[str, str]:
    """A topic and one below it, both followed."""
    leaf = (await client.post("/v1/topics", json={"name": "leaf"})).json()["id"]
    new = {"name": "top", "subtopics": {"leaf": leaf}}
    top = (await client.post("/v1/topics", json=new)).json()["id"]
    done = await client.post(f"/v1/topics/{top}/subscription", json={"below": True})
    assert done.status_code == 204, done.text
    while True:
        found = (await client.get("/v1/topics")).json()["topics"]
        if top in next(each["above"] for each in found if each["id"] == leaf):
            return top, leaf
        await trio.sleep(0.01)


async def publish(client: httpx.AsyncClient, topic: str, payload: str) -> None:
    given = {"payload": payload, "ack": "accepted"}
    answer = await client.post(f"/v1/topics/{topic}/events", json=given)
    assert answer.status_code == 201, answer.text


def test_streams_and_sockets_give_events_of_all_topics_below(tmp_path: Path) -> None:
    async def scene() -> None:
        async with daemon(tmp_path) as desk, desk.client() as client:
            top, leaf = await made(client)
            path = f"/v1/topics/{top}/subscribe"
            for query in ({"where": "x = 1"}, {"start": "3"}, {"name": "~x"}):
                answer = await client.get(path, params={"below": "true", **query})
                assert answer.status_code in (400, 422), answer.text
            refused = await client.get(path, params={"name": "~~x"})
            assert refused.status_code == 400
            query = {"below": "true", "name": "me"}
            async with client.stream("GET", path, params=query) as answer:
                lines = answer.aiter_lines()
                await anext(lines)
                await publish(client, leaf, "one")
                await publish(client, top, "two")
                seen: list[str] = []
                with trio.fail_after(10):
                    while len(seen) < 2:
                        line = await anext(lines)
                        assert not line.startswith("id:"), "one index would say nothing"
                        if line.startswith("data: "):
                            seen.append(json.loads(line[6:])["topic"])
                assert sorted(seen) == sorted([top, leaf])
            url = f"{desk.url.replace('http', 'ws', 1)}{path}?{urlencode(query)}"
            headers = [(b"Authorization", f"Bearer {desk.secret}".encode())]
            async with open_websocket_url(url, extra_headers=headers) as socket:
                again: list[str] = []
                with trio.fail_after(10):
                    while len(again) < 2:
                        event = json.loads(await socket.get_message())
                        again += [event["payload"]] if "payload" in event else []
                assert sorted(again) == ["one", "two"]
                await socket.send_message(json.dumps({"subtopics": {leaf: 1, "no": 1}}))
            while True:
                readers = (await client.get(f"/v1/topics/{top}/readers")).json()["readers"]
                if readers[0]["behind"] == 1:
                    break
                await trio.sleep(0.01)
            done = {"index": 1, "subtopics": {leaf: 1}}
            said = await client.post(f"/v1/topics/{top}/readers/me/done", json=done)
            assert said.status_code == 204
            readers = (await client.get(f"/v1/topics/{top}/readers")).json()["readers"]
            assert (readers[0]["behind"], readers[0]["below"]) == (0, True)

    play(scene)


@pytest.mark.slow
def test_a_reader_for_a_while_is_forgotten_some_time_after_its_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "WHILE_S", 0.5)

    async def scene() -> None:
        async with daemon(tmp_path) as desk, desk.client() as client:
            top, _leaf = await made(client)

            async def readers() -> list[str]:
                found = (await client.get("/v1/topics")).json()["topics"]
                return [each["name"] for one in found for each in one["readers"]]

            query = {"below": "true", "name": "~~mine"}
            path = f"/v1/topics/{top}/subscribe"
            async with client.stream("GET", path, params=query) as answer:
                lines = answer.aiter_lines()
                await anext(lines)
                await trio.sleep(1.5)
                assert await readers() == ["~~mine"]
            assert await readers() == ["~~mine"]
            with trio.fail_after(5):
                while await readers():
                    await trio.sleep(0.05)

    play(scene)
