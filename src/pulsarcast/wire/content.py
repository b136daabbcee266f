"""Messages about content-based subscriptions, to and from Protocol Buffers.

One `pack_` and one `read_` for each kind, in the order of protocol/content/messages.py.
"""

from collections.abc import Collection
from math import isfinite

from pulsarcast.model.errors import Rejection, RemoteError
from pulsarcast.model.events import topic_named_in
from pulsarcast.model.fields import NAME_BYTES_MAX
from pulsarcast.model.filters.bounds import FILTER_BYTES_MAX
from pulsarcast.model.ids import check_cid, check_peer_id
from pulsarcast.model.subscriptions import LEASE_S_MAX, SUBSCRIPTION_BYTES_MAX
from pulsarcast.protocol.content.members import ID_BYTES
from pulsarcast.protocol.content.messages import (
    AskShape,
    CompareContent,
    ContentCompared,
    Held,
    Installed,
    MatchedEvent,
    PlaceState,
    PlaceSubscription,
    PlaceTaken,
    ProbeEvent,
    Purpose,
    Stage,
    Target,
    TreeHint,
    TreeShape,
)
from pulsarcast.protocol.content.space import DEPTH_MAX
from pulsarcast.protocol.store import MarkState
from pulsarcast.wire import pulsarcast_pb2 as pb
from pulsarcast.wire.dissemination import pack_mark, read_mark
from pulsarcast.wire.fields import (
    Packed,
    check_count,
    read_block,
    read_blocks,
    read_integer,
    read_text,
    read_texts,
)
from pulsarcast.wire.limits import (
    BEYOND_MAX,
    CONTENT_MARKS_MAX,
    COUNT_MAX,
    FILTERS_MAX,
    HAVE_BYTES_MAX,
    HELD_MAX,
    HOPS_MAX,
    SHAPE_BYTES_MAX,
    TARGET_ATTRIBUTES_MAX,
    TARGETS_MAX,
)


def pack_place_subscription(message: PlaceSubscription) -> pb.Frame:
    return pb.Frame(
        place_subscription={
            "topic": message.topic,
            "attribute": message.attribute,
            "at": message.at,
            "stage": int(message.stage),
            "held": _pack_held(message.held),
            "token": message.token,
            "hops": message.hops,
        }
    )


def read_place_subscription(given: pb.PlaceSubscription) -> PlaceSubscription:
    return PlaceSubscription(
        check_cid(given.topic),
        _read_attribute(given.attribute),
        _read_node(given.at),
        _read_stage(given.stage),
        _read_held(given.held),
        read_integer(given.token, "a token"),
        _read_hops(given.hops),
    )


def pack_installed(message: Installed) -> pb.Frame:
    return pb.Frame(
        installed={
            "topic": message.topic,
            "sid": message.sid,
            "number": message.number,
            "piece": message.piece,
            "attribute": message.attribute,
            "leaf": message.leaf,
            "token": message.token,
            "hops": message.hops,
        }
    )


def read_installed(given: pb.Installed) -> Installed:
    return Installed(
        check_cid(given.topic),
        read_integer(given.sid, "a subscription's id"),
        read_integer(given.number, "a subscription's number"),
        read_integer(given.piece, "a piece", high=COUNT_MAX),
        _read_attribute(given.attribute),
        _read_node(given.leaf),
        read_integer(given.token, "a token"),
        _read_hops(given.hops),
    )


def pack_probe_event(message: ProbeEvent) -> pb.Frame:
    names: dict[str, int] = {}
    targets: list[Packed] = []
    for attribute, at, wanted, stage in message.targets:
        packed: Packed = {"attribute": names.setdefault(attribute, len(names)), "at": at}
        if wanted != at:
            packed["wanted"] = wanted
        if stage:
            packed["stage"] = int(stage)
        targets.append(packed)
    return pb.Frame(
        probe_event={
            "block": message.block,
            "attributes": list(names),
            "targets": targets,
            "hops": message.hops,
        }
    )


