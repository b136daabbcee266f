"""identify (/ipfs/id/1.0.0): where a peer listens, what it speaks, and where it sees the asker.

A peer opens a stream, and the other one describes itself in one message (libp2p specification,
identify). Other implementations ask on every connection, before they use it. A node of Pulsarcast
needs none of it from its own kind, whose Hello says more, but for one thing: the address that its
connection comes from, as seen at the other end. A NAT has put its own there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import trio

import pulsarcast
from pulsarcast.model.errors import LocalError, Rejection, RemoteError
from pulsarcast.model.ids import PeerId
from pulsarcast.network.link import PROTOCOL as FRAMES
from pulsarcast.network.link import Link
from pulsarcast.network.multiaddrs import address_bytes, address_text, relay_of
from pulsarcast.network.streams import Stream
from pulsarcast.protocol.limits import ADDRESSES_MAX
from pulsarcast.wire.framing import write_frames
from pulsarcast.wire.libp2p import parse
from pulsarcast.wire.libp2p_pb2 import Identify

PROTOCOL: Final = "/ipfs/id/1.0.0"
AGENT: Final = f"pulsarcast/{pulsarcast.__version__}"
FAMILY: Final = "pulsarcast/2"
"""The family of protocols: for people and statistics."""
MESSAGE_BYTES_MAX: Final = 8 * 1024
"""As go-libp2p and js-libp2p bound it."""
PROTOCOLS_MAX: Final = 128
"""Protocols that are read of one peer: four times as many as go-libp2p's own."""
STREAMS_MAX: Final = 2
"""A peer asks once; an answer may still be under way when it asks again."""
ANSWER_S_MAX: Final = 10.0

_KEY_HASH_BYTES: Final = 2
"""What a peer id has before the public key in its protobuf form."""


class Identified(NamedTuple):
    """What a peer says of itself. Nothing of it is proved."""

    agent: str
    """Its program."""
    protocols: tuple[str, ...]
    """What streams may be opened for."""
    addresses: tuple[str, ...]
    """Where it listens, of the kinds that we understand."""
    observed: str | None
    """Where it sees us, if that is of a kind that we understand."""


def describe(link: Link, me: PeerId, addresses: Iterable[str], protocols: Iterable[str]) -> bytes:
    """What a node says of itself to the peer at the other end."""
    return Identify(
        publicKey=me[_KEY_HASH_BYTES:],
        listenAddrs=_binary(addresses),
        protocols=[FRAMES, *protocols],
        observedAddr=b"".join(_binary([link.remote_address])),
        protocolVersion=FAMILY,
        agentVersion=AGENT,
    ).SerializeToString()


async def answer(
    stream: Stream, me: PeerId, addresses: Iterable[str], protocols: Iterable[str]
) -> None:
    """Describe the node to a peer that asks."""
    await stream.write(write_frames([describe(stream.link, me, addresses, protocols)]))


async def ask(link: Link) -> Identified:
    """Have the peer describe itself; RemoteError where it does not, or not as the rules say."""
    with trio.move_on_after(ANSWER_S_MAX), await link.open_stream(PROTOCOL) as stream:
        stream.close()
        return read(link.peer, await stream.read_message(MESSAGE_BYTES_MAX))
    raise RemoteError("does not say who it is", code=Rejection.DISCONNECTED)


def read(peer: PeerId, data: bytes) -> Identified:
    """What this peer's message says; RemoteError where it speaks of another peer."""
    said = parse(Identify, data)
    if said.HasField("publicKey") and said.publicKey != peer[_KEY_HASH_BYTES:]:
        raise RemoteError("describes itself with another key", code=Rejection.BAD_SIGNATURE)
    found = (address_text(each) for each in said.listenAddrs[:ADDRESSES_MAX])
    return Identified(
        agent=said.agentVersion,
        protocols=tuple(said.protocols[:PROTOCOLS_MAX]),
        addresses=tuple(each for each in found if each is not None),
        observed=_socket(address_text(said.observedAddr)),
    )


def _socket(address: str | None) -> str | None:
    """A direct address without its peer: js-libp2p says the one that it dialled, peer and all."""
    if address is None or relay_of(address) is not None:
        return address
    return address.partition("/p2p/")[0]


def _binary(addresses: Iterable[str]) -> Sequence[bytes]:
    """Addresses as libp2p's messages hold them, without those that have no such form."""
    found: list[bytes] = []
    for address in addresses:
        try:
            found.append(address_bytes(address))
        except LocalError:
            continue
    return found
