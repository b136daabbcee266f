"""Names of peers: what may be one, whom it means, and where it is taken and shown."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from pulsarcast.daemon import local_names
from pulsarcast.daemon.aliases import AliasBook
from pulsarcast.daemon.local_names import PeerBook
from pulsarcast.model.errors import Conflict, LocalError, NotFound
from pulsarcast.model.identity import Identity
from pulsarcast.model.ids import peer_text
from pulsarcast.storage.backup import SETTINGS
from tests.support.daemon_in_process import daemon, play

ANN, BEN, CAL = (Identity.from_seed(bytes([place]) * 32).peer_id for place in range(1, 4))


@pytest.mark.parametrize("name", ["b", "ben", "ben-2", "ben.home_1", "x" * 32])
def test_a_name_stands_for_its_peer_after_a_restart_too(tmp_path: Path, name: str) -> None:
    PeerBook(tmp_path).set(BEN, name)
    book = PeerBook(tmp_path)
    assert book.resolve(name) == book.resolve(peer_text(BEN)) == BEN
    assert book.names == {peer_text(BEN): name}


@pytest.mark.parametrize(
    "name",
    [
        "", " ", "Ben", "bEn", "2ben", "-ben", ".ben", "ben/weather", "ben weather", "ben\n", "bén",
        "b\u0435n",  # with a Cyrillic letter
        "ben\u200b", "\x1b[2J", "x" * 33, "…12345678", "ben …12345678",
        peer_text(BEN), peer_text(BEN).lower(),
        "k51qzi5uqu5dgutdk6i1ynyzgkqngpha5xpgia3a5qqp4jsh0u4csozksxel2r",
        "bafzaajaiaejcbp4mexu37jtcpycjrxpoqgqyvkgmimcxgjkiekoyfirzc6lsgdvg",
    ],
)  # fmt: skip
def test_what_looks_like_an_id_or_like_another_name_is_refused(tmp_path: Path, name: str) -> None:
    book = PeerBook(tmp_path)
    with pytest.raises(LocalError, match="lower-case"):
        book.set(ANN, name)
    assert book.names == {}
    assert not (tmp_path / "peer_names.json").exists()


def test_a_name_never_moves_to_another_peer(tmp_path: Path) -> None:
    book = PeerBook(tmp_path)
    book.set(BEN, "ben")
    book.set(BEN, "ben")
    with pytest.raises(Conflict, match=peer_text(BEN)):
        book.set(ANN, "ben")
    assert book.resolve("ben") == BEN
    book.drop(BEN)
    book.set(ANN, "ben")
    assert book.resolve("ben") == ANN
    with pytest.raises(NotFound):
        book.drop(BEN)


def test_a_peer_has_one_name(tmp_path: Path) -> None:
    book = PeerBook(tmp_path)
    book.set(BEN, "ben")
    book.set(BEN, "benjamin")
    assert book.names == {peer_text(BEN): "benjamin"}
    with pytest.raises(LocalError, match="neither a peer id nor the name"):
        book.resolve("ben")


def test_names_are_bounded_and_a_full_book_still_renames(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_names, "NAMES_MAX", 1)
    book = PeerBook(tmp_path)
    book.set(BEN, "ben")
    with pytest.raises(LocalError, match="drop some"):
        book.set(ANN, "ann")
    book.set(BEN, "benjamin")
    assert book.names == {peer_text(BEN): "benjamin"}


def test_a_damaged_file_is_named_and_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "peer_names.json").write_text("{")
    with pytest.raises(LocalError, match=r"peer_names\.json"):
        PeerBook(tmp_path)


def test_local_names_are_part_of_a_backup() -> None:
    assert {AliasBook.file, PeerBook.file} <= set(SETTINGS)


def test_a_name_is_taken_wherever_a_peer_id_is(tmp_path: Path) -> None:
    async def scene() -> None:
        async with daemon(tmp_path) as desk, desk.client() as client:
            ben, cal, me = peer_text(BEN), peer_text(CAL), desk.running.peer
            for peer, name in ((ben, "ben"), (cal, "cal"), (me, "me")):
                answer = await client.put(f"/v1/peer-names/{peer}", json={"name": name})
                assert answer.status_code == 200, answer.text
            assert answer.json() == {"peer_names": {ben: "ben", cal: "cal", me: "me"}}
            settings = {"publishers": ["ben", "me"], "requesters": ["cal"], "recovery_keys": [ben]}
            new = {"name": "weather", "settings": {**settings, "description": "In Lisbon"}}
            made = (await client.post("/v1/topics", json=new)).json()
            # For programs: the ids, and names in a field of their own.
            assert set(made["settings"]["publishers"]) == {ben, me}
            assert made["settings"]["requesters"] == [cal]
            assert made["peer_names"] == {ben: "ben", cal: "cal", me: "me"}
            total = {"order": "total", "sequencers": ["me", "ben", "cal"]}
            ledger = await client.post("/v1/topics", json={"name": "ledger", "settings": total})
            assert set(ledger.json()["settings"]["sequencers"]) == {ben, cal, me}
            shown = (await client.get("/v1/topics/me%2Fweather")).json()
            assert (shown["id"], shown["author"]) == (made["id"], me)
            (listing,) = (await client.get("/v1/listings?author=me")).json()["listings"]
            assert (listing["author"], listing["peer_names"]) == (me, {me: "me"})
            changed = await client.put("/v1/topics/me%2Fweather", json={"settings": settings})
            assert changed.json()["version"] == 1, changed.text
            status = (await client.get("/v1/status")).json()
            assert (status["peer"], status["peer_names"]) == (me, {me: "me"})
            # A name is a way to say whose name it is, too.
            await client.put("/v1/peer-names/ben", json={"name": "benjamin"})
            assert (await client.delete("/v1/peer-names/cal")).status_code == 204
            names = (await client.get("/v1/peer-names")).json()["peer_names"]
            assert names == {ben: "benjamin", me: "me"}

    play(scene)


# httpx leaves it to the collector to close what it reads a stream with.
@pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_events_tell_the_names_that_their_peers_have_now(tmp_path: Path) -> None:
    async def scene() -> None:
        async with daemon(tmp_path) as desk, desk.client() as client:
            me = desk.running.peer
            new = {"name": "ben", "settings": {"description": "ben", "tags": ["ben"]}}
            topic = (await client.post("/v1/topics", json=new)).json()["id"]
            path = f"/v1/topics/{topic}"
            said = {"payload": "ben", "name": "ben", "attributes": {"name": "ben"}}
            event = (await client.post(f"{path}/events", json=said)).json()["id"]
            pages = (f"{path}/events", f"{path}/subscribe?start=1", f"/v1/events/{event}")
            # What others call themselves, their topics and events names no peer.
            for name in ("", "me", "self"):
                if name:
                    await client.put(f"/v1/peer-names/{me}", json={"name": name})
                for each in pages:
                    found = await _first_event(client, each)
                    assert found["author"] == me
                    assert found.get("peer_names", {}) == ({me: name} if name else {}), each
                walked = await client.post(f"/v1/events/{event}/walk", json={})
                assert walked.json()["events"][0].get("peer_names", {}) == (
                    {me: name} if name else {}
                )
            (followed,) = (await client.get("/v1/topics")).json()["topics"]
            assert followed["peer_names"] == {me: "self"}
            assert (await client.get("/v1/topics/ben%2Fben")).status_code == 404

    play(scene)


async def _first_event(client: httpx.AsyncClient, path: str) -> dict[str, object]:
    if "subscribe" not in path:
        found = (await client.get(path)).json()
        return dict(found["events"][0] if "events" in found else found)
    async with client.stream("GET", path) as answer:
        async for line in answer.aiter_lines():
            if line.startswith("data:"):
                return dict(json.loads(line.removeprefix("data:")))
    raise AssertionError("no event")


def test_an_unknown_name_is_refused_with_the_way_to_the_names(tmp_path: Path) -> None:
    async def scene() -> None:
        async with daemon(tmp_path) as desk, desk.client() as client:
            refused = [
                await client.post("/v1/topics", json={"name": "x", "settings": {role: ["bne"]}})
                for role in ("publishers", "requesters", "recovery_keys")
            ]
            refused += [
                await client.get("/v1/listings?author=bne"),
                await client.get("/v1/topics/bne%2Fweather"),
                await client.put("/v1/peer-names/bne", json={"name": "ben"}),
                await client.delete("/v1/peer-names/bne"),
            ]
            for answer in refused:
                assert answer.status_code in (404, 422), answer.text
                assert "'bne' is neither a peer id nor the name of a peer" in answer.json()["error"]
            me = desk.running.peer
            await client.put(f"/v1/peer-names/{me}", json={"name": "me"})
            taken = await client.put(f"/v1/peer-names/{peer_text(BEN)}", json={"name": "me"})
            assert (taken.status_code, taken.json()["code"]) == (409, "conflict")
            assert me in taken.json()["error"]
            nameless = await client.delete(f"/v1/peer-names/{peer_text(BEN)}")
            assert (nameless.status_code, nameless.json()["code"]) == (404, "not_found")
            assert (await client.get("/v1/topics")).json() == {"topics": []}

            # Naming a peer gives it rights later on: it is the operator's.
            token = {"name": "reader", "scopes": ["read", "publish"]}
            secret = (await client.post("/v1/tokens", json=token)).json()["token"]
            path = f"/v1/peer-names/{me}"
            async with desk.client(secret) as reader:
                assert (await reader.put(path, json={"name": "you"})).status_code == 403
                assert (await reader.delete(path)).status_code == 403
                assert (await reader.get("/v1/peer-names")).json() == {"peer_names": {me: "me"}}

    play(scene)
