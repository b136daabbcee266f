"""Scenes of asyncio programs with a node inside, and all that asyncio has to say against them.

    python -X dev -W error -m tests.unit.daemon.asyncio_scenes FOLDER [SCENE …]

Prints one line of JSON with what went wrong, by scene. A scene runs on a loop of its own in debug
mode. Warnings are errors; what is raised where no caller hears it counts as well.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import signal
import socket
import sys
import threading
import time
import traceback
from asyncio import events as asyncio_events
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import trio

from pulsarcast import Conflict, LocalError, Node, asyncio_node
from pulsarcast.client import AsyncClient, Unreachable
from pulsarcast.client.following import PATIENCE_S
from pulsarcast.model.api import EventView

NOWHERE = "/ip4/127.0.0.1/tcp/1/p2p/12D3KooWGRUfJqCVrq8gzAcjkFeQzZBqXkkhkLGAKtFR6tvCHJmo"
"""A peer that does not answer: a start waits ten seconds for it."""
SLOW_S = 0.1
"""What asyncio calls slow, in CPU of its thread: on a busy machine time is no measure."""
SCENE_S_MAX = 100.0
"""It only ends what hangs."""

Scene = Callable[[Path], Awaitable[None]]
SCENES: dict[str, Scene] = {}


def scene(play: Scene) -> Scene:
    SCENES[play.__name__] = play
    return play


async def is_free(home: Path) -> bool:
    """Whether a node was stopped: its home can be opened, and no thread of it is left."""
    with suppress(Conflict):
        async with asyncio_node(home):
            pass
        return not [each for each in threading.enumerate() if each.name == "pulsarcast"]
    return False


async def first(client: AsyncClient, topic: str, count: int) -> list[bytes]:
    async with await client.subscribe(topic, "reader", start="beginning") as events:
        return [(await anext(events)).payload for _ in range(count)]


@scene
async def publish_and_read(home: Path) -> None:
    async with asyncio_node(home) as client:
        assert isinstance(client, AsyncClient)
        topic = await client.create_topic("weather")
        await client.publish(topic, "sunny")
        assert await first(client, topic.id, 1) == [b"sunny"]
        # The command line, and any other program, finds the node by its home.
        async with AsyncClient(home=home) as other:
            assert (await other.status()).peer == (await client.status()).peer
    assert not (home / "http").exists()


@scene
async def fifty_publishes_at_once(home: Path) -> None:
    async with asyncio_node(home) as client:
        topic = await client.create_topic("many")
        texts = [f"event {number}" for number in range(50)]
        done = await asyncio.gather(
            *(client.publish(topic, text, ack="accepted") for text in texts)
        )
        assert len({each.id for each in done}) == 50
        assert sorted(await first(client, topic.id, 50)) == sorted(map(str.encode, texts))


@scene
async def a_reader_is_cancelled(home: Path) -> None:
    async with asyncio_node(home) as client:
        topic = await client.create_topic("weather")
        got: list[EventView] = []

        async def read() -> None:
            async with await client.subscribe(topic, "reader", start="beginning") as events:
                async for event in events:
                    got.append(event)  # noqa: PERF401 (one by one)

        for delay_s in (0.0, 0.01, 0.1):
            task = asyncio.create_task(read())
            await asyncio.sleep(delay_s)
            await cancelled(task)
        task = asyncio.create_task(read())
        await client.publish(topic, "sunny")
        while not got:
            await asyncio.sleep(0.01)
        await cancelled(task)
        # A reader that is cancelled may read on.
        async with await client.subscribe(topic, "reader") as events:
            with suppress(TimeoutError):
                async with asyncio.timeout(0.05):
                    await anext(events)
            await client.publish(topic, "cloudy")
            while (event := await anext(events)).payload == b"sunny":
                assert event.redelivery
            assert event.payload == b"cloudy"


async def cancelled(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert task.cancelled()


@scene
async def a_publish_is_cancelled(home: Path) -> None:
    async with asyncio_node(home) as client:
        topic = await client.create_topic("weather")
        for turns in range(8):
            task = asyncio.create_task(client.publish(topic, f"cancelled {turns}"))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        await client.publish(topic, "last")
        async with await client.subscribe(topic, start="beginning") as events:
            while (await anext(events)).payload != b"last":
                pass


async def opened(home: Path, **options: Any) -> None:
    async with asyncio_node(home, **options):
        await asyncio.sleep(60)


@scene
async def opening_is_cancelled(home: Path) -> None:
    for delay_s in (0.0, 0.02, 0.1):
        task = asyncio.create_task(opened(home, bootstrap=[NOWHERE]))
        await asyncio.sleep(delay_s)
        await cancelled(task)
    assert await is_free(home)


@scene
async def closing_is_cancelled(home: Path) -> None:
    for delay_s in (0.0, 0.005, 0.03):
        closing = asyncio.Event()

        async def program(closing: asyncio.Event = closing) -> None:
            async with asyncio_node(home) as client:
                await client.status()
                closing.set()

        task = asyncio.create_task(program())
        await closing.wait()
        await asyncio.sleep(delay_s)
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()  # An impatient program does so twice.
        with suppress(asyncio.CancelledError):
            await task
        assert await is_free(home)


@scene
async def a_timeout_while_open(home: Path) -> None:
    try:
        async with asyncio.timeout(0.5):
            await opened(home)
    except TimeoutError:
        assert await is_free(home)
    else:
        raise AssertionError("no timeout")


@scene
async def the_body_raises(home: Path) -> None:
    try:
        async with asyncio_node(home) as client:
            topic = await client.create_topic("weather")
            async with await client.subscribe(topic):
                raise KeyError("of the program")
    except KeyError as error:
        assert error.args == ("of the program",)  # noqa: PT017
    assert await is_free(home)


@scene
async def two_nodes_in_one_process(home: Path) -> None:
    async with asyncio_node(home / "ann") as ann:
        addresses = (await ann.status()).addresses
        async with asyncio_node(home / "ben", bootstrap=addresses) as ben:
            topic = await ann.create_topic("weather")
            async with await ben.subscribe(topic, start="beginning") as events:
                await ann.publish(topic, "sunny")
                assert (await anext(events)).payload == b"sunny"


@scene
async def a_reader_goes_on_where_it_stopped(home: Path) -> None:
    async with asyncio_node(home) as client:
        topic = (await client.create_topic("weather")).id
        for text in ("one", "two", "three"):
            await client.publish(topic, text, ack="accepted")
        async with await client.subscribe(topic, "reader", start="beginning") as events:
            assert (await anext(events)).payload == b"one"
            assert (await anext(events)).payload == b"two"
            await events.acknowledge()
    async with asyncio_node(home) as client:
        async with await client.subscribe(topic, "reader") as events:
            assert (await anext(events)).payload == b"three"


@scene
async def a_reader_outlives_the_node(home: Path) -> None:
    async with asyncio_node(home) as client:
        topic = await client.create_topic("weather")

        async def read() -> None:
            async with await client.subscribe(topic, "reader") as events:
                await anext(events)

        task = asyncio.create_task(read())
        while not (await client.status()).readers_connected:
            await asyncio.sleep(0.01)
    async with asyncio.timeout(PATIENCE_S / 2):  # A reader that came back would try for longer.
        await refused(task, "the client is closed")
    await refused(client.status(), "the client is closed")


async def refused(
    call: Awaitable[object], *words: str, kind: type[LocalError] = LocalError
) -> None:
    try:
        await call
    except kind as error:
        assert all(word in str(error) for word in words), error  # noqa: PT017
    else:
        raise AssertionError(f"not refused: {words}")


@scene
async def what_cannot_start_says_why(home: Path) -> None:
    async with asyncio_node(home / "a") as client:
        await refused(opened(home / "a"), "is the home of a node that runs", kind=Conflict)
        address = (await client.status()).addresses[0].partition("/p2p/")[0]
        await refused(opened(home / "b", listen=[address]), "in use")
        await refused(opened(home / "b", bootstrap=["nonsense"]), "nonsense")
        await refused(opened(home / "b", trace_level="loud"), "loud")
        with suppress(TypeError):
            await opened(home / "c", lissten=[])
            raise AssertionError("an option that does not exist")
        assert (await client.status()).ready
    (home / "file").write_text("")
    await refused(opened(home / "file"), "file")


@scene
async def a_node_under_asyncio_names_what_to_take(home: Path) -> None:
    async def open_node() -> None:
        async with Node.open(home):
            pass

    await refused(open_node(), "Trio", "asyncio_node")
    assert not await asyncio.to_thread(home.exists), "it leaves nothing behind"


@scene
async def a_node_that_fails_says_so_at_the_end(home: Path) -> None:
    module = sys.modules["pulsarcast.daemon.asyncio_node"]
    live = module.live

    async def failing(*given: Any) -> None:
        *others, on_ready = given
        ready = trio.Event()

        def told(running: object) -> None:
            on_ready(running)
            ready.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(live, *others, told)
            await ready.wait()
            await trio.sleep(0.1)
            raise OSError("the disk is gone")

    module.live = failing  # type: ignore[attr-defined]
    try:
        async with asyncio_node(home) as client:
            while True:
                await client.status()
    except ExceptionGroup as error:
        assert str(error.exceptions[0]) == "the disk is gone"  # noqa: PT017
        assert isinstance(error.__context__, Unreachable)  # noqa: PT017
    finally:
        module.live = live  # type: ignore[attr-defined]
    assert await is_free(home)


@scene
async def a_busy_loop_does_not_hold_the_node_up(home: Path) -> None:
    async with asyncio_node(home / "ann") as ann:
        addresses = (await ann.status()).addresses
        async with asyncio_node(home / "ben", bootstrap=addresses) as ben:
            topic = await ann.create_topic("weather")
            await ben.follow(topic, start="beginning")
            await ann.publish(topic, "sunny", ack="accepted")
            before = (await ben.status()).messages_in
            time.sleep(0.5)  # noqa: ASYNC251 (the bad manners of a program)
            while not [each async for each in ben.history(topic)]:
                assert (await ben.status()).messages_in >= before
                await asyncio.sleep(0.01)


@scene
async def interrupted(home: Path) -> None:
    async with asyncio_node(home) as client:
        topic = await client.create_topic("weather")
        async with await client.subscribe(topic, "reader") as events:
            asyncio.get_running_loop().call_later(0.05, os.kill, os.getpid(), signal.SIGINT)
            await anext(events)


@scene
async def never_closed(home: Path) -> None:
    """`asyncio.run` closes what a program left open."""
    node = asyncio_node(home)
    client = await node.__aenter__()
    await client.status()
    LEFT_OPEN.append(node)


LEFT_OPEN: list[object] = []


# Programs that are not clean: the watch must see them.


async def never_awaits(home: Path) -> None:
    client = AsyncClient("http://127.0.0.1:1", "token")
    client.status()  # type: ignore[unused-coroutine]


async def leaves_a_socket(home: Path) -> None:
    socket.socket()


async def leaves_a_task(home: Path) -> None:
    async def wait(loop: asyncio.AbstractEventLoop) -> None:
        await loop.create_future()

    loop = asyncio.new_event_loop()
    task = loop.create_task(wait(loop))
    loop.call_soon(loop.stop)
    await asyncio.to_thread(loop.run_forever)
    loop.close()
    del task, loop


async def hears_no_failure(home: Path) -> None:
    asyncio.get_running_loop().create_future().set_exception(KeyError("unheard"))


async def keeps_the_loop_busy(home: Path) -> None:
    end_s = time.thread_time() + 2 * SLOW_S
    while time.thread_time() < end_s:
        pass


UNCLEAN = (never_awaits, leaves_a_socket, leaves_a_task, hears_no_failure, keeps_the_loop_busy)


class Complaints(logging.Handler):
    """Whatever is said against a scene, by anybody."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.name == "asyncio" and "took" in record.getMessage():
            return  # By the clock; what a callback takes of the CPU is measured below.
        if "connection refused" in record.getMessage():
            return  # A bootstrap peer of the scene's own that is nowhere.
        self.said.append(f"{record.name}: {self.format(record)}")

    def raised(self, what: Any) -> None:
        error = getattr(what, "exc_value", None)
        self.said.append(f"nobody heard: {traceback.format_exception(error)}")


