"""Sub-topics through the client, over HTTP and on the command line, against a real daemon."""

from __future__ import annotations

import itertools
import json
import random
import time
from collections.abc import Iterator
from pathlib import Path

import anyio
import msgspec
import pytest
from click.testing import CliRunner

from pulsarcast.cli.main import main
from pulsarcast.client import AsyncClient, Client
from pulsarcast.client.following import SAY_S, FollowingBelow
from pulsarcast.model.api import EventView, SettingsView
from pulsarcast.model.errors import InsufficientScope, LocalError
from tests.support.daemons import DaemonProcess
from tests.unit.client.proxy import Proxy


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    found = DaemonProcess(tmp_path_factory.mktemp("shared") / "home")
    try:
        found.start()
        yield found
    finally:
        found.close()


@pytest.fixture
def client(daemon: DaemonProcess) -> Iterator[Client]:
    with Client(daemon.url, daemon.token) as found:
        yield found


_names = map("topic {}".format, itertools.count())


def tree(client: Client, count: int = 2) -> tuple[str, list[str]]:
    leaves = [client.create_topic(next(_names)).id for _ in range(count)]
    named = {f"{number}": leaf for number, leaf in enumerate(leaves)}
    return client.create_topic(next(_names), subtopics=named).id, leaves


def wait_until_below(client: Client, top: str, count: int) -> None:
    for _ in range(500):
        below = {each.id: each.below for each in client.topics()}[top]
        if below is not None and (below.followed, below.joining) == (count, 0):
            return
        time.sleep(0.02)
    raise AssertionError(f"there are not {count} sub-topics")


@pytest.mark.slow
def test_a_client_hears_all_topics_below_and_goes_on_by_its_name(client: Client) -> None:
    top, leaves = tree(client)
    with client.subscribe(top, "me", below=True) as events:
        wait_until_below(client, top, 2)
        for topic in (top, *leaves):
            client.publish(topic, topic, ack="accepted")
        got = [next(events) for _ in range(3)]
        assert {(event.topic, event.text()) for event in got} == {
            (each, each) for each in (top, *leaves)
        }
        events.acknowledge()
    client.publish(leaves[1], "away", ack="accepted")
    assert [each.behind for each in client.readers(top)] == [1]
    with client.subscribe(top, "me", below=True, manual=True) as events:
        assert next(events).payload == b"away"
        with pytest.raises(LocalError, match="counts its own events"):
            events.acknowledge(2)
        events.acknowledge(2, leaves[1])
    assert [each.behind for each in client.readers(top)] == [0]
    client.update_topic(top, SettingsView(), subtopics={"0": leaves[0]})
    wait_until_below(client, top, 1)
    client.unsubscribe(top)
    assert [each.above for each in client.topics() if each.id in leaves] == [[], []]


@pytest.mark.slow
def test_a_client_without_a_name_leaves_no_reader_behind(daemon: DaemonProcess) -> None:
    async def scene() -> None:
        async with AsyncClient(daemon.url, daemon.token) as client:
            leaf = (await client.create_topic(next(_names))).id
            top = (await client.create_topic(next(_names), subtopics={"leaf": leaf})).id
            async with await client.subscribe(top, below=True) as events:
                with anyio.fail_after(10):
                    while top not in [
                        each for seen in await client.topics() for each in seen.above
                    ]:
                        await anyio.sleep(0.02)
                await client.publish(leaf, "x", ack="accepted")
                event = await anext(events)
                assert (event.topic, event.payload) == (leaf, b"x")
                assert next(each.readers for each in await client.topics() if each.id == top)
            assert not next(each.readers for each in await client.topics() if each.id == top)

    anyio.run(scene, backend="trio")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["", "me"])
def test_a_connection_that_is_cut_loses_and_repeats_nothing_of_any_topic(
    tmp_path: Path, name: str
) -> None:
    count = 40
    cuts_after = sorted(random.Random(7).sample(range(1000, 400 * count), 6))
    with Proxy(cuts_after) as proxy:
        daemon = DaemonProcess(tmp_path / "home", hosts=[proxy.host])
        try:
            daemon.start()
            proxy.target_port = daemon.port
            with (
                Client(daemon.url, daemon.token) as publisher,
                Client(f"http://{proxy.host}", daemon.token) as reader,
            ):
                top, leaves = tree(publisher, 4)
                with reader.subscribe(top, name, below=True) as events:
                    wait_until_below(publisher, top, 4)
                    for number in range(count):
                        publisher.publish(leaves[number % 4], f"{number}", ack="accepted")
                    got = [next(events) for _ in range(count)]
                assert proxy.cuts >= 5
        finally:
            daemon.close()
    assert sorted(int(event.payload) for event in got) == list(range(count))
    for leaf in leaves:
        assert [event.index for event in got if event.topic == leaf] == list(range(1, 11))


