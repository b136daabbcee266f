"""One connection over HTTP/1.1, and how many strangers may have one.

A connection is a stranger's until a request on it shows a token. Strangers are few, and have little
time and few bytes; where another one comes, the one that has been there for longest goes. So what
they can make a daemon hold is bounded before anybody has shown anything, and a program that says at
once what it wants is answered, however many others say nothing.

Hypercorn would also speak HTTP/2, past the gate's rules for one request at a time, and would answer
a request of two lengths, of which a proxy before it may have believed the other.
"""

from __future__ import annotations

from typing import Any, Final

import h11
import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData
from hypercorn.protocol.h11 import H11Protocol
from hypercorn.trio.task_group import TaskGroup
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState
from hypercorn.utils import parse_socket_addr

STRANGERS_MAX: Final = 128
"""Bounds the connections on which no token was shown: 16 MB, with all that each may make us hold.
A program shows its token within a round trip, so more are seldom there at a time."""
STRANGER_S: Final = 10.0
"""How long a stranger may take for a handshake and the head of a request, or between two requests:
twice what a slow line needs for them."""
HEAD_BYTES_MAX: Final = 16 << 10
"""Bounds the head of a request: the longest filter, encoded, in a path, and a page's cookies."""

VERSIONS: Final = (b"1.0", b"1.1")


class Strangers:
    """The connections on which nobody has shown a token, those that came first in front."""

    def __init__(self) -> None:
        self._streams: dict[trio.abc.AsyncResource, None] = {}

    def __contains__(self, stream: trio.abc.AsyncResource) -> bool:
        """Whether a connection is a stranger's."""
        return stream in self._streams

    async def join(self, stream: trio.abc.AsyncResource) -> None:
        """One more; where there are too many, the one that has been there for longest goes."""
        self._streams[stream] = None
        if len(self._streams) > STRANGERS_MAX:
            oldest = next(iter(self._streams))
            self.leave(oldest)
            await trio.aclose_forcefully(oldest)

    def leave(self, stream: trio.abc.AsyncResource) -> None:
        """A token was shown, or the connection is over."""
        self._streams.pop(stream, None)


class Http1(H11Protocol):
    """HTTP/1.1 and WebSockets, and nothing that could be read in two ways."""

    async def handle(self, event: Event) -> None:
        """Take what came over the connection, or refuse it."""
        try:
            if isinstance(event, RawData) and isinstance(self.connection, h11.Connection):
                await self._read(event.data, self.connection)
            else:
                await super().handle(event)
        except h11.RemoteProtocolError as error:
            await self._send_error_response(error.error_status_hint)
            await self.send(Closed())

    async def _read(self, data: bytes, connection: h11.Connection) -> None:
        """Read no further than a head may reach: only what is unfinished is measured."""
        while data and connection.their_state is not h11.ERROR:
            room = HEAD_BYTES_MAX - len(connection.trailing_data[0])
            await super().handle(RawData(data[:room]))
            data = data[room:]

    async def _check_protocol(self, event: h11.Request) -> None:
        names = {name for name, _ in event.headers}
        if event.http_version not in VERSIONS:
            raise h11.RemoteProtocolError("another version of HTTP", error_status_hint=505)
        is_chunked = b"transfer-encoding" in names
        if is_chunked and (b"content-length" in names or event.http_version == b"1.0"):
            raise h11.RemoteProtocolError("a request of two lengths")


class Connection(TCPServer):
    """One connection; it is over when its client closes it, or lets it be idle for too long."""

    def __init__(
        self,
        app: Any,
        config: Config,
        context: WorkerContext,
        stream: Any,
        plain: Any,
        strangers: Strangers,
    ) -> None:
        super().__init__(ASGIWrapper(self._answer), config, context, ConnectionState({}), stream)
        self._asgi = app
        self._plain = plain
        self._strangers = strangers

    async def run(self) -> None:
        """Answer requests until one side has enough."""
        is_tls = isinstance(self.stream, trio.SSLStream)
        try:
            if is_tls:
                with trio.fail_after(STRANGER_S):
                    await self.stream.do_handshake()
            socket = self._plain.socket
            async with TaskGroup() as tasks:
                self._task_group = tasks
                self.protocol = Http1(  # type: ignore[assignment] # has all that is asked of it
                    self.app,
                    self.config,
                    self.context,
                    tasks,
                    ConnectionState(self.state),
                    is_tls,
                    parse_socket_addr(socket.family, socket.getpeername()),
                    parse_socket_addr(socket.family, socket.getsockname()),
                    self.protocol_send,
                )
                await self.idle_task.restart(tasks, self._idle_timeout)
                await self._read_data()
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError):
            pass
        finally:
            await self._close()
            # It holds what was read, and holds us: rings like that wait long to be collected.
            vars(self).pop("protocol", None)

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        scope["token_shown"] = self._token_shown
        await self._asgi(scope, receive, send)

    def _token_shown(self) -> None:
        self._strangers.leave(self._plain)

    async def _read_data(self) -> None:
        await super()._read_data()
        await self.idle_task.stop()

    async def _idle_timeout(self) -> None:
        is_stranger = self._plain in self._strangers
        with trio.move_on_after(STRANGER_S if is_stranger else self.config.keep_alive_timeout):
            await self.context.terminated.wait()
        with trio.CancelScope(shield=True):
            await self._initiate_server_close()
