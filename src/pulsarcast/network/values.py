"""What the library gives back: topics, published events and walks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from pulsarcast.model.api import GapView
from pulsarcast.model.ids import Cid, cid_text, parse_cid, peer_text
from pulsarcast.model.publications import EventRef, Publication
from pulsarcast.model.shown import published_shown, topic_shown, walk_shown
from pulsarcast.model.topics import TopicDescriptor
from pulsarcast.network.subscriptions import Event
from pulsarcast.protocol.inputs import Publish

Ack: TypeAlias = Literal["accepted", "replicated"]


@dataclass(frozen=True, slots=True, repr=False)
class Topic:
    """A topic, as it was when it was looked up."""

    descriptor: TopicDescriptor
    notes: tuple[str, ...] = field(default=(), compare=False)
    """What a person should know of the name by which it was found: that it moved, or that two
    topics claim it."""

    @property
    def cid(self) -> Cid:
        """Its content id, as bytes."""
        return self.descriptor.topic

    @property
    def id(self) -> str:
        """What it is known by through all its versions."""
        return cid_text(self.descriptor.topic)

    @property
    def name(self) -> str:
        """What its author called it."""
        return self.descriptor.name

    @property
    def author(self) -> str:
        """Who made it."""
        return peer_text(self.descriptor.author)

    @property
    def version(self) -> int:
        """The number of its version, from 0."""
        return self.descriptor.number

    def __repr__(self) -> str:
        return topic_shown(self)


TopicRef: TypeAlias = Topic | Cid | str
"""A topic, its content id, a name of the node's own, or `author/name`; `/meta` behind one of these
is its meta topic."""
Start: TypeAlias = Literal["now", "beginning"] | int
"""The first event of a subscription: the next one, the oldest one, or one by its index."""


@dataclass(frozen=True, slots=True, repr=False)
class Published:
    """A published event: its id, and how many peers keep it."""

    cid: Cid
    replicas: int
    """How many peers are known to keep it."""

    @property
    def id(self) -> str:
        """The event's content id."""
        return cid_text(self.cid)

    def __repr__(self) -> str:
        return published_shown(self)


@dataclass(frozen=True, slots=True, repr=False)
class Walked:
    """Events on a walk, what is missing among them, and where to go on."""

    events: tuple[Event, ...]
    gaps: tuple[GapView, ...]
    cursor: str
    """Where to go on; empty: there is nothing more."""

    def __repr__(self) -> str:
        return walk_shown(self)


def parse_event(event: EventRef) -> Cid:
    """An event's content id, given as bytes or as text."""
    return parse_cid(event) if isinstance(event, str) else event


def command_of(
    publication: Publication, call: int, topic: Cid, ack: Ack, injection: str = ""
) -> Publish:
    """What the core is told of an event to publish."""
    key = publication.idempotency_key
    return Publish(
        call,
        topic,
        publication.data,
        name=publication.name,
        attributes=dict(publication.attributes),
        parents=tuple(map(parse_event, publication.parents)),
        replicated=ack == "replicated",
        idempotency_key=None if key is None else key.encode(),
        created_us=publication.created_us,
        injection=injection,
    )
