"""What a message costs between two processes: our links against py-libp2p's streams.

Frames of 500 bytes go one way over loopback, from one process to another, either each in a write
of its own or coalesced to 16 KB. Printed are messages per second and the CPU time of sender and
receiver together, user and system, per message; connecting is not counted.

    python benchmarks/link_cost.py [--messages N] [--repeat N]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Final

import trio
from libp2p import new_host
from libp2p.abc import IHost, INetStream
from libp2p.crypto.ed25519 import create_new_key_pair
from libp2p.crypto.x25519 import create_new_key_pair as create_noise_key_pair
from libp2p.custom_types import TProtocol
from libp2p.network.config import ConnectionConfig
from libp2p.peer.id import ID
from libp2p.peer.peerinfo import PeerInfo
from libp2p.security.noise.transport import PROTOCOL_ID as NOISE
from libp2p.security.noise.transport import Transport as NoiseTransport
from multiaddr import Multiaddr

from pulsarcast.model.identity import Identity
from pulsarcast.network.host import Host
from pulsarcast.network.link import PROTOCOL, READ_BYTES_MAX, Link
from pulsarcast.wire.framing import FrameReader, write_frames

FRAME: Final = bytes(500)
COALESCED: Final = 32
"""Frames of 500 bytes in 16 KB."""
LOOPBACK: Final = "/ip4/127.0.0.1/tcp/0"
SENDER, RECEIVER = Identity(b"s" * 32), Identity(b"r" * 32)
STOCK_PROTOCOL: Final = TProtocol(PROTOCOL)


class Meter:
    """CPU and wall time from the first message to the last."""

    def __init__(self, messages: int) -> None:
        self.done = trio.Event()
        self._left = messages
        self._started: tuple[float, float] | None = None

    def start(self) -> None:
        """Count from here."""
        self._started = time.process_time(), time.perf_counter()

    def count(self, messages: int) -> None:
        """So many more are through; report once all are."""
        if self._started is None:
            self.start()
        assert self._started is not None
        self._left -= messages
        if self._left <= 0 and not self.done.is_set():
            cpu_s, wall_s = self._started
            print(time.process_time() - cpu_s, time.perf_counter() - wall_s, flush=True)
            self.done.set()


async def receive_ours(meter: Meter) -> None:
    """Take messages over a link."""
    host = Host(RECEIVER)

    async def accepted(link: Link) -> None:
        await link.run(lambda frames: meter.count(len(frames)))

    print(*await host.listen(LOOPBACK), flush=True)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(host.serve, accepted)
        await meter.done.wait()
        nursery.cancel_scope.cancel()


async def send_ours(meter: Meter, address: str, writes: int, frames_per_write: int) -> None:
    """Send messages over a link; a write that does not fit the peer's window waits for it."""
    link = await Host(SENDER).dial(RECEIVER.peer_id, [address])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(link.run, lambda _: None)
        await trio.sleep(0.2)
        meter.start()
        data = write_frames([FRAME] * frames_per_write)
        for number in range(writes):
            link.send(data)
            link.flush()
            if number % 16 == 0:
                await trio.lowlevel.checkpoint()
            while link.queued_bytes:  # a link has no event for this
                await trio.sleep(0.0005)
        meter.count(writes * frames_per_write)


def stock_host(identity: Identity) -> IHost:
    """A host of py-libp2p's with the best settings that we know: Noise alone, one connection."""
    keys = create_new_key_pair(identity.seed)
    return new_host(
        key_pair=keys,
        sec_opt={NOISE: NoiseTransport(keys, create_noise_key_pair().private_key)},
        connection_config=ConnectionConfig(max_connections_per_peer=1),
    )


async def receive_stock(meter: Meter) -> None:
    """Take messages over a stream of py-libp2p's."""
    host = stock_host(RECEIVER)
    reader = FrameReader()

    async def handle(stream: INetStream) -> None:
        while not meter.done.is_set():
            meter.count(len(reader.feed(await stream.read(READ_BYTES_MAX))))

    async with host.run(listen_addrs=[Multiaddr(LOOPBACK)]):
        host.set_stream_handler(STOCK_PROTOCOL, handle)
        # Without the peer id that it puts behind.
        print(str(host.get_addrs()[0]).partition("/p2p")[0], flush=True)
        await meter.done.wait()


async def send_stock(meter: Meter, address: str, writes: int, frames_per_write: int) -> None:
    """Send messages over a stream of py-libp2p's."""
    host = stock_host(SENDER)
    async with host.run(listen_addrs=[Multiaddr(LOOPBACK)]):
        peer = ID(RECEIVER.peer_id)
        await host.connect(PeerInfo(peer, [Multiaddr(address)]))
        stream = await host.new_stream(peer, [STOCK_PROTOCOL])
        await trio.sleep(0.2)
        meter.start()
        data = write_frames([FRAME] * frames_per_write)
        for _ in range(writes):
            await stream.write(data)
        meter.count(writes * frames_per_write)
        await trio.sleep_forever()


RECEIVE: Final[dict[str, Callable[[Meter], Awaitable[None]]]] = {
    "ours": receive_ours,
    "stock": receive_stock,
}
SEND: Final[dict[str, Callable[[Meter, str, int, int], Awaitable[None]]]] = {
    "ours": send_ours,
    "stock": send_stock,
}


def measure(stack: str, messages: int, frames_per_write: int) -> tuple[float, float]:
    """Messages per second, and CPU seconds of both processes per message."""
    command = [sys.executable, __file__, "--stack", stack, "--messages", str(messages)]

    def start(*more: str) -> subprocess.Popen[str]:
        return subprocess.Popen([*command, *more], stdout=subprocess.PIPE, text=True)

    def line(process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        return process.stdout.readline()

    with start("--role", "receive") as receiver:
        address = line(receiver).strip()
        per_write = str(frames_per_write)
        with start("--role", "send", "--address", address, "--per-write", per_write) as sender:
            sent_cpu_s, _ = map(float, line(sender).split())
            received_cpu_s, wall_s = map(float, line(receiver).split())
            for process in (sender, receiver):
                process.terminate()
    return messages / wall_s, (sent_cpu_s + received_cpu_s) / messages


def main() -> None:
    """Measure all cases, or play one part in one of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=48_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--role", choices=["send", "receive"])
    parser.add_argument("--stack", choices=list(SEND), default="ours")
    parser.add_argument("--address", default="")
    parser.add_argument("--per-write", type=int, default=1)
    given = parser.parse_args()
    if given.role == "receive":
        trio.run(RECEIVE[given.stack], Meter(given.messages))
    elif given.role == "send":
        writes = given.messages // given.per_write
        meter = Meter(writes * given.per_write)
        trio.run(SEND[given.stack], meter, given.address, writes, given.per_write)
    else:
        print(f"{'':24}{'messages/s':>12}{'CPU µs/message':>16}")
        for per_write, name in ((1, "one per flush"), (COALESCED, "16 KB coalesced")):
            for stack in SEND:
                # The least of several: whatever else the machine does only ever adds.
                runs = [measure(stack, given.messages, per_write) for _ in range(given.repeat)]
                rate, cpu_s = max(run[0] for run in runs), min(run[1] for run in runs)
                print(f"{stack + ', ' + name:24}{rate:>12,.0f}{cpu_s * 1e6:>16.1f}")


if __name__ == "__main__":
    main()
