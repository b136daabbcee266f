"""Both clients against a real daemon, which is killed and whose connections are cut."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import pytest

from pulsarcast.client import AsyncClient, Client, Unreachable
from pulsarcast.model.api import AttributeRuleView, EventView, SettingsView
from pulsarcast.model.errors import (
    InsufficientScope,
    InvalidFilter,
    InvalidToken,
    LocalError,
    NotFollowed,
    TakenOver,
    TopicNotFound,
)
from tests.support.daemons import DaemonProcess
from tests.unit.client.proxy import Proxy

CUTS = 20


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


_names = (f"topic-{number}" for number in itertools.count())


@pytest.fixture
def topic(client: Client) -> str:
    return client.create_topic(next(_names)).id


def wait_for(condition: Callable[[], bool], s_max: float = 20.0) -> None:
    deadline_s = time.monotonic() + s_max
    while not condition():
        assert time.monotonic() < deadline_s, "it did not come about"
        time.sleep(0.02)


def test_both_clients_find_a_listed_topic(client: Client, daemon: DaemonProcess) -> None:
    settings = SettingsView(description="In Lisbon & Porto", tags=["Air quality"])
    made = client.create_topic(next(_names), settings)
    wait_for(lambda: bool(client.find_topics("porto").listings))
    found = client.find_topics("lisbon", tags=["air quality"], author=made.author)
    assert [listing.id for listing in found.listings] == [made.id]
    assert client.topic(found.listings[0].id).settings.description == "In Lisbon & Porto"

    async def again() -> None:
        async with AsyncClient(daemon.url, daemon.token) as other:
            assert await other.find_topics("lisbon", limit=1) == found

    anyio.run(again)
    for wrong in ({"tags": "weather"}, {"words": "!"}, {"author": "nobody"}):
        with pytest.raises(LocalError):
            client.find_topics(**wrong)  # type: ignore[arg-type]


# Round trips.


def test_a_program_that_waits_publishes_listens_and_looks_back(client: Client, topic: str) -> None:
    with client.subscribe(topic) as events:
        sent = [
            client.publish(topic, "sunny", name="n", attributes={"a": 1, "b": b"\xff"}),
            client.publish(topic, b"\xff\x00"),
            client.publish(topic, ""),
        ]
        got = [next(events) for _ in range(3)]
    assert [event.id for event in got] == [each.id for each in sent]
    assert [event.payload for event in got] == [b"sunny", b"\xff\x00", b""]
    assert [event.index for event in got] == [1, 2, 3]
    assert got[0].name == "n"
    assert got[0].attributes["a"] == 1
    assert list(client.history(topic)) == got
    assert list(client.history(topic, start=2, limit=1)) == got[1:2]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_program_that_awaits_does_the_same(
    daemon: DaemonProcess, topic: str, backend: str
) -> None:
    async def scene() -> None:
        async with AsyncClient(daemon.url, daemon.token) as client:
            async with await client.subscribe(topic) as events:
                sent = [await client.publish(topic, text) for text in ("a", "b", "c")]
                got = [await anext(events) for _ in range(3)]
            assert [event.id for event in got] == [each.id for each in sent]
            assert [event async for event in client.history(topic)] == got
            async for event in client.history(topic):
                assert event == got[0]
                break

    anyio.run(scene, backend=backend)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_whoever_stops_waiting_may_wait_again(
    daemon: DaemonProcess, client: Client, topic: str, backend: str
) -> None:
    async def scene() -> None:
        async with AsyncClient(daemon.url, daemon.token) as waiting:
            async with await waiting.subscribe(topic) as events:
                for number in range(3):
                    with anyio.move_on_after(0.2) as bounded:
                        await anext(events)
                    assert bounded.cancelled_caught
                    await waiting.publish(topic, f"{number}")
                    with anyio.fail_after(10):
                        assert (await anext(events)).text() == f"{number}"

    anyio.run(scene, backend=backend)


def test_every_call_has_an_answer(client: Client, daemon: DaemonProcess) -> None:
    name = next(_names)
    made = client.create_topic(name, SettingsView(order="total"), alias="mine")
    assert client.topic("mine") == client.topic(made)
    assert client.topic(f"{made.author}/{name}").id == made.id
    assert client.aliases()["mine"] == made.id
    assert client.set_alias("yours", "mine")["yours"] == made.id
    client.drop_alias("yours")
    assert "yours" not in client.aliases()
    assert client.set_peer_name(made.author, "me") == {made.author: "me"}
    assert client.topic(f"me/{name}").peer_names == client.peer_names() == {made.author: "me"}
    client.drop_peer_name("me")
    assert client.peer_names() == {}
    changed = client.update_topic("mine", SettingsView(order="total", payload_bytes_max=1000))
    assert changed.version == made.version + 1
    assert client.status().peer == made.author
    assert client.peers() == []
    assert made.id in [each.id for each in client.topics()]
    assert "pulsarcast" in client.metrics()
    assert client.open_page().startswith(f"{daemon.url}/?code=")
    with client.subscribe("mine", "reader"):
        wait_for(lambda: [each.connected for each in client.readers("mine")] == [True])
    client.forget("mine", "reader")
    assert client.readers("mine") == []
    client.unsubscribe("mine")
    with pytest.raises(TopicNotFound):
        client.topic("nobody-called-it-so")


def test_a_token_opens_what_it_is_for(client: Client, daemon: DaemonProcess, topic: str) -> None:
    token = client.create_token("reader", ["read"], topics=[topic])
    assert token.token is not None
    assert token.id in [each.id for each in client.tokens()]
    with Client(daemon.url, token.token) as reader:
        with pytest.raises(InsufficientScope):
            reader.publish(topic, "no")
        with reader.subscribe(topic) as events:
            client.revoke_token(token.id)
            client.publish(topic, "too late")
            with pytest.raises(InvalidToken, match="revoked"):
                next(events)
    with pytest.raises(InvalidToken, match="unknown"), Client(daemon.url, "nonsense") as stranger:
        stranger.status()


def test_no_proxy_stands_between_us_and_our_own_machine(
    daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with Client(daemon.url, daemon.token) as client:
        assert client.status().ready


def test_a_program_finds_the_daemon_of_a_home(
    daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("PULSARCAST_URL", raising=False)
    monkeypatch.delenv("PULSARCAST_TOKEN", raising=False)
    monkeypatch.setenv("PULSARCAST_HOME", str(daemon.home))
    with Client() as client:
        assert client.url == daemon.url
        assert client.status().ready


# Names.


def test_a_name_goes_on_where_it_was_done(client: Client, topic: str) -> None:
    for number in range(10):
        client.publish(topic, f"{number}", ack="accepted")
    with client.subscribe(topic, "me", start="beginning") as events:
        assert [next(events).index for _ in range(4)] == [1, 2, 3, 4]
    with client.subscribe(topic, "me") as events:
        again = [next(events) for _ in range(3)]
    # Who left while it held the fourth was not done with it.
    assert [event.index for event in again] == [4, 5, 6]
    assert again[0].redelivery


def test_what_is_done_is_known_soon_though_nothing_comes(client: Client, topic: str) -> None:
    with client.subscribe(topic, "me") as events:
        client.publish(topic, "one")
        client.publish(topic, "two")
        next(events)
        next(events)
        waiting = threading.Thread(target=lambda: next(events), daemon=True)
        waiting.start()
        wait_for(lambda: client.readers(topic)[0].done == 2, 5)
        client.publish(topic, "three")
        waiting.join(10)
        assert not waiting.is_alive()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_the_same_is_known_under(daemon: DaemonProcess, topic: str, backend: str) -> None:
    async def scene() -> None:
        async with AsyncClient(daemon.url, daemon.token) as client:
            async with await client.subscribe(topic, "me") as events:
                await client.publish(topic, "one")
                await client.publish(topic, "two")
                await anext(events)
                await anext(events)
                async with anyio.create_task_group() as group:
                    group.start_soon(anext, events)
                    with anyio.fail_after(5):
                        while (await client.readers(topic))[0].done != 2:
                            await anyio.sleep(0.05)
                    await client.publish(topic, "three")

    anyio.run(scene, backend=backend)


def test_by_hand_nothing_is_done_until_it_is_said(client: Client, topic: str) -> None:
    for number in range(5):
        client.publish(topic, f"{number}", ack="accepted")
    with client.subscribe(topic, "me", start="beginning", manual=True) as events:
        assert [next(events).index for _ in range(5)] == [1, 2, 3, 4, 5]
        assert client.readers(topic)[0].done == 0
        events.acknowledge(3)
        assert client.readers(topic)[0].done == 3
    assert client.readers(topic)[0].done == 3


def test_whoever_takes_a_name_over_is_the_one(client: Client, topic: str) -> None:
    with client.subscribe(topic, "me") as first, client.subscribe(topic, "me") as second:
        client.publish(topic, "for the second")
        assert next(second).payload == b"for the second"
        with pytest.raises(TakenOver, match="taken over"):
            next(first)


def test_leaving_a_topic_is_not_undone_by_those_who_listened(client: Client, topic: str) -> None:
    with client.subscribe(topic, "me") as events:
        client.unsubscribe(topic)
        with pytest.raises(NotFollowed, match="unsubscribed"):
            next(events)
    assert client.readers(topic) == []


# Trouble.


class Listener(threading.Thread):
    """Somebody who listens until so many events have come."""

    def __init__(self, client: Client, topic: str, name: str, count: int) -> None:
        super().__init__(daemon=True)
        self.events: list[EventView] = []
        self.failure: BaseException | None = None
        self._count = count
        # `finish` bounds the time: of the cuts, a dozen may come before a single answer does.
        self._subscription = client.subscribe(topic, name, start="beginning", patience_s=None)
        self.start()

    def run(self) -> None:
        try:
            with self._subscription as events:
                for event in events:
                    self.events.append(event)
                    if len(self.events) >= self._count:
                        events.acknowledge()
                        return
        except BaseException as error:
            self.failure = error

    def finish(self, s_max: float) -> list[EventView]:
        self.join(s_max)
        if self.failure is not None:
            raise self.failure
        assert not self.is_alive(), f"{len(self.events)} events after {s_max} s"
        return self.events


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("me", 300),
        pytest.param("", 300, marks=pytest.mark.slow),
        pytest.param("", 5000, marks=pytest.mark.slow),
        pytest.param("me", 5000, marks=pytest.mark.slow),
    ],
)
def test_a_connection_cut_twenty_times_loses_and_repeats_nothing(
    tmp_path: Path, name: str, count: int
) -> None:
    # An event takes some 600 bytes; cuts fall anywhere in them, the last one before the end.
    cuts_after = sorted(random.Random(7).sample(range(1000, 400 * count), CUTS))
    with Proxy(cuts_after) as proxy:
        daemon = DaemonProcess(tmp_path / "home", hosts=[proxy.host])
        try:
            daemon.start()
            proxy.target_port = daemon.port
            with (
                Client(daemon.url, daemon.token) as publisher,
                Client(f"http://{proxy.host}", daemon.token) as reader,
            ):
                topic = publisher.create_topic("weather").id
                listener = Listener(reader, topic, name, count)
                anyio.run(publish_many, daemon, topic, count, backend="trio")
                events = listener.finish(120)
                assert proxy.cuts >= CUTS
                kept = [event.id for event in publisher.history(topic)]
        finally:
            daemon.close()
    assert [event.index for event in events] == list(range(1, count + 1))
    assert [event.id for event in events] == kept
    assert len({event.payload for event in events}) == count
    assert not any(event.redelivery for event in events)


async def publish_many(daemon: DaemonProcess, topic: str, count: int) -> None:
    numbers = iter(range(count))
    async with AsyncClient(daemon.url, daemon.token) as client:

        async def publish() -> None:
            for number in numbers:
                await client.publish(topic, f"{number}", ack="accepted")

        async with anyio.create_task_group() as group:
            for _ in range(16):
                group.start_soon(publish)


def test_a_daemon_that_is_killed_loses_nothing(tmp_path: Path) -> None:
    count, kills = 600, 2
    daemon = DaemonProcess(tmp_path / "home")
    starts: list[threading.Thread] = []
    try:
        daemon.start()
        with Client(daemon.url, daemon.token) as client:
            topic = client.create_topic("weather").id
            listener = Listener(client, topic, "me", count)
            ids: list[str] = []
            for number in range(count):
                if number and number % (count // (kills + 1)) == 0:
                    daemon.kill()
                    starts.append(threading.Thread(target=daemon.start, daemon=True))
                    starts[-1].start()
                ids.append(client.publish(topic, f"{number}", ack="accepted").id)
            events = listener.finish(60)
            kept = list(client.history(topic))
            done = client.readers(topic)[0].done
    finally:
        for start in starts:
            start.join(60)
        daemon.close()
    assert len(starts) == kills
    assert [event.id for event in kept] == ids, "each was published once"
    assert [event.text() for event in kept] == [f"{number}" for number in range(count)]
    first_time: dict[int, EventView] = {}
    for event in events:
        assert event.index not in first_time or event.redelivery
        first_time.setdefault(event.index, event)
    assert list(first_time) == list(range(1, count + 1))
    assert done == count


def test_what_a_killed_reader_held_comes_again_and_says_so(tmp_path: Path) -> None:
    daemon = DaemonProcess(tmp_path / "home")
    try:
        daemon.start()
        with Client(daemon.url, daemon.token) as client:
            topic = client.create_topic("weather").id
            for number in range(100):
                client.publish(topic, f"{number}", ack="accepted")
            events = client.subscribe(topic, "me", start="beginning", manual=True)
            held = [next(events).index for _ in range(60)]
            events.acknowledge(40)
            time.sleep(1.5)  # Places are written down every second.
            daemon.kill()
            daemon.start()
            with client.subscribe(topic, "me") as again:
                got = [next(again) for _ in range(60)]
            events.close()
    finally:
        daemon.close()
    assert [event.index for event in got] == list(range(41, 101))
    given_twice = [event for event in got if event.index in held]
    assert all(event.redelivery for event in given_twice)


def test_nobody_waits_for_a_daemon_for_ever(tmp_path: Path) -> None:
    daemon = DaemonProcess(tmp_path / "home")
    try:
        daemon.start()
        with Client(daemon.url, daemon.token) as client:
            topic = client.create_topic("weather").id
            with client.subscribe(topic, "me", patience_s=1) as events:
                assert daemon.stop() == 0
                began_s = time.monotonic()
                with pytest.raises(Unreachable, match="start one with `pulsarcast daemon"):
                    next(events)
                assert 0.9 < time.monotonic() - began_s < 10
    finally:
        daemon.close()


# Filters.


def test_both_clients_ask_for_what_matches(client: Client, daemon: DaemonProcess) -> None:
    rules = [AttributeRuleView("price", "float", 0, 100)]
    topic = client.create_topic(next(_names), SettingsView(attributes=rules)).id
    where = "price < 10 or price >= 90"
    with client.subscribe(topic, "me", where=where) as events:
        for price in (5, 50, 95):
            client.publish(topic, str(price), attributes={"price": price})
        assert [next(events).text() for _ in range(2)] == ["5", "95"]
    assert [each.text() for each in client.history(topic, where=where)] == ["5", "95"]
    assert [each.text() for each in client.history(topic, where=where, limit=1)] == ["5"]
    with pytest.raises(InvalidFilter, match="column 9: price is a float"):
        client.subscribe(topic, where="price < 'ten'").__enter__()

    async def awaiting() -> None:
        async with AsyncClient(daemon.url, daemon.token) as other:
            async with await other.subscribe(topic, start="beginning", where=where) as events:
                assert [(await anext(events)).text() for _ in range(2)] == ["5", "95"]
            found = [each.text() async for each in other.history(topic, where=where)]
            assert found == ["5", "95"]

    anyio.run(awaiting)
