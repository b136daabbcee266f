"""Who is let in: tokens, scopes, topics, hosts and origins, each refused by name."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from starlette.responses import Response

from pulsarcast.daemon import streams
from pulsarcast.daemon.app import ALL
from pulsarcast.daemon.daemon import listen
from pulsarcast.daemon.gate import Gate
from pulsarcast.daemon.metrics import Meters
from pulsarcast.daemon.sessions import Sessions
from pulsarcast.daemon.settings import load_settings
from pulsarcast.daemon.tokens import TokenBook
from pulsarcast.model.errors import LocalError
from tests.support.daemon_in_process import Desk, daemon, play

# httpx leaves it to the collector to close what it reads a stream with; Trio does not like that.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

READ, PUBLISH, ADMIN = "read", "publish", "admin"


async def topic_of(desk: Desk, name: str = "weather") -> str:
    async with desk.client() as client:
        made = await client.post("/v1/topics", json={"name": name})
        assert made.status_code == 201, made.text
        return str(made.json()["id"])


async def token_of(desk: Desk, *scopes: str, topics: list[str] | None = None) -> str:
    async with desk.client() as client:
        made = await client.post(
            "/v1/tokens", json={"name": "some", "scopes": scopes, "topics": topics}
        )
        assert made.status_code == 201, made.text
        return str(made.json()["token"])


async def ask(client: httpx.AsyncClient, method: str, path: str) -> httpx.Response:
    """A call that would succeed, or be refused for what it says, if it were let in."""
    body: dict[str, str] | None = {} if method in ("POST", "PUT") else None
    return await client.request(method, path, json=body)


def path_of(path: str, topic: str) -> str:
    for name, value in (
        ("topic", topic),
        ("alias", "a"),
        ("name", "n"),
        ("token_id", "t"),
        ("peer", "p"),
    ):
        path = path.replace(f"{{{name}}}", value)
    return path


def test_nothing_but_health_is_told_without_a_token(tmp_path: Path) -> None:
    async def scene() -> None:
        async with daemon(tmp_path) as desk, desk.client(None) as client:
            topic = await topic_of(desk)
            for operation in ALL:
                answer = await ask(client, operation.method, path_of(operation.path, topic))
                wanted = 200 if operation.scope is None else 401
                assert answer.status_code == wanted, operation.path
            for path in ("/metrics", "/v1/openapi.json", "/v1/nothing", "/nothing"):
                assert (await client.get(path)).status_code == 401, path
            health = (await client.get("/v1/health")).json()
            assert health == {"status": "ok", "reasons": []}

    play(scene)


def test_a_wrong_token_is_no_token(tmp_path: Path) -> None:
    async def scene() -> None:
        async with daemon(tmp_path) as desk:
            for secret in ("plsr_wrong", "x", desk.secret[:-1], desk.secret + "x", "ü" * 40):
                header = f"Bearer {secret}".encode()
                async with httpx.AsyncClient(base_url=desk.url) as client:
                    answer = await client.get("/v1/status", headers={b"Authorization": header})
                assert answer.status_code == 401
                assert answer.json()["code"] == "invalid_token"
                assert answer.headers["www-authenticate"] == "Bearer"
            async with httpx.AsyncClient(
                base_url=desk.url, auth=("operator", desk.secret)
            ) as client:
                assert (await client.get("/v1/status")).status_code == 401

    play(scene)


def test_a_token_of_another_scope_is_refused(tmp_path: Path) -> None:
    async def scene() -> None:
        async with daemon(tmp_path) as desk:
            topic = await topic_of(desk)
            allowed = {READ: {READ}, PUBLISH: {PUBLISH}, ADMIN: {READ, PUBLISH, ADMIN}}
            for scope, may in allowed.items():
                async with desk.client(await token_of(desk, scope)) as client:
                    for operation in ALL:
                        if operation.scope is None or operation.name == "subscribe":
                            continue
                        path = path_of(operation.path, topic)
                        answer = await ask(client, operation.method, path)
                        refused = (
                            answer.status_code == 403
                            and answer.json()["code"] == "insufficient_scope"
                        )
                        assert refused == (operation.scope not in may), (scope, operation.name)

    play(scene)


def test_a_token_of_another_topic_is_refused(tmp_path: Path) -> None:
    async def scene() -> None:
        async with daemon(tmp_path) as desk:
            ours, theirs = await topic_of(desk, "ours"), await topic_of(desk, "theirs")
            secret = await token_of(desk, READ, PUBLISH, topics=[ours])
            async with desk.client(secret) as client:
                for topic, status in ((ours, 201), (theirs, 403)):
                    answer = await client.post(f"/v1/topics/{topic}/events", json={"payload": "x"})
                    assert answer.status_code == status
                for topic, status in ((ours, 200), (theirs, 403)):
                    answer = await client.get(f"/v1/topics/{topic}/events")
                    assert answer.status_code == status
                # Also where it asks for the same topic in other words.
                peer = desk.running.peer
                answer = await client.get(f"/v1/topics/{peer}%2Ftheirs")
                assert (answer.status_code, answer.json()["code"]) == (403, "insufficient_scope")
                answer = await client.get(f"/v1/topics/{theirs}/subscribe")
                assert answer.status_code == 403
                listed = (await client.get("/v1/topics")).json()["topics"]
                assert [topic["id"] for topic in listed] == [ours]
                # The node as a whole is none of its business.
                for path in ("/v1/status", "/v1/peers", "/metrics", "/v1/aliases"):
                    assert (await client.get(path)).status_code == 403, path

    play(scene)


def test_a_revoked_token_is_worthless_also_for_a_stream_that_runs(tmp_path: Path) -> None:
    async def scene() -> None:
        async with daemon(tmp_path) as desk:
            topic = await topic_of(desk)
            secret = await token_of(desk, READ)
            async with desk.client(secret) as reader, desk.client() as operator:
                async with reader.stream("GET", f"/v1/topics/{topic}/subscribe") as stream:
                    lines = stream.aiter_lines()
                    while await anext(lines) != ": here":
                        pass
                    tokens = (await operator.get("/v1/tokens")).json()["tokens"]
                    token_id = next(each["id"] for each in tokens if each["name"] == "some")
                    await operator.delete(f"/v1/tokens/{token_id}")
                    await operator.post(f"/v1/topics/{topic}/events", json={"payload": "secret"})
                    rest = [line async for line in lines]
                    assert not any("secret" in line for line in rest)
                    assert any("revoked" in line for line in rest)
                assert (await reader.get("/v1/topics")).status_code == 401

    play(scene)


def test_a_page_of_somebody_else_is_refused(tmp_path: Path) -> None:
    async def scene() -> None:
        async with daemon(tmp_path) as desk:
            for origin in (
                "http://evil.example",
                "null",
                "http://127.0.0.1:1",
                "https://localhost",
            ):
                async with desk.client(Origin=origin) as client:
                    answer = await client.get("/v1/status")
                    assert (answer.status_code, answer.json()["code"]) == (403, "not_allowed"), (
                        origin
                    )
                    assert "access-control-allow-origin" not in answer.headers
            async with desk.client(Origin=desk.url) as client:
                assert (await client.get("/v1/status")).status_code == 200

    play(scene)


def test_a_websocket_passes_the_same_gate(tmp_path: Path) -> None:
    upgrade = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }

    async def scene() -> None:
        async with daemon(tmp_path) as desk:
            path = f"/v1/topics/{await topic_of(desk)}/subscribe"
            other = await token_of(desk, PUBLISH)
            for secret, query, more, status in (
                (None, "", {}, 401),
                ("wrong", "", {}, 401),
                (other, "", {}, 403),
                (desk.secret, "", {"Origin": "http://evil.example"}, 403),
                (desk.secret, "?start=never", {}, 400),
            ):
                async with desk.client(secret, **upgrade, **more) as client:
                    answer = await client.get(path + query)
                assert answer.status_code == status, (status, answer.text)
                assert set(answer.json()) == {"error", "code"}

    play(scene)


def test_a_name_that_was_made_to_lead_here_is_refused(tmp_path: Path) -> None:
    """DNS rebinding: the browser believes that it talks to the page's own server."""

    async def scene() -> None:
        async with daemon(tmp_path, http__hosts=["node.example"]) as desk:
            port = desk.url.rpartition(":")[2]
            for host in (f"evil.example:{port}", "evil.example", "", f"127.0.0.1.evil:{port}"):
                async with desk.client(Host=host) as client:
                    for path in ("/v1/status", "/v1/health", "/"):
                        answer = await client.get(path)
                        assert answer.status_code in (400, 421), (host, path)
            for host in (f"localhost:{port}", "node.example", f"NODE.example:{port}"):
                async with desk.client(Host=host) as client:
                    assert (await client.get("/v1/status")).status_code == 200, host

    play(scene)


