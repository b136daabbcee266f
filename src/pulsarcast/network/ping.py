"""ping (/ipfs/ping/1.0.0): 32 bytes there, the same 32 bytes back (libp2p specification, ping)."""

from __future__ import annotations

import os
from typing import Final

import trio

from pulsarcast.model.errors import Rejection, RemoteError
from pulsarcast.network.link import Link
from pulsarcast.network.streams import Stream

PROTOCOL: Final = "/ipfs/ping/1.0.0"
PING_BYTES: Final = 32
STREAMS_MAX: Final = 2
"""As the specification advises: a peer has one, and may open its next before the last has ended."""
IDLE_S_MAX: Final = 60.0
"""How long a stream may wait for its next ping, or a ping for its answer; go-libp2p's number."""
PAUSE_S: Final = 0.01
"""Between an answer and the next one: a peer that never stops gets a hundred a second."""


async def answer(stream: Stream) -> None:
    """Send back what comes, until the peer closes its side, which ends the stream at once."""
    not_before_s = 0.0
    while True:
        with trio.fail_after(IDLE_S_MAX):
            data = await stream.receive(PING_BYTES)
            if not data:
                return
            data += await stream.read(PING_BYTES - len(data))
            await trio.sleep_until(not_before_s)
            await stream.write(data)
        not_before_s = trio.current_time() + PAUSE_S


async def ping(link: Link) -> float:
    """The seconds that one ping takes; RemoteError where the answer is wrong or does not come."""
    with trio.move_on_after(IDLE_S_MAX), await link.open_stream(PROTOCOL) as stream:
        sent = os.urandom(PING_BYTES)
        sent_s = trio.current_time()
        await stream.write(sent)
        if await stream.read(PING_BYTES) != sent:
            raise RemoteError("answers a ping with another", code=Rejection.MALFORMED)
        return trio.current_time() - sent_s
    raise RemoteError("does not answer a ping", code=Rejection.DISCONNECTED)
