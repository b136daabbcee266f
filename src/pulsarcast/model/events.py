"""Events: immutable, signed, content-addressed descriptors, linked to their parents.

Thesis, 3.2; docs/spec/descriptors.md, Event.

An event is an author's request with its publisher's sequence number and links to its parents. If
author and publisher are one peer, one signature covers all.

On the wire it is a dag-cbor map with these keys; those marked * are left out when empty:
    v version of the protocol (1)    r the request (see `requests`)    n sequence
    w topic version, left out where it is the topic's first
    p publisher, left out where it is the author
    l parents*                       o position*                       x extensions*
    d the parents' marks, in causal topics (see `marks`)
    g 1 in a merge event: it has no payload, and only joins its parents
    h in a handover: the version whose sequencers number events from here on
    a author's signature over the request, where author and publisher differ
    s publisher's signature over all the rest
The request's `q` is left out where author and publisher are one and it equals the event's `n`.
A field that can be left out must be: an event has one encoding, and so one content id.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from pulsarcast.model.cbor import INT_MAX, decode, encode, encode_part, opaque
from pulsarcast.model.errors import Rejection, RemoteError, caller_to_blame
from pulsarcast.model.fields import (
    PROTOCOL_VERSION,
    Fields,
    check_version,
    read_extensions,
    read_int,
    read_links,
    read_map,
    read_pair,
    read_signature,
)
from pulsarcast.model.identity import Identity, verify_signature
from pulsarcast.model.ids import Cid, PeerId, check_cid, check_peer_id, cid_of, shared_numbering
from pulsarcast.model.marks import Mark, read_marks, write_marks
from pulsarcast.model.requests import (
    AFTER_MAX,
    ATTRIBUTES_MAX,
    NO_ATTRIBUTES,
    PAYLOAD_BYTES_MAX,
    REQUEST_BYTES_MAX,
    Attribute,
    Request,
    Sequence,
    SignedRequest,
    decode_request,
    read_request,
    read_sequence,
    request_fields,
    request_id_of,
    sign_request,
)

__all__ = [
    "AFTER_MAX",
    "ATTRIBUTES_MAX",
    "EVENT_BYTES_MAX",
    "PARENTS_MAX",
    "PAYLOAD_BYTES_MAX",
    "REQUEST_BYTES_MAX",
    "Attribute",
    "EventDescriptor",
    "Position",
    "Request",
    "Sequence",
    "SignedRequest",
    "decode_event",
    "decode_request",
    "publish_own",
    "publish_request",
    "sign_request",
    "topic_named_in",
]

EVENT_BYTES_MAX: Final = PAYLOAD_BYTES_MAX + (64 << 10)
PARENTS_MAX: Final = 64

_NO_EXTENSIONS: Final[Mapping[str, object]] = MappingProxyType({})
_EVENT_KEYS = frozenset("vrnwploxasdgh")


class Position(NamedTuple):
    """An event's position in a total order: the sequencer's term, and the number."""

    term: int
    number: int


class EventDescriptor(msgspec.Struct, frozen=True):
    """A published event, verified as far as its own bytes allow."""

    request: Request
    topic: Cid  # by its first version's content id
    version: Cid  # of the topic: rights are judged by the version that the event names
    author: PeerId
    publisher: PeerId
    numbered_by: PeerId  # whose numbering has its number: the publisher's, or the sequencers' own
    is_ordered: bool  # several sequencers agreed on its position, in a numbering that they share
    sequence: Sequence
    parents: tuple[Cid, ...]
    position: Position | None
    extensions: dict[str, object]
    author_signature: bytes | None
    signature: bytes
    request_id: bytes
    cid: Cid
    block: bytes
    marks: tuple[Mark, ...] = ()  # of the parents, in causal topics
    is_merge: bool = False  # it has no payload, and only joins its parents
    hands_over_to: Cid | None = None  # the version whose sequencers number events after it

    @property
    def name(self) -> str:
        """The author's name for it, often empty."""
        return self.request.name

    @property
    def payload(self) -> bytes:
        """The author's bytes."""
        return self.request.payload

    @property
    def is_silent(self) -> bool:
        """Whether it serves nodes alone, and is delivered to no application."""
        return self.is_merge or self.hands_over_to is not None

    def __hash__(self) -> int:
        """Hash by content id, which covers every byte of the event."""
        return hash(self.cid)


