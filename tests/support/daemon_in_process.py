"""A daemon on the test's own Trio loop, and a client that is as plain as can be."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import trio

from pulsarcast.daemon.daemon import Running, run
from pulsarcast.daemon.settings import Value, load_settings

LOCAL: dict[str, Value] = {
    "node.listen": ["/ip4/127.0.0.1/tcp/0"],
    "http.address": "127.0.0.1:0",
    "log.level": "error",
}


class Desk:
    """A running daemon and its operator."""

    def __init__(self, running: Running) -> None:
        self.running = running
        self.url = running.url
        self.secret = (running.home / "token").read_text().strip()

    @asynccontextmanager
    async def client(
        self, secret: str | None = "", **more: str
    ) -> AsyncIterator[httpx.AsyncClient]:
        """Ask as the operator, as somebody with another token, or (None) without any."""
        chosen = self.secret if secret == "" else secret
        headers = {**({} if chosen is None else {"Authorization": f"Bearer {chosen}"}), **more}
        async with httpx.AsyncClient(base_url=self.url, headers=headers, timeout=20) as client:
            yield client


@asynccontextmanager
async def daemon(home: Path, **flags: Value) -> AsyncIterator[Desk]:
    """Run a daemon while the test looks at it."""
    named: dict[str, Value] = {name.replace("__", "."): value for name, value in flags.items()}
    settings = load_settings(home, {}, {**LOCAL, **named})
    ready = trio.Event()
    found: list[Running] = []

    def on_ready(running: Running) -> None:
        found.append(running)
        ready.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: run(home, settings, on_ready=on_ready))
        with trio.fail_after(20):
            await ready.wait()
        try:
            yield Desk(found[0])
        finally:
            nursery.cancel_scope.cancel()


def play(scene: Callable[[], Awaitable[None]], s_max: float = 60) -> None:
    """Run a test's scene, for so long at most."""

    async def bounded() -> None:
        with trio.fail_after(s_max):
            await scene()

    trio.run(bounded)
