"""A program that speaks our protocol over the streams of another implementation."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from pulsarcast.model.ids import PeerId
from pulsarcast.network.link import PROTOCOL
from pulsarcast.network.negotiation import read_message
from pulsarcast.protocol.limits import FRAME_BYTES_MAX
from pulsarcast.wire.framing import write_frames
from pulsarcast.wire.hello import Hello, decode_hello, encode_hello
from tests.partners.partners import Partner, RefusedError, Wire


class Speaker:
    """A program that speaks our protocol with the help of a partner."""

    def __init__(self, them: Partner, us: PeerId) -> None:
        self._them = them
        self._us = us
        self.hello = Hello("main", (2,), instance=b"them", addresses=tuple(them.addresses))
        self.heard: list[bytes] = []
        self.told: Hello | None = None
        self.streams = 0
        """How many have said Hello."""

    async def serve(self, wire: Wire) -> None:
        """Hear what comes, until the node ends it."""
        self.told = decode_hello(await read_message(wire, FRAME_BYTES_MAX))
        self.streams += 1
        with suppress(RefusedError):
            while True:
                self.heard.append(await read_message(wire, FRAME_BYTES_MAX))

    @asynccontextmanager
    async def speaking(self) -> AsyncIterator[Wire]:
        """A stream for frames to the node, with a Hello on it."""
        async with self._them.stream(self._us, PROTOCOL) as wire:
            await wire.write(write_frames([encode_hello(self.hello)]))
            yield wire