def publish_own(
    identity: Identity,
    *,
    topic: Cid,
    version: Cid,
    payload: bytes,
    name: str = "",
    attributes: Mapping[str, Attribute] = NO_ATTRIBUTES,
    created: int,
    nonce: bytes,
    sequence: Sequence,
    parents: Iterable[Cid],
    position: Position | None = None,
    after: Iterable[Cid] = (),
    expires: int | None = None,
    extensions: Mapping[str, object] = _NO_EXTENSIONS,
    marks: Iterable[Mark] = (),
    is_merge: bool = False,
    hands_over_to: Cid | None = None,
) -> EventDescriptor:
    """Publish an event of one's own: author and publisher are one, and so are both sequences."""
    request = Request(
        topic=topic,
        author=identity.peer_id,
        name=name,
        payload=payload,
        attributes=dict(attributes),
        created=created,
        nonce=nonce,
        sequence=sequence,
        expires=expires,
        after=tuple(after),
    )
    fields = event_fields(
        request,
        version=version,
        sequence=sequence,
        parents=parents,
        position=position,
        extensions=extensions,
        marks=marks,
        is_merge=is_merge,
        hands_over_to=hands_over_to,
    )
    return _sign_event(identity, fields)


def publish_request(
    identity: Identity,
    signed: SignedRequest,
    *,
    version: Cid,
    sequence: Sequence,
    parents: Iterable[Cid],
    position: Position | None = None,
    extensions: Mapping[str, object] = _NO_EXTENSIONS,
    marks: Iterable[Mark] = (),
) -> EventDescriptor:
    """Publish an author's request.

    The author may be the publisher itself, if it asked others in vain and then gained the right.
    """
    fields = event_fields(
        signed.request,
        version=version,
        sequence=sequence,
        parents=parents,
        position=position,
        extensions=extensions,
        publisher=identity.peer_id,
        author_signature=signed.signature,
        marks=marks,
    )
    return _sign_event(identity, fields)


def event_fields(
    request: Request,
    *,
    version: Cid,
    sequence: Sequence,
    parents: Iterable[Cid],
    position: Position | None,
    extensions: Mapping[str, object],
    publisher: PeerId | None = None,
    author_signature: bytes | None = None,
    marks: Iterable[Mark] = (),
    is_merge: bool = False,
    hands_over_to: Cid | None = None,
) -> Fields:
    """An event's map, but for the publisher's signature."""
    asked = request_fields(request)
    fields: Fields = {"v": PROTOCOL_VERSION, "r": asked, "n": list(sequence)}
    if publisher not in (None, request.author) and author_signature is not None:
        fields["p"] = publisher
        fields["a"] = opaque(author_signature)
    elif request.sequence == sequence:
        del asked["q"]
    if version != request.topic:
        fields["w"] = version
    if links := list(parents):
        fields["l"] = links
    if known := list(marks):
        own = Mark(request.author if publisher is None else publisher, *sequence)
        fields["d"] = write_marks(known, own)
    if is_merge:
        fields["g"] = 1
    if hands_over_to is not None:
        fields["h"] = hands_over_to
    if position is not None:
        fields["o"] = list(position)
    if extensions:
        fields["x"] = dict(extensions)
    return fields


def _sign_event(identity: Identity, fields: Fields) -> EventDescriptor:
    """Seal an event as its publisher."""
    fields["s"] = opaque(identity.sign("event", encode(fields)))
    with caller_to_blame():
        return _read_event(encode(fields), verify=False)


def decode_event(block: bytes) -> EventDescriptor:
    """Read an event and verify all that can be judged from its bytes alone."""
    return _read_event(block, verify=True)


def read_own_event(block: bytes) -> EventDescriptor:
    """Read an event from the node's own disk: it was verified before it was written."""
    return _read_event(block, verify=False)


def topic_named_in(block: bytes) -> Cid:
    """The topic that an event or a request names; nothing else of it is judged."""
    value = decode(block, size_max=EVENT_BYTES_MAX)
    asked = value.get("r") if isinstance(value, dict) else None
    return check_cid(asked.get("t") if isinstance(asked, dict) else None)


