"""Hello, the first message on every stream, both ways: network and protocol versions of a peer.

docs/spec/wire.md. Only the driver sees it; the core learns of a peer once the two have agreed.
"""

from typing import Annotated, Final

from msgspec import Struct

from pulsarcast.model.reach import Reach
from pulsarcast.protocol import limits
from pulsarcast.protocol.fields import Addresses, Bound, Many, Newer, Number, Size
from pulsarcast.wire.codec import parse_frame, unknown_kind
from pulsarcast.wire.derive import derive
from pulsarcast.wire.refusing import refusal


class Hello(Struct, frozen=True):
    """The description of a peer that it sends before anything else."""

    network: Annotated[str, Size(0, limits.NETWORK_BYTES_MAX)]
    """Peers of different networks close the connection at once."""
    versions: Annotated[tuple[Number, ...], Many(limits.VERSIONS_MAX, low=1)]
    """Major versions of the protocol that the peer speaks."""
    features: Annotated[
        tuple[Annotated[str, Size(0, limits.FEATURE_BYTES_MAX)], ...], Many(limits.FEATURES_MAX)
    ] = ()
    """Abilities beyond them; unknown names are ignored."""
    frame_bytes_max: Annotated[int, Bound(1, limits.INTEGER_MAX)] = limits.FRAME_BYTES_MAX
    """The largest frame that the peer takes."""
    addresses: Addresses = ()
    """Addresses at which the peer can be dialled (multiaddrs)."""
    instance: Annotated[bytes, Size(0, limits.INSTANCE_BYTES_MAX)] = b""
    """Drawn at every start: tells a second connection from a restart, or from a second node."""
    reach: Annotated[Reach, Newer()] = Reach.UNKNOWN
    """Whether and how the peer can be dialled."""


_CODEC = derive(Hello, "hello")
HELLO_BYTES_MAX: Final = _CODEC.bounds.bytes_max
"""Bounds the first frame of a stream: a peer that has not said Hello fills no more."""


def encode_hello(hello: Hello) -> bytes:
    """A Hello as one frame, without its length."""
    return _CODEC.pack(hello).SerializeToString()


def decode_hello(data: bytes) -> Hello:
    """The Hello of a stream's first frame; raises RemoteError if it holds none."""
    frame = parse_frame(data)
    kind = frame.WhichOneof("message")
    if kind is None:
        raise unknown_kind(data)
    if kind != "hello":
        raise refusal("a message where a Hello is due")
    hello: Hello = _CODEC.read(frame.hello)
    return hello
