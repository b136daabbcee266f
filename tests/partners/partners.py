"""Other implementations of libp2p as processes, and what tests ask all of them."""

from __future__ import annotations

import os
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import pytest
import trio

from pulsarcast.model.ids import PeerId
from pulsarcast.network import ping
from tests.conftest import MISSING_PARTNERS

FOLDERS: Final = (
    Path(sys.prefix) / "partners",
    Path(__file__).resolve().parents[2] / ".venv/partners",
)
"""Where `.ci/partners` puts them: beside the interpreter, or else in this clone."""
LIFE_S_MAX: Final = 120
"""A partner's process ends by itself after that, whatever becomes of the test."""
LOOPBACK: Final = "/ip4/127.0.0.1/tcp/0"


class RefusedError(Exception):
    """A partner says that it cannot do what it was asked."""


class Wire:
    """A stream of a partner, over a local socket."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._arrived = bytearray()

    async def write(self, data: bytes) -> None:
        """Send this."""
        await self._stream.send_all(data)

    async def read(self, size: int) -> bytes:
        """Read exactly this many bytes."""
        while len(self._arrived) < size:
            data = await self._stream.receive_some(65536)
            if not data:
                raise RefusedError(f"a stream ended after {bytes(self._arrived)!r}")
            self._arrived += data
        data = bytes(self._arrived[:size])
        del self._arrived[:size]
        return data

    async def send_back(self) -> None:
        """Write what comes, until no more comes."""
        data = bytes(self._arrived)
        while True:
            await self.write(data)
            data = bytes(await self._stream.receive_some(65536))
            if not data:
                return


Serve: TypeAlias = Callable[[Wire], Awaitable[None]]


@asynccontextmanager
async def listening(path: str, serve: Serve) -> AsyncIterator[None]:
    """A local socket at which a partner hands over streams."""

    async def begin(stream: trio.SocketStream) -> None:
        async with stream:
            await serve(Wire(stream))

    with trio.socket.socket(trio.socket.AF_UNIX) as listener:
        await listener.bind(path)
        listener.listen()
        async with trio.open_nursery() as nursery:
            listeners = [trio.SocketListener(listener)]
            nursery.start_soon(trio.serve_listeners, begin, listeners)
            yield
            nursery.cancel_scope.cancel()


class Partner(ABC):
    """A running peer of another implementation."""

    peer: PeerId
    addresses: Sequence[str]
    """Where it listens, without its peer id."""
    agent: str
    """How its description begins."""

    @abstractmethod
    async def dial(self, peer: PeerId, address: str) -> None:
        """Connect to a peer; RefusedError if that fails."""

    @abstractmethod
    async def ping(self, peer: PeerId, rounds: int) -> None:
        """Ping a connected peer so many times."""

    @abstractmethod
    def stream(self, peer: PeerId, protocol: str) -> AbstractAsyncContextManager[Wire]:
        """A stream to a connected peer; RefusedError if it does not speak the protocol."""

    @abstractmethod
    def handling(self, protocol: str, serve: Serve) -> AbstractAsyncContextManager[None]:
        """Serve the streams that peers open for a protocol."""

    async def ping_over_stream(self, peer: PeerId, rounds: int) -> None:
        """Ping a peer without the help of a service."""
        async with self.stream(peer, ping.PROTOCOL) as wire:
            for _ in range(rounds):
                sent = os.urandom(ping.PING_BYTES)
                await wire.write(sent)
                assert await wire.read(ping.PING_BYTES) == sent

    @abstractmethod
    async def identified(self, peer: PeerId) -> object:
        """What it took of what this connected peer says of itself; false until then."""

    @abstractmethod
    async def connected(self) -> list[PeerId]:
        """The peers that it is connected to."""

    @abstractmethod
    async def secured(self) -> set[tuple[str, str]]:
        """The security protocols and muxers of its connections."""


def program(name: str) -> str:
    """The way to a partner's program; skips the test where it is not there."""
    for folder in FOLDERS:
        if (folder / name).exists():
            return str(folder / name)
    pytest.skip(f"{MISSING_PARTNERS}: {name} (.ci/partners)")


class Process(NamedTuple):
    """A partner's process, and the ends of its pipes."""

    stdin: trio.lowlevel.FdStream
    stdout: trio.lowlevel.FdStream


@asynccontextmanager
async def running(
    command: Sequence[str], log: Path, *, inside: Sequence[str] = (), cwd: str | None = None
) -> AsyncIterator[Process]:
    """A process with pipes, of bounded life; `inside` begins a command in a namespace.

    Trio would start it in a thread that lives on, and so would be in a namespace that this one has
    left (`entered`).
    """
    command = [*inside, "timeout", "--kill-after=2", str(LIFE_S_MAX), *command]
    process, ends = _start(command, log, cwd)
    try:
        yield Process(*ends)
    finally:
        process.terminate()
        with trio.CancelScope(shield=True):
            for end in ends:
                await end.aclose()
            until_s = trio.current_time() + 5
            while process.poll() is None and trio.current_time() < until_s:
                await trio.sleep(0.01)
        process.kill()
        process.wait()


def _start(
    command: Sequence[str], log: Path, cwd: str | None
) -> tuple[subprocess.Popen[bytes], list[trio.lowlevel.FdStream]]:
    with log.open("ab") as errors:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, cwd=cwd
        )
    ends: list[trio.lowlevel.FdStream] = []
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        with pipe:
            ends.append(trio.lowlevel.FdStream(os.dup(pipe.fileno())))
    return process, ends