@pytest.mark.parametrize(
    ("url", "port", "status"),
    [
        ("https://192.0.2.1", 443, 200),
        ("https://localhost", 443, 200),
        ("https://node.example", 443, 200),
        ("https://[::1]", 443, 200),
        ("http://192.0.2.1", 80, 200),
        ("http://192.0.2.1:443", 443, 200),
        ("https://evil.example", 443, 421),
        ("http://192.0.2.1", 8420, 421),
        ("http://localhost", 8420, 421),
    ],
)
def test_the_usual_port_may_be_left_out(tmp_path: Path, url: str, port: int, status: int) -> None:
    meters = Meters()
    gate = Gate(
        Response("here"),
        tokens=TokenBook(tmp_path),
        sessions=Sessions("12D3KooWPeer"),
        connections_max=1,
        counter=meters.requests,
        seconds=meters.seconds,
    )
    gate.admit(f"192.0.2.1:{port}", ["node.example"])

    async def scene() -> None:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(gate)) as client:
            assert (await client.get(f"{url}/v1/health")).status_code == status

    play(scene)


def test_the_pages_cookie_reads_and_does_nothing_else(tmp_path: Path) -> None:
    async def scene() -> None:
        async with daemon(tmp_path) as desk:
            topic = await topic_of(desk)
            async with desk.client() as operator:
                url = (await operator.post("/v1/page")).json()["url"]
            async with httpx.AsyncClient(base_url=desk.url) as browser:
                answer = await browser.get(url)
                assert answer.status_code == 303
                cookie = answer.headers["set-cookie"].lower()
                assert "httponly" in cookie
                assert "samesite=strict" in cookie
                assert (await browser.get("/v1/status")).status_code == 200
                assert (await browser.get(f"/v1/topics/{topic}/events")).status_code == 200
                assert (await browser.get("/v1/tokens")).status_code == 403
                # A form of another page can be sent with cookies; with ours it does nothing.
                answer = await browser.post(f"/v1/topics/{topic}/events", json={"payload": "x"})
                assert answer.status_code == 401
                cross = {"Sec-Fetch-Site": "cross-site"}
                assert (await browser.get("/v1/status", headers=cross)).status_code == 401
            async with httpx.AsyncClient(base_url=desk.url) as other:
                assert "set-cookie" not in (await other.get(url)).headers  # a code is good once
                assert (await other.get("/v1/status")).status_code == 401

    play(scene)


