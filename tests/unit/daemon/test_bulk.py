"""Whole logs and events by the thousand: the operations that tables are made with."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio

from pulsarcast.daemon import bulk
from pulsarcast.model.events import decode_event
from pulsarcast.model.ids import cid_text
from pulsarcast.model.pages import Page, decode_page
from tests.support.daemon_in_process import daemon, play


async def made(client: httpx.AsyncClient, **given: Any) -> str:
    answer = await client.post("/v1/topics", json={"name": "weather", **given})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


async def publish(client: httpx.AsyncClient, topic: str, *events: Any, **more: Any) -> list[Any]:
    body = {"events": list(events), "ack": "accepted", **more}
    answer = await client.post(f"/v1/topics/{topic}/batch", json=body)
    assert answer.status_code == 200, answer.text
    return list(answer.json()["events"])


async def log_of(client: httpx.AsyncClient, topic: str) -> dict[str, Any]:
    answer = await client.get(f"/v1/topics/{topic}/log")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def page_of(client: httpx.AsyncClient, topic: str, start: int, end: int) -> Page:
    query: dict[str, str | int] = {
        "log": (await log_of(client, topic))["log"],
        "start": start,
        "end": end,
    }
    answer = await client.get(f"/v1/topics/{topic}/log/events", params=query)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/vnd.pulsarcast.log"
    return decode_page(answer.content)


def test_a_batch_is_published_in_order_and_read_back_as_it_was_signed(tmp_path: Path) -> None:
    async def scene() -> None:
        async with daemon(tmp_path) as desk, desk.client() as client:
            topic = await made(client)
            before_us = time.time_ns() // 1000
            attributes = {"n": 1, "x": 1.5, "s": "é", "b": True, "d": {"base64": "AAE="}}
            first = {"payload": "0", "name": "zero", "attributes": attributes, "created_us": 5}
            more = [{"payload": str(number)} for number in range(1, 100)]
            results = await publish(client, topic, first, *more)
            after_us = time.time_ns() // 1000
            page = await page_of(client, topic, 1, 1000)
            assert list(page.indices) == list(range(1, 101))
            assert all(before_us <= each <= after_us for each in page.received_us)
            events = [decode_event(block) for block in page.blocks()]
            assert [event.payload for event in events] == [b"%d" % n for n in range(100)]
            assert [cid_text(event.cid) for event in events] == [each["id"] for each in results]
            head = events[0].request
            assert (head.name, head.created) == ("zero", 5)
            assert head.attributes == {"n": 1, "x": 1.5, "s": "é", "b": True, "d": b"\0\1"}
            assert all(before_us <= each.request.created <= after_us for each in events[1:])

    play(scene)


def test_a_key_publishes_once_in_a_batch_and_in_the_next(tmp_path: Path) -> None:
    async def scene() -> None:
        async with daemon(tmp_path) as desk, desk.client() as client:
            topic = await made(client)
            one = {"payload": "1", "idempotency_key": "a"}
            same = {"payload": "1", "idempotency_key": "b"}
            first, again, other = await publish(client, topic, one, one, same)
            assert first["id"] == again["id"] != other["id"]
            later, new = await publish(client, topic, {**one, "created_us": 9}, {"payload": "1"})
            assert later["id"] == first["id"], "`created` is that of the first time"
            assert new["id"] not in {first["id"], other["id"]}
            assert (await log_of(client, topic))["newest"] == 3

    play(scene)


def test_a_batch_says_of_what_nobody_else_keeps_that_nobody_does(tmp_path: Path) -> None:
    async def scene() -> None:
        async with daemon(tmp_path) as desk, desk.client() as client:
            topic = await made(client, settings={"payload_bytes_max": 10})
            events = [{"payload": "old", "created_us": 5}, {"payload": "x" * 11}]
            old, refused = await publish(client, topic, *events, ack="replicated")
            assert old["replicas"] == 0
            assert "replicas" not in refused

    play(scene)


def test_what_is_refused_in_a_batch_stops_nothing_else(tmp_path: Path) -> None:
    async def scene() -> None:
        async with daemon(tmp_path) as desk, desk.client() as client:
            topic = await made(client, settings={"payload_bytes_max": 10})
            events = [{"payload": "1"}, {"payload": "x" * 11}, {"payload": "3", "created_us": -1}]
            good, large, early = await publish(client, topic, *events)
            assert good["id"]
            assert (large["code"], "id" in large) == ("too_large", False)
            assert early["code"] == "invalid"
            assert "created" in early["error"]
            path = f"/v1/topics/{topic}/batch"
            too_many = await client.post(path, json={"events": [{"payload": "1"}] * 1001})
            assert too_many.status_code == 400
            assert (await publish(client, topic)) == []
            assert (await log_of(client, topic))["newest"] == 1

    play(scene)


def test_a_log_says_which_one_it_is_and_others_are_refused(tmp_path: Path) -> None:
    async def scene() -> None:
        async with daemon(tmp_path) as desk, desk.client() as client:
            topic = await made(client, alias="w")
            await publish(client, topic, {"payload": "1"}, {"payload": "2"})
            log = await log_of(client, "w")
            assert (log["topic"], log["name"], log["version"]) == (topic, "weather", 0)
            assert (log["author"], log["version_id"]) == (desk.running.peer, topic)
            assert (log["oldest"], log["newest"]) == (1, 2)
            path = "/v1/topics/w/log/events"
            query: dict[str, str | int] = {"log": "another", "start": 1, "end": 3}
            answer = await client.get(path, params=query)
            assert (answer.status_code, answer.json()["code"]) == (409, "log_changed")
            for wrong in ({"start": 0}, {"end": "x"}, {"limit": 3}):
                answer = await client.get(path, params={**query, **wrong})
                assert answer.status_code == 400, wrong
            assert (await client.get(path)).status_code == 400
            # Behind the end there is nothing yet, and that is no mistake.
            assert len(await page_of(client, topic, 3, 10)) == 0

    play(scene)


def test_what_retention_let_go_of_is_refused_and_not_passed_over(tmp_path: Path) -> None:
    async def scene() -> None:
        async with daemon(tmp_path) as desk, desk.client() as client:
            topic = await made(client)
            await publish(client, topic, *[{"payload": str(number)} for number in range(5)])
            log = await log_of(client, topic)
            flushed = await client.put(f"/v1/topics/{topic}", json={"settings": {}, "flush": True})
            assert flushed.status_code == 200
            await publish(client, topic, {"payload": "6"})
            now = await log_of(client, topic)
            assert (now["log"], now["oldest"], now["newest"]) == (log["log"], 6, 6)
            query: dict[str, str | int] = {"log": log["log"], "start": 5, "end": 7}
            answer = await client.get(f"/v1/topics/{topic}/log/events", params=query)
            assert (answer.status_code, answer.json()["code"]) == (410, "gone")
            assert list((await page_of(client, topic, 6, 7)).indices) == [6]

    play(scene)


def test_pages_end_and_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "PAGE_BYTES", 2000)
    monkeypatch.setattr(bulk, "STEP_BYTES", 500)

    async def scene() -> None:
        async with daemon(tmp_path) as desk, desk.client() as client:
            topic = await made(client)
            await publish(client, topic, *[{"payload": str(number)} for number in range(50)])
            found: list[int] = []
            while len(found) < 50:
                page = await page_of(client, topic, len(found) + 1, 51)
                assert 0 < len(page) < 50
                found += page.indices
            assert found == list(range(1, 51))

    play(scene)


def test_a_topic_is_followed_though_nobody_listens(tmp_path: Path) -> None:
    async def scene() -> None:
        async with daemon(tmp_path / "ann") as ann, ann.client() as author:
            topic = await made(author)
            await publish(author, topic, {"payload": "before"})
            address = (await author.get("/v1/status")).json()["addresses"][0]
            async with daemon(tmp_path / "ben", node__bootstrap=[address]) as ben:
                async with ben.client() as reader:
                    path = f"/v1/topics/{topic}"
                    unknown = await reader.get(f"{path}/log")
                    assert (unknown.status_code, unknown.json()["code"]) == (404, "not_followed")
                    for _ in range(2):
                        answer = await reader.post(
                            f"{path}/subscription", json={"start": "beginning"}
                        )
                        assert answer.status_code == 204, answer.text
                    await publish(author, topic, {"payload": "after"})
                    while (await log_of(reader, topic))["newest"] < 2:
                        await trio.sleep(0.05)
                    page = await page_of(reader, topic, 1, 3)
                    payloads = [decode_event(block).payload for block in page.blocks()]
                    assert payloads == [b"before", b"after"]
                    mine, theirs = await log_of(author, topic), await log_of(reader, topic)
                    assert mine["log"] != theirs["log"]
                    assert mine["store"] != theirs["store"]

    play(scene)


def test_topics_have_topics_below_them_and_get_more(tmp_path: Path) -> None:
    async def scene() -> None:
        async with daemon(tmp_path) as desk, desk.client() as client:
            rain = await made(client, name="rain", alias="rain")
            snow = await made(client, name="snow")
            topic = await made(client, subtopics={"rain": "rain"})
            below = (await log_of(client, topic))["subtopics"]
            assert below.pop("meta")
            assert below == {"rain": rain}
            changed = await client.put(
                f"/v1/topics/{topic}",
                json={"settings": {}, "subtopics": {"rain": rain, "snow": snow}},
            )
            assert changed.status_code == 200, changed.text
            log = await log_of(client, topic)
            assert log["version"] == 1
            assert {**log["subtopics"], "meta": ""} == {"rain": rain, "snow": snow, "meta": ""}
            await client.put(f"/v1/topics/{topic}", json={"settings": {}})
            assert (await log_of(client, topic))["subtopics"] == log["subtopics"]
            answer = await client.post(
                "/v1/topics", json={"name": "odd", "subtopics": {"x": "nothing"}}
            )
            assert answer.status_code == 404

    play(scene)
