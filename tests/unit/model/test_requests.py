import pytest
from hypothesis import given

from pulsarcast.model.cbor import encode, opaque
from pulsarcast.model.errors import LocalError, RemoteError
from pulsarcast.model.events import Sequence, SignedRequest, decode_request, sign_request
from pulsarcast.model.ids import cid_of
from pulsarcast.model.requests import PAYLOAD_BYTES_MAX, request_fields
from tests.unit.model.samples import (
    ALICE,
    BOB,
    CREATED,
    NONCE,
    TOPIC,
    own_event,
    request,
    signed_requests,
)


@given(signed_requests())
def test_a_request_survives_its_way(signed: SignedRequest) -> None:
    assert decode_request(signed.block) == signed


def test_a_request_that_someone_else_signed_is_rejected() -> None:
    fields = request_fields(request(identity=BOB).request)
    signature = ALICE.sign("request", encode(fields))
    block = encode({"v": 1, "r": fields, "s": opaque(signature)})
    with pytest.raises(RemoteError, match="author's signature"):
        decode_request(block)


def test_two_requests_of_one_author_have_two_ids() -> None:
    first, second = request(sequence=Sequence(9, 4)), request(sequence=Sequence(9, 5))
    assert first.request_id != second.request_id


def test_a_request_id_is_the_hash_of_what_the_author_signed() -> None:
    from hashlib import sha256

    signed = request()
    body = encode(request_fields(signed.request))
    assert signed.request_id == sha256(b"pulsarcast/request/1" + body).digest()


def test_an_event_is_not_a_request() -> None:
    with pytest.raises(RemoteError):
        decode_request(own_event().block)


@pytest.mark.parametrize(
    "wrong",
    [
        {"payload": bytes(PAYLOAD_BYTES_MAX + 1)},
        {"name": "n" * 257},
        {"name": "é" * 129},
        {"attributes": {str(n): n for n in range(65)}},
        {"attributes": {"": 1}},
        {"attributes": {"a": None}},
        {"attributes": {"a": [1]}},
        {"attributes": {"a": 1 << 63}},
        {"attributes": {"a": float("nan")}},
        {"created": -1},
        {"created": True},
        {"created": 1.0},
        {"expires": 1 << 62},
        {"nonce": bytes(15)},
        {"sequence": Sequence(0, 0)},
        {"sequence": Sequence(-1, 1)},
        {"sequence": Sequence(1 << 63, 1)},
        {"topic": b"no cid"},
        {"topic": ALICE.peer_id},
        {"after": [cid_of(bytes([n])) for n in range(65)]},
        {"after": [TOPIC, TOPIC]},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_a_request_that_peers_would_reject_is_never_made(wrong: dict[str, object]) -> None:
    right = {
        "topic": TOPIC,
        "payload": b"",
        "created": CREATED,
        "nonce": NONCE,
        "sequence": Sequence(0, 1),
    }
    with pytest.raises(LocalError):
        sign_request(ALICE, **{**right, **wrong})  # type: ignore[arg-type]