def _read_event(block: bytes, *, verify: bool) -> EventDescriptor:
    value = decode(block, size_max=EVENT_BYTES_MAX)
    check_version(value, "an event")
    fields = read_map(value, _EVENT_KEYS, "an event")
    sequence = read_sequence(fields.get("n"))
    asked = _complete_request(fields)
    request = read_request(asked)
    version = check_cid(fields["w"]) if "w" in fields else request.topic
    publisher = check_peer_id(fields["p"]) if "p" in fields else request.author
    _check_omissions(fields, request, version, publisher)
    author_signature = read_signature(fields["a"]) if "a" in fields else None
    signature = read_signature(fields.pop("s", None))
    request_body = encode_part(asked)
    parents = read_links(fields["l"], PARENTS_MAX, "parents") if "l" in fields else ()
    own = Mark(publisher, *sequence)
    position = _read_position(fields["o"]) if "o" in fields else None
    is_ordered = position is not None and position.term > 0 and sequence == (0, position.number)
    event = EventDescriptor(
        request=request,
        topic=request.topic,
        version=version,
        author=request.author,
        publisher=publisher,
        numbered_by=shared_numbering(request.topic) if is_ordered else publisher,
        is_ordered=is_ordered,
        sequence=sequence,
        parents=parents,
        position=position,
        extensions=read_extensions(fields["x"]) if "x" in fields else {},
        author_signature=author_signature,
        signature=signature,
        request_id=request_id_of(request_body),
        cid=cid_of(block),
        block=block,
        marks=read_marks(fields["d"], parents, "parents", own) if "d" in fields else (),
        is_merge="g" in fields and _read_merge(fields, request),
        hands_over_to=_read_handover(fields, request) if "h" in fields else None,
    )
    if request.marks and any(
        mark[:2] == own[:2] and mark.number >= own.number for mark in request.marks
    ):
        raise RemoteError("an event that follows itself", code=Rejection.INVALID_EVENT)
    if verify:
        _verify(event, encode_part(fields), request_body)
    return event


def _complete_request(fields: Fields) -> object:
    """The request as its author made it, with the `q` that the event may spare it."""
    asked = fields.get("r")
    if not isinstance(asked, dict) or "p" in fields:
        return asked
    if "q" not in asked:
        return {**asked, "q": fields["n"]}
    if asked["q"] == fields["n"]:
        raise RemoteError(
            "an event says twice what it should say once: the request's sequence",
            code=Rejection.NOT_CANONICAL,
        )
    return asked


def _check_omissions(fields: Fields, request: Request, version: Cid, publisher: PeerId) -> None:
    """Refuse an event that has a field it should leave out, or lacks one it should have."""
    if "w" in fields and version == request.topic:
        raise RemoteError(
            "an event says twice what it should say once: the topic's version",
            code=Rejection.NOT_CANONICAL,
        )
    if "p" in fields and publisher == request.author:
        raise RemoteError(
            "an event says twice what it should say once: the publisher",
            code=Rejection.NOT_CANONICAL,
        )
    if ("a" in fields) != ("p" in fields):
        raise RemoteError(
            "an author's signature belongs to events that another peer publishes",
            code=Rejection.NOT_CANONICAL,
        )


def _verify(event: EventDescriptor, event_body: bytes, request_body: bytes) -> None:
    """Check the signatures: the publisher's over all, and the author's where it is another peer."""
    if not verify_signature(event.publisher, "event", event_body, event.signature):
        raise RemoteError("the publisher's signature is wrong", code=Rejection.BAD_SIGNATURE)
    if event.author_signature is None:
        return
    if not verify_signature(event.author, "request", request_body, event.author_signature):
        raise RemoteError("the author's signature is wrong", code=Rejection.BAD_SIGNATURE)


def _read_position(value: object) -> Position:
    term, number = read_pair(value, "a position")
    return Position(read_int(term, 0, INT_MAX, "term"), read_int(number, 0, INT_MAX, "position"))


def _read_handover(fields: Fields, request: Request) -> Cid:
    """The version to whose sequencers an event hands the order over; it has no payload."""
    if "o" not in fields or "g" in fields:
        raise RemoteError("a handover where nothing is ordered", code=Rejection.INVALID_EVENT)
    if "p" in fields or request.payload or request.name or request.attributes or request.after:
        raise RemoteError("a handover that says something", code=Rejection.INVALID_EVENT)
    return check_cid(fields["h"])


def _read_merge(fields: Fields, request: Request) -> bool:
    """True, of an event that is marked as a merge: it only joins its parents."""
    read_int(fields["g"], 1, 1, "the mark of a merge")
    if "d" not in fields:
        raise RemoteError("a merge that takes no parents in", code=Rejection.INVALID_EVENT)
    if "p" in fields or request.payload or request.name or request.attributes or request.after:
        raise RemoteError("a merge that says something", code=Rejection.INVALID_EVENT)
    return True
