"""History by content id over HTTP, with both clients, and on the command line."""

from __future__ import annotations

from pathlib import Path

import trio
from click.testing import CliRunner

from pulsarcast import Publication
from pulsarcast.cli.main import main
from pulsarcast.client import AsyncClient, Client
from tests.support.daemon_in_process import Desk, daemon, play


async def publish(client: AsyncClient, count: int) -> list[str]:
    topic = await client.create_topic("weather", alias="weather")
    given = [Publication(payload=f"{number}") for number in range(count)]
    results = await client.publish_many(topic, given, ack="accepted")
    return [str(each.id) for each in results]


def command(desk: Desk, *words: str) -> str:
    where = ("--url", desk.url, "--token", desk.secret)
    result = CliRunner().invoke(main, [*words, *where])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_every_face_fetches_walks_and_rebuilds(tmp_path: Path) -> None:
    async def scene() -> None:
        async with daemon(tmp_path) as desk, AsyncClient(desk.url, desk.secret) as client:
            ids = await publish(client, 12)
            texts = [f"{number}" for number in range(12)]
            last = ids[-1]

            event = await client.fetch(last)
            assert (event.text(), event.parents) == ("11", [ids[-2]])
            page = await client.walk(last, limit=5)
            assert [each.text() for each in page.events] == texts[:6:-1]
            page = await client.walk(last, limit=1000, cursor=page.cursor)
            assert [each.text() for each in page.events] == texts[6::-1]
            assert (page.cursor, page.gaps) == ("", [])
            whole = await client.rebuild(last)
            assert [each.text() for each in whole.events] == texts
            ahead = await client.walk(ids[8], forward=True)
            assert [each.text() for each in ahead.events] == texts[8:]

            def waiting() -> None:
                with Client(desk.url, desk.secret) as other:
                    assert other.fetch(last) == event
                    assert other.rebuild(last) == whole
                    assert other.walk(last, limit=3).events == whole.events[:8:-1]
                assert command(desk, "fetch", last).splitlines() == ["11"]
                walked = command(desk, "walk", last, "--limit", "3").splitlines()
                assert walked == texts[:8:-1]
                ahead = command(desk, "walk", ids[9], "--forward").splitlines()
                assert ahead == texts[9:]
                assert command(desk, "rebuild", last).splitlines() == texts

            await trio.to_thread.run_sync(waiting)

    play(scene)


def test_who_may_read_one_topic_alone_may_not_read_any_event(tmp_path: Path) -> None:
    async def scene() -> None:
        async with daemon(tmp_path) as desk, AsyncClient(desk.url, desk.secret) as client:
            ids = await publish(client, 1)
            token = await client.create_token("one", ["read"], topics=["weather"])
            async with desk.client(token.token) as plain:
                assert (await plain.get(f"/v1/events/{ids[0]}")).status_code == 403
                walked = await plain.post(f"/v1/events/{ids[0]}/walk", json={})
                assert walked.status_code == 403
            async with desk.client() as plain:
                bad = await plain.post(f"/v1/events/{ids[0]}/walk", json={"cursor": "AAAA"})
                assert bad.status_code == 422
                assert (await plain.get("/v1/events/nonsense")).status_code == 422

    play(scene)
