"""Descriptors as people read them: the thesis' Listings 3.1 and 3.2, as dag-json (thesis, 3.2).

Links are `{"/": "bafy..."}` and bytes `{"/": {"bytes": "..."}}` (base64 without padding), as
dag-json has it; peers are text and times ISO 8601. Field names are the listings'; fields that the
listings lack are named in their style. Nothing is lost: `from_readable` returns the same bytes with
their signatures, and so verifies its input.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

from pulsarcast.model.cbor import decode, encode, opaque
from pulsarcast.model.errors import LocalError, caller_to_blame
from pulsarcast.model.events import (
    EVENT_BYTES_MAX,
    Attribute,
    EventDescriptor,
    Position,
    Request,
    Sequence,
    decode_event,
    event_fields,
)
from pulsarcast.model.fields import PROTOCOL_VERSION
from pulsarcast.model.ids import (
    CID_BYTES,
    CID_PREFIX,
    Cid,
    PeerId,
    cid_text,
    parse_cid,
    parse_peer,
    peer_text,
)
from pulsarcast.model.listings import Listing
from pulsarcast.model.pointers import Pointer
from pulsarcast.model.topic_types import (
    AttributeRule,
    DeliveryOrder,
    Dissemination,
    EventLinking,
    Mark,
    NamedMarks,
    Retention,
    TopicDescriptor,
    TopicSettings,
)
from pulsarcast.model.topic_wire import topic_fields
from pulsarcast.model.topics import decode_topic

Readable: TypeAlias = dict[str, Any]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def to_readable(descriptor: EventDescriptor | TopicDescriptor | Pointer | Listing) -> Readable:
    """A descriptor as JSON for people."""
    match descriptor:
        case EventDescriptor():
            return _event_to_readable(descriptor)
        case TopicDescriptor():
            return _topic_to_readable(descriptor)
        case Pointer():
            return _pointer_to_readable(descriptor)
        case Listing():
            return _listing_to_readable(descriptor)


def from_readable(readable: Mapping[str, Any]) -> EventDescriptor | TopicDescriptor:
    """The descriptor that `to_readable` made this of, verified."""
    try:
        with caller_to_blame():
            match readable["descriptor"]:
                case "event":
                    return _event_from_readable(readable)
                case "topic":
                    return _topic_from_readable(readable)
                case other:
                    raise LocalError(f"neither an event nor a topic: {other!r}")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise LocalError(f"not a readable descriptor: {error!r}") from error


# Events (Listing 3.2)


def _event_to_readable(event: EventDescriptor) -> Readable:
    request = event.request
    metadata: Readable = {
        "created": _time_text(request.created),
        "protocolVersion": str(PROTOCOL_VERSION),
        "nonce": _bytes_out(request.nonce),
        "requestSequence": request.sequence._asdict(),
        "expires": None if request.expires is None else _time_text(request.expires),
        "after": [_link(cid) for cid in request.after],
        "extensions": _extensions_out(event.extensions),
    }
    if request.marks:
        metadata["afterMarks"] = [_mark_out(mark) for mark in request.marks]
    readable: Readable = {
        "descriptor": "event",
        "cid": _link(event.cid),
        "name": request.name,
        "publisher": peer_text(event.publisher),
        "author": peer_text(request.author),
        "parents": [_link(cid) for cid in event.parents],
        "topic": _link(request.topic),
        "version": _link(event.version),
        "sequence": event.sequence._asdict(),
        "position": None if event.position is None else event.position._asdict(),
        "payload": _bytes_out(request.payload),
        "attributes": {name: _tree_out(value) for name, value in request.attributes.items()},
        "metadata": metadata,
        "authorSignature": _optional_bytes_out(event.author_signature),
        "signature": _bytes_out(event.signature),
    }
    # Only causal topics have these.
    if event.marks:
        readable["parentMarks"] = [_mark_out(mark) for mark in event.marks]
    if event.is_merge:
        readable["merge"] = True
    if event.hands_over_to is not None:
        readable["handsOverTo"] = _link(event.hands_over_to)
    return readable


def _event_from_readable(readable: Mapping[str, Any]) -> EventDescriptor:
    metadata = readable["metadata"]
    attributes: dict[str, Attribute] = {
        name: _tree_in(value) for name, value in readable["attributes"].items()
    }
    expires = metadata["expires"]
    request = Request(
        topic=_cid(readable["topic"]),
        author=parse_peer(readable["author"]),
        name=readable["name"],
        payload=_bytes_in(readable["payload"]),
        attributes=attributes,
        created=_time(metadata["created"]),
        nonce=_bytes_in(metadata["nonce"]),
        sequence=Sequence(**metadata["requestSequence"]),
        expires=None if expires is None else _time(expires),
        after=tuple(_cid(link) for link in metadata["after"]),
        marks=tuple(_mark_in(mark) for mark in metadata.get("afterMarks", ())),
    )
    position, signature = readable["position"], readable["authorSignature"]
    fields = event_fields(
        request,
        version=_cid(readable["version"]),
        sequence=Sequence(**readable["sequence"]),
        parents=[_cid(link) for link in readable["parents"]],
        position=None if position is None else Position(**position),
        extensions=_extensions_in(metadata["extensions"]),
        publisher=parse_peer(readable["publisher"]),
        author_signature=None if signature is None else _bytes_in(signature),
        marks=[_mark_in(mark) for mark in readable.get("parentMarks", ())],
        is_merge=readable.get("merge", False),
        hands_over_to=_cid(readable["handsOverTo"]) if "handsOverTo" in readable else None,
    )
    return decode_event(encode({**fields, "s": opaque(_bytes_in(readable["signature"]))}))


# Topics (Listing 3.1)


def _topic_to_readable(topic: TopicDescriptor) -> Readable:
    allowed = topic.allowed_publishers
    metadata: Readable = {
        "created": _time_text(topic.created),
        "protocolVersion": str(PROTOCOL_VERSION),
        "allowedPublishers": {"enabled": allowed is not None, "peers": _peer_texts(allowed or ())},
        "requestToPublish": {
            "enabled": topic.request_to_publish,
            "peers": None if topic.requesters is None else _peer_texts(topic.requesters),
        },
        "eventLinking": topic.event_linking.value,
        "deliveryOrder": topic.delivery_order.value,
        "dissemination": topic.dissemination.value,
        "root": None if topic.root is None else peer_text(topic.root),
        "sequencers": _peer_texts(topic.sequencers),
        "recoveryKeys": _peer_texts(topic.recovery_keys),
        "retention": {
            "ageSeconds": topic.retention.age_s,
            "count": topic.retention.count,
            "bytes": topic.retention.bytes,
        },
        "attributes": [
            {"name": rule.name, "type": rule.type, "min": rule.min, "max": rule.max}
            for rule in topic.attributes
        ],
        "contentRouting": topic.content_routing,
        "payloadBytesMax": topic.payload_bytes_max,
        "description": topic.description,
        "tags": list(topic.tags),
        "nonce": _bytes_out(topic.nonce),
        "meta": topic.is_meta,
        "validUntil": _marks_out(topic.valid_until),
        "flushed": _marks_out(topic.flushed),
        "extensions": _extensions_out(topic.extensions),
    }
    return {
        "descriptor": "topic",
        "cid": _link(topic.cid),
        "name": topic.name,
        "author": peer_text(topic.author),
        "number": topic.number,
        "first": _optional_link(topic.first),
        "parent": _optional_link(topic.parent),
        "#": {name: _link(cid) for name, cid in topic.subtopics.items()},
        "metadata": metadata,
        "signer": peer_text(topic.signer),
        "signature": _bytes_out(topic.signature),
    }


def _topic_from_readable(readable: Mapping[str, Any]) -> TopicDescriptor:
    metadata = readable["metadata"]
    first, parent = readable["first"], readable["parent"]
    fields = topic_fields(
        _settings_from_readable(metadata),
        name=readable["name"],
        author=parse_peer(readable["author"]),
        created=_time(metadata["created"]),
        nonce=_bytes_in(metadata["nonce"]),
        signer=parse_peer(readable["signer"]),
        is_meta=metadata["meta"],
        number=readable["number"],
        first=None if first is None else _cid(first),
        parent=None if parent is None else _cid(parent),
        subtopics={name: _cid(link) for name, link in readable["#"].items()},
        valid_until=_marks_in(metadata["validUntil"]),
        flushed=_marks_in(metadata["flushed"]),
    )
    return decode_topic(encode({**fields, "s": opaque(_bytes_in(readable["signature"]))}))


def _settings_from_readable(metadata: Mapping[str, Any]) -> TopicSettings:
    allowed, request = metadata["allowedPublishers"], metadata["requestToPublish"]
    retention, root = metadata["retention"], metadata["root"]
    return TopicSettings(
        open=not allowed["enabled"],
        publishers=_peers(allowed["peers"]) if allowed["enabled"] else (),
        request_to_publish=request["enabled"],
        requesters=None if request["peers"] is None else _peers(request["peers"]),
        linking=EventLinking(metadata["eventLinking"]),
        order=DeliveryOrder(metadata["deliveryOrder"]),
        dissemination=Dissemination(metadata["dissemination"]),
        root=None if root is None else parse_peer(root),
        sequencers=_peers(metadata["sequencers"]),
        recovery_keys=_peers(metadata["recoveryKeys"]),
        retention=Retention(retention["ageSeconds"], retention["count"], retention["bytes"]),
        attributes=tuple(AttributeRule(**rule) for rule in metadata["attributes"]),
        content_routing=metadata["contentRouting"],
        payload_bytes_max=metadata["payloadBytesMax"],
        description=metadata["description"],
        tags=tuple(metadata["tags"]),
        extensions=_extensions_in(metadata["extensions"]),
    )


def _pointer_to_readable(pointer: Pointer) -> Readable:
    return {
        "descriptor": "pointer",
        "name": pointer.name,
        "author": peer_text(pointer.author),
        "moves": pointer.moves,
        "topic": _link(pointer.topic),
        "number": pointer.number,
        "newest": _link(pointer.cid),
        "signature": _bytes_out(pointer.signature),
    }


def _listing_to_readable(listing: Listing) -> Readable:
    return {
        "descriptor": "listing",
        "name": listing.name,
        "author": peer_text(listing.author),
        "topic": _link(listing.topic),
        "number": listing.number,
        "description": listing.description,
        "tags": list(listing.tags),
        "expires": _time_text(listing.expires_us),
        "signature": _bytes_out(listing.signature),
    }


# Single values


def _time_text(microseconds: int) -> str:
    moment = _EPOCH + microseconds * _MICROSECOND
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _time(text: str) -> int:
    return (datetime.fromisoformat(text) - _EPOCH) // _MICROSECOND


def _link(cid: Cid) -> Readable:
    return {"/": cid_text(cid)}


def _optional_link(cid: Cid | None) -> Readable | None:
    return None if cid is None else _link(cid)


def _cid(link: Mapping[str, Any]) -> Cid:
    return parse_cid(link["/"])


def _bytes_out(data: bytes) -> Readable:
    return {"/": {"bytes": base64.b64encode(data).decode().rstrip("=")}}


def _optional_bytes_out(data: bytes | None) -> Readable | None:
    return None if data is None else _bytes_out(data)


def _bytes_in(readable: Mapping[str, Any]) -> bytes:
    text = readable["/"]["bytes"]
    return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)


def _peer_texts(peers: tuple[PeerId, ...]) -> list[str]:
    return [peer_text(peer) for peer in peers]


def _peers(texts: list[str]) -> tuple[PeerId, ...]:
    return tuple(parse_peer(text) for text in texts)


def _mark_out(mark: Mark) -> Readable:
    return {**mark._asdict(), "publisher": peer_text(mark.publisher)}


def _mark_in(readable: Mapping[str, Any]) -> Mark:
    return Mark(parse_peer(readable["publisher"]), readable["epoch"], readable["number"])


def _marks_out(marks: NamedMarks) -> Any:
    return _link(marks) if isinstance(marks, bytes) else [_mark_out(mark) for mark in marks]


def _marks_in(readable: Any) -> NamedMarks:
    return _cid(readable) if isinstance(readable, dict) else tuple(map(_mark_in, readable))


# Values of any shape: attributes and extensions


def _extensions_out(extensions: Mapping[str, object]) -> Any:
    """Extensions as dag-json, or whole as bytes where dag-json has no words for them."""
    return _bytes_out(encode(extensions)) if _has_slash(extensions) else _tree_out(extensions)


def _extensions_in(readable: Any) -> dict[str, object]:
    if "/" not in readable:
        return {name: _tree_in(value) for name, value in readable.items()}
    extensions = decode(_bytes_in(readable), size_max=EVENT_BYTES_MAX)
    if not isinstance(extensions, dict):
        raise LocalError("extensions are a map")
    return extensions


def _has_slash(value: object) -> bool:
    """Whether a map uses the key that dag-json keeps for links and bytes."""
    if isinstance(value, dict):
        return "/" in value or any(_has_slash(item) for item in value.values())
    return isinstance(value, list) and any(_has_slash(item) for item in value)


def _tree_out(value: object) -> Any:
    if isinstance(value, bytes):
        is_cid = len(value) == CID_BYTES and value.startswith(CID_PREFIX)
        return _link(Cid(value)) if is_cid else _bytes_out(value)
    if isinstance(value, list):
        return [_tree_out(item) for item in value]
    if isinstance(value, dict):
        return {name: _tree_out(item) for name, item in value.items()}
    return value


def _tree_in(value: Any) -> Any:
    if isinstance(value, list):
        return [_tree_in(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "/" in value:
        return _cid(value) if isinstance(value["/"], str) else _bytes_in(value)
    return {name: _tree_in(item) for name, item in value.items()}
