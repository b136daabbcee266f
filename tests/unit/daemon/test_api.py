"""The API, operation by operation, on a real node."""

from __future__ import annotations

import base64
from pathlib import Path

import httpx
import pytest
import trio

from pulsarcast import __version__
from pulsarcast.daemon import local_names
from pulsarcast.daemon.service import Service
from pulsarcast.model.identity import Identity
from pulsarcast.model.ids import peer_text
from pulsarcast.network.resources import Why
from tests.support.daemon_in_process import daemon, play


async def made(client: httpx.AsyncClient, **given: object) -> str:
    answer = await client.post("/v1/topics", json={"name": "weather", **given})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def test_a_topic_is_created_shown_listed_and_changed(tmp_path: Path) -> None:
    async def scene() -> None:
        async with daemon(tmp_path, storage__retention_days=7) as desk, desk.client() as client:
            settings = {"order": "total", "retention": {"count": 5}}
            topic = await made(client, alias="w", settings=settings)
            peer = desk.running.peer
            shown = (await client.get("/v1/topics/w")).json()
            assert shown == (await client.get(f"/v1/topics/{topic}")).json()
            assert shown == (await client.get(f"/v1/topics/{peer}%2Fweather")).json()
            assert shown["settings"]["order"] == "total"
            assert shown["settings"]["retention"] == {"count": 5}
            assert shown["settings"]["publishers"] == [peer]
            assert (shown["version"], shown["aliases"]) == (0, ["w"])
            changed = await client.put(
                "/v1/topics/w", json={"settings": {"order": "total", "request_to_publish": False}}
            )
            assert changed.status_code == 200, changed.text
            assert changed.json()["version"] == 1
            assert changed.json()["settings"]["request_to_publish"] is False
            (listed,) = (await client.get("/v1/topics")).json()["topics"]
            assert (listed["id"], listed["version"], listed["is_root"]) == (topic, 1, True)
            # Where a topic says nothing of retention, the node's default holds.
            other = await made(client, name="other")
            kept = (await client.get(f"/v1/topics/{other}")).json()["settings"]["retention"]
            assert kept == {"age_s": 7 * 86_400}
            status = (await client.get("/v1/status")).json()
            assert status["retention_default"] == {"age_s": 7 * 86_400}
            assert (status["version"], status["topics"], status["ready"]) == (__version__, 2, True)

    play(scene)


def test_a_listed_topic_is_found_and_one_that_is_unlisted_is_not(tmp_path: Path) -> None:
    async def scene() -> None:
        async with daemon(tmp_path) as desk, desk.client() as client:
            settings = {"description": "In Lisbon", "tags": ["Weather", "IoT"]}
            topic = await made(client, settings=settings)
            shown = (await client.get(f"/v1/topics/{topic}")).json()
            assert shown["settings"]["tags"] == ["iot", "weather"]
            for query in ("words=lisbon", "tags=IoT,weather", f"author={desk.running.peer}"):
                found = (await client.get(f"/v1/listings?{query}")).json()
                assert found["cut"] is False
                (listing,) = found["listings"]
                assert (listing["id"], listing["description"]) == (topic, "In Lisbon")
            assert (await client.get("/v1/listings?words=paris")).json()["listings"] == []
            # What a view does not name stays as it is.
            kept = await client.put(f"/v1/topics/{topic}", json={"settings": {}})
            assert kept.json()["settings"]["description"] == "In Lisbon"
            ended = {"settings": {"description": "", "tags": []}}
            assert (await client.put(f"/v1/topics/{topic}", json=ended)).status_code == 200
            assert (await client.get("/v1/listings?words=lisbon")).json()["listings"] == []
            for wrong in (
                "",
                "words=%1b",
                "author=nobody",
                "words=a&words=b",
                "limit=1001&words=a",
            ):
                answer = await client.get(f"/v1/listings?{wrong}")
                assert answer.status_code in (400, 422), wrong
            bad = {"name": "bad", "settings": {"description": "\x1b[2J"}}
            assert (await client.post("/v1/topics", json=bad)).status_code == 422

    play(scene)


