"""Proxies: one in front of each node, which lets what comes in arrive late (thesis, 4.2 and 5.4).

The thesis put Toxiproxy in front of every node and delayed each incoming packet by 500 ms, give or
take 300. So do these, in one process for all nodes: others know a node only by its proxy's address.
A node has an address of its own on the loopback network and dials from there, so a proxy knows who
is calling: latencies may differ by pair, and two groups may be cut off from each other. What is
said across a cut waits, as it does in TCP, and arrives when the cut is healed.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, NoReturn, TypeAlias

import msgspec

from pulsarcast.model.errors import LocalError
from pulsarcast.testbed.lifelines import end_with

INNER: Final = "127.1"
"""Where nodes are, by the first half of their addresses."""
OUTER: Final = "127.2"
"""Where their proxies are, which is where others find them."""
HELD_BYTES_MAX: Final = 4 << 20
"""What is on its way in one direction of one connection before its sender has to wait."""
NARROW_BYTES_MAX: Final = 64 << 10
"""The same where nodes have narrow lines: the queue of a modem."""
_ORDER_BYTES_MAX: Final = 64 << 20
"""A matrix for a thousand nodes is a long line."""
_STEP_S: Final = 1e-6
_CHUNK_BYTES: Final = 64 * 1024
_PORTS_TRIED: Final = 50


class Delay(msgspec.Struct, frozen=True):
    """How late what comes in arrives: each piece by itself, in the order in which it came."""

    base_ms: float = 0.0
    jitter_ms: float = 0.0
    """Give or take so much, evenly."""
    pairs_ms: list[list[float]] | None = None
    """One way, from each node to each: goes before `base_ms`, in both directions."""
    mbit_s: float = 0.0
    """What each node may send, and what it may receive, a second; 0: there is no bound."""

    def of(self, dialer: int | None, node: int, rng: random.Random) -> float:
        """For one piece of what a dialer says to a node, in seconds."""
        base_ms = self.base_ms
        if self.pairs_ms is not None and dialer is not None:
            base_ms = self.pairs_ms[dialer % len(self.pairs_ms)][node % len(self.pairs_ms)]
        late_ms = base_ms + rng.uniform(-self.jitter_ms, self.jitter_ms)
        return max(0.0, late_ms) / 1000

    def __str__(self) -> str:
        if self.pairs_ms is not None:
            return f"a matrix of {len(self.pairs_ms)} nodes"
        return f"{self.base_ms:g}ms~{self.jitter_ms:g}ms"


def parse_delay(text: str) -> Delay:
    """A delay as a command says it: `500ms`, or `500ms~300ms` with jitter."""
    base, _, jitter = text.partition("~")
    try:
        return Delay(_milliseconds(base), _milliseconds(jitter) if jitter else 0.0)
    except ValueError:
        raise LocalError(f"a latency looks like 500ms or 500ms~300ms, not {text!r}") from None


def _milliseconds(text: str) -> float:
    if not text.endswith("ms"):
        raise ValueError(text)
    value = float(text.removesuffix("ms"))
    if not 0 <= value < 1e6:
        raise ValueError(text)
    return value


class _Cut(msgspec.Struct, frozen=True, tag="cut"):
    """From now on the nodes of a group hear only each other."""

    group: list[int]


class _Heal(msgspec.Struct, frozen=True, tag="heal"):
    """All hear each other again."""


class _Slow(msgspec.Struct, frozen=True, tag="slow"):
    """From now on, what comes in arrives so late: at these nodes, or at all."""

    delay: Delay
    nodes: list[int] | None


_Order: TypeAlias = _Cut | _Heal | _Slow


def host_of(network: str, index: int) -> str:
    """A node's address on a network of the loopback."""
    return f"{network}.{index // 250}.{index % 250 + 1}"