@pytest.mark.slow
def test_a_token_for_some_topics_gets_no_sub_topics(client: Client, daemon: DaemonProcess) -> None:
    top, _leaves = tree(client)
    secret = client.create_token("some", ["read"], topics=[top]).token
    with Client(daemon.url, secret) as limited:
        with pytest.raises(InsufficientScope, match="all topics"):
            limited.subscribe(top, below=True)
        with pytest.raises(InsufficientScope, match="all topics"):
            limited.follow(top, below=True)
        limited.subscribe(top).close()


@pytest.mark.slow
def test_the_command_line_subscribes_with_all_below_and_removes_sub_topics(
    client: Client, daemon: DaemonProcess
) -> None:
    top, leaves = tree(client)
    client.follow(top, below=True)
    wait_until_below(client, top, 2)
    for leaf in leaves:
        client.publish(leaf, f"of {leaf}", ack="accepted")
    where = ["--url", daemon.url, "--token", daemon.token]
    runner = CliRunner()
    ran = runner.invoke(
        main,
        ["subscribe", top, "--below", "--start", "beginning", "--count", "2", "--json", *where],
    )
    assert ran.exit_code == 0, ran.output
    lines = [json.loads(line) for line in ran.output.splitlines()]
    assert {(line["topic"], line["payload"]) for line in lines} == {
        (leaf, f"of {leaf}") for leaf in leaves
    }
    listed = runner.invoke(main, ["topic", "list", *where])
    assert "with 2 below" in listed.output
    ran = runner.invoke(main, ["topic", "update", top, "--drop-subtopic", "0", *where])
    assert ran.exit_code == 0, ran.output
    wait_until_below(client, top, 1)
    assert "no sub-topic '0'" in (
        runner.invoke(main, ["topic", "update", top, "--drop-subtopic", "0", *where]).output
    )


# What a subscriber knows, without a daemon.


def sse(topic: str, index: int, *, redelivery: bool = False) -> bytes:
    view = EventView(
        index=index, id=f"{topic}-{index}", topic=topic, author="a", publisher="p", epoch="1",
        number=index, _payload="", redelivery=redelivery,
    )  # fmt: skip
    return b"data: %b\n\n" % msgspec.json.encode(view)


def drain(following: FollowingBelow) -> list[str]:
    taken: list[str] = []
    while True:
        following.go_on()
        event = following.take()
        if event is None:
            return taken
        taken.append(event.id)


def test_what_comes_again_is_known_by_its_topic_and_index() -> None:
    following = FollowingBelow("top", "me", "now", manual=False)
    assert following.connect().query == {"start": "now", "name": "me", "below": "true"}
    following.connected()
    following.receive(sse("x", 1) + sse("y", 1) + sse("x", 2))
    assert drain(following) == ["x-1", "y-1", "x-2"]
    following.connected()
    following.receive(sse("x", 2, redelivery=True) + sse("x", 3, redelivery=True) + sse("y", 2))
    assert drain(following) == ["x-3", "y-2"]


def test_a_topic_that_was_left_and_is_back_counts_anew() -> None:
    following = FollowingBelow("top", "me", "now", manual=False)
    following.connected()
    following.receive(sse("x", 1) + sse("x", 2))
    assert drain(following) == ["x-1", "x-2"]
    following.say(0.0)
    following.receive(sse("x", 1))
    assert drain(following) == ["x-1"]
    ask = following.say(SAY_S)
    assert ask.body == b'{"subtopics":{"x":1}}'


def test_one_word_says_what_is_done_in_all_topics() -> None:
    following = FollowingBelow("top", "me", "now", manual=True)
    following.connected()
    following.receive(sse("x", 1) + sse("y", 1) + sse("y", 2))
    drain(following)
    assert following.due_s(0.0) is None
    ask = following.finish(None)
    assert ask is not None
    assert ask.body == b'{"subtopics":{"x":1,"y":2}}'
    assert following.due_s(0.0) == 0.0
    following.say(0.0)
    following.unsaid()
    assert following.due_s(10.0) == 0.0
    assert following.end() is None
    nameless = FollowingBelow("top", "", "now", manual=False)
    left = nameless.end()
    assert left is not None
    assert nameless.connect().query["name"] in left.path


def test_an_index_an_event_or_a_filter_is_for_one_topic() -> None:
    for start in (3, "an event's id"):
        with pytest.raises(LocalError, match="for one topic"):
            FollowingBelow("top", "me", start, manual=False)