def test_pages_of_two_daemons_on_one_host_stay_open_in_one_browser(tmp_path: Path) -> None:
    """A cookie belongs to a host with all of its ports."""

    async def scene() -> None:
        async with (
            daemon(tmp_path / "ann") as ann,
            daemon(tmp_path / "ben") as ben,
            httpx.AsyncClient() as browser,
        ):
            for desk in (ann, ben):
                async with desk.client() as operator:
                    url = (await operator.post("/v1/page")).json()["url"]
                assert (await browser.get(url)).status_code == 303
            for desk in (ann, ben):
                assert (await browser.get(f"{desk.url}/v1/status")).status_code == 200

    play(scene)


def test_too_many_at_once_are_told_to_come_back(tmp_path: Path) -> None:
    async def scene() -> None:
        async with daemon(tmp_path, http__connections_max=2) as desk:
            topic = await topic_of(desk)
            path = f"/v1/topics/{topic}/subscribe"
            async with desk.client() as client:
                async with client.stream("GET", path) as one, client.stream("GET", path) as two:
                    assert (one.status_code, two.status_code) == (200, 200)
                    answer = await client.get("/v1/status")
                    assert (answer.status_code, answer.json()["code"]) == (429, "busy")
                    assert answer.headers["retry-after"] == "1"
                # Both are gone as soon as the daemon has seen it.
                for _ in range(100):
                    if (await client.get("/v1/status")).status_code == 200:
                        return
                raise AssertionError("still busy")

    play(scene)


