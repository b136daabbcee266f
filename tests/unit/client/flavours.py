"""The same scene for every client: one that waits, one under asyncio, one under Trio."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Literal, TypeAlias

import anyio
import httpx

from pulsarcast.client import AsyncClient, Client

Flavour: TypeAlias = Literal["sync", "asyncio", "trio"]
FLAVOURS: tuple[Flavour, ...] = ("sync", "asyncio", "trio")
Handler: TypeAlias = Callable[[httpx.Request], httpx.Response]

URL = "http://127.0.0.1:8420"
STREAM = {"content-type": "text/event-stream; charset=utf-8"}


class Stream(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A body in pieces; an error among them is raised where it stands."""

    def __init__(self, *pieces: bytes | Exception) -> None:
        self._pieces = pieces

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._pieces:
            if isinstance(piece, Exception):
                raise piece
            yield piece

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self:
            yield piece


def stream(*pieces: bytes | Exception) -> httpx.Response:
    """A stream of events."""
    return httpx.Response(200, headers=STREAM, stream=Stream(*pieces))


def ask(flavour: Flavour, handler: Handler, call: Callable[[Any], Any], **options: Any) -> Any:
    """What a call gives, with any client; an iterator gives a list."""
    transport = httpx.MockTransport(handler)
    if flavour == "sync":
        with Client(URL, "secret", transport=transport, **options) as client:
            found = call(client)
            return list(found) if inspect.isgenerator(found) else found

    async def scene() -> Any:
        async with AsyncClient(URL, "secret", transport=transport, **options) as client:
            found = call(client)
            if inspect.isawaitable(found):
                return await found
            return [each async for each in found]

    return anyio.run(scene, backend=flavour)


def listen(
    flavour: Flavour,
    handler: Handler,
    count: int,
    *,
    then: Callable[[Any], Any] | None = None,
    **options: Any,
) -> list[int]:
    """The indices of so many events; `then` is called with the subscription before it ends."""
    indices: list[int] = []
    transport = httpx.MockTransport(handler)
    if flavour == "sync":
        with Client(URL, "secret", transport=transport) as client:
            with client.subscribe("weather", **options) as events:
                for _ in range(count):
                    indices.append(next(events).index)  # noqa: PERF401 (one after the other)
                if then is not None:
                    then(events)
        return indices

    async def scene() -> None:
        async with AsyncClient(URL, "secret", transport=transport) as client:
            async with await client.subscribe("weather", **options) as events:
                for _ in range(count):
                    indices.append((await anext(events)).index)  # noqa: PERF401
                if then is not None:
                    await then(events)

    anyio.run(scene, backend=flavour)
    return indices
