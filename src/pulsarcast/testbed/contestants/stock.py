"""A host of py-libp2p as it comes, for contestants that are not ours (docs/decisions/0027).

Noise only, Yamux, TCP, one connection per peer. Bytes are counted where its TCP stream reads and
writes, which is where a node of ours counts them too.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

import trio
from libp2p import new_host
from libp2p.abc import IHost
from libp2p.crypto.ed25519 import create_new_key_pair
from libp2p.crypto.x25519 import create_new_key_pair as create_noise_key_pair
from libp2p.io.trio import TrioTCPStream
from libp2p.network.config import ConnectionConfig
from libp2p.peer.id import ID
from libp2p.peer.peerinfo import info_from_p2p_addr
from libp2p.security.noise.transport import PROTOCOL_ID as NOISE
from libp2p.security.noise.transport import Transport as NoiseTransport
from multiaddr import Multiaddr

from pulsarcast.testbed.contestants.contestants import Traffic

DIAL_ATTEMPTS: Final = 5
DIAL_RETRY_S: Final = 0.5
CONNECTED_S_MAX: Final = 300.0


class _Counted:
    """Bytes of this process at its sockets."""

    bytes_in = 0
    bytes_out = 0


_read: Callable[[TrioTCPStream, int | None], Awaitable[bytes]] = TrioTCPStream.read
_write: Callable[[TrioTCPStream, bytes], Awaitable[None]] = TrioTCPStream.write


async def _counted_read(self: TrioTCPStream, n: int | None = None) -> bytes:
    data = await _read(self, n)
    _Counted.bytes_in += len(data)
    return data


async def _counted_write(self: TrioTCPStream, data: bytes) -> None:
    _Counted.bytes_out += len(data)
    await _write(self, data)


def count_bytes() -> None:
    """Count what TCP streams of this process read and write from now on; twice is once."""
    TrioTCPStream.read = _counted_read  # type: ignore[method-assign] # there is no other hook
    TrioTCPStream.write = _counted_write  # type: ignore[method-assign]


def traffic() -> Traffic:
    """What was counted so far."""
    return Traffic(_Counted.bytes_in, _Counted.bytes_out)


@asynccontextmanager
async def open_host(listen: str) -> AsyncIterator[IHost]:
    """A host with a new key, listening at an address."""
    keys = create_new_key_pair()
    noise = NoiseTransport(keys, noise_privkey=create_noise_key_pair().private_key)
    host = new_host(
        key_pair=keys,
        sec_opt={NOISE: noise},
        muxer_preference="YAMUX",
        # No connections but ours: it would dial by itself to have a hundred of them.
        connection_config=ConnectionConfig(
            max_connections_per_peer=1, min_connections=0, low_watermark=0
        ),
    )
    async with host.run(listen_addrs=[Multiaddr(listen)]):
        yield host


def addresses_of(host: IHost) -> list[str]:
    """Where a host listens, with its peer id."""
    return [str(address) for address in host.get_addrs()]


def peer_of(address: str) -> ID:
    """The peer id in an address."""
    return info_from_p2p_addr(Multiaddr(address)).peer_id


async def dial(host: IHost, address: str) -> None:
    """Connect, with patience: a hundred hosts that start at once are slow to answer."""
    info = info_from_p2p_addr(Multiaddr(address))
    for attempt in range(DIAL_ATTEMPTS):
        try:
            await host.connect(info)
        except Exception:  # it raises exceptions of every kind
            if attempt == DIAL_ATTEMPTS - 1:
                raise
            await trio.sleep(DIAL_RETRY_S * 2**attempt)
        else:
            return


async def wait_for(condition: Callable[[], bool], what: str) -> None:
    """Wait until something is so that nobody tells us of."""
    with trio.move_on_after(CONNECTED_S_MAX):
        while not condition():  # noqa: ASYNC110 (libp2p has no event for it)
            await trio.sleep(0.02)
        return
    raise trio.TooSlowError(f"{what}: not in {CONNECTED_S_MAX:.0f} s")


count_bytes()