class Proxies:
    """The process with all proxies, as the testbed knows it; use it as a context manager."""

    def __init__(self, size: int, delay: Delay, *, seed: int = 1) -> None:
        self._size = size
        self._delay = delay
        self._seed = seed
        self._pid = 0
        self._control: socket.socket | None = None
        self.port = 0

    def __enter__(self) -> Proxies:
        listeners = self._bind()
        ours, theirs = socket.socketpair()
        parent = os.getpid()
        self._pid = os.fork()
        if not self._pid:
            ours.close()
            _run(_Server(listeners, self.port, self._delay, self._seed), theirs, parent)
        theirs.close()
        for listener in listeners:
            listener.close()
        self._control = ours
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._control is not None:
            self._control.close()
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(self._pid, 0)

    def listen(self, index: int) -> str:
        """Where a node is to listen."""
        return f"/ip4/{host_of(INNER, index)}/tcp/{self.port}"

    def announce(self, index: int) -> str:
        """Where others find it."""
        return f"/ip4/{host_of(OUTER, index)}/tcp/{self.port}"

    def outer(self, address: str) -> str:
        """The proxy's address for a node's own."""
        return address.replace(f"/ip4/{INNER}.", f"/ip4/{OUTER}.", 1)

    def dial_from(self, index: int) -> str:
        """From where a node dials, so that it is known."""
        return host_of(INNER, index)

    def cut(self, group: Sequence[int]) -> None:
        """Cut a group of nodes off from all others."""
        self._order(_Cut(list(group)))

    def heal(self) -> None:
        """Undo it; what was said meanwhile arrives."""
        self._order(_Heal())

    def slow(self, delay: Delay, nodes: Sequence[int] | None = None) -> None:
        """Delay what comes in from now on, at some nodes or at all; what is on its way stays so."""
        self._order(_Slow(delay, None if nodes is None else list(nodes)))

    def cpu_s(self) -> float:
        """What the proxies have used: theirs, and no node's."""
        with open(f"/proc/{self._pid}/stat") as file:  # noqa: PTH123 (a file that is no file)
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _order(self, order: _Order) -> None:
        assert self._control is not None, "proxies are used as a context manager"
        self._control.sendall(msgspec.json.encode(order) + b"\n")

    def _bind(self) -> list[socket.socket]:
        """One port that is free at all addresses, of nodes and of proxies."""
        for _ in range(_PORTS_TRIED):
            opened: list[socket.socket] = []
            try:
                first = _listener(host_of(OUTER, 0), 0)
                opened.append(first)
                self.port = first.getsockname()[1]
                for index in range(1, self._size):
                    opened += [_listener(host_of(OUTER, index), self.port)]
                for index in range(self._size):
                    _listener(host_of(INNER, index), self.port).close()
            except OSError:
                for listener in opened:
                    listener.close()
                continue
            return opened
        raise LocalError("no port is free at all addresses of the loopback network")


def _listener(host: str, port: int) -> socket.socket:
    listener = socket.socket()
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(128)
    except BaseException:
        listener.close()
        raise
    return listener


# The process.


def _run(server: _Server, control: socket.socket, parent: int) -> NoReturn:
    code = 1
    try:
        end_with(parent)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        asyncio.run(server.run(control))
        code = 0
    finally:
        os._exit(code)