@contextmanager
def watched() -> Iterator[Complaints]:
    """Hear logs, threads, destructors, and callbacks that take too much of the CPU."""
    complaints = Complaints()
    logging.getLogger().addHandler(complaints)
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    sys.unraisablehook = complaints.raised
    threading.excepthook = complaints.raised
    run = asyncio_events.Handle._run

    def measured(handle: asyncio_events.Handle) -> None:
        began_s = time.thread_time()
        run(handle)
        took_s = time.thread_time() - began_s
        if took_s > SLOW_S:
            complaints.said.append(f"took {took_s:.3f} s of CPU: {handle!r}")

    asyncio_events.Handle._run = measured  # type: ignore[assignment,method-assign]
    try:
        yield complaints
    finally:
        asyncio_events.Handle._run = run  # type: ignore[method-assign]
        logging.getLogger().removeHandler(complaints)


BY_NAME = SCENES | {each.__name__: each for each in UNCLEAN}


def play(name: str, home: Path) -> list[str]:
    """Play one scene; what there is to say against it."""

    async def bounded() -> None:
        async with asyncio.timeout(SCENE_S_MAX):
            await BY_NAME[name](home)

    with watched() as complaints:
        try:
            asyncio.run(bounded(), debug=True)
        except KeyboardInterrupt:
            if name != "interrupted":
                complaints.said.append("KeyboardInterrupt")
        except BaseException:
            complaints.said.append(traceback.format_exc())
        else:
            if name == "interrupted":
                complaints.said.append("not interrupted")
        LEFT_OPEN.clear()
        left = [each.name for each in threading.enumerate() if each.name == "pulsarcast"]
        if left:
            complaints.said.append("a node still runs")
        gc.collect()
    return complaints.said


def main() -> None:
    folder, *names = sys.argv[1:]
    said = {name: play(name, Path(folder, name)) for name in names or SCENES}
    print(json.dumps(said))  # noqa: T201


if __name__ == "__main__":
    main()
