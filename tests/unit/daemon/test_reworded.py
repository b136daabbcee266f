"""Every sentence is another one, and nothing behaves otherwise: programs go by codes alone."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from pulsarcast.client import AsyncClient
from pulsarcast.client.errors import is_passing
from pulsarcast.daemon.answers import STATUS
from pulsarcast.model.errors import (
    REFUSALS,
    Halted,
    InvalidFilter,
    LocalError,
    NotFollowed,
    PulsarcastError,
    TooLarge,
    TopicNotFound,
)
from pulsarcast.model.events import decode_request
from pulsarcast.model.topic_types import DeliveryOrder, TopicSettings
from pulsarcast.network.node import Node
from pulsarcast.protocol.inputs import Publish
from pulsarcast.protocol.messages import ANSWER_CODES, RequestAnswered, RequestToPublish
from tests.support.daemon_in_process import daemon, play
from tests.support.people import ALICE, topic_of, unordered
from tests.support.solo import Parent, below

SAID = "said otherwise"
Call = Callable[[], Awaitable[object]]


@pytest.fixture(autouse=True)
def _reworded(monkeypatch: pytest.MonkeyPatch) -> None:
    """No error says the same twice, and none what it was made with."""
    count = itertools.count()
    monkeypatch.setattr(PulsarcastError, "__str__", lambda error: f"{SAID} {next(count)}")


SMALL = {"settings": {"payload_bytes_max": 4, "order": "per-publisher"}}
REQUESTS: tuple[tuple[str, str, dict[str, Any], str], ...] = (
    ("GET", "/v1/nothing", {}, "not_found"),
    ("DELETE", "/v1/status", {}, "method_not_allowed"),
    ("GET", "/v1/topics/nothing", {}, "topic_not_found"),
    ("GET", "/v1/topics/{elsewhere}", {}, "topic_not_found"),
    ("DELETE", "/v1/topics/{elsewhere}/subscription", {}, "not_followed"),
    ("GET", "/v1/topics/{elsewhere}/log", {}, "not_followed"),
    ("POST", "/v1/topics/{topic}/events", {"json": {"payload": "12345"}}, "too_large"),
    ("POST", "/v1/topics/{topic}/events", {"content": b"1"}, "unsupported_media_type"),
    ("POST", "/v1/topics/{topic}/events", {"json": {"paylod": 1}}, "malformed"),
    (
        "POST",
        "/v1/topics/{topic}/events",
        {"json": {"payload": "=", "encoding": "base64"}},
        "invalid",
    ),
    ("GET", "/v1/topics/{topic}/events?where=price<", {}, "invalid_filter"),
    ("GET", "/v1/topics/{topic}/log/events?log=x&start=1&end=2", {}, "log_changed"),
    ("GET", "/v1/topics/{topic}/subscribe", {"headers": {"Last-Event-ID": "9"}}, "log_changed"),
    ("DELETE", "/v1/topics/{topic}/readers/nobody", {}, "reader_not_found"),
    ("DELETE", "/v1/aliases/nothing", {}, "not_found"),
    ("POST", "/v1/topics", {"json": {"name": "x", "alias": "small"}}, "conflict"),
    ("GET", "/v1/status", {"headers": {"Host": "elsewhere.example"}}, "misdirected"),
    ("GET", "/v1/status", {"headers": {"Origin": "http://elsewhere.example"}}, "not_allowed"),
    ("GET", "/v1/status", {"headers": {"Authorization": "Bearer nonsense"}}, "invalid_token"),
)


def test_http_answers_with_the_same_status_and_code(tmp_path: Path) -> None:
    async def scene() -> None:
        async with daemon(tmp_path) as desk, desk.client() as client:
            made = await client.post("/v1/topics", json={"name": "t", "alias": "small", **SMALL})
            names = {"topic": made.json()["id"], "elsewhere": "bafyrei" + "a" * 52}
            for method, path, more, code in REQUESTS:
                answer = await client.request(method, path.format(**names), **more)
                body = answer.json()
                assert (body["code"], answer.status_code) == (code, STATUS[code]), (path, body)
                assert SAID in body["error"] or code in ("not_found", "method_not_allowed")
            batch = {"events": [{"payload": "12345"}, {"payload": "1"}], "ack": "accepted"}
            answer = await client.post(f"/v1/topics/{names['topic']}/batch", json=batch)
            large, fits = answer.json()["events"]
            assert (large["code"], "id" in fits) == ("too_large", True)

    play(scene)


def test_every_code_has_a_status_and_is_named_in_the_description(tmp_path: Path) -> None:
    async def scene() -> None:
        async with daemon(tmp_path) as desk, desk.client() as client:
            schemas = (await client.get("/v1/openapi.json")).json()["components"]["schemas"]
            for kind in ("Problem", "BatchResult"):
                assert schemas[kind]["properties"]["code"]["enum"] == list(REFUSALS)

    play(scene)
    assert set(STATUS) == set(REFUSALS)


def test_the_client_raises_what_the_library_raises(tmp_path: Path) -> None:
    async def scene() -> None:
        async with daemon(tmp_path / "there") as desk, Node.open(tmp_path / "here") as node:
            async with AsyncClient(desk.url, desk.secret) as client:
                theirs = await client.create_topic("t")
                ours = await node.create_topic("t", unordered(payload_bytes_max=4))
                large = b"x" * ((1 << 20) + 1)
                calls: tuple[tuple[type[LocalError], Call, Call], ...] = (
                    (TopicNotFound, lambda: client.topic(ours.id), lambda: node.topic(theirs.id)),
                    (
                        NotFollowed,
                        lambda: client.unsubscribe(ours.id),
                        lambda: node.unsubscribe(theirs.id),
                    ),
                    (
                        InvalidFilter,
                        lambda: client.subscribe(theirs, where="price <"),
                        lambda: node.subscribe(ours, where="price <"),
                    ),
                    (
                        TooLarge,
                        lambda: client.publish(theirs, large),
                        lambda: node.publish(ours, b"12345"),
                    ),
                )
                for kind, *both in calls:
                    for call in both:
                        with pytest.raises(kind, match=SAID) as caught:
                            await call()
                        assert caught.value.code == kind.code

    play(scene)


@pytest.mark.parametrize("code", sorted(ANSWER_CODES))
def test_a_publishers_refusal_means_the_same_as_our_own(code: str) -> None:
    """So a sequencer that finds a payload too large gives 413, as the node itself does."""
    refused = answered(code)
    assert type(refused) is REFUSALS[code]
    assert STATUS[refused.code] == STATUS[code]


@pytest.mark.parametrize("code", ["", "invalid_token", "disk_full", "internal", "anything"])
def test_a_publisher_cannot_speak_for_our_disk_or_our_callers_token(code: str) -> None:
    assert type(answered(code)) is LocalError


def answered(code: str) -> LocalError:
    """What a caller is told where the sequencer refuses its request with a code."""
    settings = TopicSettings(order=DeliveryOrder.TOTAL, publishers=(ALICE.peer_id,))
    topic = topic_of(ALICE, settings)
    solo = below(Parent("alice", [topic.block]))
    solo.give(Publish(99, topic.cid, b"please"))
    (asked,) = solo.sent_to(ALICE.peer_id, RequestToPublish)
    answer = RequestAnswered(topic.cid, decode_request(asked.block).request_id, None, 0, code, "no")
    solo.hear(ALICE.peer_id, answer)
    refusal = solo.replies[99].refusal
    assert refusal is not None
    return refusal.error()


def test_what_may_pass_is_tried_again_and_what_will_not_is_not() -> None:
    passing = {kind.code for kind in REFUSALS.values() if is_passing(kind("no"))}
    assert passing == {"busy", "closed", "unavailable"}
    assert not Halted.retryable
    assert not TooLarge.retryable