class _Server:
    """All proxies of a run."""

    def __init__(
        self, listeners: Sequence[socket.socket], port: int, delay: Delay, seed: int
    ) -> None:
        self._listeners = listeners
        self._port = port
        self._delay = delay
        self._delays: dict[int, Delay] = {}
        """Nodes that have one of their own."""
        self._rng = random.Random(f"proxies/{seed}")
        self._cut: frozenset[int] = frozenset()
        self._pipes: dict[_Pipe, None] = {}
        self._busy_until_s: dict[tuple[int, bool], float] = {}
        """Until when the line of a node carries what was sent already; True: towards it."""

    async def run(self, control: socket.socket) -> None:
        """Serve until the testbed is gone."""
        for index, listener in enumerate(self._listeners):
            await asyncio.start_server(self._serving(index), sock=listener)
        reader, _ = await asyncio.open_connection(sock=control, limit=_ORDER_BYTES_MAX)
        while line := await reader.readline():
            self._obey(msgspec.json.decode(line, type=_Cut | _Heal | _Slow))

    def _obey(self, order: _Order) -> None:
        match order:
            case _Slow(delay, None):
                self._delay = delay
                self._delays.clear()
            case _Slow(delay, list(nodes)):
                self._delays |= dict.fromkeys(nodes, delay)
            case _Cut(group):
                self._cut = frozenset(group)
            case _Heal():
                self._cut = frozenset()
        for pipe in list(self._pipes):
            pipe.wake()

    def _serving(self, node: int) -> Callable[..., Any]:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            dialer = _index_of(writer.get_extra_info("peername")[0])
            try:
                inner = await asyncio.open_connection(host_of(INNER, node), self._port)
            except OSError:
                # Nobody is there: the dialer is to see just that.
                writer.transport.abort()
                return
            if self._delay.mbit_s:
                for side in (writer, inner[1]):
                    ours = side.get_extra_info("socket")
                    ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, NARROW_BYTES_MAX)
            there = _Pipe(self, dialer, node, reader, inner[1], is_in=True)
            back = _Pipe(self, node, dialer, inner[0], writer, is_in=False)
            for pipe in (there, back):
                self._pipes[pipe] = None
            try:
                await asyncio.gather(there.run(), back.run())
            finally:
                for pipe in (there, back):
                    del self._pipes[pipe]
                for side in (writer, inner[1]):
                    side.transport.abort()

        return serve

    def is_cut(self, one: int | None, other: int | None) -> bool:
        """Whether two nodes cannot hear each other."""
        return (one in self._cut) != (other in self._cut)

    def late_s(self, source: int | None, target: int | None, *, is_in: bool) -> float:
        """How late a piece arrives: what comes in, and with a matrix what goes out as well."""
        if target is None:
            return 0.0
        delay = self._delays.get(target, self._delay)
        if not (is_in or delay.pairs_ms):
            return 0.0
        return delay.of(source, target, self._rng)

    def carried_s(self, source: int | None, target: int | None, size: int, now_s: float) -> float:
        """When the lines of two nodes have carried so many bytes, one line after the other."""
        rate = self._delay.mbit_s * 1e6 / 8
        if rate:
            for node, inwards in ((source, False), (target, True)):
                if node is not None:
                    line = (node, inwards)
                    now_s = max(now_s, self._busy_until_s.get(line, 0.0)) + size / rate
                    self._busy_until_s[line] = now_s
        return now_s

    @property
    def held_bytes_max(self) -> int:
        """What one pipe holds."""
        return NARROW_BYTES_MAX if self._delay.mbit_s else HELD_BYTES_MAX


class _Pipe:
    """One direction of one connection."""

    def __init__(
        self,
        server: _Server,
        source: int | None,
        target: int | None,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        is_in: bool,
    ) -> None:
        self._server = server
        self._source = source
        self._target = target
        self._reader = reader
        self._writer = writer
        self._is_in = is_in
        self._held: deque[tuple[float, bytes]] = deque()
        self._held_bytes = 0
        self._changed = asyncio.Event()
        self._room = asyncio.Event()
        self._ended = False

    async def run(self) -> None:
        """Hand on what comes until it ends, or one side breaks off."""
        await asyncio.gather(self._take(), self._give())

    def wake(self) -> None:
        """Look again: a cut was made or healed."""
        self._changed.set()

    async def _take(self) -> None:
        loop = asyncio.get_running_loop()
        due_s = 0.0
        with suppress(OSError):
            while data := await self._reader.read(_CHUNK_BYTES):
                late_s = self._server.late_s(self._source, self._target, is_in=self._is_in)
                # Never before what came earlier.
                server = self._server
                at_s = server.carried_s(self._source, self._target, len(data), loop.time())
                due_s = max(due_s + _STEP_S, at_s + late_s)
                self._held.append((due_s, data))
                self._held_bytes += len(data)
                self._changed.set()
                if self._held_bytes > self._server.held_bytes_max:
                    self._room.clear()
                    await self._room.wait()
        self._ended = True
        self._changed.set()

    async def _give(self) -> None:
        loop = asyncio.get_running_loop()
        writer = self._writer
        try:
            while True:
                if not self._held or self._server.is_cut(self._source, self._target):
                    if self._ended and not self._held:
                        break
                    self._changed.clear()
                    await self._changed.wait()
                    continue
                due_s, data = self._held[0]
                wait_s = due_s - loop.time()
                if wait_s > 0:
                    await asyncio.sleep(wait_s)
                    continue
                self._held.popleft()
                self._held_bytes -= len(data)
                self._room.set()
                writer.write(data)
                if writer.transport.get_write_buffer_size() > _CHUNK_BYTES:
                    await writer.drain()
            if writer.can_write_eof():
                writer.write_eof()
        except OSError:
            # The other side is gone: so is everything that was on its way there.
            self._held.clear()
            self._held_bytes = 0
            self._room.set()
            self._reader.feed_eof()


def _index_of(host: str) -> int | None:
    """The node that has an address; None for everybody else."""
    if not host.startswith(f"{INNER}."):
        return None
    _, _, high, low = host.split(".")
    return int(high) * 250 + int(low) - 1
