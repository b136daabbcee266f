"""A small internet of network namespaces: public networks, a router, NATs and firewalls (nftables).

Public networks are 10.1.0.0/16, 10.2.0.0/16 and so on, each with hosts of its own and the router
that joins them all. A NAT is a host of a public network with a network of its own behind it. All
addresses exist inside the namespaces of a `Lab` only.

    with Lab() as lab:
        internet = Internet(lab)
        open_host = internet.public("ann", network=1)
        home = internet.nat("home", network=2, kind=SYMMETRIC)
        hidden = home.host("ben")

`CONE` keeps the port that a host sends from, so every peer sees the same outside address.
`SYMMETRIC` draws another port for each connection. Both let in answers alone, from the address and
port that the host sent to.
"""

from __future__ import annotations

import shutil
from itertools import count
from typing import Final

import pytest

from tests.conftest import MISSING_NAMESPACES
from tests.support.namespaces import Host, Lab

CONE: Final = ""
SYMMETRIC: Final = "fully-random"

_KEEP_OUT: Final = """
table ip filter {
    chain inside {
        type filter hook forward priority 0; policy drop;
        ct state established,related accept
        ct status dnat accept
        iifname != "eth0" accept
    }
    chain machine {
        type filter hook input priority 0; policy drop;
        ct state established,related accept
        iifname != "eth0" accept
    }
}
"""
"""What a NAT or a firewall lets in from its first interface: answers, and forwarded ports."""
_TRANSLATE: Final = """
table ip nat {{
    chain forwarded {{
        type nat hook prerouting priority -100;
    }}
    chain outbound {{
        type nat hook postrouting priority 100;
        oifname "eth0" masquerade {kind}
    }}
}}
"""


def need_nat() -> None:
    """Skip the test where this machine has no `nft`."""
    if shutil.which("nft") is None:
        pytest.skip(f"{MISSING_NAMESPACES}: `nft` is not installed (Debian: nftables)")


class Internet:
    """Public networks of /16 each, and the router between them."""

    def __init__(self, lab: Lab) -> None:
        need_nat()
        self.lab = lab
        self._router = lab.host("router")
        _forward(self._router)
        self._networks: dict[int, Network] = {}

    def public(self, name: str, *, network: int = 1) -> Machine:
        """A host with a public address."""
        return self._network(network).host(name)

    def firewalled(self, name: str, *, network: int = 1) -> Machine:
        """A host with a public address of its own that lets in answers alone."""
        machine = self.public(name, network=network)
        _filter(machine.host, _KEEP_OUT)
        return machine

    def nat(self, name: str, *, network: int = 1, kind: str = CONE) -> Nat:
        """A NAT in a public network."""
        return Nat(self.lab, name, self._network(network), kind)

    def _network(self, number: int) -> Network:
        found = self._networks.get(number)
        if found is None:
            found = Network(self.lab, f"net{number}", f"10.{number}", 16, self._router)
            self._networks[number] = found
        return found


class Network:
    """A switch, its addresses and the host that leads out of it."""

    def __init__(self, lab: Lab, name: str, prefix: str, bits: int, way_out: Host) -> None:
        self._lab = lab
        self.prefix = prefix if bits == 24 else f"{prefix}.0"
        self._bits = bits
        self._numbers = count(2)
        self._switch = lab.switch(name)
        way_out.plug(self._switch, f"{self.prefix}.1/{bits}")

    def host(self, name: str) -> Machine:
        """A host with the next address."""
        machine = Machine(self._lab.host(name), self)
        machine.host.plug(self._switch)
        machine.move()
        return machine

    def next_address(self) -> tuple[str, int, str]:
        """An address that no host has had, the bits of its network, and its router."""
        return f"{self.prefix}.{next(self._numbers)}", self._bits, f"{self.prefix}.1"


class Machine:
    """A host with one address in a network."""

    def __init__(self, host: Host, network: Network) -> None:
        self.host = host
        self.address = ""
        self._network = network

    def move(self) -> None:
        """Take another address; the one before is gone."""
        if self.address:
            self.host.ip("addr", "flush", "dev", "eth0", "scope", "global")
        self.address, bits, router = self._network.next_address()
        self.host.ip("addr", "add", f"{self.address}/{bits}", "dev", "eth0")
        self.host.ip("route", "replace", "default", "via", router)


class Nat:
    """A network whose hosts have one outside address together."""

    def __init__(self, lab: Lab, name: str, outside: Network, kind: str) -> None:
        self._lab = lab
        self._name = name
        self.machine = outside.host(name)
        """The NAT itself; `move` gives it another outside address."""
        _forward(self.machine.host)
        _filter(self.machine.host, _KEEP_OUT + _TRANSLATE.format(kind=kind))
        # Homes have the same addresses inside; a NAT behind a NAT needs others than the outer one.
        inside = "192.168.2" if outside.prefix == "192.168.1" else "192.168.1"
        self._inside = Network(lab, f"{name}lan", inside, 24, self.machine.host)

    @property
    def address(self) -> str:
        """The outside address."""
        return self.machine.address

    def host(self, name: str) -> Machine:
        """A host behind the NAT."""
        return self._inside.host(name)

    def nat(self, name: str, *, kind: str = CONE) -> Nat:
        """A NAT behind the NAT."""
        return Nat(self._lab, name, self._inside, kind)

    def forward(self, port: int, to: Machine) -> None:
        """Lead a port of the outside address to a host behind the NAT."""
        rule = f"iifname eth0 tcp dport {port} dnat to {to.address}:{port}"
        _filter(self.machine.host, f"add rule ip nat forwarded {rule}")


def _forward(host: Host) -> None:
    """Let a host pass packets on."""
    host.run(["sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"])


def _filter(host: Host, rules: str) -> None:
    done = host.run(["nft", rules], check=False)
    if "not supported" in done.stderr:
        pytest.skip(f"{MISSING_NAMESPACES}: the kernel has no NAT: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
