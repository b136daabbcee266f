"""The types of a topic: its settings, and the descriptor of one version.

Thesis, 3.2; docs/spec/descriptors.md, Topic.

An author chooses the settings. A descriptor is the settings as signed in one version, with the
topic's name and author and links to the version before.
"""

from __future__ import annotations

import enum
from typing import Final, TypeAlias

import msgspec

from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.model.marks import Mark
from pulsarcast.model.requests import PAYLOAD_BYTES_MAX
from pulsarcast.model.shown import brief

__all__ = [
    "ATTRIBUTE_TYPES",
    "META",
    "SEQUENCERS_MAX",
    "AttributeRule",
    "DeliveryOrder",
    "Dissemination",
    "EventLinking",
    "Mark",
    "NamedMarks",
    "Retention",
    "TopicDescriptor",
    "TopicSettings",
]

SEQUENCERS_MAX: Final = 7  # of total order: two may be lost of five, three of seven
NamedMarks: TypeAlias = tuple[Mark, ...] | Cid
"""A frontier in a version: its marks or, where they are many, their index (`mark_blocks`)."""
META: Final = "meta"  # the sub-topic in which new versions are announced (thesis, 3.3.1)


class EventLinking(enum.Enum):
    """The peer that chooses an event's parents (thesis, 3.3.3)."""

    LAST_SEEN = "LAST_SEEN"  # the publisher: the event that it saw last
    CUSTOM = "CUSTOM"  # the author


class DeliveryOrder(enum.Enum):
    """The order in which a subscriber is given events (docs/spec/pulsarcast.md, Receive)."""

    NONE = "none"
    PER_PUBLISHER = "per-publisher"
    CAUSAL = "causal"
    TOTAL = "total"


class Dissemination(enum.Enum):
    """How events travel (docs/spec/pulsarcast.md, docs/spec/cube.md)."""

    TREE = "tree"  # one tree a topic, towards the root's key (thesis)
    CUBE = "cube"  # one tree a publisher, along XOR buckets (VCube-PS)


class Retention(msgspec.Struct, frozen=True):
    """How much history is kept; None sets no bound."""

    age_s: int | None = None
    count: int | None = None
    bytes: int | None = None

    @property
    def is_limited(self) -> bool:
        """Whether there is a bound."""
        return (self.age_s, self.count, self.bytes) != (None, None, None)


class AttributeRule(msgspec.Struct, frozen=True):
    """One attribute that events of a topic may carry, for use in filters (docs/spec/filters.md)."""

    name: str
    type: str  # one of ATTRIBUTE_TYPES
    min: int | float | str | None = None  # both bounds belong to it; a text's are texts
    max: int | float | str | None = None


ATTRIBUTE_TYPES: Final = ("int", "float", "str", "bool", "timestamp")


class _Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that have one name in programs and in descriptors."""

    request_to_publish: bool = True
    requesters: tuple[PeerId, ...] | None = None  # None: every peer, if requests are taken at all
    dissemination: Dissemination = Dissemination.TREE
    root: PeerId | None = None  # whose key is the tree's root; None: the author's
    sequencers: tuple[PeerId, ...] = ()  # of total order: the first leads, the others succeed
    recovery_keys: tuple[PeerId, ...] = ()  # may sign the next version if the author's key is lost
    retention: Retention = Retention()
    attributes: tuple[AttributeRule, ...] = ()
    content_routing: bool = False  # events travel to those whose filters on attributes they match
    payload_bytes_max: int = PAYLOAD_BYTES_MAX
    description: str = ""  # for people; a topic that has one, or a tag, is listed
    tags: tuple[str, ...] = ()  # ascending, as `words.tag_of` gives them
    extensions: dict[str, object] = {}


class TopicSettings(_Settings, frozen=True, kw_only=True):
    """The choices of a topic's author.

    By default the author alone publishes, in its own order, and any other peer may ask it to
    publish for that peer (thesis, 4.1.3.1).
    """

    order: DeliveryOrder = DeliveryOrder.PER_PUBLISHER
    open: bool = False  # every peer may publish
    publishers: tuple[PeerId, ...] = ()  # no others; none named: the author, unless it is open
    linking: EventLinking = EventLinking.LAST_SEEN

    def __repr__(self) -> str:
        return brief(self)


class TopicDescriptor(_Settings, frozen=True, kw_only=True):
    """One version of a topic, verified as far as its own bytes allow; its names are the thesis'."""

    allowed_publishers: tuple[PeerId, ...] | None  # None: every peer
    event_linking: EventLinking
    delivery_order: DeliveryOrder
    name: str
    author: PeerId
    number: int  # of the version, from 0
    first: Cid | None  # None in version 0, which is the first
    parent: Cid | None  # the version before
    subtopics: dict[str, Cid]
    created: int  # µs since the Unix epoch
    nonce: bytes
    is_meta: bool
    valid_until: NamedMarks  # the frontier up to which the PREVIOUS version is valid
    flushed: NamedMarks  # the author's flush: forget up to here (thesis, 3.1)
    signer: PeerId  # the author, or a recovery key of the version before
    signature: bytes
    cid: Cid
    block: bytes

    @property
    def topic(self) -> Cid:
        """The topic's id, the same in all its versions: the content id of the first."""
        return self.cid if self.first is None else self.first

    @property
    def root_peer(self) -> PeerId:
        """The peer whose key is the root of the dissemination tree."""
        return self.author if self.root is None else self.root

    @property
    def settings(self) -> TopicSettings:
        """The settings of this version: a start for choosing the next one's."""
        return TopicSettings(
            order=self.delivery_order,
            open=self.allowed_publishers is None,
            publishers=self.allowed_publishers or (),
            linking=self.event_linking,
            **{field: getattr(self, field) for field in _Settings.__struct_fields__},
        )

    @property
    def is_sequenced(self) -> bool:
        """Whether several sequencers agree on the order, so that it outlives some of them."""
        return self.delivery_order is DeliveryOrder.TOTAL and len(self.sequencers) > 1

    @property
    def is_listed(self) -> bool:
        """Whether this version may be found by its words and tags (docs/spec/discovery.md)."""
        return bool(self.description or self.tags)

    def may_publish(self, peer: PeerId) -> bool:
        """Whether this version lets a peer publish."""
        return self.allowed_publishers is None or peer in self.allowed_publishers

    def may_request(self, peer: PeerId) -> bool:
        """Whether this version lets a peer ask others to publish for it."""
        return self.request_to_publish and (self.requesters is None or peer in self.requesters)

    def __hash__(self) -> int:
        """Hash by content id, which covers every byte of the version."""
        return hash(self.cid)
