"""The daemon's life: from its settings to a node that programs can reach, until it is told to end.

It stays in the foreground and ends in good order on SIGTERM and SIGINT, also as process 1 of a
container.
"""

from __future__ import annotations

import errno
import ipaddress
import logging
import os
import signal
import socket
import ssl
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import trio
from hypercorn.config import Config

from pulsarcast.daemon.app import build
from pulsarcast.daemon.connection import HEAD_BYTES_MAX
from pulsarcast.daemon.metrics import Meters
from pulsarcast.daemon.service import Service
from pulsarcast.daemon.serving import serve
from pulsarcast.daemon.sessions import Sessions
from pulsarcast.daemon.settings import (
    CONFIG,
    Settings,
    Value,
    config_text,
    host_and_port,
    load_settings,
)
from pulsarcast.daemon.streams import forget_left, forget_nameless
from pulsarcast.daemon.tokens import TokenBook, operator_token
from pulsarcast.model.errors import Closed, LocalError
from pulsarcast.model.ids import peer_text
from pulsarcast.network.multiaddrs import parse_address
from pulsarcast.network.node import Node
from pulsarcast.storage.home import Home, check_not_in_use, write_whole

ADDRESS: Final = "http"
"""The file of the home that says where the daemon can be reached, while it runs."""
BACKLOG: Final = 256
PORTS_TRIED: Final = 16
"""Ports that a daemon tries from its default on, where other nodes of this machine have taken it.
A port that the operator chose is taken or refused: others may have been told of it."""
TRACES_S: Final = 30.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Running:
    """What is known once the daemon runs."""

    url: str
    peer: str
    addresses: tuple[str, ...]
    home: Path


@dataclass(frozen=True)
class Listener:
    """The socket for HTTP; bound before the node starts, so that a wrong setting fails plainly."""

    bound: socket.socket
    tls: ssl.SSLContext | None


def initialize(home: Path, values: dict[str, Value] | None = None) -> str:
    """Make a home: key, settings with explanations, and the operator's token; its peer id."""
    # What a daemon would refuse is not written down.
    wanted = load_settings(home, {}, values)
    if values and (home / CONFIG).exists():
        _refuse_others(home, wanted, values)
    try:
        settings = config_text(values).encode()
    except UnicodeEncodeError:
        raise LocalError("a setting is not UTF-8 text") from None
    with Home.open(home) as lived_in:
        peer = lived_in.identity.peer_id
        if not (home / CONFIG).exists():
            write_whole(home / CONFIG, settings)
        operator_token(home, TokenBook(home))
    return peer_text(peer)


def _refuse_others(home: Path, wanted: Settings, names: Iterable[str]) -> None:
    """Settings that are there are their operator's: whoever wants others changes them there."""
    there = load_settings(home, {})
    others = [name for name in names if wanted[name] != there[name]]
    if others:
        raise LocalError(
            f"{home / CONFIG} is there, and says something else of {', '.join(others)}: change it "
            "there"
        )


async def run(
    home: Path, settings: Settings, *, on_ready: Callable[[Running], None] | None = None
) -> None:
    """Be a daemon until somebody says that it is enough."""
    failure: LocalError | None = None
    check_not_in_use(home)  # It would hold the port as well, which would be the wrong advice.
    tls = _tls(settings)
    with listen(settings) as bound:
        async with trio.open_nursery() as nursery:
            shutdown = ShutdownRequest()
            await nursery.start(_wait_for_signals, shutdown)
            try:
                opened = _open(home, settings)
                with shutdown.start:
                    await live(opened, settings, Listener(bound, tls), shutdown, on_ready)
            except LocalError as error:
                failure = error  # Raised below: a nursery would wrap it.
            nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure
    _log.info("stopped")


class ShutdownRequest:
    """A request to shut down, which may come while the daemon still starts."""

    def __init__(self) -> None:
        self.start = trio.CancelScope()
        self.is_ready = False
        self.enough = trio.Event()

    def end(self) -> None:
        """End in good order, or give up starting."""
        self.enough.set()
        if not self.is_ready:
            self.start.cancel()


def _open(home: Path, settings: Settings) -> AbstractAsyncContextManager[Node]:
    return Node.open(
        home,
        listen=_free_listen(settings),
        announce=settings["node.announce"],
        bootstrap=settings["node.bootstrap"],
        mdns=settings["node.mdns"],
        network=settings["node.network"],
        trace_level=settings["trace.level"] or None,
    )


async def live(
    opened: AbstractAsyncContextManager[Node],
    settings: Settings,
    listener: Listener,
    shutdown: ShutdownRequest,
    on_ready: Callable[[Running], None] | None,
) -> None:
    """Start a node and serve its API until the shutdown is requested."""
    meters = Meters()
    async with opened as node:
        # One that was killed left it behind.
        (node.home / ADDRESS).unlink(missing_ok=True)
        await forget_nameless(node)
        tokens = TokenBook(node.home)
        operator_token(node.home, tokens)
        service = Service(node, settings, tokens, Sessions(node.peer_id))
        meters.watch(service)
        shutdown.is_ready = True
        await _serve(service, meters, listener, shutdown.enough, on_ready)