def test_a_body_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    async def scene() -> None:
        async with daemon(tmp_path, http__body_bytes_max=1000) as desk:
            topic = await topic_of(desk)
            async with desk.client() as client:
                for body, status in ((b"x" * 900, 201), (b"x" * 100_000, 413)):
                    answer = await client.post(
                        f"/v1/topics/{topic}/events",
                        content=body,
                        headers={"Content-Type": "application/octet-stream"},
                    )
                    assert answer.status_code == status

    play(scene)


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"])
def test_others_cannot_reach_us_without_tls_or_a_proxy(tmp_path: Path, address: str) -> None:
    settings = load_settings(tmp_path, {}, {"http.address": address})
    with pytest.raises(LocalError, match="can be reached by others"):
        listen(settings)


def test_a_port_that_is_taken_is_said_with_what_to_type(tmp_path: Path) -> None:
    with listen(load_settings(tmp_path, {}, {"http.address": "127.0.0.1:0"})) as first:
        port = first.getsockname()[1]
        settings = load_settings(tmp_path, {}, {"http.address": f"127.0.0.1:{port}"})
        with pytest.raises(LocalError, match=f"such as --http 127.0.0.1:{port + 1}"):
            listen(settings)


def test_tokens_that_cannot_be_read_let_nobody_in_and_are_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene() -> None:
        async with daemon(tmp_path) as desk, desk.client() as client:
            whole = (tmp_path / "tokens.json").read_bytes()
            (tmp_path / "tokens.json").write_text("nonsense")
            for _ in range(3):
                answer = await client.get("/v1/status")
                assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
                assert str(tmp_path) not in answer.text  # It is none of a stranger's business.
                assert (await client.get("/v1/health")).status_code == 200
            (tmp_path / "tokens.json").write_bytes(whole)
            assert (await client.get("/v1/status")).status_code == 200

    with caplog.at_level("ERROR", "pulsarcast.daemon"):
        play(scene)
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 1
    assert "tokens.json cannot be read" in said[0]


def test_tokens_that_cannot_be_read_end_a_stream_with_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "KEEP_ALIVE_S", 0.1)

    async def scene() -> None:
        async with daemon(tmp_path) as desk, desk.client() as client:
            topic = await topic_of(desk)
            async with client.stream("GET", f"/v1/topics/{topic}/subscribe") as stream:
                lines = stream.aiter_lines()
                while await anext(lines) != ": here":
                    pass
                (tmp_path / "tokens.json").write_text("nonsense")
                rest = [line async for line in lines]
            assert "event: end" in rest
            said = rest[rest.index("event: end") + 1]
            assert "tokens cannot be read" in said
            assert str(tmp_path) not in said

    play(scene)
