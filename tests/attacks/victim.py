"""A node in a process of its own that strangers attack: `python -m tests.attacks.victim HOME`."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path

import trio

from pulsarcast.model.errors import RemoteError
from pulsarcast.model.identity import Identity
from pulsarcast.network.addresses import parse_contact
from pulsarcast.network.host import Host
from pulsarcast.network.link import Link
from pulsarcast.network.node import Node
from pulsarcast.protocol.messages import FindPeers, Message, Peers
from pulsarcast.wire.codec import decode, encode
from pulsarcast.wire.framing import write_frames
from pulsarcast.wire.hello import Hello, encode_hello

HONEST_ADDRESS = "127.0.0.9"
"""Another prefix than any stranger's."""
_SEEDS = count(1)


class Victim:
    """The process, and what it takes."""

    def __init__(self, home: Path, files_max: int) -> None:
        command = [sys.executable, "-m", "tests.attacks.victim", str(home), str(files_max)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.contact = parse_contact(self._process.stdout.readline().strip())
        host, port = self.contact.addresses[0].split("/")[2::2]
        self.socket = (host, int(port))

    @property
    def memory_bytes(self) -> int:
        """What the process has in memory now."""
        pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def end(self) -> None:
        """Stop it."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


@asynccontextmanager
async def victim(home: Path, files_max: int = 4096) -> AsyncIterator[Victim]:
    """A node to attack, for two minutes at most."""
    attacked = await trio.to_thread.run_sync(Victim, home, files_max)
    try:
        with trio.fail_after(120):
            yield attacked
    finally:
        attacked.end()


def address(number: int) -> str:
    """A stranger's address, in a network prefix of its own."""
    return f"127.{1 + number // 250}.{number % 250}.1"


def stranger(source: str) -> Host:
    """A host that nobody knows."""
    return Host(Identity.from_seed(next(_SEEDS).to_bytes(32, "big")), dial_from=source)


async def dial(attacked: Victim, source: str, *, says_hello: bool = True) -> Link:
    """A connection to the victim, nobody reads what comes."""
    link = await stranger(source).dial(attacked.contact.peer, attacked.contact.addresses)
    if says_hello:
        hello = Hello("main", (2,), instance=os.urandom(8))
        link.send(write_frames([encode_hello(hello)]))
        link.flush()
    return link


def say(link: Link, *messages: Message) -> None:
    """Send messages to the victim."""
    link.send(write_frames(list(map(encode, messages))))
    link.flush()


async def keep(link: Link) -> None:
    """Read what comes, until the victim closes the connection."""
    with suppress(RemoteError):
        await link.run(lambda _: None)


class Caller:
    """An honest peer that asks the victim questions."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.round_trips_s: list[float] = []
        self._asked: dict[int, float] = {}
        self._begun = False

    @classmethod
    async def begin(cls, attacked: Victim, source: str = HONEST_ADDRESS) -> Caller:
        """Dial the victim."""
        return cls(await dial(attacked, source))

    async def run(self) -> None:
        """Hear the answers."""
        await self.link.run(self._hear)

    def _hear(self, frames: list[bytes]) -> None:
        for frame in frames[0 if self._begun else 1 :]:
            message = decode(frame)
            if isinstance(message, Peers) and message.request in self._asked:
                asked_s = self._asked.pop(message.request)
                self.round_trips_s.append(time.monotonic() - asked_s)
        self._begun = self._begun or bool(frames)

    async def ask(self, times: int, every_s: float = 0.02) -> None:
        """Ask so many questions; all are answered in the end."""
        for number in range(times):
            request = 2 * (len(self.round_trips_s) + len(self._asked)) + 2
            self._asked[request] = time.monotonic()
            say(self.link, FindPeers(request, number, 0))
            await trio.sleep(every_s)
        while self._asked and self.link.is_open:
            await trio.sleep(every_s)
        assert not self._asked, "the victim closed an honest peer's connection"

    def median_s(self) -> float:
        """The middle one of its round trips."""
        return sorted(self.round_trips_s)[len(self.round_trips_s) // 2]


async def serve(home: str) -> None:
    """Be the victim."""
    async with Node.open(home, listen=["/ip4/127.0.0.1/tcp/0"], trace_level=None) as node:
        sys.stdout.write(f"{node.addresses[0]}\n")
        sys.stdout.flush()
        await trio.sleep(150)


if __name__ == "__main__":
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[2]), hard))
    trio.run(serve, sys.argv[1])
