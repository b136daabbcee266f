"""People of the tests, and what they sign, honest or not."""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from pulsarcast.model.events import (
    PAYLOAD_BYTES_MAX,
    REQUEST_BYTES_MAX,
    Attribute,
    EventDescriptor,
    Position,
    Sequence,
    SignedRequest,
    publish_own,
    publish_request,
    sign_request,
)
from pulsarcast.model.identity import Identity
from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.model.topics import (
    DeliveryOrder,
    Mark,
    TopicDescriptor,
    TopicSettings,
    create_meta_topic,
    create_topic,
    next_version,
)

CREATED_US = 1_767_225_600_000_000
EPOCH = 7
NO_SUBTOPICS: Mapping[str, Cid] = {}


@cache
def identity(name: str) -> Identity:
    """The key pair of somebody known by name."""
    return Identity.from_seed(name.encode().ljust(32, b"."))


def peer(name: str) -> PeerId:
    """The peer id of somebody known by name."""
    return identity(name).peer_id


ALICE, BOB, CAROL, MALLORY = (identity(name) for name in ("alice", "bob", "carol", "mallory"))


def nonce(text: str) -> bytes:
    """Sixteen bytes that a text stands for."""
    return text.encode()[-16:].rjust(16, b"\0")


def meta_of(author: Identity, name: str = "news") -> TopicDescriptor:
    """The meta topic that `topic_of` links to."""
    return create_meta_topic(author, name, created=CREATED_US, nonce=nonce(name))


def unordered(**more: Any) -> TopicSettings:
    """The settings of a topic without order; it is open, unless publishers are named."""
    return TopicSettings(order=DeliveryOrder.NONE, open="publishers" not in more, **more)


def topic_of(
    author: Identity,
    settings: TopicSettings | None = None,
    *,
    name: str = "news",
    subtopics: Mapping[str, Cid] = NO_SUBTOPICS,
) -> TopicDescriptor:
    """A topic's first version, with its meta topic."""
    chosen = unordered() if settings is None else settings
    meta = meta_of(author, name).cid
    return create_topic(author, name, chosen, created=CREATED_US, meta=meta, subtopics=subtopics)


def version_of(
    previous: TopicDescriptor,
    settings: TopicSettings | None = None,
    *,
    signer: Identity,
    until: Iterable[Mark] | Cid = (),
    created: int = CREATED_US,
) -> TopicDescriptor:
    """The version after another."""
    chosen = previous.settings if settings is None else settings
    return next_version(signer, previous, chosen, created=created, valid_until=until)


def event_of(
    publisher: Identity,
    topic: TopicDescriptor,
    number: int = 1,
    *,
    epoch: int = EPOCH,
    payload: bytes = b"hello",
    attributes: Mapping[str, Attribute] = {},
    parents: Iterable[Cid] = (),
    position: Position | None = None,
    topic_cid: Cid | None = None,
    marks: Iterable[Mark] = (),
    is_merge: bool = False,
) -> EventDescriptor:
    """An event under a version of a topic, whether or not its publisher may."""
    return publish_own(
        publisher,
        topic=topic.topic if topic_cid is None else topic_cid,
        version=topic.cid,
        payload=payload,
        attributes=attributes,
        created=CREATED_US,
        nonce=nonce(f"{epoch}/{number}"),
        sequence=Sequence(epoch, number),
        parents=parents,
        position=position,
        marks=marks,
        is_merge=is_merge,
    )


def mark_of(event: EventDescriptor) -> Mark:
    """Where an event stands in its publisher's numbering."""
    return Mark(event.publisher, *event.sequence)


def following(*events: EventDescriptor) -> dict[str, Any]:
    """The parents and marks of an event that follows these."""
    heads = sorted(events, key=lambda event: event.cid)
    return {"parents": [head.cid for head in heads], "marks": [mark_of(head) for head in heads]}


def request_of(
    author: Identity,
    topic: Cid,
    number: int = 1,
    *,
    epoch: int = EPOCH,
    payload: bytes = b"please",
    expires: int | None = None,
    after: Iterable[Cid] = (),
    marks: Iterable[Mark] = (),
) -> SignedRequest:
    """What an author asks to have published."""
    return sign_request(
        author,
        topic=topic,
        payload=payload,
        created=CREATED_US,
        nonce=nonce(f"r{epoch}/{number}"),
        sequence=Sequence(epoch, number),
        expires=expires,
        after=after,
        marks=marks,
    )


def largest_request(author: Identity, topic: Cid, number: int = 1) -> SignedRequest:
    """A request that may just be sent, and that is too large for an event."""

    def padded(size: int) -> SignedRequest:
        return sign_request(
            author,
            topic=topic,
            payload=bytes(PAYLOAD_BYTES_MAX),
            attributes={"padding": "." * size},
            created=CREATED_US,
            nonce=nonce(f"r{EPOCH}/{number}"),
            sequence=Sequence(EPOCH, number),
        )

    size = 60_000
    return padded(size + REQUEST_BYTES_MAX - len(padded(size).block))


def event_for(
    publisher: Identity,
    signed: SignedRequest,
    topic: TopicDescriptor,
    number: int = 1,
    *,
    epoch: int = EPOCH,
    parents: Iterable[Cid] = (),
    marks: Iterable[Mark] = (),
) -> EventDescriptor:
    """What an author asked for, published by somebody."""
    return publish_request(
        publisher,
        signed,
        version=topic.cid,
        sequence=Sequence(epoch, number),
        parents=parents,
        marks=marks,
    )
