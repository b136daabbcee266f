"""Messages to bytes and back (thesis, 3.4): the one gate for everything a peer sends.

Whatever is decoded has the shape that protocol/messages.py promises, within the bounds of
`limits`; nothing else passes. What blocks hold is judged later, by the core.
"""

from collections.abc import Callable
from typing import Any, Final

from google.protobuf.message import DecodeError

from pulsarcast.model.errors import LocalError, Rejection, RemoteError, Verdict
from pulsarcast.protocol import messages
from pulsarcast.protocol.content import messages as routed
from pulsarcast.protocol.messages import Message
from pulsarcast.protocol.sequencing import messages as talk
from pulsarcast.wire import content, dht, dissemination, sequencing
from pulsarcast.wire import pulsarcast_pb2 as pb
from pulsarcast.wire.limits import FRAME_BYTES_MAX

# A table and not a `match`: a chain of some 30 cases would cost the last kinds several times what
# their encoding does. The tests hold the tables and the union `Message` together.
_PACK: Final[dict[type, Callable[[Any], pb.Frame]]] = {
    messages.EventMessage: dissemination.pack_event,
    messages.Credit: dissemination.pack_credit,
    messages.RequestToPublish: dissemination.pack_request_to_publish,
    messages.RequestAnswered: dissemination.pack_request_answered,
    messages.RequestReferred: dissemination.pack_request_referred,
    messages.Join: dissemination.pack_join,
    messages.JoinAccepted: dissemination.pack_join_accepted,
    messages.JoinReferred: dissemination.pack_join_referred,
    messages.JoinRefused: dissemination.pack_join_refused,
    messages.Leave: dissemination.pack_leave,
    messages.HandOver: dissemination.pack_hand_over,
    messages.Meet: dissemination.pack_meet,
    messages.Members: dissemination.pack_members,
    messages.Status: dissemination.pack_status,
    messages.FrontierPage: dissemination.pack_frontier_page,
    messages.FetchRange: dissemination.pack_fetch_range,
    messages.Range: dissemination.pack_range,
    messages.FindPeers: dht.pack_find_peers,
    messages.Peers: dht.pack_peers,
    messages.FindBlock: dht.pack_find_block,
    messages.BlockFound: dht.pack_block_found,
    messages.StoreBlocks: dht.pack_store_blocks,
    messages.Stored: dht.pack_stored,
    messages.FindPointer: dht.pack_find_pointer,
    messages.PointerFound: dht.pack_pointer_found,
    messages.StorePointer: dht.pack_store_pointer,
    messages.CompareKeys: dht.pack_compare_keys,
    messages.KeysDiffer: dht.pack_keys_differ,
    messages.WantBlocks: dht.pack_want_blocks,
    talk.AskVote: sequencing.pack_ask_vote,
    talk.Vote: sequencing.pack_vote,
    talk.Append: sequencing.pack_append,
    talk.Appended: sequencing.pack_appended,
    talk.Summon: sequencing.pack_summon,
    routed.ProbeEvent: content.pack_probe_event,
    routed.MatchedEvent: content.pack_matched_event,
    routed.PlaceSubscription: content.pack_place_subscription,
    routed.Installed: content.pack_installed,
    routed.PlaceState: content.pack_place_state,
    routed.PlaceTaken: content.pack_place_taken,
    routed.TreeHint: content.pack_tree_hint,
    routed.AskShape: content.pack_ask_shape,
    routed.TreeShape: content.pack_tree_shape,
    routed.CompareContent: content.pack_compare_content,
    routed.ContentCompared: content.pack_content_compared,
}

# By the name of the field of Frame.
_READ: Final[dict[str, Callable[[Any], Message]]] = {
    "event": dissemination.read_event,
    "credit": dissemination.read_credit,
    "request_to_publish": dissemination.read_request_to_publish,
    "request_answered": dissemination.read_request_answered,
    "request_referred": dissemination.read_request_referred,
    "join": dissemination.read_join,
    "join_accepted": dissemination.read_join_accepted,
    "join_referred": dissemination.read_join_referred,
    "join_refused": dissemination.read_join_refused,
    "leave": dissemination.read_leave,
    "hand_over": dissemination.read_hand_over,
    "meet": dissemination.read_meet,
    "members": dissemination.read_members,
    "status": dissemination.read_status,
    "frontier_page": dissemination.read_frontier_page,
    "fetch_range": dissemination.read_fetch_range,
    "range": dissemination.read_range,
    "find_peers": dht.read_find_peers,
    "peers": dht.read_peers,
    "find_block": dht.read_find_block,
    "block_found": dht.read_block_found,
    "store_blocks": dht.read_store_blocks,
    "stored": dht.read_stored,
    "find_pointer": dht.read_find_pointer,
    "pointer_found": dht.read_pointer_found,
    "store_pointer": dht.read_store_pointer,
    "compare_keys": dht.read_compare_keys,
    "keys_differ": dht.read_keys_differ,
    "want_blocks": dht.read_want_blocks,
    "ask_vote": sequencing.read_ask_vote,
    "vote": sequencing.read_vote,
    "append": sequencing.read_append,
    "appended": sequencing.read_appended,
    "summon": sequencing.read_summon,
    "probe_event": content.read_probe_event,
    "matched_event": content.read_matched_event,
    "place_subscription": content.read_place_subscription,
    "installed": content.read_installed,
    "place_state": content.read_place_state,
    "place_taken": content.read_place_taken,
    "tree_hint": content.read_tree_hint,
    "ask_shape": content.read_ask_shape,
    "tree_shape": content.read_tree_shape,
    "compare_content": content.read_compare_content,
    "content_compared": content.read_content_compared,
}


def encode(message: Message) -> bytes:
    """One message as one frame, without its length; raises LocalError where it is too large.

    Our own core is trusted with all other bounds: the receiver holds it to them.
    """
    data: bytes = _PACK[type(message)](message).SerializeToString()
    if len(data) > FRAME_BYTES_MAX:
        raise LocalError(f"a {type(message).__name__} of {len(data)} bytes is no frame")
    return data


def decode(data: bytes) -> Message:
    """The message of one frame; raises RemoteError, and nothing else, where there is none."""
    frame = parse_frame(data)
    kind = frame.WhichOneof("message")
    if kind is None:
        raise unknown_kind(data)
    if kind == "hello":
        raise RemoteError("a Hello where a message is due")
    return _READ[kind](getattr(frame, kind))


def parse_frame(data: bytes) -> pb.Frame:
    """A frame whose types are right and whose values are not judged yet."""
    if len(data) > FRAME_BYTES_MAX:
        raise RemoteError(f"a frame of more than {FRAME_BYTES_MAX} bytes", code=Rejection.OVERSIZE)
    try:
        return pb.Frame.FromString(data)
    except DecodeError:
        raise RemoteError("a frame that is not Protocol Buffers") from None


def unknown_kind(data: bytes) -> RemoteError:
    """What to raise for a frame that holds no message we know."""
    if not data:
        return RemoteError("an empty frame")
    # Not the sender's fault: it may speak a newer version that has more kinds.
    return RemoteError("a message of an unknown kind", Verdict.IGNORE, code=Rejection.UNKNOWN_KIND)
