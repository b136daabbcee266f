"""js-libp2p: `peer.mjs`, which takes a line of JSON for each step."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final

import trio

from pulsarcast.model.ids import PeerId, parse_peer, peer_text
from tests.partners.partners import (
    LOOPBACK,
    Partner,
    Process,
    RefusedError,
    Serve,
    Wire,
    listening,
    program,
    running,
)

DRIVER: Final = Path(__file__).parent / "peer.mjs"


class Js(Partner):
    """A running js-libp2p peer."""

    agent = "js-libp2p/"

    def __init__(self, process: Process, folder: Path) -> None:
        self._process = process
        self._folder = folder
        self._numbers = count(1)
        self._arrived = b""

    async def ready(self) -> None:
        """Wait for its first line."""
        said = await self._line()
        self.peer = parse_peer(said["peer"])
        found = [each for each in said["addresses"] if "p2p-circuit" not in each]
        self.addresses = [each.partition("/p2p/")[0] for each in found]

    async def ask(self, action: str, **words: Any) -> Any:
        """Have it do something, one thing at a time; RefusedError where that fails."""
        number = next(self._numbers)
        line = json.dumps({"id": number, "do": action, **words})
        await self._process.stdin.send_all(line.encode() + b"\n")
        answer = await self._line()
        assert answer["id"] == number
        if "error" in answer:
            raise RefusedError(answer["error"])
        return answer["answer"]

    async def _line(self) -> dict[str, Any]:
        while b"\n" not in self._arrived:
            data = await self._process.stdout.receive_some()
            assert data, "js-libp2p's process has ended"
            self._arrived += data
        line, _, self._arrived = self._arrived.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found

    async def dial(self, peer: PeerId, address: str) -> None:
        await self.ask("dial", address=f"{address}/p2p/{peer_text(peer)}")

    async def ping(self, peer: PeerId, rounds: int) -> None:
        for _ in range(rounds):
            if await self.is_limited(peer):
                # Its service does not use a limited connection that there is: it dials again.
                await self.ping_over_stream(peer, 1)
            else:
                assert await self.ask("ping", peer=peer_text(peer)) >= 0

    @asynccontextmanager
    async def stream(self, peer: PeerId, protocol: str) -> AsyncIterator[Wire]:
        opened = trio.Event()
        done = trio.Event()
        wires: list[Wire] = []

        async def take(wire: Wire) -> None:
            wires.append(wire)
            opened.set()
            await done.wait()

        path = self._socket_path()
        refused: RefusedError | None = None
        async with listening(path, take):
            try:
                await self.ask("open", peer=peer_text(peer), protocol=protocol, path=path)
            except RefusedError as error:  # raised below: a nursery would wrap it
                refused = error
            else:
                await opened.wait()
                yield wires[0]
                done.set()
        if refused is not None:
            raise refused

    @asynccontextmanager
    async def handling(self, protocol: str, serve: Serve) -> AsyncIterator[None]:
        path = self._socket_path()
        async with listening(path, serve):
            await self.ask("handle", protocol=protocol, path=path)
            yield

    def _socket_path(self) -> str:
        return str(self._folder / f"{next(self._numbers)}.sock")

    async def identified(self, peer: PeerId) -> dict[str, Any] | None:
        found: dict[str, Any] | None = await self.ask("identified", peer=peer_text(peer))
        return found

    async def connected(self) -> list[PeerId]:
        return [parse_peer(each["peer"]) for each in await self.ask("connections")]

    async def is_limited(self, peer: PeerId) -> bool:
        """Whether it takes its connection to a peer for one that may carry little."""
        found = await self.ask("connections")
        return all(each["limited"] for each in found if each["peer"] == peer_text(peer))

    async def secured(self) -> set[tuple[str, str]]:
        return {(each["encryption"], each["multiplexer"]) for each in await self.ask("connections")}


@asynccontextmanager
async def js(
    folder: Path,
    *,
    listen: Sequence[str] = (LOOPBACK,),
    serve_relay: bool = False,
    reserve_at: str | None = None,
    punch: bool = False,
    inside: Sequence[str] = (),
) -> AsyncIterator[Js]:
    """A js-libp2p peer of its own; a relay if asked, or a client of one, by its whole address."""
    beside = str(Path(program("node_modules")).parent)  # where its packages are found
    where = [*listen, *([] if reserve_at is None else [f"{reserve_at}/p2p-circuit"])]
    command = [
        *(program("bin/node"), "--input-type=module", "--eval", DRIVER.read_text(encoding="utf-8")),
        *("--", json.dumps({"listen": where, "serveRelay": serve_relay, "punch": punch})),
    ]
    async with running(command, folder / "js.log", inside=inside, cwd=beside) as process:
        peer = Js(process, folder)
        with trio.fail_after(20):
            await peer.ready()
        yield peer
