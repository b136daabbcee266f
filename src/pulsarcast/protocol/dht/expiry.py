"""Expiry: decides how long the DHT keeps a block (docs/spec/pulsarcast.md, The DHT).

The time is counted from the content's `created`, never from when a replica got it from another:
otherwise replicas would keep a block alive for ever by repairing it from each other. Only a topic's
version is prolonged, when a node that follows the topic asks a replica to keep it
(`following.republishing`). The maker of a block chooses `created`, so a block from the future is
not kept. Only copies for other peers expire: members keep a topic's events for as long as its
retention says.
"""

from typing import NamedTuple

from pulsarcast.model.events import EventDescriptor
from pulsarcast.model.mark_blocks import MarkBlock
from pulsarcast.model.topics import TopicDescriptor
from pulsarcast.protocol.parameters import Parameters

TOPIC_FACTOR = 10
"""A topic's version is kept this many times longer than an event: members have the events too, but
a newcomer finds the topic itself only in the DHT. Versions are few, and change less often."""
LISTING_SHARE = 10
"""A listing is kept for this part of the time of an event: three days, by default. Its author signs
it anew every day, so that a topic that its author lists no longer is soon found no longer."""
AHEAD_US_MAX = 86_400_000_000
"""Bounds how far another clock may be ahead: a day, the largest mistake about a time zone."""


class Lifetime(NamedTuple):
    """From when until when a block belongs in the DHT, in wall time."""

    created_us: int
    expires_us: int
    prolonged_us: int = 0
    """Shortest time that it is kept after a peer asks for it; an event is not prolonged."""

    def ends_soon(self, now_us: int) -> bool:
        """Whether a peer that asks for it at this time prolongs it."""
        return self.expires_us < now_us + self.prolonged_us

    def asked_for(self, now_us: int) -> "Lifetime":
        """The lifetime after a peer asks a replica to keep the block."""
        if not self.ends_soon(now_us):
            return self
        return self._replace(expires_us=now_us + self.prolonged_us)

    def covers(self, now_us: int) -> bool:
        """Whether a replica keeps the block at this time."""
        return self.created_us <= now_us + AHEAD_US_MAX and now_us < self.expires_us


def event_lifetime(event: EventDescriptor, parameters: Parameters) -> Lifetime:
    """How long the DHT keeps an event."""
    created_us = event.request.created
    return Lifetime(created_us, created_us + int(parameters.block_expiry_s * 1_000_000))


def topic_lifetime(version: TopicDescriptor | MarkBlock, parameters: Parameters) -> Lifetime:
    """How long the DHT keeps a version of a topic, or a block of the marks that it names."""
    prolonged_us = int(parameters.block_expiry_s * 1_000_000)
    return Lifetime(version.created, version.created + TOPIC_FACTOR * prolonged_us, prolonged_us)


def listing_lifetime_us(parameters: Parameters) -> int:
    """How long the DHT keeps a listing from when its author signs it."""
    return int(parameters.block_expiry_s * 1_000_000) // LISTING_SHARE