async def _serve(
    service: Service,
    meters: Meters,
    listener: Listener,
    enough: trio.Event,
    on_ready: Callable[[Running], None] | None,
) -> None:
    settings, node = service.settings, service.node
    gate = build(service, meters)
    address = _address_of(listener.bound)
    gate.admit(address, settings["http.hosts"])
    service.url = f"{'http' if listener.tls is None else 'https'}://{address}"
    async with trio.open_nursery() as nursery:
        http_is_over = trio.Event()

        async def serve_http(task_status: Any) -> None:
            await serve(
                gate,
                _config(),
                trio.socket.from_stdlib_socket(listener.bound),
                tls=listener.tls,
                slow_s=settings["http.slow_reader_s"],
                cut=service.cut_off,
                enough=enough,
                task_status=task_status,
            )
            http_is_over.set()

        await nursery.start(serve_http)
        nursery.start_soon(forget_left, node)
        nursery.start_soon(_bound_traces, node.home / "traces", settings["trace.bytes_max"])
        place = node.home / ADDRESS
        write_whole(place, f"{service.url}\n".encode())
        try:
            _log.info("node %s at %s", node.peer_id, ", ".join(node.addresses) or "no address")
            _log.info("HTTP at %s", service.url)
            if on_ready is not None:
                on_ready(Running(service.url, node.peer_id, node.addresses, node.home))
            await enough.wait()
        finally:
            service.stopping = True
            with suppress(FileNotFoundError):
                place.unlink()
        # Whoever still listens hears why; then the server may end.
        service.insight.close_readers(Closed("the daemon stops").refusal)
        await http_is_over.wait()
        nursery.cancel_scope.cancel()


async def _wait_for_signals(
    shutdown: ShutdownRequest, task_status: Any = trio.TASK_STATUS_IGNORED
) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        task_status.started()
        async for number in signals:
            _log.info("stopping (%s)", signal.Signals(number).name)
            if shutdown.enough.is_set():
                os._exit(1)  # asked twice: whoever waits has no patience left
            shutdown.end()


async def _bound_traces(folder: Path, bytes_max: int) -> None:
    """Delete the oldest traces beyond the limit, now and then."""
    while True:
        _delete_oldest(folder, bytes_max)
        await trio.sleep(TRACES_S)


def _delete_oldest(folder: Path, bytes_max: int) -> None:
    found: list[tuple[float, int, Path]] = []
    for path in folder.glob("*.zst"):
        with suppress(OSError):  # Somebody else may clear up, too.
            status = path.stat()
            found.append((status.st_mtime, status.st_size, path))
    kept = 0
    for _, size, path in sorted(found, reverse=True):
        kept += size
        if kept > bytes_max:
            with suppress(OSError):
                path.unlink()


# The socket.


def listen(settings: Settings) -> socket.socket:
    """Take the address for HTTP; raises LocalError with what to do where that cannot be."""
    host, port = host_and_port(settings["http.address"])
    is_safe = settings["http.tls_certificate"] or settings["http.behind_proxy"]
    if not is_safe and not _is_loopback(host):
        raise LocalError(
            f"http.address {settings['http.address']} can be reached by others: set "
            "http.tls_certificate and http.tls_key, or --behind-proxy if a proxy of yours does TLS"
        )
    for tried in _ports(settings, "http.address", port):
        try:
            return _listen_at(host, tried)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise LocalError(
                    f"http.address {host}:{port}: {error.strerror or error}"
                ) from error
    raise LocalError(
        f"{host}:{port} is taken by another program: take another port, such as "
        f"--http {host}:{port + 1}"
    )


def _ports(settings: Settings, name: str, port: int) -> range:
    """The ports to try: one that the operator chose, or some where it is the default."""
    return range(port, port + (PORTS_TRIED if settings.origin(name) == "default" else 1))


def _listen_at(host: str, port: int) -> socket.socket:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, address = found[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


def _free_listen(settings: Settings) -> list[str]:
    """Addresses to listen at for peers: the default ones at the first port that is free."""
    addresses: list[str] = settings["node.listen"]
    _, _, port = parse_address(addresses[0], None) if addresses else ("", "", 0)
    for tried in _ports(settings, "node.listen", port)[:-1]:
        try:
            _listen_at("0.0.0.0", tried).close()
        except OSError:
            continue
        return [each.replace(f"/tcp/{port}", f"/tcp/{tried}") for each in addresses]
    return addresses


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _address_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    # Where we listen everywhere, this is how programs on this machine reach us.
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _config() -> Config:
    config = Config()
    config.accesslog = None
    config.errorlog = logging.getLogger("hypercorn.error")
    config.include_server_header = False
    config.keep_alive_timeout = 75
    config.h11_max_incomplete_size = HEAD_BYTES_MAX - 1  # a head of so many is refused unfinished
    config.websocket_max_message_size = 64 * 1024
    config.websocket_ping_interval = 20
    return config


def _tls(settings: Settings) -> ssl.SSLContext | None:
    certificate, key = settings["http.tls_certificate"], settings["http.tls_key"]
    if not certificate:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise LocalError(
            f"{certificate} and {key} are not a certificate and its key: {error}"
        ) from error
    return context
