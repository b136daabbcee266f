"""Circuits: connections that run over streams of a relay (libp2p specification, relay/circuit-v2).

A peer asks a relay on a stream of `HOP` to reserve a place, or to connect it to a peer that has
one; the relay asks that peer on a stream of `STOP`. Once both have agreed, the two streams are one
pipe, and the peers shake hands through it as on a socket: the relay sees sealed bytes only.

At its two ends the pipe is a pair of local sockets (docs/decisions/0041): the Link has one, and
`carry` copies between the other one and the stream.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from contextlib import suppress
from typing import Final, NamedTuple, TypeVar

import trio
from google.protobuf.message import Message

from pulsarcast.model.errors import LocalError, Rejection, RemoteError
from pulsarcast.model.identity import Identity, has_signed
from pulsarcast.model.ids import PeerId, check_peer_id, peer_text
from pulsarcast.network.multiaddrs import address_bytes, relay_of
from pulsarcast.network.streams import Stream
from pulsarcast.wire.framing import write_frames
from pulsarcast.wire.libp2p import parse
from pulsarcast.wire.libp2p_pb2 import Envelope, Voucher

HOP: Final = "/libp2p/circuit/relay/0.2.0/hop"
"""From a client to its relay."""
STOP: Final = "/libp2p/circuit/relay/0.2.0/stop"
"""From a relay to the client that is dialled."""
MESSAGE_BYTES_MAX: Final = 4096
"""Bounds a message of the two protocols, as go-libp2p bounds it."""
CIRCUITS_PER_PEER_MAX: Final = 24
"""Circuits over one connection to a relay. A peer may open 32 streams on a connection, and needs
some of them for other services."""
PIECE_BYTES_MAX: Final = 16 * 1024
"""What one step of a copy takes: small, so that many circuits take turns."""
SOCKET_BYTES: Final = 64 * 1024
"""What the kernel may keep between a Link and its stream, each way: as much as a stream keeps."""

_DOMAIN: Final = b"libp2p-relay-rsvp"
_VOUCHER_TYPE: Final = b"\x03\x02"
_KEY_HASH_BYTES: Final = 2
"""What a peer id has before the public key in its protobuf form."""

_Message = TypeVar("_Message", bound=Message)


class Pipe(NamedTuple):
    """The two ends of a pair of local sockets."""

    near: socket.socket
    """For the Link."""
    far: socket.socket
    """For `carry`."""

    @classmethod
    def open(cls) -> Pipe:
        """Make a pair; raises OSError where the process has no file descriptors left."""
        pair = cls(*socket.socketpair())
        for end in pair:
            end.setblocking(False)
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BYTES)
        return pair


async def carry(stream: Stream, far: socket.socket) -> None:
    """Copy both ways between a stream and a socket until one of them ends; both end then.

    What the Link wrote before it closed its end still leaves.
    """
    carrier = stream.link
    carrier.circuits += 1
    pipe = trio.SocketStream(trio.socket.from_stdlib_socket(far))
    try:
        async with pipe, trio.open_nursery() as nursery:

            async def outbound() -> None:
                with suppress(RemoteError, trio.BrokenResourceError):
                    while data := await pipe.receive_some(PIECE_BYTES_MAX):
                        await stream.write(data)
                nursery.cancel_scope.cancel()

            nursery.start_soon(outbound)
            try:
                while data := await stream.receive(PIECE_BYTES_MAX):
                    await pipe.send_all(data)
                nursery.cancel_scope.cancel()
            except RemoteError:
                nursery.cancel_scope.cancel()
            except trio.BrokenResourceError:
                pass  # The Link is closed; its last words may still be on their way.
    finally:
        carrier.circuits -= 1


async def say(stream: Stream, message: Message) -> None:
    """Send a message behind its length."""
    await stream.write(write_frames([message.SerializeToString()]))


async def hear(stream: Stream, kind: type[_Message]) -> _Message:
    """Read a message; RemoteError where it is too long or none of this kind."""
    return parse(kind, await stream.read_message(MESSAGE_BYTES_MAX))


def peer_in(data: bytes) -> PeerId:
    """The peer that a message names; RemoteError where it names none that we understand."""
    return check_peer_id(data)


def binary_addresses(relay: PeerId, addresses: Iterable[str]) -> list[bytes]:
    """A relay's addresses as a reservation holds them: with its peer id behind each."""
    found: list[bytes] = []
    for address in addresses:
        with suppress(LocalError):
            if relay_of(address) is None:
                direct = address.partition("/p2p/")[0]
                found.append(address_bytes(f"{direct}/p2p/{peer_text(relay)}"))
    return found


def seal_voucher(identity: Identity, peer: PeerId, expire: int) -> bytes:
    """The relay's signed word that a peer has a reservation until a Unix time."""
    voucher = Voucher(relay=identity.peer_id, peer=peer, expiration=expire).SerializeToString()
    return Envelope(
        public_key=identity.peer_id[_KEY_HASH_BYTES:],
        payload_type=_VOUCHER_TYPE,
        payload=voucher,
        signature=identity.sign_bytes(_signed(voucher)),
    ).SerializeToString()


def check_voucher(data: bytes, relay: PeerId, peer: PeerId) -> int:
    """The Unix time until which this relay says that this peer has a reservation.

    RemoteError where the voucher is another's, or its relay did not sign it.
    """
    envelope = parse(Envelope, data)
    if not has_signed(relay, _signed(envelope.payload), envelope.signature):
        raise RemoteError("a voucher that its relay did not sign", code=Rejection.BAD_SIGNATURE)
    voucher = parse(Voucher, envelope.payload)
    if (voucher.relay, voucher.peer, envelope.payload_type) != (relay, peer, _VOUCHER_TYPE):
        raise RemoteError("a voucher of another reservation", code=Rejection.BAD_SIGNATURE)
    return voucher.expiration


def _signed(payload: bytes) -> bytes:
    """What an envelope's signature covers (libp2p RFC 0002): each part behind its length."""
    return write_frames((_DOMAIN, _VOUCHER_TYPE, payload))
