"""The addresses that we understand: TCP ports of hosts, as multiaddrs have them.

People, peers and strangers say them; whether anybody is there is for the one who dials to find out.
"""

from __future__ import annotations

import re
import socket
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final

from pulsarcast.model.errors import LocalError
from pulsarcast.model.ids import PeerId, parse_peer
from pulsarcast.protocol.limits import ADDRESS_BYTES_MAX

FAMILIES: Final = {
    "ip4": socket.AF_INET,
    "ip6": socket.AF_INET6,
    "dns": socket.AF_UNSPEC,
    "dns4": socket.AF_INET,
    "dns6": socket.AF_INET6,
}

_NAME_MAX: Final = 253
_NAME: Final = re.compile(r"[!-~]+")
_DNS_NAME: Final = re.compile(r"[!-\-/-~]{1,63}(\.[!-\-/-~]{1,63})*\.?")
"""Labels that are neither empty nor long: all others are errors before anybody is asked."""


def parse_address(address: str, peer: PeerId | None) -> tuple[str, str, int]:
    """The parts of /ip4|ip6|dns|dns4|dns6/HOST/tcp/PORT[/p2p/PEER]."""
    match address.split("/"):
        case ["", kind, host, "tcp", port, *rest] if kind in FAMILIES and host:
            pass
        case _:
            raise LocalError(f"not an address such as /ip4/192.0.2.1/tcp/4001: {address!r}")
    match rest:
        case []:
            pass
        case ["p2p", named]:
            if peer is not None and parse_peer(named) != peer:
                raise LocalError(f"the address names another peer: {address!r}")
        case _:
            raise LocalError(f"not an address such as /ip4/192.0.2.1/tcp/4001: {address!r}")
    if not _is_host(kind, host):
        raise LocalError(f"not a host name: {address!r}")
    try:
        if kind == "ip4":
            IPv4Address(host)
        elif kind == "ip6":
            IPv6Address(host)
        number = int(port)
    except ValueError:
        raise LocalError(f"not an address such as /ip4/192.0.2.1/tcp/4001: {address!r}") from None
    if not (port.isascii() and port.isdigit() and number < 2**16):
        raise LocalError(f"not an address such as /ip4/192.0.2.1/tcp/4001: {address!r}")
    return kind, host, number


def check_address(address: str, peer: PeerId) -> None:
    """See to it that a peer could be dialled at an address; raises LocalError if not."""
    parse_address(address, peer)
    if len(address.encode()) > ADDRESS_BYTES_MAX:
        raise LocalError(f"an address of more than {ADDRESS_BYTES_MAX} bytes: {address!r}")


def is_dialable(address: str, peer: PeerId) -> bool:
    """Whether this node knows how to dial a peer at an address; a later version may know more."""
    try:
        check_address(address, peer)
    except LocalError:
        return False
    return not is_everywhere(address)


def is_everywhere(address: str) -> bool:
    """Whether this stands for all addresses of a machine: whoever dials it gets to itself."""
    kind, host, _ = parse_address(address, None)
    return kind in ("ip4", "ip6") and ip_address(host).is_unspecified


def host_of(address: str) -> str:
    """The host of an address: an IP address or a name."""
    return parse_address(address, None)[1]


def is_loopback(address: str) -> bool:
    """Whether an address leads to this machine alone."""
    kind, host, _ = parse_address(address, None)
    return kind in ("ip4", "ip6") and ip_address(host).is_loopback


def place_of(address: str) -> str:
    """The network prefix of an IP address: what one operator can be expected to have as a whole."""
    host = ip_address(host_of(address))
    return str(ip_network(f"{host}/{24 if host.version == 4 else 48}", strict=False))


def _is_host(kind: str, host: str) -> bool:
    """Whether sockets and resolvers take it as a name, be there such a host or not.

    Strangers say where others are to be dialled: nothing may come of it but a dial that fails.
    """
    if not kind.startswith("dns"):
        return _NAME.fullmatch(host) is not None
    return _DNS_NAME.fullmatch(host) is not None and len(host.removesuffix(".")) <= _NAME_MAX
