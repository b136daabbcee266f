"""Invitations over HTTP: the ticket of one daemon, followed by another, and the alias it gets."""

from __future__ import annotations

from pathlib import Path

import pytest

from pulsarcast.daemon.aliases import free_alias
from pulsarcast.daemon.daemon import _free_listen, listen
from pulsarcast.daemon.local_names import NAMES_MAX
from pulsarcast.daemon.settings import SETTINGS, Settings
from pulsarcast.model.ids import cid_of, cid_text
from tests.support.daemon_in_process import daemon, play

TOPIC, OTHER = (cid_text(cid_of(name)) for name in (b"topic", b"other"))


def test_a_ticket_of_one_daemon_is_followed_by_another(tmp_path: Path) -> None:
    async def scene() -> None:
        async with (
            daemon(tmp_path / "ann") as ann,
            daemon(tmp_path / "ben") as ben,
            ann.client() as hers,
            ben.client() as his,
        ):
            topic = (await hers.post("/v1/topics", json={"name": "weather"})).json()["id"]
            ticket = (await hers.get(f"/v1/topics/{topic}/ticket")).json()["ticket"]
            for _ in range(2):
                joined = await his.post("/v1/join", json={"ticket": ticket})
                assert joined.status_code == 200
                assert joined.json()["id"] == topic
                assert joined.json()["aliases"] == ["weather"]
            named = await his.post("/v1/join", json={"ticket": ticket, "alias": "w"})
            assert named.json()["aliases"] == ["weather", "w"]
            found = (await his.get("/v1/topics")).json()["topics"]
            assert [each["subscribed"] for each in found if each["id"] == topic] == [True]
            await his.post("/v1/topics", json={"name": "news", "alias": "news"})
            taken = await his.post("/v1/join", json={"ticket": ticket, "alias": "news"})
            assert taken.status_code == 409
            for wrong in ("weather", ticket[:-5], "x" * 100_000):
                refused = await his.post("/v1/join", json={"ticket": wrong})
                assert refused.status_code == 422
                assert "ticket" in refused.json()["error"]

    play(scene)


def test_who_may_read_a_topic_may_invite_to_it_and_only_an_operator_joins(tmp_path: Path) -> None:
    async def scene() -> None:
        async with daemon(tmp_path / "ann") as ann, ann.client() as hers:
            ids = [
                (await hers.post("/v1/topics", json={"name": name})).json()["id"]
                for name in ("weather", "news")
            ]
            given = {"name": "reader", "scopes": ["read"], "topics": ids[:1]}
            secret = (await hers.post("/v1/tokens", json=given)).json()["token"]
            async with ann.client(secret) as reader:
                codes = [
                    (await reader.get(f"/v1/topics/{each}/ticket")).status_code for each in ids
                ]
                assert codes == [200, 403]
                ticket = (await reader.get(f"/v1/topics/{ids[0]}/ticket")).json()["ticket"]
                joined = await reader.post("/v1/join", json={"ticket": ticket})
                assert joined.status_code == 403

    play(scene)


@pytest.mark.parametrize(
    ("aliases", "name", "given"),
    [
        ({}, "weather", "weather"),
        ({"weather": OTHER}, "weather", None),
        ({"other": OTHER}, "weather", "weather"),
        ({"w": TOPIC}, "weather", None),
        ({}, "the weather", None),
        ({}, "\x1b[2J", None),
        ({f"a{each}": OTHER for each in range(NAMES_MAX)}, "weather", None),
    ],
)
def test_a_topic_gets_its_name_as_an_alias_where_that_is_free_and_can_be_one(
    aliases: dict[str, str], name: str, given: str | None
) -> None:
    assert free_alias(aliases, name, TOPIC) == given


def test_a_default_port_that_is_taken_gives_way_and_a_chosen_one_does_not() -> None:
    values = {each.name: each.default for each in SETTINGS}
    origins = dict.fromkeys(values, "default")
    with listen(Settings({**values, "http.address": "127.0.0.1:0"}, origins)) as first:
        taken = first.getsockname()[1]
        values |= {
            "http.address": f"127.0.0.1:{taken}",
            "node.listen": [f"/ip4/127.0.0.1/tcp/{taken}", f"/ip6/::1/tcp/{taken}"],
        }
        with listen(Settings(values, origins)) as second:
            assert taken < second.getsockname()[1] < taken + 16
        free = _free_listen(Settings(values, origins))
        assert len({each.rpartition("/")[2] for each in free} - {str(taken)}) == 1
        chosen = Settings(values, dict.fromkeys(values, "command line"))
        assert _free_listen(chosen) == values["node.listen"]
        with pytest.raises(Exception, match="is taken by another program"):
            listen(chosen)
