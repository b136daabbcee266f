"""A node in a process of its own that strangers attack: `python -m tests.attacks.victim HOME`."""

from __future__ import annotations

import os
import resource
import signal
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
from pulsarcast.model.ids import parse_cid
from pulsarcast.model.reach import Reach
from pulsarcast.network.addresses import parse_contact
from pulsarcast.network.host import Host
from pulsarcast.network.link import Link
from pulsarcast.network.node import Node
from pulsarcast.protocol.messages import FindPeers, Join, Message, Peers, Role
from pulsarcast.wire.codec import decode, encode
from pulsarcast.wire.framing import write_frames
from pulsarcast.wire.hello import Hello, encode_hello

HONEST_ADDRESS = "127.0.0.9"
"""Another prefix than any stranger's."""
_SEEDS = count(1)


class Victim:
    """The process, and what it takes."""

    def __init__(self, process: trio.Process, address: str, topic: str) -> None:
        self._process = process
        self.contact = parse_contact(address)
        self.topic = parse_cid(topic)
        """A topic whose root it is."""
        host, port = self.contact.addresses[0].split("/")[2::2]
        self.socket = (host, int(port))

    @property
    def memory_bytes(self) -> int:
        """What the process has in memory now."""
        pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    async def passes_s(self) -> list[float]:
        """How long its loop took for each pass since it was asked last, the shortest first.

        It is processor time: what else the machine does is left out. An honest peer waits until a
        pass ends, and is served in the next.
        """
        self._process.send_signal(signal.SIGUSR1)
        assert self._process.stdout is not None
        said = b""
        while not said.endswith(b"\n"):
            said += await self._process.stdout.receive_some()
        return sorted(map(float, said.split()))


@asynccontextmanager
async def victim(home: Path, files_max: int = 4096) -> AsyncIterator[Victim]:
    """A node to attack, for two minutes at most."""
    command = [sys.executable, "-m", "tests.attacks.victim", "serve", str(home), str(files_max)]
    process = await trio.lowlevel.open_process(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        with trio.fail_after(120):
            said = await process.stdout.receive_some()
            yield Victim(process, *said.decode().split())
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
            await process.stdout.aclose()


def address(number: int) -> str:
    """A stranger's address, in a network prefix of its own."""
    return f"127.{1 + number // 250}.{number % 250}.1"


def stranger(source: str) -> Host:
    """A host that nobody knows."""
    return Host(Identity.from_seed(next(_SEEDS).to_bytes(32, "big")), dial_from=source)


async def dial(
    attacked: Victim, source: str, *, says_hello: bool = True, reach: Reach = Reach.UNKNOWN
) -> Link:
    """A connection to the victim, nobody reads what comes."""
    link = await stranger(source).dial(attacked.contact.peer, attacked.contact.addresses)
    if says_hello:
        hello = Hello("main", (2,), instance=os.urandom(8), reach=reach)
        link.send(write_frames([encode_hello(hello)]))
        link.flush()
    return link


async def become_child(attacked: Victim, source: str) -> Link:
    """The same of a child of the victim in its topic: it takes in 64 that nobody can dial."""
    link = await dial(attacked, source, reach=Reach.PRIVATE)
    root = attacked.contact.peer
    say(link, Join(attacked.topic, 1, Role.MEMBER, root, handed_down=False, fresh=True))
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
        self._request = 0
        self._asked: dict[int, None] = {}
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
                del self._asked[message.request]
        self._begun = self._begun or bool(frames)

    async def ask(self, times: int, every_s: float = 0.02) -> None:
        """Ask so many questions; all are answered in the end."""
        for number in range(times):
            self._request += 2
            self._asked[self._request] = None
            say(self.link, FindPeers(self._request, number, 0))
            await trio.sleep(every_s)
        while self._asked and self.link.is_open:
            await trio.sleep(every_s)
        assert not self._asked, "the victim closed an honest peer's connection"


class Passes(trio.abc.Instrument):
    """Measures the passes of a loop."""

    def __init__(self) -> None:
        self.took_s: list[float] = []
        self._began_s = time.thread_time()

    def after_io_wait(self, timeout: float) -> None:
        self._began_s = time.thread_time()

    def before_io_wait(self, timeout: float) -> None:
        self.took_s.append(time.thread_time() - self._began_s)


async def serve(home: str, files_max: int, passes: Passes) -> None:
    """Be the victim."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files_max, hard))
    async with Node.open(home, listen=["/ip4/127.0.0.1/tcp/0"], trace_level=None) as node:
        topic = (await node.create_topic("t")).id
        await node.subscribe(topic)
        with trio.open_signal_receiver(signal.SIGUSR1) as asked, trio.move_on_after(150):
            _say(node.addresses[0], topic)
            async for _ in asked:
                _say(*(f"{each:.6f}" for each in passes.took_s))
                passes.took_s.clear()


def _say(*words: str) -> None:
    sys.stdout.write(" ".join(words) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _, _, node_home, files = sys.argv
    instrument = Passes()
    trio.run(serve, node_home, int(files), instrument, instruments=[instrument])
