"""A node inside an asyncio program, behind the interface of `AsyncClient`.

    async with asyncio_node("home") as client:
        topic = await client.create_topic("weather")
        await client.publish(topic, "sunny")

A node needs Trio. Here it runs on a Trio loop in a thread of its own, with the daemon's API in
front of it, and the program speaks to it over loopback. So the program has the methods, the errors
and the subscriptions of every client, a program that blocks its loop does not hold the node up, and
the command line reaches the node by its home.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeAlias

import anyio
import trio

from pulsarcast.client.awaiting import AsyncClient
from pulsarcast.daemon.daemon import Listener, ShutdownRequest, listen, live
from pulsarcast.daemon.settings import Settings, default_settings
from pulsarcast.model.errors import LocalError
from pulsarcast.network.node import Node

ADDRESS: Final = "127.0.0.1:0"
"""Any free port, so that several nodes can run in one process, and beside a daemon."""

P = ParamSpec("P")
Opened: TypeAlias = AbstractAsyncContextManager[AsyncClient]


def _with_options_of(
    opening: Callable[P, AbstractAsyncContextManager[Node]],
) -> Callable[[Callable[..., Opened]], Callable[P, Opened]]:
    """Give a function the parameters of another one, for type checkers and for `help`."""

    def give(function: Any) -> Any:
        signature = inspect.signature(opening)
        function.__signature__ = signature.replace(return_annotation="AsyncIterator[AsyncClient]")
        return function

    return give


@_with_options_of(Node.open)
@asynccontextmanager
async def asyncio_node(home: str | Path, **options: Any) -> AsyncIterator[AsyncClient]:
    """Start the node that lives in a folder, or a new one, inside a program under asyncio.

    It gives an `AsyncClient`, and stops the node at the end. The options are those of `Node.open`;
    the folder's `config.toml` is for the daemon alone. A task that is cancelled here is cancelled
    once the node has stopped. Needs the extra `daemon`.
    """
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        raise LocalError(
            "asyncio_node is for programs under asyncio: under Trio take Node.open, and without "
            "a loop a daemon and Client"
        ) from None
    settings = default_settings(
        {"http.address": ADDRESS, "trace.level": options.get("trace_level") or ""}
    )
    home = Path(home).absolute()  # noqa: ASYNC240 (it does not ask the disk)
    thread = _NodeThread(loop, Node.open(home, **options), settings)
    thread.start()
    client: AsyncClient | None = None
    try:
        await thread.ready.wait()
        if thread.failure is None:
            client = AsyncClient(home=home)
            yield client
    finally:
        await _to_the_end(_end(thread, client))
        if thread.failure is not None:
            raise thread.failure


async def _end(thread: _NodeThread, client: AsyncClient | None) -> None:
    try:
        if client is not None:
            await client.close()
    finally:
        await thread.end()


async def _to_the_end(work: Coroutine[Any, Any, None]) -> None:
    """Do it whole: a task that is cancelled meanwhile is cancelled afterwards."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            cancelled = error
    task.result()
    if cancelled is not None:
        raise cancelled


class _NodeThread:
    """The thread of a node; everything but `_run` and what it calls is for asyncio's thread."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        opened: AbstractAsyncContextManager[Node],
        settings: Settings,
    ) -> None:
        self.failure: BaseException | None = None
        """What the node failed with."""
        self._loop = loop
        self._opened = opened
        self._settings = settings
        self.ready = asyncio.Event()
        """Set once the node runs, or has failed."""
        self._over = asyncio.Event()
        self._shutdown = ShutdownRequest()
        self._is_wanted = True
        self._trio: trio.lowlevel.TrioToken | None = None
        # A program whose loop was torn down under the node must be able to end. The store bears it.
        self._thread = threading.Thread(target=self._run, name="pulsarcast", daemon=True)

    def start(self) -> None:
        """Start the node."""
        self._thread.start()

    async def end(self) -> None:
        """Stop the node, and wait for it."""
        self._is_wanted = False
        if self._trio is not None:
            with suppress(trio.RunFinishedError):
                self._trio.run_sync_soon(self._shutdown.end)
        await self._over.wait()
        self._thread.join()

    # In the thread.

    def _run(self) -> None:
        try:
            # The client's first call would import anyio's half for asyncio, on the program's loop.
            anyio.run(anyio.sleep, 0)
            trio.run(self._live)
        except BaseException as error:
            self.failure = error
        self._tell(self.ready)
        self._tell(self._over)

    async def _live(self) -> None:
        self._trio = trio.lowlevel.current_trio_token()
        # Read after the token is there, as `end` reads the token after it has set this.
        if not self._is_wanted:
            return
        with listen(self._settings) as bound, self._shutdown.start:
            listener, on_ready = Listener(bound, None), lambda _: self._tell(self.ready)
            await live(self._opened, self._settings, listener, self._shutdown, on_ready)

    def _tell(self, event: asyncio.Event) -> None:
        with suppress(RuntimeError):  # The loop may be closed.
            self._loop.call_soon_threadsafe(event.set)
