"""go-libp2p: its daemon p2pd, driven over its control socket.

Each request is a connection to the socket: a message behind its length, and one back (package
p2pclient.p2pd.pb). Only the fields that tests need are written and read, by their numbers.
"""

from __future__ import annotations

import re
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Final

import trio

from pulsarcast.model.ids import PeerId, parse_peer
from pulsarcast.network.multiaddrs import address_bytes
from pulsarcast.network.negotiation import read_message
from pulsarcast.wire.framing import write_frames
from tests.partners.partners import (
    LOOPBACK,
    Partner,
    RefusedError,
    Serve,
    Wire,
    listening,
    program,
    running,
)

ANSWER_BYTES_MAX: Final = 1 << 20
CONNECT, OPEN_STREAM, HANDLE_STREAMS, LIST_PEERS = 1, 2, 3, 5
"""Kinds of requests."""
UNIX: Final = b"\x90\x03"
"""How a multiaddr of a local socket begins."""
CONNECT_S: Final = 15

Value = int | bytes
Field = tuple[int, Value]


def message(*fields: Field) -> bytes:
    """A message with these fields by their numbers: integers, or texts and messages in bytes."""
    return b"".join(
        _varint(number << 3) + _varint(value)
        if isinstance(value, int)
        else _varint(number << 3 | 2) + write_frames([value])
        for number, value in fields
    )


def fields(data: bytes) -> Iterator[Field]:
    """The fields of such a message."""
    octets = iter(data)
    for first in octets:
        number, kind = _rest_of_varint(first, octets) >> 3, first & 7
        value = _rest_of_varint(next(octets), octets)
        yield number, value if kind == 0 else bytes(next(octets) for _ in range(value))


def _varint(number: int) -> bytes:
    octets = bytearray()
    while number >= 0x80:
        octets.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*octets, number])


def _rest_of_varint(octet: int, octets: Iterator[int]) -> int:
    number, shift = octet & 0x7F, 0
    while octet >= 0x80:
        octet, shift = next(octets), shift + 7
        number |= (octet & 0x7F) << shift
    return number


class Go(Partner):
    """A running p2pd."""

    agent = "p2pd/"

    def __init__(self, peer: PeerId, addresses: Sequence[str], control: str, meters: int) -> None:
        self.peer = peer
        self.addresses = addresses
        self._control = control
        self._meters = meters
        self._numbers = count(1)

    async def ready(self) -> None:
        """Wait until it has meters, which come after all else."""
        while True:
            with suppress(OSError):
                await self._read_meters()
                return
            await trio.sleep(0.02)

    @asynccontextmanager
    async def _asked(self, kind: int, *words: Field) -> AsyncIterator[tuple[Wire, list[Field]]]:
        """What it answers to a request, and the connection on which it does."""
        async with await trio.open_unix_socket(self._control) as stream:
            wire = Wire(stream)
            await wire.write(write_frames([message((1, kind), *words)]))
            answer = list(fields(await read_message(wire, ANSWER_BYTES_MAX)))
            if dict(answer)[1] != 0:
                raise RefusedError(repr(dict(answer).get(2)))
            yield wire, answer

    async def dial(self, peer: PeerId, address: str) -> None:
        words = message((1, peer), (2, address_bytes(address)), (3, CONNECT_S))
        async with self._asked(CONNECT, (2, words)):
            pass

    async def ping(self, peer: PeerId, rounds: int) -> None:
        await self.ping_over_stream(peer, rounds)

    @asynccontextmanager
    async def stream(self, peer: PeerId, protocol: str) -> AsyncIterator[Wire]:
        words = message((1, peer), (2, protocol.encode()), (3, CONNECT_S))
        async with self._asked(OPEN_STREAM, (3, words)) as (wire, _):
            yield wire

    @asynccontextmanager
    async def handling(self, protocol: str, serve: Serve) -> AsyncIterator[None]:
        # It connects to a socket for each stream that a peer opens, and says first for whom.
        async def begin(wire: Wire) -> None:
            await read_message(wire, ANSWER_BYTES_MAX)
            await serve(wire)

        path = f"{self._control}.{next(self._numbers)}"
        async with listening(path, begin):
            where = UNIX + write_frames([path.encode()])
            words = message((1, where), (2, protocol.encode()), (3, 0))
            async with self._asked(HANDLE_STREAMS, (4, words)):
                yield

    async def identified(self, peer: PeerId) -> bool:
        # It says what it took only as a count, of all peers.
        return await self.meter("libp2p_identify_protocols_received_count") > 0

    async def connected(self) -> list[PeerId]:
        async with self._asked(LIST_PEERS) as (_, answer):
            infos = [dict(fields(value)) for number, value in answer if number == 6]  # type: ignore[arg-type]
        return [PeerId(info[1]) for info in infos]  # type: ignore[arg-type]

    async def secured(self) -> set[tuple[str, str]]:
        opened = r'^libp2p_swarm_connections_opened_total\{.*muxer="(\S+?)",security="(\S+?)"'
        found = re.findall(opened, await self._read_meters(), re.MULTILINE)
        return {(security, muxer) for muxer, security in found}

    async def meter(self, name: str, **labels: str) -> float:
        """The sum of a meter of its own, over all that has these labels."""
        total = 0.0
        for line in (await self._read_meters()).splitlines():
            if line.startswith((name + "{", name + " ")) and all(
                f'{label}="{value}"' in line for label, value in labels.items()
            ):
                total += float(line.rpartition(" ")[2])
        return total

    async def _read_meters(self) -> str:
        async with await trio.open_tcp_stream("127.0.0.1", self._meters) as stream:
            await stream.send_all(b"GET /metrics HTTP/1.0\r\n\r\n")
            return b"".join([piece async for piece in stream]).decode()


@asynccontextmanager
async def go(
    folder: Path,
    *,
    listen: Sequence[str] = (LOOPBACK,),
    serve_relay: bool = False,
    reserve_at: str | None = None,
    inside: Sequence[str] = (),
) -> AsyncIterator[Go]:
    """A go-libp2p peer of its own; a relay if asked, or a client of one, by its whole address."""
    control = folder / "p2pd.sock"
    with socket.create_server(("127.0.0.1", 0)) as free:
        meters = free.getsockname()[1]
    command = [
        program("bin/p2pd"),
        f"-listen=/unix{control}",
        f"-metricsAddr=127.0.0.1:{meters}",
        f"-hostAddrs={','.join(listen)}",
        f"-relayService={str(serve_relay).lower()}",
    ]
    if serve_relay:
        # A peer that does not know its reach serves no relay.
        command.append("-forceReachabilityPublic")
    if reserve_at is not None:
        # It looks for relays with its DHT only, of which it needs nothing here.
        command += ["-forceReachabilityPrivate", "-dhtClient", "-autoRelay"]
        command += ["-relayDiscovery=false", f"-trustedRelays={reserve_at}"]
    async with running(command, folder / "p2pd.log", inside=inside) as process:
        said = ""
        with trio.fail_after(10):
            # The addresses come last, one after the other. A client of a relay may tell none.
            few = 1 if reserve_at is None else 0
            begin = rf"Peer ID: (\w+)\nPeer Addrs:\n((?:/.*\n){{{few},}})"
            while not (found := re.search(begin, said)):
                said += (await process.stdout.receive_some()).decode()
        peer = Go(parse_peer(found[1]), found[2].split(), str(control), meters)
        with trio.fail_after(10):
            await peer.ready()
            reserved = "libp2p_autorelay_reservations_opened_total"
            while reserve_at is not None and not await peer.meter(reserved):
                await trio.sleep(0.05)
        yield peer