def test_what_is_published_is_in_the_history_as_it_was(tmp_path: Path) -> None:
    async def scene() -> None:
        async with daemon(tmp_path) as desk, desk.client() as client:
            topic = await made(client)
            path = f"/v1/topics/{topic}/events"
            binary = bytes(range(256))
            attributes = {"n": 1, "x": 1.5, "s": "é", "b": True, "d": {"base64": "AAE="}}
            for body in (
                {"payload": "sunny ☀", "name": "today", "attributes": attributes},
                {"payload": base64.b64encode(binary).decode(), "encoding": "base64"},
            ):
                answer = await client.post(path, json=body)
                assert answer.status_code == 201, answer.text
            await client.post(
                f"{path}?name=raw&ack=accepted",
                content=binary,
                headers={"Content-Type": "application/octet-stream"},
            )
            page = (await client.get(path)).json()
            first, second, third = page["events"]
            assert (page["next"], page["newest"]) == (None, 3)
            assert (first["payload"], first["name"]) == ("sunny ☀", "today")
            assert first["attributes"] == attributes
            assert "encoding" not in first
            assert base64.b64decode(second["payload"]) == binary
            assert (third["payload"], third["name"]) == (second["payload"], "raw")
            page = (await client.get(path, params={"start": 2, "limit": 1})).json()
            assert ([event["index"] for event in page["events"]], page["next"]) == ([2], 3)

    play(scene)


def test_the_same_key_publishes_once(tmp_path: Path) -> None:
    async def scene() -> None:
        async with daemon(tmp_path) as desk, desk.client() as client:
            path = f"/v1/topics/{await made(client)}/events"
            ids = set()
            for _ in range(3):
                answer = await client.post(
                    path, json={"payload": "x"}, headers={"Idempotency-Key": "k"}
                )
                ids.add(answer.json()["id"])
            assert len(ids) == 1
            assert (await client.get(path)).json()["newest"] == 1

    play(scene)


def test_parents_are_refused_where_the_node_links_events_itself(tmp_path: Path) -> None:
    async def scene() -> None:
        async with daemon(tmp_path) as desk, desk.client() as client:
            for linking, status in (("LAST_SEEN", 422), ("CUSTOM", 201)):
                topic = {"name": linking, "settings": {"linking": linking}}
                cid = (await client.post("/v1/topics", json=topic)).json()["id"]
                path = f"/v1/topics/{cid}/events"
                first = (await client.post(path, json={"payload": "1"})).json()["id"]
                second = {"payload": "2", "parents": [first]}
                answer = await client.post(path, json=second)
                assert answer.status_code == status, answer.text
                batch = f"/v1/topics/{cid}/batch"
                answer = await client.post(batch, json={"events": [second], "ack": "accepted"})
                assert answer.status_code == (200 if status == 201 else status), answer.text

    play(scene)


@pytest.mark.parametrize("key", [b"", b"k" * 257, "schlüssel".encode(), "é".encode("latin-1")])
def test_a_key_that_is_no_key_is_refused(tmp_path: Path, key: bytes) -> None:
    """Bytes beyond ASCII mean one text to one client and another to the next."""

    async def scene() -> None:
        async with daemon(tmp_path) as desk, desk.client() as client:
            path = f"/v1/topics/{await made(client)}/events"
            answer = await client.post(
                path, json={"payload": "x"}, headers={b"Idempotency-Key": key}
            )
            assert (answer.status_code, answer.json()["code"]) == (400, "malformed")
            assert (await client.get(path)).json()["newest"] == 0

    play(scene)


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/v1/topics", {}, 400),
        ("POST", "/v1/topics", {"name": ""}, 422),
        ("POST", "/v1/topics", {"name": "x", "settings": {"order": "random"}}, 400),
        (
            "POST",
            "/v1/topics",
            {"name": "x", "settings": {"order": "causal", "linking": "CUSTOM"}},
            422,
        ),
        ("POST", "/v1/topics", {"name": "x", "settings": {"publishers": ["me"]}}, 422),
        ("POST", "/v1/topics", {"name": "x", "nonsense": 1}, 400),
        ("POST", "/v1/topics", {"name": "x", "alias": "no/slash"}, 422),
        ("GET", "/v1/topics/nothing", None, 404),
        ("GET", "/v1/topics/a%2Fb", None, 404),
        ("GET", "/v1/topics/%FF", None, 400),
        ("POST", "/v1/topics/TOPIC/events", {"payload": 1}, 400),
        ("POST", "/v1/topics/TOPIC/events", {"payload": "=", "encoding": "base64"}, 422),
        ("POST", "/v1/topics/TOPIC/events", {"payload": "x", "parents": ["y"]}, 422),
        ("POST", "/v1/topics/TOPIC/events?title=x", {"payload": "x"}, 400),
        ("GET", "/v1/topics/TOPIC/events?limit=0", None, 400),
        ("GET", "/v1/topics/TOPIC/events?limit=1&limit=2", None, 400),
        ("GET", "/v1/topics/TOPIC/events?page=1", None, 400),
        ("GET", "/v1/topics/TOPIC/subscribe?start=yesterday", None, 400),
        ("GET", "/v1/topics/TOPIC/subscribe?name=~x", None, 400),
        ("DELETE", "/v1/aliases/nothing", None, 404),
        ("DELETE", "/v1/tokens/nothing", None, 404),
        ("DELETE", "/v1/topics/TOPIC/readers/nobody", None, 404),
        ("POST", "/v1/topics/TOPIC/readers/nobody/done", {"index": 1}, 404),
        ("POST", "/v1/tokens", {"name": "x", "scopes": ["everything"]}, 400),
        ("PATCH", "/v1/topics", {}, 405),
        ("GET", "/v2/topics", None, 404),
    ],
)
def test_what_is_wrong_is_refused_with_a_code_and_a_sentence(
    tmp_path: Path, method: str, path: str, body: object, status: int
) -> None:
    async def scene() -> None:
        async with daemon(tmp_path) as desk, desk.client() as client:
            if "TOPIC" in path:
                known = path.replace("TOPIC", await made(client))
            else:
                known = path
            answer = await client.request(method, known, json=body)
            assert answer.status_code == status, answer.text
            assert set(answer.json()) == {"error", "code"}

    play(scene)


