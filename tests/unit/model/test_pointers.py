import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsarcast.model.cbor import decode, encode, opaque
from pulsarcast.model.errors import LocalError, RemoteError, Verdict
from pulsarcast.model.identity import Identity
from pulsarcast.model.ids import Cid, cid_of
from pulsarcast.model.pointers import decode_named, decode_pointer, pointer_key, sign_pointer
from tests.unit.model.samples import ALICE, BOB, cids, identities, names

NUMBERS = st.integers(0, (1 << 63) - 1)


@given(identities, names, NUMBERS, cids, cids, NUMBERS)
def test_a_pointer_survives_its_way(
    identity: Identity, name: str, number: int, cid: Cid, topic: Cid, moves: int
) -> None:
    pointer = sign_pointer(identity, name, number, cid, topic=topic, moves=moves)
    assert decode_pointer(pointer.block) == pointer


def test_a_pointer_has_its_own_place_for_each_author_and_name() -> None:
    places = {
        pointer_key(peer, name)
        for peer in (ALICE.peer_id, BOB.peer_id)
        for name in ("news", "news/meta")
    }
    assert len(places) == 4


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("o", -1),
        ("o", None),
        ("t", b"\0"),
        ("i", -1),
        ("i", True),
        ("m", ""),
        ("c", b"\0"),
        ("a", b"\0"),
        ("z", 1),
        ("v", 0),
    ],
)
def test_a_pointer_of_another_shape_is_rejected(key: str, value: object) -> None:
    fields = decode(
        sign_pointer(ALICE, "news", 1, cid_of(b""), topic=cid_of(b"")).block, size_max=1000
    )
    assert isinstance(fields, dict)
    del fields["s"]
    fields[key] = value
    block = encode({**fields, "s": opaque(ALICE.sign("pointer", encode(fields)))})
    with pytest.raises(RemoteError) as caught:
        decode_pointer(block)
    assert caught.value.verdict is Verdict.REJECT


def test_a_pointer_that_someone_else_signed_is_rejected() -> None:
    fields = decode(
        sign_pointer(ALICE, "news", 1, cid_of(b""), topic=cid_of(b"")).block, size_max=1000
    )
    assert isinstance(fields, dict)
    del fields["s"]
    block = encode({**fields, "s": opaque(BOB.sign("pointer", encode(fields)))})
    with pytest.raises(RemoteError, match="signature"):
        decode_pointer(block)


def test_pointers_of_two_names_are_not_taken_together() -> None:
    blocks = [
        sign_pointer(who, name, 1, cid_of(b""), topic=cid_of(b"")).block
        for who, name in ((ALICE, "news"), (ALICE, "olds"), (BOB, "news"))
    ]
    for other in blocks[1:]:
        with pytest.raises(RemoteError):
            decode_named((blocks[0], other))
    assert decode_named(()) is None


def test_a_pointer_that_peers_would_reject_is_never_made() -> None:
    with pytest.raises(LocalError):
        sign_pointer(ALICE, "n" * 300, 1, cid_of(b""), topic=cid_of(b""))
