import pytest
from hypothesis import given

from pulsarcast.model.cbor import decode, encode, opaque
from pulsarcast.model.errors import LocalError, RemoteError, Verdict
from pulsarcast.model.events import (
    EVENT_BYTES_MAX,
    PARENTS_MAX,
    PAYLOAD_BYTES_MAX,
    EventDescriptor,
    Position,
    Sequence,
    decode_event,
    publish_request,
)
from pulsarcast.model.fields import Fields
from pulsarcast.model.identity import Identity
from pulsarcast.model.ids import cid_of
from tests.unit.model.samples import (
    ALICE,
    BOB,
    CAROL,
    TOPIC,
    events,
    own_event,
    request,
    requested_event,
)


def fields_of(event: EventDescriptor) -> tuple[Fields, Fields]:
    """An event's map and the request's map inside it, to be spoilt; the signature is left out."""
    fields = decode(event.block, size_max=EVENT_BYTES_MAX)
    assert isinstance(fields, dict)
    del fields["s"]
    return fields, fields["r"]


def resigned(fields: Fields, identity: Identity = ALICE) -> bytes:
    """A block whose signature is right, so that it can only be rejected for something else."""
    return encode({**fields, "s": opaque(identity.sign("event", encode(fields)))})


def rejection(block: bytes) -> RemoteError:
    with pytest.raises(RemoteError) as caught:
        decode_event(block)
    return caught.value


@given(events)
def test_an_event_survives_its_way(event: EventDescriptor) -> None:
    decoded = decode_event(event.block)
    assert decoded == event
    assert decoded.cid == cid_of(event.block)
    assert hash(decoded) == hash(event)


def test_author_and_publisher_in_one_sign_once() -> None:
    event = own_event()
    assert event.author_signature is None
    assert event.author == event.publisher == ALICE.peer_id
    assert event.request.sequence == event.sequence


def test_an_author_and_a_publisher_both_sign() -> None:
    event = requested_event()
    assert (event.author, event.publisher) == (BOB.peer_id, ALICE.peer_id)
    assert event.author_signature == request().signature


def test_a_request_has_one_id_whoever_publishes_it() -> None:
    signed = request(identity=BOB)
    ids = {
        publish_request(
            identity, signed, version=TOPIC, sequence=Sequence(3, 1), parents=()
        ).request_id
        for identity in (ALICE, BOB, CAROL)
    }
    assert ids == {signed.request_id}


def test_an_author_may_publish_its_own_request_after_all() -> None:
    signed = request(identity=BOB)
    event = publish_request(BOB, signed, version=TOPIC, sequence=Sequence(3, 1), parents=())
    assert decode_event(event.block) == event
    assert event.author_signature is None
    assert event.request == signed.request


@pytest.mark.parametrize("event", [own_event(), requested_event()], ids=["own", "requested"])
def test_one_changed_bit_anywhere_is_rejected(event: EventDescriptor) -> None:
    for at in range(len(event.block)):
        block = bytearray(event.block)
        block[at] ^= 1 << at % 8
        rejection(bytes(block))


def test_a_forged_publisher_is_rejected() -> None:
    fields, _ = fields_of(own_event(identity=ALICE))
    assert str(rejection(resigned(fields, BOB))) == "the publisher's signature is wrong"


def test_a_forged_author_is_rejected() -> None:
    fields, asked = fields_of(requested_event())
    asked["b"] = opaque(b"what Bob never said")
    assert str(rejection(resigned(fields))) == "the author's signature is wrong"


def test_a_publisher_cannot_pass_off_what_another_author_said_as_its_own_signature() -> None:
    fields, _ = fields_of(requested_event())
    del fields["a"]
    assert rejection(resigned(fields)).verdict is Verdict.REJECT


@pytest.mark.parametrize("version", [2, 3, 1 << 40])
def test_an_unknown_major_version_is_ignored_not_rejected(version: int) -> None:
    fields, _ = fields_of(own_event())
    fields["v"] = version
    fields["what we do not know"] = "yet"
    assert rejection(resigned(fields)).verdict is Verdict.IGNORE


@pytest.mark.parametrize("version", [0, -1, True, "1", None, 1.0])
def test_a_version_that_is_none_is_rejected(version: object) -> None:
    fields, _ = fields_of(own_event())
    fields["v"] = version
    assert rejection(resigned(fields)).verdict is Verdict.REJECT


def test_an_unknown_field_is_rejected() -> None:
    fields, asked = fields_of(own_event())
    assert "unknown field" in str(rejection(resigned({**fields, "z": 1})))
    asked["z"] = 1
    assert "unknown field" in str(rejection(resigned(fields)))


