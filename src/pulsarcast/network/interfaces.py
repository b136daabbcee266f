"""The addresses of this machine, and which of them a node announces.

A node that listens on `0.0.0.0` or `::` announces the addresses of the interfaces, since a peer
that dialled `0.0.0.0` would reach itself. A loopback address leads only programs of this machine
here, so it is announced only where there is nothing else (docs/decisions/0038).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_interface
from typing import Final, NamedTuple, TypeAlias

import ifaddr

from pulsarcast.network.multiaddrs import is_everywhere, parse_address
from pulsarcast.protocol.limits import ADDRESSES_MAX

INTERFACES_S: Final = 5.0
"""Time between two looks at the interfaces: a laptop that changes its network is announced within
seconds, and a look takes a millisecond or two."""

IpAddress: TypeAlias = IPv4Address | IPv6Address

_INSIDE: Final = re.compile(r"(docker|podman|virbr|cni|lxcbr|lxdbr|veth)|br-[0-9a-f]{12}$")
"""Interfaces to containers and virtual machines of this machine. Other machines have the same
addresses for their own, so they would dial themselves."""

_REACHABLE, _NEARBY, _LOOPBACK = range(3)


class Interface(NamedTuple):
    """One address of one interface."""

    name: str
    ip: IpAddress
    bits: int | None = None
    """The length of its network's prefix; None: no other address is in its network."""

    def is_beside(self, ip: IpAddress) -> bool:
        """Whether an address is in the network of this one."""
        network = f"{self.ip}/{self.ip.max_prefixlen if self.bits is None else self.bits}"
        return ip.version == self.ip.version and ip in ip_interface(network).network


def find_interfaces() -> tuple[Interface, ...]:
    """All addresses of this machine now."""
    found: list[Interface] = []
    for adapter in ifaddr.get_adapters():
        for each in adapter.ips:
            text = each.ip if isinstance(each.ip, str) else each.ip[0]
            ip = ip_address(text.partition("%")[0])
            found.append(Interface(adapter.name, ip, each.network_prefix))
    return tuple(found)


def is_near(host: str, interfaces: Iterable[Interface]) -> bool:
    """Whether an IP address is on this machine, or in a network that the machine is plugged into.

    A peer there reaches what peers elsewhere do not.
    """
    ip = ip_address(host)
    return ip.is_loopback or any(each.is_beside(ip) for each in interfaces)


def to_announce(bound: Sequence[str], interfaces: Iterable[Interface]) -> tuple[str, ...]:
    """The addresses that lead peers to a node which listens at `bound`: the best kind there is."""
    machine = tuple(interfaces)
    ranked: dict[str, int] = {}
    for address in bound:
        kind, host, port = parse_address(address, None)
        if not is_everywhere(address):
            ranked[address] = _LOOPBACK if ip_address(host).is_loopback else _REACHABLE
            continue
        for interface in machine:
            rank = _rank(interface)
            if rank is not None and f"ip{interface.ip.version}" == kind:
                ranked[f"/{kind}/{interface.ip}/tcp/{port}"] = rank
    best = min(ranked.values(), default=_LOOPBACK)
    return tuple(address for address, rank in ranked.items() if rank == best)[:ADDRESSES_MAX]


def _rank(interface: Interface) -> int | None:
    """How far an address leads; None: only with the name of an interface of the dialler."""
    ip = interface.ip
    if ip.is_loopback:
        return _LOOPBACK
    if ip.is_link_local:
        return _NEARBY if ip.version == 4 else None
    return _NEARBY if _INSIDE.match(interface.name) else _REACHABLE
