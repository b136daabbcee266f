"""Machines and networks of their own on this one: Linux network namespaces (root, `ip`).

A `Lab` holds hosts and switches, each a namespace by itself, so that no address and no interface is
ever outside of one. A host has its own loopback and one interface for each switch that it is
plugged into. A router, a NAT or a firewall is a host that is plugged into two switches.

    with Lab() as lab:
        lan = lab.switch("lan")
        ann = lab.host("ann")
        ann.plug(lan, "10.1.0.1/16")
        ann.run(["ip", "addr"])

Namespaces are named after the process that made them. Each lab first removes those of processes
that are gone, with what still runs in them.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Final

import pytest

from tests.conftest import MISSING_NAMESPACES

_PREFIX: Final = "pulsarcast"
_NAME: Final = re.compile(rf"{_PREFIX}-(\d+)-\d+-\w+")
_NUMBERS: Final = count(1)
_CLONE_NEWNET: Final = 0x40000000
"""Linux' name for a network namespace; `os` has it from Python 3.12 on."""
_COMMAND_S_MAX: Final = 120.0
"""It only ends what hangs."""


def need_namespaces() -> None:
    """Skip the test where this machine lets it make no namespaces."""
    if os.geteuid() != 0:
        pytest.skip(f"{MISSING_NAMESPACES}: they need root")
    if shutil.which("ip") is None:
        pytest.skip(f"{MISSING_NAMESPACES}: `ip` is not installed (Debian: iproute2)")


class Lab:
    """Hosts and switches that live as long as a test."""

    def __init__(self) -> None:
        need_namespaces()
        remove_left_behind()
        self._id = f"{_PREFIX}-{os.getpid()}-{next(_NUMBERS)}"
        self._made: list[str] = []
        self._hosts: list[Host] = []

    def __enter__(self) -> Lab:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for name in reversed(self._made):
            _remove(name)
        for host in self._hosts:
            for process in host.started:
                process.wait()

    def switch(self, name: str) -> Switch:
        """A network that hosts can be plugged into."""
        switch = Switch(self._make(name))
        _ip("-n", switch.namespace, "link", "add", "switch", "type", "bridge")
        _ip("-n", switch.namespace, "link", "set", "switch", "up")
        return switch

    def host(self, name: str) -> Host:
        """A machine with nothing but its loopback."""
        host = Host(self._make(name))
        self._hosts.append(host)
        _ip("-n", host.namespace, "link", "set", "lo", "up")
        return host

    def _make(self, name: str) -> str:
        namespace = f"{self._id}-{name}"
        _ip("netns", "add", namespace)
        self._made.append(namespace)
        return namespace


class Switch:
    """A network: what one host says on it, the others hear."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self.ports = count(1)


class Host:
    """A machine."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self.started: list[subprocess.Popen[bytes]] = []
        self._interfaces = count()

    def plug(self, switch: Switch, *addresses: str) -> str:
        """Plug it into a switch, with addresses such as `10.1.0.1/16`; the interface's name."""
        name = f"eth{next(self._interfaces)}"
        port = f"port{next(switch.ports)}"
        # Both ends are made where they belong.
        _ip(
            *("-n", switch.namespace, "link", "add", port, "type", "veth"),
            *("peer", "name", name, "netns", self.namespace),
        )
        _ip("-n", switch.namespace, "link", "set", port, "master", "switch", "up")
        for address in addresses:
            # `nodad`: an IPv6 address that is looked for first is of no use for a second.
            more = ["nodad"] if ":" in address else []
            _ip("-n", self.namespace, "addr", "add", address, "dev", name, *more)
        _ip("-n", self.namespace, "link", "set", name, "up")
        return name

    def ip(self, *words: str) -> str:
        """Change or show its network with `ip`."""
        return _ip("-n", self.namespace, *words)

    def inside(self, command: Sequence[str]) -> list[str]:
        """The command that runs a command on this machine."""
        return ["ip", "netns", "exec", self.namespace, *command]

    def run(
        self, command: Sequence[str], *, env: Mapping[str, str] | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        done = subprocess.run(
            self.inside(command),
            env=env, capture_output=True, text=True, timeout=_COMMAND_S_MAX, check=False,
        )  # fmt: skip
        assert not check or done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done

    def start(
        self, command: Sequence[str], log: Path, *, env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a command that writes to a file; it ends with the lab at the latest."""
        with log.open("ab") as output:
            process = subprocess.Popen(
                self.inside(command),
                env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            )  # fmt: skip
        self.started.append(process)
        return process


@contextmanager
def entered(host: Host) -> Iterator[None]:
    """The sockets that this thread makes are a machine's.

    Processes are started with `inside`. No new thread may be made meanwhile: it would stay there,
    and Trio keeps its threads for others.
    """
    with Path("/proc/thread-self/ns/net").open("rb") as home:
        with Path("/run/netns", host.namespace).open("rb") as namespace:
            _enter(namespace.fileno())
        try:
            yield
        finally:
            _enter(home.fileno())


def _enter(namespace: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def remove_left_behind() -> None:
    """Remove the namespaces of processes that are gone: a test run that was killed leaves them."""
    for line in _ip("netns", "list").splitlines():
        name = line.split()[0]
        found = _NAME.fullmatch(name)
        if found is not None and not Path(f"/proc/{found[1]}").exists():
            _remove(name)


def _remove(name: str) -> None:
    """Remove a namespace, and what still runs in it, as far as it is there."""
    for number, wait_s in ((signal.SIGTERM, 10.0), (signal.SIGKILL, 5.0)):
        deadline_s = time.monotonic() + wait_s
        pids = _pids(name)
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        while pids and time.monotonic() < deadline_s:
            time.sleep(0.05)
            pids = _pids(name)
    with suppress(AssertionError):
        _ip("netns", "delete", name)


def _pids(name: str) -> list[int]:
    with suppress(AssertionError):
        # A process that has ended and that its parent has not asked about is no hindrance.
        return [pid for pid in map(int, _ip("netns", "pids", name).split()) if not _is_zombie(pid)]
    return []


def _is_zombie(pid: int) -> bool:
    try:
        return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return True


def _ip(*words: str) -> str:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"
    return done.stdout
