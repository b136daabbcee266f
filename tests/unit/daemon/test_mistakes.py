"""Wrong requests: each is answered by a code for programs and a sentence for people."""

from __future__ import annotations

from pathlib import Path

import httpx

from tests.support.daemon_in_process import daemon, play

BIG = b"[" + b" " * (2 << 20)
JSON = {"Content-Type": "application/json"}
NO_SUCH = "bafyreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy"

MISTAKES: tuple[tuple[str, str, bytes | None, int, str, str], ...] = (
    ("GET", "/v1/nothing", None, 404, "not_found", "/v1/nothing"),
    ("PATCH", "/v1/topics", None, 405, "method_not_allowed", "not PATCH"),
    ("DELETE", "/v1/status", None, 405, "method_not_allowed", "not DELETE"),
    ("POST", "/v1/topics", b"{", 400, "malformed", "it ends too early"),
    ("POST", "/v1/topics", b"\xff", 400, "malformed", "not valid"),
    ("POST", "/v1/topics", b"[]", 400, "malformed", "expected an object, got a list"),
    ("POST", "/v1/topics", b"{}", 400, "malformed", "the field 'name' is missing"),
    ("POST", "/v1/topics", b'{"name":5}', 400, "malformed", "name: expected a text"),
    ("POST", "/v1/topics", b'{"nam":"a"}', 400, "malformed", "there is no field 'nam'"),
    ("POST", "/v1/topics", b'{"name":""}', 422, "invalid", "1 to 256 bytes"),
    (
        "POST",
        "/v1/topics",
        b'{"name":"a","settings":{"order":"totl"}}',
        400,
        "malformed",
        "settings.order: there is no choice 'totl'",
    ),
    ("POST", "/v1/topics", BIG, 413, "too_large", "http.body_bytes_max"),
    ("GET", "/v1/topics/nope", None, 404, "topic_not_found", "'nope'"),
    ("GET", "/v1/topics/%ff", None, 400, "malformed", "not UTF-8"),
    ("GET", "/v1/topics/t/events?start=0", None, 400, "malformed", "start: expected an integer"),
    ("GET", "/v1/topics/t/events?limit=x", None, 400, "malformed", "limit: expected an integer"),
    ("GET", "/v1/topics/t/events?lmit=1", None, 400, "malformed", "there is no field 'lmit'"),
    ("GET", "/v1/topics/t/events?limit=1&limit=2", None, 400, "malformed", "given twice"),
    ("GET", "/v1/topics/t/events?where=x+%3D", None, 422, "invalid_filter", "column"),
    ("GET", "/v1/events/nope", None, 422, "invalid", "'nope'"),
    ("GET", f"/v1/events/{NO_SUCH}", None, 404, "not_found", "check it"),
    ("DELETE", "/v1/aliases/nope", None, 404, "not_found", "'nope'"),
    ("DELETE", "/v1/tokens/nope", None, 404, "not_found", "'nope'"),
    ("POST", "/v1/tokens", b'{"name":"","scopes":["read"]}', 400, "malformed", "name: expected"),
    ("POST", "/v1/topics/t/events", b'{"payload":5}', 400, "malformed", "payload: expected a text"),
)


def test_every_wrong_request_is_answered_by_a_code_and_a_sentence(tmp_path: Path) -> None:
    async def scene() -> None:
        async with daemon(tmp_path) as desk, desk.client() as client:
            made = await client.post("/v1/topics", json={"name": "t", "alias": "t"})
            assert made.status_code == 201
            for method, path, body, status, code, words in MISTAKES:
                answer = await client.request(method, path, content=body, headers=JSON)
                assert answer.status_code == status, (method, path, answer.text)
                check(answer, code, words)
            plain = await client.post("/v1/topics", content=b"name=t")
            check(plain, "unsupported_media_type", "application/json")
            elsewhere = await client.get("/v1/status", headers={"Host": "elsewhere.example"})
            check(elsewhere, "misdirected", "http.hosts")
            page = await client.get("/v1/status", headers={"Origin": "http://elsewhere.example"})
            check(page, "not_allowed", "another origin")
        async with daemon(tmp_path) as desk, desk.client(None) as client:
            check(await client.get("/v1/status"), "invalid_token", "--token")
        async with daemon(tmp_path) as desk, desk.client("plsr_wrong") as client:
            check(await client.get("/v1/status"), "invalid_token", "unknown, or was revoked")

    play(scene)


def check(answer: httpx.Response, code: str, words: str) -> None:
    """An answer that programs and people can use."""
    told = answer.json()
    assert (answer.headers["content-type"], told["code"]) == ("application/json", code), told
    assert words in told["error"], told