def read_probe_event(given: pb.ProbeEvent) -> ProbeEvent:
    block = read_block(given.block)
    names = read_texts(given.attributes, TARGET_ATTRIBUTES_MAX, NAME_BYTES_MAX, "attributes")
    check_count(given.targets, TARGETS_MAX, "targets")
    targets = []
    for each in given.targets:
        if each.attribute >= len(names):
            raise RemoteError("a target of no attribute")
        at = _read_node(each.at)
        wanted = _read_node(each.wanted) if each.wanted else at
        targets.append(Target(names[each.attribute], at, wanted, _read_stage(each.stage)))
    return ProbeEvent(topic_named_in(block), block, tuple(targets), _read_hops(given.hops))


def pack_matched_event(message: MatchedEvent) -> pb.Frame:
    return pb.Frame(matched_event={"block": message.block, "hops": message.hops})


def read_matched_event(given: pb.MatchedEvent) -> MatchedEvent:
    return MatchedEvent(read_block(given.block), _read_hops(given.hops))


def pack_place_state(message: PlaceState) -> pb.Frame:
    return pb.Frame(
        place_state={
            "topic": message.topic,
            "attribute": message.attribute,
            "at": message.at,
            "purpose": int(message.purpose),
            "is_split": message.is_split,
            "held": [_pack_held(held) for held in message.held],
            "shape": message.shape,
            "token": message.token,
            "home": message.home or b"",
            "hops": message.hops,
        }
    )


def read_place_state(given: pb.PlaceState) -> PlaceState:
    check_count(given.held, HELD_MAX, "pieces")
    if given.purpose > max(Purpose):
        raise RemoteError("a place sent for no purpose we know")
    return PlaceState(
        check_cid(given.topic),
        _read_attribute(given.attribute),
        _read_node(given.at),
        Purpose(given.purpose),
        given.is_split,
        tuple(map(_read_held, given.held)),
        _read_shape(given.shape),
        read_integer(given.token, "a token"),
        check_peer_id(given.home) if given.home else None,
        _read_hops(given.hops),
    )


def pack_place_taken(message: PlaceTaken) -> pb.Frame:
    return pb.Frame(
        place_taken={
            "topic": message.topic,
            "attribute": message.attribute,
            "at": message.at,
            "token": message.token,
        }
    )


def read_place_taken(given: pb.PlaceTaken) -> PlaceTaken:
    return PlaceTaken(
        check_cid(given.topic),
        _read_attribute(given.attribute),
        _read_node(given.at),
        read_integer(given.token, "a token"),
    )


def pack_tree_hint(message: TreeHint) -> pb.Frame:
    return pb.Frame(
        tree_hint={
            "topic": message.topic,
            "attribute": message.attribute,
            "about": message.about,
            "at": message.at,
            "hops": message.hops,
        }
    )


def read_tree_hint(given: pb.TreeHint) -> TreeHint:
    return TreeHint(
        check_cid(given.topic),
        _read_attribute(given.attribute),
        _read_node(given.about),
        _read_node(given.at) if given.at else 0,
        _read_hops(given.hops),
    )


def pack_ask_shape(message: AskShape) -> pb.Frame:
    return pb.Frame(
        ask_shape={
            "topic": message.topic,
            "attribute": message.attribute,
            "at": message.at,
            "token": message.token,
            "asker": message.asker or b"",
            "hops": message.hops,
        }
    )


def read_ask_shape(given: pb.AskShape) -> AskShape:
    return AskShape(
        check_cid(given.topic),
        _read_attribute(given.attribute),
        _read_node(given.at),
        read_integer(given.token, "a token"),
        check_peer_id(given.asker) if given.asker else None,
        _read_hops(given.hops),
    )


def pack_tree_shape(message: TreeShape) -> pb.Frame:
    return pb.Frame(
        tree_shape={
            "topic": message.topic,
            "attribute": message.attribute,
            "below": message.below,
            "shape": message.shape,
            "token": message.token,
        }
    )


def read_tree_shape(given: pb.TreeShape) -> TreeShape:
    return TreeShape(
        check_cid(given.topic),
        _read_attribute(given.attribute),
        _read_node(given.below),
        _read_shape(given.shape),
        read_integer(given.token, "a token"),
    )