def test_a_topic_whose_alias_is_refused_is_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever corrects the alias and tries again must not have two topics of one name."""

    async def scene() -> None:
        async with daemon(tmp_path) as desk, desk.client() as client:
            answer = await client.post("/v1/topics", json={"name": "x", "alias": "no/slash"})
            assert answer.status_code == 422
            monkeypatch.setattr(local_names, "NAMES_MAX", 0)
            answer = await client.post("/v1/topics", json={"name": "x", "alias": "one-too-many"})
            assert (answer.status_code, "aliases already" in answer.text) == (422, True)
            assert (await client.get("/v1/topics")).json() == {"topics": []}

    play(scene)


def test_a_body_of_another_type_is_refused(tmp_path: Path) -> None:
    async def scene() -> None:
        async with daemon(tmp_path) as desk, desk.client() as client:
            topic = await made(client)
            for path in ("/v1/topics", f"/v1/topics/{topic}/events"):
                answer = await client.post(path, content=b"{}", headers={"Content-Type": "text/x"})
                assert answer.status_code == 415

    play(scene)


def test_who_listens_nowhere_has_no_address_for_others_and_a_tip(tmp_path: Path) -> None:
    async def scene() -> None:
        async with daemon(tmp_path, node__listen=[]) as desk, desk.client() as client:
            status = (await client.get("/v1/status")).json()
            assert status["addresses"] == []
            assert "node.announce" in status["tips"][-1]

    play(scene)


def test_a_full_disk_is_said_and_nothing_new_is_taken(tmp_path: Path) -> None:
    async def scene() -> None:
        async with daemon(tmp_path) as desk, desk.client() as client:
            topic = await made(client)
        async with daemon(tmp_path, storage__disk_bytes_max=1) as desk, desk.client() as client:
            answer = await client.post(f"/v1/topics/{topic}/events", json={"payload": "x"})
            assert (answer.status_code, answer.json()["code"]) == (507, "disk_full")
            assert (await client.post("/v1/topics", json={"name": "x"})).status_code == 507
            ready = await client.get("/v1/health/ready")
            assert (ready.status_code, ready.json()["status"]) == (503, "not ready")
            status = (await client.get("/v1/status")).json()
            assert "storage.disk_bytes_max" in status["reasons"][0]
            # What is there can still be read.
            assert (await client.get(f"/v1/topics/{topic}/events")).status_code == 200

    play(scene)


def test_what_breaks_is_in_the_log_and_tells_a_stranger_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def break_down(service: Service) -> None:
        raise RuntimeError("the secret of why")

    monkeypatch.setattr(Service, "status", break_down)

    async def scene() -> None:
        async with daemon(tmp_path) as desk, desk.client() as client:
            answer = await client.get("/v1/status")
            assert (answer.status_code, answer.json()["code"]) == (500, "internal")
            assert "secret" not in answer.text
            assert (await client.get("/v1/health")).status_code == 200

    play(scene)
    ours = [each for each in caplog.records if each.name == "pulsarcast.daemon.app"]
    assert [each.exc_info is not None for each in ours] == [True]


def test_strangers_cannot_make_meters_grow(tmp_path: Path) -> None:
    async def scene() -> None:
        async with daemon(tmp_path) as desk, desk.client() as client, desk.client(None) as stranger:
            for number in range(20):
                await stranger.request(f"METHOD{number}", f"/v1/path-{number}")
            text = (await client.get("/metrics")).text
            assert "METHOD" not in text
            assert "path-" not in text
            assert 'method="OTHER",operation="none",status="401"} 20.0' in text

    play(scene)


def test_meters_count_and_carry_no_payload(tmp_path: Path) -> None:
    async def scene() -> None:
        async with daemon(tmp_path) as desk, desk.client() as client:
            topic = await made(client)
            await client.post(f"/v1/topics/{topic}/events", json={"payload": "secret"})
            text = (await client.get("/metrics")).text
            assert f'pulsarcast_topic_events_total{{name="weather",topic="{topic}"}} 1.0' in text
            assert "pulsarcast_ready 1.0" in text
            assert 'operation="publish",status="201"' in text
            assert "secret" not in text
            assert desk.secret not in text
            for meter in ("relays", "peers_relayed", "relay_reservations", "relay_circuits"):
                assert f"pulsarcast_{meter} 0.0" in text
            for meter in ("relayed_bytes", "holes_punched", "holes_not_punched"):
                assert f"pulsarcast_{meter}_total 0.0" in text
            for why in Why:
                assert f'pulsarcast_peers_cut_off_total{{why="{why}"}} 0.0' in text

    play(scene)


def test_the_id_of_an_event_is_no_topic(tmp_path: Path) -> None:
    async def scene() -> None:
        async with daemon(tmp_path) as desk, desk.client() as client:
            topic = await made(client)
            published = await client.post(f"/v1/topics/{topic}/events", json={"payload": "x"})
            event = published.json()["id"]
            for path in ("", "/events?where=price%20%3C%205", "/subscribe?where=price%20%3C%205"):
                answer = await client.get(f"/v1/topics/{event}{path}")
                assert (answer.status_code, answer.json()["code"]) == (404, "topic_not_found"), path

    play(scene)


def test_a_daemon_is_given_bootstrap_peers_while_it_runs(tmp_path: Path) -> None:
    async def scene() -> None:
        async with (
            daemon(tmp_path / "ann") as ann,
            daemon(tmp_path / "ben") as ben,
            ben.client() as client,
        ):
            given = {"addresses": list(ann.running.addresses)}
            answer = await client.post("/v1/bootstrap", json=given)
            assert answer.status_code == 204, answer.text
            while (await client.get("/v1/status")).json()["peers"] != 1:
                await trio.sleep(0.05)
            for wrong in ({}, {"addresses": "here"}, {"addresses": ["here"]}):
                answer = await client.post("/v1/bootstrap", json=wrong)
                assert answer.status_code in (400, 422), answer.text

    play(scene)


def test_a_daemon_that_knows_peers_and_reaches_none_says_which_and_why(tmp_path: Path) -> None:
    async def scene() -> None:
        async with daemon(tmp_path / "ann") as ann, ann.client() as client:
            now = (await client.get("/v1/status")).json()
            assert (now["state"], now["bootstrap"]) == ("ready", [])
            assert (now["reach"]["kind"], now["reach"]["reports"]) == ("unknown", [])
            peer = Identity.from_seed(bytes(32)).peer_id
            gone = "/ip4/127.0.0.1/tcp/1"
            given = {"addresses": [f"{gone}/p2p/{peer_text(peer)}"]}
            await client.post("/v1/bootstrap", json=given)
            while not (view := (await client.get("/v1/status")).json()["bootstrap"][0])["reason"]:
                await trio.sleep(0.05)
            assert (view["peer"], view["state"]) == (peer_text(peer), "unreachable")
            assert view["reason"] == f"{gone}: no program listens there (connection refused)"
            now = (await client.get("/v1/status")).json()
            assert now["ready"], "it keeps its promises"
            assert now["state"] == "ready, but alone: no peer answers"
            assert "goes on trying 1 bootstrap peer" in now["tips"][0]
            async with (
                daemon(tmp_path / "ben", node__bootstrap=list(ann.running.addresses)) as ben,
                ben.client() as other,
            ):
                there = (await other.get("/v1/status")).json()
                assert there["bootstrap"][0]["state"] == "connected"
                now = (await client.get("/v1/status")).json()
                assert now["state"] == "ready"
                assert now["reach"]["kind"] == "public"
                (report,) = now["reach"]["reports"]
                assert report["peer"] == ben.running.peer
                assert report["near"]

    play(scene)
