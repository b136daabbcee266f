"""Other implementations of libp2p as processes, and what tests ask all of them."""

from __future__ import annotations

import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Final

import pytest
import trio

from pulsarcast.model.ids import PeerId
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
    async def open(self, peer: PeerId, protocol: str) -> None:
        """Open a stream to a connected peer; RefusedError if it does not speak the protocol."""

    @abstractmethod
    async def send_and_get_back(self, peer: PeerId, protocol: str, size: int) -> None:
        """Send so many bytes to a connected peer that sends back what comes, and compare."""

    @abstractmethod
    def sending_back(self, protocol: str) -> AbstractAsyncContextManager[None]:
        """Serve a protocol by sending back what comes."""

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


@asynccontextmanager
async def running(
    command: Sequence[str], log: Path, *, inside: Sequence[str] = (), cwd: str | None = None
) -> AsyncIterator[trio.Process]:
    """A process with pipes, of bounded life; `inside` begins a command in a namespace."""
    with log.open("ab") as errors:
        process = await trio.lowlevel.open_process(
            [*inside, "timeout", "--kill-after=2", str(LIFE_S_MAX), *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            cwd=cwd,
        )
    try:
        yield process
    finally:
        process.terminate()
        with trio.CancelScope(shield=True):
            with trio.move_on_after(5):
                await process.wait()
            process.kill()
            await process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    await pipe.aclose()
