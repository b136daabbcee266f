"""The first message on every stream, both ways: who speaks which protocol (design, 9).

Only the driver sees it; the core learns of a peer once the two have agreed.
"""

from msgspec import Struct

from pulsarcast.model.errors import Rejection, RemoteError
from pulsarcast.wire import pulsarcast_pb2 as pb
from pulsarcast.wire.codec import parse_frame, unknown_kind
from pulsarcast.wire.fields import check_count, read_addresses, read_integer, read_text, read_texts
from pulsarcast.wire.limits import (
    FEATURE_BYTES_MAX,
    FEATURES_MAX,
    FRAME_BYTES_MAX,
    INSTANCE_BYTES_MAX,
    NETWORK_BYTES_MAX,
    VERSIONS_MAX,
)


class Hello(Struct, frozen=True):
    """What a peer says of itself before anything else."""

    network: str
    """Peers of different networks part at once."""
    versions: tuple[int, ...]
    """Major versions of the protocol that it speaks."""
    features: tuple[str, ...] = ()
    """What it can do beyond them; names that we do not know are left alone."""
    frame_bytes_max: int = FRAME_BYTES_MAX
    """The largest frame that it takes."""
    addresses: tuple[str, ...] = ()
    """Where it can be dialled (multiaddrs)."""
    instance: bytes = b""
    """Drawn at every start: tells a second connection from a second life, or from a second node."""


def encode_hello(hello: Hello) -> bytes:
    """A Hello as one frame, without its length."""
    frame = pb.Frame(
        hello={
            "network": hello.network,
            "versions": hello.versions,
            "features": hello.features,
            "frame_bytes_max": hello.frame_bytes_max,
            "addresses": hello.addresses,
            "instance": hello.instance,
        }
    )
    return frame.SerializeToString()


def decode_hello(data: bytes) -> Hello:
    """The Hello of a stream's first frame; raises RemoteError where it holds none."""
    frame = parse_frame(data)
    kind = frame.WhichOneof("message")
    if kind is None:
        raise unknown_kind(data)
    if kind != "hello":
        raise RemoteError("a message where a Hello is due")
    given = frame.hello
    check_count(given.versions, VERSIONS_MAX, "versions")
    if not given.versions or not given.frame_bytes_max:
        raise RemoteError("a Hello without a version or without room for a frame")
    if len(given.instance) > INSTANCE_BYTES_MAX:
        raise RemoteError("a Hello with a long instance", code=Rejection.OVERSIZE)
    return Hello(
        read_text(given.network, NETWORK_BYTES_MAX, "network"),
        tuple(read_integer(version, "a version") for version in given.versions),
        read_texts(given.features, FEATURES_MAX, FEATURE_BYTES_MAX, "features"),
        read_integer(given.frame_bytes_max, "a frame limit"),
        read_addresses(given.addresses),
        given.instance,
    )
