"""A way to a daemon that breaks when a test wants it to, in the middle of whatever goes over it."""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

ABRUPT: Final = struct.pack("ii", 1, 0)
"""Close with a reset instead of in good order."""


class Proxy:
    """Passes bytes on, and cuts all its connections after so many bytes to the client."""

    def __init__(self, cuts_after: list[int]) -> None:
        self.target_port = 0
        self.cuts = 0
        self._cuts_after = list(cuts_after)
        self._passed = 0
        self._lock = threading.Lock()
        self._open: dict[socket.socket, None] = {}
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    @property
    def host(self) -> str:
        """Under which name a daemon is asked for through us."""
        return f"127.0.0.1:{self.port}"

    def cut(self) -> None:
        """Break every connection, now."""
        with self._lock:
            held = list(self._open)
            self._open.clear()
            self.cuts += 1
        for each in held:
            _break(each)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # Whoever waits in accept wakes up.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join(10)
            assert not thread.is_alive()

    def _start(self, work: object, *given: object) -> None:
        assert callable(work)
        thread = threading.Thread(target=work, args=given, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                daemon = socket.create_connection(("127.0.0.1", self.target_port), 5)
            except OSError:
                _break(client)
                continue
            daemon.settimeout(None)
            with self._lock:
                self._open[client] = self._open[daemon] = None
            self._start(self._pass_on, client, daemon, False)
            self._start(self._pass_on, daemon, client, True)

    def _pass_on(self, source: socket.socket, sink: socket.socket, counts: bool) -> None:
        try:
            while data := source.recv(65536):
                if counts and (kept := self._room(len(data))) is not None:
                    # Another connection's cut may have been quicker; this one counts all the same.
                    with suppress(OSError):
                        sink.sendall(data[:kept])
                    self.cut()
                    return
                sink.sendall(data)
        except OSError:
            pass
        with self._lock:
            held = [each for each in (source, sink) if self._open.pop(each, self) is None]
        for each in held:
            _break(each)

    def _room(self, count: int) -> int | None:
        """How many of so many bytes still pass before the next cut; None: all of them."""
        with self._lock:
            before, self._passed = self._passed, self._passed + count
            if not self._cuts_after or self._passed < self._cuts_after[0]:
                return None
            return max(0, self._cuts_after.pop(0) - before)


def _break(held: socket.socket) -> None:
    try:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, ABRUPT)
        held.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    held.close()
