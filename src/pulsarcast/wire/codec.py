"""Codec: turns messages into bytes and back, and checks everything that a peer sends.

docs/spec/wire.md; thesis, 3.4.

A decoded message has the shape that its type promises and passes the checks of every field. The
core checks later what blocks hold.
"""

from collections.abc import Callable
from typing import Any, Final

from google.protobuf.message import DecodeError

from pulsarcast.model.errors import LocalError, Rejection, RemoteError, Verdict
from pulsarcast.protocol import messages
from pulsarcast.protocol.content import messages as routed
from pulsarcast.protocol.limits import FRAME_BYTES_MAX
from pulsarcast.protocol.messages import Message
from pulsarcast.protocol.sequencing import messages as talk
from pulsarcast.wire import probes
from pulsarcast.wire import pulsarcast_pb2 as pb
from pulsarcast.wire.bounds import SMALL_BYTES, UNKNOWN_BYTES_MAX, Bounds, kind_of, measure
from pulsarcast.wire.derive import Codec, derive
from pulsarcast.wire.refusing import refusal

KINDS: Final[dict[str, type]] = {
    "event": messages.EventMessage,
    "credit": messages.Credit,
    "request_to_publish": messages.RequestToPublish,
    "request_answered": messages.RequestAnswered,
    "request_referred": messages.RequestReferred,
    "join": messages.Join,
    "join_accepted": messages.JoinAccepted,
    "join_referred": messages.JoinReferred,
    "join_refused": messages.JoinRefused,
    "leave": messages.Leave,
    "hand_over": messages.HandOver,
    "meet": messages.Meet,
    "members": messages.Members,
    "status": messages.Status,
    "compare_frontiers": messages.CompareFrontiers,
    "frontier_page": messages.FrontierPage,
    "fetch_start": messages.FetchStart,
    "start_parts": messages.StartParts,
    "fetch_range": messages.FetchRange,
    "range": messages.Range,
    "find_peers": messages.FindPeers,
    "peers": messages.Peers,
    "find_block": messages.FindBlock,
    "block_found": messages.BlockFound,
    "store_blocks": messages.StoreBlocks,
    "stored": messages.Stored,
    "find_pointer": messages.FindPointer,
    "pointer_found": messages.PointerFound,
    "store_pointer": messages.StorePointer,
    "find_listings": messages.FindListings,
    "listings_found": messages.ListingsFound,
    "store_listings": messages.StoreListings,
    "compare_keys": messages.CompareKeys,
    "keys_differ": messages.KeysDiffer,
    "want_blocks": messages.WantBlocks,
    "dial_me": messages.DialMe,
    "dial_answer": messages.DialAnswer,
    "reach_changed": messages.ReachChanged,
    "alive": messages.Alive,
    "compare_topics": messages.CompareTopics,
    "request_vote": talk.RequestVote,
    "vote": talk.Vote,
    "append": talk.Append,
    "appended": talk.Appended,
    "summon": talk.Summon,
    "probe_event": routed.ProbeEvent,
    "matched_event": routed.MatchedEvent,
    "place_subscription": routed.PlaceSubscription,
    "installed": routed.Installed,
    "place_state": routed.PlaceState,
    "place_taken": routed.PlaceTaken,
    "tree_hint": routed.TreeHint,
    "ask_shape": routed.AskShape,
    "tree_shape": routed.TreeShape,
    "compare_content": routed.CompareContent,
    "content_compared": routed.ContentCompared,
}
"""Every kind of message, by its field of Frame."""

_NOT_DERIVED: Final[dict[str, Codec]] = {"probe_event": probes.CODEC}

_PACK: Final[dict[type, Callable[[Any], pb.Frame]]] = {}
_READ: Final[dict[str, Callable[[Any], Message]]] = {}
_SIZE: Final[dict[type, Callable[[Any], int]]] = {}
BOUNDS: Final[dict[int, Bounds]] = {}
"""Of every kind, by the number of its field of Frame."""
for _name, _kind in KINDS.items():
    _codec = _NOT_DERIVED.get(_name) or derive(_kind, _name)
    _PACK[_kind], _READ[_name], _SIZE[_kind], _bounds = _codec
    BOUNDS[pb.Frame.DESCRIPTOR.fields_by_name[_name].number] = _bounds


def number_of(kind: type[Message]) -> int:
    """The number of a kind's field of Frame."""
    name = next(name for name, each in KINDS.items() if each is kind)
    number: int = pb.Frame.DESCRIPTOR.fields_by_name[name].number
    return number


def encode(message: Message) -> bytes:
    """One message as one frame, without its length; raises LocalError if it is too large.

    The node's own core is trusted with all other bounds: the receiver checks them.
    """
    data: bytes = _PACK[type(message)](message).SerializeToString()
    if len(data) > FRAME_BYTES_MAX:
        raise LocalError(f"a {type(message).__name__} of {len(data)} bytes is no frame")
    return data


def size_of(message: Message) -> int:
    """Exactly `len(encode(message))`, without making the bytes.

    The simulator asks this of millions of messages. CIDs, peer ids and keys are taken to have their
    usual lengths.
    """
    return _SIZE[type(message)](message)


def bytes_max_of(head: bytes | bytearray) -> int:
    """How large a frame may be that begins like this."""
    bounds = BOUNDS.get(kind_of(head))
    return UNKNOWN_BYTES_MAX if bounds is None else bounds.bytes_max


def decode(data: bytes) -> Message:
    """The message of one frame; raises RemoteError, and nothing else, if there is none."""
    if len(data) > SMALL_BYTES:
        _measure(data)
    frame = parse_frame(data)
    kind = frame.WhichOneof("message")
    if kind is None:
        raise unknown_kind(data)
    if kind == "hello":
        raise refusal("a Hello where a message is due")
    return _READ[kind](getattr(frame, kind))


def _measure(data: bytes) -> None:
    """Refuse what is larger than its kind, or has more in it, before it is parsed."""
    bytes_max = bytes_max_of(data)
    if len(data) > bytes_max:
        raise refusal(f"a frame of more than {bytes_max} bytes", Rejection.OVERSIZE)
    bounds = BOUNDS.get(kind_of(data))
    if bounds is not None:
        measure(data, bounds.fields_max)


def parse_frame(data: bytes) -> pb.Frame:
    """A frame whose types are right and whose values are not checked yet."""
    if len(data) > FRAME_BYTES_MAX:
        raise refusal(f"a frame of more than {FRAME_BYTES_MAX} bytes", Rejection.OVERSIZE)
    try:
        return pb.Frame.FromString(data)
    except DecodeError:
        raise refusal("a frame that is not Protocol Buffers") from None


def unknown_kind(data: bytes) -> RemoteError:
    """The error for a frame that holds no known kind of message."""
    if not data:
        return refusal("an empty frame")
    # Not the sender's fault: it may speak a newer version that has more kinds.
    return refusal("a message of an unknown kind", Rejection.UNKNOWN_KIND, Verdict.IGNORE)