def test_the_reserved_field_encryption_is_rejected() -> None:
    fields, asked = fields_of(own_event())
    assert "reserved" in str(rejection(resigned({**fields, "encryption": {}})))
    asked["encryption"] = {}
    assert "reserved" in str(rejection(resigned(fields)))


def test_an_unknown_extension_is_carried() -> None:
    event = own_event(extensions={"colour": {"red": [1, 2.5, None]}})
    assert decode_event(event.block).extensions == {"colour": {"red": [1, 2.5, None]}}


@pytest.mark.parametrize("key", ["v", "r", "n"])
def test_an_event_without_a_field_it_needs_is_rejected(key: str) -> None:
    fields, _ = fields_of(own_event())
    del fields[key]
    assert rejection(resigned(fields)).verdict is Verdict.REJECT


@pytest.mark.parametrize("key", ["t", "a", "b", "c", "n"])
def test_a_request_without_a_field_it_needs_is_rejected(key: str) -> None:
    fields, asked = fields_of(own_event())
    del asked[key]
    assert rejection(resigned(fields)).verdict is Verdict.REJECT


def test_an_event_without_a_signature_is_rejected() -> None:
    fields, _ = fields_of(own_event())
    assert rejection(encode(fields)).verdict is Verdict.REJECT


@pytest.mark.parametrize(
    ("key", "empty"), [("l", []), ("x", {}), ("o", None), ("w", TOPIC), ("p", ALICE.peer_id)]
)
def test_what_should_have_been_left_out_of_an_event_is_rejected(key: str, empty: object) -> None:
    fields, _ = fields_of(own_event())
    assert rejection(resigned({**fields, key: empty})).verdict is Verdict.REJECT


@pytest.mark.parametrize(
    ("key", "empty"), [("m", ""), ("k", {}), ("e", None), ("f", []), ("q", [7, 1])]
)
def test_what_should_have_been_left_out_of_a_request_is_rejected(key: str, empty: object) -> None:
    fields, asked = fields_of(own_event())
    asked[key] = empty
    assert rejection(resigned(fields)).verdict is Verdict.REJECT


def test_a_publisher_named_beside_an_equal_author_is_rejected() -> None:
    fields, asked = fields_of(requested_event())
    asked["a"] = ALICE.peer_id
    assert "the publisher" in str(rejection(resigned(fields)))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("n", [7, 0]),
        ("n", [-1, 1]),
        ("n", [7]),
        ("n", [7, 1, 1]),
        ("n", [7, True]),
        ("n", {"epoch": 7}),
        ("l", [TOPIC, TOPIC]),
        ("l", [cid_of(bytes([n])) for n in range(PARENTS_MAX + 1)]),
        ("l", [b"\0"]),
        ("l", TOPIC),
        ("o", [1, -1]),
        ("o", [1]),
        ("w", b"\0no link"),
        ("x", []),
        ("r", []),
        ("r", None),
        ("s", b""),
    ],
)
def test_a_field_of_another_shape_is_rejected(key: str, value: object) -> None:
    fields, _ = fields_of(own_event())
    assert rejection(resigned({**fields, key: value})).verdict is Verdict.REJECT


@pytest.mark.parametrize("value", [0, None, [], "text", b"", {}, [[]]])
def test_a_block_that_is_no_event_is_rejected(value: object) -> None:
    assert rejection(encode(value)).verdict is Verdict.REJECT


def test_an_oversize_block_is_rejected_unread() -> None:
    assert "oversize" in str(rejection(bytes(EVENT_BYTES_MAX + 1)))


def test_a_payload_may_be_a_mebibyte_and_no_more() -> None:
    event = own_event(payload=bytes(PAYLOAD_BYTES_MAX))
    assert len(decode_event(event.block).payload) == PAYLOAD_BYTES_MAX
    with pytest.raises(LocalError):
        own_event(payload=bytes(PAYLOAD_BYTES_MAX + 1))


def test_an_event_that_peers_would_reject_is_never_made() -> None:
    with pytest.raises(LocalError):
        own_event(sequence=Sequence(7, 0))
    with pytest.raises(LocalError):
        own_event(parents=(TOPIC, TOPIC))
    with pytest.raises(LocalError):
        own_event(position=Position(-1, 1))
    with pytest.raises(LocalError):
        own_event(extensions={"not dag-cbor": {1, 2}})


def test_integers_floats_and_bools_stay_what_they_are() -> None:
    event = own_event(attributes={"int": 1, "float": 1.0, "bool": True, "bytes": b"\x01"})
    attributes = decode_event(event.block).request.attributes
    assert [type(value) for value in attributes.values()] == [
        type(event.request.attributes[name]) for name in attributes
    ]
    assert type(attributes["float"]) is float
    assert type(attributes["bool"]) is bool
    assert attributes["bytes"] == b"\x01"
