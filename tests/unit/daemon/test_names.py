"""Names over HTTP, in both clients and on the command line."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import trio
from click.testing import CliRunner

from pulsarcast.cli.main import main
from pulsarcast.client import AsyncClient, Client
from pulsarcast.model.api import RetentionView, SettingsView
from pulsarcast.model.errors import Conflict, NameInUse, SettingsDiffer
from tests.support.daemon_in_process import Desk, daemon, play


def test_creating_a_name_in_use_is_a_conflict_that_names_the_topic(tmp_path: Path) -> None:
    async def scene() -> None:
        async with daemon(tmp_path) as desk, desk.client() as client:
            made = (await client.post("/v1/topics", json={"name": "weather"})).json()
            answer = await client.post("/v1/topics", json={"name": "weather"})
            assert answer.status_code == 409
            said = answer.json()
            assert (said["code"], said["topic"]) == ("name_in_use", made["id"])
            shown = await client.get("/v1/topics/weather")
            assert shown.json()["id"] == made["id"]
            published = await client.post("/v1/topics/weather/events", json={"payload": "sunny"})
            assert published.status_code == 201
            async with AsyncClient(desk.url, desk.secret) as asking:
                with pytest.raises(NameInUse) as refused:
                    await asking.create_topic("weather")
            assert refused.value.topic == made["id"]

    play(scene)


def test_ensuring_a_topic_again_gives_the_same_one_or_says_what_differs(tmp_path: Path) -> None:
    async def scene() -> None:
        async with daemon(tmp_path, storage__retention_days=7) as desk, desk.client() as client:
            body = {"settings": {"order": "total"}}
            first = await client.put("/v1/names/weather", json=body)
            assert first.status_code == 200, first.text
            assert first.json()["settings"]["retention"] == {"age_s": 7 * 86_400}
            for again in (body, {}, {"settings": {"order": "total", "tags": None}}):
                found = await client.put("/v1/names/weather", json=again)
                assert found.json()["id"] == first.json()["id"], found.text
            other = {"settings": {"order": "none", "retention": {"count": 3}}}
            refused = await client.put("/v1/names/weather", json=other)
            assert (refused.status_code, refused.json()["code"]) == (409, "settings_differ")
            assert refused.json()["topic"] == first.json()["id"]
            assert "order is total, not none" in refused.json()["error"]
            assert "retention is {age_s: 604800}, not {count: 3}" in refused.json()["error"]
            async with AsyncClient(desk.url, desk.secret) as asking:
                assert (await asking.ensure_topic("weather")).id == first.json()["id"]
                with pytest.raises(SettingsDiffer, match="order"):
                    await asking.ensure_topic("weather", SettingsView(order="causal"))
                slashed = await asking.ensure_topic("weather/lisbon")
                assert (await asking.topic("weather/lisbon")).id == slashed.id

    play(scene)


def test_an_alias_never_hides_a_name_nor_a_name_an_alias(tmp_path: Path) -> None:
    async def scene() -> None:
        async with daemon(tmp_path) as desk, AsyncClient(desk.url, desk.secret) as client:
            weather = await client.create_topic("weather", alias="weather")
            other = await client.create_topic("other", alias="o")
            with pytest.raises(Conflict) as refused:
                await client.set_alias("weather", other)
            assert refused.value.topic == weather.id
            assert await client.set_alias("weather", weather) == {"o": other.id}
            with pytest.raises(Conflict, match="alias"):
                await client.create_topic("third", alias="weather")
            for make in (client.create_topic, client.ensure_topic):
                with pytest.raises(Conflict) as refused:
                    await make("o")
                assert refused.value.topic == other.id
            assert {each.name for each in await client.topics()} == {"weather", "other"}

    play(scene)


def test_a_name_is_moved_over_http_and_its_readers_are_told(tmp_path: Path) -> None:
    async def scene() -> None:
        async with (
            daemon(tmp_path / "ann") as ann,
            daemon(tmp_path / "ben", node__bootstrap=list(ann.running.addresses)) as ben,
            AsyncClient(ann.url, ann.secret) as author,
            AsyncClient(ben.url, ben.secret) as reader,
        ):
            old = await author.create_topic("weather")
            new = await author.create_topic("weather 2")
            name = f"{old.author}/weather"
            await reader.follow(name)
            moved = await author.move_name("weather", new)
            assert (moved.id, (await author.topic("weather")).id) == (new.id, new.id)
            found = await reader.topic(name)
            assert found.id == old.id
            (note,) = found.notes
            assert new.id in note
            assert note in (await reader.status()).tips

    play(scene)


def test_the_commands_ensure_and_move(tmp_path: Path) -> None:
    def pulsarcast(desk: Desk, *words: str) -> tuple[int, str]:
        target = ["--url", desk.url, "--token", desk.secret]
        ran = CliRunner().invoke(main, [*words, *target])
        return ran.exit_code, ran.output

    async def scene() -> None:
        async with daemon(tmp_path) as desk:
            run = partial(pulsarcast, desk)

            async def say(*words: str) -> tuple[int, str]:
                return await trio.to_thread.run_sync(run, *words)

            code, made = await say("topic", "ensure", "weather", "--order", "total")
            assert code == 0, made
            topic = made.split()[0]
            assert await say("topic", "ensure", "weather", "--order", "total") == (0, made)
            assert await say("topic", "ensure", "weather") == (0, made)
            code, said = await say("topic", "ensure", "weather", "--no-request-to-publish")
            assert (code, "request_to_publish is true, not false" in said) == (1, True), said
            code, said = await say("topic", "create", "weather")
            assert (code, topic in said) == (1, True), said
            code, other = await say("topic", "create", "weather 2")
            code, said = await say("topic", "move", "weather", "weather 2")
            assert (code, other.split()[0] in said) == (0, True), said
            code, said = await say("topic", "show", "weather")
            assert other.split()[0] in said

    play(scene)


def test_a_blocking_client_ensures_and_moves(tmp_path: Path) -> None:
    def use(desk: Desk) -> None:
        with Client(desk.url, desk.secret) as client:
            settings = SettingsView(order="total", retention=RetentionView(count=5))
            made = client.ensure_topic("weather", settings)
            assert client.ensure_topic("weather", settings).id == made.id
            other = client.ensure_topic("weather 2")
            assert client.move_name("weather", other).id == other.id

    async def scene() -> None:
        async with daemon(tmp_path) as desk:
            await trio.to_thread.run_sync(use, desk)

    play(scene)
