"""Requests: the author's part of an event, signed by the author.

Thesis, 3.3.3; docs/spec/descriptors.md, Request.

A request holds the payload, the topic, and the events that it follows. It travels by itself to a
peer that may publish, or becomes part of an event at once if author and publisher are one.

On the wire it is a dag-cbor map with these keys; those marked * are left out when empty:
    t topic    a author   m name*    b payload     k attributes*
    c created  n nonce    q sequence e expires*    f after*
    d the marks of `after`, in causal topics (see `marks`)
Travelling by itself it is wrapped as v (protocol version, 1), r (the map), s (signature).

Its hash is the **request id**, by which a request is published once and delivered once. The hash
is taken over the map with its `q`, so the id does not depend on the publisher.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import sha256
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

import msgspec

from pulsarcast.model.cbor import INT_MAX, decode, encode, encode_part, opaque, plain
from pulsarcast.model.errors import Rejection, RemoteError, caller_to_blame
from pulsarcast.model.fields import (
    NONCE_BYTES,
    PROTOCOL_VERSION,
    Fields,
    check_version,
    read_int,
    read_links,
    read_map,
    read_name,
    read_opaque,
    read_pair,
    read_signature,
    read_time,
)
from pulsarcast.model.identity import Identity, signed_bytes, verify_signature
from pulsarcast.model.ids import Cid, PeerId, check_cid, check_peer_id
from pulsarcast.model.marks import Mark, read_marks, write_marks

PAYLOAD_BYTES_MAX: Final = 1 << 20
REQUEST_BYTES_MAX: Final = PAYLOAD_BYTES_MAX + (64 << 10)
AFTER_MAX: Final = 64
ATTRIBUTES_MAX: Final = 64

Attribute: TypeAlias = int | float | str | bool | bytes

NO_ATTRIBUTES: Final[Mapping[str, Attribute]] = MappingProxyType({})

_REQUEST_KEYS = frozenset("tambkcnqefd")
_SIGNED_KEYS = frozenset("vrs")


class Sequence(NamedTuple):
    """Which one of a peer's events in a topic: gapless numbers from 1, in a random epoch."""

    epoch: int
    number: int


class Request(msgspec.Struct, frozen=True):
    """A payload that an author wants to have published, and how."""

    topic: Cid
    author: PeerId
    name: str
    payload: bytes
    attributes: dict[str, Attribute]
    created: int  # µs since the Unix epoch, by the author's clock: nothing is decided by it
    nonce: bytes
    sequence: Sequence  # the author's own count of its requests in this topic
    expires: int | None
    after: tuple[Cid, ...]
    marks: tuple[Mark, ...] = ()  # of the events in `after`, in causal topics


class SignedRequest(msgspec.Struct, frozen=True):
    """A request with its author's signature, as it travels to a peer that may publish."""

    request: Request
    signature: bytes
    block: bytes
    request_id: bytes

    def __hash__(self) -> int:
        """Hash by request id, which covers every byte of the request."""
        return hash(self.request_id)


def sign_request(
    identity: Identity,
    *,
    topic: Cid,
    payload: bytes,
    name: str = "",
    attributes: Mapping[str, Attribute] = NO_ATTRIBUTES,
    created: int,
    nonce: bytes,
    sequence: Sequence,
    expires: int | None = None,
    after: Iterable[Cid] = (),
    marks: Iterable[Mark] = (),
) -> SignedRequest:
    """Ask, as an author, for something to be published."""
    fields = request_fields(
        Request(
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
            marks=tuple(marks),
        )
    )
    signature = identity.sign("request", encode(fields))
    block = encode({"v": PROTOCOL_VERSION, "r": fields, "s": opaque(signature)})
    with caller_to_blame():
        return _read_signed(block, verify=False)


def decode_request(block: bytes) -> SignedRequest:
    """Read and verify an author's request."""
    return _read_signed(block, verify=True)


def _read_signed(block: bytes, *, verify: bool) -> SignedRequest:
    value = decode(block, size_max=REQUEST_BYTES_MAX)
    check_version(value, "a request")
    fields = read_map(value, _SIGNED_KEYS, "a signed request")
    request = read_request(fields.get("r"))
    signature = read_signature(fields.get("s"))
    body = encode_part(fields["r"])
    if verify and not verify_signature(request.author, "request", body, signature):
        raise RemoteError("the author's signature is wrong", code=Rejection.BAD_SIGNATURE)
    return SignedRequest(request, signature, block, request_id_of(body))


def request_id_of(body: bytes) -> bytes:
    """The id of the request whose map has these bytes."""
    return sha256(signed_bytes("request", body)).digest()


def request_fields(request: Request) -> Fields:
    """The request's map, with its sequence."""
    fields: Fields = {
        "t": request.topic,
        "a": request.author,
        "b": opaque(request.payload),
        "c": request.created,
        "n": opaque(request.nonce),
        "q": list(request.sequence),
    }
    if request.name:
        fields["m"] = request.name
    if request.attributes:
        fields["k"] = {name: _guard(value) for name, value in request.attributes.items()}
    if request.expires is not None:
        fields["e"] = request.expires
    if request.after:
        fields["f"] = list(request.after)
    if request.marks:
        fields["d"] = write_marks(request.marks)
    return fields


def read_request(value: object) -> Request:
    """Take a request's map, its sequence included, and refuse any other shape."""
    fields = read_map(value, _REQUEST_KEYS, "a request")
    get = fields.get
    after = read_links(get("f"), AFTER_MAX, "after") if "f" in fields else ()
    return Request(
        topic=check_cid(get("t")),
        author=check_peer_id(get("a")),
        name=read_name(get("m"), "name") if "m" in fields else "",
        payload=_read_payload(get("b")),
        attributes=_read_attributes(get("k")) if "k" in fields else {},
        created=read_time(get("c"), "created"),
        nonce=read_opaque(get("n"), NONCE_BYTES, "nonce"),
        sequence=read_sequence(get("q")),
        expires=read_time(get("e"), "expires") if "e" in fields else None,
        after=after,
        marks=read_marks(get("d"), after, "links after") if "d" in fields else (),
    )


def read_sequence(value: object) -> Sequence:
    """An epoch and a number from one."""
    epoch, number = read_pair(value, "a sequence")
    return Sequence(read_int(epoch, 0, INT_MAX, "epoch"), read_int(number, 1, INT_MAX, "number"))


def _read_payload(value: object) -> bytes:
    payload = plain(value)
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise RemoteError("a payload larger than any topic allows", code=Rejection.OVERSIZE)
    return payload


def _read_attributes(value: object) -> dict[str, Attribute]:
    if not isinstance(value, dict) or not 0 < len(value) <= ATTRIBUTES_MAX:
        raise RemoteError(f"attributes is not a map of 1 to {ATTRIBUTES_MAX}")
    return {read_name(name, "an attribute's name"): _read_attribute(value[name]) for name in value}


def _read_attribute(value: object) -> Attribute:
    if isinstance(value, bytes):
        return plain(value)
    if isinstance(value, (int, float, str)):  # a bool is an int to Python
        return value
    raise RemoteError("an attribute is neither number, text, bool nor bytes")


def _guard(value: Attribute) -> Attribute:
    """An attribute's wire form: bytes are opaque, all else is itself."""
    return opaque(value) if isinstance(value, bytes) else value