def pack_compare_content(message: CompareContent) -> pb.Frame:
    return pb.Frame(
        compare_content={
            "request": message.request,
            "topic": message.topic,
            "where": message.where,
            "log": message.log,
            "place": message.place,
            "base": message.base,
            "have": message.have,
            "marks": [pack_mark(mark) for mark in message.marks],
            "fresh": message.fresh,
        }
    )


def read_compare_content(given: pb.CompareContent) -> CompareContent:
    return CompareContent(
        read_integer(given.request, "a request's number"),
        check_cid(given.topic),
        read_texts(given.where, FILTERS_MAX, FILTER_BYTES_MAX, "filters"),
        read_integer(given.log, "a log's name"),
        read_integer(given.place, "a place"),
        read_integer(given.base, "a place"),
        _read_names(given.have),
        _read_marks(given.marks),
        given.fresh,
    )


def pack_content_compared(message: ContentCompared) -> pb.Frame:
    return pb.Frame(
        content_compared={
            "request": message.request,
            "topic": message.topic,
            "log": message.log,
            "place": message.place,
            "newest": message.newest,
            "order": message.order,
            "blocks": message.blocks,
            "marks": [pack_mark(mark) for mark in message.marks],
            "more": message.more,
        }
    )


def read_content_compared(given: pb.ContentCompared) -> ContentCompared:
    return ContentCompared(
        read_integer(given.request, "a request's number"),
        check_cid(given.topic),
        read_integer(given.log, "a log's name"),
        read_integer(given.place, "a place"),
        read_integer(given.newest, "a place"),
        _read_names(given.order),
        read_blocks(given.blocks),
        _read_marks(given.marks),
        given.more,
    )


# Parts of messages.


def _pack_held(held: Held) -> Packed:
    return {
        "record": held.record,
        "piece": held.piece,
        "low": held.low,
        "high": held.high,
        "closed": held.closed,
        "left_s": held.left_s,
    }


def _read_held(given: pb.Held) -> Held:
    if not 0 < len(given.record) <= SUBSCRIPTION_BYTES_MAX:
        raise RemoteError(f"a subscription of {len(given.record)} bytes", code=Rejection.OVERSIZE)
    low, high = given.low, given.high
    if not (isfinite(low) and isfinite(high) and 0.0 <= low <= high <= 1.0):
        raise RemoteError("a piece that is no part of the unit interval")
    left_s = read_integer(given.left_s, "a lease", high=LEASE_S_MAX)
    piece = read_integer(given.piece, "a piece", high=COUNT_MAX)
    return Held(given.record, piece, low, high, given.closed, left_s)


def _read_marks(given: Collection[pb.Mark]) -> tuple[MarkState, ...]:
    check_count(given, CONTENT_MARKS_MAX, "marks")
    marks: list[MarkState] = []
    room = BEYOND_MAX
    for raw in given:
        mark = read_mark(raw, room)
        room -= len(mark.beyond)
        marks.append(mark)
    return tuple(marks)


def _read_names(raw: bytes) -> bytes:
    """Short names of events, one behind the other."""
    if len(raw) > HAVE_BYTES_MAX or len(raw) % ID_BYTES:
        raise RemoteError("not a list of events' names")
    return raw


def _read_attribute(given: str) -> str:
    if not given:
        raise RemoteError("an attribute without a name")
    return read_text(given, NAME_BYTES_MAX, "an attribute's name")


def _read_node(identifier: int) -> int:
    if not 1 <= identifier < 2 << DEPTH_MAX:
        raise RemoteError("not a node of a tree")
    return identifier


def _read_stage(stage: int) -> Stage:
    if stage > max(Stage):
        raise RemoteError("a stage that we do not know")
    return Stage(stage)


def _read_shape(raw: bytes) -> bytes:
    if len(raw) > SHAPE_BYTES_MAX:
        raise RemoteError("a tree's shape that is too large", code=Rejection.OVERSIZE)
    return raw


def _read_hops(hops: int) -> int:
    return read_integer(hops, "hops", high=HOPS_MAX)
