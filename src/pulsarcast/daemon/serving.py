"""Serving HTTP: Hypercorn's protocols on streams of our own.

Hypercorn shields what it sends from being cancelled, so somebody who reads nothing would hold a
task, and the end of the daemon, for ever. Our streams give up by themselves.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import trio
from hypercorn.config import Config
from hypercorn.trio.worker_context import WorkerContext

from pulsarcast.daemon.connection import HEAD_BYTES_MAX, Connection, Strangers

GRACE_S: Final = 3.0
SLICE_BYTES: Final = 64 << 10
"""What a reader has its time for: with more at once, one that reads slowly looks like none."""

_log = logging.getLogger(__name__)


class PatientStream(trio.abc.HalfCloseableStream):
    """Waits for its reader to take something, but not for ever."""

    def __init__(self, stream: trio.SocketStream, slow_s: float, cut: Callable[[], None]) -> None:
        self.socket = stream.socket
        self._stream = stream
        self._slow_s = slow_s
        self._cut = cut

    async def send_all(self, data: bytes | memoryview) -> None:
        """Send, or close the connection."""
        view = memoryview(data)
        for start in range(0, len(view), SLICE_BYTES):
            with trio.move_on_after(self._slow_s) as scope:
                await self._stream.send_all(view[start : start + SLICE_BYTES])
            if scope.cancelled_caught:
                self._cut()
                await trio.aclose_forcefully(self)
                raise trio.BrokenResourceError("the other side took nothing for too long")

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until there is room."""
        await self._stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Read: no more at a time than a stranger may have us hold."""
        return await self._stream.receive_some(min(max_bytes or HEAD_BYTES_MAX, HEAD_BYTES_MAX))

    async def send_eof(self) -> None:
        """Send no more."""
        await self._stream.send_eof()

    async def aclose(self) -> None:
        """Close."""
        await self._stream.aclose()


class PatientListener(trio.abc.Listener[PatientStream]):
    """Accepts patient streams, and knows which are open."""

    def __init__(self, listener: trio.SocketListener, slow_s: float, cut: Callable[[], None]):
        self._listener = listener
        self._slow_s = slow_s
        self._cut = cut
        self.open: dict[PatientStream, None] = {}
        self.strangers = Strangers()

    async def accept(self) -> PatientStream:
        """The next connection."""
        accepted = await self._listener.accept()
        stream = PatientStream(accepted, self._slow_s, self._cut)
        self.open[stream] = None
        await self.strangers.join(stream)
        return stream

    def forget(self, stream: PatientStream) -> None:
        """A connection is over."""
        self.open.pop(stream, None)
        self.strangers.leave(stream)

    async def aclose(self) -> None:
        """Accept no more."""
        await self._listener.aclose()


async def serve(
    app: Any,
    config: Config,
    socket: trio.socket.SocketType,
    *,
    tls: ssl.SSLContext | None,
    slow_s: float,
    cut: Callable[[], None],
    enough: trio.Event,
    task_status: Any = trio.TASK_STATUS_IGNORED,
) -> None:
    """Answer until it is enough; then whoever is being answered has a little time left."""
    context = WorkerContext(None)
    listener = PatientListener(trio.SocketListener(socket), slow_s, cut)

    async def handle(stream: Any) -> None:
        plain = stream if tls is None else stream.transport_stream
        try:
            await Connection(app, config, context, stream, plain, listener.strangers).run()
        except Exception:
            # One connection; the others go on.
            _log.exception("a connection ended by a fault of ours")
        finally:
            listener.forget(plain)

    accepting: Any = listener
    if tls is not None:
        accepting = trio.SSLListener(listener, tls, https_compatible=True)
    async with trio.open_nursery() as nursery:
        serving = partial(trio.serve_listeners, handle, [accepting], handler_nursery=nursery)
        nursery.start_soon(serving)
        task_status.started()
        try:
            await enough.wait()
            await context.terminated.set()
            with trio.move_on_after(GRACE_S):
                while listener.open:  # noqa: ASYNC110 (once, at the very end)
                    await trio.sleep(0.05)
        finally:
            with trio.CancelScope(shield=True):
                for stream in list(listener.open):
                    await trio.aclose_forcefully(stream)
        nursery.cancel_scope.cancel()
