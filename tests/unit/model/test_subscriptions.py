"""Subscription records: signed, counted, leased, and read by strangers."""

import pytest

from pulsarcast.model.cbor import decode, encode
from pulsarcast.model.errors import LocalError, RemoteError
from pulsarcast.model.ids import CID_PREFIX, Cid
from pulsarcast.model.subscriptions import (
    LEASE_S_MAX,
    SubscriptionRecord,
    decode_subscription,
    sign_subscription,
)
from tests.support.people import ALICE, MALLORY

TOPIC = Cid(CID_PREFIX + bytes(32))
NEWER = Cid(CID_PREFIX + bytes([1]) * 32)


def record(**changes: object) -> SubscriptionRecord:
    fields: dict[str, object] = {
        "topic": TOPIC,
        "version": TOPIC,
        "sid": 3,
        "number": 2,
        "lease_s": 60,
        "where": "price < 10",
    }
    return sign_subscription(ALICE, **{**fields, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize("changes", [{}, {"where": ""}, {"version": NEWER}, {"number": 0}])
def test_a_record_is_read_as_it_was_signed(changes: dict[str, object]) -> None:
    signed = record(**changes)
    assert decode_subscription(signed.block) == signed
    assert signed.subscriber == ALICE.peer_id


def test_nobody_can_subscribe_another() -> None:
    fields = decode(record().block, size_max=1000)
    assert isinstance(fields, dict)
    fields["a"] = MALLORY.peer_id
    with pytest.raises(RemoteError, match="signature"):
        decode_subscription(encode(fields))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("e", 0),
        ("e", LEASE_S_MAX + 1),
        ("f", ""),
        ("f", 7),
        ("f", "a" * 4097),
        ("w", TOPIC),
        ("z", 1),
    ],
)
def test_a_record_out_of_bounds_is_refused(key: str, value: object) -> None:
    fields = decode(record().block, size_max=1000)
    assert isinstance(fields, dict)
    fields[key] = value
    with pytest.raises(RemoteError):
        decode_subscription(encode(fields))


def test_the_caller_is_to_blame_for_a_lease_without_end() -> None:
    with pytest.raises(LocalError):
        record(lease_s=LEASE_S_MAX + 1)
