"""Dial-backs: dialling a peer so that it learns whether others can dial it (docs/spec/reach.md).

A dial-back is a new connection from a port of its own to the IP address that the peer's connection
comes from, at the ports that the peer told. No other host is dialled: a peer cannot use the node to
scan or to flood a third one. The connection ends when the peer has proved who it is, before Hello,
so neither side takes it for a connection to a neighbour.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pulsarcast.model.errors import LocalError
from pulsarcast.network.host import DialError, Host
from pulsarcast.network.link import Link
from pulsarcast.network.multiaddrs import host_of, parse_address, relay_of

DIAL_BACK_S_MAX: Final = 5.0
"""For all ports together: a handshake around the world, and one packet that is lost. A NAT drops
the dial without a word, so this is how long a private node waits for its first report."""
PORTS_MAX: Final = 3
"""Ports of a peer that are tried: it listens at one, or at one for each kind of address."""


def ways_back(remote_address: str, told: Iterable[str]) -> tuple[str, ...]:
    """Where to dial a peer back: at the ports that it told, and no host but its own."""
    host = host_of(remote_address)
    kind = "ip6" if ":" in host else "ip4"
    ports: dict[int, None] = {}
    for address in told:
        try:
            if relay_of(address) is not None:
                continue  # That is where the relay listens.
            ports[parse_address(address, None)[2]] = None
        except LocalError:
            continue  # Of a kind that this node does not know.
    return tuple(f"/{kind}/{host}/tcp/{port}" for port in tuple(ports)[:PORTS_MAX] if port)


async def dial_back(host: Host, link: Link, told: Iterable[str]) -> str:
    """The address at which the peer of a connection proved itself again; empty where it did not."""
    try:
        dialled = await host.dial(
            link.peer, ways_back(link.remote_address, told), s_max=DIAL_BACK_S_MAX
        )
    except DialError:
        return ""
    dialled.close()
    return dialled.reached_at or ""
