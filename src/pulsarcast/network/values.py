"""What the library is given and gives back: topics, things to publish, and walks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from pulsarcast.model.api import GapView
from pulsarcast.model.events import Attribute
from pulsarcast.model.ids import Cid, cid_text, peer_text
from pulsarcast.model.topics import TopicDescriptor
from pulsarcast.network.subscriptions import Event
from pulsarcast.protocol.inputs import Publish

Ack: TypeAlias = Literal["accepted", "replicated"]


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic, as it was when it was looked up."""

    descriptor: TopicDescriptor

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


EventRef: TypeAlias = Cid | str
"""An event: its content id, as bytes or as text."""
TopicRef: TypeAlias = Topic | Cid | str
"""A topic, its content id, or `author/name`; `/meta` behind one of these is its meta topic."""
Start: TypeAlias = Literal["now", "beginning"] | int
"""The first event of a subscription: the next one, the oldest one, or one by its index."""


@dataclass(frozen=True, slots=True)
class Published:
    """A published event: its id, and how many peers keep it."""

    cid: Cid
    replicas: int
    """How many peers are known to keep it."""

    @property
    def id(self) -> str:
        """The event's content id."""
        return cid_text(self.cid)


@dataclass(frozen=True, slots=True)
class Walked:
    """Events on a walk, what is missing among them, and where to go on."""

    events: tuple[Event, ...]
    gaps: tuple[GapView, ...]
    cursor: str
    """Where to go on; empty: there is nothing more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """An event to publish."""

    payload: bytes
    name: str = ""
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    parents: Sequence[Cid] = ()
    idempotency_key: bytes | str | None = None
    created_us: int | None = None
    """When it was said, where that was not now: the author's word. Members keep it as any other;
    the DHT keeps nothing older than 30 days or more than a day ahead, so `replicated` says 0."""

    def command(self, call: int, topic: Cid, ack: Ack, injection: str = "") -> Publish:
        """What the core is told."""
        key = self.idempotency_key
        return Publish(
            call,
            topic,
            self.payload,
            name=self.name,
            attributes=dict(self.attributes),
            parents=tuple(self.parents),
            replicated=ack == "replicated",
            idempotency_key=key.encode() if isinstance(key, str) else key,
            created_us=self.created_us,
            injection=injection,
        )
