"""The addresses that a node dials: TCP ports of hosts and of relays, as multiaddrs have them.

    /ip4|ip6|dns|dns4|dns6/HOST/tcp/PORT[/p2p/PEER]
    /ip4|ip6|dns|dns4|dns6/HOST/tcp/PORT/p2p/RELAY/p2p-circuit[/p2p/PEER]

People, peers and strangers say them; whether anybody is there is for the one who dials to find out.
The host of a relayed address is its relay's. libp2p's own messages hold addresses in binary
(multiaddr specification): `address_bytes` and `address_text`.
"""

from __future__ import annotations

import enum
import re
import socket
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final, NamedTuple

from pulsarcast.model.errors import LocalError, RemoteError
from pulsarcast.model.ids import PeerId, check_peer_id, parse_peer, peer_text
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

SCOPES_MAX: Final = 4096
"""Bounds the addresses whose scope is remembered: those of heartbeats come again and again."""
_PRIVATE: Final = tuple(
    map(
        ip_network,
        (
            "10.0.0.0/8",
            "172.16.0.0/12",
            "192.168.0.0/16",
            "169.254.0.0/16",
            "fc00::/7",
            "fe80::/10",
        ),
    )
)

_CIRCUIT: Final = "/p2p-circuit"
_CODES: Final = {
    "ip4": 4,
    "tcp": 6,
    "ip6": 41,
    "dns": 53,
    "dns4": 54,
    "dns6": 55,
    "p2p-circuit": 290,
    "p2p": 421,
}
_NAMES: Final = {code: name for name, code in _CODES.items()}
_SIZES: Final = {"ip4": 4, "tcp": 2, "ip6": 16, "p2p-circuit": 0}
"""All others have their length in front."""


class Relay(NamedTuple):
    """The relay of a relayed address."""

    peer: PeerId
    address: str
    """Where the relay itself is dialled."""


def relay_of(address: str, peer: PeerId | None = None) -> Relay | None:
    """The relay that an address of this peer leads through; None where it is a direct one."""
    if _CIRCUIT not in address:
        return None
    direct, _, rest = address.partition(_CIRCUIT)
    direct, separator, relay = direct.rpartition("/p2p/")
    if not separator or "/" in relay:
        raise LocalError(f"a relayed address that names no relay: {address!r}")
    match rest.split("/"):
        case [""]:
            pass
        case ["", "p2p", named]:
            if peer is not None and parse_peer(named) != peer:
                raise LocalError(f"the address names another peer: {address!r}")
        case _:
            raise LocalError(f"not an address through one relay: {address!r}")
    return Relay(parse_peer(relay), direct)


def relayed_address(relay: Relay) -> str:
    """Where a peer is dialled that has a reservation at a relay."""
    return f"{relay.address}/p2p/{peer_text(relay.peer)}{_CIRCUIT}"


def parse_address(address: str, peer: PeerId | None) -> tuple[str, str, int]:
    """The kind of host, the host and the port of an address; of a relayed one, the relay's."""
    relay = relay_of(address, peer)
    if relay is not None:
        address, peer = relay.address, relay.peer
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


class Scope(enum.IntEnum):
    """From where an address leads to the same machine."""

    MACHINE = 0
    NETWORK = 1
    """A private network, or a link."""
    WORLD = 2
    """Also of names, and of texts that are no addresses: nothing answers there."""


@lru_cache(SCOPES_MAX)
def scope_of(address: str) -> Scope:
    """From where an address leads to the same machine; of a relayed one, to its relay."""
    try:
        ip = ip_address(host_of(address).partition("%")[0])
    except (LocalError, RemoteError, ValueError):
        return Scope.WORLD
    if ip.is_loopback or ip.is_unspecified:
        return Scope.MACHINE
    is_private = any(ip in network for network in _PRIVATE if network.version == ip.version)
    return Scope.NETWORK if is_private else Scope.WORLD


def place_of(address: str) -> str:
    """The network prefix of an IP address: what one operator can be expected to have as a whole."""
    return place_of_host(host_of(address))


def place_of_host(host_text: str) -> str:
    """The same of a socket's address; none for a socket that has ended."""
    if not host_text:
        return ""
    host = ip_address(host_text.partition("%")[0])
    return str(ip_network(f"{host}/{24 if host.version == 4 else 48}", strict=False))


def _is_host(kind: str, host: str) -> bool:
    """Whether sockets and resolvers take it as a name, be there such a host or not.

    Strangers say where others are to be dialled: nothing may come of it but a dial that fails.
    """
    if not kind.startswith("dns"):
        return _NAME.fullmatch(host) is not None
    return _DNS_NAME.fullmatch(host) is not None and len(host.removesuffix(".")) <= _NAME_MAX


def address_bytes(address: str) -> bytes:
    """An address in binary, as libp2p's own messages hold it; LocalError where it is none."""
    parse_address(address, None)
    pieces: list[bytes] = []
    parts = iter(address.split("/")[1:])
    for name in parts:
        pieces.append(_varint(_CODES[name]))
        if name == "tcp":
            pieces.append(int(next(parts)).to_bytes(2, "big"))
        elif name in ("ip4", "ip6"):
            pieces.append(ip_address(next(parts).partition("%")[0]).packed)
        elif name != "p2p-circuit":
            value = next(parts)
            octets = parse_peer(value) if name == "p2p" else value.encode()
            pieces += [_varint(len(octets)), octets]
    return b"".join(pieces)


def address_text(data: bytes) -> str | None:
    """A binary address that came, as text; None where it is of no kind that we understand."""
    text = ""
    at = 0
    try:
        while at < len(data):
            code, at = _read_varint(data, at)
            name = _NAMES[code]
            size = _SIZES.get(name)
            if size is None:
                size, at = _read_varint(data, at)
            value = data[at : at + size]
            at += size
            if at > len(data):
                return None
            text += f"/{name}{_value_text(name, value)}"
        parse_address(text, None)
    except (RemoteError, LocalError, ValueError, KeyError):
        return None
    return text if len(text.encode()) <= ADDRESS_BYTES_MAX else None


def _value_text(name: str, value: bytes) -> str:
    """What stands behind the name of a part."""
    if name == "p2p-circuit":
        return ""
    if name == "tcp":
        return f"/{int.from_bytes(value, 'big')}"
    if name in ("ip4", "ip6"):
        return f"/{ip_address(value)}"
    return "/" + (peer_text(check_peer_id(value)) if name == "p2p" else value.decode())


def _varint(number: int) -> bytes:
    """A number in as few groups of seven bits as it needs, the lowest first."""
    octets = bytearray()
    while number >= 0x80:
        octets.append(number & 0x7F | 0x80)
        number >>= 7
    octets.append(number)
    return bytes(octets)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """The number that begins here, and where the next thing begins; codes and lengths are short."""
    number = 0
    for place, octet in enumerate(data[at : at + 3]):
        number |= (octet & 0x7F) << 7 * place
        if octet < 0x80:
            return number, at + place + 1
    raise ValueError("a number that does not end")
