"""Subscription records: a subscriber's signed filter, kept by the peers that match events for it.

The 2d-tree thesis keeps (subscriber, sid, subscription) at the home of a leaf (3.3.1). This record
is signed by the subscriber, so that no peer can have events sent to another; numbered, so that an
old record never replaces a newer one; and leased: a record that is not renewed expires
(docs/spec/filters.md, Subscriptions).

On the wire: v (protocol version, 1), t topic, w topic version (left out where it is the first), a
subscriber, i the subscriber's own id of it, n number, e lease in seconds, f the filter's canonical
text (left out: the subscription is cancelled), s signature.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import msgspec

from pulsarcast.model.cbor import INT_MAX, decode, encode, encode_part, opaque
from pulsarcast.model.errors import Rejection, RemoteError, caller_to_blame
from pulsarcast.model.fields import (
    PROTOCOL_VERSION,
    Fields,
    check_version,
    read_int,
    read_map,
    read_signature,
)
from pulsarcast.model.filters.bounds import FILTER_BYTES_MAX
from pulsarcast.model.identity import Identity, verify_signature
from pulsarcast.model.ids import Cid, PeerId, check_cid, check_peer_id

SUBSCRIPTION_BYTES_MAX: Final = FILTER_BYTES_MAX + 512
LEASE_S_MAX: Final = 86_400

# A record passes the same homes again with every renewal, replica and split.
_KNOWN: Final = 1 << 14
_KEYS = frozenset("vtwainefs")


class SubscriptionRecord(msgspec.Struct, frozen=True):
    """A subscriber's filter on a topic."""

    topic: Cid
    version: Cid  # whose schema the filter was written for
    subscriber: PeerId
    sid: int
    number: int  # a later one replaces earlier ones of the same sid
    lease_s: int
    where: str  # empty: cancelled
    signature: bytes
    block: bytes

    def __hash__(self) -> int:
        """Hash by the signed bytes."""
        return hash(self.block)


def sign_subscription(
    identity: Identity,
    *,
    topic: Cid,
    version: Cid,
    sid: int,
    number: int,
    lease_s: int,
    where: str,
) -> SubscriptionRecord:
    """Ask, as a subscriber, for the events that match a filter; an empty one cancels."""
    fields: Fields = {
        "v": PROTOCOL_VERSION,
        "t": topic,
        "a": identity.peer_id,
        "i": sid,
        "n": number,
        "e": lease_s,
    }
    if version != topic:
        fields["w"] = version
    if where:
        fields["f"] = where
    fields["s"] = opaque(identity.sign("subscription", encode(fields)))
    with caller_to_blame():
        return _read_subscription(encode(fields), verify=False)


@lru_cache(maxsize=_KNOWN)
def decode_subscription(block: bytes) -> SubscriptionRecord:
    """Read and verify a subscriber's record; its filter is parsed later."""
    return _read_subscription(block, verify=True)


def _read_subscription(block: bytes, *, verify: bool) -> SubscriptionRecord:
    value = decode(block, size_max=SUBSCRIPTION_BYTES_MAX)
    check_version(value, "a subscription")
    fields = read_map(value, _KEYS, "a subscription")
    topic = check_cid(fields.get("t"))
    version = check_cid(fields["w"]) if "w" in fields else topic
    if "w" in fields and version == topic:
        raise RemoteError(
            "a subscription names its topic's first version", code=Rejection.WRONG_TOPIC
        )
    subscriber = check_peer_id(fields.get("a"))
    sid = read_int(fields.get("i"), 0, INT_MAX, "a subscription's id")
    number = read_int(fields.get("n"), 0, INT_MAX, "a subscription's number")
    lease_s = read_int(fields.get("e"), 1, LEASE_S_MAX, "a lease")
    where = fields.get("f", "")
    if not isinstance(where, str) or ("f" in fields and not where):
        raise RemoteError("a subscription's filter is no text")
    if len(where.encode()) > FILTER_BYTES_MAX:
        raise RemoteError("a filter larger than is allowed", code=Rejection.OVERSIZE)
    signature = read_signature(fields.pop("s", None))
    if verify and not verify_signature(subscriber, "subscription", encode_part(fields), signature):
        raise RemoteError("the subscription's signature is wrong", code=Rejection.BAD_SIGNATURE)
    return SubscriptionRecord(
        topic, version, subscriber, sid, number, lease_s, where, signature, block
    )
