"""A payload is given and read alike in the library, both clients, over HTTP and as a command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from click.testing import CliRunner, Result

from pulsarcast import InvalidPayload, Node, Publication
from pulsarcast.cli import events as commands
from pulsarcast.cli.main import main
from pulsarcast.client import AsyncClient, Client
from tests.support.daemon_in_process import Desk, daemon, play

VALUE = {"org": "a", "n": 1, "when": None, "é": [1.5, True, "☀"]}
BYTES = '{"n":1,"org":"a","when":null,"é":[1.5,true,"☀"]}'.encode()


def command(desk: Desk, *words: str, given: bytes = b"") -> Result:
    where = ("--url", desk.url, "--token", desk.secret)
    return CliRunner().invoke(main, [*words, *where], input=given)


def by_waiting(desk: Desk, folder: Path) -> None:
    """What a program that blocks, and a person, do."""
    file = folder / "value.json"
    file.write_bytes(BYTES.replace(b",", b",\n  "))
    with Client(desk.url, desk.secret) as client:
        client.publish("t", json=VALUE, attributes={"a": 1})
    text = BYTES.decode().replace(":", " : ")
    for words in (["t", text], ["t", "--file", str(file)]):
        assert command(desk, "publish", *words, "--json-payload").exit_code == 0
    lines = BYTES + b"\n" + BYTES + b"\n"
    assert command(desk, "publish", "t", "-", "--json-payload", given=lines).exit_code == 0
    refused = command(desk, "publish", "t", "{no}", "--json-payload")
    assert (refused.exit_code, "TEXT is not JSON" in refused.output) == (1, True)
    refused = command(desk, "publish", "t", "--stdin", "--json-payload", given=b"sunny\n")
    assert "line 1 is not JSON" in refused.output
    shown = command(desk, "history", "t").output.splitlines()
    assert set(shown) == {BYTES.decode()}


def test_a_json_value_is_the_same_bytes_from_every_face(tmp_path: Path) -> None:
    async def scene() -> None:
        async with daemon(tmp_path / "home") as desk, AsyncClient(desk.url, desk.secret) as client:
            topic = await client.create_topic("t", alias="t")
            await client.publish(topic, json=VALUE)
            await client.publish(topic, json=VALUE, attributes={"a": 1})
            await client.publish_many(topic, [Publication(json=VALUE), Publication(payload=BYTES)])
            async with desk.client() as plain:
                path = f"/v1/topics/{topic.id}"
                (await plain.post(f"{path}/events", json={"json": VALUE})).raise_for_status()
                batch = {"events": [{"json": VALUE}]}
                (await plain.post(f"{path}/batch", json=batch)).raise_for_status()
                for wrong in ({}, {"json": 1, "payload": ""}, {"json": 1 << 60}):
                    answer = await plain.post(f"{path}/events", json=wrong)
                    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_payload")
            await trio.to_thread.run_sync(by_waiting, desk, tmp_path)
            found = [event async for event in client.history(topic)]
            assert len(found) == 11
            assert {event.payload for event in found} == {BYTES}
            assert all(event.json() == VALUE for event in found)

    play(scene)


def test_bytes_text_and_values_come_back_in_the_library(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Node.open(tmp_path) as node:
            topic = await node.create_topic("t")
            events = await node.subscribe(topic)
            await node.publish(topic, json=VALUE, ack="accepted")
            await node.publish(topic, "sünny", ack="accepted")
            await node.publish(topic, b"\xff", ack="accepted")
            many = [Publication(json=None), Publication(payload="x")]
            await node.publish_many(topic, many, ack="accepted")
            value, text, octets, null, x = [await anext(events) for _ in range(5)]
            assert (value.payload, value.json()) == (BYTES, VALUE)
            assert (text.payload, text.text()) == ("sünny".encode(), "sünny")
            assert (null.json(), x.text()) == (None, "x")
            for read in (octets.json, octets.text, text.json):
                with pytest.raises(InvalidPayload):
                    read()
            for wrong in ({"a": 1}, 5, None):
                with pytest.raises(InvalidPayload, match="json=VALUE"):
                    await node.publish(topic, wrong)  # type: ignore[arg-type]

    play(scene)


@pytest.mark.parametrize("wrong", [{"a": 1}, ["x"], 5, None])
def test_a_client_refuses_a_dict_by_naming_json(wrong: Any) -> None:
    with Client("http://127.0.0.1:1", "t") as client:
        with pytest.raises(InvalidPayload, match="json=VALUE"):
            client.publish("t", wrong)
        with pytest.raises(InvalidPayload, match="which JSON does not have"):
            client.publish("t", json={"a": object()})


@pytest.mark.parametrize(
    ("payload", "shown"),
    [
        ('{"n":1,"org":"a"}', '{"n": 1, "org": "a"}'),
        ("[1,2]", "[1, 2]"),
        ("sunny", "sunny"),
        ("12", "12"),
        ("{not json}", "{not json}"),
        ('{"a":1,"a":2}', '{"a":1,"a":2}'),
        (f'{{"long":"{"x" * 90}"}}', f'\n{{\n  "long": "{"x" * 90}"\n}}'),
    ],
)
def test_people_see_json_with_spaces_and_on_lines(payload: str, shown: str) -> None:
    assert commands._readable(payload) == shown
